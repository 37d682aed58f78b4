/* openapi.c: GET /openapi.json: the API described by its own tables (routes.c, request_fields.c).
 */
#include "server/api/fields.h"
#include "server/api/handlers.h"
#include "server/api/routes.h"

static void write_response(struct phi_out *o, const char *code, const char *description)
{
    phi_out_open(o, code, '{');
    phi_out_c(o, "description", description);
    phi_out_close(o, '}');
}

static void write_body(struct phi_out *o, const struct phi_route *route)
{
    phi_out_open(o, "requestBody", '{');
    phi_out_bool(o, "required", true);
    phi_out_open(o, "content", '{');
    phi_out_open(o, "application/json", '{');
    if (route->other_body) {
        phi_out_open(o, "schema", '{');
        phi_out_open(o, "anyOf", '[');
        phi_fields_write_schema(o, NULL, route->body);
        phi_fields_write_schema(o, NULL, route->other_body);
        phi_out_close(o, ']');
        phi_out_close(o, '}');
    } else {
        phi_fields_write_schema(o, "schema", route->body);
    }
    phi_out_close(o, '}');
    phi_out_close(o, '}');
    phi_out_close(o, '}');
}

static void write_model_parameter(struct phi_out *o)
{
    phi_out_open(o, "parameters", '[');
    phi_out_open(o, NULL, '{');
    phi_out_c(o, "name", "model");
    phi_out_c(o, "in", "path");
    phi_out_bool(o, "required", true);
    phi_out_open(o, "schema", '{');
    phi_out_c(o, "type", "string");
    phi_out_close(o, '}');
    phi_out_close(o, '}');
    phi_out_close(o, ']');
}

static void write_operation(struct phi_out *o, const struct phi_route *route)
{
    phi_out_open(o, strcmp(route->method, "POST") == 0 ? "post" : "get", '{');
    phi_out_c(o, "summary", route->summary);
    if (route->flags & PHI_ROUTE_PREFIX)
        write_model_parameter(o);
    if (route->body)
        write_body(o, route);
    phi_out_open(o, "responses", '{');
    write_response(o, "200", "Success");
    if (route->body)
        write_response(o, "400", "The body has a wrong shape, or asks for what cannot be done");
    if (route->body || route->flags & PHI_ROUTE_PREFIX)
        write_response(o, "404", "No such model");
    if (route->body)
        write_response(o, "413", "The body is too large");
    if (strncmp(route->path, "/v1", 3) == 0)
        write_response(o, "401", "The API key is missing or wrong");
    write_response(o, "503", "The model is loading, the server shuts down, or too many wait");
    phi_out_close(o, '}');
    phi_out_close(o, '}');
}

void phi_api_openapi(struct phi_exchange *x)
{
    struct phi_buf body = {0};
    struct phi_out o = {.buf = &body};
    phi_out_open(&o, NULL, '{');
    phi_out_c(&o, "openapi", "3.1.0");
    phi_out_open(&o, "info", '{');
    phi_out_c(&o, "title", "phidelity");
    phi_out_c(&o, "version", phi_version());
    phi_out_close(&o, '}');
    phi_out_open(&o, "paths", '{');
    for (const struct phi_route *route = phi_routes, *next; route->path; route = next) {
        phi_out_open(&o, route->flags & PHI_ROUTE_PREFIX ? "/v1/models/{model}" : route->path, '{');
        for (next = route; next->path && strcmp(next->path, route->path) == 0; next++)
            write_operation(&o, next);
        phi_out_close(&o, '}');
    }
    phi_out_close(&o, '}');
    phi_out_close(&o, '}');
    phi_exchange_answer(x, 200, "application/json", &body);
}
