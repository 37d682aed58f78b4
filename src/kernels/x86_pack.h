/* x86_pack.h: the matrix product for many tokens, first half: the strip of up to sixteen weight
 * rows is widened and interleaved into a->scratch once, and then used for all tokens. Private
 * to the x86 units.
 *
 * The strip is made of blocks of as many rows as a tile takes, rows beyond n_rows being zero;
 * in a block, one step of all its rows lies together, so that a tile reads a single stream:
 *     [block][step of k][plane][row in block][32 bytes]
 * A plane is 32 bytes of a row: eight float32, or eight pairs of bfloat16. Where pairs are
 * split into float32, a step has two planes: the odd elements, then the even ones. */
#ifndef PHI_KERNELS_X86_PACK_H
#define PHI_KERNELS_X86_PACK_H

#include "kernels/x86_lanes.h"

enum { PLANE_BYTES = 32 };

/* Plane `plane` of the weights at w. */
typedef __m256i (*pack_fn)(const void *w, int plane);

struct pack_form {
    pack_fn pack;
    int n_planes;
    size_t step_k, w_bytes; /* of one element */
    size_t block_rows;
};

PHI_INLINE __m256i pack_f32(const void *w, int plane)
{
    (void)plane;
    return _mm256_castps_si256(load8_f32(w));
}

PHI_INLINE __m256i pack_bf16(const void *w, int plane)
{
    (void)plane;
    return _mm256_castps_si256(load8_bf16(w));
}

PHI_INLINE __m256i pack_f16(const void *w, int plane)
{
    (void)plane;
    return _mm256_castps_si256(load8_f16(w));
}

PHI_INLINE __m256i pack_split_pairs(const void *w, int plane)
{
    __m256i pairs = _mm256_loadu_si256(w);
    return _mm256_castps_si256(plane == 0 ? odd_elements(pairs) : even_elements(pairs));
}

PHI_INLINE void pack_row(char *to, const char *w, size_t k, const struct pack_form form)
{
    const size_t stride = form.block_rows * PLANE_BYTES;
    size_t i = 0;
    for (; i + form.step_k <= k; i += form.step_k)
        PHI_UNROLL
    for (int plane = 0; plane < form.n_planes; plane++, to += stride)
        _mm256_store_si256((void *)to, form.pack(w + i * form.w_bytes, plane));
    if (i < k) {
        unsigned char rest[32] = {0};
        memcpy(rest, w + i * form.w_bytes, (k - i) * form.w_bytes);
        for (int plane = 0; plane < form.n_planes; plane++, to += stride)
            _mm256_store_si256((void *)to, form.pack(rest, plane));
    }
}

/* The bytes of one packed block. */
PHI_INLINE size_t block_bytes(size_t k, const struct pack_form form)
{
    size_t n_steps = (k + form.step_k - 1) / form.step_k;
    return n_steps * (size_t)form.n_planes * form.block_rows * PLANE_BYTES;
}

PHI_INLINE void pack_strip(const struct phi_matmul *a, const struct pack_form form)
{
    assert(a->n_rows <= PHI_STRIP_ROWS);
    const size_t n = form.block_rows, bytes = block_bytes(a->k, form);
    for (size_t row = 0; row < (a->n_rows + n - 1) / n * n; row++) {
        char *to = (char *)a->scratch + row / n * bytes + row % n * PLANE_BYTES;
        if (row < a->n_rows)
            pack_row(to, (const char *)a->w + row * a->ld_w * form.w_bytes, a->k, form);
        else
            for (size_t i = 0; i < bytes; i += n * PLANE_BYTES)
                _mm256_store_si256((void *)(to + i), _mm256_setzero_si256());
    }
}

/* Names the next strip's lines to the second level while this one is computed: this thread's next
 * strip mostly stands right behind (threads.h). Calls spread them evenly over the tiles. */
struct strip_prefetch {
    const char *row;
    size_t row_bytes, ld_bytes; /* row_bytes in whole lines */
    size_t at;                  /* byte of the row */
    size_t n_rows;              /* left */
    size_t per_tile;            /* lines */
    ptrdiff_t again;            /* from a line to the one that is named for the second time; or 0 */
};

PHI_INLINE struct strip_prefetch prefetch_start(const struct phi_matmul *a, size_t w_bytes,
                                                size_t n_tiles)
{
    struct strip_prefetch p = {.row_bytes = (a->k * w_bytes + 63) / 64 * 64,
                               .ld_bytes = a->ld_w * w_bytes,
                               .n_rows = a->n_rows};
    p.row = (const char *)a->w + PHI_STRIP_ROWS * p.ld_bytes;
    p.per_tile = (p.n_rows * p.row_bytes / 64 + n_tiles - 1) / n_tiles;
    return p;
}

/* The second level drops requests when it has too many under way, so that where memory sets the
 * speed each line is named twice: the rows of a whole strip two strips ahead and one ahead, those
 * of a segment one strip ahead and one segment ahead. */
PHI_INLINE void prefetch_twice(struct strip_prefetch *p, const struct phi_matmul *a)
{
    const ptrdiff_t strip_bytes = PHI_STRIP_ROWS * (ptrdiff_t)p->ld_bytes;
    if (a->k < a->ld_w) {
        p->again = (ptrdiff_t)p->row_bytes - strip_bytes;
    } else {
        p->row += strip_bytes;
        p->again = -strip_bytes;
    }
}

PHI_INLINE void prefetch_some(struct strip_prefetch *p)
{
    for (size_t i = 0; i < p->per_tile && p->n_rows > 0; i++) {
        _mm_prefetch(p->row + p->at, _MM_HINT_T1);
        if (p->again)
            _mm_prefetch(p->row + p->again + p->at, _MM_HINT_T1);
        p->at += 64;
        if (p->at >= p->row_bytes) {
            p->at = 0;
            p->row += p->ld_bytes;
            p->n_rows--;
        }
    }
}

#endif
