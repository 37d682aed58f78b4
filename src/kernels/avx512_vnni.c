/* avx512_vnni.c: integer weights with VPDPBUSD, which adds four products of an unsigned and a
 * signed byte to a 32-bit sum without saturation. 8-bit weights enter as n + 128 (their sign bit
 * flipped), 4-bit ones as n + 8, as they are stored; the activation row's sums take what that adds
 * out again, and 32-bit arithmetic wraps, so nothing is lost on the way.
 *
 * With few tokens rows are read in place, one register holding one row's partial sums. With many,
 * the strip is laid out in a->scratch once: [four elements of k][16 rows][4 bytes], a register
 * holding four elements of sixteen rows, so that a sum needs no reduction. The other kernels of
 * this table are those of avx512.c. */
#include "kernels/avx512.h"
#include "kernels/fit_rows.h"
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
    __m512i a =
        _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
    __m512i b =
        _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
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

/* `load` is row_step or, where a whole step is there, whole_step. */
typedef __m512i (*load_step_fn)(const char *row, size_t at, size_t n_bytes);

PHI_INLINE __m512i whole_step(const char *row, size_t at, size_t n_bytes)
{
    (void)n_bytes;
    return _mm512_loadu_si512(row + at);
}

PHI_INLINE void w8_step(__m512i acc[ROWS_TOKENS][ROWS], const char *const w[ROWS], size_t k,
                        size_t k_end, const int8_t *x, size_t ld_x, load_step_fn load,
                        const size_t n)
{
    __m512i xv[ROWS_TOKENS];
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        xv[t] = _mm512_load_si512(x + t * ld_x + k);
    PHI_UNROLL
    for (size_t r = 0; r < ROWS; r++) {
        __m512i wv = unsigned_w8(load(w[r], k, k_end));
        PHI_UNROLL
        for (size_t t = 0; t < n; t++)
            acc[t][r] = dot(acc[t][r], wv, xv[t]);
    }
}

/* n <= ROWS_TOKENS is a constant where this is inlined. */
PHI_INLINE void w8_rows_tile(const struct phi_quant_matmul *a, size_t row, size_t token,
                             const size_t n)
{
    const char *w[ROWS];
    const int8_t *x = a->x + token * a->ld_x;
    __m512i acc[ROWS_TOKENS][ROWS];
    size_t k = 0;
    tile_rows(a, row, w);
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        PHI_UNROLL
    for (size_t r = 0; r < ROWS; r++)
        acc[t][r] = _mm512_setzero_si512();
    for (; k + STEP <= a->k; k += STEP) {
        prefetch_rows(w, k, ROWS * a->row_bytes);
        w8_step(acc, w, k, a->k, x, a->ld_x, whole_step, n);
    }
    if (k < a->k)
        w8_step(acc, w, k, a->k, x, a->ld_x, row_step, n);
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
                           const int32_t *x_sums, load_step_fn load)
{
    __m512i even = _mm512_load_si512(x), odd = _mm512_load_si512(x + STEP), v[ROWS];
    PHI_UNROLL
    for (size_t r = 0; r < ROWS; r++) {
        __m512i bytes = load(w[r], at, n_bytes);
        v[r] = dot(_mm512_setzero_si512(), low_nibbles(bytes), even);
        v[r] = dot(v[r], high_nibbles(bytes), odd);
    }
    __m512i a =
        _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
    __m512i b =
        _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
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

/* The sums of groups become floats: blocks are taken in one by one, or by fours where groups are
 * made of those. */
struct w4_groups {
    const float *scale; /* of the group at hand, [PHI_STRIP_ROWS] apart */
    __m128 acc;
    __m128i sum;
    size_t n_blocks; /* in sum */
};

PHI_INLINE void end_group(struct w4_groups *g)
{
    g->acc = _mm_fmadd_ps(_mm_cvtepi32_ps(g->sum), _mm_load_ps(g->scale), g->acc);
    g->scale += PHI_STRIP_ROWS;
    g->sum = _mm_setzero_si128();
    g->n_blocks = 0;
}

/* The first n blocks of a step. */
PHI_INLINE void add_blocks(struct w4_groups *g, __m512i sums, size_t n, const size_t group_blocks)
{
    PHI_UNROLL
    for (int i = 0; i < 4; i++) {
        if ((size_t)i == n)
            break;
        g->sum = _mm_add_epi32(g->sum, quarter(sums, i));
        if (++g->n_blocks == group_blocks)
            end_group(g);
    }
}

PHI_INLINE void add_step(struct w4_groups *g, __m512i sums, const size_t group_blocks)
{
    if (group_blocks % 4 != 0) {
        add_blocks(g, sums, 4, group_blocks);
        return;
    }
    __m256i half =
        _mm256_add_epi32(_mm512_castsi512_si256(sums), _mm512_extracti64x4_epi64(sums, 1));
    g->sum = _mm_add_epi32(
        g->sum, _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)));
    g->n_blocks += 4;
    if (g->n_blocks == group_blocks)
        end_group(g);
}

/* Four rows and one token. group_blocks may be a constant where this is inlined. */
PHI_INLINE void w4_rows_tile(const struct phi_quant_matmul *a, size_t row, size_t token,
                             const size_t group_blocks)
{
    const char *w[ROWS];
    const int8_t *x = a->x + token * a->ld_x;
    const int32_t *x_sums = a->x_sums + token * a->ld_sums;
    const size_t n_bytes = (a->k + 1) / 2, n_blocks = (a->k + 31) / 32;
    struct w4_groups g = {packed_scales(a) + row, _mm_setzero_ps(), _mm_setzero_si128(), 0};
    size_t block = 0;
    tile_rows(a, row, w);
    for (; block * 16 + STEP <= n_bytes; block += 4) {
        const size_t at = block * 16;
        prefetch_rows(w, at, PHI_STRIP_ROWS * a->row_bytes); /* short rows: further ahead */
        __m512i sums = w4_step(w, at, n_bytes, x + block * 32, x_sums + block, whole_step);
        add_step(&g, sums, group_blocks);
    }
    if (block < n_blocks) {
        __m512i sums = w4_step(w, block * 16, n_bytes, x + block * 32, x_sums + block, row_step);
        add_blocks(&g, sums, n_blocks - block, group_blocks);
    }
    if (g.n_blocks > 0) /* one group of all columns, whose last block may be a part of one */
        end_group(&g);
    store_rows(a, row, token, g.acc);
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

/* Sixteen scales of a row from group g on, of which n exist. */
PHI_INLINE __m512i load_scales16(const char *row, size_t g, size_t n, enum phi_dtype dtype)
{
    const __mmask16 mask = (__mmask16)(n < 16 ? (1u << n) - 1 : 0xFFFF);
    if (dtype == PHI_FLOAT32)
        return _mm512_maskz_loadu_epi32(mask, row + 4 * g);
    __m256i halves = _mm256_maskz_loadu_epi16(mask, row + 2 * g);
    return _mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16);
}

/* As pack_scales, sixteen groups at a time. Rows that do not exist repeat the last one. */
static void pack_scales16(const struct phi_quant_matmul *a)
{
    const size_t n_groups = quant_n_groups(a), bytes = phi_dtype_bytes(a->scale_dtype);
    for (size_t g = 0; g < n_groups; g += 16) {
        float *to = packed_scales(a) + g * PHI_STRIP_ROWS;
        const char *row = a->w_scale;
        __m512i v[16];
        PHI_UNROLL
        for (size_t r = 0; r < 16; r++) {
            v[r] = load_scales16(row, g, n_groups - g, a->scale_dtype);
            _mm_prefetch(row + (g + 16 * a->ld_scale) * bytes, _MM_HINT_T1);
            row += r + 1 < a->n_rows ? a->ld_scale * bytes : 0;
        }
        transpose16x16(v);
        for (size_t i = 0; i < 16 && g + i < n_groups; i++)
            _mm512_store_ps(to + i * PHI_STRIP_ROWS, _mm512_castsi512_ps(v[i]));
    }
}

/* What a byte of a row becomes in the strip. */
typedef __m512i (*unpack_fn)(__m512i bytes);

/* One step of sixteen rows. Those that do not exist repeat the last one; names the next strip's
 * bytes, as in x86_rows.h. */
PHI_INLINE void pack_step(const struct phi_quant_matmul *a, size_t at, size_t n_bytes,
                          unpack_fn unpack, load_step_fn load, char *to)
{
    const char *w = a->w;
    __m512i v[16];
    PHI_UNROLL
    for (size_t r = 0; r < 16; r++) {
        v[r] = unpack(load(w, at, n_bytes));
        _mm_prefetch(w + at + 16 * a->row_bytes, _MM_HINT_T1);
        w += r + 1 < a->n_rows ? a->row_bytes : 0;
    }
    transpose16x16(v);
    PHI_UNROLL
    for (int i = 0; i < 16; i++)
        _mm512_store_si512(to + i * STEP, v[i]);
}

static void pack16_w8(const struct phi_quant_matmul *a)
{
    char *to = a->scratch;
    size_t at = 0;
    for (; at + STEP <= a->k; at += STEP, to += 16 * STEP)
        pack_step(a, at, a->k, unsigned_w8, whole_step, to);
    if (at < a->k)
        pack_step(a, at, a->k, unsigned_w8, row_step, to);
}

static void pack16_w4(const struct phi_quant_matmul *a)
{
    const size_t n_bytes = (a->k + 1) / 2;
    char *to = a->scratch;
    size_t at = 0;
    for (; at + STEP <= n_bytes; at += STEP, to += 32 * STEP) {
        pack_step(a, at, n_bytes, low_nibbles, whole_step, to);
        pack_step(a, at, n_bytes, high_nibbles, whole_step, to + 16 * STEP);
    }
    if (at < n_bytes) {
        pack_step(a, at, n_bytes, low_nibbles, row_step, to);
        pack_step(a, at, n_bytes, high_nibbles, row_step, to + 16 * STEP);
    }
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

/* One register of weights at w, times n <= TOKENS tokens at x, a constant where this is inlined. */
PHI_INLINE void multiply(__m512i acc[TOKENS], const char *w, const int8_t *x, size_t ld_x,
                         const size_t n)
{
    const __m512i wv = _mm512_load_si512(w);
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        acc[t] = dot_broadcast(acc[t], wv, x + t * ld_x);
}

/* Four of them. Not a loop: gcc 12 would keep the sums in memory. */
PHI_INLINE void multiply4(__m512i acc[TOKENS], const char *w, const int8_t *x, size_t ld_x,
                          const size_t n)
{
    multiply(acc, w, x, ld_x, n);
    multiply(acc, w + STEP, x + 4, ld_x, n);
    multiply(acc, w + 2 * STEP, x + 8, ld_x, n);
    multiply(acc, w + 3 * STEP, x + 12, ld_x, n);
}

PHI_INLINE void w8_strip_tile(const struct phi_quant_matmul *a, size_t token, const size_t n)
{
    __m512i acc[TOKENS];
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        acc[t] = _mm512_set1_epi32(a->x_sums[(token + t) * a->ld_sums]);
    const char *w = a->scratch;
    const int8_t *x = a->x + token * a->ld_x;
    for (size_t k = 0; k < a->k; k += 16, w += 4 * STEP, x += 16) /* zeros behind the end */
        multiply4(acc, w, x, a->ld_x, n);
    const __m512 scales = _mm512_maskz_loadu_ps(strip_mask(a), a->w_scale);
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        store_strip(a, token + t, _mm512_mul_ps(_mm512_cvtepi32_ps(acc[t]), scales));
}

/* Block b of the n tokens: what -8 adds, and the products. */
PHI_INLINE void w4_strip_block(__m512i sum[TOKENS], const struct phi_quant_matmul *a, size_t token,
                               size_t block, const size_t n)
{
    const size_t at = phi_quant_place(block * PHI_QUANT_BLOCK, PHI_W4A8);
    const char *w = (const char *)a->scratch + 16 * at;
    const int8_t *x = a->x + token * a->ld_x + at;
    const int32_t *x_sums = a->x_sums + token * a->ld_sums + block;
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        sum[t] = _mm512_add_epi32(sum[t], _mm512_set1_epi32(x_sums[t * a->ld_sums]));
    multiply4(sum, w, x, a->ld_x, n);
    multiply4(sum, w + 16 * 64, x + 64, a->ld_x, n);
}

/* One pass over the blocks: nested loops would keep gcc 12 from holding the sums in registers. */
PHI_INLINE void w4_strip_tile(const struct phi_quant_matmul *a, size_t token, const size_t n)
{
    const float *scale = packed_scales(a);
    const size_t n_blocks = (a->k + PHI_QUANT_BLOCK - 1) / PHI_QUANT_BLOCK;
    const size_t group_blocks = (a->group + PHI_QUANT_BLOCK - 1) / PHI_QUANT_BLOCK;
    __m512 acc[TOKENS];
    __m512i sum[TOKENS];
    size_t left = group_blocks; /* blocks of the group */
    PHI_UNROLL
    for (size_t t = 0; t < n; t++) {
        acc[t] = _mm512_setzero_ps();
        sum[t] = _mm512_setzero_si512();
    }
    for (size_t block = 0; block < n_blocks; block++) {
        w4_strip_block(sum, a, token, block, n);
        if (--left > 0)
            continue;
        const __m512 scales = _mm512_load_ps(scale);
        PHI_UNROLL
        for (size_t t = 0; t < n; t++) {
            acc[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[t]), scales, acc[t]);
            sum[t] = _mm512_setzero_si512();
        }
        scale += PHI_STRIP_ROWS;
        left = group_blocks;
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
    pack_scales16(a);
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
    .sum_exp = lanes_sum_exp,
};
