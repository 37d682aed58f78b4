/* serve_report.h: from a load's answers to the report and the result file of `bench serve`, both as
 * vLLM's: titles, columns, definitions and keys. */
#ifndef PHI_CLI_BENCH_SERVE_REPORT_H
#define PHI_CLI_BENCH_SERVE_REPORT_H

#include "cli/bench/stream.h"
#include "cli/term.h"

enum bench_metric { BENCH_TTFT, BENCH_TPOT, BENCH_ITL, BENCH_E2EL, BENCH_N_METRICS };

/* "ttft", ...; -1 when there is none of the name. */
int bench_metric_find(const char *name);

struct bench_serve_setting {
    double request_rate; /* 0 = no limit */
    int max_concurrency; /* 0 = no limit */
    bool percentiles_of[BENCH_N_METRICS];
    const double *percentiles;
    size_t n_percentiles;
    double goodput_ms[BENCH_N_METRICS]; /* the most that a good request takes; < 0 = not asked */
    bool any_goodput;
};

struct bench_serve_report {
    size_t n_completed, n_failed, n_input, n_output, n_good;
    double seconds, peak_output_per_s;
    size_t peak_concurrent;
    struct bench_numbers metrics[BENCH_N_METRICS]; /* seconds, of the answers that succeeded */
    bool failed;                                   /* for want of memory */
};

void bench_serve_report_init(struct bench_serve_report *r, const struct bench_serve_setting *s,
                             const struct bench_answer *answers, size_t n, double seconds);
void bench_serve_report_deinit(struct bench_serve_report *r);

void bench_serve_report_print(struct bench_serve_report *r, const struct bench_serve_setting *s,
                              struct cli_out *out);

/* Adds the result's keys to *object; those of each answer too when `detailed`. False without
 * memory. */
bool bench_serve_report_json(struct bench_serve_report *r, const struct bench_serve_setting *s,
                             const struct bench_answer *answers, size_t n, bool detailed,
                             json_t *object);

#endif
