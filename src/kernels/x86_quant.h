/* x86_quant.h: integer weights with AVX2: rows of activations made int8, and the products. Private
 * to the x86 units.
 *
 * VPMADDUBSW multiplies unsigned by signed bytes and adds pairs in 16 bits, where two products of
 * 255 by 127 would not fit. So 8-bit weights enter as magnitudes and their signs go over to the
 * activations: 2 * 128 * 127 fits. 4-bit weights stay unsigned, n + 8 <= 15: sixteen products fit,
 * and what the 8 adds is in the row's sums.
 *
 * All tokens share a strip that lies in a->scratch: [block of 8 rows][four elements of k][row in
 * block][4 bytes], then the scales as [group][16 rows]. A register holds four elements of eight
 * rows, so a sum needs no reduction. */
#ifndef PHI_KERNELS_X86_QUANT_H
#define PHI_KERNELS_X86_QUANT_H

#include "kernels/ref_quant.h"
#include "kernels/x86_lanes.h"

/* ---------------------------------------------------------------- activations */

/* 32 elements as int8, in their order. */
PHI_INLINE __m256i quantize32(const float *x, __m256 factor)
{
    __m256i v[4];
    PHI_UNROLL
    for (int i = 0; i < 4; i++)
        v[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), factor));
    __m256i bytes =
        _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
    return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

PHI_INLINE int32_t sum_bytes(__m256i q)
{
    __m256i ones = _mm256_set1_epi8(1);
    __m256i sums = _mm256_madd_epi16(_mm256_maddubs_epi16(ones, q), _mm256_set1_epi16(1));
    __m128i b = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    __m128i c = _mm_add_epi32(b, _mm_unpackhi_epi64(b, b));
    return _mm_cvtsi128_si32(_mm_add_epi32(c, _mm_shuffle_epi32(c, 1)));
}

/* The even bytes in the low half, the odd ones in the high half. */
PHI_INLINE __m256i part_bytes(__m256i q)
{
    const __m256i order = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
    return _mm256_permute4x64_epi64(_mm256_shuffle_epi8(q, order), 0xD8);
}

PHI_INLINE uint32_t greatest_magnitude(const float *x, size_t n)
{
    const __m256i clear = _mm256_set1_epi32(0x7FFFFFFF);
    __m256i top = _mm256_setzero_si256();
    uint32_t lane[8], greatest = 0;
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        top = _mm256_max_epi32(top,
                               _mm256_and_si256(_mm256_loadu_si256((const void *)(x + i)), clear));
    _mm256_storeu_si256((void *)lane, top);
    for (; i < n; i++) {
        uint32_t magnitude = phi_f32_bits(x[i]) & 0x7FFFFFFF;
        greatest = magnitude > greatest ? magnitude : greatest;
    }
    for (int l = 0; l < 8; l++)
        greatest = lane[l] > greatest ? lane[l] : greatest;
    return greatest;
}

static inline float lanes_quantize_row(struct phi_quant_row row, const float *x, size_t n,
                                       enum phi_quantization form)
{
    float a = phi_f32_from_bits(greatest_magnitude(x, n));
    if (!(a >= PHI_QUANT_LEAST && a < INFINITY)) /* zero, or not finite: no quick way needed */
        return phi_ref_quantize_row(row, x, n, form);
    __m256 factor = _mm256_set1_ps(127.0f / a);
    int32_t sum = 0;
    for (size_t i = 0; i < phi_quant_padded(n); i += PHI_QUANT_BLOCK) {
        float rest[PHI_QUANT_BLOCK] = {0};
        const float *from = x + i;
        if (i + PHI_QUANT_BLOCK > n) {
            if (i < n)
                memcpy(rest, from, (n - i) * sizeof *rest);
            from = rest;
        }
        __m256i q = quantize32(from, factor);
        int32_t block = sum_bytes(q);
        if (form == PHI_W8A8) {
            sum += block;
            _mm256_store_si256((void *)(row.q + i), q);
            row.sums[i / PHI_QUANT_BLOCK] = 0;
            continue;
        }
        int8_t *even = row.q + phi_quant_place(i, form);
        __m256i parts = part_bytes(q);
        _mm_store_si128((void *)even, _mm256_castsi256_si128(parts));
        _mm_store_si128((void *)(even + 64), _mm256_extracti128_si256(parts, 1));
        row.sums[i / PHI_QUANT_BLOCK] = -8 * block;
    }
    if (form == PHI_W8A8)
        row.sums[0] = -128 * sum;
    return a / 127.0f;
}

/* ---------------------------------------------------------------- the strip */

/* Row r of the result holds the 32-bit words r of the eight rows. */
PHI_INLINE void transpose8x8(__m256i v[8])
{
    __m256i t[8];
    PHI_UNROLL
    for (int i = 0; i < 4; i++) {
        t[2 * i] = _mm256_unpacklo_epi32(v[2 * i], v[2 * i + 1]);
        t[2 * i + 1] = _mm256_unpackhi_epi32(v[2 * i], v[2 * i + 1]);
    }
    PHI_UNROLL
    for (int i = 0; i < 2; i++) {
        __m256i *from = t + 4 * i;
        v[4 * i] = _mm256_unpacklo_epi64(from[0], from[2]);
        v[4 * i + 1] = _mm256_unpackhi_epi64(from[0], from[2]);
        v[4 * i + 2] = _mm256_unpacklo_epi64(from[1], from[3]);
        v[4 * i + 3] = _mm256_unpackhi_epi64(from[1], from[3]);
    }
    PHI_UNROLL
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2x128_si256(v[i], v[i + 4], 0x20);
        t[i + 4] = _mm256_permute2x128_si256(v[i], v[i + 4], 0x31);
    }
    PHI_UNROLL
    for (int i = 0; i < 8; i++)
        v[i] = t[i];
}

/* 32 bytes at `at` of a row, zeros behind its end. */
PHI_INLINE __m256i row_bytes32(const char *row, size_t at, size_t n_bytes)
{
    unsigned char rest[32] = {0};
    if (at + 32 <= n_bytes)
        return _mm256_loadu_si256((const void *)(row + at));
    if (at < n_bytes)
        memcpy(rest, row + at, n_bytes - at);
    return _mm256_loadu_si256((const void *)rest);
}

/* Eight rows from `row` on; those that do not exist repeat the last one. */
PHI_INLINE void row_pointers(const struct phi_quant_matmul *a, size_t row, const char *w[8])
{
    for (size_t r = 0; r < 8; r++) {
        size_t from = row + r < a->n_rows ? row + r : a->n_rows - 1;
        w[r] = (const char *)a->w + from * a->row_bytes;
    }
}

/* Bytes of a packed block of eight rows. */
PHI_INLINE size_t quant_block_bytes(size_t k)
{
    return 8 * phi_quant_padded(k);
}

PHI_INLINE void pack_w8(const struct phi_quant_matmul *a)
{
    for (size_t row = 0; row < a->n_rows; row += 8) {
        char *to = (char *)a->scratch + row / 8 * quant_block_bytes(a->k);
        const char *w[8];
        __m256i v[8];
        row_pointers(a, row, w);
        for (size_t i = 0; i < a->k; i += 32, to += sizeof v) {
            PHI_UNROLL
            for (int r = 0; r < 8; r++)
                v[r] = row_bytes32(w[r], i, a->k);
            transpose8x8(v);
            memcpy(to, v, sizeof v);
        }
    }
}

/* The low nibbles of 32 bytes are 32 even elements, so half of the step's first half; the high ones
 * follow 64 elements later. */
PHI_INLINE void pack_w4(const struct phi_quant_matmul *a)
{
    const __m256i nibble = _mm256_set1_epi8(15);
    const size_t n_bytes = (a->k + 1) / 2;
    for (size_t row = 0; row < a->n_rows; row += 8) {
        char *block = (char *)a->scratch + row / 8 * quant_block_bytes(a->k);
        const char *w[8];
        __m256i low[8], high[8];
        row_pointers(a, row, w);
        for (size_t i = 0; i < phi_quant_padded(a->k) / 2; i += 32) {
            char *to = block + 8 * (i / 64 * 128 + i % 64);
            PHI_UNROLL
            for (int r = 0; r < 8; r++) {
                __m256i bytes = row_bytes32(w[r], i, n_bytes);
                low[r] = _mm256_and_si256(bytes, nibble);
                high[r] = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), nibble);
            }
            transpose8x8(low);
            transpose8x8(high);
            memcpy(to, low, sizeof low);
            memcpy(to + 8 * 64, high, sizeof high);
        }
    }
}

PHI_INLINE size_t quant_n_groups(const struct phi_quant_matmul *a)
{
    return (a->k + a->group - 1) / a->group;
}

/* Behind the packed rows: [group][PHI_STRIP_ROWS]. */
PHI_INLINE float *packed_scales(const struct phi_quant_matmul *a)
{
    return (float *)((char *)a->scratch + PHI_STRIP_ROWS * phi_quant_padded(a->k));
}

/* Eight scales of a row from group g on, where so many exist. */
PHI_INLINE __m256i load_scales8(const struct phi_quant_matmul *a, size_t row, size_t g, size_t n)
{
    const size_t bytes = phi_dtype_bytes(a->scale_dtype);
    const char *from = (const char *)a->w_scale + (row * a->ld_scale + g) * bytes;
    unsigned char rest[32] = {0};
    if (n < 8)
        from = memcpy(rest, from, n * bytes);
    return _mm256_castps_si256(a->scale_dtype == PHI_BFLOAT16 ? load8_bf16(from) : load8_f32(from));
}

PHI_INLINE void pack_scales(const struct phi_quant_matmul *a)
{
    const size_t n_groups = quant_n_groups(a);
    for (size_t g = 0; g < n_groups; g += 8)
        for (size_t row = 0; row < PHI_STRIP_ROWS; row += 8) {
            __m256i v[8];
            for (size_t r = 0; r < 8; r++)
                v[r] = row + r < a->n_rows ? load_scales8(a, row + r, g, n_groups - g)
                                           : _mm256_setzero_si256();
            transpose8x8(v);
            for (size_t i = 0; i < 8 && g + i < n_groups; i++)
                _mm256_store_si256((void *)(packed_scales(a) + (g + i) * PHI_STRIP_ROWS + row),
                                   v[i]);
        }
}

/* The finished products of eight rows and one token. */
PHI_INLINE void store_quant8(const struct phi_quant_matmul *a, size_t row, size_t token, __m256 y)
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

/* ---------------------------------------------------------------- products */

enum { W8_TOKENS = 8, W4_TOKENS = 4 }; /* what sixteen registers hold */

/* n <= W8_TOKENS is a constant where this is inlined. */
PHI_INLINE void w8_tile(const struct phi_quant_matmul *a, size_t row, size_t token, const size_t n)
{
    const char *w = (const char *)a->scratch + row / 8 * quant_block_bytes(a->k);
    const int8_t *x = a->x + token * a->ld_x;
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i acc[W8_TOKENS];
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        acc[t] = _mm256_setzero_si256();
    for (size_t k = 0; k < a->k; k += 4, w += 32) {
        __m256i wv = _mm256_load_si256((const void *)w), magnitude = _mm256_abs_epi8(wv);
        PHI_UNROLL
        for (size_t t = 0; t < n; t++) {
            __m256i xv = _mm256_sign_epi8(four_elements(x + t * a->ld_x + k), wv);
            __m256i pairs = _mm256_maddubs_epi16(magnitude, xv);
            acc[t] = _mm256_add_epi32(acc[t], _mm256_madd_epi16(pairs, ones));
        }
    }
    float scales[8] = {0};
    size_t n_rows = a->n_rows - row < 8 ? a->n_rows - row : 8;
    memcpy(scales, (const char *)a->w_scale + row * sizeof *scales, n_rows * sizeof *scales);
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        store_quant8(a, row, token + t,
                     _mm256_mul_ps(_mm256_cvtepi32_ps(acc[t]), _mm256_loadu_ps(scales)));
}

static inline void lanes_matmul_w8(const struct phi_quant_matmul *a)
{
    assert(a->n_rows <= PHI_STRIP_ROWS && a->k <= PHI_QUANT_MAX_K);
    pack_w8(a);
    size_t token = 0;
    for (; token + W8_TOKENS <= a->n_tokens; token += W8_TOKENS)
        for (size_t row = 0; row < a->n_rows; row += 8)
            w8_tile(a, row, token, W8_TOKENS);
    for (; token + 2 <= a->n_tokens; token += 2)
        for (size_t row = 0; row < a->n_rows; row += 8)
            w8_tile(a, row, token, 2);
    for (; token < a->n_tokens; token++)
        for (size_t row = 0; row < a->n_rows; row += 8)
            w8_tile(a, row, token, 1);
}

/* The sums of one block of 32 elements: four words of even elements, four of odd ones. */
PHI_INLINE void w4_block(__m256i sum[W4_TOKENS], const char *w, const int8_t *x, size_t ld_x,
                         const size_t n)
{
    __m256i pairs[W4_TOKENS];
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        pairs[t] = _mm256_setzero_si256();
    PHI_UNROLL
    for (size_t part = 0; part < 2; part++)
        PHI_UNROLL
    for (size_t i = 0; i < 4; i++) {
        __m256i wv = _mm256_load_si256((const void *)(w + 8 * (64 * part + 4 * i)));
        PHI_UNROLL
        for (size_t t = 0; t < n; t++)
            pairs[t] = _mm256_add_epi16(
                pairs[t],
                _mm256_maddubs_epi16(wv, four_elements(x + t * ld_x + 64 * part + 4 * i)));
    }
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        sum[t] = _mm256_add_epi32(sum[t], _mm256_madd_epi16(pairs[t], _mm256_set1_epi16(1)));
}

/* n <= W4_TOKENS is a constant where this is inlined. */
PHI_INLINE void w4_tile(const struct phi_quant_matmul *a, size_t row, size_t token, const size_t n)
{
    const char *w = (const char *)a->scratch + row / 8 * quant_block_bytes(a->k);
    const int8_t *x = a->x + token * a->ld_x;
    const int32_t *x_sums = a->x_sums + token * a->ld_sums;
    const float *scale = packed_scales(a) + row;
    __m256 acc[W4_TOKENS];
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        acc[t] = _mm256_setzero_ps();
    for (size_t begin = 0; begin < a->k; begin += a->group, scale += PHI_STRIP_ROWS) {
        const size_t end = begin + a->group < a->k ? begin + a->group : a->k;
        __m256i sum[W4_TOKENS];
        PHI_UNROLL
        for (size_t t = 0; t < n; t++)
            sum[t] = _mm256_setzero_si256();
        for (size_t k = begin; k < end; k += PHI_QUANT_BLOCK) {
            const size_t at = phi_quant_place(k, PHI_W4A8);
            PHI_UNROLL
            for (size_t t = 0; t < n; t++)
                sum[t] = _mm256_add_epi32(
                    sum[t], _mm256_set1_epi32(x_sums[t * a->ld_sums + k / PHI_QUANT_BLOCK]));
            w4_block(sum, w + 8 * at, x + at, a->ld_x, n);
        }
        const __m256 scales = _mm256_load_ps(scale);
        PHI_UNROLL
        for (size_t t = 0; t < n; t++)
            acc[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[t]), scales, acc[t]);
    }
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        store_quant8(a, row, token + t, acc[t]);
}

static inline void lanes_matmul_w4(const struct phi_quant_matmul *a)
{
    assert(a->n_rows <= PHI_STRIP_ROWS && a->k <= PHI_QUANT_MAX_K);
    pack_w4(a);
    pack_scales(a);
    size_t token = 0;
    for (; token + W4_TOKENS <= a->n_tokens; token += W4_TOKENS)
        for (size_t row = 0; row < a->n_rows; row += 8)
            w4_tile(a, row, token, W4_TOKENS);
    for (; token < a->n_tokens; token++)
        for (size_t row = 0; row < a->n_rows; row += 8)
            w4_tile(a, row, token, 1);
}

#endif
