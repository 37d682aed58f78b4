/* vnni_rows.h: products of 8-bit weights with few tokens: rows are read in place, one register
 * holding one row's partial sums. Private to avx512_vnni.c. */
#ifndef PHI_KERNELS_VNNI_ROWS_H
#define PHI_KERNELS_VNNI_ROWS_H

#include "kernels/vnni_steps.h"

enum {
    ROWS = 4,        /* of a tile that reads in place */
    ROWS_TOKENS = 4, /* at most, of such a tile */
    /* Bytes from what the one token's stream reads to what it names: over the end of a page, where
     * the processor's own prefetchers stop, and otherwise no further than they are by themselves.
     */
    ROW_AHEAD = 1024,
};

PHI_INLINE __m128 row_scales(const float *scales, size_t n)
{
    return _mm_maskz_loadu_ps((__mmask8)((1u << n) - 1), scales);
}

/* Names the bytes of later rows. */
PHI_INLINE void prefetch_rows(const char *const w[ROWS], size_t at, size_t ahead)
{
    PHI_UNROLL
    for (size_t r = 0; r < ROWS; r++)
        prefetch(w[r] + at + ahead);
}

/* The sums of four registers' sixteen lanes. */
PHI_INLINE __m128i reduce16x4(const __m512i v[ROWS])
{
    __m512i a =
        _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
    __m512i b =
        _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
    __m512i c = _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    __m256i d = _mm256_add_epi32(_mm512_castsi512_si256(c), _mm512_extracti64x4_epi64(c, 1));
    return _mm_add_epi32(_mm256_castsi256_si128(d), _mm256_extracti128_si256(d, 1));
}

PHI_INLINE void store_rows(const struct phi_quant_matmul *a, size_t row, size_t token, __m128 y)
{
    const size_t n = a->n_rows - row;
    if (a->x_scale)
        y = _mm_mul_ps(y, _mm_set1_ps(a->x_scale[token]));
    _mm_mask_storeu_ps(a->y + token * a->ld_y + row, (__mmask8)(n < ROWS ? (1u << n) - 1 : 15), y);
}

/* Rows from `row` on; those that do not exist repeat the last one. */
PHI_INLINE void tile_rows(const struct phi_quant_matmul *a, size_t row, const char *w[ROWS])
{
    PHI_UNROLL
    for (size_t r = 0; r < ROWS; r++) {
        size_t from = row + r < a->n_rows ? row + r : a->n_rows - 1;
        w[r] = (const char *)a->w + from * a->row_bytes;
    }
}

PHI_INLINE void w8_step(__m512i acc[ROWS_TOKENS][ROWS], const char *const w[ROWS], size_t k,
                        size_t k_end, const int8_t *x, size_t ld_x, load_step_fn load,
                        const size_t n)
{
    __m512i xv[ROWS_TOKENS];
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        xv[t] = _mm512_load_si512(x + t * ld_x + k);
    PHI_UNROLL
    for (size_t r = 0; r < ROWS; r++) {
        __m512i wv = unsigned_w8(load(w[r], k, k_end));
        PHI_UNROLL
        for (size_t t = 0; t < n; t++)
            acc[t][r] = dot(acc[t][r], wv, xv[t]);
    }
}

/* n <= ROWS_TOKENS is a constant where this is inlined. */
PHI_INLINE void w8_rows_tile(const struct phi_quant_matmul *a, size_t row, size_t token,
                             const size_t n)
{
    const char *w[ROWS];
    const int8_t *x = a->x + token * a->ld_x;
    __m512i acc[ROWS_TOKENS][ROWS];
    size_t k = 0;
    tile_rows(a, row, w);
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        PHI_UNROLL
    for (size_t r = 0; r < ROWS; r++)
        acc[t][r] = _mm512_setzero_si512();
    for (; k + STEP <= a->k; k += STEP) {
        prefetch_rows(w, k, ROWS * a->row_bytes);
        w8_step(acc, w, k, a->k, x, a->ld_x, whole_step, n);
    }
    if (k < a->k)
        w8_step(acc, w, k, a->k, x, a->ld_x, row_step, n);
    const size_t n_rows = a->n_rows - row < ROWS ? a->n_rows - row : ROWS;
    __m128 scales = row_scales((const float *)a->w_scale + row, n_rows);
    PHI_UNROLL
    for (size_t t = 0; t < n; t++) {
        __m128i extra = _mm_set1_epi32(a->x_sums[(token + t) * a->ld_sums]);
        __m128i sums = _mm_add_epi32(reduce16x4(acc[t]), extra);
        store_rows(a, row, token + t, _mm_mul_ps(_mm_cvtepi32_ps(sums), scales));
    }
}

/* The lanes of one row by the one token. */
PHI_INLINE __m512i w8_row(const char *w, const int8_t *x, size_t k)
{
    __m512i even = _mm512_setzero_si512(), odd = _mm512_setzero_si512();
    size_t at = 0;
    for (; at + 2 * STEP <= k; at += 2 * STEP) {
        prefetch(w + at + ROW_AHEAD);
        prefetch(w + at + ROW_AHEAD + STEP);
        even = dot(even, unsigned_w8(whole_step(w, at, k)), _mm512_load_si512(x + at));
        odd = dot(odd, unsigned_w8(whole_step(w, at + STEP, k)), _mm512_load_si512(x + at + STEP));
    }
    for (; at < k; at += STEP)
        even = dot(even, unsigned_w8(row_step(w, at, k)), _mm512_load_si512(x + at));
    return _mm512_add_epi32(even, odd);
}

/* One token. Rows are read one after the other, each to its end: memory is fastest as one stream. */
static void w8_stream(const struct phi_quant_matmul *a)
{
    int32_t lanes[PHI_STRIP_ROWS][PHI_STRIP_ROWS] __attribute__((aligned(64))) = {{0}};
    const __mmask16 rows = (__mmask16)((1u << a->n_rows) - 1);
    __m512i v[PHI_STRIP_ROWS], sums = _mm512_set1_epi32(a->x_sums[0]);
    for (size_t r = 0; r < a->n_rows; r++)
        _mm512_store_si512(lanes[r], w8_row((const char *)a->w + r * a->row_bytes, a->x, a->k));
    PHI_UNROLL
    for (size_t r = 0; r < PHI_STRIP_ROWS; r++)
        v[r] = _mm512_load_si512(lanes[r]);
    transpose16x16(v);
    PHI_UNROLL
    for (size_t i = 0; i < PHI_STRIP_ROWS; i++)
        sums = _mm512_add_epi32(sums, v[i]);
    __m512 y = _mm512_mul_ps(_mm512_cvtepi32_ps(sums), _mm512_maskz_loadu_ps(rows, a->w_scale));
    if (a->x_scale)
        y = _mm512_mul_ps(y, _mm512_set1_ps(a->x_scale[0]));
    _mm512_mask_storeu_ps(a->y, rows, y);
}

static void w8_rows(const struct phi_quant_matmul *a)
{
    if (a->n_tokens == 1) {
        w8_stream(a);
        return;
    }
    for (size_t row = 0; row < a->n_rows; row += ROWS) {
        size_t token = 0;
        for (; token + ROWS_TOKENS <= a->n_tokens; token += ROWS_TOKENS)
            w8_rows_tile(a, row, token, ROWS_TOKENS);
        for (; token + 2 <= a->n_tokens; token += 2)
            w8_rows_tile(a, row, token, 2);
        for (; token < a->n_tokens; token++)
            w8_rows_tile(a, row, token, 1);
    }
}

#endif
