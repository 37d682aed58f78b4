/* fit.h: from float32 weights to integers and scales (docs/NUMERICS.md section 10). It runs once, at
 * load, and is one piece of portable code: the same integers everywhere. */
#ifndef PHI_KERNELS_FIT_H
#define PHI_KERNELS_FIT_H

#include <stddef.h>
#include <stdint.h>

/* One row of PHI_W8A8: int8 q [n]; returns its scale. */
float phi_fit_w8(int8_t *q, const float *x, size_t n);

/* One row of PHI_W4A8: two elements a byte as in struct phi_quant_matmul, `group` divides n.
 * nibbles [ceil(n / 8) * 4 bytes], scales bfloat16 [n / group]. */
void phi_fit_w4(uint8_t *nibbles, uint16_t *scales, const float *x, size_t n, size_t group);

#endif
