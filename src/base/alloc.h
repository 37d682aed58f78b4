/* alloc.h: the program's only door to the heap. Sizes are checked for overflow; the failure of the
 * n-th allocation can be forced, which is how the fault tests walk every error path; and the engine
 * can forbid allocation while it steps, which turns "the step loop allocates nothing" into a check.
 *
 * All functions return NULL on failure and take a count and an element size. */
#ifndef PHI_BASE_ALLOC_H
#define PHI_BASE_ALLOC_H

#include <stdbool.h>
#include <stddef.h>

void *phi_alloc(size_t n, size_t size);                    /* uninitialised */
void *phi_calloc(size_t n, size_t size);                   /* zeroed */
void *phi_realloc(void *old, size_t n, size_t size);       /* old stays valid on failure */
void *phi_alloc_aligned(size_t alignment, size_t n_bytes); /* zeroed; free with phi_free */
void phi_free(void *p);

/* Whole pages, huge ones for large sizes (huge_pages.h), zeroed by the system when first touched, so
 * that a large pool costs only what is used of it. Free with phi_pages_free and the same size. */
void *phi_pages_alloc(size_t n_bytes);
void phi_pages_free(void *p, size_t n_bytes); /* NULL is fine */

/* Fault injection for tests (process-wide): the n-th allocation from now fails, n >= 1; 0 turns it
 * off. phi_alloc_count() counts allocations since the last call of phi_alloc_fail_nth. */
void phi_alloc_fail_nth(long n);
long phi_alloc_count(void);

/* While forbidden (per thread, nests), any allocation by this thread is counted as a violation. */
void phi_alloc_forbid(bool forbid);
long phi_alloc_violations(void);

#endif
