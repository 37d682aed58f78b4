/* select.c: which table of kernels this machine runs. A set counts as present when the
 * processor has the instructions and the operating system saves their registers. */
#include "base/status.h"
#include "kernels/kernels.h"

#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>

extern const struct phi_kernels phi_kernels_avx2, phi_kernels_avx512, phi_kernels_avx512_vnni,
    phi_kernels_avx512_bf16;

static const struct phi_kernels *const tables[] = {
    &phi_kernels_ref,         &phi_kernels_avx2,        &phi_kernels_avx512,
    &phi_kernels_avx512_vnni, &phi_kernels_avx512_bf16, NULL,
};

/* XCR0: which register states the operating system saves. */
static unsigned saved_states(void)
{
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static bool has(unsigned word, unsigned bits)
{
    return (word & bits) == bits;
}

unsigned phi_cpu_features(void)
{
    enum { YMM_STATE = 0x6, ZMM_STATE = 0xE6 };
    unsigned eax, ebx, ecx, edx, features = 0;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) ||
        !has(ecx, bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C))
        return 0;
    unsigned states = saved_states();
    if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) || !has(ebx, bit_AVX2) ||
        !has(states, YMM_STATE))
        return 0;
    features |= PHI_CPU_AVX2;
    if (!has(ebx, bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL) ||
        !has(states, ZMM_STATE))
        return features;
    features |= PHI_CPU_AVX512;
    enum { AVX512_VNNI = 1 << 11 }; /* leaf 7, subleaf 0, ECX */
    if (has(ecx, AVX512_VNNI))
        features |= PHI_CPU_AVX512_VNNI;
    enum { AVX512_BF16 = 1 << 5 }; /* leaf 7, subleaf 1, EAX */
    if (__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && has(eax, AVX512_BF16))
        features |= PHI_CPU_AVX512_BF16;
    return features;
}

#else

static const struct phi_kernels *const tables[] = {&phi_kernels_ref, NULL};

unsigned phi_cpu_features(void)
{
    return 0;
}

#endif

const struct phi_kernels *const *phi_kernels_all(void)
{
    return tables;
}

enum phi_status phi_kernels_select(const char *force, const struct phi_kernels **out,
                                   struct phi_error *err)
{
    unsigned have = phi_cpu_features();
    *out = NULL;
    for (const struct phi_kernels *const *t = tables; *t; t++) {
        bool named = force && strcmp(force, (*t)->name) == 0;
        bool runs = ((*t)->features & ~have) == 0;
        if (named && !runs)
            return phi_fail(err, PHI_ERR_UNSUPPORTED, "PHI_ISA=%s: this processor lacks it", force);
        if (named || (!force && runs))
            *out = *t;
    }
    if (!*out)
        return phi_fail(err, PHI_ERR_INVALID,
                        "PHI_ISA=%s: unknown; one of ref, avx2, avx512, avx512_vnni, avx512_bf16", force);
    return PHI_OK;
}
