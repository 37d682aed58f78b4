/* x86_vec.h: vectors as wide as the unit's instruction set has them, for kernels whose elements do not
 * meet: each element of a vec runs the scalar definition on its own. Private to the x86 units,
 * like x86_lanes.h. */
#ifndef PHI_KERNELS_X86_VEC_H
#define PHI_KERNELS_X86_VEC_H

#include "kernels/x86_lanes.h"

#if defined(__AVX512F__)

enum { VEC_FLOATS = 16 };
#define VEC(op) _mm512_##op
#define VEC_BITS(op) _mm512_##op##_si512
typedef __m512 vec;
typedef __m512i vec_int;
typedef __mmask16 vec_mask;

PHI_INLINE vec_int vec_load_int(const int32_t *p)
{
    return _mm512_loadu_si512(p);
}

/* Elements of any type, widened. */
PHI_INLINE vec vec_load_bf16(const void *p)
{
    __m512i words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
}

PHI_INLINE vec vec_load_f16(const void *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}

PHI_INLINE vec_mask vec_less(vec_int a, vec_int b)
{
    return _mm512_cmplt_epi32_mask(a, b);
}

/* Where lo <= x < hi. */
PHI_INLINE vec_mask vec_within(vec_int lo, int32_t x, vec_int hi)
{
    __m512i all = _mm512_set1_epi32(x);
    return _mm512_mask_cmpgt_epi32_mask(_mm512_cmple_epi32_mask(lo, all), hi, all);
}

/* mask ? a : b */
PHI_INLINE vec vec_select(vec_mask mask, vec a, vec b)
{
    return _mm512_mask_blend_ps(mask, b, a);
}

PHI_INLINE vec_int vec_bits(vec x)
{
    return _mm512_castps_si512(x);
}

/* p times two to the power that stands in the low bits of t. */
PHI_INLINE vec vec_raise(vec p, vec t)
{
    __m512i raised = _mm512_slli_epi32(_mm512_castps_si512(t), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), raised));
}

#else

enum { VEC_FLOATS = 8 };
#define VEC(op) _mm256_##op
#define VEC_BITS(op) _mm256_##op##_si256
typedef __m256 vec;
typedef __m256i vec_int;
typedef __m256 vec_mask;

PHI_INLINE vec_int vec_load_int(const int32_t *p)
{
    return _mm256_loadu_si256((const void *)p);
}

PHI_INLINE vec vec_load_bf16(const void *p)
{
    return load8_bf16(p);
}

PHI_INLINE vec vec_load_f16(const void *p)
{
    return load8_f16(p);
}

PHI_INLINE vec_mask vec_less(vec_int a, vec_int b)
{
    return _mm256_castsi256_ps(_mm256_cmpgt_epi32(b, a));
}

PHI_INLINE vec_mask vec_within(vec_int lo, int32_t x, vec_int hi)
{
    __m256i all = _mm256_set1_epi32(x);
    return _mm256_castsi256_ps(
        _mm256_andnot_si256(_mm256_cmpgt_epi32(lo, all), _mm256_cmpgt_epi32(hi, all)));
}

PHI_INLINE vec vec_select(vec_mask mask, vec a, vec b)
{
    return _mm256_blendv_ps(b, a, mask);
}

PHI_INLINE vec_int vec_bits(vec x)
{
    return _mm256_castps_si256(x);
}

PHI_INLINE vec vec_raise(vec p, vec t)
{
    __m256i raised = _mm256_slli_epi32(_mm256_castps_si256(t), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), raised));
}

#endif

PHI_INLINE vec vec_load(const float *p)
{
    return VEC(loadu_ps)(p);
}

PHI_INLINE vec vec_load_f32(const void *p)
{
    return VEC(loadu_ps)(p);
}

PHI_INLINE void vec_store(float *p, vec x)
{
    VEC(storeu_ps)(p, x);
}

PHI_INLINE vec vec_all(float x)
{
    return VEC(set1_ps)(x);
}

PHI_INLINE vec vec_add(vec a, vec b)
{
    return VEC(add_ps)(a, b);
}

PHI_INLINE vec vec_sub(vec a, vec b)
{
    return VEC(sub_ps)(a, b);
}

PHI_INLINE vec vec_mul(vec a, vec b)
{
    return VEC(mul_ps)(a, b);
}

PHI_INLINE vec vec_fma(vec a, vec b, vec c)
{
    return VEC(fmadd_ps)(a, b, c);
}

PHI_INLINE vec vec_negative(vec x)
{
    return VEC(xor_ps)(x, vec_all(-0.0f));
}

/* a > b ? a : b */
PHI_INLINE vec vec_max(vec a, vec b)
{
    return VEC(max_ps)(a, b);
}

/* phi_expf */
PHI_INLINE vec vec_exp(vec x)
{
    const vec magic = vec_all(PHI_EXP_MAGIC);
    x = vec_max(vec_all(PHI_EXP_MIN), x);
    x = VEC(min_ps)(vec_all(PHI_EXP_MAX), x);
    vec t = vec_fma(x, vec_all(PHI_EXP_LOG2E), magic), n = vec_sub(t, magic);
    vec r = vec_fma(n, vec_all(-PHI_EXP_LN2_HI), x);
    r = vec_fma(n, vec_all(-PHI_EXP_LN2_LO), r);
    vec p = vec_fma(vec_all(PHI_EXP_C7), r, vec_all(PHI_EXP_C6));
    p = vec_fma(p, r, vec_all(PHI_EXP_C5));
    p = vec_fma(p, r, vec_all(PHI_EXP_C4));
    p = vec_fma(p, r, vec_all(PHI_EXP_C3));
    p = vec_fma(p, r, vec_all(PHI_EXP_C2));
    p = vec_fma(p, r, vec_all(1.0f));
    p = vec_fma(p, r, vec_all(1.0f));
    return vec_raise(p, t);
}

#endif
