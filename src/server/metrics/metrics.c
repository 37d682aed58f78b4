/* metrics.c: see metrics.h. In order: what a scrape sees, where each figure comes from, the table,
 * recording, writing. */
#include "server/metrics/metrics.h"
#include "base/alloc.h"
#include "base/dtype.h"
#include "server/metrics/exposition.h"
#include "server/metrics/histogram.h"
#include "server/metrics/http_series.h"
#include "server/metrics/process_stats.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

/* What the figures of one scrape are taken from. */
struct view {
    const struct phi_metrics *m;
    const struct phi_engine_stats *engine; /* NULL: rows of scope ENGINE are left out */
    struct phi_process_stats process;
};

enum type { GAUGE, COUNTER, HISTOGRAM };
static const char *const type_names[] = {"gauge", "counter", "histogram"};

enum scope {
    ENGINE, /* labelled with model and engine */
    HTTP,
    PROCESS /* what the system does not tell is left out; no _created, as in prometheus_client */
};

enum bounds { LENGTH_BOUNDS, COUNT_BOUNDS, FIRST_TOKEN_BOUNDS, TOKEN_BOUNDS, REQUEST_BOUNDS };

/* One series, or for rows with `write` a family of them. Rows of one name stand together. */
struct metric {
    const char *name; /* without the _total that counters get */
    enum type type;
    enum scope scope;
    const char *help; /* of the first row of a name */
    const char *more; /* a further label, or NULL */
    /* One of these is the source. */
    double (*value)(const struct view *v);
    const struct phi_histogram *(*histogram)(const struct view *v);
    double (*of_request)(const struct phi_request_record *r); /* NAN = nothing to record */
    void (*write)(const struct view *v, const struct metric *t, double created_s,
                  struct phi_buf *out);
    enum bounds bounds; /* of of_request */
};

/* ---------------------------------------------------------------- sources: engine and process */

enum { MAX_METRICS = 64, N_FINISH = PHI_FINISH_ERROR + 1 };

struct phi_metrics {
    struct phi_buf labels; /* engine="0",model_name="..." */
    double start_time_s;   /* of the process */
    double created_s;      /* when counting began */

    pthread_mutex_t lock; /* guards what follows */
    bool is_open;
    struct phi_engine_info info;
    uint64_t n_computed_tokens; /* the most that a scrape has seen */
    uint64_t n_finished[N_FINISH];
    struct phi_histogram requests[MAX_METRICS]; /* by row of the table */
    struct phi_http_series http;
};

#define VALUE(name, expression)                                                                    \
    static double name(const struct view *v)                                                       \
    {                                                                                              \
        return (double)(expression);                                                               \
    }

VALUE(running, v->engine->n_running)
VALUE(waiting, v->engine->n_waiting)
VALUE(none, ((void)v, 0))
VALUE(kv_usage, v->engine->kv_usage)
VALUE(prefix_queries, v->engine->n_prefix_queries)
VALUE(prefix_hits, v->engine->n_prefix_hits)
VALUE(preemptions, v->engine->n_preemptions)
VALUE(prompt_tokens, v->engine->n_prompt_tokens)
VALUE(cached_tokens, v->engine->n_cached_prompt_tokens)
VALUE(computed_tokens, v->m->n_computed_tokens)
VALUE(generated_tokens, v->engine->n_generated_tokens)
VALUE(nan_requests, v->engine->n_nan_requests)
VALUE(crossings, v->engine->n_crossings)
VALUE(steps, v->engine->n_steps)
VALUE(stopped, v->m->n_finished[PHI_FINISH_STOP])
VALUE(cut, v->m->n_finished[PHI_FINISH_LENGTH])
VALUE(aborted, v->m->n_finished[PHI_FINISH_ABORT])
VALUE(failed, v->m->n_finished[PHI_FINISH_ERROR])
VALUE(virtual_bytes, v->process.virtual_bytes)
VALUE(resident_bytes, v->process.resident_bytes)
VALUE(start_time, v->m->start_time_s)
VALUE(cpu_seconds, v->process.cpu_s)
VALUE(open_fds, v->process.n_open_fds)
VALUE(max_fds, v->process.n_max_fds)
VALUE(threads, v->process.n_threads)

static const struct phi_histogram *iteration_tokens(const struct view *v)
{
    return &v->engine->iteration_tokens;
}

static const struct phi_histogram *inter_token(const struct view *v)
{
    return &v->engine->inter_token_s;
}

static const struct phi_histogram *http_seconds(const struct view *v)
{
    return &v->m->http.seconds;
}

static void write_http_counts(const struct view *v, const struct metric *t, double created_s,
                              struct phi_buf *out)
{
    phi_http_series_write_counts(&v->m->http, t->name, created_s, out);
}

static void write_http_durations(const struct view *v, const struct metric *t, double created_s,
                                 struct phi_buf *out)
{
    phi_http_series_write_durations(&v->m->http, t->name, created_s, out);
}

static void write_cache_config(const struct view *v, const struct metric *t, double created_s,
                               struct phi_buf *out)
{
    (void)created_s;
    const struct phi_engine_info *i = &v->m->info;
    char more[256];
    snprintf(more, sizeof more,
             "block_size=\"%d\",cache_dtype=\"%s\",kv_cache_memory_bytes=\"%llu\","
             "kv_cache_size_tokens=\"%llu\",num_gpu_blocks=\"%llu\"",
             i->block_size, phi_dtype_name(i->kv_dtype), (unsigned long long)i->kv_bytes,
             (unsigned long long)i->kv_tokens,
             (unsigned long long)(i->kv_tokens / (unsigned)i->block_size));
    phi_expo_sample(out, t->name, "", phi_buf_str(&v->m->labels), phi_str_from(more), 1);
}

/* ---------------------------------------------------------------- sources: requests */

static size_t longest(const struct phi_request_record *r)
{
    return r->n == 1 ? r->stats.n_output_tokens : r->n_longest_tokens;
}

/* Times that never came are 0 in phi_request_stats. */
static double between(double from_s, double to_s)
{
    return from_s > 0 && to_s > 0 ? fmax(to_s - from_s, 0) : NAN;
}

static double of_prompt(const struct phi_request_record *r)
{
    return (double)r->stats.n_prompt_tokens;
}

static double of_computed(const struct phi_request_record *r)
{
    return (double)(r->stats.n_prompt_tokens - r->stats.n_cached_tokens);
}

static double of_output(const struct phi_request_record *r)
{
    return (double)r->stats.n_output_tokens;
}

static double of_longest(const struct phi_request_record *r)
{
    return (double)longest(r);
}

static double of_max_tokens(const struct phi_request_record *r)
{
    return r->max_tokens;
}

static double of_n(const struct phi_request_record *r)
{
    return r->n;
}

static double of_queue(const struct phi_request_record *r)
{
    return r->stats.queue_s > 0 ? r->stats.queue_s : NAN;
}

static double of_first_token(const struct phi_request_record *r)
{
    return r->stats.first_token_s > 0 ? r->stats.first_token_s : NAN;
}

static double of_prefill(const struct phi_request_record *r)
{
    return between(r->stats.queue_s, r->stats.first_token_s);
}

static double of_decode(const struct phi_request_record *r)
{
    return between(r->stats.first_token_s, r->stats.end_s);
}

static double of_inference(const struct phi_request_record *r)
{
    return r->stats.first_token_s > 0 ? between(r->stats.queue_s, r->stats.end_s) : NAN;
}

static double of_token(const struct phi_request_record *r)
{
    return longest(r) > 1 ? of_decode(r) / (double)(longest(r) - 1) : NAN;
}

static double of_all(const struct phi_request_record *r)
{
    return r->stats.end_s > 0 ? r->stats.end_s : NAN;
}

/* ---------------------------------------------------------------- the table */

static const struct metric metrics[] = {
    {"vllm:num_requests_running", GAUGE, ENGINE, "Answers in the running batch.", .value = running},
    {"vllm:num_requests_waiting", GAUGE, ENGINE, "Answers waiting to run.", .value = waiting},
    {"vllm:num_requests_waiting_by_reason", GAUGE, ENGINE,
     "Waiting answers by reason; none is ever deferred here.", "reason=\"capacity\"",
     .value = waiting},
    {"vllm:num_requests_waiting_by_reason", GAUGE, ENGINE, NULL, "reason=\"deferred\"",
     .value = none},
    {"vllm:kv_cache_usage_perc", GAUGE, ENGINE, "Share of the KV blocks that answers hold, 0 to 1.",
     .value = kv_usage},
    {"vllm:prefix_cache_queries", COUNTER, ENGINE, "Tokens looked up in the prefix cache.",
     .value = prefix_queries},
    {"vllm:prefix_cache_hits", COUNTER, ENGINE, "Tokens found in the prefix cache.",
     .value = prefix_hits},
    {"vllm:num_preemptions", COUNTER, ENGINE, "Times an answer gave its KV blocks back for others.",
     .value = preemptions},
    {"vllm:prompt_tokens", COUNTER, ENGINE, "Prompt tokens processed, cached ones included.",
     .value = prompt_tokens},
    {"vllm:prompt_tokens_by_source", COUNTER, ENGINE, "Prompt tokens by where they came from.",
     "source=\"local_compute\"", .value = computed_tokens},
    {"vllm:prompt_tokens_by_source", COUNTER, ENGINE, NULL, "source=\"local_cache_hit\"",
     .value = cached_tokens},
    {"vllm:prompt_tokens_by_source", COUNTER, ENGINE, NULL, "source=\"external_kv_transfer\"",
     .value = none},
    {"vllm:prompt_tokens_cached", COUNTER, ENGINE, "Prompt tokens taken from the prefix cache.",
     .value = cached_tokens},
    {"vllm:generation_tokens", COUNTER, ENGINE, "Tokens generated.", .value = generated_tokens},
    {"vllm:request_success", COUNTER, ENGINE, "Requests that ended, by why they did.",
     "finished_reason=\"stop\"", .value = stopped},
    {"vllm:request_success", COUNTER, ENGINE, NULL, "finished_reason=\"length\"", .value = cut},
    {"vllm:request_success", COUNTER, ENGINE, NULL, "finished_reason=\"abort\"", .value = aborted},
    {"vllm:request_success", COUNTER, ENGINE, NULL, "finished_reason=\"error\"", .value = failed},
    {"vllm:corrupted_requests", COUNTER, ENGINE,
     "Requests ended because of NaN or infinite logits.", .value = nan_requests},
    {"vllm:request_prompt_tokens", HISTOGRAM, ENGINE, "Prompt tokens of a request.",
     .of_request = of_prompt, .bounds = LENGTH_BOUNDS},
    {"vllm:request_prefill_kv_computed_tokens", HISTOGRAM, ENGINE,
     "Prompt tokens of a request that were not in the prefix cache.", .of_request = of_computed,
     .bounds = LENGTH_BOUNDS},
    {"vllm:request_generation_tokens", HISTOGRAM, ENGINE,
     "Generated tokens of a request, all its answers together.", .of_request = of_output,
     .bounds = LENGTH_BOUNDS},
    {"vllm:request_max_num_generation_tokens", HISTOGRAM, ENGINE,
     "Generated tokens of a request's longest answer.", .of_request = of_longest,
     .bounds = LENGTH_BOUNDS},
    {"vllm:request_params_max_tokens", HISTOGRAM, ENGINE, "The max_tokens of a request.",
     .of_request = of_max_tokens, .bounds = LENGTH_BOUNDS},
    {"vllm:request_params_n", HISTOGRAM, ENGINE, "The n of a request.", .of_request = of_n,
     .bounds = COUNT_BOUNDS},
    {"vllm:iteration_tokens_total", HISTOGRAM, ENGINE, "Tokens computed in one engine step.",
     .histogram = iteration_tokens},
    {"vllm:time_to_first_token_seconds", HISTOGRAM, ENGINE,
     "From submission to the first token; recorded when the request ends.",
     .of_request = of_first_token, .bounds = FIRST_TOKEN_BOUNDS},
    {"vllm:inter_token_latency_seconds", HISTOGRAM, ENGINE, "Between two tokens of one answer.",
     .histogram = inter_token},
    {"vllm:request_time_per_output_token_seconds", HISTOGRAM, ENGINE,
     "Mean time between the tokens of a request that has at least two.", .of_request = of_token,
     .bounds = TOKEN_BOUNDS},
    {"vllm:e2e_request_latency_seconds", HISTOGRAM, ENGINE, "From submission to the last token.",
     .of_request = of_all, .bounds = REQUEST_BOUNDS},
    {"vllm:request_queue_time_seconds", HISTOGRAM, ENGINE, "From submission to the first step.",
     .of_request = of_queue, .bounds = REQUEST_BOUNDS},
    {"vllm:request_prefill_time_seconds", HISTOGRAM, ENGINE,
     "From the first step to the first token.", .of_request = of_prefill, .bounds = REQUEST_BOUNDS},
    {"vllm:request_decode_time_seconds", HISTOGRAM, ENGINE, "From the first token to the last.",
     .of_request = of_decode, .bounds = REQUEST_BOUNDS},
    {"vllm:request_inference_time_seconds", HISTOGRAM, ENGINE,
     "From the first step to the last token.", .of_request = of_inference,
     .bounds = REQUEST_BOUNDS},
    {"vllm:cache_config_info", GAUGE, ENGINE, "The KV cache's settings, as labels.",
     .write = write_cache_config},
    {"phidelity_engine_steps", COUNTER, ENGINE, "Steps of the engine.", .value = steps},
    {"phidelity_longrope_crossings", COUNTER, ENGINE,
     "Answers that outgrew LongRoPE's original length and were prefilled again.",
     .value = crossings},
    {"http_requests", COUNTER, HTTP, "HTTP requests by route, method and class of status.",
     .write = write_http_counts},
    {"http_request_duration_seconds", HISTOGRAM, HTTP,
     "How long HTTP requests took, by route and method.", .write = write_http_durations},
    {"http_request_duration_highr_seconds", HISTOGRAM, HTTP,
     "How long all HTTP requests took, in finer steps.", .histogram = http_seconds},
    {"process_virtual_memory_bytes", GAUGE, PROCESS, "Address space of the process.",
     .value = virtual_bytes},
    {"process_resident_memory_bytes", GAUGE, PROCESS,
     "Memory of the process that is in RAM, mapped weights included.", .value = resident_bytes},
    {"process_start_time_seconds", GAUGE, PROCESS, "When the process began, since 1970.",
     .value = start_time},
    {"process_cpu_seconds", COUNTER, PROCESS, "Processor time of all threads.",
     .value = cpu_seconds},
    {"process_open_fds", GAUGE, PROCESS, "Open file descriptors.", .value = open_fds},
    {"process_max_fds", GAUGE, PROCESS, "Most file descriptors that may be open.",
     .value = max_fds},
    {"process_num_threads", GAUGE, PROCESS, "Threads of the process.", .value = threads},
};

#define N_METRICS (sizeof metrics / sizeof *metrics)
_Static_assert(N_METRICS <= MAX_METRICS, "phi_metrics.requests has a place for every row");

/* 1-2-5 steps, written up to max_model_len only. */
static const double length_bounds[] = {1,   2,   5,   10,  20,  50,  100, 200, 500, 1e3,
                                       2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6};
static const double count_bounds[] = {1, 2, 5, 10, 20};
static const double first_token_bounds[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,
                                            0.25,  0.5,   0.75, 1,    2.5,  5,    7.5,  10,
                                            20,    40,    80,   160,  640,  2560};
static const double token_bounds[] = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                                      0.75, 1,     2.5,  5,     7.5, 10,   20,  40,  80};
static const double request_bounds[] = {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                        30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};

static struct phi_histogram empty_histogram(enum bounds bounds)
{
    switch (bounds) {
    case LENGTH_BOUNDS:
        return PHI_HISTOGRAM(length_bounds);
    case COUNT_BOUNDS:
        return PHI_HISTOGRAM(count_bounds);
    case FIRST_TOKEN_BOUNDS:
        return PHI_HISTOGRAM(first_token_bounds);
    case TOKEN_BOUNDS:
        return PHI_HISTOGRAM(token_bounds);
    case REQUEST_BOUNDS:
        break;
    }
    return PHI_HISTOGRAM(request_bounds);
}

/* ---------------------------------------------------------------- recording */

enum phi_status phi_metrics_create(const char *model_name, struct phi_metrics **out,
                                   struct phi_error *err)
{
    struct phi_metrics *m = phi_calloc(1, sizeof *m);
    if (!m)
        return phi_fail_memory(err, "the metrics", sizeof *m);
    phi_expo_label(&m->labels, "engine", PHI_STR("0"));
    phi_expo_label(&m->labels, "model_name", phi_str_from(model_name));
    if (m->labels.failed || pthread_mutex_init(&m->lock, NULL) != 0) {
        phi_buf_deinit(&m->labels);
        phi_free(m);
        return phi_fail_memory(err, "the metrics' labels", strlen(model_name));
    }
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    m->created_s = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    m->start_time_s = phi_process_start_time_s();
    for (size_t i = 0; i < N_METRICS; i++)
        m->requests[i] = empty_histogram(metrics[i].bounds);
    phi_http_series_init(&m->http);
    *out = m;
    return PHI_OK;
}

void phi_metrics_destroy(struct phi_metrics *m)
{
    if (!m)
        return;
    pthread_mutex_destroy(&m->lock);
    phi_buf_deinit(&m->labels);
    phi_free(m);
}

void phi_metrics_open(struct phi_metrics *m, const struct phi_engine_info *info)
{
    pthread_mutex_lock(&m->lock);
    m->info = *info;
    m->is_open = true;
    pthread_mutex_unlock(&m->lock);
}

void phi_metrics_request_ended(struct phi_metrics *m, const struct phi_request_record *r)
{
    struct phi_request_record known = *r;
    pthread_mutex_lock(&m->lock);
    if (known.max_tokens == 0)
        known.max_tokens = m->info.max_model_len - (int)r->stats.n_prompt_tokens;
    m->n_finished[r->finish]++;
    for (size_t i = 0; i < N_METRICS; i++) {
        double value = metrics[i].of_request ? metrics[i].of_request(&known) : NAN;
        if (!isnan(value))
            phi_histogram_add(&m->requests[i], value);
    }
    pthread_mutex_unlock(&m->lock);
}

void phi_metrics_http_ended(struct phi_metrics *m, struct phi_str method, struct phi_str route,
                            int status, double seconds)
{
    pthread_mutex_lock(&m->lock);
    phi_http_series_add(&m->http, method, route, status, seconds);
    pthread_mutex_unlock(&m->lock);
}

/* ---------------------------------------------------------------- writing */

static size_t n_bounds_written(const struct view *v, const struct phi_histogram *h)
{
    size_t n = h->n;
    if (h->bounds != length_bounds)
        return n;
    while (n > 0 && h->bounds[n - 1] > v->m->info.max_model_len)
        n--;
    return n;
}

static void write_row(const struct view *v, const struct metric *t, struct phi_buf *out)
{
    struct phi_str labels = t->scope == ENGINE ? phi_buf_str(&v->m->labels) : PHI_STR("");
    if (t->write) {
        t->write(v, t, NAN, out);
    } else if (t->type == HISTOGRAM) {
        const struct phi_histogram *h =
            t->histogram ? t->histogram(v) : &v->m->requests[t - metrics];
        phi_expo_histogram(out, t->name, labels, h, n_bounds_written(v, h));
    } else {
        phi_expo_sample(out, t->name, t->type == COUNTER ? "_total" : "", labels,
                        phi_str_from(t->more ? t->more : ""), t->value(v));
    }
}

static void write_created(const struct view *v, const struct metric *t, struct phi_buf *out)
{
    struct phi_str labels = t->scope == ENGINE ? phi_buf_str(&v->m->labels) : PHI_STR("");
    if (t->write)
        t->write(v, t, v->m->created_s, out);
    else
        phi_expo_sample(out, t->name, "_created", labels, phi_str_from(t->more ? t->more : ""),
                        v->m->created_s);
}

/* Writes the family that begins at row `first`; returns the row after it. */
static size_t write_family(const struct view *v, size_t first, struct phi_buf *out)
{
    const struct metric *t = &metrics[first];
    size_t end = first + 1;
    while (end < N_METRICS && strcmp(metrics[end].name, t->name) == 0)
        end++;
    bool unknown = t->scope == ENGINE ? !v->engine : t->scope == PROCESS && isnan(t->value(v));
    if (unknown)
        return end;
    phi_expo_family(out, t->name, t->type == COUNTER ? "_total" : "", type_names[t->type], t->help);
    for (size_t i = first; i < end; i++)
        write_row(v, &metrics[i], out);
    if (t->type == GAUGE || t->scope == PROCESS)
        return end;
    phi_expo_family(out, t->name, "_created", "gauge", t->help);
    for (size_t i = first; i < end; i++)
        write_created(v, &metrics[i], out);
    return end;
}

/* The engine's counters are read one after the other while it runs, so the difference of two may
 * fall by a little from scrape to scrape; a counter may not. */
static void update_computed_tokens(struct phi_metrics *m, const struct phi_engine_stats *engine)
{
    if (engine->n_prompt_tokens < engine->n_cached_prompt_tokens)
        return;
    uint64_t n = engine->n_prompt_tokens - engine->n_cached_prompt_tokens;
    if (n > m->n_computed_tokens)
        m->n_computed_tokens = n;
}

void phi_metrics_write(struct phi_metrics *m, const struct phi_engine_stats *engine,
                       struct phi_buf *out)
{
    struct view v = {.m = m};
    phi_process_stats_get(&v.process);
    pthread_mutex_lock(&m->lock);
    v.engine = m->is_open ? engine : NULL;
    if (v.engine)
        update_computed_tokens(m, engine);
    for (size_t i = 0; i < N_METRICS;)
        i = write_family(&v, i, out);
    pthread_mutex_unlock(&m->lock);
}
