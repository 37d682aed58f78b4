/* vnni_steps.h: what the VNNI products are made of: a register of weights from memory, and
 * VPDPBUSD, which adds four products of an unsigned and a signed byte to a 32-bit sum without
 * saturation. 8-bit weights enter as n + 128 (their sign bit flipped), 4-bit ones as n + 8, as they
 * are stored; the activation row's sums take what that adds out again, and 32-bit arithmetic wraps,
 * so nothing is lost on the way. Private to avx512_vnni.c. */
#ifndef PHI_KERNELS_VNNI_STEPS_H
#define PHI_KERNELS_VNNI_STEPS_H

#include "kernels/x86_quant.h"

enum { STEP = 64 }; /* bytes of a register */

/* STEP bytes at `at` of a row of n_bytes: zeros behind its end, or where a whole step is there. */
typedef __m512i (*load_step_fn)(const char *row, size_t at, size_t n_bytes);

PHI_INLINE __m512i row_step(const char *row, size_t at, size_t n_bytes)
{
    if (at + STEP <= n_bytes)
        return _mm512_loadu_si512(row + at);
    __mmask64 mask = at < n_bytes ? ~(__mmask64)0 >> (STEP - (n_bytes - at)) : 0;
    return _mm512_maskz_loadu_epi8(mask, row + at);
}

PHI_INLINE __m512i whole_step(const char *row, size_t at, size_t n_bytes)
{
    (void)n_bytes;
    return _mm512_loadu_si512(row + at);
}

PHI_INLINE __m512i unsigned_w8(__m512i w)
{
    return _mm512_xor_si512(w, _mm512_set1_epi8(-128));
}

PHI_INLINE __m512i low_nibbles(__m512i bytes)
{
    return _mm512_and_si512(bytes, _mm512_set1_epi8(15));
}

PHI_INLINE __m512i high_nibbles(__m512i bytes)
{
    return low_nibbles(_mm512_srli_epi16(bytes, 4));
}

/* acc + the products of unsigned bytes w and signed bytes x. Written as instructions, since gcc 12
 * copies the sums before and after each use of the intrinsic and takes broadcasts apart, which
 * costs a third of the speed. */
PHI_INLINE __m512i dot(__m512i acc, __m512i w, __m512i x)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(w), "v"(x));
    return acc;
}

/* Four bytes of x for each word of w. */
struct four_bytes {
    int8_t x[4];
};

PHI_INLINE __m512i dot_broadcast(__m512i acc, __m512i w, const int8_t *x)
{
    __asm__("vpdpbusd %2%{1to16%}, %1, %0"
            : "+v"(acc)
            : "v"(w), "m"(*(const struct four_bytes *)(const void *)x));
    return acc;
}

/* In each quarter on its own: register i of the result holds the words i of the four registers. */
PHI_INLINE void transpose_quarters(__m512i v[4])
{
    __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]);
    __m512i c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);
    v[0] = _mm512_unpacklo_epi64(a, c);
    v[1] = _mm512_unpackhi_epi64(a, c);
    v[2] = _mm512_unpacklo_epi64(b, d);
    v[3] = _mm512_unpackhi_epi64(b, d);
}

/* Register i of the result holds the 32-bit words i of the sixteen rows. */
PHI_INLINE void transpose16x16(__m512i v[16])
{
    __m512i t[16];
    /* v[4 i + j]: word j of the four quarters, of rows 4 i .. 4 i + 3 */
    PHI_UNROLL
    for (int i = 0; i < 4; i++)
        transpose_quarters(v + 4 * i);
    PHI_UNROLL
    for (int j = 0; j < 4; j++) {
        t[j] = _mm512_shuffle_i32x4(v[j], v[4 + j], 0x88);
        t[4 + j] = _mm512_shuffle_i32x4(v[j], v[4 + j], 0xDD);
        t[8 + j] = _mm512_shuffle_i32x4(v[8 + j], v[12 + j], 0x88);
        t[12 + j] = _mm512_shuffle_i32x4(v[8 + j], v[12 + j], 0xDD);
    }
    PHI_UNROLL
    for (int j = 0; j < 4; j++) {
        v[j] = _mm512_shuffle_i32x4(t[j], t[8 + j], 0x88);
        v[4 + j] = _mm512_shuffle_i32x4(t[4 + j], t[12 + j], 0x88);
        v[8 + j] = _mm512_shuffle_i32x4(t[j], t[8 + j], 0xDD);
        v[12 + j] = _mm512_shuffle_i32x4(t[4 + j], t[12 + j], 0xDD);
    }
}

/* Names bytes that will be read soon. Into the second level, as in x86_rows.h. */
PHI_INLINE void prefetch(const char *p)
{
    _mm_prefetch(p, _MM_HINT_T1);
}

#endif
