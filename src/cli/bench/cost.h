/* cost.h: what a model's work costs by its shape alone: the bytes that a token must read and the
 * operations that a prompt takes. Measured rates divided by the machine's limits for these are how
 * near a run comes to what is possible. docs/BENCHMARKS.md says how they are counted. */
#ifndef PHI_CLI_BENCH_COST_H
#define PHI_CLI_BENCH_COST_H

#include "bench/machine_limits.h"
#include "formats/config.h"

struct bench_cost {
    double step_bytes;         /* weights that one step reads, whatever its batch */
    double kv_bytes_per_token; /* of one token of context */
    double token_flops;        /* of one token in all layers' products with weights */
    double pair_flops;         /* of attention, for one query and one key in all layers */
    double last_flops;         /* of one token in the last layer, behind its keys and values */
    double head_flops;         /* of one row of logits */
    int n_layers;
    int window;                /* contexts are no longer for attention; 0 = no limit */
    enum phi_limit arithmetic; /* what the products can be made of at best */
};

/* `folder` is where the model was opened; own_head: the head was quantised at load, so that it is a
 * matrix of its own even where it is tied to the embedding. */
enum phi_status bench_cost_init(struct bench_cost *c, const char *folder, bool own_head,
                                const struct phi_model_info *model,
                                const struct phi_engine_info *engine,
                                const struct phi_limits *limits, struct phi_error *err);

/* "bfloat16", ...: what the arithmetic is called. */
const char *bench_cost_arithmetic(const struct bench_cost *c);

/* Bytes of one token of each of n_answers that are decoded together, as a mean over the answers'
 * tokens after their first. */
double bench_cost_decode_bytes(const struct bench_cost *c, int n_answers, int input_len,
                               int output_len);

/* Operations of one prompt, up to the logits of its last token. */
double bench_cost_prefill_flops(const struct bench_cost *c, int input_len);

/* Of those, what is left out: in the last layer, behind its keys and values, all but one row. */
double bench_cost_skipped_flops(const struct bench_cost *c, int input_len);

#endif
