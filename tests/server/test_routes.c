/* test_routes.c: which path and method gets what, in each phase of the server; and the small
 * endpoints: models, tokenize, detokenize, health, version, load, metrics, the page and OpenAPI. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "server/api/routes.h"
#include "service.h"

static struct service code, chat;

static int setup(void **state)
{
    (void)state;
    service_open(&code, "phi-tiny-code", NULL);
    service_open(&chat, "phi3-tiny-chat", NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    service_close(&code);
    service_close(&chat);
    return 0;
}

/* ---------------------------------------------------------------- dispatch */

static void test_unknown_paths(void **state)
{
    (void)state;
    static const char *const paths[] = {
        "/nope",    "/v1", "/v1/", "/v1/embeddings",   "/v1/responses", "/v1/models/",
        "/health/", "",    "//",   "/v1/completions/", "/v1/chat",      "/docs",
    };
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        struct reply r;
        get(&code.server, paths[i], &r);
        assert_int_equal(r.status, 404);
        expect_text(r.json, "detail", "Not Found");
        assert_int_equal(phi_route_name(phi_str_from(paths[i])).n, 0);
        reply_deinit(&r);
    }
    assert_true(phi_str_eq_c(phi_route_name(PHI_STR("/v1/models/x/y")), "/v1/models/"));
    assert_true(phi_str_eq_c(phi_route_name(PHI_STR("/health")), "/health"));
}

static void test_methods(void **state)
{
    (void)state;
    static const struct {
        const char *method, *path;
        int status;
        const char *allow;
    } rows[] = {
        {"GET", "/v1/completions", 405, "POST"},
        {"PUT", "/v1/models", 405, "GET"},
        {"DELETE", "/ping", 405, "GET, POST"},
        {"POST", "/health", 405, "GET"},
        {"PATCH", "/", 405, "GET"},
        {"HEAD", "/health", 200, NULL},
        {"HEAD", "/v1/models", 200, NULL},
        {"HEAD", "/tokenize", 405, "POST"},
        {"POST", "/ping", 200, NULL},
        {"GET", "/ping", 200, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct reply r;
        ask(&code.server, &(struct question){.method = rows[i].method, .path = rows[i].path}, &r);
        assert_int_equal(r.status, rows[i].status);
        if (rows[i].allow) {
            assert_string_equal(reply_header(&r, "Allow"), rows[i].allow);
            expect_text(r.json, "detail", "Method Not Allowed");
        }
        reply_deinit(&r);
    }
}

/* What works while the model loads and while the server drains. */
static void test_phases(void **state)
{
    (void)state;
    static const struct {
        const char *method, *path, *body;
        int loading, draining;
    } rows[] = {
        {"GET", "/health", NULL, 503, 503},
        {"GET", "/ping", NULL, 503, 503},
        {"GET", "/version", NULL, 200, 200},
        {"GET", "/load", NULL, 200, 200},
        {"GET", "/metrics", NULL, 200, 200},
        {"GET", "/", NULL, 200, 200},
        {"GET", "/openapi.json", NULL, 200, 200},
        {"GET", "/v1/models", NULL, 503, 200},
        {"POST", "/tokenize", "{\"prompt\": \"a\"}", 503, 200},
        {"POST", "/detokenize", "{\"tokens\": [1]}", 503, 200},
        {"POST", "/v1/completions", "{\"prompt\": \"a\", \"max_tokens\": 1}", 503, 503},
        {"POST", "/v1/chat/completions", "{}", 503, 503},
        {"GET", "/nope", NULL, 404, 404},
    };
    struct phi_server loading = {
        .options = &code.options, .metrics = code.server.metrics, .phase = PHI_SERVER_LOADING};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct reply r;
        struct question q = {.method = rows[i].method, .path = rows[i].path, .body = rows[i].body};
        ask(&loading, &q, &r);
        assert_int_equal(r.status, rows[i].loading);
        if (r.status == 503 && strcmp(rows[i].method, "POST") == 0) {
            expect_error(&r, 503, "ServiceUnavailableError", NULL);
            assert_non_null(reply_header(&r, "Retry-After"));
        }
        reply_deinit(&r);
        atomic_store(&code.server.phase, PHI_SERVER_DRAINING);
        ask(&code.server, &q, &r);
        assert_int_equal(r.status, rows[i].draining);
        atomic_store(&code.server.phase, PHI_SERVER_OPEN);
        reply_deinit(&r);
    }
}

/* ---------------------------------------------------------------- small endpoints */

static void test_models(void **state)
{
    (void)state;
    struct reply r;
    get(&code.server, "/v1/models", &r);
    expect_text(r.json, "object", "list");
    expect_size(r.json, "data", 2);
    expect_text(r.json, "data[0].id", "m");
    expect_text(r.json, "data[1].id", "other");
    expect_text(r.json, "data[0].object", "model");
    expect_text(r.json, "data[0].owned_by", "vllm");
    expect_text(r.json, "data[0].root", "the/folder");
    expect_null(r.json, "data[0].parent");
    expect_int(r.json, "data[0].created", 1234567890);
    expect_int(r.json, "data[0].max_model_len", 256);
    expect_text(r.json, "data[0].permission[0].id", "modelperm-m");
    expect_text(r.json, "data[0].permission[0].organization", "*");
    expect_null(r.json, "data[0].permission[0].group");
    assert_true(json_is_true(at(r.json, "data[0].permission[0].allow_sampling")));
    assert_true(json_is_false(at(r.json, "data[0].permission[0].allow_fine_tuning")));
    reply_deinit(&r);
    get(&code.server, "/v1/models/other", &r);
    expect_text(r.json, "id", "other");
    reply_deinit(&r);
    get(&code.server, "/v1/models/none", &r);
    expect_error(&r, 404, "NotFoundError", "model");
    reply_deinit(&r);
    code.options.served_names.n = 0; /* then the folder is the name */
    get(&code.server, "/v1/models", &r);
    expect_size(r.json, "data", 1);
    expect_text(r.json, "data[0].id", "the/folder");
    reply_deinit(&r);
    post(&code.server, "/v1/completions", "{\"model\": \"the/folder\", \"prompt\": \"a\"}", &r);
    expect_text(r.json, "model", "the/folder");
    code.options.served_names.n = 2;
    reply_deinit(&r);
}

static void test_status(void **state)
{
    (void)state;
    struct reply r;
    get(&code.server, "/health", &r);
    assert_int_equal(r.body.n, 0);
    reply_deinit(&r);
    get(&code.server, "/version", &r);
    expect_text(r.json, "version", phi_version());
    reply_deinit(&r);
    get(&code.server, "/load", &r);
    expect_int(r.json, "server_load", 0);
    reply_deinit(&r);
    code.options.server_load_tracking = true;
    atomic_fetch_add(&code.server.n_jobs, 3);
    get(&code.server, "/load", &r);
    expect_int(r.json, "server_load", 3);
    atomic_fetch_sub(&code.server.n_jobs, 3);
    code.options.server_load_tracking = false;
    reply_deinit(&r);
    get(&code.server, "/metrics", &r);
    assert_non_null(strstr(r.body.data, "vllm:num_requests_running{"));
    assert_int_equal(strncmp(r.content_type, "text/plain; version=0.0.4", 25), 0);
    reply_deinit(&r);
}

static void test_tokenize(void **state)
{
    (void)state;
    struct reply r;
    post(&code.server, "/tokenize", "{\"prompt\": \"def f(x):\", \"return_token_strs\": true}", &r);
    expect_int(r.json, "count", 5);
    expect_int(r.json, "max_model_len", 256);
    expect_int(r.json, "tokens[0]", 290);
    expect_text(r.json, "token_strs[1]",
                "\xc4\xa0"
                "f"); /* the vocabulary's spelling */
    reply_deinit(&r);
    post(&code.server, "/tokenize", "{\"prompt\": \"\"}", &r);
    expect_int(r.json, "count", 0);
    expect_null(r.json, "token_strs");
    reply_deinit(&r);
    post(&code.server, "/detokenize", "{\"tokens\": [290, 281, 7, 87, 282]}", &r);
    expect_text(r.json, "prompt", "def f(x):");
    reply_deinit(&r);
    post(&code.server, "/detokenize", "{\"tokens\": [290, 5000000, 281]}", &r); /* no such token */
    expect_text(r.json, "prompt", "def f");
    reply_deinit(&r);
    static const struct {
        const char *path, *body;
        int status;
        const char *type, *param;
    } rows[] = {
        {"/tokenize", "{}", 400, "Bad Request", NULL},
        {"/tokenize", "{\"prompt\": [\"a\"]}", 400, "Bad Request", NULL},
        {"/tokenize", "{\"prompt\": \"a\", \"model\": \"x\"}", 404, "NotFoundError", "model"},
        {"/tokenize", "{\"prompt\": \"a\", \"add_special_tokens\": 1}", 400, "Bad Request", NULL},
        {"/tokenize", "{\"messages\": [{}]}", 400, "Bad Request", NULL},
        {"/tokenize", "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}", 400,
         "BadRequestError", NULL}, /* no template */
        {"/detokenize", "{}", 400, "Bad Request", NULL},
        {"/detokenize", "{\"tokens\": [-1]}", 400, "Bad Request", NULL},
        {"/detokenize", "{\"tokens\": [\"a\"]}", 400, "Bad Request", NULL},
        {"/detokenize", "{\"tokens\": [9223372036854775807]}", 400, "BadRequestError", NULL},
        {"/detokenize", "{\"tokens\": [9223372036854775808]}", 400, "Bad Request", NULL},
        {"/detokenize", "{\"tokens\": [], \"model\": \"x\"}", 404, "NotFoundError", "model"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        post(&code.server, rows[i].path, rows[i].body, &r);
        expect_error(&r, rows[i].status, rows[i].type, rows[i].param);
        reply_deinit(&r);
    }
}

/* Messages give the ids that the same chat request is answered from. */
static void test_tokenize_chat(void **state)
{
    (void)state;
    struct reply r, answer;
    const char *messages = "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}],"
                           " \"return_token_ids\": true, \"max_tokens\": 1}";
    post(&chat.server, "/tokenize", messages, &r);
    post(&chat.server, "/v1/chat/completions", messages, &answer);
    assert_int_equal(r.status, 200);
    assert_true(json_equal(at(r.json, "tokens"), at(answer.json, "prompt_token_ids")));
    reply_deinit(&r);
    reply_deinit(&answer);
}

static void test_page(void **state)
{
    (void)state;
    struct reply r;
    code.options.settings_text = "--flag=<b>&";
    get(&code.server, "/", &r);
    assert_string_equal(r.content_type, "text/html; charset=utf-8");
    assert_non_null(strstr(r.body.data, "PhiForCausalLM"));
    assert_non_null(strstr(r.body.data, "--flag=&lt;b>&amp;"));
    assert_null(strstr(r.body.data, "http:")); /* nothing from elsewhere */
    assert_null(strstr(r.body.data, "<script"));
    code.options.settings_text = NULL;
    reply_deinit(&r);
}

/* Each route is described, each body with its fields. */
static void test_openapi(void **state)
{
    (void)state;
    struct reply r;
    get(&code.server, "/openapi.json", &r);
    assert_non_null(r.json);
    const json_t *paths = at(r.json, "paths");
    for (const struct phi_route *route = phi_routes; route->path; route++) {
        const char *path = route->flags & PHI_ROUTE_PREFIX ? "/v1/models/{model}" : route->path;
        const json_t *operation = json_object_get(
            json_object_get(paths, path), strcmp(route->method, "GET") == 0 ? "get" : "post");
        text_at(operation, "summary");
        assert_true(json_is_object(at(operation, "responses")));
        assert_int_equal(json_is_object(at(operation, "requestBody")), route->body != NULL);
    }
    const json_t *post_chat = at(json_object_get(paths, "/v1/chat/completions"), "post");
    const json_t *content = at(post_chat, "requestBody.content");
    const json_t *schema = at(json_object_get(content, "application/json"), "schema");
    text_at(schema, "properties.temperature.description");
    expect_text(schema, "required[0]", "messages");
    assert_true(json_number_value(at(schema, "properties.temperature.anyOf[0].maximum")) == 2);
    reply_deinit(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unknown_paths), cmocka_unit_test(test_methods),
        cmocka_unit_test(test_phases),        cmocka_unit_test(test_models),
        cmocka_unit_test(test_status),        cmocka_unit_test(test_tokenize),
        cmocka_unit_test(test_tokenize_chat), cmocka_unit_test(test_page),
        cmocka_unit_test(test_openapi),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
