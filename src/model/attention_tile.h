/* attention_tile.h: the inside of attention: one tile and the two ways to take it through a block
 * of keys. A tile is up to PHI_TILE_ROWS query rows, some consecutive tokens of a sequence times
 * the query heads that share one KV head. Few rows (a decode step) read keys and values in place,
 * once for the group of heads (attention_rows.c). Many rows stand transposed, and each block of
 * keys and values is widened once for all of them (attention_blocks.c). The bits are the same. */
#ifndef PHI_MODEL_ATTENTION_TILE_H
#define PHI_MODEL_ATTENTION_TILE_H

#include "base/layout.h"
#include "base/size.h"
#include "model/arch.h"

#include <assert.h>

enum {
    PHI_TILE_ROWS = 96,    /* of many: a multiple of PHI_QUERY_STEP and of most groups */
    PHI_TILE_FEW_ROWS = 8, /* at most so many are read in place */
};

/* R = rows of a tile, padded to PHI_QUERY_STEP; d = head_dim. */
struct phi_tile {
    const struct phi_pass *p;
    const struct phi_batch_seq *seq;
    int layer;
    size_t kv_head, d, n_rows, group;
    size_t first_position; /* of the tile's first token; row r is a head of token r / group */
    size_t first_block;    /* position of the first block of keys that it sees */
    const struct phi_tile
        *next; /* of few rows, what the thread will most likely take next; or NULL */

    float *q;             /* [R, d] */
    float *acc;           /* [R, d] of the current span */
    float *m, *l;         /* [R] of the current span */
    int32_t *lo, *hi;     /* [R] visible keys of the current block */
    float *out;           /* [R, d] of the spans so far */
    float *m_out, *l_out; /* [R] of the spans so far; m_out = -inf: none yet */

    /* Few rows. */
    void *matmul_scratch;
    float *s;                   /* [PHI_TILE_FEW_ROWS, PHI_KEY_BLOCK] scores, then probabilities */
    float *c;                   /* [PHI_TILE_FEW_ROWS] rescaling of the current block */
    int32_t *part_lo, *part_hi; /* [PHI_TILE_FEW_ROWS] lo and hi within one page */

    /* Many rows. */
    float *q_columns, *acc_columns; /* [d, R] */
    float *k, *v;                   /* [PHI_KEY_BLOCK, d] widened */
    size_t ld;                      /* of the columns: R */
};

/* The last position that a tile sees. */
static inline size_t phi_tile_last(const struct phi_tile *t)
{
    return t->first_position + (t->n_rows - 1) / t->group;
}

/* How a tile is taken through the keys of a span. After end_span, t->acc, m and l hold it. */
struct phi_tile_way {
    void (*layout)(struct phi_tile *t, struct phi_layout *layout);
    void (*open)(struct phi_tile *t); /* t->q is set; may be NULL */
    void (*begin_span)(struct phi_tile *t, size_t base);
    /* The block at `base`, of which some row sees keys lo and hi - 1 and none one outside; t->lo
     * and t->hi are set. */
    void (*block)(struct phi_tile *t, size_t base, size_t lo, size_t hi);
    void (*end_span)(struct phi_tile *t); /* may be NULL */
};

extern const struct phi_tile_way phi_few_rows, phi_many_rows;

/* Address of one head's keys (value = 0) or values (1) at `position` of a sequence. */
static inline char *phi_attention_kv(const struct phi_pass *p, const struct phi_batch_seq *seq,
                                     int layer, int value, size_t kv_head, size_t position)
{
    const struct phi_config *c = &p->net->config;
    const struct phi_kv *kv = p->kv;
    size_t block = seq->blocks[position / kv->block_size], slot = position % kv->block_size;
    assert(block < kv->n_blocks);
    size_t row =
        (((size_t)layer * 2 + (size_t)value) * (size_t)c->n_kv_heads + kv_head) * kv->block_size +
        slot;
    return kv->data + block * kv->block_bytes +
           row * (size_t)c->head_dim * phi_dtype_bytes(kv->dtype);
}

static inline char *phi_tile_kv(const struct phi_tile *t, int value, size_t position)
{
    return phi_attention_kv(t->p, t->seq, t->layer, value, t->kv_head, position);
}

/* The offset of a position in the n that begin at `base`; the nearer end for one outside. */
static inline size_t phi_tile_offset(size_t position, size_t base, size_t n)
{
    return position <= base ? 0 : phi_size_min(position - base, n);
}

#endif
