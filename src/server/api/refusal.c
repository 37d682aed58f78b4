/* refusal.c: see refusal.h. */
#include "server/api/refusal.h"

#include <stdarg.h>
#include <stdio.h>

static const struct {
    int http_status;
    const char *type;
} kinds[] = {
    [PHI_REFUSED_SHAPE] = {400, "Bad Request"},
    [PHI_REFUSED_VALUE] = {400, "BadRequestError"},
    [PHI_REFUSED_UNKNOWN] = {404, "NotFoundError"},
    [PHI_REFUSED_HEADER] = {431, "RequestHeaderFieldsTooLarge"},
    [PHI_REFUSED_SIZE] = {413, "RequestTooLargeError"},
    [PHI_REFUSED_INTERNAL] = {500, "InternalServerError"},
    [PHI_REFUSED_LATER] = {503, "ServiceUnavailableError"},
};

enum phi_status phi_refuse(struct phi_refusal *r, enum phi_refusal_kind kind, const char *param,
                           const char *fmt, ...)
{
    va_list args;
    r->kind = kind;
    r->param = param;
    r->error.code = PHI_ERR_INVALID;
    va_start(args, fmt);
    vsnprintf(r->error.text, sizeof r->error.text, fmt, args);
    va_end(args);
    phi_clean_line(r->error.text, sizeof r->error.text);
    return r->error.code;
}

enum phi_status phi_refuse_status(struct phi_refusal *r, const char *param)
{
    r->param = param;
    switch (r->error.code) {
    case PHI_ERR_BUSY:
    case PHI_ERR_MEMORY:
    case PHI_ERR_CANCELLED: /* only a server that stops cancels what its client still waits for */
        r->kind = PHI_REFUSED_LATER;
        break;
    case PHI_ERR_INVALID:
    case PHI_ERR_TOO_LONG:
    case PHI_ERR_FORMAT:
    case PHI_ERR_UNSUPPORTED:
        r->kind = PHI_REFUSED_VALUE;
        break;
    default:
        r->kind = PHI_REFUSED_INTERNAL;
    }
    return r->error.code;
}

enum phi_status phi_refuse_memory(struct phi_refusal *r)
{
    phi_fail(&r->error, PHI_ERR_MEMORY, "out of memory");
    return phi_refuse_status(r, NULL);
}

int phi_refusal_http_status(const struct phi_refusal *r)
{
    return kinds[r->kind].http_status;
}

void phi_refusal_write(const struct phi_refusal *r, struct phi_buf *out)
{
    struct phi_out o = {.buf = out};
    phi_out_open(&o, NULL, '{');
    phi_out_open(&o, "error", '{');
    phi_out_c(&o, "message", r->error.text);
    phi_out_c(&o, "type", kinds[r->kind].type);
    phi_out_c(&o, "param", r->param);
    phi_out_int(&o, "code", kinds[r->kind].http_status);
    phi_out_close(&o, '}');
    phi_out_close(&o, '}');
}

void phi_refusal_answer(const struct phi_refusal *r, struct phi_exchange *x)
{
    struct phi_buf body = {0};
    phi_refusal_write(r, &body);
    if (r->kind == PHI_REFUSED_LATER)
        phi_exchange_add_header(x, "Retry-After", "1");
    phi_exchange_answer(x, kinds[r->kind].http_status, "application/json", &body);
}
