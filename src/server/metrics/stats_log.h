/* stats_log.h: the statistics line of a running server, in vLLM's words, so that scripts that read
 * vLLM's log read this one. */
#ifndef PHI_SERVER_METRICS_STATS_LOG_H
#define PHI_SERVER_METRICS_STATS_LOG_H

#include "phidelity.h"

/* What the engine did between two snapshots that are `seconds` apart:
 *
 *   Engine 000: Avg prompt throughput: 51.2 tokens/s, Avg generation throughput: 102.4 tokens/s,
 *   Running: 3 reqs, Waiting: 0 reqs, GPU KV cache usage: 12.5%, Prefix cache hit rate: 40.0%
 *
 * (one line). Prompt tokens are those computed, without cached ones; the hit rate is that of the
 * engine's whole life; "Preemptions: n" stands before the usage when there were any. */
void phi_stats_line(const struct phi_engine_stats *before, const struct phi_engine_stats *now,
                    double seconds, char out[512]);

/* Logs that line, unless nothing happened and nothing runs; when activity has ended, one last line
 * says so. *active, false at first, is what is remembered from call to call. */
void phi_stats_log(const struct phi_engine_stats *before, const struct phi_engine_stats *now,
                   double seconds, bool *active);

#endif
