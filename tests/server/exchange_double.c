/* exchange_double.c: see exchange_double.h. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "exchange_double.h"
#include "server/api/routes.h"

#include <strings.h>

struct phi_http_side {
    struct phi_exchange x;
    const struct question *question; /* while it is asked */
    struct reply *reply;
    atomic_int n_references;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool news;
};

static atomic_int n_alive;

int exchanges_alive(void)
{
    return atomic_load(&n_alive);
}

void wait_for_exchanges(void)
{
    for (int i = 0; i < 60000 && exchanges_alive() > 0; i++)
        usleep(1000);
    assert_int_equal(exchanges_alive(), 0);
}

/* ---------------------------------------------------------------- exchange.h */

static struct phi_str carry_header(const struct phi_exchange *x, const char *name)
{
    const struct question *q = x->side->question;
    const char *value = NULL;
    if (strcasecmp(name, "Content-Type") == 0)
        value = q->content_type ? q->content_type : "application/json";
    else if (strcasecmp(name, "X-Request-Id") == 0)
        value = q->request_id;
    return value ? phi_str_from(value) : (struct phi_str){"", 0};
}

static void carry_answer(struct phi_exchange *x, int http_status, const char *content_type,
                         struct phi_buf *body)
{
    struct reply *r = x->side->reply;
    assert_int_equal(r->status, 0);
    r->status = body->failed ? 500 : http_status;
    snprintf(r->content_type, sizeof r->content_type, "%s", content_type);
    r->body = *body;
    *body = (struct phi_buf){0};
}

static void carry_add_header(struct phi_exchange *x, const char *name, const char *value)
{
    struct reply *r = x->side->reply;
    assert_int_equal(r->status, 0);
    assert_true(r->n_headers < MAX_HEADERS);
    snprintf(r->headers[r->n_headers][0], 64, "%s", name);
    snprintf(r->headers[r->n_headers++][1], 64, "%s", value);
}

static void carry_stream(struct phi_exchange *x)
{
    assert_non_null(x->job);
    assert_int_equal(x->side->reply->status, 0);
    x->side->reply->status = 200;
    x->side->reply->is_stream = true;
}

static void carry_wake(struct phi_exchange *x)
{
    pthread_mutex_lock(&x->side->lock);
    x->side->news = true;
    pthread_cond_signal(&x->side->changed);
    pthread_mutex_unlock(&x->side->lock);
}

static void carry_acquire(struct phi_exchange *x)
{
    atomic_fetch_add(&x->side->n_references, 1);
}

static void carry_release(struct phi_exchange *x)
{
    struct phi_http_side *side = x->side;
    if (atomic_fetch_sub(&side->n_references, 1) != 1)
        return;
    phi_buf_deinit(&x->body);
    phi_buf_deinit(&x->stream);
    pthread_mutex_destroy(&side->lock);
    pthread_cond_destroy(&side->changed);
    free(side);
    atomic_fetch_sub(&n_alive, 1);
}

static const struct phi_carrier double_carrier = {
    .header = carry_header,
    .answer = carry_answer,
    .add_header = carry_add_header,
    .stream = carry_stream,
    .wake = carry_wake,
    .acquire = carry_acquire,
    .release = carry_release,
};

/* ---------------------------------------------------------------- asking */

static void wait_for_news(struct phi_http_side *side)
{
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += 60;
    pthread_mutex_lock(&side->lock);
    while (!side->news)
        if (pthread_cond_timedwait(&side->changed, &side->lock, &deadline) != 0)
            fail_msg("a job waits for a wake that does not come");
    pthread_mutex_unlock(&side->lock);
}

static void forget_news(struct phi_http_side *side)
{
    pthread_mutex_lock(&side->lock);
    side->news = false;
    pthread_mutex_unlock(&side->lock);
}

/* As http.c pulls: the stream is emptied before each pull; a job that waits is pulled after a wake.
 */
static void run_job(struct phi_http_side *side)
{
    struct phi_exchange *x = &side->x;
    enum phi_job_state state = PHI_JOB_MORE;
    while (state != PHI_JOB_DONE) {
        side->reply->n_pulls++;
        if (side->reply->n_pulls == side->question->cancel_at_pull)
            x->job->cancel(x->job);
        if (side->reply->n_pulls == side->question->drop_at_pull)
            break;
        phi_buf_clear(&x->stream);
        forget_news(side);
        state = x->job->pull(x, x->job);
        side->reply->body.failed |= x->stream.failed;
        if (side->reply->is_stream)
            phi_buf_append_str(&side->reply->body, phi_buf_str(&x->stream));
        else
            assert_int_equal(x->stream.n, 0);
        if (state == PHI_JOB_WAIT)
            wait_for_news(side);
    }
    x->job->free(x->job);
    x->job = NULL;
}

void ask(struct phi_server *s, const struct question *q, struct reply *out)
{
    struct phi_http_side *side = calloc(1, sizeof *side);
    static atomic_int counter;
    *out = (struct reply){0};
    assert_non_null(side);
    atomic_fetch_add(&n_alive, 1);
    atomic_init(&side->n_references, 1);
    pthread_mutex_init(&side->lock, NULL);
    pthread_cond_init(&side->changed, NULL);
    side->question = q;
    side->reply = out;
    struct phi_exchange *x = &side->x;
    x->side = side;
    x->carrier = &double_carrier;
    x->server = s;
    x->peer = "unix";
    x->method = phi_str_from(q->method);
    x->path = phi_str_from(q->path);
    snprintf(x->request_id, sizeof x->request_id, "%s%d", q->request_id ? q->request_id : "random",
             q->request_id ? 0 : atomic_fetch_add(&counter, 1));
    if (q->request_id)
        snprintf(x->request_id, sizeof x->request_id, "%s", q->request_id);
    if (q->body)
        phi_buf_append_c(&x->body, q->body);
    phi_route(x);
    if (x->job)
        run_job(side);
    if (out->status == 0 && !q->drop_at_pull)
        fail_msg("%s %s was not answered", q->method, q->path);
    out->n_allocations = phi_alloc_count();
    phi_alloc_fail_nth(0);
    json_error_t ignored;
    if (!out->is_stream && out->body.data)
        out->json = json_loadb(out->body.data, out->body.n, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES,
                               &ignored);
    phi_exchange_release(x);
}

void post(struct phi_server *s, const char *path, const char *body, struct reply *out)
{
    ask(s, &(struct question){.method = "POST", .path = path, .body = body}, out);
}

void get(struct phi_server *s, const char *path, struct reply *out)
{
    ask(s, &(struct question){.method = "GET", .path = path}, out);
}

void reply_deinit(struct reply *r)
{
    phi_buf_deinit(&r->body);
    json_decref(r->json);
    *r = (struct reply){0};
}

const char *reply_header(const struct reply *r, const char *name)
{
    for (int i = 0; i < r->n_headers; i++)
        if (strcasecmp(r->headers[i][0], name) == 0)
            return r->headers[i][1];
    return NULL;
}

/* ---------------------------------------------------------------- streams */

/* The data of event i; n 0 behind the last. */
static struct phi_str event_data(const struct reply *r, size_t i)
{
    const char *at = r->body.data, *end = at + r->body.n;
    for (;; i--) {
        const char *stop = at < end ? strstr(at, "\n\n") : NULL;
        if (!stop)
            return (struct phi_str){NULL, 0};
        if (strncmp(at, "data: ", 6) != 0 || memchr(at, '\n', (size_t)(stop - at)))
            fail_msg("not an event: %.*s", (int)(stop - at), at);
        if (i == 0)
            return (struct phi_str){at + 6, (size_t)(stop - at) - 6};
        at = stop + 2;
    }
}

size_t reply_n_events(const struct reply *r)
{
    size_t n = 0;
    assert_true(r->is_stream);
    assert_true(phi_str_ends_with(phi_buf_str(&r->body), PHI_STR("\n\ndata: [DONE]\n\n")));
    while (!phi_str_eq_c(event_data(r, n), "[DONE]"))
        n++;
    assert_null(event_data(r, n + 1).data);
    return n;
}

json_t *reply_event(const struct reply *r, size_t i)
{
    struct phi_str data = event_data(r, i);
    json_error_t error;
    if (!data.data || phi_str_eq_c(data, "[DONE]"))
        return NULL;
    json_t *event = json_loadb(data.data, data.n, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &error);
    if (!event)
        fail_msg("event %zu: %s: %.*s", i, error.text, (int)data.n, data.data);
    return event;
}
