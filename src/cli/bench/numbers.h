/* numbers.h: lists of measured values and what is said of them: mean, standard deviation and
 * percentiles as numpy defines them, which is what vLLM's reports hold. */
#ifndef PHI_CLI_BENCH_NUMBERS_H
#define PHI_CLI_BENCH_NUMBERS_H

#include "base/status.h"

#include <jansson.h>

struct bench_numbers {
    double *data; /* owned */
    size_t n, capacity;
    bool failed; /* an append ran out of memory; later ones do nothing */
};

void bench_numbers_deinit(struct bench_numbers *x);
void bench_numbers_append(struct bench_numbers *x, double value);

/* 0 of an empty list, here and below. */
double bench_mean(const struct bench_numbers *x);
double bench_std(const struct bench_numbers *x); /* of the values themselves: divided by n */

/* The p-th percentile, 0 <= p <= 100, between the two nearest values in proportion. Sorts x. */
double bench_percentile(struct bench_numbers *x, double p);
double bench_median(struct bench_numbers *x);

/* As JSON: the values in their order; those of latency's percentiles as {"10": ..., "99": ...}.
 * NULL when there is no memory. */
json_t *bench_numbers_json(const struct bench_numbers *x);
json_t *bench_percentiles_json(const struct bench_numbers *x);

/* The percentiles that `bench latency` and `bench startup` tell. */
enum { BENCH_N_PERCENTILES = 6 };
extern const int bench_percentages[BENCH_N_PERCENTILES];

/* A copy, for what must not be sorted. */
struct bench_numbers bench_numbers_copy(const struct bench_numbers *x);

#endif
