/* gate.c: see gate.h. The CORS rules are the Fetch standard's, as Starlette's middleware, which vLLM
 * uses, applies them. */
#include "server/gate.h"
#include "server/state.h"

#include <strings.h>

enum { PREFLIGHT_MAX_AGE_S = 600 };

static const struct phi_server_options *options_of(const struct phi_exchange *x)
{
    return x->server->options;
}

/* ---------------------------------------------------------------- API keys */

/* In a time that does not tell where the two differ. */
static bool same_key(struct phi_str given, const char *key)
{
    struct phi_str right = phi_str_from(key);
    unsigned char difference = given.n != right.n;
    for (size_t i = 0; i < given.n; i++)
        difference |= (unsigned char)(given.data[i] ^ right.data[right.n ? i % right.n : 0]);
    return difference == 0 && right.n > 0;
}

/* As in vLLM: the API proper is behind the key, what monitors look at is not. */
static bool needs_key(const struct phi_exchange *x)
{
    return options_of(x)->api_keys.n > 0 && phi_str_starts_with(x->path, PHI_STR("/v1")) &&
           !phi_str_eq_c(x->method, "OPTIONS");
}

static bool has_key(const struct phi_exchange *x)
{
    const struct phi_strings *keys = &options_of(x)->api_keys;
    struct phi_str given = phi_exchange_header(x, "Authorization");
    static const char scheme[] = "Bearer ";
    bool found = false;
    if (given.n < sizeof scheme - 1 || strncasecmp(given.data, scheme, sizeof scheme - 1) != 0)
        return false;
    given.data += sizeof scheme - 1;
    given.n -= sizeof scheme - 1;
    for (size_t i = 0; i < keys->n; i++)
        found |= same_key(given, keys->data[i]);
    return found;
}

static bool has_certificate(const struct phi_exchange *x)
{
    return !options_of(x)->ssl_require_client || phi_exchange_has_trusted_certificate(x);
}

/* ---------------------------------------------------------------- CORS */

static bool allows_all(const struct phi_strings *allowed)
{
    for (size_t i = 0; i < allowed->n; i++)
        if (strcmp(allowed->data[i], "*") == 0)
            return true;
    return false;
}

/* Whether a comma-separated list, or one word, is all in `allowed`. */
static bool allows(const struct phi_strings *allowed, struct phi_str words)
{
    if (allows_all(allowed))
        return true;
    for (size_t begin = 0; begin < words.n;) {
        size_t end = begin;
        while (end < words.n && words.data[end] != ',')
            end++;
        size_t first = begin, last = end;
        while (first < last && words.data[first] == ' ')
            first++;
        while (last > first && words.data[last - 1] == ' ')
            last--;
        bool found = false;
        for (size_t i = 0; i < allowed->n; i++)
            found |= strlen(allowed->data[i]) == last - first &&
                     strncasecmp(allowed->data[i], words.data + first, last - first) == 0;
        if (!found)
            return false;
        begin = end + 1;
    }
    return true;
}

static bool is_preflight(const struct phi_exchange *x)
{
    return phi_str_eq_c(x->method, "OPTIONS") && phi_exchange_header(x, "Origin").n > 0 &&
           phi_exchange_header(x, "Access-Control-Request-Method").n > 0;
}

void phi_gate_add_headers(struct phi_exchange *x)
{
    const struct phi_server_options *o = options_of(x);
    struct phi_str origin = phi_exchange_header(x, "Origin");
    if (origin.n == 0 || !allows(&o->allowed_origins, origin))
        return;
    bool any = allows_all(&o->allowed_origins) && !o->allow_credentials;
    phi_exchange_add_header(x, "Access-Control-Allow-Origin", any ? "*" : origin.data);
    if (!any)
        phi_exchange_add_header(x, "Vary", "Origin");
    if (o->allow_credentials)
        phi_exchange_add_header(x, "Access-Control-Allow-Credentials", "true");
}

static void append_list(struct phi_buf *b, const struct phi_strings *list)
{
    for (size_t i = 0; i < list->n; i++)
        phi_buf_printf(b, i > 0 ? ", %s" : "%s", list->data[i]);
}

static void add_list_header(struct phi_exchange *x, const char *name,
                            const struct phi_strings *allowed, struct phi_str asked,
                            const char *all)
{
    struct phi_buf b = {0};
    if (!allows_all(allowed))
        append_list(&b, allowed);
    else if (all)
        phi_buf_append_c(&b, all);
    else
        phi_buf_append_str(&b, asked);
    if (!b.failed && b.n > 0)
        phi_exchange_add_header(x, name, b.data);
    phi_buf_deinit(&b);
}

static void answer_preflight(struct phi_exchange *x)
{
    const struct phi_server_options *o = options_of(x);
    struct phi_str method = phi_exchange_header(x, "Access-Control-Request-Method");
    struct phi_str headers = phi_exchange_header(x, "Access-Control-Request-Headers");
    struct phi_buf text = {0}, age = {0};
    if (!allows(&o->allowed_origins, phi_exchange_header(x, "Origin")))
        phi_buf_append_c(&text, "origin");
    if (!allows(&o->allowed_methods, method))
        phi_buf_append_c(&text, text.n ? ", method" : "method");
    if (!allows(&o->allowed_headers, headers))
        phi_buf_append_c(&text, text.n ? ", headers" : "headers");
    int http_status = text.n == 0 ? 200 : 400;
    struct phi_buf body = {0};
    if (http_status == 200)
        phi_buf_append_c(&body, "OK");
    else
        phi_buf_printf(&body, "Disallowed CORS %s", text.data);
    phi_buf_printf(&age, "%d", PREFLIGHT_MAX_AGE_S);
    add_list_header(x, "Access-Control-Allow-Methods", &o->allowed_methods, method,
                    "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT");
    add_list_header(x, "Access-Control-Allow-Headers", &o->allowed_headers, headers, NULL);
    if (!age.failed)
        phi_exchange_add_header(x, "Access-Control-Max-Age", age.data);
    phi_buf_deinit(&text);
    phi_buf_deinit(&age);
    phi_exchange_answer(x, http_status, "text/plain; charset=utf-8", &body);
}

/* ---------------------------------------------------------------- the gate */

bool phi_gate_is_open(const struct phi_exchange *x)
{
    return has_certificate(x) && !is_preflight(x) && (!needs_key(x) || has_key(x));
}

bool phi_gate_pass(struct phi_exchange *x)
{
    struct phi_buf body = {0};
    if (!has_certificate(x)) {
        phi_buf_append_c(&body, "{\"error\":\"A client certificate is required.\"}");
        phi_exchange_answer(x, 403, "application/json", &body);
        return false;
    }
    if (is_preflight(x)) {
        answer_preflight(x);
        return false;
    }
    if (needs_key(x) && !has_key(x)) {
        phi_buf_append_c(&body, "{\"error\":\"Unauthorized\"}");
        phi_exchange_add_header(x, "WWW-Authenticate", "Bearer");
        phi_exchange_answer(x, 401, "application/json", &body);
        return false;
    }
    return true;
}
