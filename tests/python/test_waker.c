/* test_waker.c: the C part of the Python package: no news is lost, none is told twice, nothing is
 * left behind, whatever fails. */
#include "waker.h"
#include "base/alloc.h"
#include "engine_fixture.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

enum { N_REQUESTS = 40, N_NEWS = 7 };

static const int32_t prompt[] = {5, 6, 7, 8};

struct world {
    struct phi_model *model;
    struct phi_engine *engine;
    struct phi_waker *waker;
};

static struct world open_world(void)
{
    struct world w = {.model = open_model(golden_dir("phi3-gqa"), PHI_FLOAT32, 1)};
    w.engine = create_engine(w.model, NULL);
    assert_int_equal(phi_waker_create(&w.waker, NULL), PHI_OK);
    return w;
}

static void close_world(struct world *w)
{
    phi_engine_destroy(w->engine);
    phi_model_close(w->model);
    phi_waker_destroy(w->waker);
}

static bool is_readable(const struct phi_waker *w, int timeout_ms)
{
    struct pollfd p = {.fd = phi_waker_fd(w), .events = POLLIN};
    return poll(&p, 1, timeout_ms) == 1;
}

static enum phi_status submit_to(struct world *w, int64_t id, bool each_event, int max_tokens,
                                 struct phi_request **out)
{
    struct phi_sampling s = greedy(max_tokens);
    return phi_waker_submit(w->waker, id, each_event, w->engine, prompt, 4, &s,
                            &(struct phi_request_options){0}, out, NULL);
}

/* Half of the requests tell of each event, half of their end only; the list is taken in pieces that
 * are smaller than it may be. */
static void test_all_news(void **state)
{
    (void)state;
    struct world w = open_world();
    struct phi_request *requests[N_REQUESTS];
    int n_told[N_REQUESTS] = {0}, n_ended[N_REQUESTS] = {0}, n_tokens[N_REQUESTS] = {0}, n_left = N_REQUESTS;
    assert_false(is_readable(w.waker, 0));
    for (int i = 0; i < N_REQUESTS; i++)
        assert_int_equal(submit_to(&w, i, i % 2, 1 + i % 9, &requests[i]), PHI_OK);
    while (n_left > 0) {
        struct phi_news news[N_NEWS];
        struct phi_event ev;
        assert_true(is_readable(w.waker, 60000));
        size_t n = phi_waker_take(w.waker, news, N_NEWS);
        for (size_t k = 0; k < n; k++) {
            int64_t id = news[k].id;
            n_told[id]++;
            n_ended[id] += news[k].ended;
            n_left -= news[k].ended;
            while (phi_request_next(requests[id], &ev, 0) == 1)
                n_tokens[id] += (int)ev.n_tokens;
        }
    }
    for (int i = 0; i < N_REQUESTS; i++) {
        assert_int_equal(n_ended[i], 1);
        assert_int_equal(n_tokens[i], 1 + i % 9);
        assert_true(i % 2 ? n_told[i] >= 1 : n_told[i] == 1);
        phi_request_release(requests[i]);
    }
    assert_int_equal(phi_waker_n_live(w.waker), 0);
    assert_int_equal(phi_waker_take(w.waker, (struct phi_news[1]){0}, 1), 0);
    assert_false(is_readable(w.waker, 0));
    close_world(&w);
}

/* What nobody took is freed with the waker; released requests end too. */
static void test_left_alone(void **state)
{
    (void)state;
    struct world w = open_world();
    for (int i = 0; i < N_REQUESTS; i++) {
        struct phi_request *r;
        assert_int_equal(submit_to(&w, i, true, 50, &r), PHI_OK);
        phi_request_release(r);
    }
    while (phi_waker_n_live(w.waker) > 0)
        is_readable(w.waker, 1);
    close_world(&w);
}

static void test_refused(void **state)
{
    (void)state;
    struct world w = open_world();
    struct phi_request *r;
    assert_int_equal(submit_to(&w, 0, true, -1, &r), PHI_ERR_INVALID);
    assert_null(r);
    assert_int_equal(phi_waker_n_live(w.waker), 0);
    assert_false(is_readable(w.waker, 0));
    close_world(&w);
    phi_waker_destroy(NULL);
}

/* Each allocation of a submission fails once. */
static void test_no_memory(void **state)
{
    (void)state;
    struct world w = open_world();
    struct phi_waker *other;
    phi_alloc_fail_nth(1);
    assert_int_equal(phi_waker_create(&other, NULL), PHI_ERR_MEMORY);
    phi_alloc_fail_nth(0);
    assert_null(other);
    int n_refused = 0;
    for (long nth = 1;; nth++) {
        struct phi_request *r;
        phi_alloc_fail_nth(nth);
        enum phi_status status = submit_to(&w, nth, false, 1, &r);
        bool reached = phi_alloc_count() >= nth;
        phi_alloc_fail_nth(0);
        phi_request_release(r);
        if (status == PHI_OK && !reached)
            break;
        assert_true(status == PHI_OK || status == PHI_ERR_MEMORY);
        n_refused += status != PHI_OK;
    }
    assert_true(n_refused >= 3);
    while (phi_waker_n_live(w.waker) > 0)
        is_readable(w.waker, 1);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_news),
        cmocka_unit_test(test_left_alone),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
