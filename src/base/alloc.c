/* alloc.c: see alloc.h. */
#include "base/alloc.h"
#include "base/huge_pages.h"
#include "base/size.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static atomic_long allocations;
static atomic_long fail_at; /* 0 = never */
static atomic_long violations;
static _Thread_local int forbidden;

/* Counts one allocation; true when it must fail. */
static bool refuse(void)
{
    if (forbidden > 0)
        atomic_fetch_add(&violations, 1);
    long n = atomic_fetch_add(&allocations, 1) + 1;
    return n == atomic_load_explicit(&fail_at, memory_order_relaxed);
}

void *phi_alloc(size_t n, size_t size)
{
    size_t n_bytes;
    if (!phi_size_mul(n, size, &n_bytes) || refuse())
        return NULL;
    return malloc(n_bytes ? n_bytes : 1);
}

void *phi_calloc(size_t n, size_t size)
{
    size_t n_bytes;
    if (!phi_size_mul(n, size, &n_bytes) || refuse())
        return NULL;
    return calloc(n_bytes ? n_bytes : 1, 1);
}

void *phi_realloc(void *old, size_t n, size_t size)
{
    size_t n_bytes;
    if (!phi_size_mul(n, size, &n_bytes) || refuse())
        return NULL;
    return realloc(old, n_bytes ? n_bytes : 1);
}

void *phi_alloc_aligned(size_t alignment, size_t n_bytes)
{
    void *p;
    if (refuse() || posix_memalign(&p, alignment, n_bytes ? n_bytes : 1) != 0)
        return NULL;
    memset(p, 0, n_bytes);
    return p;
}

void phi_free(void *p)
{
    free(p);
}

void *phi_pages_alloc(size_t n_bytes)
{
    if (refuse() || n_bytes == 0)
        return NULL;
    return phi_huge_map(n_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
}

void phi_pages_free(void *p, size_t n_bytes)
{
    if (p)
        munmap(p, n_bytes);
}

void phi_alloc_fail_nth(long n)
{
    atomic_store(&allocations, 0);
    atomic_store(&fail_at, n);
}

long phi_alloc_count(void)
{
    return atomic_load(&allocations);
}

void phi_alloc_forbid(bool forbid)
{
    forbidden += forbid ? 1 : -1;
}

long phi_alloc_violations(void)
{
    return atomic_load(&violations);
}
