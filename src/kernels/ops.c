/* ops.c: see ops.h. */
#include "kernels/ops.h"
#include "base/alloc.h"
#include "base/size.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

enum phi_status phi_compute_init(struct phi_compute *c, const struct phi_kernels *kernels,
                                 int n_threads, size_t scratch_bytes, struct phi_error *err)
{
    *c = (struct phi_compute){.kernels = kernels};
    c->scratch_bytes = (scratch_bytes + 127) / 128 * 128;
    size_t total;
    if (!phi_size_mul(c->scratch_bytes, (size_t)n_threads, &total))
        return phi_fail_memory(err, "thread scratch", SIZE_MAX);
    PHI_TRY(phi_pool_create(n_threads, phi_fp_env_set, &c->pool, err));
    c->scratch = phi_pages_alloc(total);
    if (!c->scratch) {
        phi_compute_deinit(c);
        return phi_fail_memory(err, "thread scratch", total);
    }
    return PHI_OK;
}

void phi_compute_deinit(struct phi_compute *c)
{
    if (c->scratch)
        phi_pages_free(c->scratch, (size_t)phi_pool_n_threads(c->pool) * c->scratch_bytes);
    phi_pool_destroy(c->pool);
    *c = (struct phi_compute){0};
}

struct each {
    phi_item_fn fn;
    void *context;
    size_t n;
    atomic_size_t next;
};

static void each_thread(void *context, int thread, int n_threads)
{
    struct each *e = context;
    (void)n_threads;
    for (;;) {
        size_t item = atomic_fetch_add_explicit(&e->next, 1, memory_order_relaxed);
        if (item >= e->n)
            return;
        e->fn(e->context, item, thread);
    }
}

void phi_compute_each(struct phi_compute *c, size_t n, phi_item_fn fn, void *context)
{
    if (n <= 1 || phi_pool_n_threads(c->pool) == 1) {
        for (size_t i = 0; i < n; i++)
            fn(context, i, 0);
        return;
    }
    struct each e = {.fn = fn, .context = context, .n = n};
    phi_pool_run(c->pool, each_thread, &e);
}

/* ---------------------------------------------------------------- linear */

static size_t segment_cols(size_t n_in)
{
    return 16 * phi_size_ceil_div(n_in, (size_t)16 * PHI_N_SEGMENTS);
}

size_t phi_op_linear_scratch_bytes(size_t n_in, bool segmented, size_t n_tokens)
{
    size_t k = segmented ? segment_cols(n_in) : n_in;
    size_t partial = segmented ? sizeof(float) * PHI_N_SEGMENTS * PHI_STRIP_ROWS * n_tokens : 0;
    return (phi_matmul_scratch_bytes(k) + 63) / 64 * 64 + partial;
}

typedef void (*matmul_fn)(const struct phi_matmul *a);

static matmul_fn pick_matmul(const struct phi_kernels *k, enum phi_dtype w, enum phi_dtype x)
{
    if (x == PHI_BFLOAT16) {
        assert(w == PHI_BFLOAT16);
        return k->matmul_bf16_pairs;
    }
    return w == PHI_FLOAT32 ? k->matmul_f32 : w == PHI_BFLOAT16 ? k->matmul_bf16 : k->matmul_f16;
}

struct linear {
    struct phi_compute *c;
    const struct phi_linear *w;
    const struct phi_acts *x;
    size_t n_tokens;
    float *y;
    size_t ld_y;
};

/* The products over one strip and one range of K, in the segmented case. `partial` is
 * [PHI_N_SEGMENTS, n_tokens, PHI_STRIP_ROWS]; empty segments are +0. */
static void segmented_strip(matmul_fn matmul, struct phi_matmul a, size_t w_bytes, size_t x_bytes,
                            float *partial)
{
    const size_t n_in = a.k, s = segment_cols(n_in), plane = a.n_tokens * PHI_STRIP_ROWS;
    struct phi_matmul part = a;
    part.ld_y = PHI_STRIP_ROWS;
    for (size_t i = 0; i < PHI_N_SEGMENTS; i++) {
        size_t begin = phi_size_min(i * s, n_in), end = phi_size_min(begin + s, n_in);
        part.w = (const char *)a.w + begin * w_bytes;
        part.x = (const char *)a.x + begin * x_bytes;
        part.k = end - begin;
        part.y = partial + i * plane;
        if (part.k)
            matmul(&part);
        else
            memset(part.y, 0, plane * sizeof(float));
    }
    for (size_t m = 0; m < a.n_tokens; m++) {
        const float *p = partial + m * PHI_STRIP_ROWS;
        for (size_t n = 0; n < a.n_rows; n++, p++)
            a.y[m * a.ld_y + n] =
                ((p[0] + p[plane]) + (p[2 * plane] + p[3 * plane])) +
                ((p[4 * plane] + p[5 * plane]) + (p[6 * plane] + p[7 * plane]));
    }
}

/* Item = one strip of up to 16 weight rows, counted through all parts. */
static void linear_strip(void *context, size_t item, int thread)
{
    const struct linear *l = context;
    const struct phi_linear *w = l->w;
    size_t column = 0;
    int part = 0;
    for (;; part++) {
        size_t n_strips = phi_size_ceil_div(w->parts[part].n_rows, PHI_STRIP_ROWS);
        if (item < n_strips)
            break;
        item -= n_strips;
        column += w->parts[part].n_rows;
    }
    const struct phi_matrix *matrix = &w->parts[part];
    size_t row = item * PHI_STRIP_ROWS, w_bytes = phi_dtype_bytes(matrix->dtype);
    char *scratch = phi_compute_scratch(l->c, thread);
    struct phi_matmul a = {
        .w = (const char *)matrix->data + row * matrix->n_cols * w_bytes,
        .ld_w = matrix->n_cols,
        .n_rows = phi_size_min(PHI_STRIP_ROWS, matrix->n_rows - row),
        .x = l->x->data,
        .ld_x = l->x->ld,
        .n_tokens = l->n_tokens,
        .k = w->n_in,
        .y = l->y + column + row,
        .ld_y = l->ld_y,
        .scratch = scratch,
    };
    matmul_fn matmul = pick_matmul(l->c->kernels, matrix->dtype, l->x->dtype);
    if (w->segmented) {
        size_t used = phi_matmul_scratch_bytes(segment_cols(w->n_in));
        segmented_strip(matmul, a, w_bytes, phi_dtype_bytes(l->x->dtype),
                        (float *)(scratch + (used + 63) / 64 * 64));
    } else {
        matmul(&a);
    }
    const float *bias = w->bias[part];
    for (size_t m = 0; bias && m < a.n_tokens; m++)
        for (size_t n = 0; n < a.n_rows; n++)
            a.y[m * a.ld_y + n] += bias[row + n];
}

void phi_op_linear(struct phi_compute *c, const struct phi_linear *w, const struct phi_acts *x,
                   size_t n_tokens, float *y, size_t ld_y)
{
    struct linear l = {c, w, x, n_tokens, y, ld_y};
    size_t n_strips = 0;
    if (n_tokens == 0)
        return;
    assert(phi_op_linear_scratch_bytes(w->n_in, w->segmented, n_tokens) <= c->scratch_bytes);
    for (int i = 0; i < w->n_parts; i++)
        n_strips += phi_size_ceil_div(w->parts[i].n_rows, PHI_STRIP_ROWS);
    phi_compute_each(c, n_strips, linear_strip, &l);
}

/* ---------------------------------------------------------------- rows */

void phi_acts_store(const struct phi_kernels *k, const struct phi_acts *a, size_t r, const float *x,
                    size_t n)
{
    void *row = phi_acts_row(a, r);
    if (a->dtype == PHI_BFLOAT16)
        k->to_bf16(row, x, n);
    else if (row != x)
        memcpy(row, x, n * sizeof *x);
}

void phi_matrix_row(const struct phi_kernels *k, const struct phi_matrix *m, size_t row, float *out)
{
    const char *p = (const char *)m->data + row * m->n_cols * phi_dtype_bytes(m->dtype);
    if (m->dtype == PHI_BFLOAT16)
        k->from_bf16(out, p, m->n_cols);
    else if (m->dtype == PHI_FLOAT16)
        k->from_f16(out, p, m->n_cols);
    else
        memcpy(out, p, m->n_cols * sizeof *out);
}
