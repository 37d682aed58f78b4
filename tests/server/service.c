/* service.c: see service.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "server/metrics/metrics.h"
#include "service.h"

void service_open(struct service *s, const char *name, const struct phi_engine_options *engine)
{
    static const char *const names[] = {"m", "other"};
    const char *models = getenv("PHI_MODELS");
    char path[1024];
    struct phi_error err;
    struct phi_model_options m;
    struct phi_engine_options e;
    snprintf(path, sizeof path, "%s/%s", models ? models : "models", name);
    *s = (struct service){
        .options = {.model = "the/folder",
                    .served_names = {names, 2},
                    .max_logprobs = 20,
                    .response_role = "assistant",
                    .stream_interval = 1,
                    .max_log_len = -1,
                    .log_stats = true},
        .server = {.created_s = 1234567890, .phase = PHI_SERVER_OPEN},
    };
    s->server.options = &s->options;
    s->server.sampling = &s->sampling;
    phi_model_options_init(&m);
    m.path = path;
    m.n_threads = 1;
    phi_engine_options_init(&e);
    e.max_model_len = 256;
    e.max_num_seqs = 4;
    if (phi_model_open(&m, &s->server.model, &err) != PHI_OK ||
        phi_engine_create(s->server.model, engine ? engine : &e, &s->server.engine, &err) !=
            PHI_OK ||
        phi_metrics_create("m", &s->server.metrics, &err) != PHI_OK)
        fail_msg("%s", err.text);
    phi_sampling_init_from_model(&s->sampling, s->server.model);
    phi_model_get_info(s->server.model, &s->model);
    struct phi_engine_info info;
    phi_engine_get_info(s->server.engine, &info);
    phi_metrics_open(s->server.metrics, &info);
    s->max_model_len = info.max_model_len;
}

void service_close(struct service *s)
{
    wait_for_exchanges();
    assert_int_equal(atomic_load(&s->server.n_jobs), 0);
    phi_engine_destroy(s->server.engine);
    phi_model_close(s->server.model);
    phi_metrics_destroy(s->server.metrics);
}

const json_t *at(const json_t *value, const char *path)
{
    while (*path && value) {
        if (*path == '[') {
            value = json_array_get(value, (size_t)strtol(path + 1, NULL, 10));
            path = strchr(path, ']') + 1;
            continue;
        }
        path += *path == '.';
        char name[64];
        size_t n = strcspn(path, ".[");
        assert_true(n < sizeof name);
        memcpy(name, path, n);
        name[n] = '\0';
        value = json_object_get(value, name);
        path += n;
    }
    return value;
}

static void fail_at(const json_t *value, const char *path)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY);
    fail_msg("unexpected %s in %s", path, text ? text : "nothing");
}

void expect_text(const json_t *value, const char *path, const char *text)
{
    const char *found = json_string_value(at(value, path));
    if (!found || strcmp(found, text) != 0)
        fail_at(value, path);
}

void expect_int(const json_t *value, const char *path, json_int_t i)
{
    const json_t *found = at(value, path);
    if (!json_is_integer(found) || json_integer_value(found) != i)
        fail_at(value, path);
}

void expect_null(const json_t *value, const char *path)
{
    if (!json_is_null(at(value, path)))
        fail_at(value, path);
}

void expect_absent(const json_t *value, const char *path)
{
    if (at(value, path))
        fail_at(value, path);
}

void expect_size(const json_t *value, const char *path, size_t n)
{
    const json_t *found = at(value, path);
    if (!json_is_array(found) || json_array_size(found) != n)
        fail_at(value, path);
}

const char *text_at(const json_t *value, const char *path)
{
    const char *found = json_string_value(at(value, path));
    if (!found)
        fail_at(value, path);
    return found;
}

void expect_error(const struct reply *r, int status, const char *type, const char *param)
{
    if (r->status != status)
        fail_msg("status %d instead of %d: %s", r->status, status, r->body.data);
    assert_false(r->is_stream);
    assert_string_equal(r->content_type, "application/json");
    expect_text(r->json, "error.type", type);
    expect_int(r->json, "error.code", status);
    assert_true(strlen(text_at(r->json, "error.message")) > 5);
    if (param)
        expect_text(r->json, "error.param", param);
    else
        expect_null(r->json, "error.param");
}

char *with(const char *base, const char *changes)
{
    json_error_t error;
    json_t *object = json_loads(base, 0, &error), *more = json_loads(changes, 0, &error), *value;
    const char *name;
    if (!object || !more)
        fail_msg("%s: %s", changes, error.text);
    json_object_foreach(more, name, value)
    {
        if (json_is_string(value) && strcmp(json_string_value(value), "-") == 0)
            json_object_del(object, name);
        else
            json_object_set(object, name, value);
    }
    char *text = json_dumps(object, 0);
    json_decref(object);
    json_decref(more);
    return text;
}
