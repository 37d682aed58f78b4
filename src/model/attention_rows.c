/* attention_rows.c: few query rows; see attention_tile.h. */
#include "kernels/elementary.h"
#include "model/attention_tile.h"

static void layout_buffers(struct phi_tile *t, struct phi_layout *layout)
{
    const size_t n = PHI_TILE_FEW_ROWS;
    t->matmul_scratch = phi_layout_take(layout, phi_matmul_scratch_bytes(t->d), 1);
    t->s = phi_layout_take(layout, n * PHI_KEY_BLOCK, sizeof *t->s);
    t->c = phi_layout_take(layout, n, sizeof *t->c);
    t->part_lo = phi_layout_take(layout, n, sizeof *t->part_lo);
    t->part_hi = phi_layout_take(layout, n, sizeof *t->part_hi);
}

/* Memory sets the speed, and a page is too short for the hardware to see where the next one is:
 * while a block is used, the one behind it is asked for, which may be the next tile's; and a span's
 * first one before it is used, since a tile may come without having been announced. */
static void prefetch(const char *p, size_t n_bytes)
{
    for (size_t i = 0; p && i < n_bytes; i += 64)
        __builtin_prefetch(p + i, 0, 2);
}

/* The address of keys or values from `position` on, which is at most a block behind the last one
 * that the tile sees: from there on they are those of the next tile. NULL behind its last one. */
static const char *keys_at(const struct phi_tile *t, int value, size_t position)
{
    const size_t offset = position % PHI_KEY_BLOCK;
    if (t->next && position - offset > phi_tile_last(t)) {
        t = t->next;
        position = t->first_block + offset;
    }
    return position <= phi_tile_last(t) ? phi_tile_kv(t, value, position) : NULL;
}

static void begin_span(struct phi_tile *t, size_t base)
{
    const size_t page = phi_size_min(t->p->kv->block_size, PHI_KEY_BLOCK);
    const size_t page_bytes = page * t->d * phi_dtype_bytes(t->p->kv->dtype);
    for (int value = 0; value < 2; value++)
        for (size_t j = 0; j < PHI_KEY_BLOCK; j += page)
            prefetch(keys_at(t, value, base + j), page_bytes);
    memset(t->acc, 0, t->n_rows * t->d * sizeof *t->acc);
    for (size_t r = 0; r < t->n_rows; r++) {
        t->m[r] = -INFINITY;
        t->l[r] = 0.0f;
    }
}

enum { PIECE_KEYS = PHI_STRIP_ROWS }; /* of one product: the fetching is spread among them */

static void scores(struct phi_tile *t, size_t base, size_t lo, size_t hi)
{
    const struct phi_kernels *k = t->p->net->kernels;
    enum phi_dtype dtype = t->p->kv->dtype;
    const size_t key_bytes = t->d * phi_dtype_bytes(dtype);
    for (size_t j = lo / PIECE_KEYS * PIECE_KEYS; j < hi; j += PIECE_KEYS) {
        prefetch(keys_at(t, 0, base + j + PHI_KEY_BLOCK), PIECE_KEYS * key_bytes);
        struct phi_matmul a = {
            .w = phi_tile_kv(t, 0, base + j),
            .ld_w = t->d,
            .n_rows = phi_size_min(PIECE_KEYS, hi - j),
            .x = t->q,
            .ld_x = t->d,
            .n_tokens = t->n_rows,
            .k = t->d,
            .y = t->s + j,
            .ld_y = PHI_KEY_BLOCK,
            .scratch = t->matmul_scratch,
        };
        if (dtype == PHI_FLOAT32)
            k->matmul_f32(&a);
        else if (dtype == PHI_BFLOAT16)
            k->matmul_bf16(&a);
        else
            k->matmul_f16(&a);
    }
}

static void softmax(struct phi_tile *t)
{
    const struct phi_kernels *k = t->p->net->kernels;
    float scale = 1.0f / sqrtf((float)t->d);
    for (size_t r = 0; r < t->n_rows; r++) {
        t->c[r] = 1.0f;
        if (t->lo[r] >= t->hi[r])
            continue;
        struct phi_softmax_step step = {.s = t->s + r * PHI_KEY_BLOCK,
                                        .lo = (size_t)t->lo[r],
                                        .hi = (size_t)t->hi[r],
                                        .scale = scale,
                                        .m = t->m[r],
                                        .l = t->l[r]};
        k->softmax_step(&step);
        t->m[r] = step.m;
        t->l[r] = step.l;
        t->c[r] = step.c;
    }
}

static void weighted_sum(const struct phi_pass *p, const struct phi_weighted_sum *a)
{
    const struct phi_kernels *k = p->net->kernels;
    if (p->kv->dtype == PHI_FLOAT32)
        k->weighted_sum_f32(a);
    else if (p->kv->dtype == PHI_BFLOAT16)
        k->weighted_sum_bf16(a);
    else
        k->weighted_sum_f16(a);
}

/* Adds the values of the block, page by page. */
static void values(struct phi_tile *t, size_t base, size_t lo, size_t hi)
{
    const size_t page = t->p->kv->block_size;
    for (size_t j = lo; j < hi;) {
        size_t end = phi_size_min(hi, (base + j) / page * page + page - base), n = end - j;
        for (size_t r = 0; r < t->n_rows; r++) {
            t->part_lo[r] = (int32_t)phi_tile_offset((size_t)t->lo[r], j, n);
            t->part_hi[r] = (int32_t)phi_tile_offset((size_t)t->hi[r], j, n);
        }
        struct phi_weighted_sum a = {
            .acc = t->acc,
            .ld_acc = t->d,
            .c = j == lo ? t->c : NULL,
            .p = t->s + j,
            .ld_p = PHI_KEY_BLOCK,
            .lo = t->part_lo,
            .hi = t->part_hi,
            .n_rows = t->n_rows,
            .v = phi_tile_kv(t, 1, base + j),
            .ld_v = t->d,
            .next = keys_at(t, 1, base + j + PHI_KEY_BLOCK),
            .n_keys = n,
            .d = t->d,
        };
        weighted_sum(t->p, &a);
        j = end;
    }
}

/* A tile's last block may be short and the next tile's first one whole. */
static void prefetch_rest(const struct phi_tile *t, size_t base, size_t hi)
{
    const size_t row_bytes = t->d * phi_dtype_bytes(t->p->kv->dtype);
    for (size_t j = (hi + PIECE_KEYS - 1) / PIECE_KEYS * PIECE_KEYS; j < PHI_KEY_BLOCK;
         j += PIECE_KEYS)
        for (int value = 0; value < 2; value++)
            prefetch(keys_at(t, value, base + j + PHI_KEY_BLOCK), PIECE_KEYS * row_bytes);
}

static void attend_block(struct phi_tile *t, size_t base, size_t lo, size_t hi)
{
    scores(t, base, lo, hi);
    softmax(t);
    values(t, base, lo, hi);
    prefetch_rest(t, base, hi);
}

const struct phi_tile_way phi_few_rows = {
    .layout = layout_buffers, .begin_span = begin_span, .block = attend_block};
