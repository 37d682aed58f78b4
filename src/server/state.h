/* state.h: what the server's own files know of the server. server.c makes it and moves it from phase
 * to phase; handlers (routes.c and what it calls) and metrics.c read it.
 *
 * Everything but the atomics is written before another thread can see it: `options`, `created_s`,
 * `http` and `metrics` by phi_server_start; `model`, `engine` and `sampling` by phi_server_open, which
 * sets the phase after them. A handler that has seen a phase other than PHI_SERVER_LOADING may
 * therefore use them without a lock. */
#ifndef PHI_SERVER_STATE_H
#define PHI_SERVER_STATE_H

#include "server/server.h"

#include <stdatomic.h>

enum phi_server_phase {
    PHI_SERVER_LOADING, /* no model yet: work is answered with 503 */
    PHI_SERVER_OPEN,
    PHI_SERVER_DRAINING /* no new work is taken; what runs goes on */
};

struct phi_http;
struct phi_metrics;
struct phi_stats_thread;

struct phi_server {
    const struct phi_server_options *options;
    int64_t created_s; /* Unix time of the start */

    struct phi_model *model;             /* from phi_server_open on, like the next two */
    struct phi_engine *engine;
    const struct phi_sampling *sampling; /* defaults of what a request leaves out */

    atomic_int phase;    /* enum phi_server_phase */
    atomic_long n_jobs;  /* jobs that exist: what /load reports */

    /* Owned by server.c. */
    struct phi_http *http;
    struct phi_metrics *metrics;
    struct phi_stats_thread *stats; /* NULL: no statistics line */
    int port;                       /* 0 for a Unix socket */
};

static inline enum phi_server_phase phi_server_phase(struct phi_server *s)
{
    return (enum phi_server_phase)atomic_load(&s->phase);
}

/* The name that answers carry: the first served one, else the folder. */
static inline const char *phi_server_model_name(const struct phi_server *s)
{
    const struct phi_server_options *o = s->options;
    return o->served_names.n > 0 ? o->served_names.data[0] : o->model;
}

#endif
