/* numbers.c: see numbers.h. */
#include "cli/bench/numbers.h"
#include "base/alloc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const int bench_percentages[BENCH_N_PERCENTILES] = {10, 25, 50, 75, 90, 99};

void bench_numbers_deinit(struct bench_numbers *x)
{
    phi_free(x->data);
    *x = (struct bench_numbers){0};
}

void bench_numbers_append(struct bench_numbers *x, double value)
{
    if (x->n == x->capacity && !x->failed) {
        size_t n = x->capacity ? 2 * x->capacity : 64;
        double *grown = phi_realloc(x->data, n, sizeof *grown);
        x->failed = grown == NULL;
        if (grown) {
            x->data = grown;
            x->capacity = n;
        }
    }
    if (!x->failed)
        x->data[x->n++] = value;
}

struct bench_numbers bench_numbers_copy(const struct bench_numbers *x)
{
    struct bench_numbers copy = {.failed = x->failed};
    for (size_t i = 0; i < x->n; i++)
        bench_numbers_append(&copy, x->data[i]);
    return copy;
}

double bench_mean(const struct bench_numbers *x)
{
    double sum = 0;
    for (size_t i = 0; i < x->n; i++)
        sum += x->data[i];
    return x->n ? sum / (double)x->n : 0;
}

double bench_std(const struct bench_numbers *x)
{
    double mean = bench_mean(x), sum = 0;
    for (size_t i = 0; i < x->n; i++)
        sum += (x->data[i] - mean) * (x->data[i] - mean);
    return x->n ? sqrt(sum / (double)x->n) : 0;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_percentile(struct bench_numbers *x, double p)
{
    if (x->n == 0)
        return 0;
    qsort(x->data, x->n, sizeof *x->data, by_value);
    double place = p / 100 * (double)(x->n - 1);
    size_t below = (size_t)place;
    double rest = place - (double)below;
    if (below + 1 >= x->n)
        return x->data[x->n - 1];
    return x->data[below] + rest * (x->data[below + 1] - x->data[below]);
}

double bench_median(struct bench_numbers *x)
{
    return bench_percentile(x, 50);
}

json_t *bench_numbers_json(const struct bench_numbers *x)
{
    json_t *list = x->failed ? NULL : json_array();
    for (size_t i = 0; i < x->n && list; i++) {
        if (json_array_append_new(list, json_real(x->data[i])) == 0)
            continue;
        json_decref(list);
        list = NULL;
    }
    return list;
}

json_t *bench_percentiles_json(const struct bench_numbers *x)
{
    struct bench_numbers sorted = bench_numbers_copy(x);
    json_t *object = sorted.failed ? NULL : json_object();
    for (int i = 0; i < BENCH_N_PERCENTILES && object; i++) {
        char key[16];
        snprintf(key, sizeof key, "%d", bench_percentages[i]);
        if (json_object_set_new(object, key,
                                json_real(bench_percentile(&sorted, bench_percentages[i]))) == 0)
            continue;
        json_decref(object);
        object = NULL;
    }
    bench_numbers_deinit(&sorted);
    return object;
}
