/* threads.h: the worker pool. One owner thread calls phi_pool_run, which hands out the items of a job to
 * the pool's threads as they get free, the owner being thread 0, and returns when all items are done: one
 * barrier. It waits for items, not for threads: a worker that sleeps, or that the system lets wait for
 * a processor, holds nobody up; the others do its share. Workers spin for a short while after each job, so
 * that the hundreds of jobs of a decode step start within a microsecond, and sleep after that, so that
 * an idle engine costs nothing. Workers take no signals. */
#ifndef PHI_BASE_THREADS_H
#define PHI_BASE_THREADS_H

#include "base/status.h"

#include <stdatomic.h>
#include <stdbool.h>

struct phi_pool;

/* An item 0 <= item < n_items, on a thread 0 <= thread < n_threads. */
typedef void (*phi_pool_fn)(void *context, size_t item, int thread);

/* n_threads >= 1 counts the caller. `on_start` (may be NULL) runs first on every worker thread and,
 * at the time of creation, on the caller: it sets the floating-point environment. */
enum phi_status phi_pool_create(int n_threads, void (*on_start)(void), struct phi_pool **out,
                                struct phi_error *err);
void phi_pool_destroy(struct phi_pool *pool); /* NULL is fine */

int phi_pool_n_threads(const struct phi_pool *pool);

/* Each item once. A thread takes runs of items that follow one another, which get shorter towards the
 * end, and begins them in rising order: item + 1 is mostly the thread's next one, which is what kernels
 * bet on when they prefetch. n_items < 2^32. One item, or one thread, runs on the owner without waking
 * anybody. */
void phi_pool_run(struct phi_pool *pool, size_t n_items, phi_pool_fn fn, void *context);

/* Keeps each thread, the owner too, on a core of its own from now on, if the owner may use as many cores
 * as there are threads and no other pool of this process is bound; else changes nothing and returns
 * false. For the owner. */
bool phi_pool_bind(struct phi_pool *pool);

/* From now on items are skipped once *cancel is true, so that a job ends with those under way. What
 * the skipped ones would have written is missing: who sets this looks at *cancel after the last job.
 * NULL = never. For the owner, between jobs. */
void phi_pool_set_cancel(struct phi_pool *pool, const atomic_bool *cancel);

/* Processors that this process may use (affinity mask and container quota), counting each physical
 * core once; >= 1. */
int phi_n_cores(void);

#endif
