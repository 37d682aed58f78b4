/* ref.c: the reference kernels, which define every bit of the arithmetic (docs/NUMERICS.md). Written
 * to be read; a faster table overrides what it can and must equal these. */
#include "kernels/kernels.h"
#include "kernels/elementary.h"
#include "kernels/fit_rows.h"
#include "kernels/ref_quant.h"

#include <assert.h>

/* Element i of a row in one of the three types. Rows may be unaligned. */
typedef float (*load_fn)(const void *row, size_t i);

static inline float load_f32(const void *row, size_t i)
{
    float x;
    memcpy(&x, (const char *)row + i * sizeof x, sizeof x);
    return x;
}

static inline uint16_t load_u16(const void *row, size_t i)
{
    uint16_t x;
    memcpy(&x, (const char *)row + i * sizeof x, sizeof x);
    return x;
}

static inline float load_bf16(const void *row, size_t i)
{
    return phi_bf16_to_f32(load_u16(row, i));
}

static inline float load_f16(const void *row, size_t i)
{
    return phi_f16_to_f32(load_u16(row, i));
}

static inline float reduce8(const float lane[8])
{
    float b[4], c[2];
    for (int l = 0; l < 4; l++)
        b[l] = lane[l] + lane[l + 4];
    for (int l = 0; l < 2; l++)
        c[l] = b[l] + b[l + 2];
    return c[0] + c[1];
}

/* ---------------------------------------------------------------- matrix products */

static inline float dot_elements(const void *w, const float *x, size_t step_x, size_t k,
                                 load_fn load)
{
    float lane[8] = {0};
    size_t i = 0;
    for (; i < k; i++)
        lane[i % 8] = fmaf(load(w, i), x[i * step_x], lane[i % 8]);
    for (; i % 8 != 0; i++)
        lane[i % 8] = fmaf(0.0f, 0.0f, lane[i % 8]);
    return reduce8(lane);
}

static inline float dot_pairs(const void *w, const void *x, size_t k)
{
    float lane[8] = {0};
    for (size_t i = 0; i < (k + 15) / 16 * 16; i += 2) {
        float *l = &lane[i / 2 % 8];
        float w1 = i + 1 < k ? load_bf16(w, i + 1) : 0.0f, x1 = i + 1 < k ? load_bf16(x, i + 1) : 0.0f;
        float w0 = i < k ? load_bf16(w, i) : 0.0f, x0 = i < k ? load_bf16(x, i) : 0.0f;
        *l = fmaf(w1, x1, *l);
        *l = fmaf(w0, x0, *l);
    }
    return reduce8(lane);
}

static inline void matmul_elements(const struct phi_matmul *a, size_t w_bytes, load_fn load)
{
    assert(a->n_rows <= PHI_STRIP_ROWS);
    for (size_t m = 0; m < a->n_tokens; m++)
        for (size_t n = 0; n < a->n_rows; n++)
            a->y[m * a->ld_y + n] = dot_elements((const char *)a->w + n * a->ld_w * w_bytes,
                                                 (const float *)a->x + m * a->ld_x, 1, a->k, load);
}

static void matmul_f32(const struct phi_matmul *a)
{
    matmul_elements(a, 4, load_f32);
}

static void matmul_bf16(const struct phi_matmul *a)
{
    matmul_elements(a, 2, load_bf16);
}

static void matmul_f16(const struct phi_matmul *a)
{
    matmul_elements(a, 2, load_f16);
}

static void matmul_bf16_pairs(const struct phi_matmul *a)
{
    assert(a->n_rows <= PHI_STRIP_ROWS);
    for (size_t m = 0; m < a->n_tokens; m++)
        for (size_t n = 0; n < a->n_rows; n++)
            a->y[m * a->ld_y + n] = dot_pairs((const char *)a->w + n * a->ld_w * 2,
                                              (const char *)a->x + m * a->ld_x * 2, a->k);
}

/* ---------------------------------------------------------------- conversions */

static void to_bf16(uint16_t *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = phi_f32_to_bf16(x[i]);
}

static void to_f16(uint16_t *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = phi_f32_to_f16(x[i]);
}

static void from_bf16(float *y, const void *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = load_bf16(x, i);
}

static void from_f16(float *y, const void *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = load_f16(x, i);
}

/* ---------------------------------------------------------------- norms */

static void rms_norm(float *y, const float *x, const float *w, float eps, size_t n)
{
    float lane[8] = {0};
    for (size_t i = 0; i < n; i++)
        lane[i % 8] = fmaf(x[i], x[i], lane[i % 8]);
    float r = 1.0f / sqrtf(reduce8(lane) / (float)n + eps);
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] * r * w[i];
}

static void layer_norm(float *y, const float *x, const float *w, const float *b, float eps, size_t n)
{
    float sum[8] = {0}, squares[8] = {0};
    for (size_t i = 0; i < n; i++)
        sum[i % 8] = sum[i % 8] + x[i];
    float mean = reduce8(sum) / (float)n;
    for (size_t i = 0; i < n; i++)
        squares[i % 8] = fmaf(x[i] - mean, x[i] - mean, squares[i % 8]);
    float r = 1.0f / sqrtf(reduce8(squares) / (float)n + eps);
    for (size_t i = 0; i < n; i++)
        y[i] = fmaf((x[i] - mean) * r, w[i], b[i]);
}

/* ---------------------------------------------------------------- activations */

static void gelu_new(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = phi_gelu_newf(x[i]);
}

static void silu_mul(float *y, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = up[i] * phi_siluf(gate[i]);
}

static float gelu_quantize(struct phi_quant_row row, float *y, const float *x, size_t n,
                           enum phi_quantization form)
{
    gelu_new(y, x, n);
    return phi_ref_quantize_row(row, y, n, form);
}

static float silu_mul_quantize(struct phi_quant_row row, float *y, const float *gate, const float *up,
                               size_t n, enum phi_quantization form)
{
    silu_mul(y, gate, up, n);
    return phi_ref_quantize_row(row, y, n, form);
}

/* ---------------------------------------------------------------- attention */

static void softmax_step(struct phi_softmax_step *a)
{
    assert(a->lo < a->hi && a->hi <= PHI_KEY_BLOCK);
    float m = a->m;
    for (size_t j = a->lo; j < a->hi; j++) {
        a->s[j] = a->s[j] * a->scale;
        m = a->s[j] > m ? a->s[j] : m;
    }
    m = m + 0.0f; /* a zero maximum is +0, whichever zero came first */
    float lane[8] = {0};
    for (size_t j = 0; j < PHI_KEY_BLOCK; j++) {
        a->s[j] = j >= a->lo && j < a->hi ? phi_expf(a->s[j] - m) : 0.0f;
        lane[j % 8] = lane[j % 8] + a->s[j];
    }
    a->c = phi_expf(a->m - m);
    a->l = fmaf(a->l, a->c, reduce8(lane));
    a->m = m;
}

static inline void weighted_sum(const struct phi_weighted_sum *a, size_t v_bytes, load_fn load)
{
    for (size_t r = 0; r < a->n_rows; r++) {
        float *acc = a->acc + r * a->ld_acc;
        for (size_t d = 0; a->c && d < a->d; d++)
            acc[d] = acc[d] * a->c[r];
        for (size_t j = (size_t)a->lo[r]; j < (size_t)a->hi[r]; j++)
            for (size_t d = 0; d < a->d; d++)
                acc[d] = fmaf(a->p[r * a->ld_p + j],
                              load((const char *)a->v + j * a->ld_v * v_bytes, d), acc[d]);
    }
}

static void weighted_sum_f32(const struct phi_weighted_sum *a)
{
    weighted_sum(a, 4, load_f32);
}

static void weighted_sum_bf16(const struct phi_weighted_sum *a)
{
    weighted_sum(a, 2, load_bf16);
}

static void weighted_sum_f16(const struct phi_weighted_sum *a)
{
    weighted_sum(a, 2, load_f16);
}

static void attention_block(const struct phi_attention_block *a)
{
    for (size_t r = 0; r < a->n_rows; r++) {
        if (a->lo[r] >= a->hi[r])
            continue;
        float s[PHI_KEY_BLOCK];
        struct phi_softmax_step step = {.s = s, .lo = (size_t)a->lo[r], .hi = (size_t)a->hi[r],
                                        .scale = a->scale, .m = a->m[r], .l = a->l[r]};
        for (size_t j = step.lo; j < step.hi; j++)
            s[j] = dot_elements(a->k + j * a->ld_kv, a->q + r, a->ld, a->d, load_f32);
        softmax_step(&step);
        a->m[r] = step.m;
        a->l[r] = step.l;
        for (size_t d = 0; d < a->d; d++) {
            float *acc = a->acc + d * a->ld + r;
            *acc = *acc * step.c;
            for (size_t j = step.lo; j < step.hi; j++)
                *acc = fmaf(s[j], a->v[j * a->ld_kv + d], *acc);
        }
    }
}

static void transpose(float *y, size_t ld_y, const float *x, size_t ld_x, size_t m, size_t n)
{
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++)
            y[j * ld_y + i] = x[i * ld_x + j];
}

/* ---------------------------------------------------------------- log-probabilities */

static float sum_exp(const float *x, float max, size_t n)
{
    assert(n <= PHI_LSE_BLOCK);
    float lane[8] = {0};
    for (size_t i = 0; i < n; i++)
        lane[i % 8] = lane[i % 8] + phi_expf(x[i] - max);
    return reduce8(lane);
}

const struct phi_kernels phi_kernels_ref = {
    .name = "ref",
    .matmul_f32 = matmul_f32,
    .matmul_bf16 = matmul_bf16,
    .matmul_f16 = matmul_f16,
    .matmul_bf16_pairs = matmul_bf16_pairs,
    .quantize_row = phi_ref_quantize_row,
    .gelu_quantize = gelu_quantize,
    .silu_mul_quantize = silu_mul_quantize,
    .matmul_w8 = phi_ref_matmul_w8,
    .matmul_w4 = phi_ref_matmul_w4,
    .fit_w8 = fit_w8,
    .fit_w4 = fit_w4,
    .to_bf16 = to_bf16,
    .to_f16 = to_f16,
    .from_bf16 = from_bf16,
    .from_f16 = from_f16,
    .rms_norm = rms_norm,
    .layer_norm = layer_norm,
    .gelu_new = gelu_new,
    .silu_mul = silu_mul,
    .softmax_step = softmax_step,
    .weighted_sum_f32 = weighted_sum_f32,
    .weighted_sum_bf16 = weighted_sum_bf16,
    .weighted_sum_f16 = weighted_sum_f16,
    .attention_block = attention_block,
    .transpose = transpose,
    .sum_exp = sum_exp,
};
