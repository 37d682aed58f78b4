/* ref_quant.c: the reference kernels for integer weights, which define their bits (docs/NUMERICS.md
 * section 10). */
#include "kernels/ref_quant.h"
#include "kernels/elementary.h"

#include <assert.h>
#include <string.h>

enum { INFINITE = 0x7F800000 };

float phi_ref_quantize_row(struct phi_quant_row row, const float *x, size_t n,
                           enum phi_quantization form)
{
    uint32_t greatest = 0; /* magnitudes order like their bits, infinities and NaNs above all */
    for (size_t i = 0; i < n; i++) {
        uint32_t magnitude = phi_f32_bits(x[i]) & 0x7FFFFFFF;
        greatest = magnitude > greatest ? magnitude : greatest;
    }
    memset(row.q, 0, phi_quant_padded(n));
    memset(row.sums, 0, phi_quant_n_sums(n) * sizeof *row.sums);
    if (greatest >= INFINITE)
        return NAN;
    float a = phi_f32_from_bits(greatest);
    if (a < PHI_QUANT_LEAST)
        return 0.0f;
    float factor = 127.0f / a;
    for (size_t i = 0; i < n; i++) {
        int q = (int)(x[i] * factor + PHI_EXP_MAGIC - PHI_EXP_MAGIC);
        row.q[phi_quant_place(i, form)] = (int8_t)q;
        if (form == PHI_W8A8)
            row.sums[0] -= 128 * q;
        else
            row.sums[i / PHI_QUANT_BLOCK] -= 8 * q;
    }
    return a / 127.0f;
}

static float scaled(const struct phi_quant_matmul *a, size_t token, float y)
{
    return a->x_scale ? y * a->x_scale[token] : y;
}

void phi_ref_matmul_w8(const struct phi_quant_matmul *a)
{
    assert(a->n_rows <= PHI_STRIP_ROWS && a->k <= PHI_QUANT_MAX_K);
    for (size_t m = 0; m < a->n_tokens; m++)
        for (size_t n = 0; n < a->n_rows; n++) {
            const int8_t *w = (const int8_t *)a->w + n * a->row_bytes, *x = a->x + m * a->ld_x;
            int32_t sum = 0;
            float scale;
            for (size_t k = 0; k < a->k; k++)
                sum += w[k] * x[k];
            memcpy(&scale, (const char *)a->w_scale + n * sizeof scale, sizeof scale);
            a->y[m * a->ld_y + n] = scaled(a, m, (float)sum * scale);
        }
}

static float group_scale(const struct phi_quant_matmul *a, size_t row, size_t group)
{
    size_t i = row * a->ld_scale + group;
    float scale;
    uint16_t half;
    if (a->scale_dtype == PHI_BFLOAT16) {
        memcpy(&half, (const char *)a->w_scale + i * sizeof half, sizeof half);
        return phi_bf16_to_f32(half);
    }
    memcpy(&scale, (const char *)a->w_scale + i * sizeof scale, sizeof scale);
    return scale;
}

/* Of columns from..to. */
static float w4_product(const struct phi_quant_matmul *a, size_t token, size_t row, size_t from,
                        size_t to)
{
    const uint8_t *w = (const uint8_t *)a->w + row * a->row_bytes;
    const int8_t *x = a->x + token * a->ld_x;
    float acc = 0.0f;
    for (size_t begin = from; begin < to; begin += a->group) {
        int32_t sum = 0;
        for (size_t k = begin; k < to && k < begin + a->group; k++)
            sum += ((w[k / 2] >> k % 2 * 4 & 15) - 8) * x[phi_quant_place(k, PHI_W4A8)];
        acc = fmaf((float)sum, group_scale(a, row, begin / a->group), acc);
    }
    return scaled(a, token, acc);
}

void phi_ref_matmul_w4(const struct phi_quant_matmul *a)
{
    assert(a->n_rows <= PHI_STRIP_ROWS && a->k <= PHI_QUANT_MAX_K);
    const size_t n_cols = a->segment ? a->segment : a->k;
    float *y = a->y;
    for (size_t begin = 0; begin < a->k; begin += n_cols, y += a->plane) {
        const size_t end = a->k - begin < n_cols ? a->k : begin + n_cols;
        for (size_t m = 0; m < a->n_tokens; m++)
            for (size_t n = 0; n < a->n_rows; n++)
                y[m * a->ld_y + n] = w4_product(a, m, n, begin, end);
    }
}
