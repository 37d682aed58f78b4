/* fpenv.c: the floating-point environment of docs/NUMERICS.md section 1. */
#include "kernels/kernels.h"

#if defined(__x86_64__)
#include <xmmintrin.h>

void phi_fp_env_set(void)
{
    enum { FLUSH_TO_ZERO = 1 << 15, DENORMALS_ARE_ZERO = 1 << 6, ROUNDING = 3 << 13 };
    _mm_setcsr((_mm_getcsr() & ~(unsigned)ROUNDING) | FLUSH_TO_ZERO | DENORMALS_ARE_ZERO);
}

#elif defined(__aarch64__)

void phi_fp_env_set(void)
{
    enum { FLUSH_TO_ZERO = 1 << 24, ROUNDING = 3 << 22 };
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    fpcr = (fpcr & ~(uint64_t)ROUNDING) | FLUSH_TO_ZERO;
    __asm__ volatile("msr fpcr, %0" : : "r"(fpcr));
}

#else

void phi_fp_env_set(void)
{
}

#endif
