/* vnni_rows.h: integer products with few tokens: weight rows are read in place, one register
 * holding one row's partial sums. Private to avx512_vnni.c. */
#ifndef PHI_KERNELS_VNNI_ROWS_H
#define PHI_KERNELS_VNNI_ROWS_H

#include "kernels/vnni_steps.h"

enum {
    ROWS = 4,        /* of a tile that reads in place */
    ROWS_TOKENS = 4, /* at most, of such a tile */
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

/* Four rows by one step of 128 elements: in quarter b of the result the sums of block b. */
PHI_INLINE __m512i w4_step(const char *const w[ROWS], size_t at, size_t n_bytes, const int8_t *x,
                           const int32_t *x_sums, load_step_fn load)
{
    __m512i even = _mm512_load_si512(x), odd = _mm512_load_si512(x + STEP), v[ROWS];
    PHI_UNROLL
    for (size_t r = 0; r < ROWS; r++) {
        __m512i bytes = load(w[r], at, n_bytes);
        v[r] = dot(_mm512_setzero_si512(), low_nibbles(bytes), even);
        v[r] = dot(v[r], high_nibbles(bytes), odd);
    }
    __m512i a =
        _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
    __m512i b =
        _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
    __m512i c = _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    const __m512i quarters = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    __m512i sums = _mm512_castsi128_si512(_mm_loadu_si128((const void *)x_sums));
    return _mm512_add_epi32(c, _mm512_permutexvar_epi32(quarters, sums));
}

PHI_INLINE __m128i quarter(__m512i v, const int i)
{
    return i == 0   ? _mm512_castsi512_si128(v)
           : i == 1 ? _mm512_extracti32x4_epi32(v, 1)
           : i == 2 ? _mm512_extracti32x4_epi32(v, 2)
                    : _mm512_extracti32x4_epi32(v, 3);
}

/* The sums of groups become floats: blocks are taken in one by one, or by fours where groups are
 * made of those. */
struct w4_groups {
    const float *scale; /* of the group at hand, [PHI_STRIP_ROWS] apart */
    __m128 acc;
    __m128i sum;
    size_t n_blocks; /* in sum */
};

PHI_INLINE void end_group(struct w4_groups *g)
{
    g->acc = _mm_fmadd_ps(_mm_cvtepi32_ps(g->sum), _mm_load_ps(g->scale), g->acc);
    g->scale += PHI_STRIP_ROWS;
    g->sum = _mm_setzero_si128();
    g->n_blocks = 0;
}

/* The first n blocks of a step. */
PHI_INLINE void add_blocks(struct w4_groups *g, __m512i sums, size_t n, const size_t group_blocks)
{
    PHI_UNROLL
    for (int i = 0; i < 4; i++) {
        if ((size_t)i == n)
            break;
        g->sum = _mm_add_epi32(g->sum, quarter(sums, i));
        if (++g->n_blocks == group_blocks)
            end_group(g);
    }
}

PHI_INLINE void add_step(struct w4_groups *g, __m512i sums, const size_t group_blocks)
{
    if (group_blocks % 4 != 0) {
        add_blocks(g, sums, 4, group_blocks);
        return;
    }
    __m256i half =
        _mm256_add_epi32(_mm512_castsi512_si256(sums), _mm512_extracti64x4_epi64(sums, 1));
    g->sum = _mm_add_epi32(
        g->sum, _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)));
    g->n_blocks += 4;
    if (g->n_blocks == group_blocks)
        end_group(g);
}

/* Four rows and the one token. group_blocks may be a constant where this is inlined. */
PHI_INLINE void w4_rows_tile(const struct phi_quant_matmul *a, size_t row,
                             const size_t group_blocks)
{
    const char *w[ROWS];
    const int8_t *x = a->x;
    const int32_t *x_sums = a->x_sums;
    const size_t n_bytes = (a->k + 1) / 2, n_blocks = (a->k + 31) / 32;
    struct w4_groups g = {packed_scales(a) + row, _mm_setzero_ps(), _mm_setzero_si128(), 0};
    size_t block = 0;
    tile_rows(a, row, w);
    for (; block * 16 + STEP <= n_bytes; block += 4) {
        const size_t at = block * 16;
        prefetch_rows(w, at, PHI_STRIP_ROWS * a->row_bytes); /* short rows: further ahead */
        __m512i sums = w4_step(w, at, n_bytes, x + block * 32, x_sums + block, whole_step);
        add_step(&g, sums, group_blocks);
    }
    if (block < n_blocks) {
        __m512i sums = w4_step(w, block * 16, n_bytes, x + block * 32, x_sums + block, row_step);
        add_blocks(&g, sums, n_blocks - block, group_blocks);
    }
    if (g.n_blocks > 0) /* one group of all columns, whose last block may be a part of one */
        end_group(&g);
    store_rows(a, row, 0, g.acc);
}

static void w8_rows(const struct phi_quant_matmul *a)
{
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

static void w4_rows(const struct phi_quant_matmul *a)
{
    for (size_t row = 0; row < a->n_rows; row += ROWS)
        switch (a->group) {
        case 32:
            w4_rows_tile(a, row, 1);
            break;
        case 128:
            w4_rows_tile(a, row, 4);
            break;
        default:
            w4_rows_tile(a, row, (a->group + 31) / PHI_QUANT_BLOCK);
            break;
        }
}

#endif
