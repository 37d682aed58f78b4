/* x86_in_place.h: the matrix product for a few tokens, with AVX-512. Weight rows are read straight
 * from memory and widened in registers; the activations have been interleaved once for all rows of
 * the matrix, by pairs of tokens, so that a register holds the lanes of one row for two tokens:
 *     [step of k][plane][token][32 bytes]
 * (x86_pack.h with the tokens as rows of one block; an odd number has a token of zeros behind it).
 *
 * Long rows go by parts, so that a part of the activations stays in the second-level cache for all
 * rows of the strip; the sums of the lanes wait in scratch. */
#ifndef PHI_KERNELS_X86_IN_PLACE_H
#define PHI_KERNELS_X86_IN_PLACE_H

#include "kernels/x86_rows.h"
#include "kernels/x86_strip.h"

enum {
    PART_BYTES = 65536, /* of interleaved activations */
    /* The tiles: 24 sums, and one register for each of the lesser side and one more. Many rows ask
     * the second-level cache for less; many pairs widen weights less often. */
    WIDE_ROWS = 8,
    WIDE_PAIRS = 3,
    TALL_ROWS = 4,
    TALL_PAIRS = 6,
    MAX_TILE_ROWS = WIDE_ROWS,
    MAX_PAIRS = TALL_PAIRS,
};

/* A strip_form's pack is what interleaves activations here; its activation is not used. */
struct in_place_form {
    struct strip_form x;
    activation_fn weight;   /* those of plane `plane` at w, in both halves */
    size_t w_bytes;         /* of one element */
    size_t n_rows, n_pairs; /* of a tile */
};

static inline size_t n_even(size_t n_tokens)
{
    return (n_tokens + 1) / 2 * 2;
}

PHI_INLINE void interleave_tokens(void *to, const void *x, size_t ld_x, size_t n_tokens, size_t k,
                                  struct pack_form form)
{
    form.block_rows = n_even(n_tokens);
    const size_t stride = form.block_rows * PLANE_BYTES, bytes = block_bytes(k, form);
    for (size_t t = 0; t < n_tokens; t++)
        pack_row((char *)to + t * PLANE_BYTES, (const char *)x + t * ld_x * form.w_bytes, k, form);
    for (size_t i = n_tokens * PLANE_BYTES; n_tokens % 2 && i < bytes; i += stride)
        _mm256_store_si256((void *)((char *)to + i), _mm256_setzero_si256());
}

/* Where a tile works. */
struct in_place {
    const struct phi_matmul *a;
    size_t begin, end; /* columns of the part */
    size_t stride;     /* bytes of one plane of interleaved activations */
};

/* The r-th of rows ld_bytes apart, from two bases: few registers hold all addresses. */
PHI_INLINE const char *row_at(const char *w, const char *w4, size_t ld_bytes, size_t r)
{
    return (r < 4 ? w : w4) + r % 4 * ld_bytes;
}

PHI_INLINE void in_place_step(__m512 acc[][MAX_PAIRS], const char *w, const char *w4,
                              size_t ld_bytes, const char *x, size_t stride,
                              const struct in_place_form form, const size_t n_rows,
                              const size_t n_pairs)
{
    PHI_UNROLL
    for (int plane = 0; plane < form.x.pack.n_planes; plane++, x += stride) {
        __m512 xv[MAX_PAIRS], wv[MAX_TILE_ROWS];
        if (n_pairs <= n_rows) {
            PHI_UNROLL
            for (size_t p = 0; p < n_pairs; p++)
                xv[p] = _mm512_load_ps(x + p * 64);
            PHI_UNROLL
            for (size_t r = 0; r < n_rows; r++) {
                wv[0] = form.weight(row_at(w, w4, ld_bytes, r), plane);
                PHI_UNROLL
                for (size_t p = 0; p < n_pairs; p++)
                    acc[r][p] = form.x.multiply(acc[r][p], wv[0], xv[p]);
            }
        } else {
            PHI_UNROLL
            for (size_t r = 0; r < n_rows; r++)
                wv[r] = form.weight(row_at(w, w4, ld_bytes, r), plane);
            PHI_UNROLL
            for (size_t p = 0; p < n_pairs; p++) {
                xv[0] = _mm512_load_ps(x + p * 64);
                PHI_UNROLL
                for (size_t r = 0; r < n_rows; r++)
                    acc[r][p] = form.x.multiply(acc[r][p], wv[r], xv[0]);
            }
        }
    }
}

/* Rows row..row + n_rows - 1 by pairs pair..pair + n_pairs - 1; both counts are constants where
 * this is inlined. The sums of the lanes are left in scratch. */
PHI_INLINE void in_place_tile(const struct in_place *s, struct strip_prefetch *next, size_t row,
                              size_t pair, const struct in_place_form form, const size_t n_rows,
                              const size_t n_pairs)
{
    const size_t step = form.x.pack.step_k, x_step = (size_t)form.x.pack.n_planes * s->stride;
    const size_t ld_bytes = s->a->ld_w * form.w_bytes, stride = s->stride;
    const char *w = (const char *)s->a->w + row * ld_bytes + s->begin * form.w_bytes;
    const char *w4 = w + 4 * ld_bytes;
    const char *x = (const char *)s->a->x_interleaved + s->begin / step * x_step + pair * 64;
    char *lanes = (char *)s->a->scratch + row * stride + pair * 64;
    __m512 acc[MAX_TILE_ROWS][MAX_PAIRS];
    PHI_UNROLL
    for (size_t r = 0; r < n_rows; r++)
        PHI_UNROLL
    for (size_t p = 0; p < n_pairs; p++)
        acc[r][p] = s->begin ? _mm512_load_ps(lanes + r * stride + p * 64) : _mm512_setzero_ps();

    size_t k = s->begin;
    for (; k + CHUNK_K <= s->end; k += CHUNK_K) {
        prefetch_some(next);
        PHI_UNROLL
        for (size_t i = 0; i < CHUNK_K; i += step, x += x_step)
            in_place_step(acc, w + i * form.w_bytes, w4 + i * form.w_bytes, ld_bytes, x, stride,
                          form, n_rows, n_pairs);
        w += CHUNK_K * form.w_bytes;
        w4 += CHUNK_K * form.w_bytes;
    }
    for (; k + step <= s->end; k += step, x += x_step) {
        in_place_step(acc, w, w4, ld_bytes, x, stride, form, n_rows, n_pairs);
        w += step * form.w_bytes;
        w4 += step * form.w_bytes;
    }
    if (k < s->end) {
        unsigned char rest[MAX_TILE_ROWS][32] = {{0}};
        for (size_t r = 0; r < n_rows; r++)
            memcpy(rest[r], row_at(w, w4, ld_bytes, r), (s->end - k) * form.w_bytes);
        in_place_step(acc, (const char *)rest[0], (const char *)rest[4], 32, x, stride, form,
                      n_rows, n_pairs);
    }

    PHI_UNROLL
    for (size_t r = 0; r < n_rows; r++)
        PHI_UNROLL
    for (size_t p = 0; p < n_pairs; p++)
        _mm512_store_ps(lanes + r * stride + p * 64, acc[r][p]);
}

/* Eight rows of lanes, for two tokens -> their sums: rows 0 to 3, the same of the second token,
 * rows 4 to 7, the same. */
PHI_INLINE __m512 meet_rows(const char *lanes, size_t stride)
{
    __m512 rows[4];
    PHI_UNROLL
    for (size_t r = 0; r < 4; r++)
        rows[r] =
            meet_at_4(_mm512_load_ps(lanes + r * stride), _mm512_load_ps(lanes + (r + 4) * stride));
    return meet_at_1(meet_at_2(rows[0], rows[1]), meet_at_2(rows[2], rows[3]));
}

/* The lanes meet. Rows of y lie far apart and share cache sets: each is written once. */
PHI_INLINE void store_lanes(const struct phi_matmul *a, size_t stride)
{
    _Static_assert(PHI_STRIP_ROWS == 16, "two times eight rows");
    const __mmask16 mask = (__mmask16)((1u << a->n_rows) - 1);
    for (size_t t = 0; t < a->n_tokens; t += 2) {
        const char *lanes = (const char *)a->scratch + t * PLANE_BYTES;
        const __m512 low = meet_rows(lanes, stride), high = meet_rows(lanes + 8 * stride, stride);
        float *y = a->y + t * a->ld_y;
        _mm512_mask_storeu_ps(y, mask, _mm512_shuffle_f32x4(low, high, 0x88));
        if (t + 1 < a->n_tokens)
            _mm512_mask_storeu_ps(y + a->ld_y, mask, _mm512_shuffle_f32x4(low, high, 0xDD));
    }
}

/* Pairs of the next tile where n are left: up to twice the most, two of like size. */
static inline size_t tile_pairs(size_t n, size_t most)
{
    return n <= most ? n : n <= 2 * most ? (n + 1) / 2 : most;
}

/* All pairs of n_rows rows; n_rows is a constant where this is inlined. */
PHI_INLINE void in_place_rows(const struct in_place *s, struct strip_prefetch *next, size_t row,
                              const struct in_place_form form, const size_t n_rows)
{
    const size_t n_pairs = n_even(s->a->n_tokens) / 2;
    for (size_t pair = 0, n; pair < n_pairs; pair += n) {
        n = tile_pairs(n_pairs - pair, form.n_pairs);
        if (n == 1)
            in_place_tile(s, next, row, pair, form, n_rows, 1);
        else if (n == 2)
            in_place_tile(s, next, row, pair, form, n_rows, 2);
        else if (n == 3)
            in_place_tile(s, next, row, pair, form, n_rows, 3);
        else if (form.n_pairs >= 4 && n == 4)
            in_place_tile(s, next, row, pair, form, n_rows, 4);
        else if (form.n_pairs >= 5 && n == 5)
            in_place_tile(s, next, row, pair, form, n_rows, 5);
        else if (form.n_pairs >= 6 && n == 6)
            in_place_tile(s, next, row, pair, form, n_rows, 6);
    }
}

/* How often prefetch_some() is called while a strip is computed. */
static inline size_t n_chunks(const struct phi_matmul *a, const struct in_place_form form)
{
    size_t n_tiles = 0;
    for (size_t left = n_even(a->n_tokens) / 2; left > 0; n_tiles++)
        left -= tile_pairs(left, form.n_pairs);
    n_tiles *= a->n_rows / form.n_rows + a->n_rows % form.n_rows;
    return n_tiles * (a->k / CHUNK_K) + 1;
}

PHI_INLINE void in_place_matmul(const struct phi_matmul *a, const struct in_place_form form)
{
    struct in_place s = {.a = a, .stride = n_even(a->n_tokens) * PLANE_BYTES};
    struct strip_prefetch next = prefetch_start(a, form.w_bytes, n_chunks(a, form));
    prefetch_twice(&next, a);
    const size_t step_bytes = (size_t)form.x.pack.n_planes * s.stride;
    const size_t part_k = PART_BYTES / step_bytes * form.x.pack.step_k / CHUNK_K * CHUNK_K;
    for (; s.begin < a->k; s.begin = s.end) {
        s.end = s.begin + part_k < a->k ? s.begin + part_k : a->k;
        size_t row = 0;
        for (; row + form.n_rows <= a->n_rows; row += form.n_rows)
            in_place_rows(&s, &next, row, form, form.n_rows);
        for (; row < a->n_rows; row++)
            in_place_rows(&s, &next, row, form, 1);
    }
    store_lanes(a, s.stride);
}

#endif
