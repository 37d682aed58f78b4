/* avx2.c: the kernels for AVX2, FMA and F16C. Norms, activations, softmax and conversions are in
 * x86_lanes.h, the matrix product is in x86_rows.h for few tokens and in avx2_strip.h for many, integer
 * weights are in x86_maddubs.h, attention is in x86_attention.h and x86_sum.h; here is the table. */
#include "kernels/avx2_strip.h"
#include "kernels/fit_rows.h"
#include "kernels/x86_attention.h"
#include "kernels/x86_maddubs.h"
#include "kernels/x86_quantize.h"
#include "kernels/x86_rows.h"
#include "kernels/x86_sum.h"

/* ---------------------------------------------------------------- matrix products */

enum { FEW_TOKENS = 8 }; /* up to here rows are read in place: turning a strip would cost more */

static void matmul_f32(const struct phi_matmul *a)
{
    if (a->n_tokens <= FEW_TOKENS)
        rows_matmul(a, DOT_F32, TILE_TOKENS);
    else
        strip_matmul(a, STRIP_F32);
}

static void matmul_bf16(const struct phi_matmul *a)
{
    if (a->n_tokens <= FEW_TOKENS)
        rows_matmul(a, DOT_BF16, TILE_TOKENS);
    else
        strip_matmul(a, STRIP_BF16);
}

static void matmul_f16(const struct phi_matmul *a)
{
    if (a->n_tokens <= FEW_TOKENS)
        rows_matmul(a, DOT_F16, TILE_TOKENS);
    else
        strip_matmul(a, STRIP_F16);
}

static void matmul_bf16_pairs(const struct phi_matmul *a)
{
    if (a->n_tokens <= FEW_TOKENS)
        rows_matmul(a, DOT_PAIRS, TILE_TOKENS);
    else
        strip_matmul(a, STRIP_PAIRS);
}

const struct phi_kernels phi_kernels_avx2 = {
    .name = "avx2",
    .features = PHI_CPU_AVX2,
    .matmul_f32 = matmul_f32,
    .matmul_bf16 = matmul_bf16,
    .matmul_f16 = matmul_f16,
    .matmul_bf16_pairs = matmul_bf16_pairs,
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
    .weighted_sum_f32 = weighted_sum_f32,
    .weighted_sum_bf16 = weighted_sum_bf16,
    .weighted_sum_f16 = weighted_sum_f16,
    .attention_block = attention_block,
    .transpose = lanes_transpose,
    .sum_exp = lanes_sum_exp,
};
