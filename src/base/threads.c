/* threads.c: see threads.h.
 *
 * `ticket` holds the job's number and how many of its items nobody has taken yet:
 *
 *   63          32 31           0
 *   [ job number  |  items left ]
 *
 * A thread takes a run of items by lowering the ticket with compare-and-swap, which fails when the
 * job has changed in between; from then until it has counted them into `n_done` the job cannot end,
 * so fn, context and n_items hold still. Sleeping workers wait on `wake`, a sleeping owner on
 * `done`; the other side takes the lock to signal only when `n_sleeping` or `owner_sleeps` says
 * that somebody sleeps. */
#include "base/threads.h"
#include "base/alloc.h"
#include "base/clock.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

/* A waiting thread looks at its flag YIELD_ROUNDS times (a few microseconds; a round is one pause
 * instruction, 10 to 50 ns), then offers its processor to whoever can use it: with more threads
 * than free processors, the thread that everybody waits for would else not run. All do this for
 * SPIN_S and then sleep. */
enum { YIELD_ROUNDS = 200 };
static const double SPIN_S = 300e-6;

struct worker {
    struct phi_pool *pool;
    pthread_t thread;
    int index;
};

struct phi_pool {
    int n_threads;
    void (*on_start)(void);
    struct worker *workers; /* [n_threads]; [0] is the owner and unused */
    int n_started;
    bool is_bound; /* its threads have a core each */

    phi_pool_fn fn; /* of the job: written by the owner before the ticket */
    void *context;
    size_t n_items;
    const atomic_bool *cancel; /* items that begin while it is true are not done; or NULL */

    _Alignas(64) atomic_uint_fast64_t ticket;
    _Alignas(64) atomic_size_t n_done; /* items */
    atomic_bool stop;
    _Alignas(64) atomic_int n_sleeping;
    atomic_bool owner_sleeps;
    pthread_mutex_t lock;
    pthread_cond_t wake; /* workers: a job */
    pthread_cond_t done; /* the owner: all workers have finished it */
};

/* Two pools on the same cores would stop each other's threads in the middle of jobs. */
static atomic_bool one_is_bound;

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static uint64_t items_left(uint64_t ticket)
{
    return ticket & UINT32_MAX;
}

static bool is_wanted(const struct phi_pool *pool)
{
    return items_left(atomic_load_explicit(&pool->ticket, memory_order_acquire)) > 0 ||
           atomic_load_explicit(&pool->stop, memory_order_acquire);
}

/* Returns once there are items to take, or the pool stops: spins, then sleeps. */
static void wait_for_job(struct phi_pool *pool)
{
    const double deadline_s = phi_clock_s() + SPIN_S;
    do {
        for (int i = 0; i < YIELD_ROUNDS; i++) {
            if (is_wanted(pool))
                return;
            relax();
        }
        sched_yield();
    } while (phi_clock_s() < deadline_s);

    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add(&pool->n_sleeping, 1);
    while (items_left(atomic_load(&pool->ticket)) == 0 && !atomic_load(&pool->stop))
        pthread_cond_wait(&pool->wake, &pool->lock);
    atomic_fetch_sub(&pool->n_sleeping, 1);
    pthread_mutex_unlock(&pool->lock);
}

static void do_item(const struct phi_pool *pool, size_t item, int thread)
{
    if (!pool->cancel || !atomic_load_explicit(pool->cancel, memory_order_relaxed))
        pool->fn(pool->context, item, thread);
}

/* Items of the next run where n_left are left: long at first, one at a time in the end. */
static uint64_t run_length(const struct phi_pool *pool, uint64_t n_left)
{
    uint64_t n = n_left / (2 * (uint64_t)pool->n_threads);
    return n > 1 ? n : 1;
}

/* Does items of the present job until nobody has any left to take. */
static void do_items(struct phi_pool *pool, int thread)
{
    size_t n_done = 0;
    uint64_t ticket = atomic_load_explicit(&pool->ticket, memory_order_acquire);
    while (items_left(ticket) > 0) {
        const uint64_t n_left = items_left(ticket), n = run_length(pool, n_left);
        if (!atomic_compare_exchange_weak_explicit(&pool->ticket, &ticket, ticket - n,
                                                   memory_order_acq_rel, memory_order_acquire))
            continue;
        for (size_t i = 0; i < n; i++)
            do_item(pool, pool->n_items - n_left + i, thread);
        n_done += n;
        ticket = atomic_load_explicit(&pool->ticket, memory_order_acquire);
    }
    if (n_done > 0)
        atomic_fetch_add(&pool->n_done, n_done);
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct phi_pool *pool = w->pool;
    if (pool->on_start)
        pool->on_start();
    for (;;) {
        wait_for_job(pool);
        if (atomic_load(&pool->stop))
            return NULL;
        do_items(pool, w->index);
        if (atomic_load(&pool->owner_sleeps)) {
            pthread_mutex_lock(&pool->lock);
            pthread_cond_signal(&pool->done);
            pthread_mutex_unlock(&pool->lock);
        }
    }
}

static void wake_sleepers(struct phi_pool *pool)
{
    if (atomic_load(&pool->n_sleeping) > 0) {
        pthread_mutex_lock(&pool->lock);
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->lock);
    }
}

/* Signals of the process are for threads that know what to do with them: workers take none but
 * those that their own instructions cause. */
static void fill_asynchronous(sigset_t *set)
{
    static const int synchronous[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    sigfillset(set);
    for (size_t i = 0; i < sizeof synchronous / sizeof *synchronous; i++)
        sigdelset(set, synchronous[i]);
}

static enum phi_status start_workers(struct phi_pool *pool, struct phi_error *err)
{
    sigset_t blocked, old;
    enum phi_status status = PHI_OK;
    fill_asynchronous(&blocked);
    pthread_sigmask(SIG_BLOCK, &blocked, &old); /* a new thread inherits the mask */
    for (int i = 1; i < pool->n_threads && status == PHI_OK; i++) {
        pool->workers[i] = (struct worker){.pool = pool, .index = i};
        if (pthread_create(&pool->workers[i].thread, NULL, worker_main, &pool->workers[i]) == 0)
            pool->n_started++;
        else
            status = phi_fail(err, PHI_ERR_MEMORY, "cannot start worker thread %d of %d", i,
                              pool->n_threads);
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return status;
}

enum phi_status phi_pool_create(int n_threads, void (*on_start)(void), struct phi_pool **out,
                                struct phi_error *err)
{
    *out = NULL;
    if (n_threads < 1 || n_threads > 1024)
        return phi_fail(err, PHI_ERR_INVALID, "threads: %d is not between 1 and 1024", n_threads);
    struct phi_pool *pool = phi_alloc_aligned(64, sizeof *pool);
    if (!pool)
        return phi_fail_memory(err, "the thread pool", sizeof *pool);
    pool->n_threads = n_threads;
    pool->on_start = on_start;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->done, NULL);
    pool->workers = phi_calloc((size_t)n_threads, sizeof *pool->workers);
    enum phi_status status = PHI_OK;
    if (!pool->workers)
        status = phi_fail_memory(err, "the thread pool", (size_t)n_threads * sizeof *pool->workers);
    if (status == PHI_OK)
        status = start_workers(pool, err);
    if (status != PHI_OK) {
        phi_pool_destroy(pool);
        return status;
    }
    if (on_start)
        on_start();
    *out = pool;
    return PHI_OK;
}

void phi_pool_destroy(struct phi_pool *pool)
{
    if (!pool)
        return;
    atomic_store(&pool->stop, true);
    wake_sleepers(pool);
    for (int i = 1; i <= pool->n_started; i++)
        pthread_join(pool->workers[i].thread, NULL);
    if (pool->is_bound)
        atomic_store(&one_is_bound, false);
    pthread_cond_destroy(&pool->wake);
    pthread_cond_destroy(&pool->done);
    pthread_mutex_destroy(&pool->lock);
    phi_free(pool->workers);
    phi_free(pool);
}

int phi_pool_n_threads(const struct phi_pool *pool)
{
    return pool->n_threads;
}

void phi_pool_set_cancel(struct phi_pool *pool, const atomic_bool *cancel)
{
    pool->cancel = cancel;
}

/* Spins, then sleeps: on a busy machine a worker may be stopped in the middle of an item, and an
 * owner that only yields takes the processor from it again and again. Either the worker that
 * finishes last sees `owner_sleeps`, or the owner sees it in `n_done`. */
static void wait_for_items(struct phi_pool *pool)
{
    const double deadline_s = phi_clock_s() + SPIN_S;
    do {
        for (int i = 0; i < YIELD_ROUNDS; i++) {
            if (atomic_load_explicit(&pool->n_done, memory_order_acquire) == pool->n_items)
                return;
            relax();
        }
        sched_yield();
    } while (phi_clock_s() < deadline_s);

    pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->owner_sleeps, true);
    while (atomic_load(&pool->n_done) != pool->n_items)
        pthread_cond_wait(&pool->done, &pool->lock);
    atomic_store(&pool->owner_sleeps, false);
    pthread_mutex_unlock(&pool->lock);
}

void phi_pool_run(struct phi_pool *pool, size_t n_items, phi_pool_fn fn, void *context)
{
    assert(n_items <= UINT32_MAX);
    pool->fn = fn;
    pool->context = context;
    pool->n_items = n_items;
    if (n_items <= 1 || pool->n_threads == 1) {
        for (size_t i = 0; i < n_items; i++)
            do_item(pool, i, 0);
        return;
    }
    atomic_store_explicit(&pool->n_done, 0, memory_order_relaxed);
    uint64_t job = (atomic_load_explicit(&pool->ticket, memory_order_relaxed) >> 32) + 1;
    atomic_store(&pool->ticket, job << 32 | n_items);
    wake_sleepers(pool);
    do_items(pool, 0);
    wait_for_items(pool);
}

/* Reads up to two numbers from a one-line file of the system; returns how many there were. */
static int read_numbers(const char *path, long *a, long *b)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    int n = fscanf(f, "%ld %ld", a, b);
    fclose(f);
    return n > 0 ? n : 0;
}

/* The smallest CPU number that shares a core with `cpu`; cpu itself when the system does not tell.
 */
static int first_sibling(int cpu)
{
    char path[96];
    long first, unused;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    if (read_numbers(path, &first, &unused) == 0 || first < 0 || first >= CPU_SETSIZE)
        return cpu;
    return (int)first;
}

/* Whole processors that the container's quota pays for (cgroup v2, then v1); 0 = no quota. Threads
 * beyond it would be stopped by the kernel in the middle of a job, with all others waiting. */
static int quota(void)
{
    long quota_us = 0, period_us = 0, unused;
    if (read_numbers("/sys/fs/cgroup/cpu.max", &quota_us, &period_us) != 2 &&
        (read_numbers("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", &quota_us, &unused) == 0 ||
         read_numbers("/sys/fs/cgroup/cpu/cpu.cfs_period_us", &period_us, &unused) == 0))
        return 0;
    if (quota_us <= 0 || period_us <= 0)
        return 0;
    long n = (quota_us + period_us - 1) / period_us;
    return n < CPU_SETSIZE ? (int)n : 0;
}

/* One processor of each core that the calling thread may use; false when the system does not tell.
 */
static bool own_cores(cpu_set_t *cores)
{
    cpu_set_t allowed, seen;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return false; /* more than CPU_SETSIZE processors */
    CPU_ZERO(cores);
    CPU_ZERO(&seen);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        int core = CPU_ISSET(cpu, &allowed) ? first_sibling(cpu) : -1;
        if (core < 0 || CPU_ISSET(core, &seen))
            continue;
        CPU_SET(core, &seen);
        CPU_SET(cpu, cores);
    }
    return true;
}

int phi_n_cores(void)
{
    cpu_set_t cores;
    int n_paid = quota();
    int n = own_cores(&cores) ? CPU_COUNT(&cores) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (n_paid > 0 && n_paid < n)
        n = n_paid;
    return n < 1 ? 1 : n;
}

bool phi_pool_bind(struct phi_pool *pool)
{
    cpu_set_t cores;
    int cpu = 0;
    if (!own_cores(&cores) || CPU_COUNT(&cores) < pool->n_threads ||
        atomic_exchange(&one_is_bound, true))
        return false;
    pool->is_bound = true;
    for (int i = 0; i < pool->n_threads; i++, cpu++) {
        cpu_set_t one;
        while (!CPU_ISSET(cpu, &cores))
            cpu++;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        pthread_setaffinity_np(i == 0 ? pthread_self() : pool->workers[i].thread, sizeof one, &one);
    }
    return true;
}
