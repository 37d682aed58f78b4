/* refusal.h: why a request gets no answer, on its way to the client: one place that knows vLLM's
 * error body, {"error":{"message","type","param","code"}}, its HTTP statuses and its two spellings
 * of "bad request". */
#ifndef PHI_SERVER_API_REFUSAL_H
#define PHI_SERVER_API_REFUSAL_H

#include "server/exchange.h"
#include "server/api/json_out.h"

enum phi_refusal_kind {
    PHI_REFUSED_SHAPE, /* 400 "Bad Request": not JSON, a field missing or of a wrong type */
    PHI_REFUSED_VALUE, /* 400 "BadRequestError": well-formed, but not something that can be done */
    PHI_REFUSED_UNKNOWN,  /* 404 "NotFoundError" */
    PHI_REFUSED_HEADER,   /* 431 "RequestHeaderFieldsTooLarge" */
    PHI_REFUSED_SIZE,     /* 413 "RequestTooLargeError" */
    PHI_REFUSED_INTERNAL, /* 500 "InternalServerError" */
    PHI_REFUSED_LATER     /* 503 "ServiceUnavailableError": may succeed later */
};

struct phi_refusal {
    enum phi_refusal_kind kind;
    const char *param;      /* the field, a literal; NULL is null */
    struct phi_error error; /* the text, and the status that phi_refuse returned */
};

/* Fills *r and returns PHI_ERR_INVALID, so that `return phi_refuse(...)` is one statement. */
enum phi_status phi_refuse(struct phi_refusal *r, enum phi_refusal_kind kind, const char *param,
                           const char *fmt, ...) PHI_PRINTF(4, 5);

/* The same for what the library refused (r->error is filled already): the kind follows from the
 * status. Returns r->error.code. */
enum phi_status phi_refuse_status(struct phi_refusal *r, const char *param);

/* For an allocation of the server's own. */
enum phi_status phi_refuse_memory(struct phi_refusal *r);

int phi_refusal_http_status(const struct phi_refusal *r);

/* {"error":{...}} */
void phi_refusal_write(const struct phi_refusal *r, struct phi_buf *out);

/* Answers the exchange with it; with Retry-After where the client may come again. */
void phi_refusal_answer(const struct phi_refusal *r, struct phi_exchange *x);

#endif
