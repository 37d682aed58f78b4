/* x86_maddubs.h: products with integer weights where there is no VNNI, in registers of
 * 256 or 512 bits. Private to the x86 units, like the files that it includes.
 *
 * VPMADDUBSW multiplies unsigned by signed bytes and adds pairs in 16 bits, where two products of
 * 255 by 127 would not fit. So of 8-bit weights and activations one enters as a magnitude and its
 * signs go over to the other. VPSIGNB would do that, but runs where multiplications do, and not on
 * 512 bits. Instead an exclusive or makes -v - 1 of what meets a negative magnitude m, and the
 * product is too small by m, which a sum over the row, or the token, puts right. No pair leaves
 * 16 bits: 2 * 128 * 127 and 2 * 128 * -128 fit, and the magnitude 128 is a negative weight's only.
 * 4-bit weights stay unsigned, n + 8 <= 15: the products of eight instructions fit, and what the 8
 * adds is in the row's sums.
 *
 * With few tokens rows are read in place (maddubs_rows.h), with many a strip is packed
 * (maddubs_strip.h). */
#ifndef PHI_KERNELS_X86_MADDUBS_H
#define PHI_KERNELS_X86_MADDUBS_H

#include "kernels/maddubs_rows.h"
#include "kernels/maddubs_strip.h"

static inline void maddubs_matmul_w8(const struct phi_quant_matmul *a)
{
    assert(a->n_rows <= PHI_STRIP_ROWS && a->k <= PHI_QUANT_MAX_K);
    if (a->n_tokens <= QUANT_FEW_TOKENS)
        w8_rows(a);
    else
        w8_strip(a);
}

static inline void maddubs_segment_w4(const struct phi_quant_matmul *a)
{
    pack_scales(a);
    if (a->n_tokens <= QUANT_FEW_TOKENS)
        w4_rows(a);
    else
        w4_strip(a);
}

static inline void maddubs_matmul_w4(const struct phi_quant_matmul *a)
{
    assert(a->n_rows <= PHI_STRIP_ROWS && a->k <= PHI_QUANT_MAX_K);
    each_segment(a, maddubs_segment_w4);
}

#endif
