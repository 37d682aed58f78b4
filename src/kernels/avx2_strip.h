/* avx2_strip.h: the matrix product for many tokens, with AVX2. Lanes do not meet before the end, so
 * a register may hold one lane of eight rows as well as eight lanes of one row. Sixteen registers
 * do more with the former: an activation that is loaded once meets all sixteen rows of a strip,
 * where a tile of lanes would be four rows by three tokens and wait for its loads.
 *
 * The strip is turned into a->scratch once for all tokens; columns go by parts whose activations
 * stay in the L1 cache while one lane after the other is computed:
 *     [part][lane][plane][row]
 * A plane is eight float32 of a row, one for each lane (x86_pack.h). */
#ifndef PHI_KERNELS_AVX2_STRIP_H
#define PHI_KERNELS_AVX2_STRIP_H

#include "kernels/x86_pack.h"

enum {
    N_LANES = 8,
    TURNED_ROWS = 8, /* at a time */
    STRIP_VECS = PHI_STRIP_ROWS / 8,
    MAX_TOKENS = 6,   /* of a tile: 12 sums, two registers of weights, an activation */
    MIN_TOKENS = 4,   /* what tiles of like size come to */
    PART_PLANES = 32, /* 6 KiB of activations, and as many that come next */
};

/* Planes of the activations at x, in the order of the weights'; zeros behind the k-th element. */
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

#define STRIP_F32 ((struct strip_form){{pack_f32, 1, 8, 4, TURNED_ROWS}, widen_f32, 4})
#define STRIP_BF16 ((struct strip_form){{pack_bf16, 1, 8, 2, TURNED_ROWS}, widen_f32, 4})
#define STRIP_F16 ((struct strip_form){{pack_f16, 1, 8, 2, TURNED_ROWS}, widen_f32, 4})
#define STRIP_PAIRS                                                                                \
    ((struct strip_form){{pack_split_pairs, 2, 16, 2, TURNED_ROWS}, widen_split_pairs, 2})

/* Some columns, and the floats of one lane of theirs in the strip. */
struct strip_part {
    size_t begin, k;
    size_t n_planes, lane_floats;
};

PHI_INLINE struct strip_part part_from(const struct phi_matmul *a, size_t begin,
                                       const struct pack_form form)
{
    const size_t most = PART_PLANES / (size_t)form.n_planes * form.step_k;
    struct strip_part p = {begin, a->k - begin < most ? a->k - begin : most, 0, 0};
    p.n_planes = (p.k + form.step_k - 1) / form.step_k * (size_t)form.n_planes;
    p.lane_floats = p.n_planes * PHI_STRIP_ROWS;
    return p;
}

/* ---------------------------------------------------------------- turning the strip */

/* One step of eight rows, `at` bytes behind w. */
PHI_INLINE void turn_step(float *to, const struct strip_part *p, const char *const w[TURNED_ROWS],
                          size_t at, const struct pack_form form)
{
    PHI_UNROLL
    for (int plane = 0; plane < form.n_planes; plane++, to += PHI_STRIP_ROWS) {
        __m256 v[TURNED_ROWS];
        PHI_UNROLL
        for (size_t r = 0; r < TURNED_ROWS; r++)
            v[r] = _mm256_castsi256_ps(form.pack(w[r] + at, plane));
        transpose8x8(v);
        PHI_UNROLL
        for (size_t lane = 0; lane < N_LANES; lane++)
            _mm256_store_ps(to + lane * p->lane_floats, v[lane]);
    }
}

/* Eight rows from `row` on; those that do not exist repeat the last one. */
PHI_INLINE void turn_rows(float *to, const struct phi_matmul *a, const struct strip_part *p,
                          size_t row, const struct pack_form form)
{
    const char *w[TURNED_ROWS];
    for (size_t r = 0; r < TURNED_ROWS; r++) {
        size_t from = row + r < a->n_rows ? row + r : a->n_rows - 1;
        w[r] = (const char *)a->w + (from * a->ld_w + p->begin) * form.w_bytes;
    }
    size_t i = 0;
    for (; i + form.step_k <= p->k; i += form.step_k, to += form.n_planes * PHI_STRIP_ROWS)
        turn_step(to, p, w, i * form.w_bytes, form);
    if (i < p->k) {
        unsigned char rest[TURNED_ROWS][32] = {{0}};
        for (size_t r = 0; r < TURNED_ROWS; r++)
            w[r] = memcpy(rest[r], w[r] + i * form.w_bytes, (p->k - i) * form.w_bytes);
        turn_step(to, p, w, 0, form);
    }
}

PHI_INLINE void turn_strip(const struct phi_matmul *a, const struct pack_form form)
{
    float *to = a->scratch;
    for (size_t begin = 0; begin < a->k;) {
        const struct strip_part p = part_from(a, begin, form);
        for (size_t row = 0; row < PHI_STRIP_ROWS; row += TURNED_ROWS)
            turn_rows(to + row, a, &p, row, form);
        to += N_LANES * p.lane_floats;
        begin += p.k;
    }
}

/* ---------------------------------------------------------------- tiles

 * n_tokens is a constant where these are inlined. */

/* The sums of one lane, [n_tokens, PHI_STRIP_ROWS], go on over one part. Of the activations every
 * eighth from x on is this lane's. */
PHI_INLINE void tile_lane(float *sums, const float *w, const char *x, size_t ld_bytes,
                          const struct strip_part *p, const size_t n_tokens)
{
    __m256 acc[MAX_TOKENS][STRIP_VECS];
    PHI_UNROLL
    for (size_t t = 0; t < n_tokens; t++)
        PHI_UNROLL
    for (size_t v = 0; v < STRIP_VECS; v++)
        acc[t][v] =
            p->begin ? _mm256_load_ps(sums + t * PHI_STRIP_ROWS + v * 8) : _mm256_setzero_ps();

    const float *end = w + p->lane_floats;
    for (; w < end; w += PHI_STRIP_ROWS, x += PLANE_BYTES) {
        __m256 wv[STRIP_VECS];
        PHI_UNROLL
        for (size_t v = 0; v < STRIP_VECS; v++)
            wv[v] = _mm256_load_ps(w + v * 8);
        PHI_UNROLL
        for (size_t t = 0; t < n_tokens; t++) {
            const __m256 xv = _mm256_broadcast_ss((const float *)(x + t * ld_bytes));
            PHI_UNROLL
            for (size_t v = 0; v < STRIP_VECS; v++)
                acc[t][v] = _mm256_fmadd_ps(wv[v], xv, acc[t][v]);
        }
    }

    PHI_UNROLL
    for (size_t t = 0; t < n_tokens; t++)
        PHI_UNROLL
    for (size_t v = 0; v < STRIP_VECS; v++)
        _mm256_store_ps(sums + t * PHI_STRIP_ROWS + v * 8, acc[t][v]);
}

/* Names n_bytes of each token's row. */
PHI_INLINE void prefetch_tokens(const char *x, size_t ld_bytes, const size_t n_bytes,
                                const size_t n_tokens)
{
    PHI_UNROLL
    for (size_t t = 0; t < n_tokens; t++)
        PHI_UNROLL
    for (size_t at = 0; at < n_bytes; at += 64)
        _mm_prefetch(x + t * ld_bytes + at, _MM_HINT_T0);
}

/* All lanes over one part. Meanwhile what comes next is named, an eighth with each lane: the next
 * part, or the first one of the next tokens. In parts rows are too short for the hardware. */
PHI_INLINE void tile_part(const struct phi_matmul *a, size_t token, const struct strip_part *p,
                          float sums[N_LANES][MAX_TOKENS * PHI_STRIP_ROWS], const float *w,
                          const struct strip_form form, const size_t n_tokens)
{
    float room[MAX_TOKENS][PART_PLANES * 8 + 8];
    const size_t row_bytes = a->ld_x * form.x_bytes;
    const size_t named_bytes =
        PART_PLANES / (size_t)form.pack.n_planes * form.pack.step_k * form.x_bytes / N_LANES;
    const char *row = (const char *)a->x + token * row_bytes, *x = row + p->begin * form.x_bytes;
    const char *next =
        p->begin + p->k < a->k ? x + p->k * form.x_bytes : row + n_tokens * row_bytes;
    size_t ld_bytes = row_bytes;
    if (form.x_bytes != sizeof(float) || p->k % 8 != 0) {
        for (size_t t = 0; t < n_tokens; t++)
            form.widen(room[t], x + t * row_bytes, p->k);
        x = (const char *)room;
        ld_bytes = sizeof room[0];
    }
    for (size_t lane = 0; lane < N_LANES; lane++, w += p->lane_floats) {
        prefetch_tokens(next + lane * named_bytes, row_bytes, named_bytes, n_tokens);
        tile_lane(sums[lane], w, x + lane * sizeof(float), ld_bytes, p, n_tokens);
    }
}

/* The lanes meet: reduce8 of NUMERICS.md 3 for eight rows from `row` on. */
PHI_INLINE __m256 lanes_meet(float sums[N_LANES][MAX_TOKENS * PHI_STRIP_ROWS], size_t row)
{
    __m256 b[4];
    PHI_UNROLL
    for (size_t l = 0; l < 4; l++)
        b[l] = _mm256_add_ps(_mm256_load_ps(sums[l] + row), _mm256_load_ps(sums[l + 4] + row));
    return _mm256_add_ps(_mm256_add_ps(b[0], b[2]), _mm256_add_ps(b[1], b[3]));
}

PHI_INLINE void strip_tile(const struct phi_matmul *a, size_t token, const struct strip_form form,
                           const size_t n_tokens)
{
    float sums[N_LANES][MAX_TOKENS * PHI_STRIP_ROWS] __attribute__((aligned(32)));
    const float *w = a->scratch;
    for (size_t begin = 0; begin < a->k;) {
        const struct strip_part p = part_from(a, begin, form.pack);
        tile_part(a, token, &p, sums, w, form, n_tokens);
        w += N_LANES * p.lane_floats;
        begin += p.k;
    }
    for (size_t t = 0; t < n_tokens; t++) {
        float rest[PHI_STRIP_ROWS], *y = a->y + (token + t) * a->ld_y;
        const bool whole = a->n_rows == PHI_STRIP_ROWS;
        PHI_UNROLL
        for (size_t row = 0; row < PHI_STRIP_ROWS; row += 8)
            _mm256_storeu_ps((whole ? y : rest) + row, lanes_meet(sums, t * PHI_STRIP_ROWS + row));
        if (!whole)
            memcpy(y, rest, a->n_rows * sizeof *y);
    }
}

/* At least MIN_TOKENS * 2 tokens. */
PHI_INLINE void strip_matmul(const struct phi_matmul *a, const struct strip_form form)
{
    const size_t n_tiles = (a->n_tokens + MAX_TOKENS - 1) / MAX_TOKENS;
    struct strip_prefetch next = prefetch_start(a, form.pack.w_bytes, n_tiles);
    turn_strip(a, form.pack);
    for (size_t i = 0, token = 0, end; i < n_tiles; i++, token = end) {
        end = a->n_tokens * (i + 1) / n_tiles;
        prefetch_some(&next);
        switch (end - token) {
        case MIN_TOKENS:
            strip_tile(a, token, form, MIN_TOKENS);
            break;
        case MIN_TOKENS + 1:
            strip_tile(a, token, form, MIN_TOKENS + 1);
            break;
        case MAX_TOKENS:
            strip_tile(a, token, form, MAX_TOKENS);
            break;
        }
    }
}

#endif
