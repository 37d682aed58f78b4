/* scheduler.h: which rows the next step computes. A pure function of its state: no clock, no model,
 * no thread, so that a seeded simulation can drive it through any trace (tests/engine).
 *
 * One order decides everything: that of arrival or, by priority, that of (priority, arrival). Each
 * step has a budget of token rows. Sequences that run come first, in that order: one row for each
 * that only needs its next token, the rest of the budget for prompts, in chunks. Then waiting
 * sequences are admitted, in that order and none before another, while sequence slots, budget and
 * blocks last. A prompt that is longer than a step would, step by step, keep everybody from their
 * next tokens: while there is somebody else, all such prompts together get a quarter of the rows,
 * each at least one. A sequence gets the blocks of all its tokens at once. When blocks run out, the
 * last of those that run gives its blocks back and waits again, to be computed again later: what it
 * has said is kept, and by docs/NUMERICS.md its keys and values come out the same. So the first of
 * all that are there moves on in every step in which it runs, and nobody who came later can keep it
 * from running for ever.
 *
 * LongRoPE: the keys of a sequence of more than `original_length` tokens are made with the long
 * factors, those of a shorter one with the short factors. When a sequence grows past the limit, its
 * blocks are dropped and all its tokens become rows to compute again, as transformers does.
 *
 * Answers to one prompt share the blocks of the prompt: one computes it, the others wait for that,
 * share the full blocks and copy the last one. With a prefix cache, a sequence that is admitted
 * takes over all leading blocks that hold its tokens already, whoever computed them; its last token
 * stays to be computed, in a copy of its block when that was found too.
 *
 * Invariants: a sequence in `running` holds blocks for all its tokens; a waiting one holds none. */
#ifndef PHI_ENGINE_SCHEDULER_H
#define PHI_ENGINE_SCHEDULER_H

#include "engine/sequence.h"

struct phi_scheduler_limits {
    uint32_t max_num_seqs;           /* running sequences */
    uint32_t max_num_batched_tokens; /* rows of a step; >= max_num_seqs */
    uint32_t max_logit_rows;         /* rows with logits; >= max_num_seqs */
    uint32_t block_size;
    size_t original_length; /* LongRoPE's original context; 0 = one regime for every length */
    enum phi_policy policy;
};

/* The rows first_position .. first_position + n_rows - 1 of one sequence. */
struct phi_plan_entry {
    struct phi_sequence *sequence;
    uint32_t first_row; /* in the batch */
    uint32_t n_rows;
    size_t first_position;
    uint32_t first_logit_row;    /* in the batch's logits: n_scores rows, then the sampled one */
    uint32_t n_scores;           /* positions sequence->n_scored, ... */
    bool samples;                /* the last row's logits give the next token */
    uint32_t copy_from, copy_to; /* blocks to copy before the step; PHI_NO_BLOCK = none */
};

struct phi_plan {
    struct phi_plan_entry *entries; /* [max_num_seqs] */
    uint32_t n_entries;
    uint32_t n_rows;
    uint32_t n_logit_rows;
    uint32_t n_preempted;
    uint32_t n_crossed; /* sequences whose regime changed */
};

struct phi_scheduler {
    struct phi_scheduler_limits limits;
    struct phi_kvpool *pool;
    struct phi_prefix_cache *cache; /* NULL = none */
    int32_t *block_tokens;          /* [block_size] */
    uint64_t n_looked_up, n_found;  /* tokens of admitted sequences; of them, taken over */
    uint64_t n_arrived;
    struct phi_sequence **running; /* [max_num_seqs] in order */
    uint32_t n_running;
    struct phi_sequence *waiting_first, *waiting_last; /* in order */
    struct phi_sequence *waiting_newest; /* where the next one to arrive may belong: the answers to a
                                            prompt come one after the other; NULL = no idea */
    size_t n_waiting;
    struct phi_plan plan;
};

/* `cache` may be NULL; else it has entries for the pool's blocks. */
enum phi_status phi_scheduler_init(struct phi_scheduler *s,
                                   const struct phi_scheduler_limits *limits,
                                   struct phi_kvpool *pool, struct phi_prefix_cache *cache,
                                   struct phi_error *err);
void phi_scheduler_deinit(struct phi_scheduler *s);

/* Blocks for n_tokens. */
static inline size_t phi_scheduler_blocks_for(const struct phi_scheduler *s, size_t n_tokens)
{
    return (n_tokens + s->limits.block_size - 1) / s->limits.block_size;
}

/* Whether a stands before b in the one order. */
bool phi_scheduler_before(const struct phi_scheduler *s, const struct phi_sequence *a,
                          const struct phi_sequence *b);

/* Queues a sequence whose blocks can hold all the tokens it may reach, and which fits the pool when
 * alone. */
void phi_scheduler_add(struct phi_scheduler *s, struct phi_sequence *q);

/* The next step's rows, in s->plan until the next call. Takes the blocks that they need. Empty
 * (n_rows == 0) only when nothing is waiting or running. */
const struct phi_plan *phi_scheduler_plan(struct phi_scheduler *s);

/* The plan was carried out: its rows are computed and its scores taken. Appending the sampled token
 * (n_tokens + 1) and ending sequences is the caller's part. */
void phi_scheduler_commit(struct phi_scheduler *s);

/* Takes a sequence out, whatever its state, and frees its blocks. Not between plan and commit. */
void phi_scheduler_end(struct phi_scheduler *s, struct phi_sequence *q);

#endif
