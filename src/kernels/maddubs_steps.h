/* maddubs_steps.h: what the two ways through a strip without VNNI share: registers of bytes, as
 * wide as they come (x86_vec.h), and the scales of a strip. See x86_maddubs.h. */
#ifndef PHI_KERNELS_MADDUBS_STEPS_H
#define PHI_KERNELS_MADDUBS_STEPS_H

#include "kernels/x86_quant.h"
#include "kernels/x86_vec.h"

enum {
    VEC_BYTES = 4 * VEC_FLOATS,
    PACK_STEP = 32,   /* bytes of a row that are packed at a time, */
    PACK_ROWS = 8,    /* and rows */
    QUANT_LINE = 64,  /* bytes of a row between two prefetches */
    QUANT_ROWS = 4,   /* of a tile that reads in place */
    QUANT_WORDS = 64, /* bytes of the strip for four elements of k */
    QUANT_VECS = QUANT_WORDS / VEC_BYTES,
    /* Tokens of a tile, at most: that reads in place, over the strip by a register of rows, and by
     * all its rows. Wide registers are twice as many. */
    ROWS_TOKENS = 2,
    W8_STRIP_TOKENS = QUANT_VECS == 1 ? 12 : 8,
    W4_STRIP_TOKENS = 4,
    QUANT_FEW_TOKENS = 8, /* up to here rows are read in place */
};

/* ---------------------------------------------------------------- loads */

/* A register of bytes at `at` of a row of n_bytes, zeros behind its end. */
typedef vec_int (*load_row_fn)(const char *row, size_t at, size_t n_bytes);

PHI_INLINE vec_int load_bytes(const void *p)
{
    return VEC_BITS(loadu)(p);
}

PHI_INLINE vec_int row_inside(const char *row, size_t at, size_t n_bytes)
{
    (void)n_bytes;
    return load_bytes(row + at);
}

PHI_INLINE vec_int row_end(const char *row, size_t at, size_t n_bytes)
{
    unsigned char rest[VEC_BYTES] = {0};
    if (at + VEC_BYTES <= n_bytes)
        return load_bytes(row + at);
    if (at < n_bytes)
        memcpy(rest, row + at, n_bytes - at);
    return load_bytes(rest);
}

PHI_INLINE vec_int low_nibbles(vec_int bytes)
{
    return VEC_BITS(and)(bytes, VEC(set1_epi8)(15));
}

PHI_INLINE vec_int high_nibbles(vec_int bytes)
{
    return low_nibbles(VEC(srli_epi16)(bytes, 4));
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

/* -1 where a byte is negative, else 0. */
PHI_INLINE vec_int negative_bytes(vec_int w)
{
#if defined(__AVX512F__)
    return _mm512_movm_epi8(_mm512_movepi8_mask(w));
#else
    return _mm256_cmpgt_epi8(_mm256_setzero_si256(), w);
#endif
}

/* The 16-bit sums of pairs, added to 32-bit ones. */
PHI_INLINE vec_int widen_pairs(vec_int pairs)
{
    return VEC(madd_epi16)(pairs, VEC(set1_epi16)(1));
}

/* Sums in the order in which they are written: gcc would add products up as a tree, and has no room
 * for so many of them at once. */
PHI_INLINE vec_int in_order(vec_int sum)
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
