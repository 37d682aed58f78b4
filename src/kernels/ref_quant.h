/* ref_quant.h: the integer kernels of the reference table, and the parts of their definition that
 * faster tables share. Private to the kernel units. */
#ifndef PHI_KERNELS_REF_QUANT_H
#define PHI_KERNELS_REF_QUANT_H

#include "kernels/kernels.h"

/* A row whose greatest magnitude is below this counts as zero. */
#define PHI_QUANT_LEAST 0x1p-100f

/* Where element i of a row stands in phi_quant_row.q. */
static inline size_t phi_quant_place(size_t i, enum phi_quantization form)
{
    size_t step = i / PHI_QUANT_STEP * PHI_QUANT_STEP, in_step = i % PHI_QUANT_STEP;
    return form == PHI_W8A8 ? i : step + in_step / 2 + in_step % 2 * (PHI_QUANT_STEP / 2);
}

float phi_ref_quantize_row(struct phi_quant_row row, const float *x, size_t n,
                           enum phi_quantization form);
void phi_ref_matmul_w8(const struct phi_quant_matmul *a);
void phi_ref_matmul_w4(const struct phi_quant_matmul *a);

#endif
