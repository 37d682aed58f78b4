/* stats_log.c: see stats_log.h. */
#include "server/metrics/stats_log.h"
#include "base/log.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static double computed_tokens(const struct phi_engine_stats *s)
{
    return (double)s->n_prompt_tokens - (double)s->n_cached_prompt_tokens;
}

void phi_stats_line(const struct phi_engine_stats *before, const struct phi_engine_stats *now,
                    double seconds, char out[512])
{
    double per_second = seconds > 0 ? 1 / seconds : 0;
    /* The counters are read one after the other while the engine runs: never below 0. */
    double n_prompt = fmax(computed_tokens(now) - computed_tokens(before), 0);
    double n_generated = (double)(now->n_generated_tokens - before->n_generated_tokens);
    uint64_t n_preemptions = now->n_preemptions - before->n_preemptions;
    char preemptions[48] = "";
    if (n_preemptions)
        snprintf(preemptions, sizeof preemptions, "Preemptions: %" PRIu64 ", ", n_preemptions);
    double hit_rate =
        now->n_prefix_queries ? (double)now->n_prefix_hits / (double)now->n_prefix_queries : 0;
    snprintf(out, 512,
             "Engine 000: Avg prompt throughput: %.1f tokens/s, "
             "Avg generation throughput: %.1f tokens/s, Running: %d reqs, Waiting: %d reqs, "
             "%sGPU KV cache usage: %.1f%%, Prefix cache hit rate: %.1f%%",
             n_prompt * per_second, n_generated * per_second, now->n_running, now->n_waiting,
             preemptions, now->kv_usage * 100, hit_rate * 100);
}

void phi_stats_log(const struct phi_engine_stats *before, const struct phi_engine_stats *now,
                   double seconds, bool *active)
{
    bool was_active = *active;
    *active = now->n_prompt_tokens != before->n_prompt_tokens ||
              now->n_generated_tokens != before->n_generated_tokens || now->n_running ||
              now->n_waiting;
    if (!*active && !was_active)
        return;
    char line[512];
    phi_stats_line(before, now, seconds, line);
    phi_log(PHI_LOG_INFO, "%s", line);
}
