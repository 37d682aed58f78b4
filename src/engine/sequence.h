/* sequence.h: what the scheduler knows of one answer: how many tokens it has, how many of them have
 * their keys and values in KV blocks, and which blocks. Token ids pass by only on their way to the prefix
 * cache; no text.
 *
 *   positions   0 ........ n_computed ........ n_tokens
 *               in the KV blocks | next rows to compute; the last one's logits give a new token
 *
 * Owned by the engine's thread once submitted. */
#ifndef PHI_ENGINE_SEQUENCE_H
#define PHI_ENGINE_SEQUENCE_H

#include "engine/prefix_cache.h"

enum phi_sequence_state {
    PHI_SEQUENCE_NEW = 0, /* not handed to the scheduler yet */
    PHI_SEQUENCE_WAITING,
    PHI_SEQUENCE_RUNNING,
    PHI_SEQUENCE_ENDED
};

struct phi_sequence {
    enum phi_sequence_state state;
    int64_t priority; /* lower goes first, where the policy asks for it */
    uint64_t arrival; /* the scheduler's number, rising */
    size_t n_prompt; /* tokens of the prompt */
    size_t n_tokens; /* tokens known: the prompt and the answer so far */
    size_t
        n_computed; /* positions whose keys and values are in `blocks`; < n_tokens while it runs */

    /* Positions below score_end want their logits, each once, in rising order (prompt logprobs).
     * With score_end
     * == n_tokens every position does, and no token is sampled. */
    size_t score_end;
    size_t n_scored;

    bool long_regime; /* of the keys in `blocks` */
    uint32_t
        *blocks; /* [n_blocks], room for every token it may ever have; memory of the answer's */
    size_t n_blocks;

    /* Copies the ids of positions begin .. begin + n - 1; unused without a prefix cache. */
    void (*read_tokens)(const struct phi_sequence *q, size_t begin, size_t n, int32_t *out);
    struct phi_prefix_salt salt;
    size_t n_named;  /* leading blocks whose content the prefix cache knows */
    uint64_t prefix; /* its name for the last of them; meaningless while there are none */

    size_t n_cached; /* tokens that the prefix cache had when it was admitted first */
    size_t n_preemptions;

    const void
        *group;  /* equal for the answers to one prompt, which share its blocks; NULL = alone */
    void *owner; /* the engine's answer */
    struct phi_sequence *next, *previous; /* in the waiting list */
};

static inline bool phi_sequence_samples(const struct phi_sequence *q)
{
    return q->score_end < q->n_tokens;
}

#endif
