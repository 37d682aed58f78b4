/* x86_quant.h: what the kernels for integer weights share: rows of activations made int8, and where
 * the scales of a strip lie. Private to the x86 units; the products are in x86_maddubs.h and
 * avx512_vnni.c. */
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

/* ---------------------------------------------------------------- segments */

typedef void (*quant_matmul_fn)(const struct phi_quant_matmul *a);

/* A call for each segment of 4-bit weights. */
PHI_INLINE void each_segment(const struct phi_quant_matmul *a, quant_matmul_fn matmul)
{
    struct phi_quant_matmul part = *a;
    const size_t n_cols = a->segment ? a->segment : a->k;
    part.segment = 0;
    for (size_t begin = 0; begin < a->k; begin += n_cols, part.y += a->plane) {
        const size_t group = begin / a->group;
        part.w = (const char *)a->w + begin / 2;
        part.w_scale = (const char *)a->w_scale + group * phi_dtype_bytes(a->scale_dtype);
        part.x = a->x + begin;
        part.x_sums = a->x_sums + begin / PHI_QUANT_BLOCK;
        part.k = a->k - begin < n_cols ? a->k - begin : n_cols;
        matmul(&part);
    }
}

/* ---------------------------------------------------------------- scales */

PHI_INLINE size_t quant_n_groups(const struct phi_quant_matmul *a)
{
    return (a->k + a->group - 1) / a->group;
}

/* Behind the packed rows: [group][PHI_STRIP_ROWS]. */
PHI_INLINE float *packed_scales(const struct phi_quant_matmul *a)
{
    return (float *)((char *)a->scratch + PHI_STRIP_ROWS * phi_quant_padded(a->k));
}

#endif
