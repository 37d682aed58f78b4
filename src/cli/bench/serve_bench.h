/* serve_bench.h: `bench serve` in its parts, in the order in which they work: the server that is
 * asked (serve_target.c), the requests' bodies (serve_bodies.c), and what is told of the answers
 * (serve_results.c). cmd_serve.c has the command and runs them. */
#ifndef PHI_CLI_BENCH_SERVE_BENCH_H
#define PHI_CLI_BENCH_SERVE_BENCH_H

#include "cli/bench/load.h"
#include "cli/bench/serve_flags.h"
#include "cli/bench/serve_report.h"

struct serve_bench_flags {
    struct bench_serve_flags serve;
    struct bench_dataset_flags dataset;
    struct bench_result_flags result;
    struct bench_sampling_flags sampling;
};

struct serve_bench {
    const struct cli_args *args;
    const struct serve_bench_flags *flags;
    struct phi_buf base_url;
    const char **headers; /* [server.n_headers], owned as are the texts */
    struct bench_server server;
    struct phi_buf model_id; /* as the server calls it */
    struct phi_buf tokenizer_dir;
    struct phi_model *tokenizer; /* NULL = none */
    struct bench_dataset dataset;
    struct bench_request *requests; /* [dataset.n]; the bodies are owned */
    struct bench_answer *answers;   /* [dataset.n] */
    double *percentiles;
    struct bench_serve_setting setting;
    double seconds;
};

/* The address and headers, the model's name and the tokenizer; asks the server where the flags do
 * not say. Waits for it as long as --ready-check-timeout-sec says. */
enum phi_status serve_bench_find_target(struct serve_bench *b, struct phi_error *err);

/* Makes b->requests of the data set, and as many empty answers. */
enum phi_status serve_bench_make_requests(struct serve_bench *b, struct phi_error *err);

/* Prints the report and writes the results where that is asked. Returns the exit code. */
int serve_bench_tell(const struct serve_bench *b);

/* False when there was no memory for it; takes the value over in every case. */
static inline bool bench_json_set(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value) == 0;
}

#endif
