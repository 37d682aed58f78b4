/* layout.h: cutting one block of memory into buffers, each on a 64-byte boundary. Run once with base
 * NULL to learn the size, and once with the block: the same function lays out and measures. */
#ifndef PHI_BASE_LAYOUT_H
#define PHI_BASE_LAYOUT_H

#include <stddef.h>

struct phi_layout {
    char *base; /* NULL = measure only */
    size_t n_bytes;
};

static inline void *phi_layout_take(struct phi_layout *l, size_t n, size_t size)
{
    void *p = l->base ? l->base + l->n_bytes : NULL;
    l->n_bytes += (n * size + 63) / 64 * 64;
    return p;
}

#endif
