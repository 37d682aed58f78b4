/* batch.h: prompts submitted to an engine all at once and followed to their ends, with the times
 * that a benchmark tells. */
#ifndef PHI_CLI_BENCH_BATCH_H
#define PHI_CLI_BENCH_BATCH_H

#include "cli/bench/bench.h"

struct bench_batch {
    double seconds;   /* from the first submission to the end of the last answer */
    double prefill_s; /* from there until every request had its first token */
    size_t n_prompt_tokens, n_output_tokens;
    double n_decoded; /* output tokens that came after prefill_s */
};

/* `sampling` is that of every request but for max_tokens, which each prompt's output_len is. An
 * answer that ends in an error is this function's error. */
enum phi_status bench_batch_run(struct phi_engine *engine, const struct bench_prompt *prompts,
                                size_t n, const struct phi_sampling *sampling,
                                struct bench_batch *out, struct phi_error *err);

#endif
