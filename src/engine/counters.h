/* counters.h: the numbers that the engine's thread writes and any thread reads. With one writer, a
 * plain load, addition and store is enough: no reader sees half of a number, and no step waits. */
#ifndef PHI_ENGINE_COUNTERS_H
#define PHI_ENGINE_COUNTERS_H

#include "phidelity.h"

#include <stdatomic.h>

struct phi_counter_histogram {
    const double *bounds;
    size_t n;
    atomic_uint_fast64_t counts[32]; /* [n + 1] */
    _Atomic double sum;
};

struct phi_counters {
    /* Now. */
    atomic_uint_fast64_t n_running, n_waiting; /* answers; those waiting that the scheduler knows */
    atomic_uint_fast64_t n_used_blocks;

    /* Since the engine's creation; named as in struct phi_engine_stats. */
    atomic_uint_fast64_t n_prompt_tokens, n_cached_prompt_tokens, n_generated_tokens;
    atomic_uint_fast64_t n_preemptions, n_prefix_queries, n_prefix_hits;
    atomic_uint_fast64_t n_crossings, n_nan_requests, n_steps;
    struct phi_counter_histogram iteration_tokens, inter_token_s;
};

void phi_counters_init(struct phi_counters *c);

static inline void phi_counter_set(atomic_uint_fast64_t *counter, uint64_t value)
{
    atomic_store_explicit(counter, value, memory_order_relaxed);
}

static inline uint64_t phi_counter_get(const atomic_uint_fast64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static inline void phi_counter_add(atomic_uint_fast64_t *counter, uint64_t n)
{
    phi_counter_set(counter, phi_counter_get(counter) + n);
}

void phi_counter_observe(struct phi_counter_histogram *h, double value);

/* What the counters say, for n_blocks KV blocks and n_unknown answers that the engine's thread has
 * not taken yet. */
void phi_counters_read(const struct phi_counters *c, uint64_t n_blocks, uint64_t n_unknown,
                       struct phi_engine_stats *out);

#endif
