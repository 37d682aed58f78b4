/* How a program that waits for many requests at once learns of their news, what it can count, and
 * when it is told to come back later. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
#include <stdatomic.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "engine_fixture.h"

static const int32_t prompt[] = {1, 2, 3, 4};
enum { N_PROMPT = 4 };

/* ---------------------------------------------------------------- what is told */

/* Freed by whoever hears the end, as a server frees its connection: a later touch is seen by the
 * address sanitizer. */
struct listener {
    atomic_int *n_events, *n_ends;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int n_told;
    bool ended;
};

static void tell(void *context, bool ended)
{
    struct listener *l = context;
    atomic_fetch_add(ended ? l->n_ends : l->n_events, 1);
    pthread_mutex_lock(&l->lock);
    assert_false(l->ended);
    l->n_told += !ended;
    l->ended = ended;
    pthread_cond_signal(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

static struct listener *listener_new(atomic_int *n_events, atomic_int *n_ends)
{
    struct listener *l = calloc(1, sizeof *l);
    l->n_events = n_events;
    l->n_ends = n_ends;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, NULL);
    return l;
}

static void listener_free(struct listener *l)
{
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->changed);
    free(l);
}

static struct phi_request *submit_to(struct phi_engine *e, const struct phi_sampling *s,
                                     struct listener *l)
{
    struct phi_request *r;
    struct phi_error err;
    struct phi_request_options o = {.notify = tell, .notify_context = l};
    if (phi_request_submit(e, prompt, N_PROMPT, s, &o, &r, &err) != PHI_OK)
        fail_msg("%s", err.text);
    return r;
}

/* Waits for what it is told and takes one event for each time. Returns the number of events. */
static int follow(struct phi_request *r, struct listener *l)
{
    struct phi_event ev = {0};
    int n_taken = 0;
    for (bool ended = false; !ended;) {
        pthread_mutex_lock(&l->lock);
        while (l->n_told == n_taken && !l->ended)
            pthread_cond_wait(&l->changed, &l->lock);
        ended = l->ended;
        int n_told = l->n_told;
        pthread_mutex_unlock(&l->lock);
        for (; n_taken < n_told; n_taken++)
            assert_int_equal(phi_request_next(r, &ev, 0), 1);
    }
    assert_true(ev.last);
    assert_int_equal(phi_request_next(r, &ev, 0), -1);
    phi_request_release(r);
    listener_free(l);
    return n_taken;
}

static void test_one_call_for_each_event(void **state)
{
    (void)state;
    struct phi_model *m = open_model(golden_dir("phi3-gqa"), PHI_FLOAT32, 1);
    struct phi_engine *e = create_engine(m, NULL);
    struct phi_sampling s = greedy(40);
    s.temperature = 1;
    for (int n = 1; n <= 4; n += 3) {
        atomic_int n_events = 0, n_ends = 0;
        struct listener *l = listener_new(&n_events, &n_ends);
        s.n = n;
        int n_taken = follow(submit_to(e, &s, l), l);
        assert_int_equal(n_taken, atomic_load(&n_events));
        assert_true(n_taken >= n && n_taken <= n * 40);
        assert_int_equal(atomic_load(&n_ends), 1);
    }
    phi_engine_destroy(e);
    phi_model_close(m);
    assert_int_equal(phi_alloc_violations(), 0);
}

/* ---------------------------------------------------------------- a busy engine */

/* However a request ends, its end is told once: cancelled before it began, released unread, or
 * under an engine that goes. A request that was refused is never told of. */
static void test_the_end_is_told_once(void **state)
{
    (void)state;
    enum { N = 6 };
    struct phi_model *m = open_model(golden_dir("phi3-gqa"), PHI_FLOAT32, 1);
    struct phi_engine *e = create_engine(m, NULL);
    struct phi_sampling s = greedy(100), bad = s, many = s;
    struct phi_request *r[N];
    struct listener *l[N];
    struct held h;
    struct phi_event ev;
    atomic_int n_events = 0, n_ends = 0;
    many.n = 3;
    many.temperature = 1;
    bad.top_p = 2;
    hold_engine(&h, e);
    for (int i = 0; i < N; i++) {
        l[i] = listener_new(&n_events, &n_ends);
        r[i] = submit_to(e, i == 1 ? &many : &s, l[i]);
    }
    struct phi_request_options o = {.notify = tell, .notify_context = NULL};
    struct phi_request *none;
    assert_int_equal(phi_request_submit(e, prompt, N_PROMPT, &bad, &o, &none, NULL),
                     PHI_ERR_INVALID);
    for (int i = 0; i < 3; i++)
        phi_request_cancel(r[i]);
    let_engine_go(&h);
    for (int i = 0; i < 3; i++) {
        struct phi_request_stats stats;
        while (phi_request_next(r[i], &ev, -1) == 1)
            assert_true(ev.finish == PHI_FINISH_ABORT && ev.n_tokens == 0);
        phi_request_get_stats(r[i], &stats);
        assert_true(stats.queue_s == 0 && stats.first_token_s == 0 && stats.end_s > 0);
        phi_request_release(r[i]);
    }
    phi_request_release(r[3]); /* unread */
    phi_engine_destroy(e);
    assert_int_equal(atomic_load(&n_ends), N);
    for (int i = 4; i < N; i++) {
        while (phi_request_next(r[i], &ev, 0) == 1)
            ;
        assert_true(ev.last);
        phi_request_release(r[i]);
    }
    for (int i = 0; i < N; i++) {
        assert_true(l[i]->ended);
        listener_free(l[i]);
    }
    phi_model_close(m);
    assert_int_equal(phi_alloc_violations(), 0);
}

static void test_full_queue(void **state)
{
    (void)state;
    enum { MOST = 3 };
    struct phi_model *m = open_model(golden_dir("phi3-gqa"), PHI_FLOAT32, 1);
    struct phi_engine_options o;
    phi_engine_options_init(&o);
    o.max_waiting = MOST;
    struct phi_engine *e = create_engine(m, &o);
    struct answer *a = malloc(2 * sizeof *a);
    struct phi_sampling s = greedy(5), bad = s, many = s;
    struct phi_request *r[MOST], *refused;
    struct phi_error err;
    struct phi_engine_stats stats;
    struct held h;
    many.n = 2;
    many.temperature = 1;
    bad.n = 0;
    for (int round = 0; round < 3; round++) {
        hold_engine(&h, e);
        for (int i = 0; i < MOST; i++) /* a refused request leaves its place */
            assert_int_equal(phi_request_submit(e, prompt, N_PROMPT, &bad, NULL, &refused, NULL),
                             PHI_ERR_INVALID);
        for (int i = 0; i < MOST; i++) /* answers do not count */
            r[i] = submit(e, prompt, N_PROMPT, i == 0 ? &many : &s);
        assert_int_equal(phi_request_submit(e, prompt, N_PROMPT, &s, NULL, &refused, &err),
                         PHI_ERR_BUSY);
        assert_null(refused);
        assert_string_equal(err.text, "The engine is busy: 3 requests wait for their first step, "
                                      "and no more may wait. Try again later.");
        phi_engine_get_stats(e, &stats);
        assert_int_equal(stats.n_waiting, MOST + 1);
        if (round == 1)
            phi_request_cancel(r[1]); /* leaves its place without a first step */
        let_engine_go(&h);
        for (int i = 0; i < MOST; i++)
            collect(r[i], a, i == 0 ? 2 : 1);
    }
    struct phi_engine *impossible;
    o.max_waiting = -1;
    assert_int_equal(phi_engine_create(m, &o, &impossible, &err), PHI_ERR_INVALID);
    phi_engine_destroy(e);
    phi_model_close(m);
    free(a);
}

/* ---------------------------------------------------------------- what is counted */

static uint64_t n_observed(const struct phi_histogram *h)
{
    uint64_t n = 0;
    for (size_t i = 0; i <= h->n; i++)
        n += h->counts[i];
    return n;
}

static void test_counters(void **state)
{
    (void)state;
    enum { N = 33, OUT = 10 };
    struct phi_model *m = open_model(golden_dir("phi3-gqa"), PHI_FLOAT32, 1);
    struct phi_engine_options o;
    phi_engine_options_init(&o);
    o.block_size = 16;
    struct phi_engine *e = create_engine(m, &o);
    struct answer *a = malloc(2 * sizeof *a);
    struct phi_engine_stats stats;
    struct phi_request_stats of_request;
    struct phi_event ev;
    int32_t ids[N];
    for (int i = 0; i < N; i++)
        ids[i] = i;
    struct phi_sampling s = greedy(OUT);
    phi_engine_get_stats(e, &stats);
    assert_int_equal(stats.n_steps + stats.n_prompt_tokens + n_observed(&stats.inter_token_s), 0);
    assert_int_equal(stats.iteration_tokens.n, 13);
    assert_int_equal(stats.inter_token_s.n, 19);

    run(e, ids, N, &s, a);
    phi_engine_get_stats(e, &stats);
    assert_int_equal(stats.n_running + stats.n_waiting, 0);
    assert_true(stats.kv_usage == 0);
    assert_int_equal(stats.n_prompt_tokens, N);
    assert_int_equal(stats.n_cached_prompt_tokens, 0);
    assert_int_equal(stats.n_generated_tokens, OUT);
    assert_int_equal(stats.n_steps, OUT); /* the prompt's step gives the first token */
    assert_int_equal(n_observed(&stats.iteration_tokens), OUT);
    assert_int_equal(stats.iteration_tokens.counts[0], OUT - 1); /* one row: at most 1 */
    assert_int_equal(stats.iteration_tokens.counts[4], 1);       /* 33 rows: at most 64 */
    assert_true(stats.iteration_tokens.sum == N + OUT - 1);
    assert_int_equal(n_observed(&stats.inter_token_s), OUT - 1);
    assert_true(stats.inter_token_s.sum > 0);

    /* The same prompt again, for two answers: its two full blocks are there. It counts once. */
    s.n = 2;
    s.temperature = 1;
    struct phi_request *r = submit(e, ids, N, &s);
    do
        assert_int_equal(phi_request_next(r, &ev, -1), 1);
    while (!ev.last);
    phi_request_get_stats(r, &of_request);
    assert_int_equal(of_request.n_cached_tokens, 32);
    assert_int_equal(of_request.n_preemptions, 0);
    assert_int_equal(of_request.n_output_tokens, 2 * OUT);
    phi_request_release(r);
    phi_engine_get_stats(e, &stats);
    assert_int_equal(stats.n_prompt_tokens, 2 * N);
    assert_int_equal(stats.n_cached_prompt_tokens, 32);
    assert_int_equal(stats.n_generated_tokens, 3 * OUT);
    assert_int_equal(n_observed(&stats.inter_token_s), 3 * (OUT - 1));
    phi_engine_destroy(e);
    phi_model_close(m);
    free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_call_for_each_event),
        cmocka_unit_test(test_the_end_is_told_once),
        cmocka_unit_test(test_full_queue),
        cmocka_unit_test(test_counters),
    };
    return cmocka_run_group_tests_name("engine/notify", tests, NULL, NULL);
}
