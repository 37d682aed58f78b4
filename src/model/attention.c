/* attention.c: see attention.h.
 *
 * The unit of work is one tile (attention_tile.h) against all keys that it sees. Rows are
 * independent, so neither the tiling nor the pages show in the result. Where that makes too few
 * units for the threads (long contexts, few sequences), tiles of few rows are cut at the spans;
 * what each span gives is kept in a slot until all are there and meet in their order. */
#include "model/attention.h"
#include "base/size.h"
#include "kernels/elementary.h"
#include "model/attention_tile.h"

static size_t group_size(const struct phi_config *c)
{
    return (size_t)(c->n_heads / c->n_kv_heads);
}

static size_t tile_tokens(const struct phi_config *c)
{
    return phi_size_max(1, PHI_TILE_ROWS / group_size(c));
}

/* The first position and the position behind the last of a tile. */
struct positions {
    size_t first, end;
};

static struct positions tile_positions(const struct phi_pass *p, const struct phi_attn_tile *tile)
{
    const struct phi_batch_seq *seq = &p->batch->seqs[tile->seq];
    size_t first = seq->first_position + (tile->first_row - seq->first_row);
    return (struct positions){first, first + tile->n_rows};
}

/* First key that the token at `position` sees. */
static size_t first_key(const struct phi_config *c, size_t position)
{
    size_t w = (size_t)c->sliding_window;
    return w == 0 || position + 1 <= w ? 0 : position + 1 - w;
}

/* The spans that a tile sees: first <= i < end. */
static struct positions tile_spans(const struct phi_pass *p, const struct phi_attn_tile *tile)
{
    struct positions at = tile_positions(p, tile);
    return (struct positions){first_key(&p->net->config, at.first) / PHI_KEY_SPAN,
                              phi_size_ceil_div(at.end, PHI_KEY_SPAN)};
}

enum {
    ITEMS_PER_THREAD = 4,  /* with fewer, the last ones to finish keep the others waiting */
    SLOTS_PER_THREAD = 64, /* of one span of one tile and KV head */
};

/* Gives slots to tiles of few rows as long as there are any. */
static void cut_tiles(struct phi_pass *p)
{
    const struct phi_config *c = &p->net->config;
    const size_t n_threads = (size_t)phi_pool_n_threads(p->ws->compute.pool);
    const size_t n_heads = (size_t)c->n_kv_heads, n_items = p->n_tiles * n_heads;
    size_t n_slots = 0;
    p->n_parts = 1;
    if (n_threads == 1 || n_items == 0 || n_items >= ITEMS_PER_THREAD * n_threads)
        return;
    for (size_t i = 0; i < p->n_tiles; i++) {
        struct phi_attn_tile *tile = &p->ws->tiles[i];
        struct positions spans = tile_spans(p, tile);
        size_t n_spans = spans.end - spans.first, room = n_threads * SLOTS_PER_THREAD - n_slots;
        if (tile->n_rows * group_size(c) > PHI_TILE_FEW_ROWS || n_spans < 2 ||
            n_spans > room / n_heads)
            continue;
        tile->first_slot = (uint32_t)n_slots;
        tile->n_spans = (uint32_t)n_spans;
        n_slots += n_spans * n_heads;
    }
    if (n_slots > 0)
        p->n_parts = phi_size_ceil_div(ITEMS_PER_THREAD * n_threads, n_items);
}

void phi_attention_plan(struct phi_pass *p)
{
    const size_t step = tile_tokens(&p->net->config);
    p->n_tiles = 0;
    for (size_t s = 0; s < p->batch->n_seqs; s++) {
        const struct phi_batch_seq *seq = &p->batch->seqs[s];
        for (size_t r = 0; r < seq->n_rows; r += step)
            p->ws->tiles[p->n_tiles++] =
                (struct phi_attn_tile){.seq = (uint32_t)s,
                                       .first_row = (uint32_t)(seq->first_row + r),
                                       .n_rows = (uint32_t)phi_size_min(step, seq->n_rows - r)};
    }
    cut_tiles(p);
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

/* A common part, then what each of the two ways needs. */
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

static size_t tile_bytes(const struct phi_config *c)
{
    struct phi_tile t;
    struct phi_layout layout = {0};
    tile_layout(&t, c, &layout);
    return layout.n_bytes;
}

/* What a span gives: [PHI_TILE_FEW_ROWS, d] sums, then m and l. */
static size_t slot_floats(const struct phi_config *c)
{
    return PHI_TILE_FEW_ROWS * ((size_t)c->head_dim + 2);
}

size_t phi_attention_scratch_bytes(const struct phi_config *c)
{
    return tile_bytes(c) + SLOTS_PER_THREAD * slot_floats(c) * sizeof(float);
}

/* Slots lie behind the tiles' rooms of all threads. The tile takes its sums of span `span` (of
 * those it sees) there. */
static void take_slot(struct phi_tile *t, const struct phi_attn_tile *tile, size_t span)
{
    const struct phi_config *c = &t->p->net->config;
    size_t slot = tile->first_slot + t->kv_head * tile->n_spans + span;
    char *room = phi_compute_scratch(&t->p->ws->compute, (int)(slot / SLOTS_PER_THREAD));
    float *slots = (float *)(room + tile_bytes(c));
    t->acc = slots + slot % SLOTS_PER_THREAD * slot_floats(c);
    t->m = t->acc + PHI_TILE_FEW_ROWS * t->d;
    t->l = t->m + PHI_TILE_FEW_ROWS;
}

static const struct phi_tile_way *tile_way(const struct phi_tile *t)
{
    return t->n_rows <= PHI_TILE_FEW_ROWS ? &phi_few_rows : &phi_many_rows;
}

/* Visible keys of each row in the block that starts at `base`; false when no row sees any. *lo_all
 * and *hi_all bound them over all rows. */
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
        struct phi_weighted_sum w = {.acc = out,
                                     .ld_acc = t->d,
                                     .c = &a,
                                     .p = &b,
                                     .ld_p = 1,
                                     .lo = &zero,
                                     .hi = &one,
                                     .n_rows = 1,
                                     .v = acc,
                                     .ld_v = t->d,
                                     .n_keys = 1,
                                     .d = t->d};
        t->p->net->kernels->weighted_sum_f32(&w);
    }
}

/* The span that begins at `base` -> acc, m, l. */
static void attend_span(struct phi_tile *t, size_t base)
{
    const struct phi_tile_way *way = tile_way(t);
    const size_t end = phi_size_min(phi_tile_last(t) + 1, base + PHI_KEY_SPAN);
    way->begin_span(t, base);
    for (; base < end; base += PHI_KEY_BLOCK) {
        size_t lo, hi;
        if (block_ranges(t, base, &lo, &hi))
            way->block(t, base, lo, hi);
    }
    if (way->end_span)
        way->end_span(t);
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
                                .dtype = attn->dtype,
                                .ld = attn->ld};
        phi_acts_store(t->p->net->kernels, &head, first_row + r / t->group, out, t->d);
    }
}

struct run {
    struct phi_pass *p;
    int layer;
    const struct phi_acts *out;
};

/* What tells a tile from others: all but its buffers. */
static struct phi_tile describe_tile(const struct run *run, const struct phi_attn_tile *tile,
                                     size_t kv_head)
{
    const struct phi_pass *p = run->p;
    const struct phi_config *c = &p->net->config;
    const size_t first = tile_positions(p, tile).first;
    return (struct phi_tile){.p = p,
                             .seq = &p->batch->seqs[tile->seq],
                             .layer = run->layer,
                             .kv_head = kv_head,
                             .d = (size_t)c->head_dim,
                             .n_rows = tile->n_rows * group_size(c),
                             .group = group_size(c),
                             .first_position = first,
                             .first_block = first_key(c, first) / PHI_KEY_BLOCK * PHI_KEY_BLOCK};
}

static void make_tile(struct phi_tile *t, const struct run *run, const struct phi_attn_tile *tile,
                      size_t kv_head, int thread)
{
    struct phi_layout layout = {.base = phi_compute_scratch(&run->p->ws->compute, thread)};
    *t = describe_tile(run, tile, kv_head);
    tile_layout(t, &run->p->net->config, &layout);
    for (size_t r = 0; r < t->n_rows; r++)
        t->m_out[r] = -INFINITY;
}

static void load_queries(struct phi_tile *t, const struct phi_attn_tile *tile)
{
    const struct phi_workspace *ws = t->p->ws;
    const size_t token = t->group * t->d;
    for (size_t i = 0; i < tile->n_rows; i++)
        memcpy(t->q + i * token, ws->qkv + (tile->first_row + i) * ws->ld_qkv + t->kv_head * token,
               token * sizeof *t->q);
    if (tile_way(t)->open)
        tile_way(t)->open(t);
}

/* A tile and a KV head. All tiles of one head follow one another, so that its keys and values stay
 * in the cache; later ones see more keys, so they go first. Where each sequence has one tile, its
 * heads follow one another, as they lie in memory. */
struct unit {
    const struct phi_attn_tile *tile;
    size_t kv_head;
};

static size_t n_units(const struct phi_pass *p)
{
    return p->n_tiles * (size_t)p->net->config.n_kv_heads;
}

static struct unit unit_at(const struct phi_pass *p, size_t index)
{
    const size_t n_heads = (size_t)p->net->config.n_kv_heads;
    if (p->n_tiles == p->batch->n_seqs)
        return (struct unit){&p->ws->tiles[p->n_tiles - 1 - index / n_heads], index % n_heads};
    return (struct unit){&p->ws->tiles[p->n_tiles - 1 - index % p->n_tiles], index / p->n_tiles};
}

/* Whether unit `index` is one whose keys should be asked for by the unit before it: *next. */
static bool announce(const struct run *run, size_t index, struct phi_tile *next)
{
    const struct phi_pass *p = run->p;
    if (p->n_parts > 1 || index == n_units(p))
        return false;
    const struct unit unit = unit_at(p, index);
    *next = describe_tile(run, unit.tile, unit.kv_head);
    return tile_way(next) == &phi_few_rows;
}

/* Item = (unit, part). */
static void run_item(void *context, size_t item, int thread)
{
    const struct run *run = context;
    const struct phi_pass *p = run->p;
    const size_t part = item % p->n_parts, index = item / p->n_parts;
    const struct unit unit = unit_at(p, index);
    const struct phi_attn_tile *tile = unit.tile;
    const struct positions spans = tile_spans(p, tile);
    struct phi_tile t, next;
    if (tile->n_spans == 0 && part > 0)
        return;
    make_tile(&t, run, tile, unit.kv_head, thread);
    if (announce(run, index + 1, &next))
        t.next = &next;
    load_queries(&t, tile);
    const size_t first = part * tile->n_spans / p->n_parts,
                 end = (part + 1) * tile->n_spans / p->n_parts;
    for (size_t i = first; i < end; i++) {
        take_slot(&t, tile, i);
        attend_span(&t, (spans.first + i) * PHI_KEY_SPAN);
    }
    if (tile->n_spans > 0)
        return;
    for (size_t i = spans.first; i < spans.end; i++) {
        attend_span(&t, i * PHI_KEY_SPAN);
        merge_span(&t);
    }
    finish(&t, tile->first_row, run->out);
}

/* Item = unit: the spans of a tile that was cut meet. */
static void join_item(void *context, size_t item, int thread)
{
    const struct run *run = context;
    const struct phi_pass *p = run->p;
    const struct unit unit = unit_at(p, item);
    const struct phi_attn_tile *tile = unit.tile;
    struct phi_tile t;
    if (tile->n_spans == 0)
        return;
    make_tile(&t, run, tile, unit.kv_head, thread);
    for (size_t i = 0; i < tile->n_spans; i++) {
        take_slot(&t, tile, i);
        merge_span(&t);
    }
    finish(&t, tile->first_row, run->out);
}

void phi_attention_run(struct phi_pass *p, int layer, const struct phi_acts *out)
{
    struct run run = {p, layer, out};
    phi_compute_each(&p->ws->compute, n_units(p) * p->n_parts, run_item, &run);
    if (p->n_parts > 1)
        phi_compute_each(&p->ws->compute, n_units(p), join_item, &run);
}
