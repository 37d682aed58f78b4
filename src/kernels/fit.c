/* fit.c: see fit.h. Sixteen scales are tried, and each costs a pass over the elements, so the passes
 * are written with the compiler's vectors: eight lanes on any machine. */
#include "kernels/fit.h"
#include "kernels/elementary.h"
#include "kernels/ref_quant.h"

#include <stdbool.h>

enum { N_SCALES = 16, LANES = 8 };

typedef float lanes __attribute__((vector_size(4 * LANES)));
typedef int32_t int_lanes __attribute__((vector_size(4 * LANES)));

/* How a width of integer is fitted. */
struct width {
    float first, step; /* divisors of the greatest magnitude: first + i * step */
    float low, high;
    bool bf16_scale;
};

static const struct width width8 = {127.0f, 2.0f, -127.0f, 127.0f, false};
static const struct width width4 = {6.0f, 0.25f, -8.0f, 7.0f, true};

/* NaN when an element is not finite. */
static float greatest_magnitude(const float *x, size_t n)
{
    uint32_t greatest = 0; /* magnitudes order like their bits */
    for (size_t i = 0; i < n; i++) {
        uint32_t magnitude = phi_f32_bits(x[i]) & 0x7FFFFFFF;
        greatest = magnitude > greatest ? magnitude : greatest;
    }
    float a = phi_f32_from_bits(greatest);
    return a < INFINITY ? a : NAN;
}

static inline float to_integer(const struct width *w, float x, float inverse)
{
    float q = x * inverse + PHI_EXP_MAGIC - PHI_EXP_MAGIC;
    return q < w->low ? w->low : q > w->high ? w->high : q;
}

/* sum += (x - n * scale)^2 in each lane, n as to_integer makes it. */
static inline __attribute__((always_inline)) void add_errors(const struct width *w, lanes *sum,
                                                             const float *x, float inverse,
                                                             float scale)
{
    lanes v, low = w->low - (lanes){0}, high = w->high - (lanes){0};
    memcpy(&v, x, sizeof v);
    lanes q = v * inverse + PHI_EXP_MAGIC - PHI_EXP_MAGIC;
    int_lanes below = q < low, above = q > high;
    q = (lanes)(((int_lanes)low & below) | ((int_lanes)q & ~below));
    q = (lanes)(((int_lanes)high & above) | ((int_lanes)q & ~above));
    lanes error = v - q * scale;
    *sum += error * error;
}

static float squared_error(const struct width *w, const float *x, size_t n, float inverse,
                           float scale)
{
    lanes sum = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        add_errors(w, &sum, x + i, inverse, scale);
    if (i < n) { /* a zero has no error */
        float rest[LANES] = {0};
        memcpy(rest, x + i, (n - i) * sizeof *rest);
        add_errors(w, &sum, rest, inverse, scale);
    }
    float b[4];
    for (int l = 0; l < 4; l++)
        b[l] = sum[l] + sum[l + 4];
    return (b[0] + b[2]) + (b[1] + b[3]);
}

static float best_scale(const struct width *w, const float *x, size_t n)
{
    float a = greatest_magnitude(x, n), best = 1.0f, least = INFINITY;
    if (!(a >= PHI_QUANT_LEAST))
        return a < PHI_QUANT_LEAST ? 1.0f : NAN;
    for (int i = 0; i < N_SCALES; i++) {
        float scale = a / (w->first + (float)i * w->step);
        if (w->bf16_scale)
            scale = phi_bf16_to_f32(phi_f32_to_bf16(scale));
        float error = squared_error(w, x, n, 1.0f / scale, scale);
        if (error < least) {
            least = error;
            best = scale;
        }
    }
    return best;
}

float phi_fit_w8(int8_t *q, const float *x, size_t n)
{
    float scale = best_scale(&width8, x, n), inverse = 1.0f / scale;
    memset(q, 0, n);
    for (size_t i = 0; i < n && scale == scale; i++)
        q[i] = (int8_t)to_integer(&width8, x[i], inverse);
    return scale;
}

void phi_fit_w4(uint8_t *nibbles, uint16_t *scales, const float *x, size_t n, size_t group)
{
    memset(nibbles, 0, (n + 7) / 8 * 4);
    for (size_t begin = 0; begin < n; begin += group) {
        float scale = best_scale(&width4, x + begin, group), inverse = 1.0f / scale;
        scales[begin / group] = phi_f32_to_bf16(scale);
        for (size_t i = begin; i < begin + group; i++) {
            int q = 8 + (scale == scale ? (int)to_integer(&width4, x[i], inverse) : 0);
            nibbles[i / 2] |= (uint8_t)(q << (i % 2 * 4));
        }
    }
}
