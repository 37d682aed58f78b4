/* avx512_vnni.c: integer weights with VPDPBUSD (vnni_steps.h). With few tokens rows are read in
 * place (vnni_rows.h), with many a strip is transposed once for all of them (vnni_strip.h). The
 * other kernels of this table are those of avx512.c. */
#include "kernels/avx512.h"
#include "kernels/fit_rows.h"
#include "kernels/vnni_rows.h"
#include "kernels/vnni_strip.h"

enum {
    /* Up to here rows are read in place. The sums of a group of 4-bit weights have to be reduced
     * for each token, which costs more than transposing as soon as there are two. */
    W8_IN_PLACE_TOKENS = 32,
    W4_IN_PLACE_TOKENS = 1,
};

/* Sixteen scales of a row from group g on, of which n exist. */
PHI_INLINE __m512i load_scales16(const char *row, size_t g, size_t n, enum phi_dtype dtype)
{
    const __mmask16 mask = (__mmask16)(n < 16 ? (1u << n) - 1 : 0xFFFF);
    if (dtype == PHI_FLOAT32)
        return _mm512_maskz_loadu_epi32(mask, row + 4 * g);
    __m256i halves = _mm256_maskz_loadu_epi16(mask, row + 2 * g);
    return _mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16);
}

/* As pack_scales, sixteen groups at a time. Rows that do not exist repeat the last one. */
static void pack_scales16(const struct phi_quant_matmul *a)
{
    const size_t n_groups = quant_n_groups(a), bytes = phi_dtype_bytes(a->scale_dtype);
    for (size_t g = 0; g < n_groups; g += 16) {
        float *to = packed_scales(a) + g * PHI_STRIP_ROWS;
        const char *row = a->w_scale;
        __m512i v[16];
        PHI_UNROLL
        for (size_t r = 0; r < 16; r++) {
            v[r] = load_scales16(row, g, n_groups - g, a->scale_dtype);
            _mm_prefetch(row + (g + 16 * a->ld_scale) * bytes, _MM_HINT_T1);
            row += r + 1 < a->n_rows ? a->ld_scale * bytes : 0;
        }
        transpose16x16(v);
        for (size_t i = 0; i < 16 && g + i < n_groups; i++)
            _mm512_store_ps(to + i * PHI_STRIP_ROWS, _mm512_castsi512_ps(v[i]));
    }
}

void phi_vnni_matmul_w8(const struct phi_quant_matmul *a)
{
    assert(a->n_rows <= PHI_STRIP_ROWS && a->k <= PHI_QUANT_MAX_K);
    if (a->n_tokens <= W8_IN_PLACE_TOKENS)
        w8_rows(a);
    else
        w8_strip(a);
}

void phi_vnni_matmul_w4(const struct phi_quant_matmul *a)
{
    assert(a->n_rows <= PHI_STRIP_ROWS && a->k <= PHI_QUANT_MAX_K);
    pack_scales16(a);
    if (a->n_tokens <= W4_IN_PLACE_TOKENS)
        w4_rows(a);
    else
        w4_strip(a);
}

const struct phi_kernels phi_kernels_avx512_vnni = {
    .name = "avx512_vnni",
    .features = PHI_AVX512_FEATURES | PHI_CPU_AVX512_VNNI,
    .matmul_f32 = phi_avx512_matmul_f32,
    .matmul_bf16 = phi_avx512_matmul_bf16,
    .matmul_f16 = phi_avx512_matmul_f16,
    .matmul_bf16_pairs = phi_avx512_matmul_bf16_pairs,
    .quantize_row = lanes_quantize_row,
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
    .gelu_new = lanes_gelu_new,
    .silu_mul = lanes_silu_mul,
    .softmax_step = lanes_softmax_step,
    .weighted_sum_f32 = phi_avx512_weighted_sum_f32,
    .weighted_sum_bf16 = phi_avx512_weighted_sum_bf16,
    .weighted_sum_f16 = phi_avx512_weighted_sum_f16,
    .attention_block = phi_avx512_attention_block,
    .transpose = lanes_transpose,
    .sum_exp = lanes_sum_exp,
};
