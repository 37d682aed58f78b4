/* test_jobs.c: the life of a generating job when things go wrong: clients that leave, a queue that
 * is full, a prompt that is bad among good ones, memory that runs out, many jobs at once. */
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/log.h"
#include "server/metrics/metrics.h"
#include "service.h"

static struct service code;

static int setup(void **state)
{
    (void)state;
    struct phi_engine_options e;
    phi_engine_options_init(&e);
    e.max_model_len = 1024;
    e.max_num_seqs = 2;
    e.max_waiting = 3;
    service_open(&code, "phi-tiny-code", &e);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    service_close(&code);
    return 0;
}

static const char LONG[] =
    "{\"prompt\": \"def f(x):\", \"max_tokens\": 1000, \"ignore_eos\": true}";
static const char SHORT[] =
    "{\"prompt\": \"def f(x):\", \"max_tokens\": 6, \"temperature\": 0, \"logprobs\": 2}";

/* How many requests ended in this way. */
static int n_ended(const char *reason)
{
    struct reply r;
    char name[100];
    get(&code.server, "/metrics", &r);
    snprintf(name, sizeof name,
             "\nvllm:request_success_total{engine=\"0\",model_name=\"m\","
             "finished_reason=\"%s\"} ",
             reason);
    const char *line = strstr(r.body.data, name);
    if (!line) { /* whatever the order of the labels is */
        snprintf(name, sizeof name, "finished_reason=\"%s\"} ", reason);
        line = strstr(r.body.data, name);
    } else {
        line++;
    }
    int n = line ? atoi(strchr(line, '}') + 1) : 0;
    reply_deinit(&r);
    return n;
}

static void wait_until_idle(void)
{
    struct phi_engine_stats stats;
    wait_for_exchanges();
    for (int i = 0; i < 10000; i++) {
        phi_engine_get_stats(code.server.engine, &stats);
        if (stats.n_running == 0 && stats.n_waiting == 0 && stats.kv_usage == 0)
            return;
        usleep(1000);
    }
    fail_msg("%d answers run, %d wait, KV usage %g", stats.n_running, stats.n_waiting,
             stats.kv_usage);
}

/* A client that leaves before its answer is whole: by a cancel that the job lives on after, or by
 * the end of the exchange at once. Nothing is left, and it is counted as aborted. */
static void test_leaving(void **state)
{
    (void)state;
    char *stream = with(LONG, "{\"stream\": true, \"n\": 2}");
    const struct question leaving[] = {
        {.method = "POST", .path = "/v1/completions", .body = LONG, .cancel_at_pull = 1},
        {.method = "POST", .path = "/v1/completions", .body = LONG, .drop_at_pull = 1},
        {.method = "POST", .path = "/v1/completions", .body = stream, .cancel_at_pull = 3},
        {.method = "POST", .path = "/v1/completions", .body = stream, .drop_at_pull = 3},
        {.method = "POST",
         .path = "/v1/completions",
         .body = stream,
         .cancel_at_pull = 2,
         .drop_at_pull = 3},
    };
    for (size_t i = 0; i < sizeof leaving / sizeof *leaving; i++) {
        struct reply r;
        int before = n_ended("abort");
        ask(&code.server, &leaving[i], &r);
        if (!leaving[i].drop_at_pull && r.is_stream) { /* as a server that stops ends it */
            json_t *last = reply_event(&r, reply_n_events(&r) - 1);
            expect_text(last, "choices[0].finish_reason", "abort");
            json_decref(last);
        } else if (!leaving[i].drop_at_pull) {
            expect_text(r.json, "choices[0].finish_reason", "abort");
        }
        reply_deinit(&r);
        wait_until_idle();
        assert_true(n_ended("abort") > before);
        assert_int_equal(atomic_load(&code.server.n_jobs), 0);
    }
    free(stream);
}

/* The queue is full of others' requests: the client is told to come again. */
static void test_full_queue(void **state)
{
    (void)state;
    enum { N = 5 }; /* two run, three wait */
    struct phi_request *others[N];
    struct phi_engine_stats stats = {0};
    struct phi_sampling sampling;
    struct reply r;
    phi_sampling_init(&sampling);
    sampling.max_tokens = 1000;
    sampling.ignore_eos = true;
    for (int i = 0; i < N; i++) {
        assert_int_equal(phi_request_submit(code.server.engine, (const int32_t[]){290}, 1,
                                            &sampling, NULL, &others[i], NULL),
                         PHI_OK);
        while (i < 2 && stats.n_running <= i)
            phi_engine_get_stats(code.server.engine, &stats);
    }
    char *two = with(SHORT, "{\"prompt\": [\"a\", \"b\"]}");
    post(&code.server, "/v1/completions", SHORT, &r);
    expect_error(&r, 503, "ServiceUnavailableError", NULL);
    assert_non_null(reply_header(&r, "Retry-After"));
    reply_deinit(&r);
    post(&code.server, "/v1/completions", two, &r);
    expect_error(&r, 503, "ServiceUnavailableError", NULL);
    reply_deinit(&r);
    free(two);
    for (int i = 0; i < N; i++)
        phi_request_release(others[i]);
    wait_until_idle();
    post(&code.server, "/v1/completions", SHORT, &r);
    assert_int_equal(r.status, 200);
    reply_deinit(&r);
}

/* More prompts than the queue takes wait with their job: whole and streamed, all are answered. A
 * client that leaves meanwhile takes with it what was not submitted yet. */
static void test_more_prompts_than_places(void **state)
{
    (void)state;
    const char *changes =
        "{\"prompt\": [[290], [281], [7], [87], [282], [290, 281], [5], [6], [8], [9],"
        " [10], [11]], \"max_tokens\": 3, \"ignore_eos\": true}";
    char *body = with(SHORT, changes), *stream = with(body, "{\"stream\": true}");
    char *longer = with(body, "{\"max_tokens\": 900}");
    struct reply r;
    int n_ends = 0;
    post(&code.server, "/v1/completions", body, &r);
    assert_int_equal(r.status, 200);
    expect_size(r.json, "choices", 12);
    expect_int(r.json, "usage.completion_tokens", 36);
    reply_deinit(&r);
    post(&code.server, "/v1/completions", stream, &r);
    for (size_t i = 0; i < reply_n_events(&r); i++) {
        json_t *event = reply_event(&r, i);
        n_ends += json_is_string(at(event, "choices[0].finish_reason"));
        json_decref(event);
    }
    assert_int_equal(n_ends, 12);
    reply_deinit(&r);
    ask(&code.server,
        &(struct question){
            .method = "POST", .path = "/v1/completions", .body = longer, .cancel_at_pull = 1},
        &r);
    expect_error(&r, 503, "ServiceUnavailableError", NULL);
    reply_deinit(&r);
    wait_until_idle();
    free(body);
    free(stream);
    free(longer);
}

static void test_bad_prompt_among_good(void **state)
{
    (void)state;
    struct reply r;
    char *body = with(LONG, "{\"prompt\": [[1], [2], [999999]]}");
    post(&code.server, "/v1/completions", body, &r);
    expect_error(&r, 400, "BadRequestError", NULL);
    free(body);
    reply_deinit(&r);
    wait_until_idle();
}

/* Any single allocation of a request fails: the answer is right, or an error, or a broken stream;
 * nothing leaks or hangs, and the next request is served. */
static void try_every_allocation(const char *path, const char *body)
{
    struct reply expected, r;
    post(&code.server, path, body, &expected);
    assert_int_equal(expected.status, 200);
    int n_failed = 0, n_told = 0;
    long n_allocations = LONG_MAX;
    for (long n = 1; n <= n_allocations; n++) {
        phi_alloc_fail_nth(n);
        post(&code.server, path, body, &r);
        bool is_whole = r.status == 200 && !r.body.failed && r.body.n > 0;
        if (is_whole && !r.is_stream &&
            !json_equal(at(r.json, "choices"), at(expected.json, "choices")))
            fail_msg("allocation %ld failed, and the answer is %s", n, r.body.data);
        if (!is_whole && r.status != 200 && r.status != 500 && r.status != 503)
            fail_msg("allocation %ld failed, and the status is %d: %s", n, r.status, r.body.data);
        if (is_whole &&
            r.is_stream) { /* it ends as it should, whether or not it tells of an error */
            reply_n_events(&r);
            n_told += strstr(r.body.data, "data: {\"error\":{\"message\":\"out of memory") != NULL;
        }
        n_failed += !is_whole;
        n_allocations = r.n_allocations;
        reply_deinit(&r);
        wait_for_exchanges();
    }
    assert_true(n_failed > 5);
    assert_int_equal(n_told > 0, expected.is_stream);
    reply_deinit(&expected);
    wait_until_idle();
    post(&code.server, path, body, &r);
    assert_int_equal(r.status, 200);
    reply_deinit(&r);
}

static void test_failing_allocations(void **state)
{
    (void)state;
    char *echo = with(SHORT, "{\"echo\": true, \"stop\": [\"zzz\"], \"bad_words\": [\"q\"],"
                             " \"logit_bias\": {\"5\": 1}, \"return_token_ids\": true}");
    char *stream = with(SHORT, "{\"stream\": true, \"echo\": true}");
    char *several = with(SHORT, "{\"prompt\": [[290], [281, 7]]}");
    try_every_allocation("/v1/completions", SHORT);
    try_every_allocation("/v1/completions", echo);
    try_every_allocation("/v1/completions", stream);
    try_every_allocation("/v1/completions", several);
    free(echo);
    free(stream);
    free(several);
}

static void test_failing_allocations_of_chat(void **state)
{
    (void)state;
    struct service own = code;
    code.options.trust_request_chat_template = true;
    code.options.chat_template_kwargs = (struct phi_text){"{\"a\": 1}", 8};
    const char *body = "{\"messages\": [{\"role\": \"user\", \"content\": [\"def\", \" f\"]}],"
                       " \"chat_template\": \"{{ messages[0].content }}{{ a }}\","
                       " \"chat_template_kwargs\": {\"b\": 2}, \"reasoning_effort\": \"low\","
                       " \"max_tokens\": 4, \"temperature\": 0, \"logprobs\": true,"
                       " \"top_logprobs\": 2, \"prompt_logprobs\": 1}";
    try_every_allocation("/v1/chat/completions", body);
    code.options = own.options;
}

static void test_failing_allocations_of_the_rest(void **state)
{
    (void)state;
    static const char *const paths[] = {"/v1/models", "/version", "/openapi.json", "/", "/metrics"};
    struct reply r;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        long n_allocations = LONG_MAX;
        for (long n = 1; n <= n_allocations; n++) {
            phi_alloc_fail_nth(n);
            get(&code.server, paths[i], &r);
            n_allocations = r.n_allocations;
            assert_true(r.status == 200 || r.status == 500);
            reply_deinit(&r);
        }
    }
}

/* ---------------------------------------------------------------- many at once */

static void *ask_often(void *arg)
{
    const char *expected = arg;
    char *stream = with(SHORT, "{\"stream\": true}");
    for (int i = 0; i < 30; i++) {
        struct reply r;
        struct question q = {.method = "POST", .path = "/v1/completions", .body = SHORT};
        if (i % 3 == 1)
            q.body = stream;
        if (i % 5 == 4)
            q.drop_at_pull = 2;
        ask(&code.server, &q, &r);
        if (r.status == 200 && !r.is_stream && !q.drop_at_pull)
            expect_text(r.json, "choices[0].text", expected);
        reply_deinit(&r);
    }
    free(stream);
    return NULL;
}

static void test_many_threads(void **state)
{
    (void)state;
    enum { N_THREADS = 4 };
    pthread_t threads[N_THREADS];
    struct reply r;
    post(&code.server, "/v1/completions", SHORT, &r);
    char *expected = (char *)text_at(r.json, "choices[0].text");
    for (int i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_often, expected), 0);
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    reply_deinit(&r);
    wait_until_idle();
    assert_int_equal(atomic_load(&code.server.n_jobs), 0);
}

/* ---------------------------------------------------------------- logs */

struct lines {
    char text[8192];
    size_t n;
};

static void keep_line(void *context, int level, const char *line)
{
    struct lines *lines = context;
    if (level >= PHI_LOG_INFO)
        lines->n +=
            (size_t)snprintf(lines->text + lines->n, sizeof lines->text - lines->n, "%s\n", line);
}

static void test_logs(void **state)
{
    (void)state;
    static struct lines lines;
    struct reply r;
    code.options.log_requests = code.options.log_outputs = true;
    phi_log_set_sink(keep_line, &lines);
    post(&code.server, "/v1/completions",
         "{\"prompt\": \"secret\", \"max_tokens\": 2, \"request_id\": \"a\\nb\", \"seed\": 4}", &r);
    reply_deinit(&r);
    ask(&code.server,
        &(struct question){
            .method = "POST", .path = "/v1/completions", .body = LONG, .cancel_at_pull = 1},
        &r);
    reply_deinit(&r);
    wait_until_idle();
    phi_log_set_sink(NULL, NULL);
    code.options.log_requests = code.options.log_outputs = false;
    assert_non_null(strstr(lines.text, "Received request cmpl-a?b-0: params: SamplingParams(n=1"));
    assert_non_null(strstr(lines.text, "seed=4, max_tokens=2"));
    assert_non_null(strstr(lines.text, "Finished request cmpl-a?b-0"));
    assert_non_null(strstr(lines.text, "Generated response cmpl-a?b: choice 0, output: \""));
    assert_non_null(strstr(lines.text, "Aborted request cmpl-"));
    assert_null(strstr(lines.text, "secret")); /* prompts are for level debug */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_leaving),
        cmocka_unit_test(test_full_queue),
        cmocka_unit_test(test_more_prompts_than_places),
        cmocka_unit_test(test_bad_prompt_among_good),
        cmocka_unit_test(test_failing_allocations),
        cmocka_unit_test(test_failing_allocations_of_chat),
        cmocka_unit_test(test_failing_allocations_of_the_rest),
        cmocka_unit_test(test_many_threads),
        cmocka_unit_test(test_logs),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
