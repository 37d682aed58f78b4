/* maddubs_strip.h: many tokens without VNNI: the strip is laid out in a->scratch once, as [four
 * elements of k][16 rows][4 bytes], a register holding four elements of eight rows, so that a sum
 * needs no reduction. See x86_maddubs.h. */
#ifndef PHI_KERNELS_MADDUBS_STRIP_H
#define PHI_KERNELS_MADDUBS_STRIP_H

#include "kernels/maddubs_steps.h"

/* ---------------------------------------------------------------- packing */

/* What a byte of a row becomes in the strip. */
typedef __m256i (*unpack_fn)(__m256i bytes);

PHI_INLINE __m256i whole_bytes(__m256i bytes)
{
    return bytes;
}

/* A register of each of eight rows, to eight places of the strip. */
PHI_INLINE void pack_step(const char *const w[QUANT_BLOCK], size_t at, size_t n_bytes,
                          unpack_fn unpack, load_row_fn load, char *to)
{
    __m256 v[QUANT_BLOCK]; /* of words of four bytes */
    PHI_UNROLL
    for (int r = 0; r < QUANT_BLOCK; r++)
        v[r] = _mm256_castsi256_ps(unpack(load(w[r], at, n_bytes)));
    transpose8x8(v);
    PHI_UNROLL
    for (int i = 0; i < QUANT_BLOCK; i++)
        _mm256_store_ps((float *)(void *)(to + i * QUANT_WORDS), v[i]);
}

/* Eight rows of 8-bit weights. */
PHI_INLINE void w8_pack(const struct phi_quant_matmul *a, size_t row)
{
    const size_t ahead = PHI_STRIP_ROWS * a->row_bytes;
    char *to = (char *)a->scratch + row * 4;
    const char *w[QUANT_BLOCK];
    size_t at = 0;
    row_pointers(a, row, w, QUANT_BLOCK);
    for (; at + 2 * QUANT_STEP <= a->k; at += 2 * QUANT_STEP) {
        prefetch_rows(w, at, ahead, QUANT_BLOCK);
        pack_step(w, at, a->k, whole_bytes, row_inside, to + 16 * at);
        pack_step(w, at + QUANT_STEP, a->k, whole_bytes, row_inside, to + 16 * (at + QUANT_STEP));
    }
    for (; at < a->k; at += QUANT_STEP)
        pack_step(w, at, a->k, whole_bytes, row_end, to + 16 * at);
}

/* The low nibbles of 32 bytes are 32 even elements, so half of a step's first half; the high ones
 * follow 64 elements later. */
PHI_INLINE void w4_pack_step(const char *const w[QUANT_BLOCK], size_t at, size_t n_bytes,
                             load_row_fn load, char *strip)
{
    char *to = strip + 16 * phi_quant_place(2 * at, PHI_W4A8);
    pack_step(w, at, n_bytes, low_nibbles, load, to);
    pack_step(w, at, n_bytes, high_nibbles, load, to + 16 * (PHI_QUANT_STEP / 2));
}

/* Eight rows of 4-bit weights. */
PHI_INLINE void w4_pack(const struct phi_quant_matmul *a, size_t row)
{
    const size_t n_bytes = (a->k + 1) / 2, ahead = PHI_STRIP_ROWS * a->row_bytes;
    char *to = (char *)a->scratch + row * 4;
    const char *w[QUANT_BLOCK];
    size_t at = 0;
    row_pointers(a, row, w, QUANT_BLOCK);
    for (; at + 2 * QUANT_STEP <= n_bytes; at += 2 * QUANT_STEP) {
        prefetch_rows(w, at, ahead, QUANT_BLOCK);
        w4_pack_step(w, at, n_bytes, row_inside, to);
        w4_pack_step(w, at + QUANT_STEP, n_bytes, row_inside, to);
    }
    for (; at < n_bytes; at += QUANT_STEP)
        w4_pack_step(w, at, n_bytes, row_end, to);
}

/* ---------------------------------------------------------------- products */

/* The finished products of eight rows and one token. */
PHI_INLINE void store_block(const struct phi_quant_matmul *a, size_t row, size_t token, __m256 y)
{
    float *to = a->y + token * a->ld_y + row;
    if (a->x_scale)
        y = _mm256_mul_ps(y, _mm256_set1_ps(a->x_scale[token]));
    if (row + 8 <= a->n_rows) {
        _mm256_storeu_ps(to, y);
        return;
    }
    float rest[8];
    _mm256_storeu_ps(rest, y);
    memcpy(to, rest, (a->n_rows - row) * sizeof *rest);
}

PHI_INLINE __m256i four_elements(const int8_t *x)
{
    int32_t word;
    memcpy(&word, x, sizeof word);
    return _mm256_set1_epi32(word);
}

/* Here the weights enter as magnitudes, and activations change their signs. */
PHI_INLINE __m256i w8_product(__m256i magnitude, __m256i negative, __m256i x)
{
    return widen_pairs(_mm256_maddubs_epi16(magnitude, _mm256_xor_si256(x, negative)));
}

/* The magnitudes of the negative weights of eight rows, which is what zeros give. */
PHI_INLINE __m256i w8_begin(const struct phi_quant_matmul *a, const char *w)
{
    __m256i sum = _mm256_setzero_si256();
    for (size_t k = 0; k < a->k; k += 4, w += QUANT_WORDS) {
        __m256i wv = _mm256_load_si256((const void *)w);
        sum = _mm256_sub_epi32(
            sum, w8_product(_mm256_abs_epi8(wv), negative_bytes(wv), _mm256_setzero_si256()));
    }
    return sum;
}

/* n <= W8_STRIP_TOKENS is a constant where this is inlined. */
PHI_INLINE void w8_strip_tile(const struct phi_quant_matmul *a, size_t row, size_t token,
                              __m256i begin, const size_t n)
{
    const char *w = (const char *)a->scratch + row * 4;
    const int8_t *x = a->x + token * a->ld_x;
    __m256i acc[W8_STRIP_TOKENS];
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        acc[t] = begin;
    for (size_t k = 0; k < a->k; k += 4, w += QUANT_WORDS, x += 4) { /* zeros behind the end */
        __m256i wv = _mm256_load_si256((const void *)w);
        __m256i magnitude = _mm256_abs_epi8(wv), negative = negative_bytes(wv);
        PHI_UNROLL
        for (size_t t = 0; t < n; t++)
            acc[t] = _mm256_add_epi32(
                acc[t], w8_product(magnitude, negative, four_elements(x + t * a->ld_x)));
    }
    float scales[QUANT_BLOCK] = {0};
    size_t n_rows = a->n_rows - row < QUANT_BLOCK ? a->n_rows - row : QUANT_BLOCK;
    memcpy(scales, (const char *)a->w_scale + row * sizeof *scales, n_rows * sizeof *scales);
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        store_block(a, row, token + t,
                    _mm256_mul_ps(_mm256_cvtepi32_ps(acc[t]), _mm256_loadu_ps(scales)));
}

static inline void w8_strip(const struct phi_quant_matmul *a)
{
    for (size_t row = 0; row < a->n_rows; row += QUANT_BLOCK) {
        w8_pack(a, row);
        const __m256i begin = w8_begin(a, (const char *)a->scratch + row * 4);
        size_t token = 0;
        for (; token + W8_STRIP_TOKENS <= a->n_tokens; token += W8_STRIP_TOKENS)
            w8_strip_tile(a, row, token, begin, W8_STRIP_TOKENS);
        for (; token + 2 <= a->n_tokens; token += 2)
            w8_strip_tile(a, row, token, begin, 2);
        for (; token < a->n_tokens; token++)
            w8_strip_tile(a, row, token, begin, 1);
    }
}

/* The sums of one block of 32 elements: four words of even elements, four of odd ones; sixteen
 * rows. */
PHI_INLINE void w4_strip_block(__m256i sum[][2], const char *w, const int8_t *x, size_t ld_x,
                               const size_t n)
{
    __m256i pairs[W4_STRIP_TOKENS][2];
    PHI_UNROLL
    for (size_t i = 0; i < 8; i++) {
        const size_t at = i % 4 * 4 + i / 4 * (PHI_QUANT_STEP / 2);
        __m256i w0 = _mm256_load_si256((const void *)(w + 16 * at)),
                w1 = _mm256_load_si256((const void *)(w + 16 * at + 32));
        PHI_UNROLL
        for (size_t t = 0; t < n; t++) {
            __m256i xv = four_elements(x + t * ld_x + at);
            __m256i p0 = _mm256_maddubs_epi16(w0, xv), p1 = _mm256_maddubs_epi16(w1, xv);
            pairs[t][0] = in_order(i == 0 ? p0 : _mm256_add_epi16(pairs[t][0], p0));
            pairs[t][1] = in_order(i == 0 ? p1 : _mm256_add_epi16(pairs[t][1], p1));
        }
    }
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        PHI_UNROLL
    for (size_t b = 0; b < 2; b++)
        sum[t][b] = _mm256_add_epi32(sum[t][b], widen_pairs(pairs[t][b]));
}

/* n <= W4_STRIP_TOKENS is a constant where this is inlined. */
PHI_INLINE void w4_strip_tile(const struct phi_quant_matmul *a, size_t token, const size_t group,
                              const size_t n)
{
    const int8_t *x = a->x + token * a->ld_x;
    const int32_t *x_sums = a->x_sums + token * a->ld_sums;
    const float *scale = packed_scales(a);
    __m256 acc[W4_STRIP_TOKENS][2];
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        acc[t][0] = acc[t][1] = _mm256_setzero_ps();
    for (size_t begin = 0; begin < a->k; begin += group, scale += PHI_STRIP_ROWS) {
        const size_t end = begin + group;
        __m256i sum[W4_STRIP_TOKENS][2];
        PHI_UNROLL
        for (size_t t = 0; t < n; t++) {
            int32_t extra = 0; /* what -8 adds */
            for (size_t k = begin; k < end; k += PHI_QUANT_BLOCK)
                extra += x_sums[t * a->ld_sums + k / PHI_QUANT_BLOCK];
            sum[t][0] = sum[t][1] = _mm256_set1_epi32(extra);
        }
        for (size_t k = begin; k < end; k += PHI_QUANT_BLOCK) {
            const size_t at = phi_quant_place(k, PHI_W4A8);
            w4_strip_block(sum, (const char *)a->scratch + 16 * at, x + at, a->ld_x, n);
        }
        PHI_UNROLL
        for (size_t b = 0; b < 2; b++) {
            const __m256 scales = _mm256_load_ps(scale + QUANT_BLOCK * b);
            PHI_UNROLL
            for (size_t t = 0; t < n; t++)
                acc[t][b] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[t][b]), scales, acc[t][b]);
        }
    }
    PHI_UNROLL
    for (size_t t = 0; t < n; t++) {
        store_block(a, 0, token + t, acc[t][0]);
        if (a->n_rows > QUANT_BLOCK)
            store_block(a, QUANT_BLOCK, token + t, acc[t][1]);
    }
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
    for (size_t row = 0; row < PHI_STRIP_ROWS; row += QUANT_BLOCK)
        w4_pack(a, row);
    if (a->group == 32)
        w4_strip_of(a, 32);
    else if (a->group == 128)
        w4_strip_of(a, 128);
    else
        w4_strip_of(a, a->group);
}

#endif
