/* attention.c: see attention.h.
 *
 * The unit of work is one tile (attention_tile.h) against all keys that it sees. Rows are independent,
 * so neither the tiling nor the pages show in the result. */
#include "model/attention.h"
#include "base/size.h"
#include "kernels/elementary.h"
#include "model/attention_tile.h"

#include <assert.h>

static size_t group_size(const struct phi_config *c)
{
    return (size_t)(c->n_heads / c->n_kv_heads);
}

static size_t tile_tokens(const struct phi_config *c)
{
    return phi_size_max(1, PHI_TILE_ROWS / group_size(c));
}

size_t phi_attention_plan(struct phi_pass *p)
{
    const size_t step = tile_tokens(&p->net->config);
    size_t n = 0;
    for (size_t s = 0; s < p->batch->n_seqs; s++) {
        const struct phi_batch_seq *seq = &p->batch->seqs[s];
        for (size_t r = 0; r < seq->n_rows; r += step)
            p->ws->tiles[n++] = (struct phi_attn_tile){(uint32_t)s, (uint32_t)(seq->first_row + r),
                                                       (uint32_t)phi_size_min(step, seq->n_rows - r)};
    }
    return n;
}

char *phi_attention_kv(const struct phi_pass *p, const struct phi_batch_seq *seq, int layer,
                       int value, size_t kv_head, size_t position)
{
    const struct phi_config *c = &p->net->config;
    const struct phi_kv *kv = p->kv;
    size_t block = seq->blocks[position / kv->block_size], slot = position % kv->block_size;
    assert(block < kv->n_blocks);
    size_t row = (((size_t)layer * 2 + (size_t)value) * (size_t)c->n_kv_heads + kv_head) *
                     kv->block_size + slot;
    return kv->data + block * kv->block_bytes +
           row * (size_t)c->head_dim * phi_dtype_bytes(kv->dtype);
}

void phi_attention_store(struct phi_pass *p, int layer, size_t row)
{
    const struct phi_config *c = &p->net->config;
    const struct phi_kernels *k = p->net->kernels;
    const struct phi_batch_seq *seq = &p->batch->seqs[p->ws->row_seq[row]];
    size_t position = seq->first_position + (row - seq->first_row), d = (size_t)c->head_dim;
    size_t n_heads = (size_t)c->n_heads, n_kv = (size_t)c->n_kv_heads;
    const float *from = p->ws->qkv + row * p->ws->ld_qkv + n_heads * d;
    for (int value = 0; value < 2; value++) {
        for (size_t h = 0; h < n_kv; h++, from += d) {
            void *to = phi_attention_kv(p, seq, layer, value, h, position);
            if (p->kv->dtype == PHI_BFLOAT16)
                k->to_bf16(to, from, d);
            else if (p->kv->dtype == PHI_FLOAT16)
                k->to_f16(to, from, d);
            else
                memcpy(to, from, d * sizeof *from);
        }
    }
}

static size_t max_rows(const struct phi_config *c)
{
    size_t rows = phi_size_max(tile_tokens(c) * group_size(c), PHI_TILE_FEW_ROWS);
    return phi_size_ceil_div(rows, PHI_QUERY_STEP) * PHI_QUERY_STEP;
}

/* The two ways share what lies behind the common part. */
static void tile_layout(struct phi_tile *t, const struct phi_config *c, struct phi_layout *layout)
{
    const size_t rows = max_rows(c), d = (size_t)c->head_dim, f = sizeof(float);
    t->d = d;
    t->ld = rows;
    t->q = phi_layout_take(layout, rows * d, f);
    t->acc = phi_layout_take(layout, rows * d, f);
    t->out = phi_layout_take(layout, rows * d, f);
    float **vectors[] = {&t->m, &t->l, &t->m_out, &t->l_out};
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++)
        *vectors[i] = phi_layout_take(layout, rows, f);
    t->lo = phi_layout_take(layout, rows, sizeof *t->lo);
    t->hi = phi_layout_take(layout, rows, sizeof *t->hi);
    phi_few_rows.layout(t, layout);
    phi_many_rows.layout(t, layout);
}

size_t phi_attention_scratch_bytes(const struct phi_config *config)
{
    struct phi_tile t;
    struct phi_layout layout = {0};
    tile_layout(&t, config, &layout);
    return layout.n_bytes;
}

/* First key that the token at `position` sees. */
static size_t first_key(const struct phi_config *c, size_t position)
{
    size_t w = (size_t)c->sliding_window;
    return w == 0 || position + 1 <= w ? 0 : position + 1 - w;
}

/* Visible keys of each row in the block that starts at `base`; false when no row sees any. *lo_all and
 * *hi_all bound them over all rows. */
static bool block_ranges(struct phi_tile *t, size_t base, size_t *lo_all, size_t *hi_all)
{
    const struct phi_config *c = &t->p->net->config;
    *lo_all = PHI_KEY_BLOCK;
    *hi_all = 0;
    for (size_t r = 0; r < t->n_rows; r++) {
        size_t position = t->first_position + r / t->group;
        size_t lo = phi_tile_offset(first_key(c, position), base, PHI_KEY_BLOCK);
        size_t hi = phi_tile_offset(position + 1, base, PHI_KEY_BLOCK);
        t->lo[r] = (int32_t)(lo < hi ? lo : 0);
        t->hi[r] = (int32_t)(lo < hi ? hi : 0);
        if (lo < hi) {
            *lo_all = phi_size_min(*lo_all, lo);
            *hi_all = phi_size_max(*hi_all, hi);
        }
    }
    return *lo_all < *hi_all;
}

/* Joins the finished span (m, l, acc) to the spans before it (m_out, l_out, out). */
static void merge_span(struct phi_tile *t)
{
    static const int32_t zero = 0, one = 1;
    for (size_t r = 0; r < t->n_rows; r++) {
        float *out = t->out + r * t->d, *acc = t->acc + r * t->d;
        if (t->m[r] == -INFINITY)
            continue;
        if (t->m_out[r] == -INFINITY) {
            memcpy(out, acc, t->d * sizeof *out);
            t->m_out[r] = t->m[r];
            t->l_out[r] = t->l[r];
            continue;
        }
        float m = t->m[r] > t->m_out[r] ? t->m[r] : t->m_out[r];
        float a = phi_expf(t->m_out[r] - m), b = phi_expf(t->m[r] - m);
        t->l_out[r] = fmaf(t->l[r], b, t->l_out[r] * a);
        t->m_out[r] = m;
        /* out = fma(acc, b, out * a): a weighted sum over a single "key". */
        struct phi_weighted_sum w = {.acc = out, .ld_acc = t->d, .c = &a, .p = &b, .ld_p = 1,
                                     .lo = &zero, .hi = &one, .n_rows = 1, .v = acc,
                                     .ld_v = t->d, .n_keys = 1, .d = t->d};
        t->p->net->kernels->weighted_sum_f32(&w);
    }
}

static void attend(struct phi_tile *t)
{
    const struct phi_config *c = &t->p->net->config;
    const struct phi_tile_way *way = t->n_rows <= PHI_TILE_FEW_ROWS ? &phi_few_rows : &phi_many_rows;
    size_t last = t->first_position + (t->n_rows - 1) / t->group;
    size_t begin = first_key(c, t->first_position) / PHI_KEY_BLOCK * PHI_KEY_BLOCK, end = last + 1;
    for (size_t r = 0; r < t->n_rows; r++)
        t->m_out[r] = -INFINITY;
    if (way->open)
        way->open(t);
    for (size_t base = begin; base < end;) {
        size_t span_end = phi_size_min(end, base / PHI_KEY_SPAN * PHI_KEY_SPAN + PHI_KEY_SPAN);
        way->begin_span(t);
        for (; base < span_end; base += PHI_KEY_BLOCK) {
            size_t lo, hi;
            if (block_ranges(t, base, &lo, &hi))
                way->block(t, base, lo, hi);
        }
        if (way->end_span)
            way->end_span(t);
        merge_span(t);
    }
}

/* Divides by the sum and stores the rows of the tile. */
static void finish(struct phi_tile *t, size_t first_row, const struct phi_acts *attn)
{
    for (size_t r = 0; r < t->n_rows; r++) {
        float *out = t->out + r * t->d;
        for (size_t i = 0; i < t->d; i++)
            out[i] = out[i] / t->l_out[r];
        size_t column = (t->kv_head * t->group + r % t->group) * t->d;
        struct phi_acts head = {.data = (char *)attn->data + column * phi_dtype_bytes(attn->dtype),
                                .dtype = attn->dtype, .ld = attn->ld};
        phi_acts_store(t->p->net->kernels, &head, first_row + r / t->group, out, t->d);
    }
}

struct run {
    struct phi_pass *p;
    int layer;
    const struct phi_acts *out;
};

/* Item = (KV head, tile). All tiles of one head follow one another, so that its keys and values stay in
 * the cache; later ones see more keys, so they go first. */
static void run_item(void *context, size_t item, int thread)
{
    const struct run *run = context;
    const struct phi_pass *p = run->p;
    const struct phi_config *c = &p->net->config;
    const struct phi_attn_tile *tile = &p->ws->tiles[p->n_tiles - 1 - item % p->n_tiles];
    const struct phi_batch_seq *seq = &p->batch->seqs[tile->seq];
    struct phi_tile t = {.p = p, .seq = seq, .layer = run->layer, .d = (size_t)c->head_dim,
                     .kv_head = item / p->n_tiles, .group = group_size(c)};
    struct phi_layout layout = {.base = phi_compute_scratch(&p->ws->compute, thread)};
    tile_layout(&t, c, &layout);
    t.n_rows = tile->n_rows * t.group;
    t.first_position = seq->first_position + (tile->first_row - seq->first_row);
    for (size_t i = 0; i < tile->n_rows; i++)
        memcpy(t.q + i * t.group * t.d,
               p->ws->qkv + (tile->first_row + i) * p->ws->ld_qkv + t.kv_head * t.group * t.d,
               t.group * t.d * sizeof *t.q);
    attend(&t);
    finish(&t, tile->first_row, run->out);
}

void phi_attention_run(struct phi_pass *p, int layer, const struct phi_acts *out)
{
    struct run run = {p, layer, out};
    phi_compute_each(&p->ws->compute, p->n_tiles * (size_t)p->net->config.n_kv_heads, run_item, &run);
}
