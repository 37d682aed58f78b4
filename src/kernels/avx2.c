/* avx2.c: the kernels for AVX2, FMA and F16C. A register holds the eight lanes of one row. Norms,
 * activations, softmax and conversions are in x86_lanes.h, the matrix product for few tokens is in
 * x86_rows.h, integer weights are in x86_maddubs.h, attention is in x86_attention.h and x86_sum.h; here are
 * the matrix product for many tokens and the table. */
#include "kernels/fit_rows.h"
#include "kernels/x86_attention.h"
#include "kernels/x86_maddubs.h"
#include "kernels/x86_pack.h"
#include "kernels/x86_rows.h"
#include "kernels/x86_sum.h"

/* ---------------------------------------------------------------- matrix products */

enum {
    BLOCK_ROWS = 4,
    BLOCK_TOKENS = 3, /* 12 sums and 3 activations leave one of sixteen registers for the weights */
    FEW_TOKENS = 8,   /* up to here rows are read in place: widening a strip would cost more */
};

/* The eight activations at x that belong to plane `plane`. */
typedef __m256 (*activation_fn)(const void *x, int plane);

struct strip_form {
    struct pack_form pack;
    activation_fn activation;
    size_t x_bytes; /* of one element */
};

PHI_INLINE __m256 activation_f32(const void *x, int plane)
{
    (void)plane;
    return load8_f32(x);
}

PHI_INLINE __m256 activation_pairs(const void *x, int plane)
{
    __m256i pairs = _mm256_loadu_si256(x);
    return plane == 0 ? odd_elements(pairs) : even_elements(pairs);
}

#define STRIP_F32 ((struct strip_form){{pack_f32, 1, 8, 4, BLOCK_ROWS}, activation_f32, 4})
#define STRIP_BF16 ((struct strip_form){{pack_bf16, 1, 8, 2, BLOCK_ROWS}, activation_f32, 4})
#define STRIP_F16 ((struct strip_form){{pack_f16, 1, 8, 2, BLOCK_ROWS}, activation_f32, 4})
#define STRIP_PAIRS                                                                                \
    ((struct strip_form){{pack_split_pairs, 2, 16, 2, BLOCK_ROWS}, activation_pairs, 2})

PHI_INLINE void strip_step(__m256 acc[][BLOCK_ROWS], const char **w, const char *const *x,
                           const struct strip_form form, const size_t n_tokens)
{
    PHI_UNROLL
    for (int plane = 0; plane < form.pack.n_planes; plane++) {
        __m256 xv[BLOCK_TOKENS];
        PHI_UNROLL
        for (size_t t = 0; t < n_tokens; t++)
            xv[t] = form.activation(x[t], plane);
        PHI_UNROLL
        for (size_t r = 0; r < BLOCK_ROWS; r++, *w += PLANE_BYTES) {
            __m256 wv = load8_f32(*w);
            PHI_UNROLL
            for (size_t t = 0; t < n_tokens; t++)
                acc[t][r] = _mm256_fmadd_ps(wv, xv[t], acc[t][r]);
        }
    }
}

/* n_tokens <= BLOCK_TOKENS is a constant where this is inlined. */
PHI_INLINE void strip_tile(const struct phi_matmul *a, size_t row, size_t token,
                           const struct strip_form form, const size_t n_tokens)
{
    const char *w = (const char *)a->scratch + row / BLOCK_ROWS * block_bytes(a->k, form.pack);
    const char *x[BLOCK_TOKENS];
    __m256 acc[BLOCK_TOKENS][BLOCK_ROWS];
    PHI_UNROLL
    for (size_t t = 0; t < n_tokens; t++) {
        x[t] = (const char *)a->x + (token + t) * a->ld_x * form.x_bytes;
        PHI_UNROLL
        for (size_t r = 0; r < BLOCK_ROWS; r++)
            acc[t][r] = _mm256_setzero_ps();
    }

    unsigned char rest[BLOCK_TOKENS][32];
    for (size_t k = 0; k < a->k; k += form.pack.step_k) {
        if (a->k - k < form.pack.step_k)
            for (size_t t = 0; t < n_tokens; t++) {
                memset(rest[t], 0, sizeof rest[t]);
                x[t] = memcpy(rest[t], x[t], (a->k - k) * form.x_bytes);
            }
        strip_step(acc, &w, x, form, n_tokens);
        PHI_UNROLL
        for (size_t t = 0; t < n_tokens; t++)
            x[t] += form.pack.step_k * form.x_bytes;
    }

    const size_t n_rows = a->n_rows - row < BLOCK_ROWS ? a->n_rows - row : BLOCK_ROWS;
    PHI_UNROLL
    for (size_t t = 0; t < n_tokens; t++) {
        float sums[BLOCK_ROWS], *y = a->y + (token + t) * a->ld_y + row;
        _mm_storeu_ps(n_rows == BLOCK_ROWS ? y : sums,
                      reduce8x4(acc[t][0], acc[t][1], acc[t][2], acc[t][3]));
        for (size_t r = 0; n_rows < BLOCK_ROWS && r < n_rows; r++)
            y[r] = sums[r];
    }
}

PHI_INLINE void strip_matmul(const struct phi_matmul *a, const struct strip_form form)
{
    pack_strip(a, form.pack);
    size_t token = 0;
    for (; token + BLOCK_TOKENS <= a->n_tokens; token += BLOCK_TOKENS)
        for (size_t row = 0; row < a->n_rows; row += BLOCK_ROWS)
            strip_tile(a, row, token, form, BLOCK_TOKENS);
    for (; token + 2 <= a->n_tokens; token += 2)
        for (size_t row = 0; row < a->n_rows; row += BLOCK_ROWS)
            strip_tile(a, row, token, form, 2);
    for (; token < a->n_tokens; token++)
        for (size_t row = 0; row < a->n_rows; row += BLOCK_ROWS)
            strip_tile(a, row, token, form, 1);
}

static void matmul_f32(const struct phi_matmul *a)
{
    if (a->n_tokens <= FEW_TOKENS)
        rows_matmul(a, DOT_F32, BLOCK_TOKENS);
    else
        strip_matmul(a, STRIP_F32);
}

static void matmul_bf16(const struct phi_matmul *a)
{
    if (a->n_tokens <= FEW_TOKENS)
        rows_matmul(a, DOT_BF16, BLOCK_TOKENS);
    else
        strip_matmul(a, STRIP_BF16);
}

static void matmul_f16(const struct phi_matmul *a)
{
    if (a->n_tokens <= FEW_TOKENS)
        rows_matmul(a, DOT_F16, BLOCK_TOKENS);
    else
        strip_matmul(a, STRIP_F16);
}

static void matmul_bf16_pairs(const struct phi_matmul *a)
{
    if (a->n_tokens <= FEW_TOKENS)
        rows_matmul(a, DOT_PAIRS, BLOCK_TOKENS);
    else
        strip_matmul(a, STRIP_PAIRS);
}

const struct phi_kernels phi_kernels_avx2 = {
    .name = "avx2",
    .features = PHI_CPU_AVX2,
    .matmul_f32 = matmul_f32,
    .matmul_bf16 = matmul_bf16,
    .matmul_f16 = matmul_f16,
    .matmul_bf16_pairs = matmul_bf16_pairs,
    .quantize_row = lanes_quantize_row,
    .matmul_w8 = maddubs_matmul_w8,
    .matmul_w4 = maddubs_matmul_w4,
    .fit_w8 = fit_w8,
    .fit_w4 = fit_w4,
    .to_bf16 = lanes_to_bf16,
    .to_f16 = lanes_to_f16,
    .from_bf16 = lanes_from_bf16,
    .from_f16 = lanes_from_f16,
    .rms_norm = lanes_rms_norm,
    .layer_norm = lanes_layer_norm,
    .gelu_new = lanes_gelu_new,
    .silu_mul = lanes_silu_mul,
    .softmax_step = lanes_softmax_step,
    .weighted_sum_f32 = weighted_sum_f32,
    .weighted_sum_bf16 = weighted_sum_bf16,
    .weighted_sum_f16 = weighted_sum_f16,
    .attention_block = attention_block,
    .transpose = lanes_transpose,
    .sum_exp = lanes_sum_exp,
};
