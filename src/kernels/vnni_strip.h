/* vnni_strip.h: integer products of a strip whose bytes lie transposed in a->scratch: [step of 64
 * bytes][16 words of 4 bytes][16 rows], so that one register holds four bytes of sixteen rows and a
 * sum needs no reduction. 4-bit weights are transposed as they are and fall apart into nibbles
 * where they are multiplied. Private to avx512_vnni.c. */
#ifndef PHI_KERNELS_VNNI_STRIP_H
#define PHI_KERNELS_VNNI_STRIP_H

#include "kernels/vnni_steps.h"

enum {
    TOKENS = 12,    /* at most, of a tile */
    ONE_CHAIN = 5,  /* fewer tokens have two sums each: products would wait for one another */
    PACK_AHEAD = 4, /* rows of the next strip that are named while this one is transposed */
};

/* ---------------------------------------------------------------- transposing */

/* The rows of a strip; those that do not exist repeat the last one. */
struct strip_rows {
    const char *row[PHI_STRIP_ROWS];
    size_t n_bytes; /* of a row */
    size_t ahead;   /* from a row to the same one of the next strip */
};

PHI_INLINE struct strip_rows strip_rows(const struct phi_quant_matmul *a, size_t n_bytes)
{
    struct strip_rows s = {.n_bytes = n_bytes, .ahead = PHI_STRIP_ROWS * a->row_bytes};
    for (size_t r = 0; r < PHI_STRIP_ROWS; r++) {
        size_t from = r < a->n_rows ? r : a->n_rows - 1;
        s.row[r] = (const char *)a->w + from * a->row_bytes;
    }
    return s;
}

/* Names a step's bytes in the first n rows of the next strip. */
PHI_INLINE void prefetch_next(const struct strip_rows *s, size_t at, const size_t n)
{
    PHI_UNROLL
    for (size_t r = 0; r < n; r++)
        prefetch(s->row[r] + at + s->ahead);
}

PHI_INLINE void transpose_with(const struct strip_rows *s, size_t at, load_step_fn load, char *to)
{
    __m512i v[16];
    PHI_UNROLL
    for (size_t r = 0; r < 16; r++)
        v[r] = load(s->row[r], at, s->n_bytes);
    prefetch_next(s, at, PACK_AHEAD);
    transpose16x16(v);
    PHI_UNROLL
    for (int i = 0; i < 16; i++)
        _mm512_store_si512(to + i * STEP, v[i]);
}

/* The step that begins `at` bytes into the rows, to 16 * STEP bytes. Not inlined, lest gcc carry
 * sixteen addresses through the loop around it. */
static __attribute__((noinline)) void transpose_step(const struct strip_rows *s, size_t at,
                                                     char *to)
{
    if (at + STEP <= s->n_bytes)
        transpose_with(s, at, whole_step, to);
    else
        transpose_with(s, at, row_step, to);
}

/* Shuffles fill what products leave of the processor, so a tile of few tokens transposes while it
 * multiplies: with each block (a quarter of a step) something of the step at `at`, which is whole and the
 * next one to be multiplied. */
typedef void (*ahead_fn)(const struct strip_rows *s, size_t at, size_t quarter, char *to);

PHI_INLINE __m128i quarter_of(const char *row, size_t at, size_t quarter)
{
    return _mm_loadu_si128((const void *)(row + at + 16 * quarter));
}

/* Sixteen bytes of each row meet as they are loaded: half of the shuffles, and few registers. */
PHI_INLINE void ahead_by_quarters(const struct strip_rows *s, size_t at, size_t quarter, char *to)
{
    __m512i v[4];
    PHI_UNROLL
    for (size_t i = 0; i < 4; i++) {
        const char *const *row = s->row + i;
        v[i] = _mm512_castsi128_si512(quarter_of(row[0], at, quarter));
        v[i] = _mm512_mask_broadcast_i32x4(v[i], 0x00F0, quarter_of(row[4], at, quarter));
        v[i] = _mm512_mask_broadcast_i32x4(v[i], 0x0F00, quarter_of(row[8], at, quarter));
        v[i] = _mm512_mask_broadcast_i32x4(v[i], 0xF000, quarter_of(row[12], at, quarter));
    }
    transpose_quarters(v);
    PHI_UNROLL
    for (size_t i = 0; i < 4; i++)
        _mm512_store_si512(to + (4 * quarter + i) * STEP, v[i]);
}

/* For rows whose lines would push each other out of the first-level cache before the fourth quarter. */
PHI_INLINE void ahead_by_steps(const struct strip_rows *s, size_t at, size_t quarter, char *to)
{
    if (quarter == 0)
        transpose_step(s, at, to);
}

/* ---------------------------------------------------------------- tiles */

/* Rows by threes: the address of each is one register plus 0, 1 or 2 times the distance, which an
 * instruction adds for nothing. The compiler would rather keep twelve addresses in memory, so it is
 * not to know what they have in common. */
struct by_threes {
    const char *third[TOKENS / 3];
    size_t stride;
};

PHI_INLINE void hide(struct by_threes *rows, const size_t n)
{
    __asm__("" : "+r"(rows->stride));
    PHI_UNROLL
    for (size_t i = 0; 3 * i < n; i++)
        __asm__("" : "+r"(rows->third[i]));
}

PHI_INLINE struct by_threes by_threes(const void *from, size_t stride, const size_t n)
{
    struct by_threes rows = {.stride = stride};
    PHI_UNROLL
    for (size_t i = 0; 3 * i < n; i++)
        rows.third[i] = (const char *)from + 3 * i * stride;
    hide(&rows, n);
    return rows;
}

PHI_INLINE void advance(struct by_threes *rows, size_t by, const size_t n)
{
    PHI_UNROLL
    for (size_t i = 0; 3 * i < n; i++)
        rows->third[i] += by;
    hide(rows, n);
}

PHI_INLINE const void *row_at(const struct by_threes *rows, size_t r, size_t at)
{
    return rows->third[r / 3] + r % 3 * rows->stride + at;
}

/* Four bytes of sixteen rows times those at `at` of n tokens. */
PHI_INLINE void multiply(__m512i sum[TOKENS], __m512i w, const struct by_threes *x, size_t at,
                         const size_t n)
{
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        sum[t] = dot_broadcast(sum[t], w, row_at(x, t, at));
}

PHI_INLINE __mmask16 strip_mask(const struct phi_quant_matmul *a)
{
    return (__mmask16)((1u << a->n_rows) - 1);
}

/* Fetches the lines that a tile of n tokens will store to: stores wait for theirs one by one. */
PHI_INLINE void prefetch_stores(const struct phi_quant_matmul *a, size_t token, const size_t n)
{
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        __asm__ volatile("prefetchw %0" : : "m"(a->y[(token + t) * a->ld_y]));
}

PHI_INLINE void store_strip(const struct phi_quant_matmul *a, size_t token, __m512 y)
{
    if (a->x_scale)
        y = _mm512_mul_ps(y, _mm512_set1_ps(a->x_scale[token]));
    _mm512_mask_storeu_ps(a->y + token * a->ld_y, strip_mask(a), y);
}

PHI_INLINE void multiply_w8(__m512i sum[TOKENS], const char *w, const struct by_threes *x,
                            size_t at, const size_t n)
{
    multiply(sum, unsigned_w8(_mm512_load_si512(w)), x, at, n);
}

/* The first two tiles of tokens name what the next strip will read: where all buffers of the memory
 * are busy the processor forgets about a line, so that once is not enough. */
PHI_INLINE void w8_strip_tile(const struct phi_quant_matmul *a, const struct strip_rows *rows,
                              size_t token, const size_t n)
{
    const char *w = a->scratch;
    struct by_threes x = by_threes(a->x + token * a->ld_x, a->ld_x, n);
    __m512i sum[TOKENS];
    prefetch_stores(a, token, n);
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        sum[t] = _mm512_set1_epi32(a->x_sums[(token + t) * a->ld_sums]);
    for (size_t k = 0; k < a->k; k += 16) {
        /* Not a loop: gcc 12 would keep the sums in memory. */
        multiply_w8(sum, w, &x, 0, n);
        multiply_w8(sum, w + STEP, &x, 4, n);
        multiply_w8(sum, w + 2 * STEP, &x, 8, n);
        multiply_w8(sum, w + 3 * STEP, &x, 12, n);
        w += 4 * STEP;
        advance(&x, 16, n);
        if (token <= TOKENS && k % STEP == 0)
            prefetch_next(rows, k, PHI_STRIP_ROWS);
    }
    const __m512 scales = _mm512_maskz_loadu_ps(strip_mask(a), a->w_scale);
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        store_strip(a, token + t, _mm512_mul_ps(_mm512_cvtepi32_ps(sum[t]), scales));
}

PHI_INLINE void multiply_w4(__m512i low[TOKENS], __m512i high[TOKENS], const char *w,
                            const struct by_threes *x, size_t at, const size_t n)
{
    const __m512i bytes = _mm512_load_si512(w);
    multiply(low, low_nibbles(bytes), x, at, n);
    multiply(n < ONE_CHAIN ? high : low, high_nibbles(bytes), x, at + STEP, n);
}

/* One pass over the blocks: nested loops would keep gcc 12 from holding the sums in registers. `ahead` is
 * NULL where the whole strip has been transposed. */
PHI_INLINE void w4_strip_tile(const struct phi_quant_matmul *a, const struct strip_rows *rows,
                              size_t token, ahead_fn ahead, const size_t n)
{
    const char *w = a->scratch;
    const float *scale = packed_scales(a);
    const size_t n_blocks = (a->k + PHI_QUANT_BLOCK - 1) / PHI_QUANT_BLOCK;
    const size_t group_blocks = (a->group + PHI_QUANT_BLOCK - 1) / PHI_QUANT_BLOCK;
    struct by_threes x = by_threes(a->x + token * a->ld_x, a->ld_x, n);
    struct by_threes x_sums =
        by_threes(a->x_sums + token * a->ld_sums, a->ld_sums * sizeof *a->x_sums, n);
    __m512 acc[TOKENS];
    __m512i sum[TOKENS], high[TOKENS];
    size_t left = group_blocks; /* blocks of the group */
    const size_t n_steps = rows->n_bytes / STEP; /* whole ones */
    prefetch_stores(a, token, n);
    PHI_UNROLL
    for (size_t t = 0; t < n; t++) {
        acc[t] = _mm512_setzero_ps();
        sum[t] = high[t] = _mm512_setzero_si512();
    }
    for (size_t block = 0; block < n_blocks; block++) {
        PHI_UNROLL
        for (size_t t = 0; t < n; t++) {
            const __m512i extra = _mm512_set1_epi32(*(const int32_t *)row_at(&x_sums, t, 0));
            sum[t] = _mm512_add_epi32(sum[t], extra);
        }
        const size_t next = block / 4 + 1;
        if (ahead && next < n_steps)
            ahead(rows, next * STEP, block % 4, (char *)a->scratch + next * 16 * STEP);
        multiply_w4(sum, high, w, &x, 0, n);
        multiply_w4(sum, high, w + STEP, &x, 4, n);
        multiply_w4(sum, high, w + 2 * STEP, &x, 8, n);
        multiply_w4(sum, high, w + 3 * STEP, &x, 12, n);
        w += 4 * STEP;
        advance(&x, block % 4 == 3 ? 16 + STEP : 16, n);
        advance(&x_sums, sizeof *a->x_sums, n);
        if (token <= TOKENS && block % 4 == 0)
            prefetch_next(rows, block * 16, PHI_STRIP_ROWS);
        if (--left > 0)
            continue;
        const __m512 scales = _mm512_load_ps(scale);
        PHI_UNROLL
        for (size_t t = 0; t < n; t++) {
            if (n < ONE_CHAIN)
                sum[t] = _mm512_add_epi32(sum[t], high[t]);
            acc[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[t]), scales, acc[t]);
            sum[t] = high[t] = _mm512_setzero_si512();
        }
        scale += PHI_STRIP_ROWS;
        left = group_blocks;
    }
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        store_strip(a, token + t, acc[t]);
}

/* ---------------------------------------------------------------- all tokens */

typedef void (*tile_fn)(const struct phi_quant_matmul *a, const struct strip_rows *rows,
                        size_t token, size_t n);

/* The tokens from `token` on. */
PHI_INLINE void strip_tiles(const struct phi_quant_matmul *a, const struct strip_rows *rows,
                            size_t token, tile_fn tile)
{
    for (; token + TOKENS <= a->n_tokens; token += TOKENS)
        tile(a, rows, token, TOKENS);
    for (; token + 8 <= a->n_tokens; token += 8)
        tile(a, rows, token, 8);
    for (; token + 4 <= a->n_tokens; token += 4)
        tile(a, rows, token, 4);
    for (; token + 2 <= a->n_tokens; token += 2)
        tile(a, rows, token, 2);
    for (; token < a->n_tokens; token++)
        tile(a, rows, token, 1);
}

static void w8_strip(const struct phi_quant_matmul *a)
{
    const struct strip_rows rows = strip_rows(a, a->k);
    char *to = a->scratch;
    for (size_t at = 0; at < a->k; at += STEP, to += 16 * STEP)
        transpose_step(&rows, at, to);
    strip_tiles(a, &rows, 0, w8_strip_tile);
}

PHI_INLINE void w4_later_tile(const struct phi_quant_matmul *a, const struct strip_rows *rows,
                              size_t token, const size_t n)
{
    w4_strip_tile(a, rows, token, NULL, n);
}

/* Three to eight tokens. */
PHI_INLINE void w4_first_tile(const struct phi_quant_matmul *a, const struct strip_rows *rows,
                              ahead_fn ahead, size_t n)
{
    assert(n >= 3 && n <= 8);
    switch (n) {
    case 3:
        w4_strip_tile(a, rows, 0, ahead, 3);
        break;
    case 4:
        w4_strip_tile(a, rows, 0, ahead, 4);
        break;
    case 5:
        w4_strip_tile(a, rows, 0, ahead, 5);
        break;
    case 6:
        w4_strip_tile(a, rows, 0, ahead, 6);
        break;
    case 7:
        w4_strip_tile(a, rows, 0, ahead, 7);
        break;
    default:
        w4_strip_tile(a, rows, 0, ahead, 8);
    }
}

/* The first tile transposes all steps but the first one, and one that is not whole. */
static void w4_strip(const struct phi_quant_matmul *a)
{
    enum { ALIKE_BYTES = 2048 }; /* rows so far apart share eight lines of a cache, or sixteen */
    const size_t n_bytes = (a->k + 1) / 2, last = n_bytes / STEP * STEP;
    const struct strip_rows rows = strip_rows(a, n_bytes);
    char *strip = a->scratch;
    transpose_step(&rows, 0, strip);
    if (last > 0 && last < n_bytes)
        transpose_step(&rows, last, strip + 16 * last);
    const size_t n = a->n_tokens < 8 ? a->n_tokens : 8;
    if (a->row_bytes % ALIKE_BYTES == 0)
        w4_first_tile(a, &rows, ahead_by_steps, n);
    else
        w4_first_tile(a, &rows, ahead_by_quarters, n);
    strip_tiles(a, &rows, n, w4_later_tile);
}

#endif
