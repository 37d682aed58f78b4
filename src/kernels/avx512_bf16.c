/* avx512_bf16.c: the AVX-512 kernels with the bfloat16 instructions. VDPBF16PS is the pair form
 * of docs/NUMERICS.md section 3 in one instruction: odd elements first, each product fused and
 * rounded on its own, denormals zero whatever MXCSR says. Every processor that has it also has
 * VNNI. */
#include "kernels/avx512.h"
#include "kernels/fit_rows.h"
#include "kernels/x86_in_place.h"
#include "kernels/x86_quantize.h"

PHI_INLINE __m256 step_dot_pairs(__m256 acc, const void *w, const void *x)
{
    return _mm256_dpbf16_ps(acc, (__m256bh)_mm256_loadu_si256(w), (__m256bh)_mm256_loadu_si256(x));
}

PHI_INLINE __m256i pack_whole_pairs(const void *w, int plane)
{
    (void)plane;
    return _mm256_loadu_si256(w);
}

PHI_INLINE __m512 activation_whole_pairs(const void *x, int plane)
{
    (void)plane;
    return _mm512_castsi512_ps(_mm512_broadcast_i32x8(_mm256_loadu_si256(x)));
}

PHI_INLINE __m512 multiply_pairs(__m512 acc, __m512 w, __m512 x)
{
    return _mm512_dpbf16_ps(acc, (__m512bh)_mm512_castps_si512(w),
                            (__m512bh)_mm512_castps_si512(x));
}

#define DOT_WHOLE_PAIRS ((struct dot_form){step_dot_pairs, 16, 2, 2})
#define STRIP_WHOLE_PAIRS                                                                          \
    ((struct strip_form){                                                                          \
        {pack_whole_pairs, 1, 16, 2, BLOCK_ROWS}, activation_whole_pairs, multiply_pairs, 2})

#define IN_PLACE_WHOLE_PAIRS                                                                       \
    ((struct in_place_form){STRIP_WHOLE_PAIRS, activation_whole_pairs, 2, WIDE_ROWS, WIDE_PAIRS})

static void matmul_bf16_pairs(const struct phi_matmul *a)
{
    if (a->n_tokens == 1)
        rows_matmul(a, DOT_WHOLE_PAIRS, 1);
    else if (a->x_interleaved)
        in_place_matmul(a, IN_PLACE_WHOLE_PAIRS);
    else
        strip_matmul(a, STRIP_WHOLE_PAIRS);
}

static void interleave_pairs(void *to, const void *x, size_t ld_x, size_t n_tokens, size_t k)
{
    interleave_tokens(to, x, ld_x, n_tokens, k, STRIP_WHOLE_PAIRS.pack);
}

static void to_bf16(uint16_t *y, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        _mm256_storeu_si256((void *)(y + i), (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(x + i)));
    for (; i < n; i++)
        y[i] = phi_f32_to_bf16(x[i]);
}

const struct phi_kernels phi_kernels_avx512_bf16 = {
    .name = "avx512_bf16",
    .features = PHI_AVX512_FEATURES | PHI_CPU_AVX512_VNNI | PHI_CPU_AVX512_BF16,
    .matmul_f32 = phi_avx512_matmul_f32,
    .matmul_bf16 = phi_avx512_matmul_bf16,
    .matmul_f16 = phi_avx512_matmul_f16,
    .matmul_bf16_pairs = matmul_bf16_pairs,
    .joins_segments = true,
    .interleave_f32 = phi_avx512_interleave_f32,
    .interleave_pairs = interleave_pairs,
    .quantize_row = vec_quantize_row,
    .gelu_quantize = vec_gelu_quantize,
    .silu_mul_quantize = vec_silu_mul_quantize,
    .matmul_w8 = phi_vnni_matmul_w8,
    .matmul_w4 = phi_vnni_matmul_w4,
    .fit_w8 = fit_w8,
    .fit_w4 = fit_w4,
    .to_bf16 = to_bf16,
    .to_f16 = lanes_to_f16,
    .from_bf16 = lanes_from_bf16,
    .from_f16 = lanes_from_f16,
    .rms_norm = lanes_rms_norm,
    .layer_norm = lanes_layer_norm,
    .gelu_new = vec_gelu_new,
    .silu_mul = vec_silu_mul,
    .softmax_step = lanes_softmax_step,
    .weighted_sum_f32 = phi_avx512_weighted_sum_f32,
    .weighted_sum_bf16 = phi_avx512_weighted_sum_bf16,
    .weighted_sum_f16 = phi_avx512_weighted_sum_f16,
    .attention_block = phi_avx512_attention_block,
    .transpose = lanes_transpose,
    .sum_exp = lanes_sum_exp,
};
