/* fit_rows.h: from float32 weights to integers and scales (docs/NUMERICS.md section 10). Sixteen
 * scales are tried, and each costs a pass over the elements, so the passes are written with the
 * compiler's vectors: eight lanes on any machine. Every unit with a table compiles its own copy
 * with its own flags, and the integers are the same everywhere. */
#ifndef PHI_KERNELS_FIT_ROWS_H
#define PHI_KERNELS_FIT_ROWS_H

#include "kernels/elementary.h"
#include "kernels/ref_quant.h"

#include <stdbool.h>

enum { FIT_N_SCALES = 16, FIT_TRIES = 4, FIT_LANES = 8 };

typedef float fit_lanes __attribute__((vector_size(4 * FIT_LANES)));
typedef int32_t fit_ints __attribute__((vector_size(4 * FIT_LANES)));

/* How a width of integer is fitted. */
struct fit_width {
    float first, step; /* divisors of the greatest magnitude: first + i * step */
    float low, high;
    bool bf16_scale;
};

static const struct fit_width fit_width8 = {127.0f, 2.0f, -127.0f, 127.0f, false};
static const struct fit_width fit_width4 = {6.0f, 0.25f, -8.0f, 7.0f, true};

/* NaN when an element is not finite. */
static inline float fit_greatest(const float *x, size_t n)
{
    uint32_t greatest = 0; /* magnitudes order like their bits */
    for (size_t i = 0; i < n; i++) {
        uint32_t magnitude = phi_f32_bits(x[i]) & 0x7FFFFFFF;
        greatest = magnitude > greatest ? magnitude : greatest;
    }
    float a = phi_f32_from_bits(greatest);
    return a < INFINITY ? a : NAN;
}

static inline float fit_integer(const struct fit_width *w, float x, float inverse)
{
    float q = x * inverse + PHI_EXP_MAGIC - PHI_EXP_MAGIC;
    return q < w->low ? w->low : q > w->high ? w->high : q;
}

/* Scales that are tried together, so that their sums do not wait for one another. */
struct fit_tries {
    float scale[FIT_TRIES], inverse[FIT_TRIES];
    fit_lanes sum[FIT_TRIES]; /* of squared errors */
};

/* Adds (x - n * scale)^2 in each lane, n as fit_integer makes it. */
static inline __attribute__((always_inline)) void
fit_add_errors(const struct fit_width *w, struct fit_tries *t, const float *x)
{
    fit_lanes v, low = w->low - (fit_lanes){0}, high = w->high - (fit_lanes){0};
    memcpy(&v, x, sizeof v);
#pragma GCC unroll 4
    for (int i = 0; i < FIT_TRIES; i++) {
        fit_lanes q = v * t->inverse[i] + PHI_EXP_MAGIC - PHI_EXP_MAGIC;
        fit_ints below = q<low, above = q> high;
        q = (fit_lanes)(((fit_ints)low & below) | ((fit_ints)q & ~below));
        q = (fit_lanes)(((fit_ints)high & above) | ((fit_ints)q & ~above));
        fit_lanes error = v - q * t->scale[i];
        t->sum[i] += error * error;
    }
}

static inline void fit_errors(const struct fit_width *w, struct fit_tries *tries, const float *x,
                              size_t n)
{
    struct fit_tries t = *tries; /* in registers */
    size_t i = 0;
    for (; i + FIT_LANES <= n; i += FIT_LANES)
        fit_add_errors(w, &t, x + i);
    if (i < n) { /* a zero has no error */
        float rest[FIT_LANES] = {0};
        memcpy(rest, x + i, (n - i) * sizeof *rest);
        fit_add_errors(w, &t, rest);
    }
    *tries = t;
}

static inline float fit_sum(const fit_lanes *sum)
{
    float b[4];
    for (int l = 0; l < 4; l++)
        b[l] = (*sum)[l] + (*sum)[l + 4];
    return (b[0] + b[2]) + (b[1] + b[3]);
}

static inline float fit_scale(const struct fit_width *w, const float *x, size_t n)
{
    float a = fit_greatest(x, n), best = 1.0f, least = INFINITY;
    if (!(a >= PHI_QUANT_LEAST))
        return a < PHI_QUANT_LEAST ? 1.0f : NAN;
    for (int first = 0; first < FIT_N_SCALES; first += FIT_TRIES) {
        struct fit_tries t = {0};
        for (int i = 0; i < FIT_TRIES; i++) {
            float scale = a / (w->first + (float)(first + i) * w->step);
            t.scale[i] = w->bf16_scale ? phi_bf16_to_f32(phi_f32_to_bf16(scale)) : scale;
            t.inverse[i] = 1.0f / t.scale[i];
        }
        fit_errors(w, &t, x, n);
        for (int i = 0; i < FIT_TRIES; i++) {
            float error = fit_sum(&t.sum[i]);
            if (error < least) {
                least = error;
                best = t.scale[i];
            }
        }
    }
    return best;
}

static inline float fit_w8(int8_t *q, const float *x, size_t n)
{
    float scale = fit_scale(&fit_width8, x, n), inverse = 1.0f / scale;
    memset(q, 0, n);
    for (size_t i = 0; i < n && scale == scale; i++)
        q[i] = (int8_t)fit_integer(&fit_width8, x[i], inverse);
    return scale;
}

static inline void fit_w4(uint8_t *nibbles, uint16_t *scales, const float *x, size_t n,
                          size_t group)
{
    memset(nibbles, 0, (n + 7) / 8 * 4);
    for (size_t begin = 0; begin < n; begin += group) {
        float scale = fit_scale(&fit_width4, x + begin, group), inverse = 1.0f / scale;
        scales[begin / group] = phi_f32_to_bf16(scale);
        for (size_t i = begin; i < begin + group; i++) {
            int q = 8 + (scale == scale ? (int)fit_integer(&fit_width4, x[i], inverse) : 0);
            nibbles[i / 2] |= (uint8_t)(q << (i % 2 * 4));
        }
    }
}

#endif
