/* avx512_vnni.c: integer weights with VPDPBUSD (vnni_steps.h). With few tokens rows are read in
 * place (vnni_rows.h, vnni_w4_rows.h), with many a strip is transposed once for all of them
 * (vnni_strip.h). The other kernels of this table are those of avx512.c. */
#include "kernels/avx512.h"
#include "kernels/fit_rows.h"
#include "kernels/vnni_rows.h"
#include "kernels/vnni_strip.h"
#include "kernels/vnni_w4_rows.h"
#include "kernels/x86_quantize.h"

enum {
    W8_IN_PLACE_TOKENS = 32, /* up to here rows are read in place */
};

/* ---------------------------------------------------------------- scales of groups */

/* As pack_scales: sixteen words of sixteen rows at a time, a word being one float32 or two bfloat16.
 * Rows that do not exist repeat the last one. What is stored behind the last group is read by
 * nobody; there is room for it. */
static void pack_scales16(const struct phi_quant_matmul *a)
{
    const size_t n_bytes = quant_n_groups(a) * phi_dtype_bytes(a->scale_dtype);
    const size_t row_bytes = a->ld_scale * phi_dtype_bytes(a->scale_dtype);
    const __m512i odd = _mm512_set1_epi32((int)0xFFFF0000);
    float *to = packed_scales(a);
    for (size_t at = 0; at < n_bytes; at += STEP) {
        const char *row = a->w_scale;
        __m512i v[16];
        PHI_UNROLL
        for (size_t r = 0; r < 16; r++) {
            v[r] = row_step(row, at, n_bytes);
            prefetch(row + at + PHI_STRIP_ROWS * row_bytes);
            row += r + 1 < a->n_rows ? row_bytes : 0;
        }
        transpose16x16(v);
        PHI_UNROLL
        for (size_t i = 0; i < 16; i++) {
            if (a->scale_dtype == PHI_BFLOAT16) {
                _mm512_store_si512(to, _mm512_slli_epi32(v[i], 16));
                to += PHI_STRIP_ROWS;
                v[i] = _mm512_and_si512(v[i], odd);
            }
            _mm512_store_si512(to, v[i]);
            to += PHI_STRIP_ROWS;
        }
    }
}

/* ---------------------------------------------------------------- the table */

void phi_vnni_matmul_w8(const struct phi_quant_matmul *a)
{
    assert(a->n_rows <= PHI_STRIP_ROWS && a->k <= PHI_QUANT_MAX_K);
    if (a->n_tokens <= W8_IN_PLACE_TOKENS)
        w8_rows(a);
    else
        w8_strip(a);
}

static void w4_strip_segment(const struct phi_quant_matmul *a)
{
    pack_scales16(a);
    w4_strip(a);
}

void phi_vnni_matmul_w4(const struct phi_quant_matmul *a)
{
    assert(a->n_rows <= PHI_STRIP_ROWS && a->k <= PHI_QUANT_MAX_K);
    if (a->n_tokens > W4_ROWS_TOKENS) {
        each_segment(a, w4_strip_segment);
        return;
    }
    pack_scales16(a);
    w4_rows(a);
}

const struct phi_kernels phi_kernels_avx512_vnni = {
    .name = "avx512_vnni",
    .features = PHI_AVX512_FEATURES | PHI_CPU_AVX512_VNNI,
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
    .matmul_w8 = phi_vnni_matmul_w8,
    .matmul_w4 = phi_vnni_matmul_w4,
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
