/* x86_lanes.h: eight float32 lanes in one 256-bit register, which is how docs/NUMERICS.md
 * counts, so these kernels read like ref.c. Private to the x86 units: each compiles its own
 * copy with its own flags (at least AVX2, FMA, F16C). Tails of fewer than eight elements run
 * the scalar definition. */
#ifndef PHI_KERNELS_X86_LANES_H
#define PHI_KERNELS_X86_LANES_H

#include "kernels/elementary.h"
#include "kernels/kernels.h"

#include <assert.h>
#include <immintrin.h>

/* The tiles' loops have constant counts; their arrays live in registers once they are unrolled. */
#define PHI_UNROLL _Pragma("GCC unroll 16")
#define PHI_INLINE static inline __attribute__((always_inline))

/* ---------------------------------------------------------------- loads and sums */

/* Eight elements at p, widened. */
typedef __m256 (*load8_fn)(const void *p);

PHI_INLINE __m256 load8_f32(const void *p)
{
    return _mm256_loadu_ps(p);
}

PHI_INLINE __m256 load8_bf16(const void *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(p)), 16));
}

PHI_INLINE __m256 load8_f16(const void *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128(p));
}

/* The n < 8 elements at p, and +0 in the other lanes; reads nothing behind them. */
PHI_INLINE __m256 load8_part(load8_fn load, const void *p, size_t n, size_t elem_bytes)
{
    unsigned char room[32] = {0};
    memcpy(room, p, n * elem_bytes);
    return load(room);
}

/* A pair is one 32-bit word. The half that is not wanted is cleared: what is left is a float32. */
PHI_INLINE __m256 odd_elements(__m256i pairs)
{
    return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32((int)0xFFFF0000)));
}

PHI_INLINE __m256 even_elements(__m256i pairs)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
}

/* The eight pairs of which n < 16 elements exist; the others are +0. */
PHI_INLINE __m256i load_pairs_part(const void *p, size_t n)
{
    unsigned char room[32] = {0};
    memcpy(room, p, n * 2);
    return _mm256_loadu_si256((const void *)room);
}

PHI_INLINE float reduce8(__m256 lanes)
{
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps(lanes, 1));
    __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}

/* reduce8 of four registers at once: the same three additions, on shuffled lanes. */
PHI_INLINE __m128 reduce8x4(__m256 p, __m256 q, __m256 r, __m256 s)
{
    __m256 pq =
        _mm256_add_ps(_mm256_permute2f128_ps(p, q, 0x20), _mm256_permute2f128_ps(p, q, 0x31));
    __m256 rs =
        _mm256_add_ps(_mm256_permute2f128_ps(r, s, 0x20), _mm256_permute2f128_ps(r, s, 0x31));
    __m256d low = _mm256_unpacklo_pd(_mm256_castps_pd(pq), _mm256_castps_pd(rs));
    __m256d high = _mm256_unpackhi_pd(_mm256_castps_pd(pq), _mm256_castps_pd(rs));
    __m256 c = _mm256_add_ps(_mm256_castpd_ps(low), _mm256_castpd_ps(high)); /* p p r r q q s s */
    __m256 sums = _mm256_add_ps(c, _mm256_movehdup_ps(c));                   /* p . r . q . s . */
    __m128 pr = _mm256_castps256_ps128(sums), qs = _mm256_extractf128_ps(sums, 1);
    return _mm_unpacklo_ps(_mm_shuffle_ps(pr, pr, 0x88), _mm_shuffle_ps(qs, qs, 0x88));
}

/* ---------------------------------------------------------------- conversions */

/* phi_f32_to_bf16 of eight elements, each in the low half of its word. */
PHI_INLINE __m256i bf16_words(__m256 x)
{
    const __m256i exponent = _mm256_set1_epi32(0x7F800000);
    __m256i u = _mm256_castps_si256(x), high = _mm256_srli_epi32(u, 16);
    __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    __m256i round = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF));
    __m256i y = _mm256_srli_epi32(_mm256_add_epi32(u, round), 16);
    __m256i zero = _mm256_and_si256(high, _mm256_set1_epi32(0x8000));
    __m256i is_zero = _mm256_cmpeq_epi32(_mm256_and_si256(u, exponent), _mm256_setzero_si256());
    __m256i nan = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    __m256i magnitude = _mm256_and_si256(u, _mm256_set1_epi32(0x7FFFFFFF));
    y = _mm256_blendv_epi8(y, zero, is_zero);
    return _mm256_blendv_epi8(y, nan, _mm256_cmpgt_epi32(magnitude, exponent));
}

static inline void lanes_to_bf16(uint16_t *y, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m256i low = bf16_words(_mm256_loadu_ps(x + i)),
                high = bf16_words(_mm256_loadu_ps(x + i + 8));
        __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xD8);
        _mm256_storeu_si256((void *)(y + i), packed);
    }
    for (; i < n; i++)
        y[i] = phi_f32_to_bf16(x[i]);
}

static inline void lanes_to_f16(uint16_t *y, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((void *)(y + i), _mm256_cvtps_ph(_mm256_loadu_ps(x + i), 0));
    for (; i < n; i++)
        y[i] = phi_f32_to_f16(x[i]);
}

PHI_INLINE void widen(float *y, const void *x, size_t n, load8_fn load)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, load((const char *)x + i * 2));
    if (i < n) {
        float rest[8];
        _mm256_storeu_ps(rest, load8_part(load, (const char *)x + i * 2, n - i, 2));
        memcpy(y + i, rest, (n - i) * sizeof *y);
    }
}

static inline void lanes_from_bf16(float *y, const void *x, size_t n)
{
    widen(y, x, n, load8_bf16);
}

static inline void lanes_from_f16(float *y, const void *x, size_t n)
{
    widen(y, x, n, load8_f16);
}

/* Register i of the result holds the elements i of the eight. */
PHI_INLINE void transpose8x8(__m256 v[8])
{
    __m256 pair[8], quad[8];
    PHI_UNROLL
    for (size_t i = 0; i < 8; i += 2) {
        pair[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);
        pair[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
    }
    PHI_UNROLL
    for (size_t i = 0; i < 8; i++) { /* elements i % 4 and i % 4 + 4 of 0 to 3 or 4 to 7 */
        __m256 a = pair[i / 4 * 4 + i % 4 / 2], b = pair[i / 4 * 4 + i % 4 / 2 + 2];
        quad[i] = i % 2 ? _mm256_shuffle_ps(a, b, 0xEE) : _mm256_shuffle_ps(a, b, 0x44);
    }
    PHI_UNROLL
    for (size_t i = 0; i < 4; i++) {
        v[i] = _mm256_permute2f128_ps(quad[i], quad[i + 4], 0x20);
        v[i + 4] = _mm256_permute2f128_ps(quad[i], quad[i + 4], 0x31);
    }
}

/* Turns the eight rows at x; y is [8, ld_y] too. */
PHI_INLINE void transpose8(float *y, size_t ld_y, const float *x, size_t ld_x)
{
    __m256 v[8];
    PHI_UNROLL
    for (size_t i = 0; i < 8; i++)
        v[i] = _mm256_loadu_ps(x + i * ld_x);
    transpose8x8(v);
    PHI_UNROLL
    for (size_t i = 0; i < 8; i++)
        _mm256_storeu_ps(y + i * ld_y, v[i]);
}

static inline void lanes_transpose(float *y, size_t ld_y, const float *x, size_t ld_x, size_t m,
                                   size_t n)
{
    assert(n % 8 == 0);
    for (size_t j = 0; j < n; j += 8) {
        size_t i = 0;
        for (; i + 8 <= m; i += 8)
            transpose8(y + j * ld_y + i, ld_y, x + i * ld_x + j, ld_x);
        for (; i < m; i++)
            for (size_t c = j; c < j + 8; c++)
                y[c * ld_y + i] = x[i * ld_x + c];
    }
}

/* ---------------------------------------------------------------- elementary functions */

/* phi_expf */
PHI_INLINE __m256 exp8(__m256 x)
{
    const __m256 magic = _mm256_set1_ps(PHI_EXP_MAGIC);
    x = _mm256_max_ps(_mm256_set1_ps(PHI_EXP_MIN), x);
    x = _mm256_min_ps(_mm256_set1_ps(PHI_EXP_MAX), x);
    __m256 t = _mm256_fmadd_ps(x, _mm256_set1_ps(PHI_EXP_LOG2E), magic);
    __m256 n = _mm256_sub_ps(t, magic);
    __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-PHI_EXP_LN2_HI), x);
    r = _mm256_fmadd_ps(n, _mm256_set1_ps(-PHI_EXP_LN2_LO), r);
    __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(PHI_EXP_C7), r, _mm256_set1_ps(PHI_EXP_C6));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(PHI_EXP_C5));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(PHI_EXP_C4));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(PHI_EXP_C3));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(PHI_EXP_C2));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    __m256i raised = _mm256_slli_epi32(_mm256_castps_si256(t), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), raised));
}

/* ---------------------------------------------------------------- norms */

static inline void lanes_rms_norm(float *y, const float *x, const float *w, float eps, size_t n)
{
    float lane[8];
    __m256 sum = _mm256_setzero_ps();
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 v = _mm256_loadu_ps(x + i);
        sum = _mm256_fmadd_ps(v, v, sum);
    }
    _mm256_storeu_ps(lane, sum);
    for (; i < n; i++)
        lane[i % 8] = fmaf(x[i], x[i], lane[i % 8]);
    float r = 1.0f / sqrtf(reduce8(_mm256_loadu_ps(lane)) / (float)n + eps);
    for (i = 0; i + 8 <= n; i += 8) {
        __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(r));
        _mm256_storeu_ps(y + i, _mm256_mul_ps(scaled, _mm256_loadu_ps(w + i)));
    }
    for (; i < n; i++)
        y[i] = x[i] * r * w[i];
}

static inline void lanes_layer_norm(float *y, const float *x, const float *w, const float *b,
                                    float eps, size_t n)
{
    float lane[8];
    __m256 sum = _mm256_setzero_ps(), squares = _mm256_setzero_ps();
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        sum = _mm256_add_ps(sum, _mm256_loadu_ps(x + i));
    _mm256_storeu_ps(lane, sum);
    for (; i < n; i++)
        lane[i % 8] = lane[i % 8] + x[i];
    float mean = reduce8(_mm256_loadu_ps(lane)) / (float)n;
    for (i = 0; i + 8 <= n; i += 8) {
        __m256 d = _mm256_sub_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(mean));
        squares = _mm256_fmadd_ps(d, d, squares);
    }
    _mm256_storeu_ps(lane, squares);
    for (; i < n; i++)
        lane[i % 8] = fmaf(x[i] - mean, x[i] - mean, lane[i % 8]);
    float r = 1.0f / sqrtf(reduce8(_mm256_loadu_ps(lane)) / (float)n + eps);
    for (i = 0; i + 8 <= n; i += 8) {
        __m256 d = _mm256_sub_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(mean));
        __m256 scaled = _mm256_mul_ps(d, _mm256_set1_ps(r));
        _mm256_storeu_ps(y + i,
                         _mm256_fmadd_ps(scaled, _mm256_loadu_ps(w + i), _mm256_loadu_ps(b + i)));
    }
    for (; i < n; i++)
        y[i] = fmaf((x[i] - mean) * r, w[i], b[i]);
}

/* ---------------------------------------------------------------- softmax */

static inline void lanes_softmax_step(struct phi_softmax_step *a)
{
    enum { N = PHI_KEY_BLOCK / 8 };
    assert(a->lo < a->hi && a->hi <= PHI_KEY_BLOCK);
    const __m256i before = _mm256_set1_epi32((int)a->lo - 1), end = _mm256_set1_epi32((int)a->hi);
    __m256i j = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256 visible[N], s[N], first = _mm256_set1_ps(a->m), top = first;
    PHI_UNROLL
    for (int i = 0; i < N; i++, j = _mm256_add_epi32(j, _mm256_set1_epi32(8))) {
        visible[i] = _mm256_castsi256_ps(
            _mm256_and_si256(_mm256_cmpgt_epi32(j, before), _mm256_cmpgt_epi32(end, j)));
        s[i] = _mm256_mul_ps(_mm256_loadu_ps(a->s + 8 * i), _mm256_set1_ps(a->scale));
        top = _mm256_max_ps(_mm256_blendv_ps(first, s[i], visible[i]), top);
    }
    __m128 top4 = _mm_max_ps(_mm256_castps256_ps128(top), _mm256_extractf128_ps(top, 1));
    __m128 top2 = _mm_max_ps(top4, _mm_movehl_ps(top4, top4));
    float m = _mm_cvtss_f32(_mm_max_ss(top2, _mm_movehdup_ps(top2))) + 0.0f;

    __m256 lanes = _mm256_setzero_ps();
    PHI_UNROLL
    for (int i = 0; i < N; i++) {
        __m256 p = _mm256_and_ps(exp8(_mm256_sub_ps(s[i], _mm256_set1_ps(m))), visible[i]);
        _mm256_storeu_ps(a->s + 8 * i, p);
        lanes = _mm256_add_ps(lanes, p);
    }
    a->c = phi_expf(a->m - m);
    a->l = fmaf(a->l, a->c, reduce8(lanes));
    a->m = m;
}

static inline float lanes_sum_exp(const float *x, float max, size_t n)
{
    assert(n <= PHI_LSE_BLOCK);
    float lane[8];
    __m256 sum = _mm256_setzero_ps();
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        sum = _mm256_add_ps(sum, exp8(_mm256_sub_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(max))));
    _mm256_storeu_ps(lane, sum);
    for (; i < n; i++)
        lane[i % 8] = lane[i % 8] + phi_expf(x[i] - max);
    return reduce8(_mm256_loadu_ps(lane));
}

#endif
