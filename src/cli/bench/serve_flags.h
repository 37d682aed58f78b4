/* serve_flags.h: the options of `bench serve`, under vLLM's names. */
#ifndef PHI_CLI_BENCH_SERVE_FLAGS_H
#define PHI_CLI_BENCH_SERVE_FLAGS_H

#include "cli/bench/bench.h"

enum bench_backend { BENCH_COMPLETIONS, BENCH_CHAT };

struct bench_serve_flags {
    int backend; /* enum bench_backend */
    const char *base_url, *host, *endpoint, *model, *served_model_name, *tokenizer;
    struct cli_texts headers;
    int port, max_concurrency, n_warmups, ready_timeout_s;
    double request_rate; /* 0 = inf */
    double burstiness;
    int64_t seed;
    bool ignore_eos, insecure, no_progress;
    json_t *extra_body;
};

struct bench_result_flags {
    struct cli_texts percentile_metrics, percentiles, goodput, metadata;
    bool save, detailed, append;
    const char *folder, *file_name, *label;
};

/* Sent where they are given. */
struct bench_sampling_flags {
    double temperature, top_p, min_p, frequency_penalty, presence_penalty, repetition_penalty;
    int top_k;
};

extern const struct cli_option_group bench_serve_group, bench_result_group, bench_sampling_group;

#endif
