/* x86_attention.h: many queries against one block of keys. A vec holds the same thing of
 * neighbouring queries, which is why queries and sums stand transposed: scores, exponentials and
 * weighted sums then need no shuffles, the eight lanes of a dot product are eight vecs, and keys
 * and values come in as broadcast scalars. A tile keeps as many sums as the registers hold. Private
 * to the x86 units. */
#ifndef PHI_KERNELS_X86_ATTENTION_H
#define PHI_KERNELS_X86_ATTENTION_H

#include "kernels/x86_vec.h"

enum {
    TILE_VECS = 3, /* of queries */
    TILE_KEYS = 4,
    TILE_LANES = VEC_FLOATS / 8,        /* at once: 24 or 12 sums in all */
    TILE_DIMS = TILE_KEYS * TILE_LANES, /* as many again */
    SCORES_LD = TILE_VECS * VEC_FLOATS, /* of a tile's scores [PHI_KEY_BLOCK, SCORES_LD] */
};

/* What some row of a tile sees, and whether all rows see the whole block. */
struct key_range {
    size_t lo, hi; /* lo >= hi: nothing */
    bool whole;
};

PHI_INLINE struct key_range range_of_rows(const struct phi_attention_block *a, size_t row, size_t n)
{
    struct key_range range = {PHI_KEY_BLOCK, 0, true};
    for (size_t r = row; r < row + n; r++) {
        const size_t lo = (size_t)a->lo[r], hi = (size_t)a->hi[r];
        range.whole &= lo == 0 && hi == PHI_KEY_BLOCK;
        if (lo < hi) {
            range.lo = lo < range.lo ? lo : range.lo;
            range.hi = hi > range.hi ? hi : range.hi;
        }
    }
    return range;
}

typedef vec tile_sums[TILE_KEYS][TILE_VECS];

/* Lane `lane` of the dot products of key j + i with the queries of vec v, and lane + 4 in the same loop
 * where TILE_LANES is 2: the sum of both is b[i][v]. Else b is the lane, or is added to it. */
PHI_INLINE void lane_sums(const struct phi_attention_block *a, size_t row, size_t j, size_t lane,
                          const bool add, const size_t n_vecs, tile_sums b)
{
    tile_sums acc[TILE_LANES];
    PHI_UNROLL
    for (size_t l = 0; l < TILE_LANES; l++)
        PHI_UNROLL
        for (size_t i = 0; i < TILE_KEYS; i++)
            PHI_UNROLL
            for (size_t v = 0; v < n_vecs; v++)
                acc[l][i][v] = vec_all(0.0f);
    const float *key = a->k + j * a->ld_kv;
    for (size_t d = lane; d < a->d; d += 8)
        PHI_UNROLL
        for (size_t l = 0; l < TILE_LANES; l++) {
            vec q[TILE_VECS];
            PHI_UNROLL
            for (size_t v = 0; v < n_vecs; v++)
                q[v] = vec_load(a->q + (d + 4 * l) * a->ld + row + v * VEC_FLOATS);
            PHI_UNROLL
            for (size_t i = 0; i < TILE_KEYS; i++) {
                vec element = vec_all(key[i * a->ld_kv + d + 4 * l]);
                PHI_UNROLL
                for (size_t v = 0; v < n_vecs; v++)
                    acc[l][i][v] = vec_fma(element, q[v], acc[l][i][v]);
            }
        }
    PHI_UNROLL
    for (size_t i = 0; i < TILE_KEYS; i++)
        PHI_UNROLL
        for (size_t v = 0; v < n_vecs; v++) {
            vec sum = TILE_LANES == 2 ? vec_add(acc[0][i][v], acc[TILE_LANES - 1][i][v])
                                      : acc[0][i][v];
            b[i][v] = add ? vec_add(b[i][v], sum) : sum;
        }
}

/* Step 1 of NUMERICS.md 7 for keys lo <= j < hi, both multiples of TILE_KEYS. */
PHI_INLINE void score_tile(const struct phi_attention_block *a, size_t row, size_t lo, size_t hi,
                           const size_t n_vecs, float *s)
{
    for (size_t j = lo; j < hi; j += TILE_KEYS) {
        tile_sums b[4];
/* Four pairs in a row are faster than a loop over them, eight lanes are slower. */
#pragma GCC unroll TILE_LANES == 2 ? 4 : 1
        for (size_t lane = 0; lane < 8 / TILE_LANES; lane++)
            lane_sums(a, row, j, lane, TILE_LANES == 1 && lane >= 4, n_vecs, b[lane % 4]);
        PHI_UNROLL
        for (size_t i = 0; i < TILE_KEYS; i++)
            PHI_UNROLL
            for (size_t v = 0; v < n_vecs; v++) {
                vec c0 = vec_add(b[0][i][v], b[2][i][v]), c1 = vec_add(b[1][i][v], b[3][i][v]);
                vec_store(s + (j + i) * SCORES_LD + v * VEC_FLOATS,
                          vec_mul(vec_add(c0, c1), vec_all(a->scale)));
            }
    }
}

/* Steps 2 and 3 for one vec of rows and keys lo <= j < hi, both multiples of eight. */
PHI_INLINE void softmax_vec(const struct phi_attention_block *a, size_t row, size_t lo, size_t hi,
                            const bool whole, float *s, float *c)
{
    const vec_int first = vec_load_int(a->lo + row), end = vec_load_int(a->hi + row);
    const vec old = vec_load(a->m + row), zero = vec_all(0.0f);
    vec top[4] = {old, old, old, old};
    for (size_t j = lo; j < hi; j += 4)
        PHI_UNROLL
        for (size_t i = 0; i < 4; i++) {
            vec x = vec_load(s + (j + i) * SCORES_LD);
            if (!whole)
                x = vec_select(vec_within(first, (int32_t)(j + i), end), x, old);
            top[i] = vec_max(x, top[i]);
        }
    vec m = vec_max(vec_max(top[0], top[1]), vec_max(top[2], top[3]));
    m = vec_add(m, zero);

    vec lanes[8];
    PHI_UNROLL
    for (size_t i = 0; i < 8; i++)
        lanes[i] = zero;
    for (size_t j = lo; j < hi; j += 8)
        PHI_UNROLL
        for (size_t i = 0; i < 8; i++) {
            float *at = s + (j + i) * SCORES_LD;
            vec p = vec_exp(vec_sub(vec_load(at), m));
            if (!whole)
                p = vec_select(vec_within(first, (int32_t)(j + i), end), p, zero);
            vec_store(at, p);
            lanes[i] = vec_add(lanes[i], p);
        }
    vec b[4];
    PHI_UNROLL
    for (size_t i = 0; i < 4; i++)
        b[i] = vec_add(lanes[i], lanes[i + 4]);
    vec sum = vec_add(vec_add(b[0], b[2]), vec_add(b[1], b[3]));

    vec_mask sees = vec_less(first, end);
    vec factor = vec_exp(vec_sub(old, m)), l = vec_load(a->l + row);
    vec_store(c, vec_select(sees, factor, vec_all(1.0f)));
    vec_store(a->l + row, vec_select(sees, vec_fma(l, factor, sum), l));
    vec_store(a->m + row, vec_select(sees, m, old));
}

/* Step 4 for keys lo <= j < hi. */
PHI_INLINE void sum_dims(const struct phi_attention_block *a, size_t row, size_t dim,
                         struct key_range range, const bool whole, const size_t n_vecs,
                         const float *s, const float *c)
{
    vec acc[TILE_DIMS][TILE_VECS];
    PHI_UNROLL
    for (size_t i = 0; i < TILE_DIMS; i++)
        PHI_UNROLL
        for (size_t v = 0; v < n_vecs; v++)
            acc[i][v] = vec_mul(vec_load(a->acc + (dim + i) * a->ld + row + v * VEC_FLOATS),
                                vec_load(c + v * VEC_FLOATS));
    for (size_t j = range.lo; j < range.hi; j++) {
        const float *value = a->v + j * a->ld_kv + dim;
        vec p[TILE_VECS];
        vec_mask sees[TILE_VECS];
        PHI_UNROLL
        for (size_t v = 0; v < n_vecs; v++) {
            p[v] = vec_load(s + j * SCORES_LD + v * VEC_FLOATS);
            if (!whole)
                sees[v] = vec_within(vec_load_int(a->lo + row + v * VEC_FLOATS), (int32_t)j,
                                     vec_load_int(a->hi + row + v * VEC_FLOATS));
        }
        PHI_UNROLL
        for (size_t i = 0; i < TILE_DIMS; i++) {
            vec element = vec_all(value[i]);
            PHI_UNROLL
            for (size_t v = 0; v < n_vecs; v++) {
                vec sum = vec_fma(p[v], element, acc[i][v]);
                acc[i][v] = whole ? sum : vec_select(sees[v], sum, acc[i][v]);
            }
        }
    }
    PHI_UNROLL
    for (size_t i = 0; i < TILE_DIMS; i++)
        PHI_UNROLL
        for (size_t v = 0; v < n_vecs; v++)
            vec_store(a->acc + (dim + i) * a->ld + row + v * VEC_FLOATS, acc[i][v]);
}

/* n_vecs <= TILE_VECS and `whole` are constants where this is inlined. */
PHI_INLINE void attend_tile(const struct phi_attention_block *a, size_t row,
                            struct key_range range, const bool whole, const size_t n_vecs)
{
    _Alignas(64) float s[PHI_KEY_BLOCK * SCORES_LD], c[SCORES_LD];
    const size_t lo = range.lo / 8 * 8, hi = (range.hi + 7) / 8 * 8;
    score_tile(a, row, lo, hi, n_vecs, s);
    for (size_t i = 0; i < n_vecs * VEC_FLOATS; i += VEC_FLOATS)
        softmax_vec(a, row + i, lo, hi, whole, s + i, c + i);
    for (size_t dim = 0; dim < a->d; dim += TILE_DIMS)
        sum_dims(a, row, dim, range, whole, n_vecs, s, c);
}

/* One vec of rows is nearly as fast as several, and leaves out more of what nobody sees. */
static void attend_rows_apart(const struct phi_attention_block *a, size_t row, size_t n_vecs)
{
    for (size_t end = row + n_vecs * VEC_FLOATS; row < end; row += VEC_FLOATS) {
        struct key_range range = range_of_rows(a, row, VEC_FLOATS);
        if (range.lo < range.hi)
            attend_tile(a, row, range, false, 1);
    }
}

static void attention_block(const struct phi_attention_block *a)
{
    assert(a->n_rows % PHI_QUERY_STEP == 0 && a->d % 8 == 0);
    for (size_t row = 0, n; row < a->n_rows; row += n * VEC_FLOATS) {
        const size_t left = (a->n_rows - row) / VEC_FLOATS;
        n = left < TILE_VECS ? left : TILE_VECS;
        const struct key_range range = range_of_rows(a, row, n * VEC_FLOATS);
        if (!range.whole)
            attend_rows_apart(a, row, n);
        else if (n == TILE_VECS)
            attend_tile(a, row, range, true, TILE_VECS);
        else if (n == 2)
            attend_tile(a, row, range, true, 2);
        else
            attend_tile(a, row, range, true, 1);
    }
}

#endif
