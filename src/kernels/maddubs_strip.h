/* maddubs_strip.h: many tokens without VNNI: the strip is laid out in a->scratch once, as [four
 * elements of k][16 rows][4 bytes], a register holding four elements of eight rows or of all
 * sixteen, so that a sum needs no reduction. See x86_maddubs.h. */
#ifndef PHI_KERNELS_MADDUBS_STRIP_H
#define PHI_KERNELS_MADDUBS_STRIP_H

#include "kernels/maddubs_steps.h"

/* ---------------------------------------------------------------- packing */

/* PACK_STEP bytes at `at` of a row of n_bytes, zeros behind its end. */
typedef __m256i (*load_pack_fn)(const char *row, size_t at, size_t n_bytes);

PHI_INLINE __m256i pack_inside(const char *row, size_t at, size_t n_bytes)
{
    (void)n_bytes;
    return _mm256_loadu_si256((const void *)(row + at));
}

PHI_INLINE __m256i pack_end(const char *row, size_t at, size_t n_bytes)
{
    unsigned char rest[PACK_STEP] = {0};
    if (at + PACK_STEP <= n_bytes)
        return pack_inside(row, at, n_bytes);
    if (at < n_bytes)
        memcpy(rest, row + at, n_bytes - at);
    return pack_inside((const char *)rest, 0, PACK_STEP);
}

/* What a byte of a row becomes in the strip. */
typedef __m256i (*unpack_fn)(__m256i bytes);

PHI_INLINE __m256i whole_bytes(__m256i bytes)
{
    return bytes;
}

PHI_INLINE __m256i unpack_low(__m256i bytes)
{
    return _mm256_and_si256(bytes, _mm256_set1_epi8(15));
}

PHI_INLINE __m256i unpack_high(__m256i bytes)
{
    return unpack_low(_mm256_srli_epi16(bytes, 4));
}

/* A register of each of eight rows, to eight places of the strip. */
PHI_INLINE void pack_step(const char *const w[PACK_ROWS], size_t at, size_t n_bytes,
                          unpack_fn unpack, load_pack_fn load, char *to)
{
    __m256 v[PACK_ROWS]; /* of words of four bytes */
    PHI_UNROLL
    for (int r = 0; r < PACK_ROWS; r++)
        v[r] = _mm256_castsi256_ps(unpack(load(w[r], at, n_bytes)));
    transpose8x8(v);
    PHI_UNROLL
    for (int i = 0; i < PACK_ROWS; i++)
        _mm256_store_ps((float *)(void *)(to + i * QUANT_WORDS), v[i]);
}

/* Eight rows of 8-bit weights. */
PHI_INLINE void w8_pack(const struct phi_quant_matmul *a, size_t row)
{
    const size_t ahead = PHI_STRIP_ROWS * a->row_bytes;
    char *to = (char *)a->scratch + row * 4;
    const char *w[PACK_ROWS];
    size_t at = 0;
    row_pointers(a, row, w, PACK_ROWS);
    for (; at + 2 * PACK_STEP <= a->k; at += 2 * PACK_STEP) {
        prefetch_rows(w, at, ahead, PACK_ROWS);
        pack_step(w, at, a->k, whole_bytes, pack_inside, to + 16 * at);
        pack_step(w, at + PACK_STEP, a->k, whole_bytes, pack_inside, to + 16 * (at + PACK_STEP));
    }
    for (; at < a->k; at += PACK_STEP)
        pack_step(w, at, a->k, whole_bytes, pack_end, to + 16 * at);
}

/* The low nibbles of 32 bytes are 32 even elements, so half of a step's first half; the high ones
 * follow 64 elements later. */
PHI_INLINE void w4_pack_step(const char *const w[PACK_ROWS], size_t at, size_t n_bytes,
                             load_pack_fn load, char *strip)
{
    char *to = strip + 16 * phi_quant_place(2 * at, PHI_W4A8);
    pack_step(w, at, n_bytes, unpack_low, load, to);
    pack_step(w, at, n_bytes, unpack_high, load, to + 16 * (PHI_QUANT_STEP / 2));
}

/* Eight rows of 4-bit weights. */
PHI_INLINE void w4_pack(const struct phi_quant_matmul *a, size_t row)
{
    const size_t n_bytes = (a->k + 1) / 2, ahead = PHI_STRIP_ROWS * a->row_bytes;
    char *to = (char *)a->scratch + row * 4;
    const char *w[PACK_ROWS];
    size_t at = 0;
    row_pointers(a, row, w, PACK_ROWS);
    for (; at + 2 * PACK_STEP <= n_bytes; at += 2 * PACK_STEP) {
        prefetch_rows(w, at, ahead, PACK_ROWS);
        w4_pack_step(w, at, n_bytes, pack_inside, to);
        w4_pack_step(w, at + PACK_STEP, n_bytes, pack_inside, to);
    }
    for (; at < n_bytes; at += PACK_STEP)
        w4_pack_step(w, at, n_bytes, pack_end, to);
}

/* ---------------------------------------------------------------- products */

/* The finished products of as many rows as a register holds, from `row` on, and one token. */
PHI_INLINE void store_block(const struct phi_quant_matmul *a, size_t row, size_t token, vec y)
{
    float *to = a->y + token * a->ld_y + row;
    if (a->x_scale)
        y = vec_mul(y, vec_all(a->x_scale[token]));
    if (row + VEC_FLOATS <= a->n_rows) {
        vec_store(to, y);
        return;
    }
    float rest[VEC_FLOATS];
    vec_store(rest, y);
    memcpy(to, rest, (a->n_rows - row) * sizeof *rest);
}

PHI_INLINE vec_int four_elements(const int8_t *x)
{
    int32_t word;
    memcpy(&word, x, sizeof word);
    return VEC(set1_epi32)(word);
}

/* Here the weights enter as magnitudes, and activations change their signs. */
PHI_INLINE vec_int w8_product(vec_int magnitude, vec_int negative, vec_int x)
{
    return widen_pairs(VEC(maddubs_epi16)(magnitude, VEC_BITS(xor)(x, negative)));
}

/* The magnitudes of the rows' negative weights, which is what zeros give. */
PHI_INLINE vec_int w8_begin(const struct phi_quant_matmul *a, const char *w)
{
    vec_int sum = VEC_BITS(setzero)();
    for (size_t k = 0; k < a->k; k += 4, w += QUANT_WORDS) {
        vec_int wv = load_bytes(w);
        sum = VEC(sub_epi32)(
            sum, w8_product(VEC(abs_epi8)(wv), negative_bytes(wv), VEC_BITS(setzero)()));
    }
    return sum;
}

/* n <= W8_STRIP_TOKENS is a constant where this is inlined. */
PHI_INLINE void w8_strip_tile(const struct phi_quant_matmul *a, size_t row, size_t token,
                              vec_int begin, const size_t n)
{
    const char *w = (const char *)a->scratch + row * 4;
    const int8_t *x = a->x + token * a->ld_x;
    vec_int acc[W8_STRIP_TOKENS];
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        acc[t] = begin;
    for (size_t k = 0; k < a->k; k += 4, w += QUANT_WORDS, x += 4) { /* zeros behind the end */
        vec_int wv = load_bytes(w);
        const vec_int magnitude = VEC(abs_epi8)(wv);
        const vec_int negative = negative_bytes(wv);
        PHI_UNROLL
        for (size_t t = 0; t < n; t++)
            acc[t] = VEC(add_epi32)(
                acc[t], w8_product(magnitude, negative, four_elements(x + t * a->ld_x)));
    }
    float scales[VEC_FLOATS] = {0};
    size_t n_rows = a->n_rows - row < VEC_FLOATS ? a->n_rows - row : VEC_FLOATS;
    memcpy(scales, (const char *)a->w_scale + row * sizeof *scales, n_rows * sizeof *scales);
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        store_block(a, row, token + t, vec_mul(VEC(cvtepi32_ps)(acc[t]), vec_load(scales)));
}

static inline void w8_strip(const struct phi_quant_matmul *a)
{
    for (size_t row = 0; row < PHI_STRIP_ROWS; row += PACK_ROWS)
        w8_pack(a, row);
    for (size_t row = 0; row < a->n_rows; row += VEC_FLOATS) {
        const vec_int begin = w8_begin(a, (const char *)a->scratch + row * 4);
        size_t token = 0;
        for (; token + W8_STRIP_TOKENS <= a->n_tokens; token += W8_STRIP_TOKENS)
            w8_strip_tile(a, row, token, begin, W8_STRIP_TOKENS);
        for (; token + 4 <= a->n_tokens; token += 4)
            w8_strip_tile(a, row, token, begin, 4);
        for (; token + 2 <= a->n_tokens; token += 2)
            w8_strip_tile(a, row, token, begin, 2);
        for (; token < a->n_tokens; token++)
            w8_strip_tile(a, row, token, begin, 1);
    }
}

/* The sums of one block of 32 elements: four words of even elements, four of odd ones; sixteen
 * rows. */
PHI_INLINE void w4_strip_block(vec_int sum[][QUANT_VECS], const char *w, const int8_t *x,
                               size_t ld_x, const size_t n)
{
    vec_int pairs[W4_STRIP_TOKENS][QUANT_VECS];
    PHI_UNROLL
    for (size_t i = 0; i < 8; i++) {
        const size_t at = i % 4 * 4 + i / 4 * (PHI_QUANT_STEP / 2);
        vec_int wv[QUANT_VECS];
        PHI_UNROLL
        for (size_t v = 0; v < QUANT_VECS; v++)
            wv[v] = load_bytes(w + 16 * at + v * VEC_BYTES);
        PHI_UNROLL
        for (size_t t = 0; t < n; t++) {
            vec_int xv = four_elements(x + t * ld_x + at);
            PHI_UNROLL
            for (size_t v = 0; v < QUANT_VECS; v++) {
                vec_int p = VEC(maddubs_epi16)(wv[v], xv);
                pairs[t][v] = in_order(i == 0 ? p : VEC(add_epi16)(pairs[t][v], p));
            }
        }
    }
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        PHI_UNROLL
    for (size_t v = 0; v < QUANT_VECS; v++)
        sum[t][v] = VEC(add_epi32)(sum[t][v], widen_pairs(pairs[t][v]));
}

/* n <= W4_STRIP_TOKENS is a constant where this is inlined. */
PHI_INLINE void w4_strip_tile(const struct phi_quant_matmul *a, size_t token, const size_t group,
                              const size_t n)
{
    const int8_t *x = a->x + token * a->ld_x;
    const int32_t *x_sums = a->x_sums + token * a->ld_sums;
    const float *scale = packed_scales(a);
    vec acc[W4_STRIP_TOKENS][QUANT_VECS];
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        PHI_UNROLL
    for (size_t v = 0; v < QUANT_VECS; v++)
        acc[t][v] = vec_all(0);
    for (size_t begin = 0; begin < a->k; begin += group, scale += PHI_STRIP_ROWS) {
        const size_t end = begin + group;
        vec_int sum[W4_STRIP_TOKENS][QUANT_VECS];
        PHI_UNROLL
        for (size_t t = 0; t < n; t++) {
            int32_t extra = 0; /* what -8 adds */
            for (size_t k = begin; k < end; k += PHI_QUANT_BLOCK)
                extra += x_sums[t * a->ld_sums + k / PHI_QUANT_BLOCK];
            PHI_UNROLL
            for (size_t v = 0; v < QUANT_VECS; v++)
                sum[t][v] = VEC(set1_epi32)(extra);
        }
        for (size_t k = begin; k < end; k += PHI_QUANT_BLOCK) {
            const size_t at = phi_quant_place(k, PHI_W4A8);
            w4_strip_block(sum, (const char *)a->scratch + 16 * at, x + at, a->ld_x, n);
        }
        PHI_UNROLL
        for (size_t v = 0; v < QUANT_VECS; v++) {
            const vec scales = vec_load(scale + VEC_FLOATS * v);
            PHI_UNROLL
            for (size_t t = 0; t < n; t++)
                acc[t][v] = vec_fma(VEC(cvtepi32_ps)(sum[t][v]), scales, acc[t][v]);
        }
    }
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        PHI_UNROLL
    for (size_t v = 0; v < QUANT_VECS; v++)
        if (v * VEC_FLOATS < a->n_rows)
            store_block(a, v * VEC_FLOATS, token + t, acc[t][v]);
}

PHI_INLINE void w4_strip_of(const struct phi_quant_matmul *a, const size_t group)
{
    size_t token = 0;
    for (; token + W4_STRIP_TOKENS <= a->n_tokens; token += W4_STRIP_TOKENS)
        w4_strip_tile(a, token, group, W4_STRIP_TOKENS);
    for (; token < a->n_tokens; token++)
        w4_strip_tile(a, token, group, 1);
}

static inline void w4_strip(const struct phi_quant_matmul *a)
{
    for (size_t row = 0; row < PHI_STRIP_ROWS; row += PACK_ROWS)
        w4_pack(a, row);
    if (a->group == 32)
        w4_strip_of(a, 32);
    else if (a->group == 128)
        w4_strip_of(a, 128);
    else
        w4_strip_of(a, a->group);
}

#endif
