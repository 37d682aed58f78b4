/* counters.c: see counters.h. The bounds are those of vLLM's metrics. */
#include "engine/counters.h"

static const double token_bounds[] = {1,   8,    16,   32,   64,   128,  256,
                                      512, 1024, 2048, 4096, 8192, 16384};

static const double second_bounds[] = {.01, .025, .05, .075, .1,  .15, .2, .3, .4, .5,
                                       .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80};

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

void phi_counters_init(struct phi_counters *c)
{
    c->iteration_tokens.bounds = token_bounds;
    c->iteration_tokens.n = LENGTH(token_bounds);
    c->inter_token_s.bounds = second_bounds;
    c->inter_token_s.n = LENGTH(second_bounds);
}

void phi_counter_observe(struct phi_counter_histogram *h, double value)
{
    size_t i = 0;
    while (i < h->n && value > h->bounds[i])
        i++;
    phi_counter_add(&h->counts[i], 1);
    double sum = atomic_load_explicit(&h->sum, memory_order_relaxed);
    atomic_store_explicit(&h->sum, sum + value, memory_order_relaxed);
}

static void read_histogram(const struct phi_counter_histogram *h, struct phi_histogram *out)
{
    *out = (struct phi_histogram){.bounds = h->bounds, .n = h->n};
    for (size_t i = 0; i <= h->n; i++)
        out->counts[i] = phi_counter_get(&h->counts[i]);
    out->sum = atomic_load_explicit(&h->sum, memory_order_relaxed);
}

void phi_counters_read(const struct phi_counters *c, uint64_t n_blocks, uint64_t n_unknown,
                       struct phi_engine_stats *out)
{
    *out = (struct phi_engine_stats){
        .n_running = (int)phi_counter_get(&c->n_running),
        .n_waiting = (int)(phi_counter_get(&c->n_waiting) + n_unknown),
        .kv_usage = (double)phi_counter_get(&c->n_used_blocks) / (double)n_blocks,
        .n_prompt_tokens = phi_counter_get(&c->n_prompt_tokens),
        .n_cached_prompt_tokens = phi_counter_get(&c->n_cached_prompt_tokens),
        .n_generated_tokens = phi_counter_get(&c->n_generated_tokens),
        .n_preemptions = phi_counter_get(&c->n_preemptions),
        .n_prefix_queries = phi_counter_get(&c->n_prefix_queries),
        .n_prefix_hits = phi_counter_get(&c->n_prefix_hits),
        .n_crossings = phi_counter_get(&c->n_crossings),
        .n_nan_requests = phi_counter_get(&c->n_nan_requests),
        .n_steps = phi_counter_get(&c->n_steps),
    };
    read_histogram(&c->iteration_tokens, &out->iteration_tokens);
    read_histogram(&c->inter_token_s, &out->inter_token_s);
}
