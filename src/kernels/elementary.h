/* elementary.h: the elementary functions of docs/NUMERICS.md section 4, scalar and exact to the bit. The
 * vector kernels repeat the float32 ones with the same operations in the same order. */
#ifndef PHI_KERNELS_ELEMENTARY_H
#define PHI_KERNELS_ELEMENTARY_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* ---------------------------------------------------------------- bits and 16-bit floats */

static inline uint32_t phi_f32_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float phi_f32_from_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static inline float phi_bf16_to_f32(uint16_t h)
{
    return phi_f32_from_bits((uint32_t)h << 16);
}

/* Nearest even; denormals to signed zero; NaN stays a quiet NaN. */
static inline uint16_t phi_f32_to_bf16(float x)
{
    uint32_t u = phi_f32_bits(x);
    if ((u & 0x7F800000u) == 0)
        return (uint16_t)(u >> 16 & 0x8000u);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u)
        return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7FFFu + (u >> 16 & 1u)) >> 16);
}

static inline float phi_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = h >> 10 & 31u, mantissa = h & 1023u;
    if (exponent == 31) /* infinity, or a NaN, which becomes quiet */
        return phi_f32_from_bits(sign | 0x7F800000u | (mantissa ? 0x400000u : 0) | mantissa << 13);
    if (exponent != 0)
        return phi_f32_from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
    float magnitude = (float)mantissa * 0x1p-24f; /* exact: a float16 denormal or zero */
    return phi_f32_from_bits(sign | phi_f32_bits(magnitude));
}

/* Nearest even; overflow to infinity; float16 denormals kept; float32 denormals to signed zero. */
static inline uint16_t phi_f32_to_f16(float x)
{
    uint32_t u = phi_f32_bits(x), sign = u >> 16 & 0x8000u, a = u & 0x7FFFFFFFu;
    if (a > 0x7F800000u)
        return (uint16_t)(sign | 0x7E00u | (a >> 13 & 0x3FFu));
    if (a >= 0x477FF000u) /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7C00u);
    if (a >= 0x38800000u) /* normal: rebias the exponent, round the 13 lost bits */
        return (uint16_t)(sign | (a - 0x38000000u + 0xFFFu + (a >> 13 & 1u)) >> 13);
    if (a < 0x33000000u) /* below half the least denormal, 2^-25 */
        return (uint16_t)sign;
    uint32_t shift = 126u - (a >> 23); /* 14..24 */
    uint32_t mantissa = (a & 0x7FFFFFu) | 0x800000u;
    uint32_t half = 1u << (shift - 1), rest = mantissa & ((1u << shift) - 1), result = mantissa >> shift;
    if (rest > half || (rest == half && (result & 1u)))
        result++;
    return (uint16_t)(sign | result);
}

/* ---------------------------------------------------------------- float32 */

#define PHI_EXP_MIN (-87.0f)
#define PHI_EXP_MAX 88.0f
#define PHI_EXP_MAGIC 12582912.0f /* 1.5 * 2^23: adding it rounds to an integer */
#define PHI_EXP_LOG2E 1.44269504f
#define PHI_EXP_LN2_HI 0.693359375f /* 355/512: n * LN2_HI is exact */
#define PHI_EXP_LN2_LO (-2.12194440e-4f)
/* exp(r) on |r| <= ln2/2: Taylor's coefficients; the first one left out is 5e-9 of the result. */
#define PHI_EXP_C2 0.5f
#define PHI_EXP_C3 0.166666672f
#define PHI_EXP_C4 0.0416666679f
#define PHI_EXP_C5 0.00833333377f
#define PHI_EXP_C6 0.00138888892f
#define PHI_EXP_C7 1.98412701e-4f

static inline float phi_expf(float x)
{
    x = PHI_EXP_MIN > x ? PHI_EXP_MIN : x; /* in this order a NaN stays */
    x = PHI_EXP_MAX < x ? PHI_EXP_MAX : x;
    float t = fmaf(x, PHI_EXP_LOG2E, PHI_EXP_MAGIC);
    float n = t - PHI_EXP_MAGIC;
    float r = fmaf(n, -PHI_EXP_LN2_HI, x);
    r = fmaf(n, -PHI_EXP_LN2_LO, r);
    float p = fmaf(PHI_EXP_C7, r, PHI_EXP_C6);
    p = fmaf(p, r, PHI_EXP_C5);
    p = fmaf(p, r, PHI_EXP_C4);
    p = fmaf(p, r, PHI_EXP_C3);
    p = fmaf(p, r, PHI_EXP_C2);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    return phi_f32_from_bits(phi_f32_bits(p) + (phi_f32_bits(t) << 23));
}

static inline float phi_siluf(float x)
{
    return x / (1.0f + phi_expf(-x));
}

#define PHI_GELU_SCALE 1.59576912f /* 2 sqrt(2/pi) */
#define PHI_GELU_CUBIC 0.044715f

static inline float phi_gelu_newf(float x)
{
    float u = x * PHI_GELU_SCALE * fmaf(x * x, PHI_GELU_CUBIC, 1.0f);
    return x / (1.0f + phi_expf(-u));
}

/* ---------------------------------------------------------------- double */

/* e^x for |x| <= 700; relative error about 2^-52. Taylor to r^13 on |r| <= ln2/2. */
static inline double phi_exp(double x)
{
    double n = x * 1.4426950408889634;
    n = (n + 0x1.8p52) - 0x1.8p52;
    double r = (x - n * 0x1.62e42fee00000p-1) - n * 0x1.a39ef35793c76p-33;
    double p = 1.0;
    for (int k = 13; k >= 1; k--)
        p = 1.0 + p * r / k;
    int64_t e = (int64_t)n + 1023;
    uint64_t bits = e <= 0 ? 0 : e >= 2047 ? (uint64_t)2047 << 52 : (uint64_t)e << 52;
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

/* ln x for a positive normal x; atanh series of (m-1)/(m+1) with m in [sqrt(1/2), sqrt(2)). */
static inline double phi_log(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int e = (int)(bits >> 52) - 1023;
    bits = (bits & 0xFFFFFFFFFFFFFull) | 0x3FF0000000000000ull;
    double m;
    memcpy(&m, &bits, sizeof m);
    if (m >= 1.4142135623730951) {
        m *= 0.5;
        e++;
    }
    double s = (m - 1.0) / (m + 1.0), s2 = s * s, p = 0.0;
    for (int k = 23; k >= 1; k -= 2)
        p = p * s2 + 1.0 / k;
    return e * 0x1.62e42fee00000p-1 + (2.0 * s * p + e * 0x1.a39ef35793c76p-33);
}

/* base^y for base > 0. */
static inline double phi_pow(double base, double y)
{
    return phi_exp(y * phi_log(base));
}

/* sin and cos of |x| <= 2^20: reduction by pi/2 in two parts (33 bits and the rest), then Taylor. */
static inline void phi_sincos(double x, double *sin_out, double *cos_out)
{
    double n = x * 0.63661977236758134;
    n = (n + 0x1.8p52) - 0x1.8p52;
    double r = (x - n * 1.57079632673412561417e+00) - n * 6.07710050650619224932e-11;
    double r2 = r * r, s = 1.0, c = 1.0;
    for (int k = 18; k >= 2; k -= 2) {
        s = 1.0 - s * r2 / ((double)k * (k + 1));
        c = 1.0 - c * r2 / ((double)k * (k - 1));
    }
    s *= r;
    switch ((int64_t)n & 3) {
    case 0:
        *sin_out = s, *cos_out = c;
        break;
    case 1:
        *sin_out = c, *cos_out = -s;
        break;
    case 2:
        *sin_out = -s, *cos_out = -c;
        break;
    default:
        *sin_out = -c, *cos_out = s;
    }
}

#endif
