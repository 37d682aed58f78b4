/* server.c: the life of a server (server.h), and the way of an exchange through it: the gate, then
 * the route; counted when it is answered, logged when it is over. */
#include "server/server.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "server/gate.h"
#include "server/http/http.h"
#include "server/http/listen.h"
#include "server/metrics/metrics.h"
#include "server/api/routes.h"
#include "server/metrics/access_line.h"
#include "server/state.h"
#include "server/metrics/stats_thread.h"

#include <time.h>
#include <unistd.h>

enum { POLL_MS = 10, GIVE_UP_S = 30 };

static const char *const any_string[] = {"*"};

void phi_server_options_init(struct phi_server_options *o)
{
    *o = (struct phi_server_options){
        .port = 8000,
        .allowed_origins = {any_string, 1},
        .allowed_methods = {any_string, 1},
        .allowed_headers = {any_string, 1},
        .max_body_bytes = 32u << 20,
        .max_header_bytes = 64u << 10,
        .max_connections = 16384,
        .idle_timeout_s = 90,
        .request_timeout_s = 60,
        .write_timeout_s = 60,
        .n_threads = 4,
        .max_logprobs = 20,
        .response_role = "assistant",
        .stream_interval = 1,
        .access_log = true,
        .max_log_len = -1,
        .log_stats = true,
        .log_stats_interval_s = 10,
    };
}

/* ---------------------------------------------------------------- an exchange */

static void handle(struct phi_exchange *x)
{
    if (phi_gate_pass(x))
        phi_route(x);
}

static void add_headers(struct phi_exchange *x)
{
    phi_gate_add_headers(x);
    if (x->server->options->request_id_headers)
        phi_exchange_add_header(x, "X-Request-Id", x->request_id);
}

static bool is_logged(const struct phi_server_options *o, struct phi_str path)
{
    for (size_t i = 0; i < o->access_log_except.n; i++)
        if (phi_str_eq_c(path, o->access_log_except.data[i]))
            return false;
    return o->access_log;
}

static void answered(struct phi_exchange *x, int http_status, double seconds)
{
    phi_metrics_http_ended(x->server->metrics, x->method, phi_route_name(x->path), http_status,
                           seconds);
}

static void ended(struct phi_exchange *x, int http_status, bool whole)
{
    char line[512];
    if (!is_logged(x->server->options, x->path))
        return;
    phi_access_line(x->peer, x->method, phi_buf_str(&x->target), http_status, line, sizeof line);
    phi_log(PHI_LOG_INFO, whole ? "%s" : "%s (the client left)", line);
}

/* ---------------------------------------------------------------- start and open */

static const struct phi_http_callbacks http_callbacks = {
    .wants_body = phi_gate_is_open,
    .handle = handle,
    .before_answer = add_headers,
    .answered = answered,
    .ended = ended,
};

static enum phi_status check_options(const struct phi_server_options *o, struct phi_error *err)
{
    if (o->idle_timeout_s < 1 || o->request_timeout_s < 1 || o->write_timeout_s < 1)
        return phi_fail(err, PHI_ERR_INVALID, "timeouts are at least 1 second");
    if (o->max_connections < 1 || o->max_body_bytes < 1 || o->max_header_bytes < 1024)
        return phi_fail(err, PHI_ERR_INVALID,
                        "at least 1 connection, 1 byte of body and 1024 of header are needed");
    if (o->n_threads < 1)
        return phi_fail(err, PHI_ERR_INVALID, "at least 1 HTTP thread is needed");
    if (o->log_stats && !(o->log_stats_interval_s > 0))
        return phi_fail(err, PHI_ERR_INVALID, "the interval of the statistics must be above 0");
    return PHI_OK;
}

static enum phi_status start(struct phi_server *s, struct phi_error *err)
{
    const struct phi_server_options *o = s->options;
    int fd = -1;
    PHI_TRY(check_options(o, err));
    PHI_TRY(phi_metrics_create(phi_server_model_name(s), &s->metrics, err));
    if (o->uds)
        PHI_TRY(phi_listen_unix(o->uds, &fd, err));
    else
        PHI_TRY(phi_listen_tcp(o->host, o->port, &fd, &s->port, err));
    return phi_http_start(o, s, &http_callbacks, fd, &s->http, err);
}

enum phi_status phi_server_start(const struct phi_server_options *o, struct phi_server **out,
                                 struct phi_error *err)
{
    *out = NULL;
    struct phi_server *s = phi_calloc(1, sizeof *s);
    if (!s)
        return phi_fail_memory(err, "the server", sizeof *s);
    s->options = o;
    s->created_s = (int64_t)time(NULL);
    atomic_init(&s->phase, PHI_SERVER_LOADING);
    enum phi_status status = start(s, err);
    if (status != PHI_OK) {
        phi_metrics_destroy(s->metrics);
        phi_free(s);
        return status;
    }
    *out = s;
    return PHI_OK;
}

int phi_server_port(const struct phi_server *s)
{
    return s->port;
}

enum phi_status phi_server_open(struct phi_server *s, struct phi_model *m, struct phi_engine *e,
                                const struct phi_sampling *sampling, struct phi_error *err)
{
    s->model = m;
    s->engine = e;
    s->sampling = sampling;
    struct phi_engine_info info;
    phi_engine_get_info(e, &info);
    phi_metrics_open(s->metrics, &info);
    if (s->options->log_stats)
        PHI_TRY(phi_stats_thread_start(e, s->options->log_stats_interval_s, &s->stats, err));
    atomic_store(&s->phase, PHI_SERVER_OPEN);
    return PHI_OK;
}

/* ---------------------------------------------------------------- drain and stop */

static bool wait_until_idle(struct phi_server *s, double timeout_s, bool cancel)
{
    double deadline_s = phi_clock_s() + timeout_s;
    while (phi_http_n_active(s->http) > 0) {
        if (phi_clock_s() >= deadline_s)
            return false;
        if (cancel)
            phi_http_cancel_all(s->http);
        usleep(POLL_MS * 1000);
    }
    return true;
}

bool phi_server_drain(struct phi_server *s, double timeout_s)
{
    atomic_store(&s->phase, PHI_SERVER_DRAINING);
    phi_http_quiesce(s->http);
    if (wait_until_idle(s, timeout_s, false))
        return true;
    wait_until_idle(s, GIVE_UP_S, true);
    return false;
}

void phi_server_stop(struct phi_server *s)
{
    if (!s)
        return;
    phi_server_drain(s, 0);
    phi_stats_thread_stop(s->stats);
    phi_http_stop(s->http);
    if (s->options->uds)
        unlink(s->options->uds);
    phi_metrics_destroy(s->metrics);
    phi_free(s);
}
