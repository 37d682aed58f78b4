/* x86_quant.h: what the kernels for integer weights share: a call for each segment, and where the scales of
 * a strip lie. Private to the x86 units; the products are in x86_maddubs.h and avx512_vnni.c. */
#ifndef PHI_KERNELS_X86_QUANT_H
#define PHI_KERNELS_X86_QUANT_H

#include "kernels/ref_quant.h"
#include "kernels/x86_lanes.h"

/* ---------------------------------------------------------------- segments */

typedef void (*quant_matmul_fn)(const struct phi_quant_matmul *a);

/* A call for each segment of 4-bit weights. */
PHI_INLINE void each_segment(const struct phi_quant_matmul *a, quant_matmul_fn matmul)
{
    struct phi_quant_matmul part = *a;
    const size_t n_cols = a->segment ? a->segment : a->k;
    part.segment = 0;
    for (size_t begin = 0; begin < a->k; begin += n_cols, part.y += a->plane) {
        const size_t group = begin / a->group;
        part.w = (const char *)a->w + begin / 2;
        part.w_scale = (const char *)a->w_scale + group * phi_dtype_bytes(a->scale_dtype);
        part.x = a->x + begin;
        part.x_sums = a->x_sums + begin / PHI_QUANT_BLOCK;
        part.k = a->k - begin < n_cols ? a->k - begin : n_cols;
        matmul(&part);
    }
}

/* ---------------------------------------------------------------- scales */

PHI_INLINE size_t quant_n_groups(const struct phi_quant_matmul *a)
{
    return (a->k + a->group - 1) / a->group;
}

/* Behind the packed rows: [group][PHI_STRIP_ROWS]. */
PHI_INLINE float *packed_scales(const struct phi_quant_matmul *a)
{
    return (float *)((char *)a->scratch + PHI_STRIP_ROWS * phi_quant_padded(a->k));
}

#endif
