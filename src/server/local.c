/* local.c: see local.h. An exchange that is in work stands in a list; the engine's thread marks it
 * when its job has news, and whoever waits for an answer pulls the marked ones. */
#include "server/local.h"
#include "base/alloc.h"
#include "base/status.h"
#include "server/api/routes.h"
#include "server/metrics/metrics.h"
#include "server/state.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

struct local_exchange {
    struct phi_exchange x; /* first: a pointer to it is one to us */
    struct phi_local *local;
    struct local_exchange *next; /* in work */
    struct phi_local_answer answer;
    atomic_int n_references;
    bool news; /* under the lock */
};

struct phi_local {
    struct phi_server server;
    struct local_exchange *in_work;
    uint64_t n_begun;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* some exchange has news, or the last one is gone */
    size_t n_alive;         /* under the lock: exchanges that somebody refers to */
};

static struct local_exchange *own(const struct phi_exchange *x)
{
    return (struct local_exchange *)(uintptr_t)x;
}

/* ---------------------------------------------------------------- the carrier */

static struct phi_str carry_header(const struct phi_exchange *x, const char *name)
{
    (void)x;
    return strcmp(name, "Content-Type") == 0 ? PHI_STR("application/json") : PHI_STR("");
}

static void carry_answer(struct phi_exchange *x, int http_status, const char *content_type,
                         struct phi_buf *body)
{
    struct phi_local_answer *answer = &own(x)->answer;
    (void)content_type;
    phi_buf_deinit(&answer->body);
    answer->status = body->failed ? 500 : http_status;
    answer->body = *body;
    *body = (struct phi_buf){0};
}

static void carry_add_header(struct phi_exchange *x, const char *name, const char *value)
{
    (void)x, (void)name, (void)value;
}

static bool carry_has_trusted_certificate(const struct phi_exchange *x)
{
    (void)x;
    return true; /* it is our own process */
}

static void carry_stream(struct phi_exchange *x)
{
    own(x)->answer.status = 200;
}

static void carry_wake(struct phi_exchange *x)
{
    struct phi_local *l = own(x)->local;
    pthread_mutex_lock(&l->lock);
    own(x)->news = true;
    pthread_cond_signal(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

static void carry_acquire(struct phi_exchange *x)
{
    atomic_fetch_add(&own(x)->n_references, 1);
}

static void carry_release(struct phi_exchange *x)
{
    struct phi_local *l = own(x)->local;
    if (atomic_fetch_sub(&own(x)->n_references, 1) != 1)
        return;
    phi_buf_deinit(&x->target);
    phi_buf_deinit(&x->body);
    phi_buf_deinit(&x->stream);
    phi_free(own(x));
    pthread_mutex_lock(&l->lock);
    l->n_alive--;
    pthread_cond_signal(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

static const struct phi_carrier local_carrier = {
    .header = carry_header,
    .answer = carry_answer,
    .add_header = carry_add_header,
    .has_trusted_certificate = carry_has_trusted_certificate,
    .stream = carry_stream,
    .wake = carry_wake,
    .acquire = carry_acquire,
    .release = carry_release,
};

/* ---------------------------------------------------------------- open and close */

enum phi_status phi_local_open(const struct phi_server_options *o, struct phi_model *m,
                               struct phi_engine *e, const struct phi_sampling *sampling,
                               struct phi_local **out, struct phi_error *err)
{
    pthread_condattr_t attributes;
    struct phi_engine_info info;
    *out = NULL;
    struct phi_local *l = phi_calloc(1, sizeof *l);
    if (!l)
        return phi_fail_memory(err, "the API", sizeof *l);
    l->server = (struct phi_server){
        .options = o, .created_s = time(NULL), .model = m, .engine = e, .sampling = sampling};
    atomic_init(&l->server.phase, PHI_SERVER_OPEN);
    enum phi_status status =
        phi_metrics_create(phi_server_model_name(&l->server), &l->server.metrics, err);
    if (status != PHI_OK) {
        phi_free(l);
        return status;
    }
    phi_engine_get_info(e, &info);
    phi_metrics_open(l->server.metrics, &info);
    pthread_mutex_init(&l->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&l->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    *out = l;
    return PHI_OK;
}

/* The exchange is over: its job goes, and so does our reference. */
static void end(struct local_exchange *x)
{
    if (x->x.job)
        x->x.job->free(x->x.job);
    x->x.job = NULL;
    phi_exchange_release(&x->x);
}

void phi_local_close(struct phi_local *l)
{
    if (!l)
        return;
    while (l->in_work) {
        struct local_exchange *x = l->in_work;
        l->in_work = x->next;
        if (x->x.job)
            x->x.job->cancel(x->x.job);
        phi_buf_deinit(&x->answer.body);
        end(x);
    }
    pthread_mutex_lock(&l->lock);
    while (l->n_alive > 0) /* the engine lets go of what it refers to */
        pthread_cond_wait(&l->changed, &l->lock);
    pthread_mutex_unlock(&l->lock);
    phi_metrics_destroy(l->server.metrics);
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    phi_free(l);
}

/* ---------------------------------------------------------------- a request */

enum phi_status phi_local_post(struct phi_local *l, const char *path, struct phi_str body,
                               void *tag, struct phi_error *err)
{
    struct local_exchange *x = phi_calloc(1, sizeof *x);
    if (!x)
        return phi_fail_memory(err, "a request", sizeof *x);
    x->local = l;
    x->answer.tag = tag;
    x->news = true;
    atomic_init(&x->n_references, 1);
    x->x.carrier = &local_carrier;
    x->x.server = &l->server;
    x->x.peer = "local";
    x->x.method = PHI_STR("POST");
    x->x.path = phi_str_from(path);
    snprintf(x->x.request_id, sizeof x->x.request_id, "%" PRIu64, ++l->n_begun);
    phi_buf_append_c(&x->x.target, path);
    phi_buf_append_str(&x->x.body, body); /* a failure is answered by the route */
    pthread_mutex_lock(&l->lock);
    l->n_alive++;
    pthread_mutex_unlock(&l->lock);
    x->next = l->in_work;
    l->in_work = x;
    phi_route(&x->x);
    return PHI_OK;
}

/* Whether the exchange has an answer now. */
static bool pull(struct local_exchange *x)
{
    enum phi_job_state state = x->x.job ? PHI_JOB_MORE : PHI_JOB_DONE;
    while (state == PHI_JOB_MORE) {
        state = x->x.job->pull(&x->x, x->x.job);
        if (x->x.stream.n > 0)
            phi_buf_append_str(&x->answer.body, phi_buf_str(&x->x.stream));
        x->answer.body.failed |= x->x.stream.failed;
        phi_buf_clear(&x->x.stream);
    }
    return state == PHI_JOB_DONE;
}

/* An exchange with news, whose mark is taken away; waits for one until the deadline. */
static struct local_exchange *wait_for_news(struct phi_local *l, const struct timespec *deadline)
{
    struct local_exchange *found = NULL;
    bool in_time = true;
    pthread_mutex_lock(&l->lock);
    while (!found && in_time) {
        for (found = l->in_work; found && !found->news; found = found->next)
            ;
        if (!found)
            in_time = pthread_cond_timedwait(&l->changed, &l->lock, deadline) == 0;
    }
    if (found)
        found->news = false;
    pthread_mutex_unlock(&l->lock);
    return found;
}

static void take_out(struct phi_local *l, struct local_exchange *x)
{
    struct local_exchange **at = &l->in_work;
    while (*at != x)
        at = &(*at)->next;
    *at = x->next;
}

bool phi_local_next(struct phi_local *l, struct phi_local_answer *out, int timeout_ms)
{
    struct timespec deadline;
    struct local_exchange *x;
    clock_gettime(CLOCK_MONOTONIC, &deadline);
    deadline.tv_sec += timeout_ms / 1000;
    deadline.tv_nsec += timeout_ms % 1000 * 1000000L;
    if (deadline.tv_nsec >= 1000000000L) {
        deadline.tv_sec++;
        deadline.tv_nsec -= 1000000000L;
    }
    while (l->in_work && (x = wait_for_news(l, &deadline)) != NULL) {
        if (!pull(x))
            continue;
        take_out(l, x);
        *out = x->answer;
        end(x);
        return true;
    }
    return false;
}
