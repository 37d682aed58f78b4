/* exchange_double.h: exchanges without HTTP: what a handler answers is kept instead of sent. It
 * stands in for http.c, so handlers, jobs and the engine's wake-ups run as they do in the server.
 */
#ifndef PHI_TESTS_EXCHANGE_DOUBLE_H
#define PHI_TESTS_EXCHANGE_DOUBLE_H

#include "server/exchange.h"
#include "server/state.h"

#include <jansson.h>

enum { MAX_HEADERS = 8 };

/* What came of one request. */
struct reply {
    int status;
    char content_type[64];
    char headers[MAX_HEADERS][2][64]; /* name, value */
    int n_headers;
    bool is_stream;
    struct phi_buf body;
    json_t *json; /* the body, when it is JSON */
    int n_pulls;
    long n_allocations; /* since the last phi_alloc_fail_nth; with the answer, failing ends */
};

struct question {
    const char *method, *path, *body;
    const char *content_type; /* NULL = application/json */
    const char *request_id;   /* header X-Request-Id; NULL = none */
    int cancel_at_pull;       /* the client leaves before this pull, counted from 1; 0 = it stays */
    int drop_at_pull;         /* and the exchange is over at once, without another pull */
};

/* Runs the request to its end. Fails the test when the job sleeps for more than a minute. */
void ask(struct phi_server *s, const struct question *q, struct reply *out);

/* POST with a JSON body. */
void post(struct phi_server *s, const char *path, const char *body, struct reply *out);
void get(struct phi_server *s, const char *path, struct reply *out);

void reply_deinit(struct reply *r);

/* A header of the reply, or NULL. */
const char *reply_header(const struct reply *r, const char *name);

/* Event i of a stream as JSON (the caller's); NULL behind the last, and for [DONE]. Checks the form
 * of the stream: each event is one line of data and an empty line, and [DONE] comes once, at the
 * end. */
json_t *reply_event(const struct reply *r, size_t i);
size_t reply_n_events(const struct reply *r); /* without [DONE] */

/* Exchanges that somebody still refers to. */
int exchanges_alive(void);
/* Waits until there are none. */
void wait_for_exchanges(void);

#endif
