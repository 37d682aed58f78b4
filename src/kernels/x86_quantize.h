/* x86_quantize.h: rows of activations made int8 (docs/NUMERICS.md section 10), by themselves or as they
 * come out of an activation function: the greatest magnitude is then taken while the elements are
 * made, and a row is quantised while it is in the nearest caches. Private to the x86 units. */
#ifndef PHI_KERNELS_X86_QUANTIZE_H
#define PHI_KERNELS_X86_QUANTIZE_H

#include "kernels/ref_quant.h"
#include "kernels/x86_vec.h"

/* ---------------------------------------------------------------- the greatest magnitude */

/* Magnitudes order like their bits, infinities and NaNs above all. */
PHI_INLINE vec_int greater_magnitude(vec_int top, vec x)
{
    vec_int bits = VEC_BITS(and)(vec_bits(x), VEC(set1_epi32)(0x7FFFFFFF));
    return VEC(max_epi32)(top, bits);
}

PHI_INLINE float greatest_lane(vec_int top)
{
    uint32_t lane[VEC_FLOATS], greatest = 0;
    memcpy(lane, &top, sizeof lane);
    for (int l = 0; l < VEC_FLOATS; l++)
        greatest = lane[l] > greatest ? lane[l] : greatest;
    return phi_f32_from_bits(greatest);
}

static inline float greatest_magnitude(const float *x, size_t n)
{
    vec_int top = vec_bits(vec_all(0.0f));
    size_t i = 0;
    for (; i + VEC_FLOATS <= n; i += VEC_FLOATS)
        top = greater_magnitude(top, vec_load(x + i));
    if (i < n) {
        float rest[VEC_FLOATS] = {0};
        memcpy(rest, x + i, (n - i) * sizeof *rest);
        top = greater_magnitude(top, vec_load(rest));
    }
    return greatest_lane(top);
}

/* ---------------------------------------------------------------- integers */

enum { STEP_BLOCKS = PHI_QUANT_STEP / PHI_QUANT_BLOCK };

/* A block as int8, in its order. */
PHI_INLINE __m256i quantize_block(const float *x, __m256 factor)
{
    __m256i v[4];
    PHI_UNROLL
    for (int i = 0; i < 4; i++)
        v[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), factor));
    __m256i bytes =
        _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
    return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* The sums of the four blocks. */
PHI_INLINE __m128i sum_blocks(const __m256i q[STEP_BLOCKS])
{
    const __m256i ones = _mm256_set1_epi8(1), one_words = _mm256_set1_epi16(1);
    __m256i v[STEP_BLOCKS];
    PHI_UNROLL
    for (int i = 0; i < STEP_BLOCKS; i++)
        v[i] = _mm256_madd_epi16(_mm256_maddubs_epi16(ones, q[i]), one_words);
    __m256i sums =
        _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
    return _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
}

/* The even bytes of both, as words of which the rest is zero. */
PHI_INLINE __m256i pack_bytes(__m256i a, __m256i b)
{
    return _mm256_permute4x64_epi64(_mm256_packus_epi16(a, b), 0xD8);
}

/* A step in the order in which the nibbles of weights lie: even elements, then odd ones. */
PHI_INLINE void store_parted(int8_t *to, const __m256i q[STEP_BLOCKS])
{
    const __m256i low = _mm256_set1_epi16(0xFF);
    PHI_UNROLL
    for (int i = 0; i < STEP_BLOCKS; i += 2) {
        __m256i even = pack_bytes(_mm256_and_si256(q[i], low), _mm256_and_si256(q[i + 1], low));
        __m256i odd = pack_bytes(_mm256_srli_epi16(q[i], 8), _mm256_srli_epi16(q[i + 1], 8));
        _mm256_store_si256((void *)(to + 16 * i), even);
        _mm256_store_si256((void *)(to + PHI_QUANT_STEP / 2 + 16 * i), odd);
    }
}

/* A step, and its sums; returns the blocks' own. */
PHI_INLINE __m128i quantize_step(struct phi_quant_row row, size_t at, const float *x, __m256 factor,
                                 enum phi_quantization form)
{
    __m256i q[STEP_BLOCKS];
    PHI_UNROLL
    for (int i = 0; i < STEP_BLOCKS; i++)
        q[i] = quantize_block(x + i * PHI_QUANT_BLOCK, factor);
    const __m128i sums = sum_blocks(q);
    __m128i stored = _mm_setzero_si128();
    if (form == PHI_W4A8) {
        store_parted(row.q + at, q);
        stored = _mm_sub_epi32(stored, _mm_slli_epi32(sums, 3));
    } else {
        PHI_UNROLL
        for (int i = 0; i < STEP_BLOCKS; i++)
            _mm256_store_si256((void *)(row.q + at + i * PHI_QUANT_BLOCK), q[i]);
    }
    _mm_storeu_si128((void *)(row.sums + at / PHI_QUANT_BLOCK), stored);
    return sums;
}

/* a is the greatest magnitude of x. */
static inline float quantize_by(struct phi_quant_row row, const float *x, size_t n, float a,
                                enum phi_quantization form)
{
    if (!(a >= PHI_QUANT_LEAST && a < INFINITY)) /* zero, or not finite: no quick way needed */
        return phi_ref_quantize_row(row, x, n, form);
    const __m256 factor = _mm256_set1_ps(127.0f / a);
    __m128i sums = _mm_setzero_si128();
    size_t i = 0;
    for (; i + PHI_QUANT_STEP <= n; i += PHI_QUANT_STEP)
        sums = _mm_add_epi32(sums, quantize_step(row, i, x + i, factor, form));
    if (i < n) {
        float rest[PHI_QUANT_STEP] = {0};
        memcpy(rest, x + i, (n - i) * sizeof *rest);
        sums = _mm_add_epi32(sums, quantize_step(row, i, rest, factor, form));
    }
    if (form == PHI_W8A8) {
        __m128i pairs = _mm_add_epi32(sums, _mm_unpackhi_epi64(sums, sums));
        row.sums[0] = -128 * (_mm_cvtsi128_si32(pairs) + _mm_extract_epi32(pairs, 1));
    }
    return a / 127.0f;
}

static inline float vec_quantize_row(struct phi_quant_row row, const float *x, size_t n,
                                     enum phi_quantization form)
{
    return quantize_by(row, x, n, greatest_magnitude(x, n), form);
}

/* ---------------------------------------------------------------- activation functions */

/* An activation function of elements of two rows; gelu looks at the first one alone. */
typedef vec (*gated_fn)(vec gate, vec up);

/* x / (1 + exp(-u)) */
PHI_INLINE vec times_sigmoid(vec x, vec u)
{
    return VEC(div_ps)(x, vec_add(vec_all(1.0f), vec_exp(vec_negative(u))));
}

PHI_INLINE vec gelu(vec x, vec same)
{
    (void)same;
    vec cubic = vec_fma(vec_mul(x, x), vec_all(PHI_GELU_CUBIC), vec_all(1.0f));
    return times_sigmoid(x, vec_mul(vec_mul(x, vec_all(PHI_GELU_SCALE)), cubic));
}

PHI_INLINE vec silu_times(vec gate, vec up)
{
    return vec_mul(up, times_sigmoid(gate, gate));
}

/* y [n] may be either input. Returns the greatest magnitude of y. */
PHI_INLINE float activate(gated_fn fn, float *y, const float *gate, const float *up, size_t n)
{
    vec_int top = vec_bits(vec_all(0.0f));
    size_t i = 0;
    for (; i + VEC_FLOATS <= n; i += VEC_FLOATS) {
        vec v = fn(vec_load(gate + i), vec_load(up + i));
        vec_store(y + i, v);
        top = greater_magnitude(top, v);
    }
    if (i < n) { /* a zero becomes a zero */
        float rest[2][VEC_FLOATS] = {{0}};
        memcpy(rest[0], gate + i, (n - i) * sizeof *y);
        memcpy(rest[1], up + i, (n - i) * sizeof *y);
        vec v = fn(vec_load(rest[0]), vec_load(rest[1]));
        vec_store(rest[0], v);
        memcpy(y + i, rest[0], (n - i) * sizeof *y);
        top = greater_magnitude(top, v);
    }
    return greatest_lane(top);
}

static inline void vec_gelu_new(float *y, const float *x, size_t n)
{
    activate(gelu, y, x, x, n);
}

static inline void vec_silu_mul(float *y, const float *gate, const float *up, size_t n)
{
    activate(silu_times, y, gate, up, n);
}

static inline float vec_gelu_quantize(struct phi_quant_row row, float *y, const float *x, size_t n,
                                      enum phi_quantization form)
{
    return quantize_by(row, y, n, activate(gelu, y, x, x, n), form);
}

static inline float vec_silu_mul_quantize(struct phi_quant_row row, float *y, const float *gate,
                                          const float *up, size_t n, enum phi_quantization form)
{
    return quantize_by(row, y, n, activate(silu_times, y, gate, up, n), form);
}

#endif
