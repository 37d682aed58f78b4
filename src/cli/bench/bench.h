/* bench.h: what the benchmarks share: their commands, prompts to send, and the file of results. */
#ifndef PHI_CLI_BENCH_BENCH_H
#define PHI_CLI_BENCH_BENCH_H

#include "cli/bench/numbers.h"
#include "cli/flags.h"

extern const struct cli_command cli_bench_latency, cli_bench_throughput, cli_bench_serve,
    cli_bench_startup, cli_bench_kernels;

/* Writes the object, which it takes over (NULL: there was no memory for it), with four blanks of
 * indentation as vLLM does; `append` adds a line to what the file holds instead. */
enum phi_status bench_save_json(json_t *object, const char *path, bool append,
                                struct phi_error *err);

/* --------------------------------------------------------------- options */

/* Of the benchmarks that run the engine in this process or in one of their own: what all of them
 * take. A command has it in its flags as `shared`, and BENCH_SHARED_USES among its options. */
struct bench_shared_flags {
    const char *model, *output_json;
};
struct bench_engine_flags {
    struct bench_shared_flags own;
    struct cli_model_flags model;
    struct cli_engine_flags engine;
    struct cli_common_flags common;
};
extern const struct cli_option_group bench_shared_group;

#define BENCH_SHARED_USES                                                                          \
    {&bench_shared_group, offsetof(struct flags, shared.own)},                                     \
        {&cli_model_group, offsetof(struct flags, shared.model)},                                  \
        {&cli_engine_group, offsetof(struct flags, shared.engine)},                                \
    {                                                                                              \
        &cli_common_group, offsetof(struct flags, shared.common)                                   \
    }

/* --------------------------------------------------------------- prompts */

enum bench_dataset_name { BENCH_RANDOM, BENCH_SHAREGPT, BENCH_CUSTOM, BENCH_PREFIX_REPETITION };

struct bench_dataset_flags {
    int name; /* enum bench_dataset_name */
    const char *path;
    int n_prompts;
    int input_len, output_len; /* of any data set; 0 = its own flags say */
    int random_input_len, random_output_len, random_prefix_len;
    double random_range_ratio;
    int sharegpt_output_len, custom_output_len; /* 0 = as in the file */
    int repetition_prefix_len, repetition_suffix_len, repetition_n_prefixes, repetition_output_len;
    bool shuffle, oversample;
};
extern const struct cli_option_group bench_dataset_group;

struct bench_prompt {
    struct phi_ids ids; /* the prompt, or its text's tokens when there is a tokenizer */
    char *text;         /* owned; NULL = ids alone */
    size_t n_text;
    int output_len;
};

struct bench_dataset {
    struct bench_prompt *data; /* owned */
    size_t n;
};

/* n_prompts prompts, the same for the same seed. `model` is the tokenizer (weights are not needed);
 * NULL where there is none, which only texts that say their own lengths can do without. */
enum phi_status bench_dataset_load(struct bench_dataset *d, const struct bench_dataset_flags *flags,
                                   uint64_t seed, const struct phi_model *model,
                                   struct phi_error *err);
void bench_dataset_deinit(struct bench_dataset *d);

/* n ids of tokens that end no text. (seed, stream) tells one sequence from another. */
enum phi_status bench_random_ids(const struct phi_model *model, uint64_t seed, uint64_t stream,
                                 size_t n, struct phi_ids *out, struct phi_error *err);

#endif
