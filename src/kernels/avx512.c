/* avx512.c: the kernels for AVX-512 F, BW, DQ and VL. With many tokens a register holds the
 * lanes of two rows (x86_strip.h); with few, memory sets the speed and the 256-bit code of
 * x86_rows.h does as well. So do the kernels of x86_lanes.h and x86_maddubs.h. The weighted sum has no
 * lanes and uses whole registers. */
#include "kernels/avx512.h"
#include "kernels/fit_rows.h"
#include "kernels/x86_attention.h"
#include "kernels/x86_maddubs.h"
#include "kernels/x86_rows.h"
#include "kernels/x86_strip.h"

/* ---------------------------------------------------------------- matrix products */

enum { FEW_TOKENS = 8 }; /* up to here rows are read in place: widening a strip would cost more */

PHI_INLINE __m512 activation_f32(const void *x, int plane)
{
    (void)plane;
    return _mm512_broadcast_f32x8(_mm256_loadu_ps(x));
}

PHI_INLINE __m512 activation_pairs(const void *x, int plane)
{
    __m512i pairs = _mm512_broadcast_i32x8(_mm256_loadu_si256(x));
    return _mm512_castsi512_ps(plane == 0
                                   ? _mm512_and_si512(pairs, _mm512_set1_epi32((int)0xFFFF0000))
                                   : _mm512_slli_epi32(pairs, 16));
}

PHI_INLINE __m512 multiply(__m512 acc, __m512 w, __m512 x)
{
    return _mm512_fmadd_ps(w, x, acc);
}

#define STRIP_F32                                                                                  \
    ((struct strip_form){{pack_f32, 1, 8, 4, BLOCK_ROWS}, activation_f32, multiply, 4})
#define STRIP_BF16                                                                                 \
    ((struct strip_form){{pack_bf16, 1, 8, 2, BLOCK_ROWS}, activation_f32, multiply, 4})
#define STRIP_F16                                                                                  \
    ((struct strip_form){{pack_f16, 1, 8, 2, BLOCK_ROWS}, activation_f32, multiply, 4})
#define STRIP_PAIRS                                                                                \
    ((struct strip_form){{pack_split_pairs, 2, 16, 2, BLOCK_ROWS}, activation_pairs, multiply, 2})

void phi_avx512_matmul_f32(const struct phi_matmul *a)
{
    if (a->n_tokens <= FEW_TOKENS)
        rows_matmul(a, DOT_F32, TILE_TOKENS);
    else
        strip_matmul(a, STRIP_F32);
}

void phi_avx512_matmul_bf16(const struct phi_matmul *a)
{
    if (a->n_tokens <= FEW_TOKENS)
        rows_matmul(a, DOT_BF16, TILE_TOKENS);
    else
        strip_matmul(a, STRIP_BF16);
}

void phi_avx512_matmul_f16(const struct phi_matmul *a)
{
    if (a->n_tokens <= FEW_TOKENS)
        rows_matmul(a, DOT_F16, TILE_TOKENS);
    else
        strip_matmul(a, STRIP_F16);
}

void phi_avx512_matmul_bf16_pairs(const struct phi_matmul *a)
{
    if (a->n_tokens <= FEW_TOKENS)
        rows_matmul(a, DOT_PAIRS, TILE_TOKENS);
    else
        strip_matmul(a, STRIP_PAIRS);
}

/* ---------------------------------------------------------------- weighted sum */

enum { TILE_ROWS_V = 8 };

/* Sixteen elements at p, widened; where the mask has 0, nothing is read and the element is +0. */
typedef __m512 (*load16_fn)(__mmask16 mask, const void *p);

PHI_INLINE __m512 load16_f32(__mmask16 mask, const void *p)
{
    return _mm512_maskz_loadu_ps(mask, p);
}

PHI_INLINE __m512 load16_bf16(__mmask16 mask, const void *p)
{
    __m512i words = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
}

PHI_INLINE __m512 load16_f16(__mmask16 mask, const void *p)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, p));
}

/* Keys j0 <= j < j1 for n_rows rows from `row` on and n_columns registers from column d on; both
 * counts are constants where this is inlined. The mask is of the elements in each register. */
PHI_INLINE void sum_tile(const struct phi_weighted_sum *a, size_t row, size_t d, __mmask16 mask,
                         size_t j0, size_t j1, load16_fn load, size_t v_bytes, const size_t n_rows,
                         const size_t n_columns)
{
    __m512 acc[TILE_ROWS_V][4];
    float *to = a->acc + row * a->ld_acc + d;
    const float *p = a->p + row * a->ld_p;
    PHI_UNROLL
    for (size_t r = 0; r < n_rows; r++)
        PHI_UNROLL
        for (size_t c = 0; c < n_columns; c++)
            acc[r][c] = _mm512_maskz_loadu_ps(mask, to + r * a->ld_acc + 16 * c);
    for (size_t j = j0; j < j1; j++) {
        const char *v = (const char *)a->v + (j * a->ld_v + d) * v_bytes;
        __m512 values[4];
        PHI_UNROLL
        for (size_t c = 0; c < n_columns; c++)
            values[c] = load(mask, v + 16 * c * v_bytes);
        PHI_UNROLL
        for (size_t r = 0; r < n_rows; r++) {
            __m512 weight = _mm512_set1_ps(p[r * a->ld_p + j]);
            PHI_UNROLL
            for (size_t c = 0; c < n_columns; c++)
                acc[r][c] = _mm512_fmadd_ps(weight, values[c], acc[r][c]);
        }
    }
    PHI_UNROLL
    for (size_t r = 0; r < n_rows; r++)
        PHI_UNROLL
        for (size_t c = 0; c < n_columns; c++)
            _mm512_mask_storeu_ps(to + r * a->ld_acc + 16 * c, mask, acc[r][c]);
}

/* All columns of one row, or of `n_rows` = TILE_ROWS_V rows. */
PHI_INLINE void sum_rows(const struct phi_weighted_sum *a, size_t row, size_t j0, size_t j1,
                         load16_fn load, size_t v_bytes, const size_t n_rows)
{
    if (j0 >= j1)
        return;
    size_t d = 0;
    if (n_rows == 1)
        for (; d + 64 <= a->d; d += 64)
            sum_tile(a, row, d, 0xFFFF, j0, j1, load, v_bytes, 1, 4);
    for (; d + 32 <= a->d; d += 32)
        sum_tile(a, row, d, 0xFFFF, j0, j1, load, v_bytes, n_rows, 2);
    for (; d < a->d; d += 16)
        sum_tile(a, row, d, d + 16 <= a->d ? 0xFFFF : 0xFF, j0, j1, load, v_bytes, n_rows, 1);
}

/* The rows of a tile together over the keys that all of them see, each alone over the rest. */
PHI_INLINE void weighted_sum(const struct phi_weighted_sum *a, load16_fn load, size_t v_bytes)
{
    for (size_t row = 0, n; row < a->n_rows; row += n) {
        n = row + TILE_ROWS_V <= a->n_rows ? TILE_ROWS_V : 1;
        size_t lo = 0, hi = SIZE_MAX;
        for (size_t r = row; r < row + n; r++) {
            lo = (size_t)a->lo[r] > lo ? (size_t)a->lo[r] : lo;
            hi = (size_t)a->hi[r] < hi ? (size_t)a->hi[r] : hi;
            float *acc = a->acc + r * a->ld_acc;
            for (size_t d = 0; a->c && d < a->d; d += 8)
                _mm256_storeu_ps(acc + d,
                                 _mm256_mul_ps(_mm256_loadu_ps(acc + d), _mm256_set1_ps(a->c[r])));
        }
        if (n == 1 || lo >= hi) {
            for (size_t r = row; r < row + n; r++)
                sum_rows(a, r, (size_t)a->lo[r], (size_t)a->hi[r], load, v_bytes, 1);
            continue;
        }
        for (size_t r = row; r < row + n; r++)
            sum_rows(a, r, (size_t)a->lo[r], lo, load, v_bytes, 1);
        sum_rows(a, row, lo, hi, load, v_bytes, TILE_ROWS_V);
        for (size_t r = row; r < row + n; r++)
            sum_rows(a, r, hi, (size_t)a->hi[r], load, v_bytes, 1);
    }
}

void phi_avx512_weighted_sum_f32(const struct phi_weighted_sum *a)
{
    weighted_sum(a, load16_f32, 4);
}

void phi_avx512_weighted_sum_bf16(const struct phi_weighted_sum *a)
{
    weighted_sum(a, load16_bf16, 2);
}

void phi_avx512_weighted_sum_f16(const struct phi_weighted_sum *a)
{
    weighted_sum(a, load16_f16, 2);
}

void phi_avx512_attention_block(const struct phi_attention_block *a)
{
    attention_block(a);
}

const struct phi_kernels phi_kernels_avx512 = {
    .name = "avx512",
    .features = PHI_AVX512_FEATURES,
    .matmul_f32 = phi_avx512_matmul_f32,
    .matmul_bf16 = phi_avx512_matmul_bf16,
    .matmul_f16 = phi_avx512_matmul_f16,
    .matmul_bf16_pairs = phi_avx512_matmul_bf16_pairs,
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
    .weighted_sum_f32 = phi_avx512_weighted_sum_f32,
    .weighted_sum_bf16 = phi_avx512_weighted_sum_bf16,
    .weighted_sum_f16 = phi_avx512_weighted_sum_f16,
    .attention_block = phi_avx512_attention_block,
    .transpose = lanes_transpose,
    .sum_exp = lanes_sum_exp,
};
