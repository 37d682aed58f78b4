/* size.h: checked arithmetic for every size that comes from a file, a request or a flag. Each
 * function returns false, leaving *out untouched, when the result does not fit. */
#ifndef PHI_BASE_SIZE_H
#define PHI_BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool phi_size_add(size_t a, size_t b, size_t *out)
{
    if (a > SIZE_MAX - b)
        return false;
    *out = a + b;
    return true;
}

static inline bool phi_size_mul(size_t a, size_t b, size_t *out)
{
    if (b != 0 && a > SIZE_MAX / b)
        return false;
    *out = a * b;
    return true;
}

static inline size_t phi_size_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t phi_size_max(size_t a, size_t b)
{
    return a > b ? a : b;
}

static inline size_t phi_size_ceil_div(size_t a, size_t b)
{
    return a / b + (a % b != 0);
}

#endif
