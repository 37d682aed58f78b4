/* avx2.c: the kernels for AVX2, FMA and F16C. A register holds the eight lanes of one row. Norms,
 * activations, softmax and conversions are in x86_lanes.h, the tiles of the matrix product in
 * x86_rows.h; here are the weighted sum and the table. */
#include "kernels/x86_rows.h"

/* ---------------------------------------------------------------- matrix products */

enum { TOKENS = 3 }; /* 12 sums and 3 activations leave one of sixteen registers for the weights */

static void matmul_f32(const struct phi_matmul *a)
{
    rows_matmul(a, DOT_F32, TOKENS);
}

static void matmul_bf16(const struct phi_matmul *a)
{
    rows_matmul(a, DOT_BF16, TOKENS);
}

static void matmul_f16(const struct phi_matmul *a)
{
    rows_matmul(a, DOT_F16, TOKENS);
}

static void matmul_bf16_pairs(const struct phi_matmul *a)
{
    rows_matmul(a, DOT_PAIRS, TOKENS);
}

/* ---------------------------------------------------------------- weighted sum */

/* Keys j0 <= j < j1 for n_rows rows from `row` on and n_columns registers from column d on; both
 * counts are constants where this is inlined. */
PHI_INLINE void sum_tile(const struct phi_weighted_sum *a, size_t row, size_t d, size_t j0, size_t j1,
                         load8_fn load, size_t v_bytes, const size_t n_rows, const size_t n_columns)
{
    __m256 acc[4][8];
    float *to = a->acc + row * a->ld_acc + d;
    const float *p = a->p + row * a->ld_p;
    PHI_UNROLL
    for (size_t r = 0; r < n_rows; r++)
        PHI_UNROLL
        for (size_t c = 0; c < n_columns; c++)
            acc[r][c] = _mm256_loadu_ps(to + r * a->ld_acc + 8 * c);
    for (size_t j = j0; j < j1; j++) {
        const char *v = (const char *)a->v + (j * a->ld_v + d) * v_bytes;
        PHI_UNROLL
        for (size_t c = 0; c < n_columns; c++) {
            __m256 values = load(v + 8 * c * v_bytes);
            PHI_UNROLL
            for (size_t r = 0; r < n_rows; r++)
                acc[r][c] = _mm256_fmadd_ps(_mm256_broadcast_ss(p + r * a->ld_p + j), values, acc[r][c]);
        }
    }
    PHI_UNROLL
    for (size_t r = 0; r < n_rows; r++)
        PHI_UNROLL
        for (size_t c = 0; c < n_columns; c++)
            _mm256_storeu_ps(to + r * a->ld_acc + 8 * c, acc[r][c]);
}

/* All columns of one row, or of `n_rows` = 4 rows. */
PHI_INLINE void sum_rows(const struct phi_weighted_sum *a, size_t row, size_t j0, size_t j1,
                         load8_fn load, size_t v_bytes, const size_t n_rows)
{
    if (j0 >= j1)
        return;
    size_t d = 0;
    if (n_rows == 1)
        for (; d + 64 <= a->d; d += 64)
            sum_tile(a, row, d, j0, j1, load, v_bytes, 1, 8);
    for (; d + 16 <= a->d; d += 16)
        sum_tile(a, row, d, j0, j1, load, v_bytes, n_rows, 2);
    if (d < a->d)
        sum_tile(a, row, d, j0, j1, load, v_bytes, n_rows, 1);
}

/* Four rows together over the keys that all of them see, each alone over the rest. */
PHI_INLINE void weighted_sum(const struct phi_weighted_sum *a, load8_fn load, size_t v_bytes)
{
    for (size_t row = 0, n; row < a->n_rows; row += n) {
        n = row + 4 <= a->n_rows ? 4 : 1;
        size_t lo = 0, hi = SIZE_MAX;
        for (size_t r = row; r < row + n; r++) {
            lo = a->lo[r] > lo ? a->lo[r] : lo;
            hi = a->hi[r] < hi ? a->hi[r] : hi;
            float *acc = a->acc + r * a->ld_acc;
            for (size_t d = 0; a->c && d < a->d; d += 8)
                _mm256_storeu_ps(acc + d, _mm256_mul_ps(_mm256_loadu_ps(acc + d), _mm256_set1_ps(a->c[r])));
        }
        if (n == 1 || lo >= hi) {
            for (size_t r = row; r < row + n; r++)
                sum_rows(a, r, a->lo[r], a->hi[r], load, v_bytes, 1);
            continue;
        }
        for (size_t r = row; r < row + n; r++)
            sum_rows(a, r, a->lo[r], lo, load, v_bytes, 1);
        sum_rows(a, row, lo, hi, load, v_bytes, 4);
        for (size_t r = row; r < row + n; r++)
            sum_rows(a, r, hi, a->hi[r], load, v_bytes, 1);
    }
}

static void weighted_sum_f32(const struct phi_weighted_sum *a)
{
    weighted_sum(a, load8_f32, 4);
}

static void weighted_sum_bf16(const struct phi_weighted_sum *a)
{
    weighted_sum(a, load8_bf16, 2);
}

static void weighted_sum_f16(const struct phi_weighted_sum *a)
{
    weighted_sum(a, load8_f16, 2);
}

const struct phi_kernels phi_kernels_avx2 = {
    .name = "avx2",
    .features = PHI_CPU_AVX2,
    .matmul_f32 = matmul_f32,
    .matmul_bf16 = matmul_bf16,
    .matmul_f16 = matmul_f16,
    .matmul_bf16_pairs = matmul_bf16_pairs,
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
    .sum_exp = lanes_sum_exp,
};
