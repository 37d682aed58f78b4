/* dtype.c: see dtype.h. */
#include "base/dtype.h"

#include <string.h>

const char *phi_dtype_name(enum phi_dtype t)
{
    switch (t) {
    case PHI_AUTO:
        return "auto";
    case PHI_FLOAT32:
        return "float32";
    case PHI_BFLOAT16:
        return "bfloat16";
    case PHI_FLOAT16:
        return "float16";
    }
    return "unknown";
}

bool phi_dtype_parse(const char *name, enum phi_dtype *out)
{
    static const struct {
        const char *name;
        enum phi_dtype dtype;
    } names[] = {
        {"auto", PHI_AUTO},     {"float32", PHI_FLOAT32}, {"float", PHI_FLOAT32},
        {"fp32", PHI_FLOAT32},  {"f32", PHI_FLOAT32},     {"bfloat16", PHI_BFLOAT16},
        {"bf16", PHI_BFLOAT16}, {"float16", PHI_FLOAT16}, {"half", PHI_FLOAT16},
        {"fp16", PHI_FLOAT16},  {"f16", PHI_FLOAT16},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i].name) == 0) {
            *out = names[i].dtype;
            return true;
        }
    }
    return false;
}

const char *phi_quantization_name(enum phi_quantization q)
{
    static const char *const names[] = {"none", "w8a8", "w4a8"};
    return names[q];
}
