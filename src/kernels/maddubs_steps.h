/* maddubs_steps.h: what the two ways through a strip without VNNI share: loads, and the scales of a
 * strip. See x86_maddubs.h. */
#ifndef PHI_KERNELS_MADDUBS_STEPS_H
#define PHI_KERNELS_MADDUBS_STEPS_H

#include "kernels/x86_quant.h"

enum {
    QUANT_STEP = 32,      /* bytes of a register */
    QUANT_ROWS = 4,       /* of a tile that reads in place */
    QUANT_BLOCK = 8,      /* rows of a register of the strip */
    QUANT_WORDS = 64,     /* bytes of the strip for four elements of k */
    ROWS_TOKENS = 2,      /* at most, of a tile that reads in place */
    W8_STRIP_TOKENS = 8,  /* at most, of a tile over the strip */
    W4_STRIP_TOKENS = 4,  /* of twice as many rows */
    QUANT_FEW_TOKENS = 8, /* up to here rows are read in place */
};

/* ---------------------------------------------------------------- loads */

/* A register of bytes at `at` of a row of n_bytes, zeros behind its end. */
typedef __m256i (*load_row_fn)(const char *row, size_t at, size_t n_bytes);

PHI_INLINE __m256i row_inside(const char *row, size_t at, size_t n_bytes)
{
    (void)n_bytes;
    return _mm256_loadu_si256((const void *)(row + at));
}

PHI_INLINE __m256i row_end(const char *row, size_t at, size_t n_bytes)
{
    unsigned char rest[QUANT_STEP] = {0};
    if (at + QUANT_STEP <= n_bytes)
        return row_inside(row, at, n_bytes);
    if (at < n_bytes)
        memcpy(rest, row + at, n_bytes - at);
    return _mm256_loadu_si256((const void *)rest);
}

PHI_INLINE __m256i low_nibbles(__m256i bytes)
{
    return _mm256_and_si256(bytes, _mm256_set1_epi8(15));
}

PHI_INLINE __m256i high_nibbles(__m256i bytes)
{
    return low_nibbles(_mm256_srli_epi16(bytes, 4));
}

/* n <= 8 rows from `row` on; those that do not exist repeat the last one. */
PHI_INLINE void row_pointers(const struct phi_quant_matmul *a, size_t row, const char **w,
                             const size_t n)
{
    PHI_UNROLL
    for (size_t r = 0; r < n; r++) {
        size_t from = row + r < a->n_rows ? row + r : a->n_rows - 1;
        w[r] = (const char *)a->w + from * a->row_bytes;
    }
}

/* Names the bytes of rows to come, as in x86_rows.h. */
PHI_INLINE void prefetch_rows(const char *const *w, size_t at, size_t ahead, const size_t n)
{
    PHI_UNROLL
    for (size_t r = 0; r < n; r++)
        _mm_prefetch(w[r] + at + ahead, _MM_HINT_T1);
}

PHI_INLINE __m256i negative_bytes(__m256i w)
{
    return _mm256_cmpgt_epi8(_mm256_setzero_si256(), w);
}

/* The 16-bit sums of pairs, added to 32-bit ones. */
PHI_INLINE __m256i widen_pairs(__m256i pairs)
{
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

/* Sums in the order in which they are written: gcc would add products up as a tree, and has no room
 * for so many of them at once. */
PHI_INLINE __m256i in_order(__m256i sum)
{
    __asm__("" : "+v"(sum));
    return sum;
}

/* ---------------------------------------------------------------- scales */

/* The scales of eight rows from `row` on and of eight groups from g on; of the groups n exist. */
PHI_INLINE void pack_scales8(const struct phi_quant_matmul *a, size_t row, size_t g, size_t n,
                             load8_fn load, const size_t scale_bytes)
{
    const char *from = (const char *)a->w_scale + (row * a->ld_scale + g) * scale_bytes;
    float *to = packed_scales(a) + g * PHI_STRIP_ROWS + row;
    __m256 v[8];
    PHI_UNROLL
    for (size_t r = 0; r < 8; r++) {
        v[r] = n < 8 ? load8_part(load, from, n, scale_bytes) : load(from);
        from += row + r + 1 < a->n_rows ? a->ld_scale * scale_bytes : 0;
    }
    transpose8x8(v);
    PHI_UNROLL
    for (size_t i = 0; i < 8; i++)
        if (i < n)
            _mm256_store_ps(to + i * PHI_STRIP_ROWS, v[i]);
}

PHI_INLINE void pack_scales_of(const struct phi_quant_matmul *a, load8_fn load,
                               const size_t scale_bytes)
{
    const size_t n_groups = quant_n_groups(a);
    for (size_t row = 0; row < a->n_rows; row += 8) {
        size_t g = 0;
        for (; g + 8 <= n_groups; g += 8)
            pack_scales8(a, row, g, 8, load, scale_bytes);
        if (g < n_groups)
            pack_scales8(a, row, g, n_groups - g, load, scale_bytes);
    }
}

PHI_INLINE void pack_scales(const struct phi_quant_matmul *a)
{
    if (a->scale_dtype == PHI_BFLOAT16)
        pack_scales_of(a, load8_bf16, 2);
    else
        pack_scales_of(a, load8_f32, 4);
}

#endif
