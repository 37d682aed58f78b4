/* dtype.h: element types of tensors. The first three are what the kernels compute with. */
#ifndef PHI_BASE_DTYPE_H
#define PHI_BASE_DTYPE_H

#include "phidelity.h"

static inline size_t phi_dtype_bytes(enum phi_dtype t)
{
    return t == PHI_FLOAT32 ? 4 : t == PHI_AUTO ? 0 : 2;
}

/* "float32", "bfloat16", "float16", "auto": the names that vLLM's --dtype takes. */
const char *phi_dtype_name(enum phi_dtype t);

/* Also takes the short forms float, half, bf16, fp16, fp32. False for anything else. */
bool phi_dtype_parse(const char *name, enum phi_dtype *out);

/* "none", "w8a8", "w4a8". */
const char *phi_quantization_name(enum phi_quantization q);

#endif
