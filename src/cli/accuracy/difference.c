/* difference.c: see difference.h. */
#include "cli/accuracy/difference.h"

#include <math.h>

/* Indices of the greatest entries, falling; equal ones by rising index. Returns how many. */
static int best_of(const double *x, size_t n, int32_t best[DIFFERENCE_BEST])
{
    int n_best = 0;
    best[0] = 0;
    for (size_t i = 0; i < n; i++) {
        if (n_best == DIFFERENCE_BEST && x[i] <= x[best[n_best - 1]])
            continue;
        int at = n_best < DIFFERENCE_BEST ? n_best++ : n_best - 1;
        for (; at > 0 && x[best[at - 1]] < x[i]; at--)
            best[at] = best[at - 1];
        best[at] = (int32_t)i;
    }
    return n_best;
}

static double log_sum_exp(const double *x, size_t n, double greatest)
{
    double more = -1; /* than the greatest itself, which adds 1 */
    for (size_t i = 0; i < n; i++)
        more += exp(x[i] - greatest);
    return greatest + log1p(more);
}

static int count_common(const int32_t *a, const int32_t *b, int n)
{
    int n_common = 0;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            n_common += a[i] == b[j];
    return n_common;
}

void difference_of(const double *want, const double *got, size_t n, struct difference *out)
{
    int32_t a[DIFFERENCE_BEST], b[DIFFERENCE_BEST];
    int n_best = best_of(want, n, a);
    best_of(got, n, b);
    double want_total = log_sum_exp(want, n, want[a[0]]),
           got_total = log_sum_exp(got, n, got[b[0]]);
    double dot = 0, want_square = 0, got_square = 0, kl = 0, sum = 0, largest = 0;
    for (size_t i = 0; i < n; i++) {
        double distance = fabs(want[i] - got[i]), log_p = want[i] - want_total;
        dot += want[i] * got[i];
        want_square += want[i] * want[i];
        got_square += got[i] * got[i];
        kl += exp(log_p) * (log_p - (got[i] - got_total));
        sum += distance;
        largest = distance > largest ? distance : largest;
    }
    double lengths = sqrt(want_square) * sqrt(got_square);
    *out = (struct difference){
        .want_best = a[0],
        .got_best = b[0],
        .margin = n_best > 1 ? want[a[0]] - want[a[1]] : 0,
        /* a vocabulary smaller than five is all in common */
        .n_common = count_common(a, b, n_best) + DIFFERENCE_BEST - n_best,
        .cosine = lengths > 0 ? dot / lengths : want_square == got_square,
        .kl = kl > 0 ? kl : 0, /* below zero by rounding only */
        .largest = largest,
        .mean = sum / (double)n,
    };
}

void difference_add(struct difference_sum *sum, const struct difference *d)
{
    struct difference_sum one = {
        .n_rows = 1,
        .n_same_best = d->want_best == d->got_best,
        .n_common = (size_t)d->n_common,
        .least_cosine = d->cosine,
        .largest_kl = d->kl,
        .sum_kl = d->kl,
        .largest = d->largest,
        .sum_mean = d->mean,
    };
    difference_merge(sum, &one);
}

void difference_merge(struct difference_sum *sum, const struct difference_sum *other)
{
    if (other->n_rows == 0)
        return;
    if (sum->n_rows == 0 || other->least_cosine < sum->least_cosine)
        sum->least_cosine = other->least_cosine;
    sum->largest_kl = fmax(sum->largest_kl, other->largest_kl);
    sum->largest = fmax(sum->largest, other->largest);
    sum->n_rows += other->n_rows;
    sum->n_same_best += other->n_same_best;
    sum->n_common += other->n_common;
    sum->sum_kl += other->sum_kl;
    sum->sum_mean += other->sum_mean;
}
