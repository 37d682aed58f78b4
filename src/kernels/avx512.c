/* avx512.c: the kernels for AVX-512 F, BW, DQ and VL. A register holds the lanes of two rows when
 * tokens are many (x86_strip.h), of two tokens when they are few (x86_in_place.h), of one row for a
 * single token, where memory sets the speed (x86_rows.h). Integer products are in x86_maddubs.h;
 * the kernels of x86_lanes.h serve here too. Attention of few queries has products of its own
 * (x86_keys.h, x86_sum.h), that of many has no lanes in its registers (x86_attention.h). */
#include "kernels/avx512.h"
#include "kernels/fit_rows.h"
#include "kernels/x86_attention.h"
#include "kernels/x86_in_place.h"
#include "kernels/x86_keys.h"
#include "kernels/x86_maddubs.h"
#include "kernels/x86_quantize.h"
#include "kernels/x86_sum.h"

/* ---------------------------------------------------------------- matrix products */

PHI_INLINE __m512 activation_f32(const void *x, int plane)
{
    (void)plane;
    return _mm512_broadcast_f32x8(_mm256_loadu_ps(x));
}

PHI_INLINE __m512 activation_pairs(const void *x, int plane)
{
    __m512i pairs = _mm512_broadcast_i32x8(_mm256_loadu_si256(x));
    return _mm512_castsi512_ps(plane == 0
                                   ? _mm512_and_si512(pairs, _mm512_set1_epi32((int)0xFFFF0000))
                                   : _mm512_slli_epi32(pairs, 16));
}

PHI_INLINE __m512 multiply(__m512 acc, __m512 w, __m512 x)
{
    return _mm512_fmadd_ps(w, x, acc);
}

#define STRIP_F32                                                                                  \
    ((struct strip_form){{pack_f32, 1, 8, 4, BLOCK_ROWS}, activation_f32, multiply, 4})
#define STRIP_BF16                                                                                 \
    ((struct strip_form){{pack_bf16, 1, 8, 2, BLOCK_ROWS}, activation_f32, multiply, 4})
#define STRIP_F16                                                                                  \
    ((struct strip_form){{pack_f16, 1, 8, 2, BLOCK_ROWS}, activation_f32, multiply, 4})
#define STRIP_PAIRS                                                                                \
    ((struct strip_form){{pack_split_pairs, 2, 16, 2, BLOCK_ROWS}, activation_pairs, multiply, 2})

/* One 128-bit load in all quarters, the lower two widened. */
PHI_INLINE __m512 weight_bf16(const void *w, int plane)
{
    (void)plane;
    __m256i twice = _mm256_broadcastsi128_si256(_mm_loadu_si128(w));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(twice), 16));
}

PHI_INLINE __m512 weight_f16(const void *w, int plane)
{
    (void)plane;
    return _mm512_cvtph_ps(_mm256_broadcastsi128_si256(_mm_loadu_si128(w)));
}

#define IN_PLACE_F32 ((struct in_place_form){STRIP_F32, activation_f32, 4, WIDE_ROWS, WIDE_PAIRS})
#define IN_PLACE_BF16 ((struct in_place_form){STRIP_F32, weight_bf16, 2, TALL_ROWS, TALL_PAIRS})
#define IN_PLACE_F16 ((struct in_place_form){STRIP_F32, weight_f16, 2, TALL_ROWS, TALL_PAIRS})
#define IN_PLACE_PAIRS ((struct in_place_form){STRIP_PAIRS, activation_pairs, 2, TALL_ROWS, TALL_PAIRS})

void phi_avx512_matmul_f32(const struct phi_matmul *a)
{
    if (are_keys(a))
        keys_matmul(a, KEYS_F32);
    else if (a->n_tokens == 1)
        rows_matmul(a, DOT_F32, 1);
    else if (a->x_interleaved)
        in_place_matmul(a, IN_PLACE_F32);
    else
        strip_matmul(a, STRIP_F32);
}

void phi_avx512_matmul_bf16(const struct phi_matmul *a)
{
    if (are_keys(a))
        keys_matmul(a, KEYS_BF16);
    else if (a->n_tokens == 1)
        rows_matmul(a, DOT_BF16, 1);
    else if (a->x_interleaved)
        in_place_matmul(a, IN_PLACE_BF16);
    else
        strip_matmul(a, STRIP_BF16);
}

void phi_avx512_matmul_f16(const struct phi_matmul *a)
{
    if (are_keys(a))
        keys_matmul(a, KEYS_F16);
    else if (a->n_tokens == 1)
        rows_matmul(a, DOT_F16, 1);
    else if (a->x_interleaved)
        in_place_matmul(a, IN_PLACE_F16);
    else
        strip_matmul(a, STRIP_F16);
}

void phi_avx512_matmul_bf16_pairs(const struct phi_matmul *a)
{
    if (a->n_tokens == 1)
        rows_matmul(a, DOT_PAIRS, 1);
    else if (a->x_interleaved)
        in_place_matmul(a, IN_PLACE_PAIRS);
    else
        strip_matmul(a, STRIP_PAIRS);
}

void phi_avx512_interleave_f32(void *to, const void *x, size_t ld_x, size_t n_tokens, size_t k)
{
    interleave_tokens(to, x, ld_x, n_tokens, k, STRIP_F32.pack);
}

void phi_avx512_interleave_pairs(void *to, const void *x, size_t ld_x, size_t n_tokens, size_t k)
{
    interleave_tokens(to, x, ld_x, n_tokens, k, STRIP_PAIRS.pack);
}

/* ---------------------------------------------------------------- attention */

void phi_avx512_weighted_sum_f32(const struct phi_weighted_sum *a)
{
    weighted_sum_f32(a);
}

void phi_avx512_weighted_sum_bf16(const struct phi_weighted_sum *a)
{
    weighted_sum_bf16(a);
}

void phi_avx512_weighted_sum_f16(const struct phi_weighted_sum *a)
{
    weighted_sum_f16(a);
}

void phi_avx512_attention_block(const struct phi_attention_block *a)
{
    attention_block(a);
}

const struct phi_kernels phi_kernels_avx512 = {
    .name = "avx512",
    .features = PHI_AVX512_FEATURES,
    .matmul_f32 = phi_avx512_matmul_f32,
    .matmul_bf16 = phi_avx512_matmul_bf16,
    .matmul_f16 = phi_avx512_matmul_f16,
    .matmul_bf16_pairs = phi_avx512_matmul_bf16_pairs,
    .joins_segments = true,
    .interleave_f32 = phi_avx512_interleave_f32,
    .interleave_pairs = phi_avx512_interleave_pairs,
    .quantize_row = vec_quantize_row,
    .gelu_quantize = vec_gelu_quantize,
    .silu_mul_quantize = vec_silu_mul_quantize,
    .matmul_w8 = maddubs_matmul_w8,
    .matmul_w4 = maddubs_matmul_w4,
    .fit_w8 = fit_w8,
    .fit_w4 = fit_w4,
    .to_bf16 = lanes_to_bf16,
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
