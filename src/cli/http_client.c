/* http_client.c: see http_client.h. */
#include "cli/http_client.h"
#include "formats/json.h"

#include <curl/curl.h>

enum { MAX_ANSWER_BYTES = 256 << 20, MAX_SAID = 300 };

static size_t take_bytes(char *data, size_t size, size_t n, void *context)
{
    struct phi_buf *body = context;
    phi_buf_append(body, data, size * n);
    return body->failed ? 0 : size * n;
}

static void set_base(struct http_client *c, const char *url)
{
    struct phi_str base = phi_str_from(url);
    while (phi_str_ends_with(base, PHI_STR("/")))
        base.n--;
    if (phi_str_ends_with(base, PHI_STR("/v1")))
        base.n -= 3;
    phi_buf_append_str(&c->base, base);
}

static bool add_header(struct http_client *c, const char *name, const char *value)
{
    struct phi_buf line = {0};
    phi_buf_printf(&line, "%s: %s", name, value);
    struct curl_slist *longer = line.failed ? NULL : curl_slist_append(c->headers, line.data);
    if (longer)
        c->headers = longer;
    phi_buf_deinit(&line);
    return longer != NULL;
}

enum phi_status http_client_init(struct http_client *c, const char *url, const char *api_key,
                                 int timeout_s, struct phi_error *err)
{
    struct phi_buf bearer = {0};
    *c = (struct http_client){.timeout_s = timeout_s};
    c->body.limit = MAX_ANSWER_BYTES;
    set_base(c, url);
    phi_buf_printf(&bearer, "Bearer %s", api_key ? api_key : "");
    bool ok = curl_global_init(CURL_GLOBAL_DEFAULT) == 0 && !c->base.failed && !bearer.failed;
    c->curl = ok ? curl_easy_init() : NULL;
    ok = c->curl && add_header(c, "Content-Type", "application/json") &&
         (!api_key || add_header(c, "Authorization", bearer.data));
    phi_buf_deinit(&bearer);
    if (!ok)
        return phi_fail_memory(err, "an HTTP client", sizeof *c);
    curl_easy_setopt(c->curl, CURLOPT_WRITEFUNCTION, take_bytes);
    curl_easy_setopt(c->curl, CURLOPT_WRITEDATA, &c->body);
    curl_easy_setopt(c->curl, CURLOPT_HTTPHEADER, c->headers);
    curl_easy_setopt(c->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c->curl, CURLOPT_TIMEOUT, (long)timeout_s);
    return PHI_OK;
}

void http_client_deinit(struct http_client *c)
{
    curl_easy_cleanup(c->curl);
    curl_slist_free_all(c->headers);
    phi_buf_deinit(&c->base);
    phi_buf_deinit(&c->body);
}

/* The status, or 0 with *err filled. */
static int perform(struct http_client *c, const char *path, struct phi_error *err)
{
    struct phi_buf url = {0};
    char reason[CURL_ERROR_SIZE] = "";
    long status = 0;
    phi_buf_printf(&url, "%s%s", c->base.data, path);
    if (url.failed) {
        phi_fail_memory(err, "a URL", url.n);
        return 0;
    }
    phi_buf_clear(&c->body);
    curl_easy_setopt(c->curl, CURLOPT_URL, url.data);
    curl_easy_setopt(c->curl, CURLOPT_ERRORBUFFER, reason);
    CURLcode code = curl_easy_perform(c->curl);
    curl_easy_setopt(c->curl, CURLOPT_ERRORBUFFER, NULL);
    if (code == CURLE_OK)
        curl_easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status == 0)
        phi_fail(err, PHI_ERR_IO, "%s: %s", url.data,
                 reason[0] ? reason : curl_easy_strerror(code));
    phi_buf_deinit(&url);
    return (int)status;
}

int http_client_get(struct http_client *c, const char *path, struct phi_error *err)
{
    curl_easy_setopt(c->curl, CURLOPT_HTTPGET, 1L);
    return perform(c, path, err);
}

/* What an OpenAI-compatible error body says, else the body. */
static enum phi_status fail_refused(const struct http_client *c, const char *path, int status,
                                    struct phi_error *err)
{
    json_error_t ignored;
    json_t *body =
        json_loadb(c->body.data ? c->body.data : "", c->body.n, JSON_ALLOW_NUL, &ignored);
    const char *said =
        json_string_value(json_object_get(json_object_get(body, "error"), "message"));
    phi_fail(err, PHI_ERR_IO, "%s%s: status %d: %.*s", c->base.data, path, status, MAX_SAID,
             said           ? said
             : c->body.data ? c->body.data
                            : "");
    json_decref(body);
    return PHI_ERR_IO;
}

enum phi_status http_client_post(struct http_client *c, const char *path, const json_t *body,
                                 json_t **out, struct phi_error *err)
{
    *out = NULL;
    struct phi_buf text = {0};
    phi_json_dump(body, JSON_COMPACT, &text);
    if (text.failed) {
        phi_buf_deinit(&text);
        return phi_fail_memory(err, "a request", text.n);
    }
    curl_easy_setopt(c->curl, CURLOPT_POST, 1L);
    curl_easy_setopt(c->curl, CURLOPT_POSTFIELDS, text.data);
    curl_easy_setopt(c->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)text.n);
    int status = perform(c, path, err);
    curl_easy_setopt(c->curl, CURLOPT_POSTFIELDS, NULL);
    phi_buf_deinit(&text);
    if (status == 0)
        return PHI_ERR_IO;
    if (status != 200)
        return fail_refused(c, path, status, err);
    return phi_json_parse(phi_buf_str(&c->body), c->base.data, out, err);
}
