/* maddubs_rows.h: few tokens without VNNI: rows are read in place, one register holding one row's
 * partial sums. See x86_maddubs.h. */
#ifndef PHI_KERNELS_MADDUBS_ROWS_H
#define PHI_KERNELS_MADDUBS_ROWS_H

#include "kernels/maddubs_steps.h"

/* The rows to come whose bytes a tile of rows in place names, as in x86_rows.h. All the passes over
 * the same rows, one for each few tokens, share them out. */
struct rows_ahead {
    const char *first;
    size_t n, row_bytes;
};

PHI_INLINE struct rows_ahead rows_ahead(const struct phi_quant_matmul *a, size_t row,
                                        size_t distance, size_t token, size_t n)
{
    const size_t begin = QUANT_ROWS * token / a->n_tokens,
                 end = QUANT_ROWS * (token + n) / a->n_tokens;
    return (struct rows_ahead){(const char *)a->w + (row + distance + begin) * a->row_bytes,
                               end - begin, a->row_bytes};
}

PHI_INLINE void prefetch_ahead(const struct rows_ahead *rows, size_t at)
{
    const char *from = rows->first + at;
    for (size_t i = 0; i < rows->n; i++, from += rows->row_bytes)
        _mm_prefetch(from, _MM_HINT_T1);
}

/* In each quarter of 128 bits of the result the four rows' sums of that quarter. */
PHI_INLINE vec_int add_words(const vec_int v[QUANT_ROWS])
{
    vec_int a = VEC(add_epi32)(VEC(unpacklo_epi32)(v[0], v[1]), VEC(unpackhi_epi32)(v[0], v[1]));
    vec_int b = VEC(add_epi32)(VEC(unpacklo_epi32)(v[2], v[3]), VEC(unpackhi_epi32)(v[2], v[3]));
    return VEC(add_epi32)(VEC(unpacklo_epi64)(a, b), VEC(unpackhi_epi64)(a, b));
}

PHI_INLINE __m128i add_halves(__m256i v)
{
    return _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
}

enum { QUARTERS = VEC_BYTES / 16 };

#if defined(__AVX512F__)

PHI_INLINE void quarters(__m128i to[QUARTERS], vec_int v)
{
    to[0] = _mm512_castsi512_si128(v);
    to[1] = _mm512_extracti32x4_epi32(v, 1);
    to[2] = _mm512_extracti32x4_epi32(v, 2);
    to[3] = _mm512_extracti32x4_epi32(v, 3);
}

PHI_INLINE __m128i add_quarters(vec_int v)
{
    return add_halves(_mm256_add_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1)));
}

#else

PHI_INLINE void quarters(__m128i to[QUARTERS], vec_int v)
{
    to[0] = _mm256_castsi256_si128(v);
    to[1] = _mm256_extracti128_si256(v, 1);
}

PHI_INLINE __m128i add_quarters(vec_int v)
{
    return add_halves(v);
}

#endif

/* The finished products of four rows and one token. */
PHI_INLINE void store_rows(const struct phi_quant_matmul *a, size_t row, size_t token, __m128 y)
{
    float rest[QUANT_ROWS], *to = a->y + token * a->ld_y + row;
    if (a->x_scale)
        y = _mm_mul_ps(y, _mm_set1_ps(a->x_scale[token]));
    if (row + QUANT_ROWS <= a->n_rows) {
        _mm_storeu_ps(to, y);
        return;
    }
    _mm_storeu_ps(rest, y);
    memcpy(to, rest, (a->n_rows - row) * sizeof *rest);
}

/* Here the activations enter as magnitudes, and weights change their signs. */
PHI_INLINE void w8_rows_step(vec_int acc[][QUANT_ROWS], const char *const *w, size_t k,
                             size_t k_end, const int8_t *x, size_t ld_x, load_row_fn load,
                             const size_t n)
{
    vec_int magnitude[ROWS_TOKENS];
    vec_int negative[ROWS_TOKENS];
    PHI_UNROLL
    for (size_t t = 0; t < n; t++) {
        vec_int xv = load_bytes(x + t * ld_x + k);
        magnitude[t] = VEC(abs_epi8)(xv);
        negative[t] = negative_bytes(xv);
    }
    PHI_UNROLL
    for (size_t r = 0; r < QUANT_ROWS; r++) {
        vec_int wv = load(w[r], k, k_end);
        PHI_UNROLL
        for (size_t t = 0; t < n; t++) {
            vec_int pairs = VEC(maddubs_epi16)(magnitude[t], VEC_BITS(xor)(wv, negative[t]));
            acc[t][r] = in_order(VEC(add_epi32)(acc[t][r], widen_pairs(pairs)));
        }
    }
}

/* The magnitudes of a row's negative activations. */
PHI_INLINE int32_t negative_sum(const int8_t *x, size_t n)
{
    const __m256i zero = _mm256_setzero_si256();
    __m256i sum = zero;
    for (size_t i = 0; i < n; i += 32) {
        __m256i below = _mm256_min_epi8(_mm256_load_si256((const void *)(x + i)), zero);
        sum = _mm256_add_epi32(sum, _mm256_sad_epu8(_mm256_abs_epi8(below), zero));
    }
    __m128i halves = add_halves(sum);
    return _mm_cvtsi128_si32(_mm_add_epi32(halves, _mm_unpackhi_epi64(halves, halves)));
}

/* n <= ROWS_TOKENS is a constant where this is inlined. */
PHI_INLINE void w8_rows_tile(const struct phi_quant_matmul *a, size_t row, size_t token,
                             const int32_t *extra, const size_t n)
{
    const char *w[QUANT_ROWS];
    const int8_t *x = a->x + token * a->ld_x;
    const struct rows_ahead ahead = rows_ahead(a, row, QUANT_ROWS, token, n);
    vec_int acc[ROWS_TOKENS][QUANT_ROWS];
    size_t k = 0;
    row_pointers(a, row, w, QUANT_ROWS);
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        PHI_UNROLL
    for (size_t r = 0; r < QUANT_ROWS; r++)
        acc[t][r] = VEC_BITS(setzero)();
    for (; k + QUANT_LINE <= a->k; k += QUANT_LINE) {
        prefetch_ahead(&ahead, k);
        PHI_UNROLL
        for (size_t i = 0; i < QUANT_LINE; i += VEC_BYTES)
            w8_rows_step(acc, w, k + i, a->k, x, a->ld_x, row_inside, n);
    }
    for (; k < a->k; k += VEC_BYTES)
        w8_rows_step(acc, w, k, a->k, x, a->ld_x, row_end, n);
    const size_t n_rows = a->n_rows - row < QUANT_ROWS ? a->n_rows - row : QUANT_ROWS;
    float scales[QUANT_ROWS] = {0};
    memcpy(scales, (const char *)a->w_scale + row * sizeof *scales, n_rows * sizeof *scales);
    PHI_UNROLL
    for (size_t t = 0; t < n; t++) {
        __m128i sums =
            _mm_add_epi32(add_quarters(add_words(acc[t])), _mm_set1_epi32(extra[token + t]));
        store_rows(a, row, token + t, _mm_mul_ps(_mm_cvtepi32_ps(sums), _mm_loadu_ps(scales)));
    }
}

static inline void w8_rows(const struct phi_quant_matmul *a)
{
    int32_t extra[QUANT_FEW_TOKENS];
    for (size_t t = 0; t < a->n_tokens; t++)
        extra[t] = negative_sum(a->x + t * a->ld_x, a->k);
    for (size_t row = 0; row < a->n_rows; row += QUANT_ROWS) {
        size_t token = 0;
        for (; token + ROWS_TOKENS <= a->n_tokens; token += ROWS_TOKENS)
            w8_rows_tile(a, row, token, extra, ROWS_TOKENS);
        for (; token < a->n_tokens; token++)
            w8_rows_tile(a, row, token, extra, 1);
    }
}

/* The sums of groups become floats; blocks are taken in one by one, or by fours where groups are
 * made of those. */
struct w4_groups {
    const float *scale; /* of the group at hand, [PHI_STRIP_ROWS] apart */
    __m128 acc;
    __m128i sum;
    size_t n_blocks; /* in sum */
};

PHI_INLINE void add_blocks(struct w4_groups *g, __m128i sums, const size_t n,
                           const size_t group_blocks)
{
    g->sum = _mm_add_epi32(g->sum, sums);
    g->n_blocks += n;
    if (g->n_blocks != group_blocks)
        return;
    g->acc = _mm_fmadd_ps(_mm_cvtepi32_ps(g->sum), _mm_load_ps(g->scale), g->acc);
    g->scale += PHI_STRIP_ROWS;
    g->sum = _mm_setzero_si128();
    g->n_blocks = 0;
}

/* Sums of pairs of one row, a block in each quarter. */
PHI_INLINE vec_int w4_pairs(vec_int bytes, const int8_t *x)
{
    vec_int even = load_bytes(x), odd = load_bytes(x + PHI_QUANT_STEP / 2);
    return VEC(add_epi16)(VEC(maddubs_epi16)(low_nibbles(bytes), even),
                          VEC(maddubs_epi16)(high_nibbles(bytes), odd));
}

/* Four rows by a register's blocks from `block` on, of which n_blocks exist. */
PHI_INLINE void w4_rows_blocks(const struct phi_quant_matmul *a, struct w4_groups *g,
                               const char *const *w, size_t token, size_t block, size_t n_blocks,
                               load_row_fn load, const size_t group_blocks, const size_t n)
{
    const size_t n_bytes = (a->k + 1) / 2, at = block * PHI_QUANT_BLOCK / 2;
    const size_t place = phi_quant_place(block * PHI_QUANT_BLOCK, PHI_W4A8);
    vec_int v[ROWS_TOKENS][QUANT_ROWS];
    PHI_UNROLL
    for (size_t r = 0; r < QUANT_ROWS; r++) {
        vec_int bytes = load(w[r], at, n_bytes);
        PHI_UNROLL
        for (size_t t = 0; t < n; t++)
            v[t][r] = widen_pairs(w4_pairs(bytes, a->x + (token + t) * a->ld_x + place));
    }
    PHI_UNROLL
    for (size_t t = 0; t < n; t++) {
        const int32_t *x_sums = a->x_sums + (token + t) * a->ld_sums + block;
        __m128i sums[QUARTERS];
        quarters(sums, add_words(v[t]));
        PHI_UNROLL
        for (size_t b = 0; b < QUARTERS; b++)
            if (b < n_blocks)
                add_blocks(&g[t], _mm_add_epi32(sums[b], _mm_set1_epi32(x_sums[b])), 1,
                           group_blocks);
    }
}

/* Four rows by four blocks from `block` on, all of one group. */
PHI_INLINE void w4_rows_step(const struct phi_quant_matmul *a, struct w4_groups *g,
                             const char *const *w, size_t token, size_t block,
                             const size_t group_blocks, const size_t n)
{
    const size_t at = block * PHI_QUANT_BLOCK / 2;
    vec_int v[ROWS_TOKENS][QUANT_ROWS];
    PHI_UNROLL
    for (size_t r = 0; r < QUANT_ROWS; r++)
        PHI_UNROLL
    for (size_t i = 0; i < QUANT_LINE; i += VEC_BYTES) {
        vec_int bytes = load_bytes(w[r] + at + i);
        PHI_UNROLL
        for (size_t t = 0; t < n; t++) {
            const int8_t *x = a->x + (token + t) * a->ld_x + block * PHI_QUANT_BLOCK + i;
            vec_int pairs = w4_pairs(bytes, x);
            v[t][r] = i == 0 ? pairs : VEC(add_epi16)(v[t][r], pairs);
        }
    }
    PHI_UNROLL
    for (size_t t = 0; t < n; t++) {
        const int32_t *s = a->x_sums + (token + t) * a->ld_sums + block;
        __m128i extra = _mm_set1_epi32(s[0] + s[1] + s[2] + s[3]);
        PHI_UNROLL
        for (size_t r = 0; r < QUANT_ROWS; r++)
            v[t][r] = widen_pairs(v[t][r]);
        add_blocks(&g[t], _mm_add_epi32(add_quarters(add_words(v[t])), extra), 4, group_blocks);
    }
}

/* group_blocks may be, n <= ROWS_TOKENS is a constant where this is inlined. */
PHI_INLINE void w4_rows_tile(const struct phi_quant_matmul *a, size_t row, size_t token,
                             const size_t group_blocks, const size_t n)
{
    const char *w[QUANT_ROWS];
    const size_t n_bytes = (a->k + 1) / 2,
                 n_blocks = (a->k + PHI_QUANT_BLOCK - 1) / PHI_QUANT_BLOCK;
    /* short rows: further ahead */
    const struct rows_ahead ahead = rows_ahead(a, row, PHI_STRIP_ROWS, token, n);
    struct w4_groups g[ROWS_TOKENS];
    size_t block = 0;
    row_pointers(a, row, w, QUANT_ROWS);
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        g[t] = (struct w4_groups){packed_scales(a) + row, _mm_setzero_ps(), _mm_setzero_si128(), 0};
    for (; block * 16 + QUANT_LINE <= n_bytes; block += 4) {
        prefetch_ahead(&ahead, block * 16);
        if (group_blocks % 4 == 0) {
            w4_rows_step(a, g, w, token, block, group_blocks, n);
            continue;
        }
        PHI_UNROLL
        for (size_t b = 0; b < 4; b += QUARTERS)
            w4_rows_blocks(a, g, w, token, block + b, QUARTERS, row_inside, group_blocks, n);
    }
    for (; block < n_blocks; block += QUARTERS)
        w4_rows_blocks(a, g, w, token, block, n_blocks - block, row_end, group_blocks, n);
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        store_rows(a, row, token + t, g[t].acc);
}

/* Names the scales of the next strip, those of four rows. */
PHI_INLINE void prefetch_scales(const struct phi_quant_matmul *a, size_t row)
{
    const size_t row_bytes = a->ld_scale * phi_dtype_bytes(a->scale_dtype);
    const char *from = (const char *)a->w_scale + (row + PHI_STRIP_ROWS) * row_bytes;
    for (size_t at = 0; at < QUANT_ROWS * row_bytes; at += 64)
        _mm_prefetch(from + at, _MM_HINT_T1);
}

PHI_INLINE void w4_rows_of(const struct phi_quant_matmul *a, const size_t group_blocks)
{
    for (size_t row = 0; row < a->n_rows; row += QUANT_ROWS) {
        size_t token = 0;
        prefetch_scales(a, row);
        for (; token + ROWS_TOKENS <= a->n_tokens; token += ROWS_TOKENS)
            w4_rows_tile(a, row, token, group_blocks, ROWS_TOKENS);
        for (; token < a->n_tokens; token++)
            w4_rows_tile(a, row, token, group_blocks, 1);
    }
}

static inline void w4_rows(const struct phi_quant_matmul *a)
{
    if (a->group == 32)
        w4_rows_of(a, 1);
    else if (a->group == 128)
        w4_rows_of(a, 4);
    else
        w4_rows_of(a, (a->group + PHI_QUANT_BLOCK - 1) / PHI_QUANT_BLOCK);
}

#endif
