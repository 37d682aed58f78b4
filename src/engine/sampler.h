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
 * Nothing here sorts a whole vocabulary unless the distribution is so flat that most of it is kept:
 * candidates within a distance of the maximum are collected, and the distance grows until they are
 * enough. */
#ifndef PHI_ENGINE_SAMPLER_H
#define PHI_ENGINE_SAMPLER_H

#include "base/status.h"
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

struct phi_candidate {
    uint32_t key; /* falling logits as rising integers */
    int32_t id;
};

/* Buffers of one thread that samples. */
struct phi_sampler {
    const struct phi_kernels *kernels;
    size_t vocab_size;
    float *work;                      /* [vocab_size] the processed logits */
    int32_t *counts;                  /* [vocab_size] all 0 between calls */
    struct phi_candidate *candidates; /* [2, vocab_size] the list, and room to sort it */
};

enum phi_status phi_sampler_init(struct phi_sampler *s, const struct phi_kernels *kernels,
                                 size_t vocab_size, struct phi_error *err);
void phi_sampler_deinit(struct phi_sampler *s);
size_t phi_sampler_bytes(size_t vocab_size);

/* False when a logit is NaN or infinite. */
bool phi_logits_finite(const float *logits, size_t n);

/* The next token for finite raw logits [vocab_size]; -1 when the masks leave none. */
int32_t phi_sampler_sample(struct phi_sampler *s, const float *logits,
                           const struct phi_sampling_state *state);

/* ---- for logprobs.c and the tests */

/* The greatest of n >= 1 floats without NaN, and the index of the first one equal to it. */
float phi_row_max(const float *x, size_t n);
int32_t phi_row_argmax(const float *x, size_t n);

/* Fills s->candidates with the ids of the greatest finite values of x [vocab_size], at least
 * `n_wanted` of them or all, in falling order of value and rising order of id. All values equal to
 * the last one wanted are there. Returns their number. */
size_t phi_sampler_collect(struct phi_sampler *s, const float *x, float max, size_t n_wanted);

#endif
