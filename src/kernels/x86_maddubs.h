/* x86_maddubs.h: products with integer weights where there is no VNNI, in 256-bit registers.
 * Private to the x86 units.
 *
 * VPMADDUBSW multiplies unsigned by signed bytes and adds pairs in 16 bits, where two products of
 * 255 by 127 would not fit. So of 8-bit weights and activations one enters as a magnitude and its
 * signs go over to the other. VPSIGNB would do that, but runs where multiplications do. Instead an
 * exclusive or makes -v - 1 of what meets a negative magnitude m, and the product is too small by
 * m, which a sum over the row, or the token, puts right. No pair leaves 16 bits: 2 * 128 * 127 and
 * 2 * 128 * -128 fit, and the magnitude 128 is a negative weight's only.
 * 4-bit weights stay unsigned, n + 8 <= 15: the products of eight instructions fit, and what the 8
 * adds is in the row's sums.
 *
 * With few tokens rows are read in place, one register holding one row's partial sums. With many,
 * the strip is laid out in a->scratch once: [four elements of k][16 rows][4 bytes], a register
 * holding four elements of eight rows, so that a sum needs no reduction. */
#ifndef PHI_KERNELS_X86_MADDUBS_H
#define PHI_KERNELS_X86_MADDUBS_H

#include "kernels/x86_quant.h"

enum {
    QUANT_STEP = 32,      /* bytes of a register */
    QUANT_ROWS = 4,       /* of a tile that reads in place */
    QUANT_BLOCK = 8,      /* rows of a register of the strip */
    QUANT_WORDS = 64,     /* bytes of the strip for four elements of k */
    ROWS_TOKENS = 2,      /* at most, of a tile that reads in place */
    W8_STRIP_TOKENS = 8,  /* at most, of a tile over the strip */
    W4_STRIP_TOKENS = 4,  /* of twice as many rows */
    QUANT_FEW_TOKENS = 8, /* up to here rows are read in place */
};

/* ---------------------------------------------------------------- loads */

/* A register of bytes at `at` of a row of n_bytes, zeros behind its end. */
typedef __m256i (*load_row_fn)(const char *row, size_t at, size_t n_bytes);

PHI_INLINE __m256i row_inside(const char *row, size_t at, size_t n_bytes)
{
    (void)n_bytes;
    return _mm256_loadu_si256((const void *)(row + at));
}

PHI_INLINE __m256i row_end(const char *row, size_t at, size_t n_bytes)
{
    unsigned char rest[QUANT_STEP] = {0};
    if (at + QUANT_STEP <= n_bytes)
        return row_inside(row, at, n_bytes);
    if (at < n_bytes)
        memcpy(rest, row + at, n_bytes - at);
    return _mm256_loadu_si256((const void *)rest);
}

PHI_INLINE __m256i low_nibbles(__m256i bytes)
{
    return _mm256_and_si256(bytes, _mm256_set1_epi8(15));
}

PHI_INLINE __m256i high_nibbles(__m256i bytes)
{
    return low_nibbles(_mm256_srli_epi16(bytes, 4));
}

/* n <= 8 rows from `row` on; those that do not exist repeat the last one. */
PHI_INLINE void row_pointers(const struct phi_quant_matmul *a, size_t row, const char **w,
                             const size_t n)
{
    PHI_UNROLL
    for (size_t r = 0; r < n; r++) {
        size_t from = row + r < a->n_rows ? row + r : a->n_rows - 1;
        w[r] = (const char *)a->w + from * a->row_bytes;
    }
}

/* Names the bytes of rows to come, as in x86_rows.h. */
PHI_INLINE void prefetch_rows(const char *const *w, size_t at, size_t ahead, const size_t n)
{
    PHI_UNROLL
    for (size_t r = 0; r < n; r++)
        _mm_prefetch(w[r] + at + ahead, _MM_HINT_T1);
}

PHI_INLINE __m256i negative_bytes(__m256i w)
{
    return _mm256_cmpgt_epi8(_mm256_setzero_si256(), w);
}

/* The 16-bit sums of pairs, added to 32-bit ones. */
PHI_INLINE __m256i widen_pairs(__m256i pairs)
{
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

/* The rows to come whose bytes a tile of rows in place names, as in x86_rows.h. All the passes over
 * the same rows, one for each few tokens, share them out. */
struct rows_ahead {
    const char *first;
    size_t n, row_bytes;
};

PHI_INLINE struct rows_ahead rows_ahead(const struct phi_quant_matmul *a, size_t row,
                                        size_t distance, size_t token, size_t n)
{
    const size_t begin = QUANT_ROWS * token / a->n_tokens,
                 end = QUANT_ROWS * (token + n) / a->n_tokens;
    return (struct rows_ahead){(const char *)a->w + (row + distance + begin) * a->row_bytes,
                               end - begin, a->row_bytes};
}

PHI_INLINE void prefetch_ahead(const struct rows_ahead *rows, size_t at)
{
    const char *from = rows->first + at;
    for (size_t i = 0; i < rows->n; i++, from += rows->row_bytes)
        _mm_prefetch(from, _MM_HINT_T1);
}

/* Sums in the order in which they are written: gcc would add products up as a tree, and has no room
 * for so many of them at once. */
PHI_INLINE __m256i in_order(__m256i sum)
{
    __asm__("" : "+v"(sum));
    return sum;
}

/* ---------------------------------------------------------------- rows in place */

/* In each half of the result the four rows' sums of that half. */
PHI_INLINE __m256i add_words(const __m256i v[QUANT_ROWS])
{
    __m256i a =
        _mm256_add_epi32(_mm256_unpacklo_epi32(v[0], v[1]), _mm256_unpackhi_epi32(v[0], v[1]));
    __m256i b =
        _mm256_add_epi32(_mm256_unpacklo_epi32(v[2], v[3]), _mm256_unpackhi_epi32(v[2], v[3]));
    return _mm256_add_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
}

PHI_INLINE __m128i low_half(__m256i v)
{
    return _mm256_castsi256_si128(v);
}

PHI_INLINE __m128i high_half(__m256i v)
{
    return _mm256_extracti128_si256(v, 1);
}

PHI_INLINE __m128i add_halves(__m256i v)
{
    return _mm_add_epi32(low_half(v), high_half(v));
}

/* The finished products of four rows and one token. */
PHI_INLINE void store_rows(const struct phi_quant_matmul *a, size_t row, size_t token, __m128 y)
{
    float rest[QUANT_ROWS], *to = a->y + token * a->ld_y + row;
    if (a->x_scale)
        y = _mm_mul_ps(y, _mm_set1_ps(a->x_scale[token]));
    if (row + QUANT_ROWS <= a->n_rows) {
        _mm_storeu_ps(to, y);
        return;
    }
    _mm_storeu_ps(rest, y);
    memcpy(to, rest, (a->n_rows - row) * sizeof *rest);
}

/* Here the activations enter as magnitudes, and weights change their signs. */
PHI_INLINE void w8_rows_step(__m256i acc[][QUANT_ROWS], const char *const *w, size_t k,
                             size_t k_end, const int8_t *x, size_t ld_x, load_row_fn load,
                             const size_t n)
{
    __m256i magnitude[ROWS_TOKENS], negative[ROWS_TOKENS];
    PHI_UNROLL
    for (size_t t = 0; t < n; t++) {
        __m256i xv = _mm256_load_si256((const void *)(x + t * ld_x + k));
        magnitude[t] = _mm256_abs_epi8(xv);
        negative[t] = negative_bytes(xv);
    }
    PHI_UNROLL
    for (size_t r = 0; r < QUANT_ROWS; r++) {
        __m256i wv = load(w[r], k, k_end);
        PHI_UNROLL
        for (size_t t = 0; t < n; t++) {
            __m256i signed_w = _mm256_xor_si256(wv, negative[t]);
            __m256i pairs = _mm256_maddubs_epi16(magnitude[t], signed_w);
            acc[t][r] = in_order(_mm256_add_epi32(acc[t][r], widen_pairs(pairs)));
        }
    }
}

/* The magnitudes of a row's negative activations. */
PHI_INLINE int32_t negative_sum(const int8_t *x, size_t n)
{
    __m256i sum = _mm256_setzero_si256();
    for (size_t i = 0; i < n; i += QUANT_STEP) {
        __m256i below =
            _mm256_min_epi8(_mm256_load_si256((const void *)(x + i)), _mm256_setzero_si256());
        sum =
            _mm256_add_epi64(sum, _mm256_sad_epu8(_mm256_abs_epi8(below), _mm256_setzero_si256()));
    }
    __m128i halves = _mm_add_epi64(low_half(sum), high_half(sum));
    return _mm_cvtsi128_si32(_mm_add_epi64(halves, _mm_unpackhi_epi64(halves, halves)));
}

/* n <= ROWS_TOKENS is a constant where this is inlined. */
PHI_INLINE void w8_rows_tile(const struct phi_quant_matmul *a, size_t row, size_t token,
                             const int32_t *extra, const size_t n)
{
    const char *w[QUANT_ROWS];
    const int8_t *x = a->x + token * a->ld_x;
    const struct rows_ahead ahead = rows_ahead(a, row, QUANT_ROWS, token, n);
    __m256i acc[ROWS_TOKENS][QUANT_ROWS];
    size_t k = 0;
    row_pointers(a, row, w, QUANT_ROWS);
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        PHI_UNROLL
    for (size_t r = 0; r < QUANT_ROWS; r++)
        acc[t][r] = _mm256_setzero_si256();
    for (; k + 2 * QUANT_STEP <= a->k; k += 2 * QUANT_STEP) {
        prefetch_ahead(&ahead, k);
        w8_rows_step(acc, w, k, a->k, x, a->ld_x, row_inside, n);
        w8_rows_step(acc, w, k + QUANT_STEP, a->k, x, a->ld_x, row_inside, n);
    }
    for (; k < a->k; k += QUANT_STEP)
        w8_rows_step(acc, w, k, a->k, x, a->ld_x, row_end, n);
    const size_t n_rows = a->n_rows - row < QUANT_ROWS ? a->n_rows - row : QUANT_ROWS;
    float scales[QUANT_ROWS] = {0};
    memcpy(scales, (const char *)a->w_scale + row * sizeof *scales, n_rows * sizeof *scales);
    PHI_UNROLL
    for (size_t t = 0; t < n; t++) {
        __m128i sums =
            _mm_add_epi32(add_halves(add_words(acc[t])), _mm_set1_epi32(extra[token + t]));
        store_rows(a, row, token + t, _mm_mul_ps(_mm_cvtepi32_ps(sums), _mm_loadu_ps(scales)));
    }
}

static inline void w8_rows(const struct phi_quant_matmul *a)
{
    int32_t extra[QUANT_FEW_TOKENS];
    for (size_t t = 0; t < a->n_tokens; t++)
        extra[t] = negative_sum(a->x + t * a->ld_x, a->k);
    for (size_t row = 0; row < a->n_rows; row += QUANT_ROWS) {
        size_t token = 0;
        for (; token + ROWS_TOKENS <= a->n_tokens; token += ROWS_TOKENS)
            w8_rows_tile(a, row, token, extra, ROWS_TOKENS);
        for (; token < a->n_tokens; token++)
            w8_rows_tile(a, row, token, extra, 1);
    }
}

/* The sums of groups become floats; blocks are taken in one by one, or by fours where groups are
 * made of those. */
struct w4_groups {
    const float *scale; /* of the group at hand, [PHI_STRIP_ROWS] apart */
    __m128 acc;
    __m128i sum;
    size_t n_blocks; /* in sum */
};

PHI_INLINE void add_blocks(struct w4_groups *g, __m128i sums, const size_t n,
                           const size_t group_blocks)
{
    g->sum = _mm_add_epi32(g->sum, sums);
    g->n_blocks += n;
    if (g->n_blocks != group_blocks)
        return;
    g->acc = _mm_fmadd_ps(_mm_cvtepi32_ps(g->sum), _mm_load_ps(g->scale), g->acc);
    g->scale += PHI_STRIP_ROWS;
    g->sum = _mm_setzero_si128();
    g->n_blocks = 0;
}

/* Sums of pairs of one row: of one block in the low half and of the next in the high half. */
PHI_INLINE __m256i w4_pairs(__m256i bytes, const int8_t *x)
{
    __m256i even = _mm256_load_si256((const void *)x),
            odd = _mm256_load_si256((const void *)(x + PHI_QUANT_STEP / 2));
    return _mm256_add_epi16(_mm256_maddubs_epi16(low_nibbles(bytes), even),
                            _mm256_maddubs_epi16(high_nibbles(bytes), odd));
}

/* Four rows by two blocks from `block` on, of which n_blocks exist. */
PHI_INLINE void w4_rows_half(const struct phi_quant_matmul *a, struct w4_groups *g,
                             const char *const *w, size_t token, size_t block, size_t n_blocks,
                             load_row_fn load, const size_t group_blocks, const size_t n)
{
    const size_t n_bytes = (a->k + 1) / 2, at = block * PHI_QUANT_BLOCK / 2;
    const size_t place = phi_quant_place(block * PHI_QUANT_BLOCK, PHI_W4A8);
    __m256i v[ROWS_TOKENS][QUANT_ROWS];
    PHI_UNROLL
    for (size_t r = 0; r < QUANT_ROWS; r++) {
        __m256i bytes = load(w[r], at, n_bytes);
        PHI_UNROLL
        for (size_t t = 0; t < n; t++)
            v[t][r] = widen_pairs(w4_pairs(bytes, a->x + (token + t) * a->ld_x + place));
    }
    PHI_UNROLL
    for (size_t t = 0; t < n; t++) {
        const int32_t *x_sums = a->x_sums + (token + t) * a->ld_sums + block;
        __m256i sums = add_words(v[t]);
        add_blocks(&g[t], _mm_add_epi32(low_half(sums), _mm_set1_epi32(x_sums[0])), 1,
                   group_blocks);
        if (n_blocks > 1)
            add_blocks(&g[t], _mm_add_epi32(high_half(sums), _mm_set1_epi32(x_sums[1])), 1,
                       group_blocks);
    }
}

/* Four rows by four blocks from `block` on, all of one group. */
PHI_INLINE void w4_rows_step(const struct phi_quant_matmul *a, struct w4_groups *g,
                             const char *const *w, size_t token, size_t block,
                             const size_t group_blocks, const size_t n)
{
    const size_t at = block * PHI_QUANT_BLOCK / 2;
    __m256i v[ROWS_TOKENS][QUANT_ROWS];
    PHI_UNROLL
    for (size_t r = 0; r < QUANT_ROWS; r++) {
        __m256i first = row_inside(w[r], at, SIZE_MAX),
                second = row_inside(w[r], at + QUANT_STEP, SIZE_MAX);
        PHI_UNROLL
        for (size_t t = 0; t < n; t++) {
            const int8_t *x = a->x + (token + t) * a->ld_x + block * PHI_QUANT_BLOCK;
            v[t][r] =
                widen_pairs(_mm256_add_epi16(w4_pairs(first, x), w4_pairs(second, x + QUANT_STEP)));
        }
    }
    PHI_UNROLL
    for (size_t t = 0; t < n; t++) {
        const int32_t *s = a->x_sums + (token + t) * a->ld_sums + block;
        __m128i extra = _mm_set1_epi32(s[0] + s[1] + s[2] + s[3]);
        add_blocks(&g[t], _mm_add_epi32(add_halves(add_words(v[t])), extra), 4, group_blocks);
    }
}

/* group_blocks may be, n <= ROWS_TOKENS is a constant where this is inlined. */
PHI_INLINE void w4_rows_tile(const struct phi_quant_matmul *a, size_t row, size_t token,
                             const size_t group_blocks, const size_t n)
{
    const char *w[QUANT_ROWS];
    const size_t n_bytes = (a->k + 1) / 2,
                 n_blocks = (a->k + PHI_QUANT_BLOCK - 1) / PHI_QUANT_BLOCK;
    /* short rows: further ahead */
    const struct rows_ahead ahead = rows_ahead(a, row, PHI_STRIP_ROWS, token, n);
    struct w4_groups g[ROWS_TOKENS];
    size_t block = 0;
    row_pointers(a, row, w, QUANT_ROWS);
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        g[t] = (struct w4_groups){packed_scales(a) + row, _mm_setzero_ps(), _mm_setzero_si128(), 0};
    for (; block * 16 + 2 * QUANT_STEP <= n_bytes; block += 4) {
        prefetch_ahead(&ahead, block * 16);
        if (group_blocks % 4 == 0) {
            w4_rows_step(a, g, w, token, block, group_blocks, n);
            continue;
        }
        w4_rows_half(a, g, w, token, block, 2, row_inside, group_blocks, n);
        w4_rows_half(a, g, w, token, block + 2, 2, row_inside, group_blocks, n);
    }
    for (; block < n_blocks; block += 2)
        w4_rows_half(a, g, w, token, block, n_blocks - block, row_end, group_blocks, n);
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        store_rows(a, row, token + t, g[t].acc);
}

PHI_INLINE void w4_rows_of(const struct phi_quant_matmul *a, const size_t group_blocks)
{
    for (size_t row = 0; row < a->n_rows; row += QUANT_ROWS) {
        size_t token = 0;
        for (; token + ROWS_TOKENS <= a->n_tokens; token += ROWS_TOKENS)
            w4_rows_tile(a, row, token, group_blocks, ROWS_TOKENS);
        for (; token < a->n_tokens; token++)
            w4_rows_tile(a, row, token, group_blocks, 1);
    }
}

static inline void w4_rows(const struct phi_quant_matmul *a)
{
    if (a->group == 32)
        w4_rows_of(a, 1);
    else if (a->group == 128)
        w4_rows_of(a, 4);
    else
        w4_rows_of(a, (a->group + PHI_QUANT_BLOCK - 1) / PHI_QUANT_BLOCK);
}

/* ---------------------------------------------------------------- the strip */

/* Row r of the result holds the 32-bit words r of the eight rows. */
PHI_INLINE void transpose8x8(__m256i v[8])
{
    __m256i t[8];
    PHI_UNROLL
    for (int i = 0; i < 4; i++) {
        t[2 * i] = _mm256_unpacklo_epi32(v[2 * i], v[2 * i + 1]);
        t[2 * i + 1] = _mm256_unpackhi_epi32(v[2 * i], v[2 * i + 1]);
    }
    PHI_UNROLL
    for (int i = 0; i < 2; i++) {
        __m256i *from = t + 4 * i;
        v[4 * i] = _mm256_unpacklo_epi64(from[0], from[2]);
        v[4 * i + 1] = _mm256_unpackhi_epi64(from[0], from[2]);
        v[4 * i + 2] = _mm256_unpacklo_epi64(from[1], from[3]);
        v[4 * i + 3] = _mm256_unpackhi_epi64(from[1], from[3]);
    }
    PHI_UNROLL
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2x128_si256(v[i], v[i + 4], 0x20);
        t[i + 4] = _mm256_permute2x128_si256(v[i], v[i + 4], 0x31);
    }
    PHI_UNROLL
    for (int i = 0; i < 8; i++)
        v[i] = t[i];
}

/* What a byte of a row becomes in the strip. */
typedef __m256i (*unpack_fn)(__m256i bytes);

PHI_INLINE __m256i whole_bytes(__m256i bytes)
{
    return bytes;
}

/* A register of each of eight rows, to eight places of the strip. */
PHI_INLINE void pack_step(const char *const w[QUANT_BLOCK], size_t at, size_t n_bytes,
                          unpack_fn unpack, load_row_fn load, char *to)
{
    __m256i v[QUANT_BLOCK];
    PHI_UNROLL
    for (int r = 0; r < QUANT_BLOCK; r++)
        v[r] = unpack(load(w[r], at, n_bytes));
    transpose8x8(v);
    PHI_UNROLL
    for (int i = 0; i < QUANT_BLOCK; i++)
        _mm256_store_si256((void *)(to + i * QUANT_WORDS), v[i]);
}

/* Eight rows of 8-bit weights. */
PHI_INLINE void w8_pack(const struct phi_quant_matmul *a, size_t row)
{
    const size_t ahead = PHI_STRIP_ROWS * a->row_bytes;
    char *to = (char *)a->scratch + row * 4;
    const char *w[QUANT_BLOCK];
    size_t at = 0;
    row_pointers(a, row, w, QUANT_BLOCK);
    for (; at + 2 * QUANT_STEP <= a->k; at += 2 * QUANT_STEP) {
        prefetch_rows(w, at, ahead, QUANT_BLOCK);
        pack_step(w, at, a->k, whole_bytes, row_inside, to + 16 * at);
        pack_step(w, at + QUANT_STEP, a->k, whole_bytes, row_inside, to + 16 * (at + QUANT_STEP));
    }
    for (; at < a->k; at += QUANT_STEP)
        pack_step(w, at, a->k, whole_bytes, row_end, to + 16 * at);
}

/* The low nibbles of 32 bytes are 32 even elements, so half of a step's first half; the high ones
 * follow 64 elements later. */
PHI_INLINE void w4_pack_step(const char *const w[QUANT_BLOCK], size_t at, size_t n_bytes,
                             load_row_fn load, char *strip)
{
    char *to = strip + 16 * phi_quant_place(2 * at, PHI_W4A8);
    pack_step(w, at, n_bytes, low_nibbles, load, to);
    pack_step(w, at, n_bytes, high_nibbles, load, to + 16 * (PHI_QUANT_STEP / 2));
}

/* Eight rows of 4-bit weights. */
PHI_INLINE void w4_pack(const struct phi_quant_matmul *a, size_t row)
{
    const size_t n_bytes = (a->k + 1) / 2, ahead = PHI_STRIP_ROWS * a->row_bytes;
    char *to = (char *)a->scratch + row * 4;
    const char *w[QUANT_BLOCK];
    size_t at = 0;
    row_pointers(a, row, w, QUANT_BLOCK);
    for (; at + 2 * QUANT_STEP <= n_bytes; at += 2 * QUANT_STEP) {
        prefetch_rows(w, at, ahead, QUANT_BLOCK);
        w4_pack_step(w, at, n_bytes, row_inside, to);
        w4_pack_step(w, at + QUANT_STEP, n_bytes, row_inside, to);
    }
    for (; at < n_bytes; at += QUANT_STEP)
        w4_pack_step(w, at, n_bytes, row_end, to);
}

/* Eight scales of a row from group g on, of which n exist. */
PHI_INLINE __m256i load_scales8(const struct phi_quant_matmul *a, size_t row, size_t g, size_t n)
{
    const size_t bytes = phi_dtype_bytes(a->scale_dtype);
    const char *from = (const char *)a->w_scale + (row * a->ld_scale + g) * bytes;
    unsigned char rest[32] = {0};
    _mm_prefetch(from + PHI_STRIP_ROWS * a->ld_scale * bytes, _MM_HINT_T1);
    if (n < 8)
        from = memcpy(rest, from, n * bytes);
    return _mm256_castps_si256(a->scale_dtype == PHI_BFLOAT16 ? load8_bf16(from) : load8_f32(from));
}

PHI_INLINE void pack_scales(const struct phi_quant_matmul *a)
{
    const size_t n_groups = quant_n_groups(a);
    for (size_t g = 0; g < n_groups; g += 8)
        for (size_t row = 0; row < a->n_rows; row += 8) {
            __m256i v[8];
            for (size_t r = 0; r < 8; r++)
                v[r] = row + r < a->n_rows ? load_scales8(a, row + r, g, n_groups - g)
                                           : _mm256_setzero_si256();
            transpose8x8(v);
            for (size_t i = 0; i < 8 && g + i < n_groups; i++)
                _mm256_store_si256((void *)(packed_scales(a) + (g + i) * PHI_STRIP_ROWS + row),
                                   v[i]);
        }
}

/* The finished products of eight rows and one token. */
PHI_INLINE void store_block(const struct phi_quant_matmul *a, size_t row, size_t token, __m256 y)
{
    float *to = a->y + token * a->ld_y + row;
    if (a->x_scale)
        y = _mm256_mul_ps(y, _mm256_set1_ps(a->x_scale[token]));
    if (row + 8 <= a->n_rows) {
        _mm256_storeu_ps(to, y);
        return;
    }
    float rest[8];
    _mm256_storeu_ps(rest, y);
    memcpy(to, rest, (a->n_rows - row) * sizeof *rest);
}

PHI_INLINE __m256i four_elements(const int8_t *x)
{
    int32_t word;
    memcpy(&word, x, sizeof word);
    return _mm256_set1_epi32(word);
}

/* ---------------------------------------------------------------- products over the strip */

/* Here the weights enter as magnitudes, and activations change their signs. */
PHI_INLINE __m256i w8_product(__m256i magnitude, __m256i negative, __m256i x)
{
    return widen_pairs(_mm256_maddubs_epi16(magnitude, _mm256_xor_si256(x, negative)));
}

/* The magnitudes of the negative weights of eight rows, which is what zeros give. */
PHI_INLINE __m256i w8_begin(const struct phi_quant_matmul *a, const char *w)
{
    __m256i sum = _mm256_setzero_si256();
    for (size_t k = 0; k < a->k; k += 4, w += QUANT_WORDS) {
        __m256i wv = _mm256_load_si256((const void *)w);
        sum = _mm256_sub_epi32(
            sum, w8_product(_mm256_abs_epi8(wv), negative_bytes(wv), _mm256_setzero_si256()));
    }
    return sum;
}

/* n <= W8_STRIP_TOKENS is a constant where this is inlined. */
PHI_INLINE void w8_strip_tile(const struct phi_quant_matmul *a, size_t row, size_t token,
                              __m256i begin, const size_t n)
{
    const char *w = (const char *)a->scratch + row * 4;
    const int8_t *x = a->x + token * a->ld_x;
    __m256i acc[W8_STRIP_TOKENS];
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        acc[t] = begin;
    for (size_t k = 0; k < a->k; k += 4, w += QUANT_WORDS, x += 4) { /* zeros behind the end */
        __m256i wv = _mm256_load_si256((const void *)w);
        __m256i magnitude = _mm256_abs_epi8(wv), negative = negative_bytes(wv);
        PHI_UNROLL
        for (size_t t = 0; t < n; t++)
            acc[t] = _mm256_add_epi32(
                acc[t], w8_product(magnitude, negative, four_elements(x + t * a->ld_x)));
    }
    float scales[QUANT_BLOCK] = {0};
    size_t n_rows = a->n_rows - row < QUANT_BLOCK ? a->n_rows - row : QUANT_BLOCK;
    memcpy(scales, (const char *)a->w_scale + row * sizeof *scales, n_rows * sizeof *scales);
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        store_block(a, row, token + t,
                    _mm256_mul_ps(_mm256_cvtepi32_ps(acc[t]), _mm256_loadu_ps(scales)));
}

static inline void w8_strip(const struct phi_quant_matmul *a)
{
    for (size_t row = 0; row < a->n_rows; row += QUANT_BLOCK) {
        w8_pack(a, row);
        const __m256i begin = w8_begin(a, (const char *)a->scratch + row * 4);
        size_t token = 0;
        for (; token + W8_STRIP_TOKENS <= a->n_tokens; token += W8_STRIP_TOKENS)
            w8_strip_tile(a, row, token, begin, W8_STRIP_TOKENS);
        for (; token + 2 <= a->n_tokens; token += 2)
            w8_strip_tile(a, row, token, begin, 2);
        for (; token < a->n_tokens; token++)
            w8_strip_tile(a, row, token, begin, 1);
    }
}

/* The sums of one block of 32 elements: four words of even elements, four of odd ones; sixteen
 * rows. */
PHI_INLINE void w4_strip_block(__m256i sum[][2], const char *w, const int8_t *x, size_t ld_x,
                               const size_t n)
{
    __m256i pairs[W4_STRIP_TOKENS][2];
    PHI_UNROLL
    for (size_t i = 0; i < 8; i++) {
        const size_t at = i % 4 * 4 + i / 4 * (PHI_QUANT_STEP / 2);
        __m256i w0 = _mm256_load_si256((const void *)(w + 16 * at)),
                w1 = _mm256_load_si256((const void *)(w + 16 * at + 32));
        PHI_UNROLL
        for (size_t t = 0; t < n; t++) {
            __m256i xv = four_elements(x + t * ld_x + at);
            __m256i p0 = _mm256_maddubs_epi16(w0, xv), p1 = _mm256_maddubs_epi16(w1, xv);
            pairs[t][0] = in_order(i == 0 ? p0 : _mm256_add_epi16(pairs[t][0], p0));
            pairs[t][1] = in_order(i == 0 ? p1 : _mm256_add_epi16(pairs[t][1], p1));
        }
    }
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        PHI_UNROLL
    for (size_t b = 0; b < 2; b++)
        sum[t][b] = _mm256_add_epi32(sum[t][b], widen_pairs(pairs[t][b]));
}

/* n <= W4_STRIP_TOKENS is a constant where this is inlined. */
PHI_INLINE void w4_strip_tile(const struct phi_quant_matmul *a, size_t token, const size_t group,
                              const size_t n)
{
    const int8_t *x = a->x + token * a->ld_x;
    const int32_t *x_sums = a->x_sums + token * a->ld_sums;
    const float *scale = packed_scales(a);
    __m256 acc[W4_STRIP_TOKENS][2];
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        acc[t][0] = acc[t][1] = _mm256_setzero_ps();
    for (size_t begin = 0; begin < a->k; begin += group, scale += PHI_STRIP_ROWS) {
        const size_t end = begin + group;
        __m256i sum[W4_STRIP_TOKENS][2];
        PHI_UNROLL
        for (size_t t = 0; t < n; t++) {
            int32_t extra = 0; /* what -8 adds */
            for (size_t k = begin; k < end; k += PHI_QUANT_BLOCK)
                extra += x_sums[t * a->ld_sums + k / PHI_QUANT_BLOCK];
            sum[t][0] = sum[t][1] = _mm256_set1_epi32(extra);
        }
        for (size_t k = begin; k < end; k += PHI_QUANT_BLOCK) {
            const size_t at = phi_quant_place(k, PHI_W4A8);
            w4_strip_block(sum, (const char *)a->scratch + 16 * at, x + at, a->ld_x, n);
        }
        PHI_UNROLL
        for (size_t b = 0; b < 2; b++) {
            const __m256 scales = _mm256_load_ps(scale + QUANT_BLOCK * b);
            PHI_UNROLL
            for (size_t t = 0; t < n; t++)
                acc[t][b] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[t][b]), scales, acc[t][b]);
        }
    }
    PHI_UNROLL
    for (size_t t = 0; t < n; t++) {
        store_block(a, 0, token + t, acc[t][0]);
        if (a->n_rows > QUANT_BLOCK)
            store_block(a, QUANT_BLOCK, token + t, acc[t][1]);
    }
}

PHI_INLINE void w4_strip_of(const struct phi_quant_matmul *a, const size_t group)
{
    size_t token = 0;
    for (; token + W4_STRIP_TOKENS <= a->n_tokens; token += W4_STRIP_TOKENS)
        w4_strip_tile(a, token, group, W4_STRIP_TOKENS);
    for (; token < a->n_tokens; token++)
        w4_strip_tile(a, token, group, 1);
}

static inline void w4_strip(const struct phi_quant_matmul *a)
{
    for (size_t row = 0; row < PHI_STRIP_ROWS; row += QUANT_BLOCK)
        w4_pack(a, row);
    if (a->group == 32)
        w4_strip_of(a, 32);
    else if (a->group == 128)
        w4_strip_of(a, 128);
    else
        w4_strip_of(a, a->group);
}

/* ---------------------------------------------------------------- for the tables */

static inline void maddubs_matmul_w8(const struct phi_quant_matmul *a)
{
    assert(a->n_rows <= PHI_STRIP_ROWS && a->k <= PHI_QUANT_MAX_K);
    if (a->n_tokens <= QUANT_FEW_TOKENS)
        w8_rows(a);
    else
        w8_strip(a);
}

static inline void maddubs_matmul_w4(const struct phi_quant_matmul *a)
{
    assert(a->n_rows <= PHI_STRIP_ROWS && a->k <= PHI_QUANT_MAX_K);
    pack_scales(a);
    if (a->n_tokens <= QUANT_FEW_TOKENS)
        w4_rows(a);
    else
        w4_strip(a);
}

#endif
