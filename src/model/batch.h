/* batch.h: what the engine hands to the model: rows of several sequences, and the paged KV memory
 * that they read and extend. */
#ifndef PHI_MODEL_BATCH_H
#define PHI_MODEL_BATCH_H

#include "base/dtype.h"

#include <stdatomic.h>
#include <stdint.h>

/* The KV pool. A block holds block_size consecutive positions of one sequence in every layer:
 *
 *   data: [n_blocks][n_layers][K, V][n_kv_heads][block_size][head_dim], in dtype
 *
 * Keys stand rotated. Owned by the engine; a sequence owns whole blocks. */
struct phi_kv {
    char *data; /* 64-byte aligned */
    enum phi_dtype dtype;
    uint32_t n_blocks;
    uint32_t block_size; /* a multiple of 16, 16..256 */
    size_t block_bytes;
};

/* Rows of one sequence in a batch: consecutive positions first_position, first_position + 1, ...
 * Positions below first_position are in the KV blocks already. */
struct phi_batch_seq {
    uint32_t first_row; /* in the batch's tokens */
    uint32_t n_rows;
    uint32_t first_position;
    const uint32_t *blocks; /* block of position p: blocks[p / block_size] */
    bool long_regime;       /* LongRoPE: the long factors, for all positions of this sequence */
};

struct phi_batch {
    const int32_t *tokens; /* [n_tokens], each in 0..vocab_size-1 */
    size_t n_tokens;
    const struct phi_batch_seq *seqs; /* in rising first_row, covering all rows */
    size_t n_seqs;
    const uint32_t *logit_rows; /* [n_logit_rows] rows whose logits are wanted, rising */
    size_t n_logit_rows;
    float *logits;             /* out: [n_logit_rows, vocab_size] */
    const atomic_bool *cancel; /* NULL, or checked before each item of each parallel stage */

    /* Called with named intermediate tensors, float32 [n_tokens, n_cols]: "hidden.0" = embeddings,
     * "attention.i" and "mlp.i" = what the two parts of layer i add, "hidden.i" = the stream after
     * layer i - 1. NULL = off. */
    void (*probe)(void *context, const char *name, const float *data, size_t n_cols);
    void *probe_context;
};

#endif
