/* test_metrics.c: the text of /metrics is read back line by line, as a scraper does, and its
 * figures are compared with ones worked out by hand. */
#include "base/alloc.h"
#include "base/file.h"
#include "server/metrics/exposition.h"
#include "server/metrics/metrics.h"
#include "server/metrics/process_stats.h"
#include "server/api/routes.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static const double iteration_bounds[] = {1, 8, 16};
static const double gap_bounds[] = {0.01, 0.025};

static const struct phi_engine_info info = {
    .max_model_len = 512,
    .block_size = 32,
    .kv_dtype = PHI_BFLOAT16,
    .kv_bytes = 4096000,
    .kv_tokens = 6400,
};

static const struct phi_engine_stats engine = {
    .n_running = 3,
    .n_waiting = 2,
    .kv_usage = 0.125,
    .n_prompt_tokens = 1000,
    .n_cached_prompt_tokens = 400,
    .n_generated_tokens = 77,
    .n_preemptions = 4,
    .n_prefix_queries = 1100,
    .n_prefix_hits = 440,
    .n_crossings = 1,
    .n_nan_requests = 6,
    .n_steps = 90,
    .iteration_tokens = {iteration_bounds, 3, {5, 2, 0, 1}, 300},
    .inter_token_s = {gap_bounds, 2, {10, 1, 1}, 0.5},
};

/* ---------------------------------------------------------------- reading the text back */

/* The text as lines; each is a view into it without its line feed. */
struct lines {
    struct phi_str line[2048];
    size_t n;
};

static void split(const struct phi_buf *text, struct lines *out)
{
    out->n = 0;
    for (size_t at = 0; at < text->n;) {
        const char *end = memchr(text->data + at, '\n', text->n - at);
        assert_non_null(end); /* the last line ends too */
        out->line[out->n++] = (struct phi_str){text->data + at, (size_t)(end - text->data) - at};
        at = (size_t)(end - text->data) + 1;
        assert_true(out->n < 2048);
    }
}

/* Value of the sample whose name and labels are `series`, or NAN with *found = false. */
static double find(const struct phi_buf *text, const char *series, bool *found)
{
    static struct lines lines;
    split(text, &lines);
    size_t n = strlen(series);
    for (size_t i = 0; i < lines.n; i++)
        if (lines.line[i].n > n && memcmp(lines.line[i].data, series, n) == 0 &&
            lines.line[i].data[n] == ' ') {
            *found = true;
            return strtod(lines.line[i].data + n, NULL);
        }
    *found = false;
    return NAN;
}

static void expect(const struct phi_buf *text, const char *series, double value)
{
    bool found;
    double got = find(text, series, &found);
    if (!found || fabs(got - value) > 1e-12)
        fail_msg("%s: %s %g, not %g", series, found ? "is" : "missing;", got, value);
}

static void expect_absent(const struct phi_buf *text, const char *series)
{
    bool found;
    find(text, series, &found);
    if (found)
        fail_msg("%s is there", series);
}

/* The family being read in check_format, and the histogram series within it. */
struct family {
    char name[128], type[16];
    char labels[512]; /* of the buckets being added up, without le */
    double last_bucket, last_bound;
    size_t n_samples;
};

/* Splits `name{labels} value`; checks that the quotes close and the value is a number. */
static void parse_sample(struct phi_str line, char name[128], char labels[512], double *value)
{
    size_t i = strcspn(line.data, "{ ");
    assert_true(i > 0 && i < 128);
    memcpy(name, line.data, i);
    name[i] = labels[0] = '\0';
    if (line.data[i] == '{') {
        size_t start = ++i;
        bool quoted = false;
        for (; i < line.n && (quoted || line.data[i] != '}'); i++) {
            if (quoted && line.data[i] == '\\')
                i++;
            else if (line.data[i] == '"')
                quoted = !quoted;
        }
        assert_true(i < line.n && !quoted && i - start < 512);
        memcpy(labels, line.data + start, i - start);
        labels[i - start] = '\0';
        i++;
    }
    char *end;
    assert_int_equal(line.data[i], ' ');
    *value = strtod(line.data + i + 1, &end);
    assert_ptr_equal(end, line.data + line.n);
}

static bool has_suffix(const char *name, const char *family, const char *suffix)
{
    size_t n = strlen(family);
    return strncmp(name, family, n) == 0 && strcmp(name + n, suffix) == 0;
}

static void check_bucket(struct family *f, char *labels, double value)
{
    char *le = strstr(labels, "le=\"");
    assert_non_null(le);
    double bound = strtod(le + 4, NULL);
    *le = '\0'; /* le comes last */
    if (strcmp(labels, f->labels) != 0) {
        snprintf(f->labels, sizeof f->labels, "%s", labels);
        f->last_bucket = 0;
        f->last_bound = -INFINITY;
    }
    assert_true(bound > f->last_bound);
    assert_true(value >= f->last_bucket);
    f->last_bound = bound;
    f->last_bucket = value;
}

static void check_sample(struct family *f, struct phi_str line)
{
    char name[128], labels[512];
    double value;
    parse_sample(line, name, labels, &value);
    f->n_samples++;
    if (strcmp(f->type, "histogram") != 0) {
        assert_string_equal(name, f->name);
        assert_true(strcmp(f->type, "counter") != 0 || value >= 0);
    } else if (has_suffix(name, f->name, "_bucket")) {
        check_bucket(f, labels, value);
    } else if (has_suffix(name, f->name, "_count")) {
        assert_true(isinf(f->last_bound)); /* +Inf came, and says the same */
        assert_true(value == f->last_bucket);
    } else {
        assert_true(has_suffix(name, f->name, "_sum"));
    }
}

/* Every sample stands in the family of the HELP and TYPE lines before it, each family comes once
 * and has samples (unless it is one of HTTP, before the first request), and histograms add up. */
static void check_format(const struct phi_buf *text)
{
    static struct lines lines;
    static char seen[256][128];
    size_t n_seen = 0;
    struct family f = {.n_samples = 1};
    split(text, &lines);
    for (size_t i = 0; i < lines.n; i++) {
        if (!phi_str_starts_with(lines.line[i], PHI_STR("# "))) {
            check_sample(&f, lines.line[i]);
            continue;
        }
        assert_true(f.n_samples > 0 || strncmp(f.name, "http_", 5) == 0);
        f = (struct family){.last_bound = -INFINITY};
        char name[128] = "";
        assert_int_equal(sscanf(lines.line[i].data, "# HELP %127s", f.name), 1);
        assert_true(lines.line[i].n > strlen("# HELP ") + strlen(f.name) + 10); /* has a text */
        assert_true(++i < lines.n);
        assert_int_equal(sscanf(lines.line[i].data, "# TYPE %127s %15s", name, f.type), 2);
        assert_string_equal(name, f.name);
        for (size_t k = 0; k < n_seen; k++)
            assert_string_not_equal(seen[k], name);
        memcpy(seen[n_seen++], name, sizeof name);
        bool total = phi_str_ends_with(phi_str_from(name), PHI_STR("_total"));
        if (strcmp(name, "vllm:iteration_tokens_total") != 0)
            assert_int_equal(total, strcmp(f.type, "counter") == 0);
    }
    assert_true(n_seen > 0 && f.n_samples > 0);
}

static struct phi_metrics *create(const char *model_name)
{
    struct phi_metrics *m;
    assert_int_equal(phi_metrics_create(model_name, &m, NULL), PHI_OK);
    phi_metrics_open(m, &info);
    return m;
}

/* ---------------------------------------------------------------- format */

static void test_numbers(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } rows[] = {
        {0, "0.0"},
        {1, "1.0"},
        {-2, "-2.0"},
        {0.1, "0.1"},
        {0.075, "0.075"},
        {131072, "131072.0"},
        {1e14, "100000000000000.0"},
        {1.0 / 3, "0.3333333333333333"},
        {NAN, "NaN"},
        {INFINITY, "+Inf"},
        {-INFINITY, "-Inf"},
        {1e300, "1e+300"},
        {1764495113.25, "1764495113.25"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[32];
        phi_expo_number(rows[i].value, text);
        assert_string_equal(text, rows[i].text);
    }
}

static void test_labels(void **state)
{
    (void)state;
    static const struct {
        struct phi_str value;
        const char *text;
    } rows[] = {
        {PHI_STR(""), "x=\"\""},
        {PHI_STR("plain"), "x=\"plain\""},
        {PHI_STR("a\"b\\c\nd"), "x=\"a\\\"b\\\\c\\nd\""},
        {PHI_STR("\"\"\"\n\\"), "x=\"\\\"\\\"\\\"\\n\\\\\""},
        {PHI_STR("\xC3\xA9\xFF"), "x=\"\xC3\xA9\xEF\xBF\xBD\""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct phi_buf out = {0};
        phi_expo_label(&out, "x", rows[i].value);
        assert_string_equal(out.data, rows[i].text);
        phi_buf_deinit(&out);
    }
    struct phi_buf two = {0};
    phi_expo_label(&two, "a", PHI_STR("1\n"));
    phi_expo_label(&two, "b", PHI_STR("\"2"));
    assert_string_equal(two.data, "a=\"1\\n\",b=\"\\\"2\"");
    phi_buf_deinit(&two);
}

static void test_format(void **state)
{
    (void)state;
    struct phi_metrics *m;
    struct phi_buf text = {0};
    assert_int_equal(phi_metrics_create("a\"b\\\n}{ c", &m, NULL), PHI_OK);

    phi_metrics_write(m, NULL, &text); /* before the engine is there */
    check_format(&text);
    assert_null(strstr(text.data, "vllm:"));
    assert_non_null(strstr(text.data, "process_"));

    phi_buf_clear(&text);
    phi_metrics_open(m, &info);
    phi_metrics_write(m, &engine, &text);
    check_format(&text);

    for (int i = 0; i < 50; i++) {
        const struct phi_request_record r = {.finish = PHI_FINISH_STOP,
                                             .n = 1,
                                             .max_tokens = 16 * i,
                                             .stats = {.queue_s = 0.01 * i,
                                                       .first_token_s = 0.3 * i,
                                                       .end_s = i,
                                                       .n_prompt_tokens = 7u * i,
                                                       .n_output_tokens = i}};
        phi_metrics_request_ended(m, &r);
        phi_metrics_http_ended(m, PHI_STR("POST"), PHI_STR("/v1/completions"), 200, 0.1 * i);
    }
    phi_buf_clear(&text);
    phi_metrics_write(m, &engine, &text);
    check_format(&text);
    expect(&text, "http_requests_total{handler=\"/v1/completions\",method=\"POST\",status=\"2xx\"}",
           50);
    assert_non_null(strstr(text.data, "{engine=\"0\",model_name=\"a\\\"b\\\\\\n}{ c\"} 3.0\n"));
    phi_buf_deinit(&text);
    phi_metrics_destroy(m);
}

/* ---------------------------------------------------------------- figures */

#define L "{engine=\"0\",model_name=\"m\"}"
#define L_AND(more) "{engine=\"0\",model_name=\"m\"," more "}"

static void test_engine_figures(void **state)
{
    (void)state;
    struct phi_metrics *m = create("m");
    struct phi_buf text = {0};
    phi_metrics_write(m, &engine, &text);
    static const struct {
        const char *series;
        double value;
    } rows[] = {
        {"vllm:num_requests_running" L, 3},
        {"vllm:num_requests_waiting" L, 2},
        {"vllm:num_requests_waiting_by_reason" L_AND("reason=\"capacity\""), 2},
        {"vllm:num_requests_waiting_by_reason" L_AND("reason=\"deferred\""), 0},
        {"vllm:kv_cache_usage_perc" L, 0.125},
        {"vllm:prefix_cache_queries_total" L, 1100},
        {"vllm:prefix_cache_hits_total" L, 440},
        {"vllm:num_preemptions_total" L, 4},
        {"vllm:prompt_tokens_total" L, 1000},
        {"vllm:prompt_tokens_by_source_total" L_AND("source=\"local_compute\""), 600},
        {"vllm:prompt_tokens_by_source_total" L_AND("source=\"local_cache_hit\""), 400},
        {"vllm:prompt_tokens_by_source_total" L_AND("source=\"external_kv_transfer\""), 0},
        {"vllm:prompt_tokens_cached_total" L, 400},
        {"vllm:generation_tokens_total" L, 77},
        {"vllm:corrupted_requests_total" L, 6},
        {"phidelity_engine_steps_total" L, 90},
        {"phidelity_longrope_crossings_total" L, 1},
        {"vllm:iteration_tokens_total_bucket" L_AND("le=\"1.0\""), 5},
        {"vllm:iteration_tokens_total_bucket" L_AND("le=\"8.0\""), 7},
        {"vllm:iteration_tokens_total_bucket" L_AND("le=\"16.0\""), 7},
        {"vllm:iteration_tokens_total_bucket" L_AND("le=\"+Inf\""), 8},
        {"vllm:iteration_tokens_total_count" L, 8},
        {"vllm:iteration_tokens_total_sum" L, 300},
        {"vllm:inter_token_latency_seconds_bucket" L_AND("le=\"0.025\""), 11},
        {"vllm:inter_token_latency_seconds_count" L, 12},
        {"vllm:cache_config_info" L_AND("block_size=\"32\",cache_dtype=\"bfloat16\","
                                        "kv_cache_memory_bytes=\"4096000\","
                                        "kv_cache_size_tokens=\"6400\",num_gpu_blocks=\"200\""),
         1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect(&text, rows[i].series, rows[i].value);
    bool found;
    double created = find(&text, "vllm:prompt_tokens_created" L, &found);
    assert_true(found && fabs(created - (double)time(NULL)) < 60);
    find(&text, "vllm:e2e_request_latency_seconds_created" L, &found);
    assert_true(found);
    phi_buf_deinit(&text);
    phi_metrics_destroy(m);
}

static void test_request_figures(void **state)
{
    (void)state;
    struct phi_metrics *m = create("m");
    struct phi_buf text = {0};
    const struct phi_request_record rows[] = {
        /* prefill 0.75 s, decode 2 s over 4 gaps */
        {.finish = PHI_FINISH_STOP,
         .n = 1,
         .max_tokens = 100,
         .stats = {.queue_s = 0.5,
                   .first_token_s = 1.25,
                   .end_s = 3.25,
                   .n_prompt_tokens = 20,
                   .n_output_tokens = 5,
                   .n_cached_tokens = 16}},
        /* the context's rest: 512 - 12; two answers, the longer one of 9 tokens: 4 s over 8 gaps */
        {.finish = PHI_FINISH_LENGTH,
         .n = 2,
         .n_longest_tokens = 9,
         .stats = {.queue_s = 1,
                   .first_token_s = 2,
                   .end_s = 6,
                   .n_prompt_tokens = 12,
                   .n_output_tokens = 15}},
        /* cancelled before its first step */
        {.finish = PHI_FINISH_ABORT,
         .n = 1,
         .max_tokens = 1,
         .stats = {.end_s = 0.25, .n_prompt_tokens = 1}},
        /* one token: no gap between tokens */
        {.finish = PHI_FINISH_LENGTH,
         .n = 1,
         .max_tokens = 1,
         .stats = {.queue_s = 0.25,
                   .first_token_s = 0.5,
                   .end_s = 0.5,
                   .n_prompt_tokens = 600,
                   .n_output_tokens = 1}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        phi_metrics_request_ended(m, &rows[i]);
    phi_metrics_write(m, &engine, &text);
    static const struct {
        const char *series;
        double value;
    } expected[] = {
        {"vllm:request_success_total" L_AND("finished_reason=\"stop\""), 1},
        {"vllm:request_success_total" L_AND("finished_reason=\"length\""), 2},
        {"vllm:request_success_total" L_AND("finished_reason=\"abort\""), 1},
        {"vllm:request_success_total" L_AND("finished_reason=\"error\""), 0},
        {"vllm:request_prompt_tokens_count" L, 4},
        {"vllm:request_prompt_tokens_sum" L, 633},
        {"vllm:request_prompt_tokens_bucket" L_AND("le=\"1.0\""), 1},
        {"vllm:request_prompt_tokens_bucket" L_AND("le=\"10.0\""), 1},
        {"vllm:request_prompt_tokens_bucket" L_AND("le=\"20.0\""),
         3}, /* a bound is in its bucket */
        {"vllm:request_prompt_tokens_bucket" L_AND("le=\"500.0\""), 3},
        {"vllm:request_prompt_tokens_bucket" L_AND("le=\"+Inf\""), 4},
        {"vllm:request_prefill_kv_computed_tokens_sum" L, 617},
        {"vllm:request_generation_tokens_sum" L, 21},
        {"vllm:request_max_num_generation_tokens_sum" L, 15},
        {"vllm:request_params_max_tokens_sum" L, 602},
        {"vllm:request_params_n_bucket" L_AND("le=\"1.0\""), 3},
        {"vllm:request_params_n_bucket" L_AND("le=\"2.0\""), 4},
        {"vllm:time_to_first_token_seconds_count" L, 3},
        {"vllm:time_to_first_token_seconds_sum" L, 3.75},
        {"vllm:time_to_first_token_seconds_bucket" L_AND("le=\"0.25\""), 0},
        {"vllm:time_to_first_token_seconds_bucket" L_AND("le=\"0.5\""), 1},
        {"vllm:time_to_first_token_seconds_bucket" L_AND("le=\"2.5\""), 3},
        {"vllm:request_queue_time_seconds_count" L, 3},
        {"vllm:request_queue_time_seconds_sum" L, 1.75},
        {"vllm:request_prefill_time_seconds_sum" L, 2},
        {"vllm:request_decode_time_seconds_sum" L, 6},
        {"vllm:request_inference_time_seconds_sum" L, 8},
        {"vllm:request_inference_time_seconds_count" L, 3},
        {"vllm:request_time_per_output_token_seconds_sum" L, 1},
        {"vllm:request_time_per_output_token_seconds_count" L, 2},
        {"vllm:e2e_request_latency_seconds_sum" L, 10},
        {"vllm:e2e_request_latency_seconds_bucket" L_AND("le=\"0.3\""), 1},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        expect(&text, expected[i].series, expected[i].value);
    phi_buf_deinit(&text);
    phi_metrics_destroy(m);
}

/* All le values of a series, joined. */
static void join_bounds(const struct phi_buf *text, const char *name, struct phi_buf *out)
{
    static struct lines lines;
    split(text, &lines);
    phi_buf_clear(out);
    for (size_t i = 0; i < lines.n; i++) {
        const char *le = strstr(lines.line[i].data, "le=\"");
        if (phi_str_starts_with(lines.line[i], phi_str_from(name)) &&
            strncmp(lines.line[i].data + strlen(name), "_bucket{", 8) == 0)
            phi_buf_printf(out, "%.*s ", (int)strcspn(le + 4, "\""), le + 4);
    }
}

static void test_bounds(void **state)
{
    (void)state;
    static const char request[] = "0.3 0.5 0.8 1.0 1.5 2.0 2.5 5.0 10.0 15.0 20.0 30.0 40.0 50.0 "
                                  "60.0 120.0 240.0 480.0 960.0 1920.0 7680.0 +Inf ";
    static const char length[] = "1.0 2.0 5.0 10.0 20.0 50.0 100.0 200.0 500.0 +Inf ";
    static const struct {
        const char *name, *bounds;
    } rows[] = {
        {"vllm:request_prompt_tokens", length},
        {"vllm:request_generation_tokens", length},
        {"vllm:request_max_num_generation_tokens", length},
        {"vllm:request_params_max_tokens", length},
        {"vllm:request_prefill_kv_computed_tokens", length},
        {"vllm:request_params_n", "1.0 2.0 5.0 10.0 20.0 +Inf "},
        {"vllm:time_to_first_token_seconds",
         "0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1.0 2.5 5.0 7.5 10.0 20.0 40.0 "
         "80.0 160.0 640.0 2560.0 +Inf "},
        {"vllm:request_time_per_output_token_seconds",
         "0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1.0 2.5 5.0 7.5 10.0 20.0 40.0 80.0 "
         "+Inf "},
        {"vllm:e2e_request_latency_seconds", request},
        {"vllm:request_queue_time_seconds", request},
        {"vllm:request_inference_time_seconds", request},
        {"vllm:request_prefill_time_seconds", request},
        {"vllm:request_decode_time_seconds", request},
        {"http_request_duration_seconds", "0.1 0.5 1.0 +Inf "},
    };
    struct phi_metrics *m = create("m");
    struct phi_buf text = {0}, bounds = {0};
    phi_metrics_http_ended(m, PHI_STR("GET"), PHI_STR("/v1/models"), 200, 0.2);
    phi_metrics_write(m, &engine, &text);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        join_bounds(&text, rows[i].name, &bounds);
        assert_string_equal(bounds.data, rows[i].bounds);
    }
    phi_buf_deinit(&bounds);
    phi_buf_deinit(&text);
    phi_metrics_destroy(m);
}

/* ---------------------------------------------------------------- HTTP */

static void test_http(void **state)
{
    (void)state;
    struct phi_metrics *m = create("m");
    struct phi_buf text = {0};
    static const char *const left_out[] = {"/metrics", "/health", "/load", "/ping", "/version"};
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++)
        phi_metrics_http_ended(m, PHI_STR("GET"), phi_str_from(left_out[i]), 200, 1);
    phi_metrics_write(m, NULL, &text);
    assert_null(strstr(text.data, "handler="));

    phi_metrics_http_ended(m, PHI_STR("POST"), PHI_STR("/v1/chat/completions"), 200, 0.05);
    phi_metrics_http_ended(m, PHI_STR("POST"), PHI_STR("/v1/chat/completions"), 204, 0.7);
    phi_metrics_http_ended(m, PHI_STR("POST"), PHI_STR("/v1/chat/completions"), 503, 45);
    phi_metrics_http_ended(m, PHI_STR("GET"), PHI_STR("/v1/chat/completions"), 405, 0);
    phi_metrics_http_ended(m, PHI_STR("GET"), PHI_STR("/v1/models"), 0, 9); /* no answer */
    for (int i = 0; i < 1000; i++) {                                        /* a hostile client */
        char path[64], method[16];
        snprintf(path, sizeof path, "/v1/%d\"}\n# EOF", i);
        snprintf(method, sizeof method, "M%d", i);
        phi_metrics_http_ended(m, phi_str_from(method), phi_str_from(path), 404, 0.2);
    }
    phi_buf_clear(&text);
    phi_metrics_write(m, NULL, &text);
    check_format(&text);
    assert_true(text.n < 16384);
    static const struct {
        const char *series;
        double value;
    } rows[] = {
        {"http_requests_total{handler=\"/v1/chat/completions\",method=\"POST\",status=\"2xx\"}", 2},
        {"http_requests_total{handler=\"/v1/chat/completions\",method=\"POST\",status=\"5xx\"}", 1},
        {"http_requests_total{handler=\"/v1/chat/completions\",method=\"GET\",status=\"4xx\"}", 1},
        {"http_requests_total{handler=\"none\",method=\"none\",status=\"4xx\"}", 1000},
        {"http_request_duration_seconds_bucket{handler=\"/v1/chat/completions\",method=\"POST\","
         "le=\"0.1\"}",
         1},
        {"http_request_duration_seconds_bucket{handler=\"/v1/chat/completions\",method=\"POST\","
         "le=\"1.0\"}",
         2},
        {"http_request_duration_seconds_count{handler=\"/v1/chat/completions\",method=\"POST\"}",
         3},
        {"http_request_duration_seconds_sum{handler=\"/v1/chat/completions\",method=\"POST\"}",
         45.75},
        {"http_request_duration_highr_seconds_bucket{le=\"30.0\"}", 1003},
        {"http_request_duration_highr_seconds_count", 1004},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect(&text, rows[i].series, rows[i].value);
    expect_absent(&text,
                  "http_requests_total{handler=\"/v1/models\",method=\"GET\",status=\"2xx\"}");
    phi_buf_deinit(&text);
    phi_metrics_destroy(m);
}

/* Every route of the server is counted under its own path, or left out as in vLLM. */
static void test_routes(void **state)
{
    (void)state;
    for (const struct phi_route *route = phi_routes; route->path; route++) {
        struct phi_metrics *m = create("m");
        struct phi_buf text = {0}, series = {0};
        phi_metrics_http_ended(m, phi_str_from(route->method), phi_str_from(route->path), 200, 0.2);
        phi_metrics_write(m, NULL, &text);
        phi_buf_printf(&series, "http_requests_total{handler=\"%s\",method=\"%s\",status=\"2xx\"}",
                       route->path, route->method);
        if (strstr(text.data, "handler="))
            expect(&text, series.data, 1);
        else
            assert_true(route->flags & PHI_ROUTE_ALWAYS);
        phi_buf_deinit(&series);
        phi_buf_deinit(&text);
        phi_metrics_destroy(m);
    }
}

/* ---------------------------------------------------------------- process */

static void test_process(void **state)
{
    (void)state;
    struct phi_process_stats before, after;
    phi_process_stats_get(&before);
    int fd = open("/dev/null", O_RDONLY);
    assert_true(fd >= 0);
    phi_process_stats_get(&after);
    close(fd);
    assert_true(after.n_open_fds == before.n_open_fds + 1);
    assert_true(after.n_open_fds < after.n_max_fds);
    assert_true(before.n_threads == 1);
    assert_true(before.resident_bytes > 65536);
    assert_true(before.virtual_bytes > before.resident_bytes);
    for (volatile unsigned i = 0; i < 30000000; i++)
        continue;
    phi_process_stats_get(&after);
    assert_true(after.cpu_s > before.cpu_s && after.cpu_s < 600);
    assert_true(fabs(phi_process_start_time_s() - (double)time(NULL)) < 300);
}

/* ---------------------------------------------------------------- threads, memory */

enum { N_THREADS = 4, N_EACH = 2000 };

static void *record_many(void *arg)
{
    struct phi_metrics *m = arg;
    const struct phi_request_record r = {
        .finish = PHI_FINISH_STOP,
        .n = 1,
        .max_tokens = 5,
        .stats = {.queue_s = 0.5, .first_token_s = 1, .end_s = 2, .n_output_tokens = 3}};
    phi_alloc_forbid(true);
    for (int i = 0; i < N_EACH; i++) {
        phi_metrics_request_ended(m, &r);
        phi_metrics_http_ended(m, PHI_STR("POST"), PHI_STR("/v1/completions"), 200, 2);
    }
    phi_alloc_forbid(false);
    return NULL;
}

/* Four threads record while one scrapes: every text is well-formed, counters only rise, nothing is
 * lost, and recording does not allocate. */
static void test_threads(void **state)
{
    (void)state;
    static const char ended[] = "vllm:request_success_total" L_AND("finished_reason=\"stop\"");
    struct phi_metrics *m = create("m");
    struct phi_buf text = {0};
    pthread_t threads[N_THREADS];
    long violations = phi_alloc_violations();
    for (int i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, record_many, m), 0);
    double last = 0;
    for (int i = 0; i < 20; i++) {
        phi_buf_clear(&text);
        phi_metrics_write(m, &engine, &text);
        check_format(&text);
        bool found;
        double n = find(&text, ended, &found);
        assert_true(found && n >= last);
        last = n;
    }
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    phi_buf_clear(&text);
    phi_metrics_write(m, &engine, &text);
    expect(&text, ended, N_THREADS * N_EACH);
    expect(&text, "vllm:e2e_request_latency_seconds_sum" L, 2.0 * N_THREADS * N_EACH);
    expect(&text, "http_requests_total{handler=\"/v1/completions\",method=\"POST\",status=\"2xx\"}",
           N_THREADS * N_EACH);
    assert_int_equal(phi_alloc_violations(), violations);
    phi_buf_deinit(&text);
    phi_metrics_destroy(m);
}

/* Each allocation fails once: creation says so, a text that could not be finished is marked. */
static void test_out_of_memory(void **state)
{
    (void)state;
    struct phi_error err;
    struct phi_metrics *m = NULL;
    int n_failed = 0;
    for (long nth = 1;; nth++) {
        phi_alloc_fail_nth(nth);
        enum phi_status status = phi_metrics_create("m", &m, &err);
        phi_alloc_fail_nth(0);
        if (status == PHI_OK)
            break;
        assert_int_equal(status, PHI_ERR_MEMORY);
        n_failed++;
    }
    assert_true(n_failed >= 2);
    phi_metrics_open(m, &info);
    n_failed = 0;
    for (long nth = 1;; nth++) {
        struct phi_buf text = {0};
        phi_alloc_fail_nth(nth);
        phi_metrics_write(m, &engine, &text);
        phi_alloc_fail_nth(0);
        bool failed = text.failed;
        if (!failed)
            check_format(&text);
        phi_buf_deinit(&text);
        n_failed += failed;
        if (!failed && n_failed > 0)
            break;
        assert_true(nth < 100);
    }
    phi_metrics_destroy(m);
    phi_metrics_destroy(NULL);
}

/* ---------------------------------------------------------------- docs/SERVING.md */

/* The rows that the table of metrics in docs/SERVING.md must have. */
static void expected_rows(const struct phi_buf *text, struct phi_buf *out)
{
    static struct lines lines;
    split(text, &lines);
    for (size_t i = 0; i + 1 < lines.n; i++) {
        char name[128], type[16];
        if (sscanf(lines.line[i].data, "# HELP %127s", name) != 1 ||
            phi_str_ends_with(phi_str_from(name), PHI_STR("_created")))
            continue;
        assert_int_equal(sscanf(lines.line[i + 1].data, "# TYPE %*s %15s", type), 1);
        size_t start = strlen("# HELP ") + strlen(name) + 1;
        phi_buf_printf(out, "| `%s` | %s | %.*s |\n", name, type, (int)(lines.line[i].n - start),
                       lines.line[i].data + start);
    }
}

static void test_documented(void **state)
{
    (void)state;
    const char *tests = getenv("PHI_TESTS");
    assert_non_null(tests);
    struct phi_buf path = {0}, doc = {0}, text = {0}, rows = {0};
    assert_true(phi_path_join(&path, tests, "../docs/SERVING.md"));
    assert_int_equal(phi_file_read(path.data, 1 << 20, &doc, NULL), PHI_OK);
    struct phi_metrics *m = create("m");
    phi_metrics_write(m, &engine, &text);
    expected_rows(&text, &rows);
    const char *begin = strstr(doc.data, "<!-- metrics: begin -->");
    const char *table = begin ? strstr(begin, "|---|---|---|\n") : NULL;
    const char *end = begin ? strstr(begin, "<!-- metrics: end -->") : NULL;
    assert_true(table && end && table < end);
    table += strlen("|---|---|---|\n");
    if ((size_t)(end - table) != rows.n || memcmp(table, rows.data, rows.n) != 0) {
        printf("# docs/SERVING.md should have these rows:\n%s", rows.data);
        fail_msg("the metrics table of docs/SERVING.md is not what the program tells");
    }
    phi_metrics_destroy(m);
    phi_buf_deinit(&path);
    phi_buf_deinit(&doc);
    phi_buf_deinit(&text);
    phi_buf_deinit(&rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_labels),
        cmocka_unit_test(test_format),
        cmocka_unit_test(test_engine_figures),
        cmocka_unit_test(test_request_figures),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_http),
        cmocka_unit_test(test_routes),
        cmocka_unit_test(test_process),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_documented),
    };
    return cmocka_run_group_tests_name("metrics", tests, NULL, NULL);
}
