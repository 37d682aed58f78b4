/* arena.h: bump allocation with one lifetime. Objects are never freed one by one; the whole arena
 * goes at once. `limit_bytes` bounds the total (0 = none), so that a template or a request cannot
 * allocate without end.
 *
 *   first chunk            second chunk (doubling)        ...
 *   [header|obj|obj|....]  [header|obj|obj|obj|........]
 */
#ifndef PHI_BASE_ARENA_H
#define PHI_BASE_ARENA_H

#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>

struct phi_arena_chunk;

struct phi_arena {
    struct phi_arena_chunk *chunks; /* newest first */
    size_t used_bytes;              /* sum over all objects, for the limit */
    size_t limit_bytes;             /* 0 = none */
};

/* A zeroed struct is a valid empty arena. */
void phi_arena_deinit(struct phi_arena *a);

/* Zeroed memory aligned for any type; NULL when out of memory or over the limit. */
void *phi_arena_alloc(struct phi_arena *a, size_t n, size_t size);

/* A copy of s followed by a NUL byte; data is NULL on failure. */
struct phi_str phi_arena_dup(struct phi_arena *a, struct phi_str s);

#endif
