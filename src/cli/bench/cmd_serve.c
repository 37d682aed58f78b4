/* cmd_serve.c: phidelity bench serve: load for a server, and what its clients see of it. */
#include "base/alloc.h"
#include "cli/bench/serve_bench.h"

#include <stdlib.h>

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
            {&bench_serve_group, offsetof(struct serve_bench_flags, serve)},
            {&bench_dataset_group, offsetof(struct serve_bench_flags, dataset)},
            {&bench_result_group, offsetof(struct serve_bench_flags, result)},
            {&bench_sampling_group, offsetof(struct serve_bench_flags, sampling)},
            {0},
        },
    .without_model = true,
    .run = run,
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
static int read_setting(struct serve_bench *b)
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

/* --------------------------------------------------------------- the run */

static enum phi_status warm_up(const struct serve_bench *b, struct phi_error *err)
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

static enum phi_status measure(struct serve_bench *b, struct phi_error *err)
{
    const struct bench_serve_flags *f = &b->flags->serve;
    struct showing s = {.n = b->dataset.n};
    PHI_TRY(serve_bench_find_target(b, err));
    PHI_TRY(
        bench_dataset_load(&b->dataset, &b->flags->dataset, (uint64_t)f->seed, b->tokenizer, err));
    PHI_TRY(serve_bench_make_requests(b, err));
    PHI_TRY(warm_up(b, err));
    cli_progress_init(&s.progress);
    s.progress.enabled = s.progress.enabled && !f->no_progress;
    enum phi_status status =
        bench_load_run(&b->server, b->requests, b->dataset.n, f->max_concurrency, b->answers,
                       &b->seconds, show, &s, err);
    cli_progress_clear(&s.progress);
    return status;
}

static void deinit(struct serve_bench *b)
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
    struct serve_bench_flags flags = {0};
    struct cli_args args;
    struct serve_bench b = {.args = &args, .flags = &flags};
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
        status = measure(&b, &err) == PHI_OK ? serve_bench_tell(&b) : cli_fail(&err);
    deinit(&b);
    cli_options_deinit(&args, &flags);
    return status;
}
