/* serve_target.c: the server that `bench serve` asks, and its model; see serve_bench.h. */
#include "cli/bench/serve_bench.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "formats/json.h"

#include <stdlib.h>
#include <time.h>

static enum phi_status add_header(struct serve_bench *b, const char *name, int n_name,
                                  const char *value, struct phi_error *err)
{
    struct phi_buf line = {0};
    phi_buf_printf(&line, "%.*s: %s", n_name, name, value);
    b->headers[b->server.n_headers++] = line.data;
    return line.failed ? phi_fail_memory(err, "header", line.n) : PHI_OK;
}

static enum phi_status set_headers(struct serve_bench *b, struct phi_error *err)
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

static enum phi_status set_server(struct serve_bench *b, struct phi_error *err)
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
static enum phi_status get_models(const struct serve_bench *b, json_t **out, struct phi_error *err)
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
static enum phi_status find_model(struct serve_bench *b, struct phi_error *err)
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

static enum phi_status open_tokenizer(struct serve_bench *b, struct phi_error *err)
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

enum phi_status serve_bench_find_target(struct serve_bench *b, struct phi_error *err)
{
    PHI_TRY(set_server(b, err));
    PHI_TRY(find_model(b, err));
    return open_tokenizer(b, err);
}
