/* ops.c: see ops.h. */
#include "kernels/ops.h"
#include "base/alloc.h"
#include "base/size.h"

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

/* ---------------------------------------------------------------- matrices */

size_t phi_matrix_row_bytes(const struct phi_matrix *m)
{
    switch (m->quant) {
    case PHI_W8A8:
        return m->n_cols;
    case PHI_W4A8: /* whole 32-bit words */
        return phi_size_ceil_div(m->n_cols, 8) * 4;
    case PHI_UNQUANTIZED:
        break;
    }
    return m->n_cols * phi_dtype_bytes(m->dtype);
}

size_t phi_matrix_scale_bytes(const struct phi_matrix *m)
{
    if (m->quant == PHI_W4A8)
        return m->n_cols / m->group * phi_dtype_bytes(m->scale_dtype);
    return m->quant == PHI_W8A8 ? sizeof(float) : 0;
}

/* ---------------------------------------------------------------- rows */

struct phi_acts phi_acts_for(const struct phi_acts *room, const struct phi_linear *l)
{
    struct phi_acts acts = *room;
    acts.quant = l->parts[0].quant;
    if (acts.quant)
        acts.ld = phi_quant_ld(l->n_in);
    return acts;
}

static struct phi_quant_row quant_row(const struct phi_acts *a, size_t r)
{
    return (struct phi_quant_row){(int8_t *)a->data + r * a->ld, a->sums + r * a->ld_sums};
}

void phi_acts_store(const struct phi_kernels *k, const struct phi_acts *a, size_t r, const float *x,
                    size_t n)
{
    if (a->quant) {
        a->scales[r] = k->quantize_row(quant_row(a, r), x, n, a->quant);
        return;
    }
    void *row = phi_acts_row(a, r);
    if (a->dtype == PHI_BFLOAT16)
        k->to_bf16(row, x, n);
    else if (row != x)
        memcpy(row, x, n * sizeof *x);
}

void phi_acts_store_gelu(const struct phi_kernels *k, const struct phi_acts *a, size_t r, float *y,
                         const float *x, size_t n)
{
    if (a->quant) {
        a->scales[r] = k->gelu_quantize(quant_row(a, r), y, x, n, a->quant);
        return;
    }
    k->gelu_new(y, x, n);
    phi_acts_store(k, a, r, y, n);
}

void phi_acts_store_silu_mul(const struct phi_kernels *k, const struct phi_acts *a, size_t r,
                             float *y, const float *gate, const float *up, size_t n)
{
    if (a->quant) {
        a->scales[r] = k->silu_mul_quantize(quant_row(a, r), y, gate, up, n, a->quant);
        return;
    }
    k->silu_mul(y, gate, up, n);
    phi_acts_store(k, a, r, y, n);
}

void phi_acts_move(const struct phi_acts *a, size_t to, size_t from)
{
    const size_t row_bytes = a->ld * (a->quant ? 1 : phi_dtype_bytes(a->dtype));
    char *data = a->data;
    memmove(data + to * row_bytes, data + from * row_bytes, row_bytes);
    if (!a->quant)
        return;
    memmove(a->sums + to * a->ld_sums, a->sums + from * a->ld_sums, a->ld_sums * sizeof *a->sums);
    a->scales[to] = a->scales[from];
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
