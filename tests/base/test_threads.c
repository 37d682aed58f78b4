/* test_threads.c: the worker pool: every item once, what jobs write is seen by the owner, sleeping
 * workers wake up, absent ones are not waited for. Meant to run under a thread sanitizer as well.
 */
#include "base/threads.h"
#include "base/alloc.h"
#include "base/clock.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <cmocka.h>

enum { MAX_THREADS = 16, MAX_ITEMS = 1000 };

/* Plain (not atomic) counters: a missing barrier is a data race that a sanitizer reports. */
struct job {
    int n_runs[MAX_ITEMS];
    int thread_of[MAX_ITEMS];
};

static void count(void *context, size_t item, int thread)
{
    struct job *job = context;
    job->n_runs[item]++;
    job->thread_of[item] = thread;
}

static void test_each_item_once(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 7, MAX_THREADS}; /* also more than there are processors */
    static const size_t counts[] = {0, 1, 2, 3, 15, 16, 17, MAX_ITEMS};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        struct phi_pool *pool;
        assert_int_equal(phi_pool_create(sizes[s], NULL, &pool, NULL), PHI_OK);
        assert_int_equal(phi_pool_n_threads(pool), sizes[s]);
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            struct job job = {0};
            int n_jobs = 100;
            for (int i = 0; i < n_jobs; i++)
                phi_pool_run(pool, counts[c], count, &job);
            for (size_t item = 0; item < MAX_ITEMS; item++) {
                assert_int_equal(job.n_runs[item], item < counts[c] ? n_jobs : 0);
                assert_in_range(job.thread_of[item], 0, sizes[s] - 1);
            }
        }
        phi_pool_destroy(pool);
    }
}

static void count_slowly(void *context, size_t item, int thread)
{
    for (volatile int i = 0; i < 1000; i++)
        continue;
    count(context, item, thread);
}

/* Runs of a quarter of what is left, down to one: 4 * (1 + ln(1000 / 4)) and a few. */
static void test_neighbours_share_a_thread(void **state)
{
    (void)state;
    struct phi_pool *pool;
    struct job job = {0};
    int n_changes = 0;
    assert_int_equal(phi_pool_create(2, NULL, &pool, NULL), PHI_OK);
    phi_pool_run(pool, MAX_ITEMS, count_slowly, &job);
    for (size_t item = 1; item < MAX_ITEMS; item++)
        n_changes += job.thread_of[item] != job.thread_of[item - 1];
    assert_in_range(n_changes, 0, 30);
    phi_pool_destroy(pool);
}

/* With an item that waits for all others, every thread has one: the pool is all there. */
struct gathering {
    pthread_barrier_t all_there;
    pthread_t who[MAX_THREADS];
};

static void gather(void *context, size_t item, int thread)
{
    struct gathering *g = context;
    (void)item;
    g->who[thread] = pthread_self();
    pthread_barrier_wait(&g->all_there);
}

static void test_every_thread_takes_part(void **state)
{
    (void)state;
    struct phi_pool *pool;
    struct gathering g;
    pthread_barrier_init(&g.all_there, NULL, 5);
    assert_int_equal(phi_pool_create(5, NULL, &pool, NULL), PHI_OK);
    for (int i = 0; i < 20; i++) {
        struct timespec pause = {.tv_nsec = (long)(i % 5) * 1000000}; /* asleep, or not yet */
        nanosleep(&pause, NULL);
        phi_pool_run(pool, 5, gather, &g);
        for (int t = 0; t < 5; t++)
            for (int u = 0; u < t; u++)
                assert_false(pthread_equal(g.who[t], g.who[u]));
        assert_true(pthread_equal(g.who[0], pthread_self()));
    }
    phi_pool_destroy(pool);
    pthread_barrier_destroy(&g.all_there);
}

/* Each job reads what the job before wrote: run() is a barrier in both directions. */
struct ring {
    long values[2][MAX_THREADS];
    int turn;
};

static void pass_on(void *context, size_t item, int thread)
{
    struct ring *r = context;
    long sum = 0;
    (void)thread;
    for (int t = 0; t < MAX_THREADS; t++)
        sum += r->values[r->turn][t];
    r->values[1 - r->turn][item] = sum % 1000003 + (long)item;
}

static void test_jobs_see_the_last_job(void **state)
{
    (void)state;
    struct phi_pool *pool;
    struct ring r = {.values = {{1}}}, expected = {.values = {{1}}};
    assert_int_equal(phi_pool_create(4, NULL, &pool, NULL), PHI_OK);
    for (int i = 0; i < 2000; i++) {
        phi_pool_run(pool, MAX_THREADS, pass_on, &r);
        for (size_t t = 0; t < MAX_THREADS; t++)
            pass_on(&expected, t, 0);
        r.turn = expected.turn = 1 - r.turn;
        assert_memory_equal(r.values[r.turn], expected.values[r.turn], sizeof r.values[0]);
    }
    phi_pool_destroy(pool);
}

/* Workers that have not come to life yet hold nobody up: the owner does it all. */
static pthread_mutex_t late = PTHREAD_MUTEX_INITIALIZER;
static pthread_t owner;

static void come_late(void)
{
    if (pthread_equal(pthread_self(), owner))
        return;
    pthread_mutex_lock(&late);
    pthread_mutex_unlock(&late);
}

static void test_absent_workers_are_not_waited_for(void **state)
{
    (void)state;
    struct phi_pool *pool;
    struct job job = {0};
    owner = pthread_self();
    pthread_mutex_lock(&late);
    assert_int_equal(phi_pool_create(4, come_late, &pool, NULL), PHI_OK);
    for (int i = 0; i < 10; i++)
        phi_pool_run(pool, 100, count, &job);
    for (int item = 0; item < 100; item++) {
        assert_int_equal(job.n_runs[item], 10);
        assert_int_equal(job.thread_of[item], 0);
    }
    pthread_mutex_unlock(&late);
    phi_pool_run(pool, MAX_ITEMS, count, &job);
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
    phi_pool_run(pool, 100, count, &job);
    double before = cpu_s();
    nanosleep(&pause, NULL);
    assert_true(cpu_s() - before < 0.1); /* three spinning workers would use up to 0.9 s */
    phi_pool_destroy(pool);
}

static _Thread_local bool is_started;

static void on_start(void)
{
    is_started = true;
}

static void check_started(void *context, size_t item, int thread)
{
    struct job *job = context;
    (void)thread;
    job->n_runs[item] = is_started;
}

static void test_on_start(void **state)
{
    (void)state;
    struct phi_pool *pool;
    struct job job = {0};
    assert_int_equal(phi_pool_create(5, on_start, &pool, NULL), PHI_OK);
    phi_pool_run(pool, MAX_ITEMS, check_started, &job);
    for (size_t item = 0; item < MAX_ITEMS; item++)
        assert_int_equal(job.n_runs[item], 1);
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

static pthread_barrier_t three_there;

static void check_signals(void *context, size_t item, int thread)
{
    sigset_t set;
    (void)item;
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    ((int *)context)[thread] = sigismember(&set, SIGINT);
    pthread_barrier_wait(&three_there);
}

/* An interrupt goes to the thread that can act on it, never to a worker. */
static void test_workers_block_signals(void **state)
{
    (void)state;
    struct phi_pool *pool;
    int blocked[3] = {-1, -1, -1};
    assert_int_equal(phi_pool_create(3, NULL, &pool, NULL), PHI_OK);
    pthread_barrier_init(&three_there, NULL, 3);
    phi_pool_run(pool, 3, check_signals, blocked);
    pthread_barrier_destroy(&three_there);
    assert_int_equal(blocked[0], 0);
    assert_int_equal(blocked[1], 1);
    assert_int_equal(blocked[2], 1);
    phi_pool_destroy(pool);
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

static void tell_cpus(void *context, size_t item, int thread)
{
    cpu_set_t mine;
    (void)item;
    assert_int_equal(sched_getaffinity(0, sizeof mine, &mine), 0);
    ((cpu_set_t *)context)[thread] = mine;
    pthread_barrier_wait(&three_there);
}

/* Each on a core that no other has, one pool at a time, and not more threads than cores. */
static void test_bind(void **state)
{
    (void)state;
    struct phi_pool *pool, *other;
    cpu_set_t before, cpus[3], both;
    int n = phi_n_cores() < 3 ? phi_n_cores() : 3;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_int_equal(phi_pool_create(CPU_COUNT(&before) + 1, NULL, &other, NULL), PHI_OK);
    assert_false(phi_pool_bind(other));
    phi_pool_destroy(other);
    assert_int_equal(phi_pool_create(n, NULL, &pool, NULL), PHI_OK);
    assert_int_equal(phi_pool_create(1, NULL, &other, NULL), PHI_OK);
    assert_true(phi_pool_bind(pool));
    assert_false(phi_pool_bind(other));
    pthread_barrier_init(&three_there, NULL, (unsigned)n);
    phi_pool_run(pool, (size_t)n, tell_cpus, cpus);
    pthread_barrier_destroy(&three_there);
    for (int i = 0; i < n; i++) {
        assert_int_equal(CPU_COUNT(&cpus[i]), 1);
        for (int j = 0; j < i; j++) {
            CPU_AND(&both, &cpus[i], &cpus[j]);
            assert_int_equal(CPU_COUNT(&both), 0);
        }
    }
    phi_pool_destroy(pool);
    assert_true(phi_pool_bind(other));
    phi_pool_destroy(other);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_item_once),
        cmocka_unit_test(test_neighbours_share_a_thread),
        cmocka_unit_test(test_every_thread_takes_part),
        cmocka_unit_test(test_jobs_see_the_last_job),
        cmocka_unit_test(test_absent_workers_are_not_waited_for),
        cmocka_unit_test(test_idle_costs_nothing),
        cmocka_unit_test(test_on_start),
        cmocka_unit_test(test_create_and_destroy),
        cmocka_unit_test(test_bad_counts),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_workers_block_signals),
        cmocka_unit_test(test_n_cores),
        cmocka_unit_test(test_bind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
