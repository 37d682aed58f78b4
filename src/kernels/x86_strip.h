/* x86_strip.h: the matrix product for many tokens, second half, with AVX-512: tiles of eight
 * rows by up to six tokens over the packed strip. A register holds the lanes of two rows, and
 * eight activations stand in both its halves. */
#ifndef PHI_KERNELS_X86_STRIP_H
#define PHI_KERNELS_X86_STRIP_H

#include "kernels/x86_pack.h"
#include "kernels/x86_segments.h"

enum {
    BLOCK_ROWS = 8,
    BLOCK_REGISTERS = 4,
    BLOCK_TOKENS = 6,
    TILE_SUMS = BLOCK_ROWS * BLOCK_TOKENS
};

/* The activations at x that belong to plane `plane`, in both halves. */
typedef __m512 (*activation_fn)(const void *x, int plane);
typedef __m512 (*multiply_fn)(__m512 acc, __m512 w, __m512 x);

struct strip_form {
    struct pack_form pack;
    activation_fn activation;
    multiply_fn multiply;
    size_t x_bytes; /* of one element */
};

/* Each of these takes a pair of registers to one, adding what reduce8 adds at that depth in each of
 * the dot products they hold, eight lanes each: lanes i and i + 4, then i and i + 2, then i and i
 * + 1. */
PHI_INLINE __m512 meet_at_4(__m512 a, __m512 b)
{
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xDD));
}

PHI_INLINE __m512 meet_at_2(__m512 a, __m512 b)
{
    __m512d p = _mm512_castps_pd(a), q = _mm512_castps_pd(b);
    return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(p, q)),
                         _mm512_castpd_ps(_mm512_unpackhi_pd(p, q)));
}

PHI_INLINE __m512 meet_at_1(__m512 a, __m512 b)
{
    return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xDD));
}

/* The lanes' first two additions for the eight rows of one token. Of row i < 4 the quarter i of the
 * result holds c[0], c[1], and then those of row i + 4. */
PHI_INLINE __m512 reduce_rows(const __m512 acc[BLOCK_REGISTERS])
{
    return meet_at_2(meet_at_4(acc[0], acc[1]), meet_at_4(acc[2], acc[3]));
}

/* The third addition, for two tokens: eight sums of the first, eight of the second. */
PHI_INLINE __m512 reduce_tokens(__m512 first, __m512 second)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_ps(order, meet_at_1(first, second));
}

/* sums [pair of tokens][token of the pair][row]. */
PHI_INLINE void reduce_tile(float *sums, const __m512 acc[][BLOCK_REGISTERS], const size_t n_tokens)
{
    PHI_UNROLL
    for (size_t t = 0; t < n_tokens; t += 2)
        _mm512_storeu_ps(
            sums + t * BLOCK_ROWS,
            reduce_tokens(reduce_rows(acc[t]), reduce_rows(acc[t + 1 < n_tokens ? t + 1 : t])));
}

PHI_INLINE void store_tile(const struct phi_matmul *a, size_t row, size_t token, const float *sums,
                           const size_t n_tokens)
{
    const size_t n_rows = a->n_rows - row;
    const __mmask8 mask = (__mmask8)(n_rows < BLOCK_ROWS ? (1u << n_rows) - 1 : 0xFF);
    PHI_UNROLL
    for (size_t t = 0; t < n_tokens; t++)
        _mm256_mask_storeu_ps(a->y + (token + t) * a->ld_y + row, mask,
                              _mm256_loadu_ps(sums + t * BLOCK_ROWS));
}

/* Token t of rows ld_bytes apart, from two bases: few registers hold all addresses. */
PHI_INLINE const char *token_at(const char *x, const char *x3, size_t ld_bytes, size_t t)
{
    return (t < 3 ? x : x3) + t % 3 * ld_bytes;
}

/* One step: the activations of tokens from x and x3 on, the packed weights at w. */
PHI_INLINE void strip_step(__m512 acc[][BLOCK_REGISTERS], const char *w, const char *x,
                           const char *x3, size_t ld_bytes, const struct strip_form form,
                           const size_t n_tokens)
{
    PHI_UNROLL
    for (int plane = 0; plane < form.pack.n_planes; plane++) {
        __m512 xv[BLOCK_TOKENS];
        PHI_UNROLL
        for (size_t t = 0; t < n_tokens; t++)
            xv[t] = form.activation(token_at(x, x3, ld_bytes, t), plane);
        PHI_UNROLL
        for (size_t r = 0; r < BLOCK_REGISTERS; r++, w += 64) {
            __m512 wv = _mm512_load_ps(w);
            PHI_UNROLL
            for (size_t t = 0; t < n_tokens; t++)
                acc[t][r] = form.multiply(acc[t][r], wv, xv[t]);
        }
    }
}

/* k columns from those at w and x on: the lanes of n_tokens by BLOCK_ROWS dot products. */
PHI_INLINE void tile_dots(__m512 acc[][BLOCK_REGISTERS], const char *w, const char *x,
                          size_t ld_bytes, size_t k, const struct strip_form form,
                          const size_t n_tokens)
{
    const size_t w_step = (size_t)form.pack.n_planes * BLOCK_ROWS * PLANE_BYTES;
    const size_t x_step = form.pack.step_k * form.x_bytes;
    const char *end = x + k / form.pack.step_k * x_step, *x3 = x + 3 * ld_bytes;
    const size_t rest_bytes = k % form.pack.step_k * form.x_bytes;
    PHI_UNROLL
    for (size_t t = 0; t < n_tokens; t++)
        PHI_UNROLL
    for (size_t r = 0; r < BLOCK_REGISTERS; r++)
        acc[t][r] = _mm512_setzero_ps();
    for (; x < end; x += x_step, x3 += x_step, w += w_step)
        strip_step(acc, w, x, x3, ld_bytes, form, n_tokens);
    if (rest_bytes) {
        unsigned char rest[BLOCK_TOKENS][32] = {{0}};
        for (size_t t = 0; t < n_tokens; t++)
            memcpy(rest[t], x + t * ld_bytes, rest_bytes);
        strip_step(acc, w, (const char *)rest[0], (const char *)rest[3], 32, form, n_tokens);
    }
}

/* n_tokens <= BLOCK_TOKENS is a constant where this is inlined. */
PHI_INLINE void strip_tile(const struct phi_matmul *a, size_t row, size_t token,
                           const struct strip_form form, const size_t n_tokens)
{
    const char *w = (const char *)a->scratch + row / BLOCK_ROWS * block_bytes(a->k, form.pack);
    const size_t ld_bytes = a->ld_x * form.x_bytes;
    const char *x = (const char *)a->x + token * ld_bytes;
    __m512 acc[BLOCK_TOKENS][BLOCK_REGISTERS];
    float sums[TILE_SUMS], levels[TREE_LEVELS * TILE_SUMS];
    const size_t n_sums = (n_tokens + 1) / 2 * 2 * BLOCK_ROWS;
    if (a->segment_k == 0) {
        tile_dots(acc, w, x, ld_bytes, a->k, form, n_tokens);
        reduce_tile(sums, acc, n_tokens);
        store_tile(a, row, token, sums, n_tokens);
        return;
    }
    for (size_t i = 0; i < PHI_N_SEGMENTS; i++) {
        const struct segment s = segment_at(a, i);
        tile_dots(acc, w + block_bytes(s.begin, form.pack), x + s.begin * form.x_bytes, ld_bytes,
                  s.n, form, n_tokens);
        reduce_tile(sums, acc, n_tokens);
        tree_add(levels, i, sums, n_sums);
    }
    store_tile(a, row, token, levels + TREE_ROOT * n_sums, n_tokens);
}

/* The hardware follows a row of activations once it has seen its beginning miss. */
PHI_INLINE void prefetch_tokens(const struct phi_matmul *a, size_t token, size_t x_bytes)
{
    const char *x = (const char *)a->x + token * a->ld_x * x_bytes;
    for (size_t t = token; t < token + BLOCK_TOKENS && t < a->n_tokens; t++, x += a->ld_x * x_bytes)
        for (size_t line = 0; line < 128; line += 64)
            _mm_prefetch(x + line, _MM_HINT_T0);
}

PHI_INLINE void strip_matmul(const struct phi_matmul *a, const struct strip_form form)
{
    pack_strip(a, form.pack);
    struct strip_prefetch next =
        prefetch_start(a, form.pack.w_bytes, (a->n_tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS);
    size_t token = 0;
    for (; token + BLOCK_TOKENS <= a->n_tokens; token += BLOCK_TOKENS) {
        prefetch_some(&next);
        prefetch_tokens(a, token + BLOCK_TOKENS, form.x_bytes);
        for (size_t row = 0; row < a->n_rows; row += BLOCK_ROWS)
            strip_tile(a, row, token, form, BLOCK_TOKENS);
    }
    for (; token + 2 <= a->n_tokens; token += 2)
        for (size_t row = 0; row < a->n_rows; row += BLOCK_ROWS)
            strip_tile(a, row, token, form, 2);
    for (; token < a->n_tokens; token++)
        for (size_t row = 0; row < a->n_rows; row += BLOCK_ROWS)
            strip_tile(a, row, token, form, 1);
}

#endif
