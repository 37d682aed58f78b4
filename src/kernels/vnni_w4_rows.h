/* vnni_w4_rows.h: products of 4-bit weights with one or two tokens. Rows are read two abreast:
 * memory is fastest where what is read at a time lies in few pages. Lanes meet across rows, so that
 * a register comes to hold the sums of four rows in four blocks; the strip's four quads of rows
 * then turn into registers of sixteen rows, in which the chain over the groups runs. Private to
 * avx512_vnni.c. */
#ifndef PHI_KERNELS_VNNI_W4_ROWS_H
#define PHI_KERNELS_VNNI_W4_ROWS_H

#include "kernels/vnni_steps.h"

enum {
    W4_ROWS_TOKENS = 2,    /* at most */
    QUAD = 4,              /* rows whose sums share a register; blocks of a step */
    SUMS = PHI_STRIP_ROWS, /* of a register */
};

/* ---------------------------------------------------------------- lines to come */

enum {
    LEAST_AHEAD = 8192, /* bytes from what is read to what is named */
    PAIR_LINES = 1,     /* to name with each step of a quad's first pair of rows */
    LATER_LINES = 2,    /* of its second */
    JOIN_LINES = 4,     /* where the sums of a step join: the rest of its sixteen */
};

/* The weights are one stream to be named, not only where they are read: memory would be idle while
 * sums join. Until then that leaves four rows of the strip unnamed, which have to be ahead. */
struct line_stream {
    const char *line;
    size_t ahead;
};

PHI_INLINE struct line_stream line_stream(const struct phi_quant_matmul *a)
{
    const size_t ahead = LEAST_AHEAD + PHI_STRIP_ROWS / JOIN_LINES * a->row_bytes;
    return (struct line_stream){(const char *)a->w + ahead, ahead};
}

/* Each line twice: the second level drops requests when it has too many under way. */
PHI_INLINE void name_lines(struct line_stream *s, const size_t n)
{
    PHI_UNROLL
    for (size_t i = 0; i < n; i++, s->line += STEP) {
        prefetch(s->line + s->ahead);
        prefetch(s->line);
    }
}

/* ---------------------------------------------------------------- reading */

/* Pairs of lanes meet: in each quarter those of a, then those of b. They have to fit 16 bits: the
 * eight products of a step do, 15 * 127 each, and two such sums too. */
PHI_INLINE __m512i meet(__m512i a, __m512i b)
{
    return _mm512_madd_epi16(_mm512_packs_epi32(a, b), _mm512_set1_epi16(1));
}

/* A step of two rows by n tokens. */
PHI_INLINE void pair_step(__m512i sums[W4_ROWS_TOKENS], const char *const w[2], size_t at,
                          size_t n_bytes, const int8_t *x, size_t ld_x, load_step_fn load,
                          const size_t n)
{
    __m512i v[W4_ROWS_TOKENS][2];
    PHI_UNROLL
    for (size_t r = 0; r < 2; r++) {
        __m512i bytes = load(w[r], at, n_bytes);
        __asm__("" : "+v"(bytes)); /* or gcc loads it twice */
        PHI_UNROLL
        for (size_t t = 0; t < n; t++) {
            const int8_t *x_step = x + t * ld_x + 2 * at;
            v[t][r] = dot(_mm512_setzero_si512(), low_nibbles(bytes), _mm512_load_si512(x_step));
            v[t][r] = dot(v[t][r], high_nibbles(bytes), _mm512_load_si512(x_step + STEP));
        }
    }
    PHI_UNROLL
    for (size_t t = 0; t < n; t++)
        sums[t] = meet(v[t][0], v[t][1]);
}

/* Rows row and row + 1; those that do not exist repeat the last one. A register of `sums` for each
 * step, one of each four; ld_sums is from token to token. The second pair of a quad meets the
 * first, and quarter b of the register then holds the quad's sums of block b. */
PHI_INLINE void read_pair(const struct phi_quant_matmul *a, size_t row, int32_t *sums,
                          size_t ld_sums, struct line_stream *lines, const bool second,
                          const size_t n)
{
    const size_t n_bytes = (a->k + 1) / 2;
    struct line_stream stream = *lines; /* gcc keeps it in registers */
    const char *w[2];
    PHI_UNROLL
    for (size_t r = 0; r < 2; r++) {
        const size_t from = row + r < a->n_rows ? row + r : a->n_rows - 1;
        w[r] = (const char *)a->w + from * a->row_bytes;
    }
    for (size_t at = 0; at < n_bytes; at += STEP, sums += QUAD * SUMS) {
        __m512i v[W4_ROWS_TOKENS];
        name_lines(&stream, second ? LATER_LINES : PAIR_LINES);
        if (at + STEP <= n_bytes)
            pair_step(v, w, at, n_bytes, a->x, a->ld_x, whole_step, n);
        else
            pair_step(v, w, at, n_bytes, a->x, a->ld_x, row_step, n);
        PHI_UNROLL
        for (size_t t = 0; t < n; t++) {
            int32_t *to = sums + t * ld_sums;
            _mm512_store_si512(to, second ? meet(_mm512_load_si512(to), v[t]) : v[t]);
        }
    }
    *lines = stream;
}

/* ---------------------------------------------------------------- joining */

/* From registers of four rows by four blocks to registers of one block. */
PHI_INLINE void turn_quads(__m512i v[QUAD], const int32_t *sums)
{
    const __m512i *quad = (const __m512i *)(const void *)sums;
    const __m512i a = _mm512_shuffle_i32x4(quad[0], quad[1], 0x44);
    const __m512i b = _mm512_shuffle_i32x4(quad[0], quad[1], 0xEE);
    const __m512i c = _mm512_shuffle_i32x4(quad[2], quad[3], 0x44);
    const __m512i d = _mm512_shuffle_i32x4(quad[2], quad[3], 0xEE);
    v[0] = _mm512_shuffle_i32x4(a, c, 0x88);
    v[1] = _mm512_shuffle_i32x4(a, c, 0xDD);
    v[2] = _mm512_shuffle_i32x4(b, d, 0x88);
    v[3] = _mm512_shuffle_i32x4(b, d, 0xDD);
}

PHI_INLINE size_t w4_blocks(size_t n)
{
    return (n + PHI_QUANT_BLOCK - 1) / PHI_QUANT_BLOCK;
}

/* One token's chains over the groups, in sixteen rows and all segments; the activations' sums take
 * out what weights of n + 8 added. */
PHI_INLINE void join_quads(const struct phi_quant_matmul *a, size_t token, const int32_t *sums,
                           struct line_stream *lines, const size_t per_group, const size_t n_tokens)
{
    const __m512 x_scale = _mm512_set1_ps(a->x_scale ? a->x_scale[token] : 1.0f);
    const __mmask16 rows = (__mmask16)((1u << a->n_rows) - 1);
    const int32_t *extra = a->x_sums + token * a->ld_sums;
    const size_t n_blocks = w4_blocks(a->k);
    const size_t per_segment = a->segment ? w4_blocks(a->segment) : n_blocks;
    const float *scale = packed_scales(a);
    float *y = a->y + token * a->ld_y;
    for (size_t block = 0, end = 0; block < n_blocks; y += a->plane) {
        __m512 acc = _mm512_setzero_ps();
        __m512i sum = _mm512_setzero_si512();
        size_t left = per_group;
        end = n_blocks - end < per_segment ? n_blocks : end + per_segment;
        for (; block < end; block += QUAD, sums += QUAD * SUMS) {
            __m512i v[QUAD];
            name_lines(lines, JOIN_LINES / n_tokens);
            turn_quads(v, sums);
            PHI_UNROLL
            for (size_t i = 0; i < QUAD; i++) {
                if (block + i == end)
                    break;
                sum = _mm512_add_epi32(sum, v[i]);
                sum = _mm512_add_epi32(sum, _mm512_set1_epi32(extra[block + i]));
                if (--left > 0)
                    continue;
                acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_load_ps(scale), acc);
                scale += PHI_STRIP_ROWS;
                sum = _mm512_setzero_si512();
                left = per_group;
            }
        }
        _mm512_mask_storeu_ps(y, rows, _mm512_mul_ps(acc, x_scale));
    }
}

/* ---------------------------------------------------------------- a strip */

/* sums [token][step][quad][SUMS] */
PHI_INLINE void w4_rows_by(const struct phi_quant_matmul *a, const size_t n_tokens)
{
    const size_t ld_sums = phi_quant_n_sums(a->k) * PHI_STRIP_ROWS;
    struct line_stream lines = line_stream(a);
    int32_t *sums = a->scratch;
    for (size_t row = 0; row < PHI_STRIP_ROWS; row += QUAD) {
        int32_t *quad = sums + row / QUAD * SUMS;
        read_pair(a, row, quad, ld_sums, &lines, false, n_tokens);
        read_pair(a, row + 2, quad, ld_sums, &lines, true, n_tokens);
    }
    for (size_t t = 0; t < n_tokens; t++, sums += ld_sums) {
        if (a->group == PHI_QUANT_BLOCK)
            join_quads(a, t, sums, &lines, 1, n_tokens);
        else
            join_quads(a, t, sums, &lines, w4_blocks(a->group), n_tokens);
    }
}

static void w4_rows(const struct phi_quant_matmul *a)
{
    if (a->n_tokens == 1)
        w4_rows_by(a, 1);
    else
        w4_rows_by(a, 2);
}

#endif
