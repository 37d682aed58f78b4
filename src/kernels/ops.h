/* ops.h: loops and threads around the micro-kernels: whole matrices, whole batches of rows.
 *
 * Every operation is one parallel stage: it returns when all threads are done. What a row holds afterwards does not
 * depend on the number of threads or on the other rows (docs/NUMERICS.md). */
#ifndef PHI_KERNELS_OPS_H
#define PHI_KERNELS_OPS_H

#include "base/status.h"
#include "base/threads.h"
#include "kernels/kernels.h"

/* A weight matrix as it stands in a file: row-major, maybe unaligned. Owned by whoever mapped it. */
struct phi_matrix {
    const void *data; /* [n_rows, n_cols] */
    enum phi_dtype dtype; /* of a quantised one: what it was or would be without */
    size_t n_rows, n_cols;
    /* Integers instead, as struct phi_quant_matmul has them. */
    enum phi_quantization quant;
    const void *scales; /* PHI_W8A8: float32 [n_rows]; PHI_W4A8: [n_rows, n_cols / group] */
    enum phi_dtype scale_dtype; /* PHI_W4A8: float32 or bfloat16 */
    size_t group;               /* PHI_W4A8 */
};

/* Bytes of one row of a matrix, and of its scales. */
size_t phi_matrix_row_bytes(const struct phi_matrix *m);
size_t phi_matrix_scale_bytes(const struct phi_matrix *m);

enum { PHI_LINEAR_MAX_PARTS = 3 };

/* y = x W^T + b, where W may be several matrices stacked (q, k, v or gate, up kept apart in the
 * file): their outputs stand side by side in one row of y. */
struct phi_linear {
    int n_parts;
    struct phi_matrix parts[PHI_LINEAR_MAX_PARTS]; /* all with n_in columns */
    const float *bias[PHI_LINEAR_MAX_PARTS];       /* [rows of the part] or NULL */
    size_t n_in, n_out;
    bool segmented; /* K in 8 segments: the row-parallel projections (unless PHI_W8A8) */
};

/* Activations that enter a matrix product: float32, or bfloat16 under --dtype bfloat16, or the int8
 * rows of a quantised product. */
struct phi_acts {
    void *data; /* [n_rows, ld] */
    enum phi_dtype dtype;
    size_t ld;
    enum phi_quantization quant; /* the form of int8 rows; dtype says nothing then */
    int32_t *sums;               /* [n_rows, ld_sums] and [n_rows]: of int8 rows */
    size_t ld_sums;
    float *scales;
};

/* Elements between rows of n, of floats and of int8. Rows a page apart share cache sets. */
static inline size_t phi_float_ld(size_t n)
{
    return n + 32;
}

static inline size_t phi_quant_ld(size_t n)
{
    return phi_quant_padded(n) + 64;
}

/* The buffers of `room` (made for float rows of n elements, and int8 rows as well: as many bytes as
 * either needs) in the form that l takes. */
struct phi_acts phi_acts_for(const struct phi_acts *room, const struct phi_linear *l);

/* The address of row r of acts of the float forms. */
static inline void *phi_acts_row(const struct phi_acts *a, size_t r)
{
    return (char *)a->data + r * a->ld * phi_dtype_bytes(a->dtype);
}

/* Row `to` becomes what row `from` is, in whatever form. */
void phi_acts_move(const struct phi_acts *a, size_t to, size_t from);

/* Kernels, threads and their private room. Owned by one thread, which is the one that calls ops. */
struct phi_compute {
    const struct phi_kernels *kernels;
    struct phi_pool *pool;
    char *scratch; /* [n_threads, scratch_bytes], page-aligned */
    size_t scratch_bytes;
};

/* Scratch per thread that phi_op_linear needs for up to n_tokens rows and n_in columns. */
size_t phi_op_linear_scratch_bytes(size_t n_in, bool segmented, size_t n_tokens);

/* scratch_bytes is the greatest need of any op that will be called. The creating thread becomes the
 * owner, and its floating-point environment is set. */
enum phi_status phi_compute_init(struct phi_compute *c, const struct phi_kernels *kernels,
                                 int n_threads, size_t scratch_bytes, struct phi_error *err);
void phi_compute_deinit(struct phi_compute *c);

static inline void *phi_compute_scratch(const struct phi_compute *c, int thread)
{
    return c->scratch + (size_t)thread * c->scratch_bytes;
}

/* Calls fn(context, item, thread) for every item in [0, n), on the threads of the pool. */
static inline void phi_compute_each(struct phi_compute *c, size_t n, phi_pool_fn fn, void *context)
{
    phi_pool_run(c->pool, n, fn, context);
}

/* y [n_tokens, n_out] = x [n_tokens, n_in] W^T + b. ld_y >= n_out. */
void phi_op_linear(struct phi_compute *c, const struct phi_linear *w, const struct phi_acts *x,
                   size_t n_tokens, float *y, size_t ld_y);

/* Rounds, copies or quantises one float32 row into row r of acts (n elements). */
void phi_acts_store(const struct phi_kernels *k, const struct phi_acts *a, size_t r, const float *x,
                    size_t n);
/* The same of gelu_new(x), or of up * silu(gate). y [n] is room for them, and may be an input. */
void phi_acts_store_gelu(const struct phi_kernels *k, const struct phi_acts *a, size_t r, float *y,
                         const float *x, size_t n);
void phi_acts_store_silu_mul(const struct phi_kernels *k, const struct phi_acts *a, size_t r, float *y,
                             const float *gate, const float *up, size_t n);

/* One row of a matrix of floats, widened to float32. */
void phi_matrix_row(const struct phi_kernels *k, const struct phi_matrix *m, size_t row, float *out);

#endif
