/* exchange.h: one HTTP request and its answer: what the API's handlers see of HTTP.
 *
 *                     handler(x)                  job->pull(x)  again each time the engine has news
 *   request complete ------------> answered  or  job set -----------> PHI_JOB_WAIT ... PHI_JOB_DONE
 *
 * A handler runs on an HTTP thread when the whole request has arrived. It either answers at once
 * (phi_exchange_answer, phi_exchange_fail) or leaves a job behind. A job without streaming collects
 * until it can answer in one piece; a streaming one (phi_exchange_stream) appends text to x->stream as
 * it comes. Jobs are pulled by HTTP threads only; the engine's thread calls phi_exchange_wake.
 *
 * What carries an exchange is a table of functions: HTTP (http/http.c), or a program in the same
 * process that asks without a socket (local.c). */
#ifndef PHI_SERVER_EXCHANGE_H
#define PHI_SERVER_EXCHANGE_H

#include "base/buf.h"
#include "phidelity.h"

struct phi_exchange;
struct phi_server;

enum phi_job_state {
    PHI_JOB_WAIT, /* nothing more for now: sleep until phi_exchange_wake */
    PHI_JOB_MORE, /* x->stream has text, and more may follow */
    PHI_JOB_DONE  /* answered, or the stream has its last bytes */
};

struct phi_job {
    enum phi_job_state (*pull)(struct phi_exchange *x, struct phi_job *job);
    /* The client left, or the server stops: end the work soon. From the watcher's thread, while
     * pull may run on another; the job is still woken and freed as usual. */
    void (*cancel)(struct phi_job *job);
    void (*free)(struct phi_job *job); /* HTTP thread, once: it is done, or the exchange over */
};

struct phi_http_side; /* the carrier's own part of it */

/* How an exchange is carried; what each function does is said below, where it is called. */
struct phi_carrier {
    struct phi_str (*header)(const struct phi_exchange *x, const char *name);
    void (*answer)(struct phi_exchange *x, int http_status, const char *content_type,
                   struct phi_buf *body);
    void (*add_header)(struct phi_exchange *x, const char *name, const char *value);
    bool (*has_trusted_certificate)(const struct phi_exchange *x);
    void (*stream)(struct phi_exchange *x);
    void (*wake)(struct phi_exchange *x);
    void (*acquire)(struct phi_exchange *x);
    void (*release)(struct phi_exchange *x);
};

struct phi_exchange {
    const struct phi_carrier *carrier;
    struct phi_server *server;
    const char *peer;      /* "127.0.0.1:54321", "[::1]:54321" or "unix" */
    struct phi_buf target; /* as the client wrote it, query and all: for logs only */
    struct phi_str method; /* "POST" */
    struct phi_str path;   /* decoded, without root_path and query */
    char request_id[64];   /* X-Request-Id when that is short printable ASCII, else random */
    struct phi_buf body;   /* whole; the handler may take it; `failed` when memory ran out */
    bool body_too_large;   /* more than max_body_bytes: it was not kept */
    bool header_too_large; /* more than max_header_bytes: the body was not kept */

    struct phi_job *job;   /* set by the handler */
    struct phi_buf stream; /* bytes of a streaming answer that are not sent yet */
    size_t n_answer_bytes; /* of the answer's body, or handed out of the stream so far */
    struct phi_http_side *side;
};

/* Value of a request header, or an empty view, which lives as long as the exchange. HTTP threads. */
static inline struct phi_str phi_exchange_header(const struct phi_exchange *x, const char *name)
{
    return x->carrier->header(x, name);
}

/* Answers in one piece; takes over `body` (and empties it). A body whose allocation failed becomes a
 * 500. `content_type` is a literal. */
static inline void phi_exchange_answer(struct phi_exchange *x, int http_status, const char *content_type,
                                       struct phi_buf *body)
{
    x->carrier->answer(x, http_status, content_type, body);
}

/* One more header line of the answer; both are copied. Before the answer or stream begins. */
static inline void phi_exchange_add_header(struct phi_exchange *x, const char *name, const char *value)
{
    x->carrier->add_header(x, name, value);
}

/* Whether the client has shown a TLS certificate that an authority of ssl_ca_certs vouches for. */
static inline bool phi_exchange_has_trusted_certificate(const struct phi_exchange *x)
{
    return x->carrier->has_trusted_certificate(x);
}

/* From now on the answer is status 200 and an event stream fed through x->stream. */
static inline void phi_exchange_stream(struct phi_exchange *x)
{
    x->carrier->stream(x);
}

/* The job has news. Any thread, at any time until the reference is given back; does not block and
 * does not allocate. */
static inline void phi_exchange_wake(struct phi_exchange *x)
{
    x->carrier->wake(x);
}

/* A job that gives the engine a pointer to the exchange holds a reference for as long as the engine
 * may use it; release may come from the engine's thread. */
static inline void phi_exchange_acquire(struct phi_exchange *x)
{
    x->carrier->acquire(x);
}

static inline void phi_exchange_release(struct phi_exchange *x)
{
    x->carrier->release(x);
}

#endif
