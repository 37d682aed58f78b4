/* x86_keys.h: the matrix product of short rows, the keys of an attention head, with AVX-512: few
 * tokens, no activations interleaved before. A register holds the lanes of two rows, as in
 * x86_strip.h, but the rows are widened as they are read in place. Private to the AVX-512 units. */
#ifndef PHI_KERNELS_X86_KEYS_H
#define PHI_KERNELS_X86_KEYS_H

#include "kernels/x86_rows.h"
#include "kernels/x86_strip.h"

enum {
    KEYS_MAX_K = 256,    /* longer rows come from memory, as one stream: x86_rows.h */
    KEYS_MAX_TOKENS = 8, /* more are worth a packed strip */
    KEYS_TOKENS = 3,     /* of a tile */
};

/* Eight elements of two rows, widened: those of the first in the lower half. */
typedef __m512 (*widen_two_fn)(const void *a, const void *b);

PHI_INLINE __m512 two_f32(const void *a, const void *b)
{
    return _mm512_insertf32x8(_mm512_castps256_ps512(load8_f32(a)), load8_f32(b), 1);
}

/* One shuffle puts all sixteen where the upper halves of floats are. */
PHI_INLINE __m512 two_bf16(const void *a, const void *b)
{
    const __m512i order =
        _mm512_set_epi32(0x00170017, 0x00160016, 0x00150015, 0x00140014, 0x00130013, 0x00120012,
                         0x00110011, 0x00100010, 0x00070007, 0x00060006, 0x00050005, 0x00040004,
                         0x00030003, 0x00020002, 0x00010001, 0);
    __m512i both = _mm512_castsi128_si512(_mm_loadu_si128(a));
    both = _mm512_mask_broadcast_i64x2(both, 0xF0, _mm_loadu_si128(b));
    return _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(0xAAAAAAAA, order, both));
}

PHI_INLINE __m512 two_f16(const void *a, const void *b)
{
    return _mm512_cvtph_ps(
        _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(a)), _mm_loadu_si128(b), 1));
}

struct keys_form {
    widen_two_fn widen;
    size_t w_bytes; /* of one element */
};

#define KEYS_F32 ((struct keys_form){two_f32, 4})
#define KEYS_BF16 ((struct keys_form){two_bf16, 2})
#define KEYS_F16 ((struct keys_form){two_f16, 2})

PHI_INLINE bool are_keys(const struct phi_matmul *a)
{
    return !a->x_interleaved && a->segment_k == 0 && a->k <= KEYS_MAX_K &&
           a->n_tokens <= KEYS_MAX_TOKENS;
}

/* Columns k to k + 7. */
PHI_INLINE void keys_step(__m512 acc[][BLOCK_REGISTERS], const char *const rows[BLOCK_ROWS],
                          const float *const x[], size_t k, const struct keys_form form,
                          const size_t n_tokens)
{
    PHI_UNROLL
    for (size_t r = 0; r < BLOCK_REGISTERS; r++) {
        const size_t at = k * form.w_bytes;
        const __m512 w = form.widen(rows[2 * r] + at, rows[2 * r + 1] + at);
        PHI_UNROLL
        for (size_t t = 0; t < n_tokens; t++) {
            const __m512 xv = _mm512_broadcast_f32x8(_mm256_loadu_ps(x[t] + k));
            acc[t][r] = _mm512_fmadd_ps(w, xv, acc[t][r]);
        }
    }
}

/* Eight rows, of which those that do not exist repeat the last one: what reduce_tokens takes. */
PHI_INLINE void keys_dots(__m512 sums[KEYS_TOKENS], const struct phi_matmul *a, size_t row,
                          size_t token, const struct keys_form form, const size_t n_tokens)
{
    const char *rows[BLOCK_ROWS];
    const float *x[KEYS_TOKENS];
    __m512 acc[KEYS_TOKENS][BLOCK_REGISTERS];
    PHI_UNROLL
    for (size_t r = 0; r < BLOCK_ROWS; r++) {
        const size_t from = row + r < a->n_rows ? row + r : a->n_rows - 1;
        rows[r] = (const char *)a->w + from * a->ld_w * form.w_bytes;
    }
    PHI_UNROLL
    for (size_t t = 0; t < n_tokens; t++) {
        x[t] = (const float *)a->x + (token + t) * a->ld_x;
        PHI_UNROLL
        for (size_t r = 0; r < BLOCK_REGISTERS; r++)
            acc[t][r] = _mm512_setzero_ps();
    }
    size_t k = 0;
    for (; k + 16 <= a->k; k += 16) {
        keys_step(acc, rows, x, k, form, n_tokens);
        keys_step(acc, rows, x, k + 8, form, n_tokens);
    }
    for (; k < a->k; k += 8) {
        unsigned char w_rest[BLOCK_ROWS][32], x_rest[KEYS_TOKENS][32];
        const char *w_at[BLOCK_ROWS];
        const float *x_at[KEYS_TOKENS];
        const size_t n = a->k - k < 8 ? a->k - k : 8;
        for (size_t r = 0; r < BLOCK_ROWS; r++)
            w_at[r] = padded(w_rest[r], rows[r] + k * form.w_bytes, n * form.w_bytes, true);
        for (size_t t = 0; t < n_tokens; t++)
            x_at[t] = padded(x_rest[t], (const char *)(x[t] + k), n * sizeof(float), true);
        keys_step(acc, w_at, x_at, 0, form, n_tokens);
    }
    PHI_UNROLL
    for (size_t t = 0; t < n_tokens; t++)
        sums[t] = reduce_rows(acc[t]);
}

/* n_tokens <= KEYS_TOKENS is a constant where this is inlined. */
PHI_INLINE void keys_tile(const struct phi_matmul *a, size_t token, const struct keys_form form,
                          const size_t n_tokens)
{
    const __mmask16 mask = (__mmask16)((1u << a->n_rows) - 1);
    __m512 low[KEYS_TOKENS], high[KEYS_TOKENS];
    keys_dots(low, a, 0, token, form, n_tokens);
    keys_dots(high, a, BLOCK_ROWS, token, form, n_tokens);
    PHI_UNROLL
    for (size_t t = 0; t < n_tokens; t++)
        _mm512_mask_storeu_ps(a->y + (token + t) * a->ld_y, mask, reduce_tokens(low[t], high[t]));
}

PHI_INLINE void keys_matmul(const struct phi_matmul *a, const struct keys_form form)
{
    _Static_assert(PHI_STRIP_ROWS == 2 * BLOCK_ROWS, "two times eight rows");
    assert(a->n_rows <= PHI_STRIP_ROWS);
    size_t token = 0;
    for (; token + KEYS_TOKENS <= a->n_tokens; token += KEYS_TOKENS)
        keys_tile(a, token, form, KEYS_TOKENS);
    if (token + 2 == a->n_tokens)
        keys_tile(a, token, form, 2);
    else if (token < a->n_tokens)
        keys_tile(a, token, form, 1);
}

#endif
