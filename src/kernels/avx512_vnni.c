/* avx512_vnni.c: integer weights with VPDPBUSD, which adds four products of an unsigned and a signed
 * byte to a 32-bit sum without saturation. 8-bit weights enter as n + 128 (their sign bit
 * flipped), 4-bit ones as n + 8, as they are stored; the activation row's sums take what that adds out
 * again, and 32-bit arithmetic wraps, so nothing is lost on the way.
 *
 * With few tokens rows are read in place, one register holding one row's partial sums. With many,
 * the strip is laid out in a->scratch once: [four elements of k][16 rows][4 bytes], a register
 * holding four elements of sixteen rows, so that a sum needs no reduction. The other kernels of this
 * table are those of avx512.c. */
#include "kernels/avx512.h"
#include "kernels/x86_quant.h"

enum {
    STEP = 64,         /* bytes of a register */
    ROWS = 4,          /* of a tile that reads in place */
    ROWS_TOKENS = 4,   /* at most, of such a tile */
    W8_FEW_TOKENS = 8, /* up to here rows are read in place */
    W4_FEW_TOKENS = 2,
    TOKENS = 12, /* of a tile over the packed strip */
};

/* ---------------------------------------------------------------- loads */

/* STEP bytes at `at` of a row of n_bytes, zeros behind its end. */
PHI_INLINE __m512i row_step(const char *row, size_t at, size_t n_bytes)
{
    if (at + STEP <= n_bytes)
        return _mm512_loadu_si512(row + at);
    __mmask64 mask = at < n_bytes ? ~(__mmask64)0 >> (STEP - (n_bytes - at)) : 0;
    return _mm512_maskz_loadu_epi8(mask, row + at);
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

PHI_INLINE __m128 row_scales(const float *scales, size_t n)
{
    return _mm_maskz_loadu_ps((__mmask8)((1u << n) - 1), scales);
}

/* Names the bytes of the tile's next rows, as in x86_rows.h. */
PHI_INLINE void prefetch_rows(const char *const w[ROWS], size_t at, size_t ahead)
{
    PHI_UNROLL
    for (size_t r = 0; r < ROWS; r++)
        _mm_prefetch(w[r] + at + ahead, _MM_HINT_T1);
}

/* ---------------------------------------------------------------- rows in place */

/* The sums of four registers' sixteen lanes. */
PHI_INLINE __m128i reduce16x4(const __m512i v[ROWS])
{
    __m512i a = _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]),
                                 _mm512_unpackhi_epi32(v[0], v[1]));
    __m512i b = _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[3]),
                                 _mm512_unpackhi_epi32(v[2], v[3]));
    __m512i c = _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    __m256i d = _mm256_add_epi32(_mm512_castsi512_si256(c), _mm512_extracti64x4_epi64(c, 1));
    return _mm_add_epi32(_mm256_castsi256_si128(d), _mm256_extracti128_si256(d, 1));
}

PHI_INLINE void store_rows(const struct phi_quant_matmul *a, size_t row, size_t token, __m128 y)
{
    const size_t n = a->n_rows - row;
    if (a->x_scale)
        y = _mm_mul_ps(y, _mm_set1_ps(a->x_scale[token]));
    _mm_mask_storeu_ps(a->y + token * a->ld_y + row, (__mmask8)(n < ROWS ? (1u << n) - 1 : 15), y);
}

/* Rows from `row` on; those that do not exist repeat the last one. */
PHI_INLINE void tile_rows(const struct phi_quant_matmul *a, size_t row, const char *w[ROWS])
{
    PHI_UNROLL
    for (size_t r = 0; r < ROWS; r++) {
        size_t from = row + r < a->n_rows ? row + r : a->n_rows - 1;
        w[r] = (const char *)a->w + from * a->row_bytes;
    }
}

/* n <= ROWS_TOKENS is a constant where this is inlined. */
PHI_INLINE void w8_rows_tile(const struct phi_quant_matmul *a, size_t row, size_t token,
                             const size_t n)
{
    const char *w[ROWS];
    const int8_t *x = a->x + token * a->ld_x;
    __m512i acc[ROWS_TOKENS][ROWS];
    tile_rows(a, row, w);
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        PHI_UNROLL
        for (size_t r = 0; r < ROWS; r++)
            acc[t][r] = _mm512_setzero_si512();
    for (size_t k = 0; k < a->k; k += STEP) {
        prefetch_rows(w, k, ROWS * a->row_bytes);
        PHI_UNROLL
        for (size_t r = 0; r < ROWS; r++) {
            __m512i wv = unsigned_w8(row_step(w[r], k, a->k));
            PHI_UNROLL
            for (size_t t = 0; t < n; t++)
                acc[t][r] = _mm512_dpbusd_epi32(acc[t][r], wv,
                                                _mm512_load_si512(x + t * a->ld_x + k));
        }
    }
    const size_t n_rows = a->n_rows - row < ROWS ? a->n_rows - row : ROWS;
    __m128 scales = row_scales((const float *)a->w_scale + row, n_rows);
    PHI_UNROLL
    for (size_t t = 0; t < n; t++) {
        __m128i extra = _mm_set1_epi32(a->x_sums[(token + t) * a->ld_sums]);
        __m128i sums = _mm_add_epi32(reduce16x4(acc[t]), extra);
        store_rows(a, row, token + t, _mm_mul_ps(_mm_cvtepi32_ps(sums), scales));
    }
}

/* Four rows by one step of 128 elements: in quarter b of the result the sums of block b. */
PHI_INLINE __m512i w4_step(const char *const w[ROWS], size_t at, size_t n_bytes, const int8_t *x,
                           const int32_t *x_sums)
{
    __m512i even = _mm512_load_si512(x), odd = _mm512_load_si512(x + STEP), v[ROWS];
    PHI_UNROLL
    for (size_t r = 0; r < ROWS; r++) {
        __m512i bytes = row_step(w[r], at, n_bytes);
        v[r] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), low_nibbles(bytes), even);
        v[r] = _mm512_dpbusd_epi32(v[r], high_nibbles(bytes), odd);
    }
    __m512i a = _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]),
                                 _mm512_unpackhi_epi32(v[0], v[1]));
    __m512i b = _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[3]),
                                 _mm512_unpackhi_epi32(v[2], v[3]));
    __m512i c = _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    const __m512i quarters = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    __m512i sums = _mm512_castsi128_si512(_mm_loadu_si128((const void *)x_sums));
    return _mm512_add_epi32(c, _mm512_permutexvar_epi32(quarters, sums));
}

PHI_INLINE __m128i quarter(__m512i v, const int i)
{
    return i == 0   ? _mm512_castsi512_si128(v)
           : i == 1 ? _mm512_extracti32x4_epi32(v, 1)
           : i == 2 ? _mm512_extracti32x4_epi32(v, 2)
                    : _mm512_extracti32x4_epi32(v, 3);
}

/* Four rows and one token. Blocks in a group: 1 and 4 are constants where this is inlined. */
PHI_INLINE void w4_rows_tile(const struct phi_quant_matmul *a, size_t row, size_t token,
                             const size_t group_blocks)
{
    const char *w[ROWS];
    const int8_t *x = a->x + token * a->ld_x;
    const int32_t *x_sums = a->x_sums + token * a->ld_sums;
    const float *scale = packed_scales(a) + row;
    const size_t n_bytes = (a->k + 1) / 2, n_blocks = (a->k + 31) / 32;
    __m128 acc = _mm_setzero_ps();
    __m128i sum = _mm_setzero_si128();
    size_t in_group = 0;
    tile_rows(a, row, w);
    for (size_t block = 0; block < n_blocks; block += 4) {
        const size_t at = block * 16;
        prefetch_rows(w, at, ROWS * a->row_bytes);
        __m512i sums = w4_step(w, at, n_bytes, x + block * 32, x_sums + block);
        PHI_UNROLL
        for (int i = 0; i < 4; i++) {
            sum = _mm_add_epi32(sum, quarter(sums, i));
            if (++in_group == group_blocks || block + (size_t)i + 1 == n_blocks) {
                acc = _mm_fmadd_ps(_mm_cvtepi32_ps(sum), _mm_load_ps(scale), acc);
                scale += PHI_STRIP_ROWS;
                sum = _mm_setzero_si128();
                in_group = 0;
                if (block + (size_t)i + 1 == n_blocks)
                    break;
            }
        }
    }
    store_rows(a, row, token, acc);
}

static void w8_rows(const struct phi_quant_matmul *a)
{
    for (size_t row = 0; row < a->n_rows; row += ROWS) {
        size_t token = 0;
        for (; token + ROWS_TOKENS <= a->n_tokens; token += ROWS_TOKENS)
            w8_rows_tile(a, row, token, ROWS_TOKENS);
        for (; token + 2 <= a->n_tokens; token += 2)
            w8_rows_tile(a, row, token, 2);
        for (; token < a->n_tokens; token++)
            w8_rows_tile(a, row, token, 1);
    }
}

static void w4_rows(const struct phi_quant_matmul *a)
{
    for (size_t row = 0; row < a->n_rows; row += ROWS)
        for (size_t token = 0; token < a->n_tokens; token++)
            switch (a->group) {
            case 32:
                w4_rows_tile(a, row, token, 1);
                break;
            case 128:
                w4_rows_tile(a, row, token, 4);
                break;
            default:
                w4_rows_tile(a, row, token, (a->group + 31) / PHI_QUANT_BLOCK);
                break;
            }
}

/* ---------------------------------------------------------------- the strip */

/* Register i of the result holds the 32-bit words i of the sixteen rows. */
PHI_INLINE void transpose16x16(__m512i v[16])
{
    __m512i t[16];
    PHI_UNROLL
    for (int i = 0; i < 8; i++) {
        t[2 * i] = _mm512_unpacklo_epi32(v[2 * i], v[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_epi32(v[2 * i], v[2 * i + 1]);
    }
    /* v[4 i + j]: word j of the four quarters, of rows 4 i .. 4 i + 3 */
    PHI_UNROLL
    for (int i = 0; i < 4; i++) {
        v[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
        v[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
        v[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
        v[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
    }
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

PHI_INLINE void store16(char *to, const __m512i v[16])
{
    PHI_UNROLL
    for (int i = 0; i < 16; i++)
        _mm512_store_si512(to + i * STEP, v[i]);
}

PHI_INLINE const char *strip_row(const struct phi_quant_matmul *a, size_t row)
{
    return (const char *)a->w + (row < a->n_rows ? row : a->n_rows - 1) * a->row_bytes;
}

static void pack16_w8(const struct phi_quant_matmul *a)
{
    char *to = a->scratch;
    for (size_t at = 0; at < a->k; at += STEP, to += 16 * STEP) {
        __m512i v[16];
        PHI_UNROLL
        for (size_t r = 0; r < 16; r++)
            v[r] = unsigned_w8(row_step(strip_row(a, r), at, a->k));
        transpose16x16(v);
        store16(to, v);
    }
}

static void pack16_w4(const struct phi_quant_matmul *a)
{
    const size_t n_bytes = (a->k + 1) / 2;
    char *to = a->scratch;
    for (size_t at = 0; at < n_bytes; at += STEP, to += 32 * STEP) {
        __m512i v[16];
        PHI_UNROLL
        for (size_t r = 0; r < 16; r++)
            v[r] = low_nibbles(row_step(strip_row(a, r), at, n_bytes));
        transpose16x16(v);
        store16(to, v);
        PHI_UNROLL
        for (size_t r = 0; r < 16; r++)
            v[r] = high_nibbles(row_step(strip_row(a, r), at, n_bytes));
        transpose16x16(v);
        store16(to + 16 * STEP, v);
    }
}

PHI_INLINE __m512i broadcast4(const int8_t *x)
{
    int32_t word;
    memcpy(&word, x, sizeof word);
    return _mm512_set1_epi32(word);
}

PHI_INLINE __mmask16 strip_mask(const struct phi_quant_matmul *a)
{
    return (__mmask16)((1u << a->n_rows) - 1);
}

PHI_INLINE void store_strip(const struct phi_quant_matmul *a, size_t token, __m512 y)
{
    if (a->x_scale)
        y = _mm512_mul_ps(y, _mm512_set1_ps(a->x_scale[token]));
    _mm512_mask_storeu_ps(a->y + token * a->ld_y, strip_mask(a), y);
}

/* n_steps registers of weights at w, times the n tokens at x. n <= TOKENS is a constant where this is
 * inlined, and the tokens' addresses are few registers and the addressing modes' factors. */
PHI_INLINE void multiply(__m512i acc[TOKENS], const char *w, const int8_t *x, size_t ld_x,
                         const size_t n_steps, const size_t n)
{
    for (size_t i = 0; i < n_steps; i++, w += STEP, x += 4) {
        const __m512i wv = _mm512_load_si512(w);
        PHI_UNROLL
        for (size_t t = 0; t < n; t++)
            acc[t] = _mm512_dpbusd_epi32(acc[t], wv, broadcast4(x + t * ld_x));
    }
}

PHI_INLINE void w8_strip_tile(const struct phi_quant_matmul *a, size_t token, const size_t n)
{
    __m512i acc[TOKENS];
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        acc[t] = _mm512_set1_epi32(a->x_sums[(token + t) * a->ld_sums]);
    multiply(acc, a->scratch, a->x + token * a->ld_x, a->ld_x, (a->k + 3) / 4, n);
    const __m512 scales = _mm512_maskz_loadu_ps(strip_mask(a), a->w_scale);
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        store_strip(a, token + t, _mm512_mul_ps(_mm512_cvtepi32_ps(acc[t]), scales));
}

PHI_INLINE void w4_strip_tile(const struct phi_quant_matmul *a, size_t token, const size_t n)
{
    const char *w = a->scratch;
    const int8_t *x = a->x + token * a->ld_x;
    const int32_t *x_sums = a->x_sums + token * a->ld_sums;
    const float *scale = packed_scales(a);
    __m512 acc[TOKENS];
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        acc[t] = _mm512_setzero_ps();
    for (size_t begin = 0; begin < a->k; begin += a->group, scale += PHI_STRIP_ROWS) {
        const size_t end = begin + a->group < a->k ? begin + a->group : a->k;
        __m512i sum[TOKENS];
        PHI_UNROLL
        for (size_t t = 0; t < n; t++)
            sum[t] = _mm512_set1_epi32(x_sums[t * a->ld_sums + begin / PHI_QUANT_BLOCK]);
        for (size_t k = begin;;) {
            const size_t at = phi_quant_place(k, PHI_W4A8);
            multiply(sum, w + 16 * at, x + at, a->ld_x, 4, n);
            multiply(sum, w + 16 * (at + 64), x + at + 64, a->ld_x, 4, n);
            k += PHI_QUANT_BLOCK;
            if (k >= end)
                break;
            PHI_UNROLL
            for (size_t t = 0; t < n; t++)
                sum[t] = _mm512_add_epi32(
                    sum[t], _mm512_set1_epi32(x_sums[t * a->ld_sums + k / PHI_QUANT_BLOCK]));
        }
        const __m512 scales = _mm512_load_ps(scale);
        PHI_UNROLL
        for (size_t t = 0; t < n; t++)
            acc[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[t]), scales, acc[t]);
    }
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        store_strip(a, token + t, acc[t]);
}

static void w8_strip(const struct phi_quant_matmul *a)
{
    pack16_w8(a);
    size_t token = 0;
    for (; token + TOKENS <= a->n_tokens; token += TOKENS)
        w8_strip_tile(a, token, TOKENS);
    for (; token + 4 <= a->n_tokens; token += 4)
        w8_strip_tile(a, token, 4);
    for (; token < a->n_tokens; token++)
        w8_strip_tile(a, token, 1);
}

static void w4_strip(const struct phi_quant_matmul *a)
{
    pack16_w4(a);
    size_t token = 0;
    for (; token + TOKENS <= a->n_tokens; token += TOKENS)
        w4_strip_tile(a, token, TOKENS);
    for (; token + 4 <= a->n_tokens; token += 4)
        w4_strip_tile(a, token, 4);
    for (; token < a->n_tokens; token++)
        w4_strip_tile(a, token, 1);
}

/* ---------------------------------------------------------------- the table */

void phi_vnni_matmul_w8(const struct phi_quant_matmul *a)
{
    assert(a->n_rows <= PHI_STRIP_ROWS && a->k <= PHI_QUANT_MAX_K);
    if (a->n_tokens <= W8_FEW_TOKENS)
        w8_rows(a);
    else
        w8_strip(a);
}

void phi_vnni_matmul_w4(const struct phi_quant_matmul *a)
{
    assert(a->n_rows <= PHI_STRIP_ROWS && a->k <= PHI_QUANT_MAX_K);
    pack_scales(a);
    if (a->n_tokens <= W4_FEW_TOKENS)
        w4_rows(a);
    else
        w4_strip(a);
}

const struct phi_kernels phi_kernels_avx512_vnni = {
    .name = "avx512_vnni",
    .features = PHI_AVX512_FEATURES | PHI_CPU_AVX512_VNNI,
    .matmul_f32 = phi_avx512_matmul_f32,
    .matmul_bf16 = phi_avx512_matmul_bf16,
    .matmul_f16 = phi_avx512_matmul_f16,
    .matmul_bf16_pairs = phi_avx512_matmul_bf16_pairs,
    .quantize_row = lanes_quantize_row,
    .matmul_w8 = phi_vnni_matmul_w8,
    .matmul_w4 = phi_vnni_matmul_w4,
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
    .sum_exp = lanes_sum_exp,
};
