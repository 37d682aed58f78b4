/* arena.c: see arena.h. */
#include "base/arena.h"
#include "base/alloc.h"
#include "base/size.h"

#include <stdalign.h>
#include <stdint.h>

enum { FIRST_CHUNK_BYTES = 4096, MAX_CHUNK_BYTES = 1 << 20 };

struct phi_arena_chunk {
    struct phi_arena_chunk *older;
    size_t n; /* bytes handed out of data[] */
    size_t capacity;
    alignas(max_align_t) unsigned char data[];
};

void phi_arena_deinit(struct phi_arena *a)
{
    for (struct phi_arena_chunk *c = a->chunks; c;) {
        struct phi_arena_chunk *older = c->older;
        phi_free(c);
        c = older;
    }
    *a = (struct phi_arena){.limit_bytes = a->limit_bytes};
}

static struct phi_arena_chunk *add_chunk(struct phi_arena *a, size_t n_bytes)
{
    size_t capacity = FIRST_CHUNK_BYTES;
    if (a->chunks)
        capacity = phi_size_min(a->chunks->capacity * 2, MAX_CHUNK_BYTES);
    capacity = phi_size_max(capacity, n_bytes);
    size_t total;
    if (!phi_size_add(capacity, sizeof(struct phi_arena_chunk), &total))
        return NULL;
    struct phi_arena_chunk *c = phi_calloc(1, total);
    if (!c)
        return NULL;
    c->older = a->chunks;
    c->capacity = capacity;
    a->chunks = c;
    return c;
}

void *phi_arena_alloc(struct phi_arena *a, size_t n, size_t size)
{
    size_t n_bytes, total;
    const size_t align = alignof(max_align_t);
    if (!phi_size_mul(n, size, &n_bytes) || !phi_size_add(n_bytes, align - 1, &n_bytes))
        return NULL;
    n_bytes -= n_bytes % align;
    if (n_bytes == 0)
        n_bytes = align;
    if (!phi_size_add(a->used_bytes, n_bytes, &total) || (a->limit_bytes && total > a->limit_bytes))
        return NULL;
    struct phi_arena_chunk *c = a->chunks;
    if (!c || c->capacity - c->n < n_bytes)
        c = add_chunk(a, n_bytes);
    if (!c)
        return NULL;
    void *p = c->data + c->n;
    c->n += n_bytes;
    a->used_bytes = total;
    return p;
}

struct phi_str phi_arena_dup(struct phi_arena *a, struct phi_str s)
{
    size_t n;
    char *p = phi_size_add(s.n, 1, &n) ? phi_arena_alloc(a, n, 1) : NULL;
    if (p && s.n)
        memcpy(p, s.data, s.n);
    return (struct phi_str){p, p ? s.n : 0};
}
