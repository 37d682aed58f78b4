/* vnni_w4_rows.h: products of 4-bit weights with one or two tokens. Memory sets their speed, and it
 * is fastest as a single stream, so rows are read one after the other and each to its end. Before a
 * group's lanes become one float they have to meet. They do so in sixteen registers at a time,
 * which become one; the sums of sixteen rows are then turned, so that the chain over the groups
 * runs in all rows at once. Private to avx512_vnni.c. */
#ifndef PHI_KERNELS_VNNI_W4_ROWS_H
#define PHI_KERNELS_VNNI_W4_ROWS_H

#include "kernels/vnni_steps.h"

enum {
    W4_ROWS_TOKENS = 2,                /* at most */
    SUMS = 16,                         /* of one register */
    SUMS_TILE = PHI_STRIP_ROWS * SUMS, /* [row][sum], later [sum][row] */
    CHUNK_BYTES = SUMS * STEP,         /* of a row: one register of steps, or four of blocks */
};

/* What a group's sum is made of: steps of 128 elements, or blocks of 32 where groups are shorter.
 */
struct w4_units {
    bool are_blocks;
    size_t n, per_group, per_segment;
};

PHI_INLINE struct w4_units w4_units(const struct phi_quant_matmul *a)
{
    const bool blocks = a->group % PHI_QUANT_STEP != 0 && a->group != a->k;
    const size_t size = blocks ? PHI_QUANT_BLOCK : PHI_QUANT_STEP;
    const size_t segment = a->segment ? a->segment : a->k;
    return (struct w4_units){blocks, (a->k + size - 1) / size, (a->group + size - 1) / size,
                             (segment + size - 1) / size};
}

/* Pairs of lanes meet: in each quarter those of a, then those of b. They have to fit 16 bits: the
 * eight products of a step do, 15 * 127 each, and two such sums too. */
PHI_INLINE __m512i meet(__m512i a, __m512i b)
{
    return _mm512_madd_epi16(_mm512_packs_epi32(a, b), _mm512_set1_epi16(1));
}

/* Quarters meet by pairs: those of a, then those of b. */
PHI_INLINE __m512i meet_quarters(__m512i a, __m512i b)
{
    return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xDD));
}

/* Four steps of a row by n tokens: quarter b holds the sums of the steps' blocks b. */
PHI_INLINE void four_steps(__m512i sums[W4_ROWS_TOKENS], const char *w, size_t begin,
                           size_t n_bytes, const int8_t *x, size_t ld_x, const size_t n)
{
    __m512i v[W4_ROWS_TOKENS][4];
    PHI_UNROLL
    for (size_t i = 0; i < 4; i++) {
        const size_t at = begin + i * STEP;
        PHI_UNROLL
        for (size_t t = 0; t < n; t++)
            v[t][i] = _mm512_setzero_si512();
        if (at >= n_bytes)
            continue;
        __m512i bytes = row_step(w, at, n_bytes);
        __asm__("" : "+v"(bytes)); /* or gcc loads it twice */
        prefetch_stream(w + at);
        PHI_UNROLL
        for (size_t t = 0; t < n; t++) {
            const int8_t *x_step = x + t * ld_x + 2 * at;
            v[t][i] = dot(v[t][i], low_nibbles(bytes), _mm512_load_si512(x_step));
            v[t][i] = dot(v[t][i], high_nibbles(bytes), _mm512_load_si512(x_step + STEP));
        }
    }
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        sums[t] = meet(meet(v[t][0], v[t][1]), meet(v[t][2], v[t][3]));
}

/* Up to CHUNK_BYTES of a row. `to` has a tile for the steps, or four for the blocks of which there
 * are so many, and ld_to is from token to token. */
PHI_INLINE void w4_chunk(const char *w, size_t n_bytes, const int8_t *x, size_t ld_x, int32_t *to,
                         size_t ld_to, const bool blocks, const size_t n)
{
    __m512i sums[4][W4_ROWS_TOKENS];
    PHI_UNROLL
    for (size_t q = 0; q < 4; q++) {
        const size_t begin = 4 * q * STEP;
        four_steps(sums[q], w, begin, n_bytes, x, ld_x, n);
        if (!blocks || begin >= n_bytes)
            continue;
        PHI_UNROLL
        for (size_t t = 0; t < n; t++)
            _mm512_store_si512(to + t * ld_to + q * SUMS_TILE, sums[q][t]);
    }
    if (blocks)
        return;
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        _mm512_store_si512(to + t * ld_to, meet_quarters(meet_quarters(sums[0][t], sums[1][t]),
                                                         meet_quarters(sums[2][t], sums[3][t])));
}

PHI_INLINE void w4_read_rows(const struct phi_quant_matmul *a, int32_t *sums, size_t ld_sums,
                             const bool blocks, const size_t n)
{
    const size_t n_bytes = (a->k + 1) / 2;
    for (size_t r = 0; r < a->n_rows; r++, sums += SUMS) {
        const char *w = (const char *)a->w + r * a->row_bytes;
        const int8_t *x = a->x;
        int32_t *to = sums;
        size_t at = 0;
        for (; at + CHUNK_BYTES <= n_bytes; at += CHUNK_BYTES, x += 2 * CHUNK_BYTES) {
            w4_chunk(w + at, CHUNK_BYTES, x, a->ld_x, to, ld_sums, blocks, n);
            to += (blocks ? 4 : 1) * SUMS_TILE;
        }
        if (at < n_bytes)
            w4_chunk(w + at, n_bytes - at, x, a->ld_x, to, ld_sums, blocks, n);
    }
}

/* From [row][sum] to [sum][row]; blocks come from four_steps by quarters. */
static void w4_turn(int32_t *tile, bool blocks)
{
    __m512i v[16];
    PHI_UNROLL
    for (size_t r = 0; r < 16; r++)
        v[r] = _mm512_load_si512(tile + r * SUMS);
    transpose16x16(v);
    PHI_UNROLL
    for (size_t i = 0; i < 16; i++)
        _mm512_store_si512(tile + (blocks ? i % 4 * 4 + i / 4 : i) * PHI_STRIP_ROWS, v[i]);
}

/* The chain over the groups of one segment: the sums of n units, and what has to be added because
 * weights are n + 8. */
PHI_INLINE __m512 w4_chain(const int32_t *sums, const int32_t *extra, const float *scale, size_t n,
                           const size_t per_group)
{
    __m512 acc = _mm512_setzero_ps();
    for (size_t i = 0; i < n; i += per_group, scale += PHI_STRIP_ROWS) {
        __m512i sum = _mm512_setzero_si512();
        for (size_t u = i; u < i + per_group; u++) {
            sum = _mm512_add_epi32(sum, _mm512_load_si512(sums + u * PHI_STRIP_ROWS));
            sum = _mm512_add_epi32(sum, _mm512_set1_epi32(extra[u]));
        }
        acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_load_ps(scale), acc);
    }
    return acc;
}

/* All segments of one token, in sixteen rows. */
static void w4_join(const struct phi_quant_matmul *a, size_t token, const struct w4_units *u,
                    const int32_t *sums)
{
    const __m512 x_scale = _mm512_set1_ps(a->x_scale ? a->x_scale[token] : 1.0f);
    const __mmask16 rows = (__mmask16)((1u << a->n_rows) - 1);
    const int32_t *extra = a->x_sums + token * a->ld_sums;
    const float *scale = packed_scales(a);
    float *y = a->y + token * a->ld_y;
    int32_t of_steps[PHI_QUANT_MAX_K / PHI_QUANT_STEP];
    if (!u->are_blocks) {
        for (size_t i = 0; i < u->n; i++, extra += 4)
            of_steps[i] = extra[0] + extra[1] + extra[2] + extra[3];
        extra = of_steps;
    }
    for (size_t i = 0; i < u->n; i += u->per_segment, y += a->plane) {
        const size_t n = u->n - i < u->per_segment ? u->n - i : u->per_segment;
        __m512 acc = u->per_group == 1 ? w4_chain(sums, extra, scale, n, 1)
                                       : w4_chain(sums, extra, scale, n, u->per_group);
        _mm512_mask_storeu_ps(y, rows, _mm512_mul_ps(acc, x_scale));
        sums += n * PHI_STRIP_ROWS;
        scale += n / u->per_group * PHI_STRIP_ROWS;
        extra += n;
    }
}

static void w4_rows(const struct phi_quant_matmul *a)
{
    const struct w4_units u = w4_units(a);
    const size_t n_tiles = (u.n + SUMS - 1) / SUMS, ld_sums = n_tiles * SUMS_TILE;
    int32_t *sums = a->scratch;
    if (u.are_blocks && a->n_tokens == 1)
        w4_read_rows(a, sums, ld_sums, true, 1);
    else if (u.are_blocks)
        w4_read_rows(a, sums, ld_sums, true, 2);
    else if (a->n_tokens == 1)
        w4_read_rows(a, sums, ld_sums, false, 1);
    else
        w4_read_rows(a, sums, ld_sums, false, 2);
    for (size_t i = 0; i < a->n_tokens * n_tiles; i++)
        w4_turn(sums + i * SUMS_TILE, u.are_blocks);
    for (size_t t = 0; t < a->n_tokens; t++)
        w4_join(a, t, &u, sums + t * ld_sums);
}

#endif
