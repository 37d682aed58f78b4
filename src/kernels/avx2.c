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

/* ---------------------------------------------------------------- matrix products

 * Many tokens: a tile of four rows by three tokens runs over planes, which hold eight float32 of a
 * row, whatever the types were. Long rows are cut in parts, so that the activations of a tile stay
 in the L1
 * cache beside the weights; the sums' lanes wait in a->scratch from one part to the next. */

enum {
    BLOCK_ROWS = 4,
    BLOCK_TOKENS = 3, /* 12 sums and 3 activations leave one of sixteen registers for the weights */
    FEW_TOKENS = 8,   /* up to here rows are read in place: widening a strip would cost more */
    WHOLE_K = 1024,   /* up to here the activations of a tile stay in the L1 cache */
    PART_K = 512,     /* else columns are taken in parts of so many; a multiple of any step */
};

/* n_planes of the activations at x, each of eight float32 in the order of the weights' planes;
 * zeros behind the k-th element. */
typedef void (*widen_fn)(float *to, const char *x, size_t k);

struct strip_form {
    struct pack_form pack;
    widen_fn widen;
    size_t x_bytes; /* of one element */
};

PHI_INLINE void widen_f32(float *to, const char *x, size_t k)
{
    memset(to + k / 8 * 8, 0, 8 * sizeof *to);
    memcpy(to, x, k * sizeof *to);
}

PHI_INLINE void widen_split_pairs(float *to, const char *x, size_t k)
{
    for (size_t i = 0; i < k; i += 16, to += 16) {
        __m256i pairs = i + 16 <= k ? _mm256_loadu_si256((const void *)(x + 2 * i))
                                    : load_pairs_part(x + 2 * i, k - i);
        _mm256_storeu_ps(to, odd_elements(pairs));
        _mm256_storeu_ps(to + 8, even_elements(pairs));
    }
}

#define STRIP_F32 ((struct strip_form){{pack_f32, 1, 8, 4, BLOCK_ROWS}, widen_f32, 4})
#define STRIP_BF16 ((struct strip_form){{pack_bf16, 1, 8, 2, BLOCK_ROWS}, widen_f32, 4})
#define STRIP_F16 ((struct strip_form){{pack_f16, 1, 8, 2, BLOCK_ROWS}, widen_f32, 4})
#define STRIP_PAIRS                                                                                \
    ((struct strip_form){{pack_split_pairs, 2, 16, 2, BLOCK_ROWS}, widen_split_pairs, 2})

/* Some columns of a strip. */
struct strip_part {
    struct phi_matmul a; /* of these columns and tokens alone, packed */
    size_t n_planes;
    const char *next; /* what is packed next: the caches are told of it */
    float *lanes;     /* [n_tokens, PHI_STRIP_ROWS, 8] the sums so far, between parts */
    bool first, last;
};

/* n_tokens <= BLOCK_TOKENS is a constant where this is inlined. */
PHI_INLINE void strip_tile(const struct strip_part *s, size_t row, size_t token,
                           const float *const *x, const size_t n_tokens)
{
    const float *w = (const float *)s->a.scratch + row * 8 * s->n_planes;
    float *lanes = s->lanes + (token * PHI_STRIP_ROWS + row) * 8;
    __m256 acc[BLOCK_TOKENS][BLOCK_ROWS];
    PHI_UNROLL
    for (size_t t = 0; t < n_tokens; t++)
        PHI_UNROLL
    for (size_t r = 0; r < BLOCK_ROWS; r++)
        acc[t][r] =
            s->first ? _mm256_setzero_ps() : _mm256_load_ps(lanes + (t * PHI_STRIP_ROWS + r) * 8);

    for (size_t at = 0; at < 8 * s->n_planes; at += 8, w += BLOCK_ROWS * 8) {
        __m256 xv[BLOCK_TOKENS];
        PHI_UNROLL
        for (size_t t = 0; t < n_tokens; t++)
            xv[t] = _mm256_loadu_ps(x[t] + at);
        PHI_UNROLL
        for (size_t r = 0; r < BLOCK_ROWS; r++) {
            __m256 wv = _mm256_load_ps(w + 8 * r);
            PHI_UNROLL
            for (size_t t = 0; t < n_tokens; t++)
                acc[t][r] = _mm256_fmadd_ps(wv, xv[t], acc[t][r]);
        }
    }

    if (!s->last) {
        PHI_UNROLL
        for (size_t t = 0; t < n_tokens; t++)
            PHI_UNROLL
        for (size_t r = 0; r < BLOCK_ROWS; r++)
            _mm256_store_ps(lanes + (t * PHI_STRIP_ROWS + r) * 8, acc[t][r]);
        return;
    }
    const size_t n_rows = s->a.n_rows - row < BLOCK_ROWS ? s->a.n_rows - row : BLOCK_ROWS;
    PHI_UNROLL
    for (size_t t = 0; t < n_tokens; t++) {
        float sums[BLOCK_ROWS], *y = s->a.y + (token + t) * s->a.ld_y + row;
        _mm_storeu_ps(n_rows == BLOCK_ROWS ? y : sums,
                      reduce8x4(acc[t][0], acc[t][1], acc[t][2], acc[t][3]));
        for (size_t r = 0; n_rows < BLOCK_ROWS && r < n_rows; r++)
            y[r] = sums[r];
    }
}

/* To the second level, as in x86_rows.h. */
PHI_INLINE void prefetch(const char *from, size_t n_bytes)
{
    for (size_t at = 0; at < n_bytes; at += 64)
        _mm_prefetch(from + at, _MM_HINT_T1);
}

/* All rows by n_tokens. The next tokens' rows are named meanwhile: in parts they are too short for
 * the hardware's prefetchers. */
PHI_INLINE void strip_tokens(const struct strip_part *s, size_t token, const struct strip_form form,
                             const size_t n_tokens)
{
    float room[BLOCK_TOKENS][WHOLE_K + 8];
    const float *x[BLOCK_TOKENS];
    PHI_UNROLL
    for (size_t t = 0; t < n_tokens; t++) {
        const char *row = (const char *)s->a.x + (token + t) * s->a.ld_x * form.x_bytes;
        prefetch(row + n_tokens * s->a.ld_x * form.x_bytes, s->a.k * form.x_bytes);
        x[t] = room[t];
        if (form.x_bytes == sizeof(float) && s->a.k % 8 == 0)
            x[t] = (const float *)row;
        else
            form.widen(room[t], row, s->a.k);
    }
    for (size_t row = 0; row < s->a.n_rows; row += BLOCK_ROWS)
        strip_tile(s, row, token, x, n_tokens);
}

PHI_INLINE void strip_columns(const struct strip_part *s, const struct strip_form form)
{
    const size_t n_tokens = s->a.n_tokens, n_rows = s->a.n_rows;
    pack_strip(&s->a, form.pack);
    for (size_t token = 0, n; token < n_tokens; token += n) {
        n = n_tokens - token < BLOCK_TOKENS ? n_tokens - token : BLOCK_TOKENS;
        for (size_t r = n_rows * token / n_tokens; r < n_rows * (token + n) / n_tokens; r++)
            prefetch(s->next + r * s->a.ld_w * form.pack.w_bytes, s->a.k * form.pack.w_bytes);
        if (n == BLOCK_TOKENS)
            strip_tokens(s, token, form, BLOCK_TOKENS);
        else if (n == 2)
            strip_tokens(s, token, form, 2);
        else
            strip_tokens(s, token, form, 1);
    }
}

/* Where there are several parts, as many tokens at a time as the scratch has room for their sums.
 */
PHI_INLINE void strip_matmul(const struct phi_matmul *a, const struct strip_form form)
{
    const size_t part_k = a->k <= WHOLE_K ? a->k : PART_K;
    const size_t strip_bytes = phi_matmul_scratch_bytes(part_k);
    size_t n_group = a->n_tokens;
    if (part_k < a->k)
        n_group = (phi_matmul_scratch_bytes(a->k) - strip_bytes) /
                  (PHI_STRIP_ROWS * 8 * sizeof(float)) / BLOCK_TOKENS * BLOCK_TOKENS;
    for (size_t token = 0; token < a->n_tokens; token += n_group)
        for (size_t begin = 0; begin < a->k; begin += part_k) {
            struct strip_part s = {.a = *a, .lanes = (float *)((char *)a->scratch + strip_bytes)};
            s.a.w = (const char *)a->w + begin * form.pack.w_bytes;
            s.a.x = (const char *)a->x + (token * a->ld_x + begin) * form.x_bytes;
            s.a.y = a->y + token * a->ld_y;
            s.a.n_tokens = a->n_tokens - token < n_group ? a->n_tokens - token : n_group;
            s.a.k = a->k - begin < part_k ? a->k - begin : part_k;
            s.n_planes = block_bytes(s.a.k, form.pack) / (BLOCK_ROWS * PLANE_BYTES);
            s.first = begin == 0;
            s.last = begin + s.a.k == a->k;
            s.next = s.last ? (const char *)a->w + PHI_STRIP_ROWS * a->ld_w * form.pack.w_bytes
                            : (const char *)s.a.w + part_k * form.pack.w_bytes;
            strip_columns(&s, form);
        }
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
