/* threads.h: the worker pool. One owner thread calls phi_pool_run; the function then runs once on
 * every thread of the pool, the caller being thread 0, and run returns when all have finished: one
 * barrier. Workers spin for a short while after each job, so that the hundreds of jobs of a decode
 * step start within a microsecond, and sleep after that, so that an idle engine costs nothing.
 * Workers take no signals. */
#ifndef PHI_BASE_THREADS_H
#define PHI_BASE_THREADS_H

#include "base/status.h"

struct phi_pool;

/* What each thread runs: its index 0 <= thread < n_threads. */
typedef void (*phi_pool_fn)(void *context, int thread, int n_threads);

/* n_threads >= 1 counts the caller. `on_start` (may be NULL) runs first on every worker thread and,
 * at the time of creation, on the caller: it sets the floating-point environment. */
enum phi_status phi_pool_create(int n_threads, void (*on_start)(void), struct phi_pool **out,
                                struct phi_error *err);
void phi_pool_destroy(struct phi_pool *pool); /* NULL is fine */

int phi_pool_n_threads(const struct phi_pool *pool);

void phi_pool_run(struct phi_pool *pool, phi_pool_fn fn, void *context);

/* Processors that this process may use (affinity mask and container quota), counting each physical
 * core once; >= 1. */
int phi_n_cores(void);

/* [*begin, *end) of `thread` when n items are cut into n_threads parts of whole `grain`s. */
void phi_split(size_t n, size_t grain, int thread, int n_threads, size_t *begin, size_t *end);

#endif
