/* test_cancel.c: how soon a request that nobody wants ends, and that its blocks are free when its
 * end is told. Steps are counted, not seconds: a step that was broken off does not count. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stdatomic.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "engine_fixture.h"

/* What the engine's counters say in the moment when the end is told. */
struct witness {
    struct phi_engine *engine;
    struct phi_engine_stats at_end;
    atomic_bool ended;
};

static void tell(void *context, bool ended)
{
    struct witness *w = context;
    if (!ended)
        return;
    phi_engine_get_stats(w->engine, &w->at_end);
    atomic_store(&w->ended, true);
}

static struct phi_request *submit_to(struct phi_engine *e, const int32_t *ids, size_t n,
                                     const struct phi_sampling *s, struct witness *w)
{
    struct phi_request_options o = {.notify = tell, .notify_context = w};
    struct phi_request *r;
    struct phi_error err;
    *w = (struct witness){.engine = e};
    if (phi_request_submit(e, ids, n, s, &o, &r, &err) != PHI_OK)
        fail_msg("%s", err.text);
    return r;
}

static void wait_for_end(struct phi_request *r, const struct witness *w)
{
    struct phi_event ev;
    while (phi_request_next(r, &ev, -1) == 1)
        ;
    while (!atomic_load(&w->ended))
        ;
    phi_request_release(r);
}

/* One of three that decode: the step under way is finished, no other begins with it. */
static void test_one_of_many(void **state)
{
    (void)state;
    enum { N_TRIALS = 30, N_OUTPUT = 120 };
    struct phi_model *m = open_model(golden_dir("phi3-gqa"), PHI_FLOAT32, 1);
    struct phi_engine_options o;
    struct phi_engine_info info;
    phi_engine_options_init(&o);
    o.block_size = 256; /* one block for each */
    o.enable_prefix_caching = false;
    struct phi_engine *e = create_engine(m, &o);
    phi_engine_get_info(e, &info);
    struct phi_sampling s = greedy(N_OUTPUT);
    int n_seen = 0;
    for (int trial = 0; trial < N_TRIALS; trial++) {
        const int32_t ids[] = {1, 2, trial};
        struct witness w[3];
        struct phi_request *r[3];
        struct phi_engine_stats after;
        struct phi_event ev = {0};
        for (int i = 0; i < 3; i++)
            r[i] = submit_to(e, ids, 3, &s, &w[i]);
        for (int i = 0; i < 3; i++)
            assert_int_equal(phi_request_next(r[i], &ev, -1), 1); /* all three run */
        phi_request_cancel(r[trial % 3]);
        phi_engine_get_stats(e, &after);
        wait_for_end(r[trial % 3], &w[trial % 3]);
        const struct phi_engine_stats *end = &w[trial % 3].at_end;
        assert_true(end->n_steps <= after.n_steps + 1);
        assert_int_equal(end->n_running, end->kv_usage * (double)(info.kv_tokens / 256) + 0.5);
        n_seen += end->n_running == 2;
        for (int i = 0; i < 3; i++)
            if (i != trial % 3)
                wait_for_end(r[i], &w[i]);
    }
    assert_true(n_seen > N_TRIALS / 4); /* a fast machine may end some before */
    phi_engine_destroy(e);
    phi_model_close(m);
}

/* A prompt that is a step of its own: the step is broken off, and its blocks are free. */
static void test_dominating_prompt(void **state)
{
    (void)state;
    enum { N_TRIALS = 20, N = 448 };
    char path[1024];
    const char *models = getenv("PHI_MODELS");
    snprintf(path, sizeof path, "%s/phi-tiny-code", models ? models : "models");
    struct phi_model *m = open_model(path, PHI_FLOAT32, 1);
    struct phi_engine *e = create_engine(m, NULL);
    struct phi_sampling s = greedy(4);
    int32_t ids[N];
    int n_broken_off = 0;
    for (int trial = 0; trial < N_TRIALS && n_broken_off == 0; trial++) {
        struct phi_engine_stats before, now;
        struct witness w;
        for (int i = 0; i < N; i++)
            ids[i] = (i * 7 + trial) % 400;
        phi_engine_get_stats(e, &before);
        struct phi_request *r = submit_to(e, ids, N, &s, &w);
        do
            phi_engine_get_stats(e, &now);
        while (now.kv_usage == 0 && !atomic_load(&w.ended)); /* planned: its step begins */
        phi_request_cancel(r);
        wait_for_end(r, &w);
        n_broken_off += w.at_end.n_steps == before.n_steps;
        assert_true(w.at_end.kv_usage == 0 && w.at_end.n_running == 0);
    }
    assert_true(n_broken_off > 0);
    phi_engine_destroy(e);
    phi_model_close(m);
    assert_int_equal(phi_alloc_violations(), 0);
}

/* One whose steps are shared by long prompts that are cancelled one after the other in the middle of
 * them. */
struct companion {
    struct phi_engine *engine;
    struct phi_request *prompts[3];
    int n_begun;
};

static int ignore_logits(void *context, size_t first_row, size_t n_rows, const float *logits)
{
    (void)context, (void)first_row, (void)n_rows, (void)logits;
    return 0;
}

static void cancel_one(void *context, const char *name, size_t first_row, size_t n_rows,
                       size_t n_cols, const float *data)
{
    struct companion *c = context;
    (void)first_row, (void)n_rows, (void)n_cols, (void)data;
    if (strcmp(name, "hidden.1") == 0 && c->n_begun < 3)
        phi_request_cancel(c->prompts[c->n_begun++]);
}

static void *companion_main(void *arg)
{
    struct companion *c = arg;
    static const int32_t ids[] = {1, 2, 3};
    struct phi_error err;
    if (phi_engine_trace(c->engine, ids, 3, ignore_logits, cancel_one, c, &err) != PHI_OK)
        fail_msg("%s", err.text);
    return NULL;
}

static void wait_for_waiting(struct phi_engine *e, int n)
{
    struct phi_engine_stats now;
    do
        phi_engine_get_stats(e, &now);
    while (now.n_waiting != n);
}

/* The first such step is broken off, the second one is not: the others move on. */
static void test_others_move_on(void **state)
{
    (void)state;
    enum { N = 448 };
    char path[1024];
    const char *models = getenv("PHI_MODELS");
    snprintf(path, sizeof path, "%s/phi-tiny-code", models ? models : "models");
    struct phi_model *m = open_model(path, PHI_FLOAT32, 2);
    struct companion c = {.engine = create_engine(m, NULL)};
    struct phi_sampling s = greedy(4);
    struct phi_engine_stats before, after;
    struct held held;
    pthread_t thread;
    int32_t ids[N];
    hold_engine(&held, c.engine);
    phi_engine_get_stats(c.engine, &before);
    pthread_create(&thread, NULL, companion_main, &c);
    wait_for_waiting(c.engine, 1);
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < N; j++)
            ids[j] = (j * 7 + i) % 400;
        c.prompts[i] = submit(c.engine, ids, N, &s);
    }
    let_engine_go(&held);
    pthread_join(thread, NULL);
    phi_engine_get_stats(c.engine, &after);
    assert_int_equal(c.n_begun, 2);
    assert_true(after.n_steps >= before.n_steps + 1);
    for (int i = 0; i < 3; i++)
        phi_request_release(c.prompts[i]);
    phi_engine_destroy(c.engine);
    phi_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_of_many),
        cmocka_unit_test(test_dominating_prompt),
        cmocka_unit_test(test_others_move_on),
    };
    return cmocka_run_group_tests_name("engine/cancel", tests, NULL, NULL);
}
