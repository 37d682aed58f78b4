/* test_threads.c: the worker pool: every index once per job, what jobs write is seen by the owner,
 * sleeping workers wake up, and the split of work. Meant to run under a thread sanitizer as well.
 */
#include "base/threads.h"
#include "base/alloc.h"
#include "base/clock.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <cmocka.h>

enum { MAX_THREADS = 16 };

/* Plain (not atomic) counters: a missing barrier is a data race that a sanitizer reports. */
struct job {
    int n_runs[MAX_THREADS];
    int n_threads_seen[MAX_THREADS];
    pthread_t who[MAX_THREADS];
};

static void count(void *context, int thread, int n_threads)
{
    struct job *job = context;
    job->n_runs[thread]++;
    job->n_threads_seen[thread] = n_threads;
    job->who[thread] = pthread_self();
}

static void test_each_index_once(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3,
                                4, 7, MAX_THREADS}; /* also more than there are processors */
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        struct phi_pool *pool;
        struct job job = {0};
        int n = sizes[s], n_jobs = 200;
        assert_int_equal(phi_pool_create(n, NULL, &pool, NULL), PHI_OK);
        assert_int_equal(phi_pool_n_threads(pool), n);
        for (int i = 0; i < n_jobs; i++)
            phi_pool_run(pool, count, &job);
        for (int t = 0; t < n; t++) {
            assert_int_equal(job.n_runs[t], n_jobs);
            assert_int_equal(job.n_threads_seen[t], n);
            for (int u = 0; u < t; u++)
                assert_false(pthread_equal(job.who[t], job.who[u]));
        }
        assert_true(pthread_equal(job.who[0], pthread_self()));
        phi_pool_destroy(pool);
    }
}

/* Each job reads what all threads wrote in the job before: run() is a barrier in both directions.
 */
struct ring {
    long values[2][MAX_THREADS];
    int turn;
};

static void pass_on(void *context, int thread, int n_threads)
{
    struct ring *r = context;
    long sum = 0;
    for (int t = 0; t < n_threads; t++)
        sum += r->values[r->turn][t];
    r->values[1 - r->turn][thread] = sum % 1000003 + thread;
}

static void test_jobs_see_the_last_job(void **state)
{
    (void)state;
    struct phi_pool *pool;
    struct ring r = {.values = {{1}}}, expected = {.values = {{1}}};
    assert_int_equal(phi_pool_create(4, NULL, &pool, NULL), PHI_OK);
    for (int i = 0; i < 2000; i++) {
        phi_pool_run(pool, pass_on, &r);
        for (int t = 0; t < 4; t++)
            pass_on(&expected, t, 4);
        r.turn = expected.turn = 1 - r.turn;
        assert_memory_equal(r.values[r.turn], expected.values[r.turn], sizeof r.values[0]);
    }
    phi_pool_destroy(pool);
}

static void test_sleepers_wake(void **state)
{
    (void)state;
    struct phi_pool *pool;
    struct job job = {0};
    assert_int_equal(phi_pool_create(3, NULL, &pool, NULL), PHI_OK);
    for (int i = 0; i < 20; i++) {
        struct timespec pause = {.tv_nsec = (long)(i % 5) * 4000000};
        nanosleep(&pause, NULL);
        phi_pool_run(pool, count, &job);
    }
    for (int t = 0; t < 3; t++)
        assert_int_equal(job.n_runs[t], 20);
    phi_pool_destroy(pool);
}

static double cpu_s(void)
{
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
           (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) * 1e-6;
}

static void test_idle_costs_nothing(void **state)
{
    (void)state;
    struct phi_pool *pool;
    struct job job = {0};
    struct timespec pause = {.tv_nsec = 300000000};
    assert_int_equal(phi_pool_create(4, NULL, &pool, NULL), PHI_OK);
    phi_pool_run(pool, count, &job);
    double before = cpu_s();
    nanosleep(&pause, NULL);
    assert_true(cpu_s() - before < 0.1); /* three spinning workers would use up to 0.9 s */
    phi_pool_destroy(pool);
}

static atomic_int n_started;

static void on_start(void)
{
    atomic_fetch_add(&n_started, 1);
}

static void test_on_start(void **state)
{
    (void)state;
    struct phi_pool *pool;
    struct job job = {0};
    atomic_store(&n_started, 0);
    assert_int_equal(phi_pool_create(5, on_start, &pool, NULL), PHI_OK);
    phi_pool_run(pool, count, &job);
    assert_int_equal(atomic_load(&n_started), 5); /* all before the first job ended */
    phi_pool_destroy(pool);
}

static void test_create_and_destroy(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) { /* without a job: workers may not have begun to run */
        struct phi_pool *pool;
        assert_int_equal(phi_pool_create(1 + i % 6, NULL, &pool, NULL), PHI_OK);
        phi_pool_destroy(pool);
    }
    phi_pool_destroy(NULL);
}

static void test_bad_counts(void **state)
{
    (void)state;
    static const int counts[] = {-1, 0, 1025, 1 << 30};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct phi_pool *pool = (struct phi_pool *)&pool;
        struct phi_error err;
        assert_int_equal(phi_pool_create(counts[i], NULL, &pool, &err), PHI_ERR_INVALID);
        assert_null(pool);
        assert_non_null(strstr(err.text, "between 1 and 1024"));
    }
}

static void test_out_of_memory(void **state)
{
    (void)state;
    for (long nth = 1; nth <= 2; nth++) {
        struct phi_pool *pool;
        struct phi_error err;
        phi_alloc_fail_nth(nth);
        enum phi_status status = phi_pool_create(3, NULL, &pool, &err);
        phi_alloc_fail_nth(0);
        assert_int_equal(status, PHI_ERR_MEMORY);
        assert_null(pool);
    }
}

static void check_signals(void *context, int thread, int n_threads)
{
    (void)n_threads;
    sigset_t set;
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    ((int *)context)[thread] = sigismember(&set, SIGINT);
}

/* An interrupt goes to the thread that can act on it, never to a worker. */
static void test_workers_block_signals(void **state)
{
    (void)state;
    struct phi_pool *pool;
    int blocked[3] = {-1, -1, -1};
    assert_int_equal(phi_pool_create(3, NULL, &pool, NULL), PHI_OK);
    phi_pool_run(pool, check_signals, blocked);
    assert_int_equal(blocked[0], 0);
    assert_int_equal(blocked[1], 1);
    assert_int_equal(blocked[2], 1);
    phi_pool_destroy(pool);
}

/* The parts are whole grains, in order, without holes, and differ by at most one grain. */
static void test_split(void **state)
{
    (void)state;
    static const size_t counts[] = {0, 1, 7, 8, 9, 63, 64, 65, 1000, 51200};
    static const size_t grains[] = {1, 8, 16, 6};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (size_t g = 0; g < sizeof grains / sizeof *grains; g++)
            for (int n_threads = 1; n_threads <= 9; n_threads++) {
                size_t next = 0, smallest = SIZE_MAX, largest = 0;
                for (int t = 0; t < n_threads; t++) {
                    size_t begin, end;
                    phi_split(counts[c], grains[g], t, n_threads, &begin, &end);
                    assert_int_equal(begin, next);
                    assert_true(end >= begin && (end % grains[g] == 0 || end == counts[c]));
                    size_t n_grains = (end - begin + grains[g] - 1) / grains[g];
                    smallest = n_grains < smallest ? n_grains : smallest;
                    largest = n_grains > largest ? n_grains : largest;
                    next = end;
                }
                assert_int_equal(next, counts[c]);
                assert_true(largest - smallest <= 1);
            }
}

static void test_n_cores(void **state)
{
    (void)state;
    cpu_set_t all, one;
    int n = phi_n_cores();
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    assert_in_range(n, 1, CPU_COUNT(&all));
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all)) { /* the affinity mask is respected */
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
            assert_int_equal(phi_n_cores(), 1);
            break;
        }
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_index_once),
        cmocka_unit_test(test_jobs_see_the_last_job),
        cmocka_unit_test(test_sleepers_wake),
        cmocka_unit_test(test_idle_costs_nothing),
        cmocka_unit_test(test_on_start),
        cmocka_unit_test(test_create_and_destroy),
        cmocka_unit_test(test_bad_counts),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_workers_block_signals),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_n_cores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
