/* sampler.h: from a row of logits to the next token, with vLLM's processors in vLLM's order:
 *
 *   allowed ids -> bad words -> min_tokens -> logit_bias -> repetition, frequency, presence penalty
 *   -> greedy: the first greatest logit
 *   -> otherwise: / temperature -> min_p -> top_k -> top_p -> one draw
 *
 * The rules at the borders: min_p drops x < max + ln(min_p). top_k keeps everything equal to the
 * k-th. top_p, on what top_k left, keeps a token when the mass of those before it is less than
 * top_p; tokens stand in falling order of logit, equal ones in rising order of id; the first always
 * stays.
 *
 * The draw is the inverse of the cumulative distribution at u, a function of (key, stream, token
 * index) only (base/rng.h): over the kept tokens in the order above or, when neither top_k nor
 * top_p is on, over all ids in rising order, first by blocks of PHI_LSE_BLOCK. Weights are the
 * float32 exp(x - max) of docs/NUMERICS.md, added in double; so a draw is the same on every machine
 * and in every company.
 *
 * Nothing here sorts a vocabulary. top_k sorts what can be among the k greatest. top_p without it
 * adds up weights by buckets of like logits, 8 for each doubling, and sorts only the bucket in which
 * the nucleus ends and that in which the draw falls. */
#ifndef PHI_ENGINE_SAMPLER_H
#define PHI_ENGINE_SAMPLER_H

#include "engine/row.h"
#include "kernels/kernels.h"

/* Words that must not be completed: `n` ids each, one after the other in `ids`. */
struct phi_bad_words {
    const int32_t *ids;
    const uint32_t *lengths; /* [n_words] */
    size_t n_words;
};

/* What one token's choice depends on beside the logits. All ids are below the vocabulary's size. */
struct phi_sampling_state {
    double temperature; /* 0 = greedy */
    int top_k;          /* 0 = off */
    double top_p, min_p;
    double repetition_penalty, frequency_penalty, presence_penalty;
    const int32_t *allowed_ids; /* n_allowed = 0: all */
    size_t n_allowed;
    struct phi_bad_words bad_words;
    const struct phi_logit_bias *logit_bias;
    size_t n_logit_bias;
    const int32_t *end_ids; /* masked while n_output < min_tokens */
    size_t n_end_ids;
    size_t min_tokens;

    const int32_t *prompt, *output;
    size_t n_prompt, n_output;
    uint64_t key, stream; /* of the random numbers; the index is n_output */
};

/* A state that changes nothing: greedy over the raw logits. */
void phi_sampling_state_init(struct phi_sampling_state *state);

/* Buffers of one thread that samples. */
struct phi_sampler {
    const struct phi_kernels *kernels;
    size_t vocab_size;
    struct phi_row row; /* the logits in hand, raw or processed */
    float *work;        /* [vocab_size] the processed logits */
    int32_t *counts;    /* [vocab_size] all 0 between calls */
    float *weights;     /* [vocab_size] of candidates; with room for a whole PHI_KEY_BLOCK */
    double *masses;     /* of the buckets of a nucleus */
};

size_t phi_sampler_bytes(size_t vocab_size);
enum phi_status phi_sampler_init(struct phi_sampler *s, const struct phi_kernels *kernels,
                                 size_t vocab_size, struct phi_error *err);
void phi_sampler_deinit(struct phi_sampler *s);

enum {
    PHI_TOKEN_NONE = -1,      /* the masks leave none */
    PHI_TOKEN_UNDEFINED = -2, /* a logit is NaN or infinite */
};

/* The next token for raw logits [vocab_size], or one of the above. */
int32_t phi_sampler_sample(struct phi_sampler *s, const float *logits,
                           const struct phi_sampling_state *state);

#endif
