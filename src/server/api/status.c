/* status.c: what monitors ask: /health, /ping, /version, /load, /metrics. */
#include "server/api/handlers.h"
#include "server/api/json_out.h"
#include "server/metrics/metrics.h"
#include "server/state.h"

/* 200 while requests are served. Not while the model loads, nor once the server drains: a proxy
 * then looks for another replica. */
void phi_api_health(struct phi_exchange *x)
{
    struct phi_buf body = {0};
    bool open = phi_server_phase(x->server) == PHI_SERVER_OPEN;
    phi_exchange_answer(x, open ? 200 : 503, "text/plain; charset=utf-8", &body);
}

void phi_api_version(struct phi_exchange *x)
{
    struct phi_buf body = {0};
    struct phi_out o = {.buf = &body};
    phi_out_open(&o, NULL, '{');
    phi_out_c(&o, "version", phi_version());
    phi_out_close(&o, '}');
    phi_exchange_answer(x, 200, "application/json", &body);
}

void phi_api_load(struct phi_exchange *x)
{
    struct phi_buf body = {0};
    struct phi_out o = {.buf = &body};
    bool counts = x->server->options->server_load_tracking;
    phi_out_open(&o, NULL, '{');
    phi_out_int(&o, "server_load", counts ? atomic_load(&x->server->n_jobs) : 0);
    phi_out_close(&o, '}');
    phi_exchange_answer(x, 200, "application/json", &body);
}

void phi_api_metrics(struct phi_exchange *x)
{
    struct phi_server *s = x->server;
    struct phi_engine_stats stats;
    struct phi_buf body = {0};
    bool has_engine = phi_server_phase(s) != PHI_SERVER_LOADING && s->options->log_stats;
    if (has_engine)
        phi_engine_get_stats(s->engine, &stats);
    phi_metrics_write(s->metrics, has_engine ? &stats : NULL, &body);
    phi_exchange_answer(x, 200, "text/plain; version=0.0.4; charset=utf-8", &body);
}
