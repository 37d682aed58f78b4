/* attention.h: causal attention of a batch over the paged KV pool; docs/NUMERICS.md section 7. */
#ifndef PHI_MODEL_ATTENTION_H
#define PHI_MODEL_ATTENTION_H

#include "model/arch.h"

/* Cuts the batch into tiles of rows: sets ws->tiles, p->n_tiles and p->n_parts. */
void phi_attention_plan(struct phi_pass *p);

/* Writes the keys and values of batch row `row` (from ws->qkv, already rotated) into the pool. */
void phi_attention_store(struct phi_pass *p, int layer, size_t row);

/* ws->qkv (rotated queries) and the pool -> out, of a float form. */
void phi_attention_run(struct phi_pass *p, int layer, const struct phi_acts *out);

/* Scratch per thread. */
size_t phi_attention_scratch_bytes(const struct phi_config *config);

#endif
