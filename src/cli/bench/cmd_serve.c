/* cmd_serve.c: phidelity bench serve: load for a server, and what its clients see of it. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "cli/bench/load.h"
#include "cli/bench/serve_flags.h"
#include "cli/bench/serve_report.h"
#include "formats/json.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct flags {
    struct bench_serve_flags serve;
    struct bench_dataset_flags dataset;
    struct bench_result_flags result;
    struct bench_sampling_flags sampling;
};

static int run(int argc, char **argv);

const struct cli_command cli_bench_serve = {
    .name = "bench serve",
    .arguments = "[options]",
    .summary = "sends requests to a server and tells how it answers",
    .details = "For any server with OpenAI's completions or chats. Answers are streamed. "
               "OPENAI_API_KEY in the\n"
               "environment is sent as the key. docs/BENCHMARKS.md defines every figure.",
    .options =
        (const struct cli_option_use[]){
            {&bench_serve_group, offsetof(struct flags, serve)},
            {&bench_dataset_group, offsetof(struct flags, dataset)},
            {&bench_result_group, offsetof(struct flags, result)},
            {&bench_sampling_group, offsetof(struct flags, sampling)},
            {0},
        },
    .without_model = true,
    .run = run,
};

struct bench {
    const struct cli_args *args;
    const struct flags *flags;
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

/* --------------------------------------------------------------- what was asked */

/* "ttft:200" */
static bool set_goal(struct bench_serve_setting *s, const char *text)
{
    char key[16], *end;
    size_t n = strcspn(text, ":");
    if (n >= sizeof key || text[n] != ':')
        return false;
    memcpy(key, text, n);
    key[n] = '\0';
    int metric = bench_metric_find(key);
    double ms = strtod(text + n + 1, &end);
    if (metric < 0 || metric == BENCH_ITL || *end || end == text + n + 1 || !(ms >= 0))
        return false;
    s->goodput_ms[metric] = ms;
    s->any_goodput = true;
    return true;
}

/* Returns -1, or the exit code of a usage error. */
static int read_setting(struct bench *b)
{
    const struct bench_result_flags *f = &b->flags->result;
    struct bench_serve_setting *s = &b->setting;
    s->request_rate = b->flags->serve.request_rate;
    s->max_concurrency = b->flags->serve.max_concurrency;
    for (int i = 0; i < BENCH_N_METRICS; i++)
        s->goodput_ms[i] = -1;
    for (size_t i = 0; i < f->percentile_metrics.n; i++) {
        int metric = bench_metric_find(f->percentile_metrics.data[i]);
        if (metric < 0)
            return cli_usage_error(&cli_bench_serve,
                                   "--percentile-metrics must be of ttft, tpot, itl and e2el, not "
                                   "'%.60s'",
                                   f->percentile_metrics.data[i]);
        s->percentiles_of[metric] = true;
    }
    b->percentiles = phi_calloc(f->percentiles.n + 1, sizeof *b->percentiles);
    for (size_t i = 0; i < f->percentiles.n && b->percentiles; i++) {
        char *end;
        b->percentiles[i] = strtod(f->percentiles.data[i], &end);
        if (*end || !(b->percentiles[i] >= 0 && b->percentiles[i] <= 100))
            return cli_usage_error(&cli_bench_serve,
                                   "--metric-percentiles must be from 0 to 100, not '%.60s'",
                                   f->percentiles.data[i]);
    }
    s->percentiles = b->percentiles;
    s->n_percentiles = b->percentiles ? f->percentiles.n : 0;
    for (size_t i = 0; i < f->goodput.n; i++)
        if (!set_goal(s, f->goodput.data[i]))
            return cli_usage_error(&cli_bench_serve,
                                   "--goodput must be KEY:MILLISECONDS with ttft, tpot or e2el, "
                                   "not '%.60s'",
                                   f->goodput.data[i]);
    return -1;
}

static bool has_equals(const struct cli_texts *texts, const char **bad)
{
    for (size_t i = 0; i < texts->n; i++) {
        *bad = texts->data[i];
        if (!strchr(*bad, '='))
            return false;
    }
    return true;
}

/* --------------------------------------------------------------- the server */

static enum phi_status add_header(struct bench *b, const char *name, int n_name, const char *value,
                                  struct phi_error *err)
{
    struct phi_buf line = {0};
    phi_buf_printf(&line, "%.*s: %s", n_name, name, value);
    b->headers[b->server.n_headers++] = line.data;
    return line.failed ? phi_fail_memory(err, "header", line.n) : PHI_OK;
}

static enum phi_status set_headers(struct bench *b, struct phi_error *err)
{
    const struct cli_texts *given = &b->flags->serve.headers;
    const char *key = getenv("OPENAI_API_KEY");
    b->headers = phi_calloc(given->n + 1, sizeof *b->headers);
    if (!b->headers)
        return phi_fail_memory(err, "headers", (given->n + 1) * sizeof *b->headers);
    b->server.headers = b->headers;
    for (size_t i = 0; i < given->n; i++) {
        int n_key = (int)strcspn(given->data[i], "=");
        PHI_TRY(add_header(b, given->data[i], n_key, given->data[i] + n_key + 1, err));
    }
    char bearer[512];
    snprintf(bearer, sizeof bearer, "Bearer %s", key ? key : "");
    return key && key[0] ? add_header(b, "Authorization", 13, bearer, err) : PHI_OK;
}

static enum phi_status set_server(struct bench *b, struct phi_error *err)
{
    const struct bench_serve_flags *f = &b->flags->serve;
    bool is_ipv6 = strchr(f->host, ':') != NULL && f->host[0] != '[';
    if (f->base_url)
        phi_buf_append_c(&b->base_url, f->base_url);
    else
        phi_buf_printf(&b->base_url, is_ipv6 ? "http://[%s]:%d" : "http://%s:%d", f->host, f->port);
    if (b->base_url.failed)
        return phi_fail_memory(err, "the server's address", b->base_url.n);
    b->server.base_url = b->base_url.data;
    b->server.endpoint = f->endpoint                ? f->endpoint
                         : f->backend == BENCH_CHAT ? "/v1/chat/completions"
                                                    : "/v1/completions";
    b->server.insecure = f->insecure;
    return set_headers(b, err);
}

/* Asks for /v1/models, again and again until the time is over. */
static enum phi_status get_models(const struct bench *b, json_t **out, struct phi_error *err)
{
    double end_s = phi_clock_s() + b->flags->serve.ready_timeout_s;
    for (;;) {
        struct phi_buf body = {0};
        enum phi_status status = bench_load_get(&b->server, "/v1/models", &body, err);
        if (status == PHI_OK)
            status = phi_json_parse(phi_buf_str(&body), "/v1/models", out, err);
        phi_buf_deinit(&body);
        if (status == PHI_OK || phi_clock_s() >= end_s)
            return status;
        nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    }
}

/* The model's name, and perhaps its folder, from the command line or from the server. */
static enum phi_status find_model(struct bench *b, struct phi_error *err)
{
    const struct bench_serve_flags *f = &b->flags->serve;
    json_t *models = NULL;
    struct phi_str id = {NULL, 0}, root = {NULL, 0};
    if (!f->model || f->ready_timeout_s > 0)
        PHI_TRY(get_models(b, &models, err));
    const json_t *first = json_array_get(json_object_get(models, "data"), 0);
    enum phi_status status = PHI_OK;
    if (!f->model) {
        status = phi_json_get_str(first, "/v1/models", "id", &id, err);
        if (status == PHI_OK)
            status = phi_json_get_str(first, "/v1/models", "root", &root, err);
        if (status == PHI_OK && !id.data)
            status = phi_fail(err, PHI_ERR_FORMAT, "%s/v1/models names no model; give --model",
                              b->server.base_url);
    } else {
        id = phi_str_from(f->served_model_name ? f->served_model_name : f->model);
        root = phi_str_from(f->model);
    }
    if (status == PHI_OK) {
        phi_buf_append_str(&b->model_id, id);
        phi_buf_append_str(&b->tokenizer_dir, f->tokenizer ? phi_str_from(f->tokenizer) : root);
        if (b->model_id.failed || b->tokenizer_dir.failed)
            status = phi_fail_memory(err, "the model's name", id.n);
    }
    json_decref(models);
    return status;
}

static enum phi_status open_tokenizer(struct bench *b, struct phi_error *err)
{
    struct phi_model_options o;
    bool must = b->flags->serve.tokenizer != NULL;
    if (!b->tokenizer_dir.data || (!must && !phi_file_is_dir(b->tokenizer_dir.data)))
        return PHI_OK;
    phi_model_options_init(&o);
    o.path = b->tokenizer_dir.data;
    o.no_weights = true;
    return phi_model_open(&o, &b->tokenizer, err);
}

/* --------------------------------------------------------------- bodies */

static bool set(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value) == 0;
}

static json_t *ids_json(const struct phi_ids *ids)
{
    json_t *list = json_array();
    for (size_t i = 0; i < ids->n && list; i++)
        if (json_array_append_new(list, json_integer(ids->data[i])) != 0) {
            json_decref(list);
            list = NULL;
        }
    return list;
}

/* The prompt as text: its own, or what its ids spell. NULL with *err. */
static json_t *text_json(const struct bench *b, const struct bench_prompt *p, struct phi_error *err)
{
    char *text = NULL;
    size_t n = 0;
    json_t *json = NULL;
    if (p->text)
        json = json_stringn(p->text, p->n_text);
    else if (phi_detokenize(b->tokenizer, p->ids.data, p->ids.n, true, &text, &n, err) == PHI_OK)
        json = json_stringn(text, n);
    phi_mem_free(text);
    return json;
}

static bool set_sampling(const struct bench *b, json_t *body)
{
    const struct bench_sampling_flags *s = &b->flags->sampling;
    const struct {
        const char *flag, *field;
        double value;
    } reals[] = {
        {"temperature", "temperature", s->temperature},
        {"top-p", "top_p", s->top_p},
        {"min-p", "min_p", s->min_p},
        {"frequency-penalty", "frequency_penalty", s->frequency_penalty},
        {"presence-penalty", "presence_penalty", s->presence_penalty},
        {"repetition-penalty", "repetition_penalty", s->repetition_penalty},
    };
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        if (cli_given(b->args, reals[i].flag) &&
            !set(body, reals[i].field, json_real(reals[i].value)))
            return false;
    return !cli_given(b->args, "top-k") || set(body, "top_k", json_integer(s->top_k));
}

static bool set_prompt(const struct bench *b, const struct bench_prompt *p, json_t *body,
                       struct phi_error *err)
{
    if (b->flags->serve.backend == BENCH_COMPLETIONS)
        return set(body, "prompt", p->text ? text_json(b, p, err) : ids_json(&p->ids)) &&
               set(body, "max_tokens", json_integer(p->output_len));
    json_t *text = text_json(b, p, err);
    return text &&
           set(body, "messages", json_pack("[{s:s, s:o}]", "role", "user", "content", text)) &&
           set(body, "max_completion_tokens", json_integer(p->output_len));
}

static enum phi_status make_body(const struct bench *b, const struct bench_prompt *p,
                                 struct phi_str *out, struct phi_error *err)
{
    const struct bench_serve_flags *f = &b->flags->serve;
    json_t *body = json_object();
    phi_fail(err, PHI_ERR_MEMORY, "no memory for a request"); /* unless something says better */
    bool good = set(body, "model", json_stringn(b->model_id.data, b->model_id.n)) &&
                set_prompt(b, p, body, err) && set(body, "stream", json_true()) &&
                set(body, "stream_options", json_pack("{s:b}", "include_usage", 1)) &&
                (!f->ignore_eos || set(body, "ignore_eos", json_true())) && set_sampling(b, body) &&
                (!f->extra_body || json_object_update(body, f->extra_body) == 0);
    char *text = good ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    *out = (struct phi_str){text, text ? strlen(text) : 0};
    return text ? PHI_OK : err->code;
}

static enum phi_status make_requests(struct bench *b, struct phi_error *err)
{
    const struct bench_serve_flags *f = &b->flags->serve;
    size_t n = b->dataset.n;
    b->requests = phi_calloc(n, sizeof *b->requests);
    b->answers = phi_calloc(n, sizeof *b->answers);
    if (!b->requests || !b->answers)
        return phi_fail_memory(err, "requests", n * sizeof *b->answers);
    for (size_t i = 0; i < n; i++) {
        PHI_TRY(make_body(b, &b->dataset.data[i], &b->requests[i].body, err));
        b->answers[i].n_prompt = b->dataset.data[i].ids.n;
    }
    bench_load_arrivals(b->requests, n, f->request_rate, f->burstiness, (uint64_t)f->seed);
    return PHI_OK;
}

/* --------------------------------------------------------------- the run */

static enum phi_status warm_up(const struct bench *b, struct phi_error *err)
{
    size_t n = (size_t)b->flags->serve.n_warmups;
    struct bench_request *requests = phi_calloc(n + 1, sizeof *requests);
    struct bench_answer *answers = phi_calloc(n + 1, sizeof *answers);
    double seconds;
    enum phi_status status = PHI_OK;
    if (!requests || !answers)
        status = phi_fail_memory(err, "requests", n * sizeof *answers);
    for (size_t i = 0; i < n && status == PHI_OK; i++)
        requests[i].body = b->requests[0].body;
    if (status == PHI_OK && n > 0)
        status = bench_load_run(&b->server, requests, n, b->flags->serve.max_concurrency, answers,
                                &seconds, NULL, NULL, err);
    for (size_t i = 0; i < n && answers; i++)
        bench_answer_deinit(&answers[i]);
    phi_free(requests);
    phi_free(answers);
    return status;
}

struct showing {
    struct cli_progress progress;
    size_t n;
};

static void show(void *context, size_t n_done)
{
    struct showing *s = context;
    cli_progress_show(&s->progress, "requests", n_done, s->n);
}

static enum phi_status measure(struct bench *b, struct phi_error *err)
{
    const struct bench_serve_flags *f = &b->flags->serve;
    struct showing s = {.n = b->dataset.n};
    PHI_TRY(set_server(b, err));
    PHI_TRY(find_model(b, err));
    PHI_TRY(open_tokenizer(b, err));
    PHI_TRY(
        bench_dataset_load(&b->dataset, &b->flags->dataset, (uint64_t)f->seed, b->tokenizer, err));
    PHI_TRY(make_requests(b, err));
    PHI_TRY(warm_up(b, err));
    cli_progress_init(&s.progress);
    s.progress.enabled = s.progress.enabled && !f->no_progress;
    enum phi_status status =
        bench_load_run(&b->server, b->requests, b->dataset.n, f->max_concurrency, b->answers,
                       &b->seconds, show, &s, err);
    cli_progress_clear(&s.progress);
    return status;
}

/* --------------------------------------------------------------- telling */

enum { MAX_FAILURES_SHOWN = 10 };

static void print_failures(const struct bench *b, struct cli_out *out)
{
    size_t n_shown = 0;
    for (size_t i = 0; i < b->dataset.n && n_shown < MAX_FAILURES_SHOWN; i++) {
        const struct bench_answer *a = &b->answers[i];
        if (a->success)
            continue;
        if (n_shown == 0)
            cli_out_printf(out, "Failed requests during benchmark run detected (capping to %d):\n",
                           MAX_FAILURES_SHOWN);
        cli_out_printf(out, "Error %zu: ", n_shown++);
        cli_out_write(out, phi_str_from(a->error));
        cli_out_write(out, PHI_STR("\n"));
    }
}

static const char *backend_name(const struct bench *b)
{
    return b->flags->serve.backend == BENCH_CHAT ? "openai-chat" : "openai";
}

static const char *label(const struct bench *b)
{
    return b->flags->result.label ? b->flags->result.label : backend_name(b);
}

/* "inf" or the number. */
static void append_rate(const struct bench *b, struct phi_buf *out)
{
    if (b->setting.request_rate > 0)
        phi_buf_printf(out, "%g", b->setting.request_rate);
    else
        phi_buf_append_c(out, "inf");
}

static void make_path(const struct bench *b, const char *date, struct phi_buf *out)
{
    const struct bench_result_flags *f = &b->flags->result;
    const char *slash = strrchr(b->model_id.data, '/');
    if (f->folder)
        phi_buf_printf(out, "%s/", f->folder);
    if (f->file_name) {
        phi_buf_append_c(out, f->file_name);
        return;
    }
    phi_buf_printf(out, "%s-", label(b));
    append_rate(b, out);
    phi_buf_append_c(out, "qps");
    if (b->setting.max_concurrency > 0)
        phi_buf_printf(out, "-concurrency%d", b->setting.max_concurrency);
    phi_buf_printf(out, "-%s-%s.json", slash ? slash + 1 : b->model_id.data, date);
}

/* What was measured, before how it went; vLLM's keys. */
static json_t *head_json(const struct bench *b, const char *date)
{
    const struct cli_texts *metadata = &b->flags->result.metadata;
    json_t *rate =
        b->setting.request_rate > 0 ? json_real(b->setting.request_rate) : json_string("inf");
    json_t *limit =
        b->setting.max_concurrency > 0 ? json_integer(b->setting.max_concurrency) : json_null();
    json_t *head = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:o, s:f, s:o}", "date", date,
                             "endpoint_type", backend_name(b), "backend", backend_name(b), "label",
                             label(b), "model_id", b->model_id.data, "tokenizer_id",
                             b->tokenizer_dir.data ? b->tokenizer_dir.data : "", "num_prompts",
                             (json_int_t)b->dataset.n, "request_rate", rate, "burstiness",
                             b->flags->serve.burstiness, "max_concurrency", limit);
    for (size_t i = 0; i < metadata->n && head; i++) {
        const char *text = metadata->data[i];
        size_t n_key = strcspn(text, "=");
        struct phi_buf key = {0};
        phi_buf_append(&key, text, n_key);
        phi_buf_append_char(&key, '\0');
        if (key.failed || !set(head, key.data, json_string(text + n_key + 1))) {
            json_decref(head);
            head = NULL;
        }
        phi_buf_deinit(&key);
    }
    return head;
}

static enum phi_status save(const struct bench *b, struct bench_serve_report *r,
                            struct phi_error *err)
{
    const struct bench_result_flags *f = &b->flags->result;
    char date[32];
    time_t now = time(NULL);
    struct tm parts;
    struct phi_buf path = {0};
    localtime_r(&now, &parts);
    strftime(date, sizeof date, "%Y%m%d-%H%M%S", &parts);
    make_path(b, date, &path);
    json_t *results = path.failed ? NULL : head_json(b, date);
    if (results &&
        !bench_serve_report_json(r, &b->setting, b->answers, b->dataset.n, f->detailed, results)) {
        json_decref(results);
        results = NULL;
    }
    enum phi_status status =
        bench_save_json(results, path.data ? path.data : "results", f->append, err);
    phi_buf_deinit(&path);
    return status;
}

static int tell(const struct bench *b)
{
    struct bench_serve_report r;
    struct cli_out out;
    struct phi_error err;
    bench_serve_report_init(&r, &b->setting, b->answers, b->dataset.n, b->seconds);
    cli_out_init(&out);
    if (r.failed)
        cli_out_out_of_memory(&out);
    print_failures(b, &out);
    bench_serve_report_print(&r, &b->setting, &out);
    int status = cli_out_finish(&out, CLI_OK);
    if ((b->flags->result.save || b->flags->result.append) && save(b, &r, &err) != PHI_OK)
        status = cli_fail(&err);
    if (status == CLI_OK && r.n_completed == 0) {
        phi_fail(&err, PHI_ERR_IO, "all requests failed");
        status = cli_fail(&err);
    }
    bench_serve_report_deinit(&r);
    return status;
}

static void deinit(struct bench *b)
{
    for (size_t i = 0; i < b->dataset.n; i++) {
        if (b->requests)
            phi_free((void *)(uintptr_t)b->requests[i].body.data);
        if (b->answers)
            bench_answer_deinit(&b->answers[i]);
    }
    phi_free(b->requests);
    phi_free(b->answers);
    for (size_t i = 0; i < b->server.n_headers; i++)
        phi_free((void *)(uintptr_t)b->headers[i]);
    phi_free(b->headers);
    phi_free(b->percentiles);
    bench_dataset_deinit(&b->dataset);
    phi_model_close(b->tokenizer);
    phi_buf_deinit(&b->base_url);
    phi_buf_deinit(&b->model_id);
    phi_buf_deinit(&b->tokenizer_dir);
}

static int run(int argc, char **argv)
{
    struct flags flags = {0};
    struct cli_args args;
    struct bench b = {.args = &args, .flags = &flags};
    struct phi_error err;
    const char *bad = NULL;
    int status = cli_parse(&cli_bench_serve, argc, argv, &flags, &args);
    if (status < 0 && args.n_positional > 0 && args.positional[0] != flags.serve.model)
        status = cli_usage_error(&cli_bench_serve, "unexpected argument '%s'", args.positional[0]);
    if (status < 0 && !has_equals(&flags.serve.headers, &bad))
        status = cli_usage_error(&cli_bench_serve, "--header must be KEY=VALUE, not '%.60s'", bad);
    if (status < 0 && !has_equals(&flags.result.metadata, &bad))
        status =
            cli_usage_error(&cli_bench_serve, "--metadata must be KEY=VALUE, not '%.60s'", bad);
    if (status < 0)
        status = read_setting(&b);
    if (status < 0)
        status = measure(&b, &err) == PHI_OK ? tell(&b) : cli_fail(&err);
    deinit(&b);
    cli_options_deinit(&args, &flags);
    return status;
}
