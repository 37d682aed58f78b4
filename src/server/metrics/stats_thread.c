/* stats_thread.c: see stats_thread.h. */
#include "server/metrics/stats_thread.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/status.h"
#include "server/metrics/stats_log.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

struct phi_stats_thread {
    struct phi_engine *engine;
    double interval_s;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t stopping;
    bool stop;
};

/* Sleeps for an interval. False when the server stops. */
static bool sleep_interval(struct phi_stats_thread *t)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)t->interval_s;
    until.tv_nsec += (long)((t->interval_s - (double)(time_t)t->interval_s) * 1e9);
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    pthread_mutex_lock(&t->lock);
    int result = 0;
    while (!t->stop && result != ETIMEDOUT)
        result = pthread_cond_timedwait(&t->stopping, &t->lock, &until);
    bool stop = t->stop;
    pthread_mutex_unlock(&t->lock);
    return !stop;
}

static void *stats_main(void *arg)
{
    struct phi_stats_thread *t = arg;
    struct phi_engine_stats before, now;
    double before_s = phi_clock_s();
    bool active = false;
    phi_engine_get_stats(t->engine, &before);
    while (sleep_interval(t)) {
        double now_s = phi_clock_s();
        phi_engine_get_stats(t->engine, &now);
        phi_stats_log(&before, &now, now_s - before_s, &active);
        before = now;
        before_s = now_s;
    }
    return NULL;
}

enum phi_status phi_stats_thread_start(struct phi_engine *e, double interval_s,
                                       struct phi_stats_thread **out, struct phi_error *err)
{
    *out = NULL;
    struct phi_stats_thread *t = phi_calloc(1, sizeof *t);
    if (!t)
        return phi_fail_memory(err, "the statistics thread", sizeof *t);
    t->engine = e;
    t->interval_s = interval_s;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&t->stopping, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&t->lock, NULL);
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int failed = pthread_create(&t->thread, NULL, stats_main, t);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (failed) {
        pthread_cond_destroy(&t->stopping);
        pthread_mutex_destroy(&t->lock);
        phi_free(t);
        return phi_fail(err, PHI_ERR_MEMORY, "cannot start the statistics thread");
    }
    *out = t;
    return PHI_OK;
}

void phi_stats_thread_stop(struct phi_stats_thread *t)
{
    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    t->stop = true;
    pthread_cond_signal(&t->stopping);
    pthread_mutex_unlock(&t->lock);
    pthread_join(t->thread, NULL);
    pthread_cond_destroy(&t->stopping);
    pthread_mutex_destroy(&t->lock);
    phi_free(t);
}
