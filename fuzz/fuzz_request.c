/* fuzz_request.c: any body for any route (one input: the path, a line end, the body), answered by a
 * real model and engine: one answer, of a status that has a reason, in JSON or in events. */
#include "server/api/routes.h"
#include "service.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { MAX_PATH = 64, MAX_BODY = 1 << 16 };

static void require(bool law)
{
    if (!law)
        abort();
}

static struct service *the_service(void)
{
    static struct service s;
    struct phi_engine_options e;
    if (s.server.engine)
        return &s;
    phi_engine_options_init(&e);
    e.max_model_len = 32; /* answers end soon */
    e.max_num_seqs = 4;
    service_open(&s, "phi3-tiny-chat", &e);
    s.options.trust_request_chat_template = true;
    return &s;
}

static void check_reply(const struct reply *r)
{
    require(r->status == 200 || r->status == 400 || r->status == 404 || r->status == 405);
    require(!r->body.failed);
    if (r->is_stream) {
        for (size_t i = 0; i < reply_n_events(r); i++)
            json_decref(reply_event(r, i));
        return;
    }
    if (strcmp(r->content_type, "application/json") != 0)
        return;
    if (r->status == 200)
        return; /* keys may be what jansson does not read: texts of tokens with a NUL */
    require(json_is_object(r->json));
    const json_t *code = at(r->json, "error.code");
    require(code ? json_integer_value(code) == r->status : at(r->json, "detail") != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const uint8_t *line_end = n ? memchr(data, '\n', n) : NULL;
    char path[MAX_PATH];
    struct reply r;
    if (!line_end || line_end - data >= MAX_PATH || n > MAX_BODY)
        return 0;
    size_t n_path = (size_t)(line_end - data), n_body = n - n_path - 1;
    memcpy(path, data, n_path);
    path[n_path] = '\0';
    char *body = malloc(n_body + 1);
    require(body != NULL);
    memcpy(body, line_end + 1, n_body);
    body[n_body] = '\0';
    post(&the_service()->server, path, body, &r);
    check_reply(&r);
    reply_deinit(&r);
    free(body);
    return 0;
}
