/* x86_sum.h: weighted sums of value rows read in place, for a few rows of weights: while one
 * register of values is widened, it serves up to four rows. What will be read next is asked for
 * meanwhile, since memory sets the speed and a page of the KV pool is too short for the hardware to
 * see where it goes on. Private to the x86 units. */
#ifndef PHI_KERNELS_X86_SUM_H
#define PHI_KERNELS_X86_SUM_H

#include "kernels/x86_vec.h"

enum { SUM_ROWS = 4, SUM_COLUMNS = VEC_FLOATS == 16 ? 4 : 8 };

struct value_form {
    vec (*load)(const void *p);
    load8_fn load8;
    size_t bytes; /* of one element */
};

#define VALUES_F32 ((struct value_form){vec_load_f32, load8_f32, 4})
#define VALUES_BF16 ((struct value_form){vec_load_bf16, load8_bf16, 2})
#define VALUES_F16 ((struct value_form){vec_load_f16, load8_f16, 2})

struct key_span {
    size_t lo, hi;
};

/* n_rows rows from `row` on and n_columns vecs from dimension d on; both counts are constants where
 * this is inlined. */
PHI_INLINE void sum_tile(const struct phi_weighted_sum *a, size_t row, size_t d,
                         struct key_span keys, const struct value_form form, const size_t n_rows,
                         const size_t n_columns)
{
    vec acc[SUM_ROWS][SUM_COLUMNS];
    float *to = a->acc + row * a->ld_acc + d;
    const float *p = a->p + row * a->ld_p;
    PHI_UNROLL
    for (size_t r = 0; r < n_rows; r++)
        PHI_UNROLL
        for (size_t c = 0; c < n_columns; c++)
            acc[r][c] = vec_load(to + r * a->ld_acc + c * VEC_FLOATS);
    const size_t tile_bytes = n_columns * VEC_FLOATS * form.bytes;
    for (size_t j = keys.lo; j < keys.hi; j++) {
        const size_t at = (j * a->ld_v + d) * form.bytes;
        const char *v = (const char *)a->v + at;
        for (size_t line = 0; a->next && line < tile_bytes; line += 64)
            _mm_prefetch((const char *)a->next + at + line, _MM_HINT_T1);
        vec weight[SUM_ROWS];
        PHI_UNROLL
        for (size_t r = 0; r < n_rows; r++)
            weight[r] = vec_all(p[r * a->ld_p + j]);
        PHI_UNROLL
        for (size_t c = 0; c < n_columns; c++) {
            vec values = form.load(v + c * VEC_FLOATS * form.bytes);
            PHI_UNROLL
            for (size_t r = 0; r < n_rows; r++)
                acc[r][c] = vec_fma(weight[r], values, acc[r][c]);
        }
    }
    PHI_UNROLL
    for (size_t r = 0; r < n_rows; r++)
        PHI_UNROLL
        for (size_t c = 0; c < n_columns; c++)
            vec_store(to + r * a->ld_acc + c * VEC_FLOATS, acc[r][c]);
}

/* Eight dimensions of one row: what is left where vecs are longer. */
PHI_INLINE void sum_tail(const struct phi_weighted_sum *a, size_t row, size_t d,
                         struct key_span keys, const struct value_form form)
{
    float *to = a->acc + row * a->ld_acc + d;
    __m256 acc = _mm256_loadu_ps(to);
    for (size_t j = keys.lo; j < keys.hi; j++) {
        __m256 values = form.load8((const char *)a->v + (j * a->ld_v + d) * form.bytes);
        acc = _mm256_fmadd_ps(_mm256_broadcast_ss(a->p + row * a->ld_p + j), values, acc);
    }
    _mm256_storeu_ps(to, acc);
}

/* All dimensions of n_rows rows. */
PHI_INLINE void sum_rows(const struct phi_weighted_sum *a, size_t row, struct key_span keys,
                         const struct value_form form, const size_t n_rows)
{
    const size_t columns = VEC_FLOATS == 16 || n_rows == 1 ? SUM_COLUMNS : n_rows == 4 ? 2 : 4;
    if (keys.lo >= keys.hi)
        return;
    size_t d = 0;
    for (; d + columns * VEC_FLOATS <= a->d; d += columns * VEC_FLOATS)
        sum_tile(a, row, d, keys, form, n_rows, columns);
    for (; d + VEC_FLOATS <= a->d; d += VEC_FLOATS)
        sum_tile(a, row, d, keys, form, n_rows, 1);
    for (size_t r = row; d < a->d && r < row + n_rows; r++)
        sum_tail(a, r, d, keys, form);
}

PHI_INLINE struct key_span keys_of_row(const struct phi_weighted_sum *a, size_t row)
{
    return (struct key_span){(size_t)a->lo[row], (size_t)a->hi[row]};
}

/* The keys that rows row..row+n-1 all see. */
PHI_INLINE struct key_span shared_keys(const struct phi_weighted_sum *a, size_t row, size_t n)
{
    struct key_span shared = keys_of_row(a, row);
    for (size_t r = row + 1; r < row + n; r++) {
        const struct key_span keys = keys_of_row(a, r);
        shared.lo = keys.lo > shared.lo ? keys.lo : shared.lo;
        shared.hi = keys.hi < shared.hi ? keys.hi : shared.hi;
    }
    return shared;
}

static inline void rescale_sums(const struct phi_weighted_sum *a)
{
    for (size_t r = 0; a->c && r < a->n_rows; r++)
        for (float *acc = a->acc + r * a->ld_acc, *end = acc + a->d; acc < end; acc += 8)
            _mm256_storeu_ps(acc, _mm256_mul_ps(_mm256_loadu_ps(acc), _mm256_set1_ps(a->c[r])));
}

/* Up to four rows together over the keys that all of them see, each alone over the rest. */
PHI_INLINE void weighted_sum(const struct phi_weighted_sum *a, const struct value_form form)
{
    rescale_sums(a);
    for (size_t row = 0, n; row < a->n_rows; row += n) {
        n = a->n_rows - row < SUM_ROWS ? a->n_rows - row : SUM_ROWS;
        struct key_span shared = shared_keys(a, row, n);
        if (shared.lo >= shared.hi) {
            n = 1;
            shared = keys_of_row(a, row);
        }
        for (size_t r = row; r < row + n; r++)
            sum_rows(a, r, (struct key_span){(size_t)a->lo[r], shared.lo}, form, 1);
        if (n == 4)
            sum_rows(a, row, shared, form, 4);
        else if (n == 3)
            sum_rows(a, row, shared, form, 3);
        else if (n == 2)
            sum_rows(a, row, shared, form, 2);
        else
            sum_rows(a, row, shared, form, 1);
        for (size_t r = row; r < row + n; r++)
            sum_rows(a, r, (struct key_span){shared.hi, (size_t)a->hi[r]}, form, 1);
    }
}

static void weighted_sum_f32(const struct phi_weighted_sum *a)
{
    weighted_sum(a, VALUES_F32);
}

static void weighted_sum_bf16(const struct phi_weighted_sum *a)
{
    weighted_sum(a, VALUES_BF16);
}

static void weighted_sum_f16(const struct phi_weighted_sum *a)
{
    weighted_sum(a, VALUES_F16);
}

#endif
