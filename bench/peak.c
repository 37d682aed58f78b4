/* peak.c: see peak.h. The only instructions of a particular processor outside src/kernels. */
#include "peak.h"
#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

enum { ROUNDS = 300000, CHAINS = 12 }; /* more than two pipes times the cycles of an instruction */

#if defined(__x86_64__)
#include <immintrin.h>

__attribute__((target("avx2,fma"))) static double fma_avx2(void)
{
    __m256 acc[CHAINS], factor = _mm256_set1_ps(0.5f);
#pragma GCC unroll 12
    for (int i = 0; i < CHAINS; i++)
        acc[i] = _mm256_set1_ps((float)i);
    for (int round = 0; round < ROUNDS; round++) {
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++) {
            acc[i] = _mm256_fmadd_ps(acc[i], factor, factor);
            __asm__ volatile("" : "+x"(acc[i]));
        }
    }
    return 2.0 * 8 * CHAINS * ROUNDS;
}

__attribute__((target("avx512f"))) static double fma_avx512(void)
{
    __m512 acc[CHAINS], factor = _mm512_set1_ps(0.5f);
#pragma GCC unroll 12
    for (int i = 0; i < CHAINS; i++)
        acc[i] = _mm512_set1_ps((float)i);
    for (int round = 0; round < ROUNDS; round++) {
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++) {
            acc[i] = _mm512_fmadd_ps(acc[i], factor, factor);
            __asm__ volatile("" : "+v"(acc[i]));
        }
    }
    return 2.0 * 16 * CHAINS * ROUNDS;
}

__attribute__((target("avx512f,avx512bf16"))) static double dot_avx512_bf16(void)
{
    __m512 acc[CHAINS];
    __m512bh halves = (__m512bh)_mm512_set1_epi32(0x3F003F00);
#pragma GCC unroll 12
    for (int i = 0; i < CHAINS; i++)
        acc[i] = _mm512_set1_ps((float)i);
    for (int round = 0; round < ROUNDS; round++) {
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++) {
            acc[i] = _mm512_dpbf16_ps(acc[i], halves, halves);
            __asm__ volatile("" : "+v"(acc[i]));
        }
    }
    return 4.0 * 16 * CHAINS * ROUNDS;
}

/* VPMADDUBSW adds pairs of products in 16 bits, where those of 8-bit weights leave no room for more
 * and those of 4-bit weights do for `depth` = 8 times as many; VPMADDWD widens the sums. */
#define MADDUBS_PROBE(name, isa, vector, op, depth)                                                \
    __attribute__((target(isa))) static double name(void)                                          \
    {                                                                                              \
        enum { SUMS = 8 };                                                                         \
        vector acc[SUMS], bytes = op##_set1_epi8(1), ones = op##_set1_epi16(1);                    \
        _Pragma("GCC unroll 8") for (int i = 0; i < SUMS; i++) acc[i] = op##_set1_epi32(i);        \
        for (int round = 0; round < ROUNDS / (depth); round++) {                                   \
            _Pragma("GCC unroll 8") for (int i = 0; i < SUMS; i++)                                 \
            {                                                                                      \
                vector pairs = op##_maddubs_epi16(bytes, bytes);                                   \
                _Pragma("GCC unroll 8") for (int d = 1; d < (depth); d++)                          \
                {                                                                                  \
                    __asm__ volatile(""                                                            \
                                     : "+v"(bytes), "+v"(pairs)); /* else it is computed once */   \
                    pairs = op##_add_epi16(pairs, op##_maddubs_epi16(bytes, bytes));               \
                }                                                                                  \
                acc[i] = op##_add_epi32(acc[i], op##_madd_epi16(pairs, ones));                     \
                __asm__ volatile("" : "+v"(bytes), "+v"(acc[i]));                                  \
            }                                                                                      \
        }                                                                                          \
        return 2.0 * sizeof(vector) * SUMS * (depth) * (ROUNDS / (depth));                         \
    }

MADDUBS_PROBE(int8_avx2, "avx2", __m256i, _mm256, 1)
MADDUBS_PROBE(int4_avx2, "avx2", __m256i, _mm256, 8)
MADDUBS_PROBE(int8_avx512, "avx512f,avx512bw", __m512i, _mm512, 1)
MADDUBS_PROBE(int4_avx512, "avx512f,avx512bw", __m512i, _mm512, 8)

__attribute__((target("avx512f,avx512vnni"))) static double int8_avx512_vnni(void)
{
    __m512i acc[CHAINS], bytes = _mm512_set1_epi32(0x01010101);
#pragma GCC unroll 12
    for (int i = 0; i < CHAINS; i++)
        acc[i] = _mm512_set1_epi32(i);
    for (int round = 0; round < ROUNDS; round++) {
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++) {
            acc[i] = _mm512_dpbusd_epi32(acc[i], bytes, bytes);
            __asm__ volatile("" : "+v"(acc[i]));
        }
    }
    return 8.0 * 16 * CHAINS * ROUNDS;
}
#endif

static double fma_scalar(void)
{
    volatile float sink;
    float acc[CHAINS] = {0};
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < CHAINS; i++)
            acc[i] = fmaf(acc[i], 0.5f, 0.5f);
    for (int i = 0; i < CHAINS; i++)
        sink = acc[i];
    (void)sink;
    return 2.0 * CHAINS * ROUNDS;
}

double phi_peak_fma(unsigned features)
{
#if defined(__x86_64__)
    if (features & PHI_CPU_AVX512)
        return fma_avx512();
    if (features & PHI_CPU_AVX2)
        return fma_avx2();
#endif
    (void)features;
    return fma_scalar();
}

double phi_peak_bf16_dot(unsigned features)
{
#if defined(__x86_64__)
    if (features & PHI_CPU_AVX512_BF16)
        return dot_avx512_bf16();
#endif
    (void)features;
    return 0.0;
}

double phi_peak_int8_dot(unsigned features)
{
#if defined(__x86_64__)
    if (features & PHI_CPU_AVX512_VNNI)
        return int8_avx512_vnni();
    if (features & PHI_CPU_AVX512)
        return int8_avx512();
    if (features & PHI_CPU_AVX2)
        return int8_avx2();
#endif
    (void)features;
    return 0.0;
}

double phi_peak_int4_dot(unsigned features)
{
#if defined(__x86_64__)
    if (features & PHI_CPU_AVX512_VNNI)
        return int8_avx512_vnni();
    if (features & PHI_CPU_AVX512)
        return int4_avx512();
    if (features & PHI_CPU_AVX2)
        return int4_avx2();
#endif
    (void)features;
    return 0.0;
}

/* Registers that every processor has are wide enough: memory is much slower. */
typedef unsigned long long lane __attribute__((vector_size(16)));

unsigned long long phi_peak_read(const void *p, size_t n, struct phi_read_pattern pattern)
{
    const size_t stream_bytes = n / (size_t)pattern.n_streams;
    const char *const end = (const char *)p + n;
    lane a = {0}, b = {0}, c = {0}, d = {0};
    for (size_t i = 0; i < stream_bytes; i += 64)
        for (const char *at = (const char *)p + i; at < end; at += stream_bytes) {
            const lane *line = (const lane *)at;
            if (pattern.ahead_bytes > 0)
                __builtin_prefetch(at + pattern.ahead_bytes, 0, 2);
            a += line[0];
            b += line[1];
            c += line[2];
            d += line[3];
        }
    a += b + c + d;
    return a[0] + a[1];
}
