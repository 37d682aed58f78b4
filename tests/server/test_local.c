/* phi_local: the API without a socket: many requests at once, their end in any order, and failing
 * memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "server/local.h"
#include "service.h"

#define TEXT "/v1/completions"

static struct phi_local *open_local(struct service *s)
{
    struct phi_local *l;
    struct phi_error err;
    service_open(s, "phi-tiny-code", NULL);
    if (phi_local_open(&s->options, s->server.model, s->server.engine, &s->sampling, &l, &err) !=
        PHI_OK)
        fail_msg("%s", err.text);
    return l;
}

static void post_local(struct phi_local *l, const char *path, const char *body, void *tag)
{
    struct phi_error err;
    if (phi_local_post(l, path, phi_str_from(body), tag, &err) != PHI_OK)
        fail_msg("%s", err.text);
}

static void test_many(void **state)
{
    (void)state;
    enum { N = 20 };
    struct service s;
    struct phi_local *l = open_local(&s);
    struct phi_local_answer answer;
    int seen[N] = {0};
    char body[128];
    assert_false(phi_local_next(l, &answer, 60000)); /* at once: nothing is in work */
    for (int i = 0; i < N; i++) {
        snprintf(body, sizeof body,
                 "{\"model\":\"m\",\"prompt\":[%d],\"max_tokens\":%d,\"temperature\":0}", i + 5,
                 N - i);
        post_local(l, TEXT, body, &seen[i]);
    }
    for (int i = 0; i < N; i++) {
        assert_true(phi_local_next(l, &answer, 60000));
        assert_int_equal(answer.status, 200);
        json_t *json = json_loadb(answer.body.data, answer.body.n, 0, NULL);
        expect_int(json, "usage.completion_tokens", N - (int)((int *)answer.tag - seen));
        (*(int *)answer.tag)++;
        json_decref(json);
        phi_buf_deinit(&answer.body);
    }
    for (int i = 0; i < N; i++)
        assert_int_equal(seen[i], 1);
    assert_false(phi_local_next(l, &answer, 60000));
    phi_local_close(l);
    service_close(&s);
}

static void test_refusals_and_streams(void **state)
{
    (void)state;
    static const struct {
        const char *path, *body;
        int status;
        const char *part;
    } cases[] = {
        {"/nowhere", "{}", 404, "Not Found"},
        {TEXT, "{", 400, "error"},
        {TEXT, "{\"model\":\"x\",\"prompt\":\"a\"}", 404, "does not exist"},
        {TEXT, "{\"model\":\"m\",\"prompt\":\"a\",\"max_tokens\":2,\"stream\":true}", 200,
         "data: [DONE]"},
        {"/tokenize", "{\"model\":\"m\",\"prompt\":\"a\"}", 200, "tokens"},
    };
    struct service s;
    struct phi_local *l = open_local(&s);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct phi_local_answer answer;
        post_local(l, cases[i].path, cases[i].body, NULL);
        assert_true(phi_local_next(l, &answer, 60000));
        assert_int_equal(answer.status, cases[i].status);
        assert_non_null(strstr(answer.body.data, cases[i].part));
        phi_buf_deinit(&answer.body);
    }
    phi_local_close(l);
    service_close(&s);
}

/* What runs is cancelled, and what has ended but was not taken is forgotten. */
static void test_close_while_it_runs(void **state)
{
    (void)state;
    struct service s;
    struct phi_local *l = open_local(&s);
    struct phi_local_answer answer;
    for (int i = 0; i < 12; i++)
        post_local(l, TEXT,
                   "{\"model\":\"m\",\"prompt\":\"a\",\"max_tokens\":200,\"ignore_eos\":true}",
                   NULL);
    post_local(l, "/nowhere", "{}", NULL);
    if (phi_local_next(l, &answer, 60000)) /* the refusal stands first */
        phi_buf_deinit(&answer.body);
    phi_local_close(l);
    service_close(&s);
}

static void test_failing_memory(void **state)
{
    (void)state;
    struct service s;
    struct phi_local *l = open_local(&s);
    struct phi_local_answer answer;
    struct phi_error err;
    int n_good = 0;
    for (long n = 1; n_good < 3; n++) {
        const char body[] = "{\"model\":\"m\",\"prompt\":\"a\",\"max_tokens\":2,\"temperature\":0}";
        phi_alloc_fail_nth(n);
        enum phi_status status = phi_local_post(l, TEXT, PHI_STR(body), NULL, &err);
        bool answered = status == PHI_OK && phi_local_next(l, &answer, 60000);
        phi_alloc_fail_nth(0);
        assert_true(status == PHI_ERR_MEMORY || answered);
        if (!answered)
            continue;
        n_good = answer.status == 200 && !answer.body.failed ? n_good + 1 : 0;
        if (answer.status != 200)
            assert_true(answer.status >= 500 || answer.body.failed);
        phi_buf_deinit(&answer.body);
        assert_true(n < 1000);
    }
    phi_local_close(l);
    phi_alloc_fail_nth(1);
    assert_int_equal(
        phi_local_open(&s.options, s.server.model, s.server.engine, &s.sampling, &l, &err),
        PHI_ERR_MEMORY);
    phi_alloc_fail_nth(0);
    phi_local_close(NULL);
    service_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_refusals_and_streams),
        cmocka_unit_test(test_close_while_it_runs),
        cmocka_unit_test(test_failing_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
