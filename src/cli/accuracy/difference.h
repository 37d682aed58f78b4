/* difference.h: how far one row of logits is from another, and many of them together. All
 * arithmetic is float64. */
#ifndef PHI_CLI_ACCURACY_DIFFERENCE_H
#define PHI_CLI_ACCURACY_DIFFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DIFFERENCE_BEST = 5 };

struct difference {
    int32_t want_best, got_best; /* the greatest entry's index; of equal ones the lowest */
    double margin;               /* want: greatest minus second greatest */
    int n_common;                /* of the five best of each, how many are in both */
    double cosine;
    double kl;            /* KL(softmax(want) || softmax(got)), in nats */
    double largest, mean; /* absolute difference of the entries */
};

/* Compares n >= 1 finite entries. */
void difference_of(const double *want, const double *got, size_t n, struct difference *out);

/* Many rows: the worst and the mean. */
struct difference_sum {
    size_t n_rows, n_same_best, n_common;
    double least_cosine, largest_kl, sum_kl, largest, sum_mean;
};

void difference_add(struct difference_sum *sum, const struct difference *d);
void difference_merge(struct difference_sum *sum, const struct difference_sum *other);

static inline double difference_top1(const struct difference_sum *s) /* per cent */
{
    return 100.0 * (double)s->n_same_best / (double)s->n_rows;
}

static inline double difference_top5(const struct difference_sum *s) /* per cent */
{
    return 100.0 * (double)s->n_common / (double)(DIFFERENCE_BEST * s->n_rows);
}

static inline double difference_mean_kl(const struct difference_sum *s)
{
    return s->sum_kl / (double)s->n_rows;
}

static inline double difference_mean(const struct difference_sum *s)
{
    return s->sum_mean / (double)s->n_rows;
}

#endif
