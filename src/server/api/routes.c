/* routes.c: see routes.h. */
#include "server/api/routes.h"
#include "server/api/fields.h"
#include "server/api/handlers.h"
#include "server/state.h"

/* Behind the API key is what starts with /v1 (gate.c). Each path stands in one run of rows. */
const struct phi_route phi_routes[] = {
    {"GET", "/v1/models", phi_api_models, PHI_ROUTE_UNTIL_END, "The models that are served", NULL,
     NULL},
    {"GET", "/v1/models/", phi_api_model, PHI_ROUTE_UNTIL_END | PHI_ROUTE_PREFIX, "One of them",
     NULL, NULL},
    {"POST", "/v1/completions", phi_api_completions, 0, "Goes on with a text",
     &phi_completion_fields, NULL},
    {"POST", "/v1/chat/completions", phi_api_chat, 0, "Answers a conversation", &phi_chat_fields,
     NULL},
    {"POST", "/tokenize", phi_api_tokenize, PHI_ROUTE_UNTIL_END, "Text or messages to token ids",
     &phi_tokenize_text_fields, &phi_tokenize_chat_fields},
    {"POST", "/detokenize", phi_api_detokenize, PHI_ROUTE_UNTIL_END, "Token ids to text",
     &phi_detokenize_fields, NULL},
    {"GET", "/health", phi_api_health, PHI_ROUTE_ALWAYS, "200 while requests are served, else 503",
     NULL, NULL},
    {"GET", "/ping", phi_api_health, PHI_ROUTE_ALWAYS, "The same", NULL, NULL},
    {"POST", "/ping", phi_api_health, PHI_ROUTE_ALWAYS, "The same", NULL, NULL},
    {"GET", "/version", phi_api_version, PHI_ROUTE_ALWAYS, "The program's version", NULL, NULL},
    {"GET", "/load", phi_api_load, PHI_ROUTE_ALWAYS,
     "Requests in work, where the server counts them", NULL, NULL},
    {"GET", "/metrics", phi_api_metrics, PHI_ROUTE_ALWAYS, "Metrics for Prometheus", NULL, NULL},
    {"GET", "/openapi.json", phi_api_openapi, PHI_ROUTE_ALWAYS, "This description", NULL, NULL},
    {"GET", "/", phi_api_page, PHI_ROUTE_ALWAYS, "A page that says what is running", NULL, NULL},
    {0},
};

static bool has_path(const struct phi_route *route, struct phi_str path)
{
    struct phi_str own = phi_str_from(route->path);
    if (route->flags & PHI_ROUTE_PREFIX)
        return phi_str_starts_with(path, own) && path.n > own.n;
    return phi_str_eq(path, own);
}

static bool has_method(const struct phi_route *route, struct phi_str method)
{
    return phi_str_eq_c(method, route->method) ||
           (phi_str_eq_c(method, "HEAD") && strcmp(route->method, "GET") == 0);
}

struct phi_str phi_route_name(struct phi_str path)
{
    for (const struct phi_route *route = phi_routes; route->path; route++)
        if (has_path(route, path))
            return phi_str_from(route->path);
    return (struct phi_str){"", 0};
}

/* The web framework's own bodies, as vLLM's clients know them. */
static void answer_detail(struct phi_exchange *x, int http_status, const char *detail)
{
    struct phi_buf body = {0};
    struct phi_out o = {.buf = &body};
    phi_out_open(&o, NULL, '{');
    phi_out_c(&o, "detail", detail);
    phi_out_close(&o, '}');
    phi_exchange_answer(x, http_status, "application/json", &body);
}

static void refuse_method(struct phi_exchange *x)
{
    struct phi_buf allow = {0};
    for (const struct phi_route *route = phi_routes; route->path; route++)
        if (has_path(route, x->path))
            phi_buf_printf(&allow, "%s%s", allow.n > 0 ? ", " : "", route->method);
    if (!allow.failed)
        phi_exchange_add_header(x, "Allow", allow.data);
    phi_buf_deinit(&allow);
    answer_detail(x, 405, "Method Not Allowed");
}

/* False when it was refused. */
static bool is_time_for(const struct phi_route *route, struct phi_exchange *x)
{
    struct phi_refusal refusal;
    enum phi_server_phase phase = phi_server_phase(x->server);
    if (phase == PHI_SERVER_OPEN || route->flags & PHI_ROUTE_ALWAYS)
        return true;
    if (phase == PHI_SERVER_DRAINING && route->flags & PHI_ROUTE_UNTIL_END)
        return true;
    phi_refuse(&refusal, PHI_REFUSED_LATER, NULL,
               phase == PHI_SERVER_LOADING ? "The model is loading."
                                           : "The server is shutting down.");
    phi_refusal_answer(&refusal, x);
    return false;
}

/* False when it was refused: http.c keeps neither what is too large nor what memory ran out for. */
static bool is_complete(struct phi_exchange *x)
{
    struct phi_refusal refusal;
    if (!x->header_too_large && !x->body_too_large && !x->body.failed)
        return true;
    if (x->header_too_large)
        phi_refuse(&refusal, PHI_REFUSED_HEADER, NULL,
                   "The request's header is larger than %zu bytes (--h11-max-incomplete-event-size).",
                   x->server->options->max_header_bytes);
    else if (x->body_too_large)
        phi_refuse(&refusal, PHI_REFUSED_SIZE, NULL,
                   "The request's body is larger than %zu bytes (--max-body-bytes).",
                   x->server->options->max_body_bytes);
    else
        phi_refuse_memory(&refusal);
    phi_refusal_answer(&refusal, x);
    return false;
}

void phi_route(struct phi_exchange *x)
{
    bool path_exists = false;
    for (const struct phi_route *route = phi_routes; route->path; route++) {
        if (!has_path(route, x->path))
            continue;
        path_exists = true;
        if (!has_method(route, x->method))
            continue;
        if (is_time_for(route, x) && is_complete(x))
            route->handle(x);
        return;
    }
    if (path_exists)
        refuse_method(x);
    else
        answer_detail(x, 404, "Not Found");
}
