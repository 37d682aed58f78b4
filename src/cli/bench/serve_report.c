/* serve_report.c: see serve_report.h. */
#include "cli/bench/serve_report.h"
#include "base/alloc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 50 };

static const struct metric_name {
    const char *key, *name, *title;
} names[BENCH_N_METRICS] = {
    [BENCH_TTFT] = {"ttft", "TTFT", "Time to First Token"},
    [BENCH_TPOT] = {"tpot", "TPOT", "Time per Output Token (excl. 1st token)"},
    [BENCH_ITL] = {"itl", "ITL", "Inter-token Latency"},
    [BENCH_E2EL] = {"e2el", "E2EL", "End-to-end Latency"},
};

int bench_metric_find(const char *name)
{
    for (int i = 0; i < BENCH_N_METRICS; i++)
        if (strcmp(names[i].key, name) == 0)
            return i;
    return -1;
}

/* --------------------------------------------------------------- counting */

/* TPOT of an answer of one token is 0, which is good enough for any goal, and stays out of the
 * mean. */
static double time_per_token(const struct bench_answer *a)
{
    return a->n_output > 1 ? (a->latency_s - a->ttft_s) / (double)(a->n_output - 1) : 0;
}

static bool is_good(const struct bench_answer *a, const struct bench_serve_setting *s)
{
    const double times[BENCH_N_METRICS] = {
        [BENCH_TTFT] = a->ttft_s, [BENCH_TPOT] = time_per_token(a), [BENCH_E2EL] = a->latency_s};
    for (int i = 0; i < BENCH_N_METRICS; i++)
        if (s->goodput_ms[i] >= 0 && times[i] * 1000 > s->goodput_ms[i])
            return false;
    return true;
}

static void add_answer(struct bench_serve_report *r, const struct bench_serve_setting *s,
                       const struct bench_answer *a)
{
    if (!a->success) {
        r->n_failed++;
        return;
    }
    r->n_completed++;
    r->n_input += a->n_prompt;
    r->n_output += a->n_output;
    r->n_good += s->any_goodput && is_good(a, s);
    bench_numbers_append(&r->metrics[BENCH_TTFT], a->ttft_s);
    bench_numbers_append(&r->metrics[BENCH_E2EL], a->latency_s);
    if (a->n_output > 1)
        bench_numbers_append(&r->metrics[BENCH_TPOT], time_per_token(a));
    for (size_t i = 0; i < a->gaps.n; i++)
        bench_numbers_append(&r->metrics[BENCH_ITL], a->gaps.data[i]);
}

/* Chunks that came in the second of the run that had most of them, seconds being counted from the
 * first request. */
static double peak_output(const struct bench_answer *answers, size_t n, double seconds,
                          double begin)
{
    size_t n_seconds = (size_t)ceil(seconds) + 2;
    double *chunks = phi_calloc(n_seconds, sizeof *chunks), peak = 0;
    for (size_t i = 0; i < n && chunks; i++) {
        const struct bench_answer *a = &answers[i];
        double at = a->start_s + a->ttft_s - begin;
        for (size_t j = 0; j <= a->gaps.n && a->success; j++) {
            size_t second = at > 0 ? (size_t)at : 0;
            if (second < n_seconds && ++chunks[second] > peak)
                peak = chunks[second];
            at += j < a->gaps.n ? a->gaps.data[j] : 0;
        }
    }
    phi_free(chunks);
    return chunks ? peak : -1;
}

struct change {
    double at;
    int by;
};

/* Who leaves at the moment that another comes was not there together with it. */
static int by_time(const void *a, const void *b)
{
    const struct change *x = a, *y = b;
    return x->at != y->at ? (x->at > y->at) - (x->at < y->at) : x->by - y->by;
}

static size_t peak_concurrent(const struct bench_answer *answers, size_t n, bool *failed)
{
    struct change *changes = phi_alloc(2 * n + 1, sizeof *changes);
    size_t n_changes = 0, now = 0, peak = 0;
    for (size_t i = 0; i < n && changes; i++) {
        const struct bench_answer *a = &answers[i];
        if (!a->success)
            continue;
        changes[n_changes++] = (struct change){a->start_s, 1};
        changes[n_changes++] = (struct change){a->start_s + a->latency_s, -1};
    }
    if (changes)
        qsort(changes, n_changes, sizeof *changes, by_time);
    for (size_t i = 0; i < n_changes; i++) {
        now = changes[i].by > 0 ? now + 1 : now - (now > 0);
        peak = now > peak ? now : peak;
    }
    *failed = *failed || !changes;
    phi_free(changes);
    return peak;
}

void bench_serve_report_init(struct bench_serve_report *r, const struct bench_serve_setting *s,
                             const struct bench_answer *answers, size_t n, double seconds)
{
    double begin = INFINITY;
    *r = (struct bench_serve_report){.seconds = seconds};
    for (size_t i = 0; i < n; i++) {
        add_answer(r, s, &answers[i]);
        if (answers[i].success && answers[i].start_s < begin)
            begin = answers[i].start_s;
    }
    r->peak_output_per_s = peak_output(answers, n, seconds, begin);
    r->peak_concurrent = peak_concurrent(answers, n, &r->failed);
    r->failed = r->failed || r->peak_output_per_s < 0;
    for (int i = 0; i < BENCH_N_METRICS; i++)
        r->failed = r->failed || r->metrics[i].failed;
}

void bench_serve_report_deinit(struct bench_serve_report *r)
{
    for (int i = 0; i < BENCH_N_METRICS; i++)
        bench_numbers_deinit(&r->metrics[i]);
}

/* --------------------------------------------------------------- printing */

/* A title in the middle of a line of `fill`. */
static void print_title(struct cli_out *out, const char *title, char fill)
{
    char line[COLUMNS + 1];
    size_t n = strlen(title), left = n < COLUMNS ? (COLUMNS - n) / 2 : 0;
    memset(line, fill, COLUMNS);
    line[COLUMNS] = '\0';
    memcpy(line + left, title, n < COLUMNS ? n : COLUMNS);
    cli_out_printf(out, "%s\n", line);
}

static void print_count(struct cli_out *out, const char *name, size_t value)
{
    cli_out_printf(out, "%-40s %-10zu\n", name, value);
}

static void print_real(struct cli_out *out, const char *name, double value)
{
    cli_out_printf(out, "%-40s %-10.2f\n", name, value);
}

static void print_metric(struct bench_serve_report *r, const struct bench_serve_setting *s,
                         int metric, struct cli_out *out)
{
    char name[64];
    struct bench_numbers *x = &r->metrics[metric];
    print_title(out, names[metric].title, '-');
    snprintf(name, sizeof name, "Mean %s (ms):", names[metric].name);
    print_real(out, name, 1000 * bench_mean(x));
    snprintf(name, sizeof name, "Median %s (ms):", names[metric].name);
    print_real(out, name, 1000 * bench_median(x));
    for (size_t i = 0; i < s->n_percentiles; i++) {
        snprintf(name, sizeof name, "P%g %s (ms):", s->percentiles[i], names[metric].name);
        print_real(out, name, 1000 * bench_percentile(x, s->percentiles[i]));
    }
}

void bench_serve_report_print(struct bench_serve_report *r, const struct bench_serve_setting *s,
                              struct cli_out *out)
{
    print_title(out, " Serving Benchmark Result ", '=');
    print_count(out, "Successful requests:", r->n_completed);
    print_count(out, "Failed requests:", r->n_failed);
    if (s->max_concurrency > 0)
        print_count(out, "Maximum request concurrency:", (size_t)s->max_concurrency);
    if (s->request_rate > 0)
        print_real(out, "Request rate configured (RPS):", s->request_rate);
    print_real(out, "Benchmark duration (s):", r->seconds);
    print_count(out, "Total input tokens:", r->n_input);
    print_count(out, "Total generated tokens:", r->n_output);
    print_real(out, "Request throughput (req/s):", (double)r->n_completed / r->seconds);
    if (s->any_goodput)
        print_real(out, "Request goodput (req/s):", (double)r->n_good / r->seconds);
    print_real(out, "Output token throughput (tok/s):", (double)r->n_output / r->seconds);
    print_real(out, "Peak output token throughput (tok/s):", r->peak_output_per_s);
    print_real(out, "Peak concurrent requests:", (double)r->peak_concurrent);
    print_real(out,
               "Total token throughput (tok/s):", (double)(r->n_input + r->n_output) / r->seconds);
    for (int i = 0; i < BENCH_N_METRICS; i++)
        if (s->percentiles_of[i])
            print_metric(r, s, i, out);
    print_title(out, "", '=');
}

/* --------------------------------------------------------------- JSON */

static bool set_real(json_t *object, const char *key, double value)
{
    return json_object_set_new(object, key, json_real(value)) == 0;
}

static bool set_count(json_t *object, const char *key, size_t value)
{
    return json_object_set_new(object, key, json_integer((json_int_t)value)) == 0;
}

static bool set_metric(struct bench_serve_report *r, const struct bench_serve_setting *s,
                       int metric, json_t *object)
{
    char key[64];
    struct bench_numbers *x = &r->metrics[metric];
    const char *name = names[metric].key;
    snprintf(key, sizeof key, "mean_%s_ms", name);
    bool good = set_real(object, key, 1000 * bench_mean(x));
    snprintf(key, sizeof key, "median_%s_ms", name);
    good = good && set_real(object, key, 1000 * bench_median(x));
    snprintf(key, sizeof key, "std_%s_ms", name);
    good = good && set_real(object, key, 1000 * bench_std(x));
    for (size_t i = 0; i < s->n_percentiles; i++) {
        snprintf(key, sizeof key, "p%g_%s_ms", s->percentiles[i], name);
        good = good && set_real(object, key, 1000 * bench_percentile(x, s->percentiles[i]));
    }
    return good;
}

/* One list for each of what an answer holds. */
static bool set_answers(const struct bench_answer *answers, size_t n, json_t *object)
{
    static const char *const keys[] = {"input_lens",  "output_lens",     "ttfts",
                                       "itls",        "latencies",       "start_times",
                                       "queue_times", "generated_texts", "errors"};
    bool good = true;
    for (size_t k = 0; k < sizeof keys / sizeof *keys && good; k++)
        good = json_object_set_new(object, keys[k], json_array()) == 0;
    for (size_t i = 0; i < n && good; i++) {
        const struct bench_answer *a = &answers[i];
        struct phi_str text = phi_buf_str(&a->text);
        json_t *values[] = {json_integer((json_int_t)a->n_prompt),
                            json_integer((json_int_t)(a->success ? a->n_output : 0)),
                            json_real(a->ttft_s),
                            bench_numbers_json(&a->gaps),
                            json_real(a->latency_s),
                            json_real(a->start_s),
                            json_real(a->queue_s),
                            json_stringn(text.data, text.n),
                            json_string(a->error)};
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            if (json_array_append_new(json_object_get(object, keys[k]), values[k]) != 0)
                good = false;
    }
    return good;
}

bool bench_serve_report_json(struct bench_serve_report *r, const struct bench_serve_setting *s,
                             const struct bench_answer *answers, size_t n, bool detailed,
                             json_t *object)
{
    bool good = set_real(object, "duration", r->seconds) &&
                set_count(object, "completed", r->n_completed) &&
                set_count(object, "failed", r->n_failed) &&
                set_count(object, "total_input_tokens", r->n_input) &&
                set_count(object, "total_output_tokens", r->n_output) &&
                set_real(object, "request_throughput", (double)r->n_completed / r->seconds) &&
                json_object_set_new(object, "request_goodput",
                                    s->any_goodput ? json_real((double)r->n_good / r->seconds)
                                                   : json_null()) == 0 &&
                set_real(object, "output_throughput", (double)r->n_output / r->seconds) &&
                set_real(object, "total_token_throughput",
                         (double)(r->n_input + r->n_output) / r->seconds) &&
                set_real(object, "max_output_tokens_per_s", r->peak_output_per_s) &&
                set_count(object, "max_concurrent_requests", r->peak_concurrent);
    for (int i = 0; i < BENCH_N_METRICS; i++)
        if (s->percentiles_of[i])
            good = good && set_metric(r, s, i, object);
    return good && (!detailed || set_answers(answers, n, object));
}
