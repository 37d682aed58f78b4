/* x86_rows.h: the matrix product that reads weight rows straight from memory and widens them in
 * registers: for few tokens, where memory sets the speed. One 256-bit register holds the eight
 * lanes of one dot product; a tile is four rows by a few tokens. Written once for all forms and
 * types: a struct dot_form says what one step of a dot product is, and inlining makes it
 * disappear. */
#ifndef PHI_KERNELS_X86_ROWS_H
#define PHI_KERNELS_X86_ROWS_H

#include "kernels/x86_segments.h"

/* One step of a dot product: acc + the products of `step_k` weights and activations, in the
 * order of NUMERICS.md section 3. */
typedef __m256 (*dot_step_fn)(__m256 acc, const void *w, const void *x);

struct dot_form {
    dot_step_fn step;
    size_t step_k, w_bytes, x_bytes; /* of one element */
};

PHI_INLINE __m256 step_f32(__m256 acc, const void *w, const void *x)
{
    return _mm256_fmadd_ps(load8_f32(w), load8_f32(x), acc);
}

PHI_INLINE __m256 step_bf16(__m256 acc, const void *w, const void *x)
{
    return _mm256_fmadd_ps(load8_bf16(w), load8_f32(x), acc);
}

PHI_INLINE __m256 step_f16(__m256 acc, const void *w, const void *x)
{
    return _mm256_fmadd_ps(load8_f16(w), load8_f32(x), acc);
}

PHI_INLINE __m256 step_pairs(__m256 acc, const void *w, const void *x)
{
    __m256i w_pairs = _mm256_loadu_si256(w), x_pairs = _mm256_loadu_si256(x);
    acc = _mm256_fmadd_ps(odd_elements(w_pairs), odd_elements(x_pairs), acc);
    return _mm256_fmadd_ps(even_elements(w_pairs), even_elements(x_pairs), acc);
}

#define DOT_F32 ((struct dot_form){step_f32, 8, 4, 4})
#define DOT_BF16 ((struct dot_form){step_bf16, 8, 2, 4})
#define DOT_F16 ((struct dot_form){step_f16, 8, 2, 4})
#define DOT_PAIRS ((struct dot_form){step_pairs, 16, 2, 2})

enum {
    TILE_ROWS = 4,   /* rows of 4 KiB share a set of the L1 cache: more would push each other out */
    TILE_TOKENS = 3, /* the most that a tile is made for: what sixteen registers hold */
    CHUNK_K = 32,    /* elements between two prefetches: a cache line of 16-bit weights */
    STREAM_BYTES = 24576, /* of a tile at most, so that it and what is named fit the L1 cache */
};

/* What a tile names while it is computed: the processor's own prefetchers stop at the end of a
 * page, often a row's. Whole rows behind one another are one stream, whose lines are named in their
 * order into the first level, which is what the prefetchers of the second follow best, from the
 * beginning of the tile's last row on. Where rows lie apart, or are too long or come in segments,
 * the next tile's are named side by side and into the second: the misses in flight of the first are
 * fewer.
 */
struct next_tile {
    const char *stream; /* or NULL */
    size_t tile_bytes;
};

PHI_INLINE struct next_tile next_tile(const struct phi_matmul *a, const char *w, size_t w_bytes)
{
    const size_t bytes = TILE_ROWS * a->ld_w * w_bytes;
    const bool one_stream = a->ld_w == a->k && a->segment_k == 0 && bytes <= STREAM_BYTES;
    return (struct next_tile){one_stream ? w + bytes / TILE_ROWS * (TILE_ROWS - 1) : NULL, bytes};
}

/* As many lines as the tile reads at `at` of its rows. */
PHI_INLINE void prefetch_next(struct next_tile *next, const char *const w[], size_t at,
                              const size_t n_rows)
{
    PHI_UNROLL
    for (size_t r = 0; r < n_rows; r++) {
        if (next->stream)
            _mm_prefetch(next->stream + r * 64, _MM_HINT_T0);
        else
            _mm_prefetch(w[r] + at + next->tile_bytes, _MM_HINT_T1);
    }
    if (next->stream)
        next->stream += n_rows * 64;
}

/* p itself, or, where a row ends within a step, a copy of what it still holds with zeros behind. */
static inline const void *padded(unsigned char room[32], const char *p, size_t n_bytes,
                                 bool short_step)
{
    if (!short_step)
        return p;
    memset(room, 0, 32);
    return memcpy(room, p, n_bytes);
}

/* Columns k..end - 1 of a tile's dot products. n_rows <= TILE_ROWS and n_tokens <= TILE_TOKENS are
 * constants where this is inlined. */
PHI_INLINE void rows_dots(__m256 acc[][TILE_ROWS], const char *const w[], const char *const x[],
                          size_t k, size_t end, struct next_tile *next, const struct dot_form form,
                          const size_t n_rows, const size_t n_tokens)
{
    PHI_UNROLL
    for (size_t t = 0; t < n_tokens; t++)
        PHI_UNROLL
    for (size_t r = 0; r < n_rows; r++)
        acc[t][r] = _mm256_setzero_ps();
    for (; k + CHUNK_K <= end; k += CHUNK_K) {
        for (size_t line = 0; line < CHUNK_K * form.w_bytes; line += 64)
            prefetch_next(next, w, k * form.w_bytes + line, n_rows);
        PHI_UNROLL
        for (size_t i = k; i < k + CHUNK_K; i += form.step_k)
            PHI_UNROLL
        for (size_t r = 0; r < n_rows; r++)
            PHI_UNROLL
        for (size_t t = 0; t < n_tokens; t++)
            acc[t][r] = form.step(acc[t][r], w[r] + i * form.w_bytes, x[t] + i * form.x_bytes);
    }
    for (; k < end; k += form.step_k) {
        const void *w_at[TILE_ROWS], *x_at[TILE_TOKENS];
        unsigned char w_rest[TILE_ROWS][32], x_rest[TILE_TOKENS][32];
        const size_t n = end - k < form.step_k ? end - k : form.step_k;
        for (size_t r = 0; r < n_rows; r++)
            w_at[r] = padded(w_rest[r], w[r] + k * form.w_bytes, n * form.w_bytes, n < form.step_k);
        for (size_t t = 0; t < n_tokens; t++)
            x_at[t] = padded(x_rest[t], x[t] + k * form.x_bytes, n * form.x_bytes, n < form.step_k);
        PHI_UNROLL
        for (size_t r = 0; r < n_rows; r++)
            PHI_UNROLL
        for (size_t t = 0; t < n_tokens; t++)
            acc[t][r] = form.step(acc[t][r], w_at[r], x_at[t]);
    }
}

/* The lanes meet: sums [token][TILE_ROWS], of one row the first of each four. */
PHI_INLINE void reduce_dots(float *sums, __m256 acc[][TILE_ROWS], const size_t n_rows,
                            const size_t n_tokens)
{
    PHI_UNROLL
    for (size_t t = 0; t < n_tokens; t++, sums += TILE_ROWS)
        _mm_storeu_ps(sums, n_rows == TILE_ROWS
                                ? reduce8x4(acc[t][0], acc[t][1], acc[t][2], acc[t][3])
                                : _mm_set_ss(reduce8(acc[t][0])));
}

/* n_rows is TILE_ROWS or 1. */
PHI_INLINE void rows_tile(const struct phi_matmul *a, size_t row, size_t token,
                          const struct dot_form form, const size_t n_rows, const size_t n_tokens)
{
    const size_t n_sums = n_tokens * TILE_ROWS;
    const char *w[TILE_ROWS], *x[TILE_TOKENS];
    __m256 acc[TILE_TOKENS][TILE_ROWS];
    float sums[TILE_TOKENS * TILE_ROWS], levels[TREE_LEVELS * TILE_TOKENS * TILE_ROWS];
    const float *result = sums;
    PHI_UNROLL
    for (size_t r = 0; r < n_rows; r++)
        w[r] = (const char *)a->w + (row + r) * a->ld_w * form.w_bytes;
    struct next_tile next = next_tile(a, w[0], form.w_bytes);
    PHI_UNROLL
    for (size_t t = 0; t < n_tokens; t++)
        x[t] = (const char *)a->x + (token + t) * a->ld_x * form.x_bytes;
    if (a->segment_k == 0) {
        rows_dots(acc, w, x, 0, a->k, &next, form, n_rows, n_tokens);
        reduce_dots(sums, acc, n_rows, n_tokens);
    } else {
        for (size_t i = 0; i < PHI_N_SEGMENTS; i++) {
            const struct segment s = segment_at(a, i);
            rows_dots(acc, w, x, s.begin, s.begin + s.n, &next, form, n_rows, n_tokens);
            reduce_dots(sums, acc, n_rows, n_tokens);
            tree_add(levels, i, sums, n_sums);
        }
        result = levels + TREE_ROOT * n_sums;
    }
    PHI_UNROLL
    for (size_t t = 0; t < n_tokens; t++)
        memcpy(a->y + (token + t) * a->ld_y + row, result + t * TILE_ROWS, n_rows * sizeof *result);
}

/* tile_tokens <= TILE_TOKENS; with AVX-512 it is 1, more tokens being x86_in_place.h's. */
PHI_INLINE void rows_matmul(const struct phi_matmul *a, const struct dot_form form,
                            const size_t tile_tokens)
{
    assert(a->n_rows <= PHI_STRIP_ROWS);
    size_t row = 0;
    for (; row + TILE_ROWS <= a->n_rows; row += TILE_ROWS) {
        size_t token = 0;
        for (; token + tile_tokens <= a->n_tokens; token += tile_tokens)
            rows_tile(a, row, token, form, TILE_ROWS, tile_tokens);
        for (; token + 2 <= a->n_tokens; token += 2)
            rows_tile(a, row, token, form, TILE_ROWS, 2);
        for (; token < a->n_tokens; token++)
            rows_tile(a, row, token, form, TILE_ROWS, 1);
    }
    for (; row < a->n_rows; row++)
        for (size_t token = 0; token < a->n_tokens; token++)
            rows_tile(a, row, token, form, 1, 1);
}

#endif
