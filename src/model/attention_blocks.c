/* attention_blocks.c: many query rows; see attention_tile.h. */
#include "kernels/elementary.h"
#include "model/attention_tile.h"

static void layout_buffers(struct phi_tile *t, struct phi_layout *layout)
{
    t->q_columns = phi_layout_take(layout, t->d * t->ld, sizeof *t->q_columns);
    t->acc_columns = phi_layout_take(layout, t->d * t->ld, sizeof *t->acc_columns);
    t->k = phi_layout_take(layout, PHI_KEY_BLOCK * t->d, sizeof *t->k);
    t->v = phi_layout_take(layout, PHI_KEY_BLOCK * t->d, sizeof *t->v);
}

static size_t n_columns(const struct phi_tile *t)
{
    return phi_size_ceil_div(t->n_rows, PHI_QUERY_STEP) * PHI_QUERY_STEP;
}

/* Columns beyond the rows see nothing. */
static void open_tile(struct phi_tile *t)
{
    for (size_t i = 0; i < t->d && t->n_rows < n_columns(t); i++)
        memset(t->q_columns + i * t->ld + t->n_rows, 0,
               (n_columns(t) - t->n_rows) * sizeof *t->q_columns);
    for (size_t r = t->n_rows; r < n_columns(t); r++)
        t->lo[r] = t->hi[r] = 0;
    t->p->net->kernels->transpose(t->q_columns, t->ld, t->q, t->d, t->n_rows, t->d);
}

static void begin_span(struct phi_tile *t, size_t base)
{
    (void)base;
    memset(t->acc_columns, 0, t->d * t->ld * sizeof *t->acc_columns);
    for (size_t r = 0; r < n_columns(t); r++) {
        t->m[r] = -INFINITY;
        t->l[r] = 0.0f;
    }
}

/* Keys or values lo <= j < hi of the block, page by page. */
static void widen(const struct phi_tile *t, int value, size_t base, size_t lo, size_t hi, float *to)
{
    const struct phi_kernels *k = t->p->net->kernels;
    const enum phi_dtype dtype = t->p->kv->dtype;
    const size_t page = t->p->kv->block_size;
    for (size_t j = lo, n; j < hi; j += n) {
        n = phi_size_min(hi - j, page - (base + j) % page);
        const void *from = phi_tile_kv(t, value, base + j);
        if (dtype == PHI_BFLOAT16)
            k->from_bf16(to + j * t->d, from, n * t->d);
        else if (dtype == PHI_FLOAT16)
            k->from_f16(to + j * t->d, from, n * t->d);
        else
            memcpy(to + j * t->d, from, n * t->d * sizeof *to);
    }
}

static void attend_block(struct phi_tile *t, size_t base, size_t lo, size_t hi)
{
    widen(t, 0, base, lo, hi, t->k);
    widen(t, 1, base, lo, hi, t->v);
    t->p->net->kernels->attention_block(&(struct phi_attention_block){
        .q = t->q_columns, .acc = t->acc_columns, .ld = t->ld, .m = t->m, .l = t->l, .lo = t->lo,
        .hi = t->hi, .n_rows = n_columns(t), .k = t->k, .v = t->v, .ld_kv = t->d, .d = t->d,
        .scale = 1.0f / sqrtf((float)t->d),
    });
}

static void end_span(struct phi_tile *t)
{
    t->p->net->kernels->transpose(t->acc, t->d, t->acc_columns, t->ld, t->d, n_columns(t));
}

const struct phi_tile_way phi_many_rows = {layout_buffers, open_tile, begin_span, attend_block,
                                           end_span};
