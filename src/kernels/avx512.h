/* avx512.h: what the AVX-512 units share. Private to them. */
#ifndef PHI_KERNELS_AVX512_H
#define PHI_KERNELS_AVX512_H

#include "kernels/kernels.h"

enum { PHI_AVX512_FEATURES = PHI_CPU_AVX2 | PHI_CPU_AVX512 };

void phi_avx512_matmul_f32(const struct phi_matmul *a);
void phi_avx512_matmul_bf16(const struct phi_matmul *a);
void phi_avx512_matmul_f16(const struct phi_matmul *a);
void phi_avx512_matmul_bf16_pairs(const struct phi_matmul *a);
void phi_avx512_interleave_f32(void *to, const void *x, size_t ld_x, size_t n_tokens, size_t k);
void phi_avx512_interleave_pairs(void *to, const void *x, size_t ld_x, size_t n_tokens, size_t k);
void phi_vnni_matmul_w8(const struct phi_quant_matmul *a);
void phi_vnni_matmul_w4(const struct phi_quant_matmul *a);
void phi_avx512_weighted_sum_f32(const struct phi_weighted_sum *a);
void phi_avx512_weighted_sum_bf16(const struct phi_weighted_sum *a);
void phi_avx512_weighted_sum_f16(const struct phi_weighted_sum *a);
void phi_avx512_attention_block(const struct phi_attention_block *a);

#endif
