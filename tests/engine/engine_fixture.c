/* engine_fixture.c: see engine_fixture.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "engine_fixture.h"

const char *golden_dir(const char *dir)
{
    static char path[1024];
    const char *tests = getenv("PHI_TESTS");
    snprintf(path, sizeof path, "%s/golden/%s", tests ? tests : "tests", dir);
    return path;
}

const char *model_dir(const char *name)
{
    static char path[1024];
    const char *models = getenv("PHI_MODELS");
    snprintf(path, sizeof path, "%s/%s", models ? models : "models", name);
    return path;
}

struct phi_model *open_model(const char *path, enum phi_dtype dtype, int n_threads)
{
    struct phi_model_options o;
    struct phi_model *m;
    struct phi_error err;
    phi_model_options_init(&o);
    o.path = path;
    o.dtype = dtype;
    o.n_threads = n_threads;
    if (phi_model_open(&o, &m, &err) != PHI_OK)
        fail_msg("%s", err.text);
    return m;
}

struct phi_engine *create_engine(struct phi_model *m, const struct phi_engine_options *o)
{
    struct phi_engine_options defaults;
    struct phi_engine *e;
    struct phi_error err;
    phi_engine_options_init(&defaults);
    if (phi_engine_create(m, o ? o : &defaults, &e, &err) != PHI_OK)
        fail_msg("%s", err.text);
    return e;
}

struct phi_sampling greedy(int max_tokens)
{
    struct phi_sampling s;
    phi_sampling_init(&s);
    s.temperature = 0;
    s.max_tokens = max_tokens;
    s.ignore_eos = true;
    return s;
}

struct phi_request *submit(struct phi_engine *e, const int32_t *ids, size_t n,
                           const struct phi_sampling *s)
{
    struct phi_request *r;
    struct phi_error err;
    if (phi_request_submit(e, ids, n, s, NULL, &r, &err) != PHI_OK)
        fail_msg("%s", err.text);
    return r;
}

static void append_event(struct answer *a, const struct phi_event *ev)
{
    assert_int_equal(a->finish, PHI_FINISH_NONE); /* nothing follows the end */
    assert_true(a->n_tokens + ev->n_tokens <= MAX_OUTPUT);
    assert_true(a->n_text + ev->text.n <= sizeof a->text);
    memcpy(a->tokens + a->n_tokens, ev->tokens, ev->n_tokens * sizeof *ev->tokens);
    memcpy(a->text + a->n_text, ev->text.data, ev->text.n);
    if (ev->n_logprobs > 0 && (a->n_tokens + ev->n_tokens) * ev->n_logprobs <= MAX_OUTPUT * 8)
        memcpy(a->logprobs + a->n_tokens * ev->n_logprobs, ev->logprobs,
               ev->n_tokens * ev->n_logprobs * sizeof *ev->logprobs);
    a->n_logprobs = ev->n_logprobs;
    a->n_tokens += ev->n_tokens;
    a->n_text += ev->text.n;
    a->finish = ev->finish;
    a->status = ev->status;
    a->stop_token = ev->stop_token;
    a->n_events++;
    if (ev->error)
        snprintf(a->error, sizeof a->error, "%s", ev->error);
    if (ev->stop_string.n > 0)
        snprintf(a->stop_string, sizeof a->stop_string, "%.*s", (int)ev->stop_string.n,
                 ev->stop_string.data);
}

void collect(struct phi_request *r, struct answer *answers, int n)
{
    struct phi_event ev;
    int n_finished = 0;
    memset(answers, 0, (size_t)n * sizeof *answers);
    do {
        assert_int_equal(phi_request_next(r, &ev, -1), 1);
        assert_true(ev.index >= 0 && ev.index < n);
        append_event(&answers[ev.index], &ev);
        n_finished += ev.finish != PHI_FINISH_NONE;
        assert_int_equal(ev.last, n_finished == n);
    } while (!ev.last);
    assert_int_equal(phi_request_next(r, &ev, -1), -1);
    phi_request_release(r);
}

void run(struct phi_engine *e, const int32_t *ids, size_t n, const struct phi_sampling *s,
         struct answer *out)
{
    collect(submit(e, ids, n, s), out, 1);
}

static int hold(void *context, size_t first_row, size_t n_rows, const float *logits)
{
    struct held *h = context;
    (void)first_row, (void)n_rows, (void)logits;
    pthread_mutex_lock(&h->lock);
    h->is_held = true;
    pthread_cond_broadcast(&h->changed);
    while (!h->let_go)
        pthread_cond_wait(&h->changed, &h->lock);
    pthread_mutex_unlock(&h->lock);
    return 0;
}

static void *held_main(void *arg)
{
    struct held *h = arg;
    const int32_t id = 1;
    phi_engine_logits(h->engine, &id, 1, hold, h, NULL);
    return NULL;
}

void hold_engine(struct held *h, struct phi_engine *e)
{
    *h = (struct held){.engine = e};
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->changed, NULL);
    pthread_create(&h->thread, NULL, held_main, h);
    pthread_mutex_lock(&h->lock);
    while (!h->is_held)
        pthread_cond_wait(&h->changed, &h->lock);
    pthread_mutex_unlock(&h->lock);
}

void let_engine_go(struct held *h)
{
    pthread_mutex_lock(&h->lock);
    h->let_go = true;
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
    pthread_join(h->thread, NULL);
    pthread_cond_destroy(&h->changed);
    pthread_mutex_destroy(&h->lock);
}
