/* kvpool.h: who holds which KV block. The pool counts references and keeps the free blocks in a
 * doubly linked list; it knows nothing of the memory behind a block.
 *
 *   free list:  head -> b7 <-> b2 <-> ... <-> tail
 *               taken from here; blocks that nobody will        blocks whose content may be wanted
 *               ask for return here                             again (prefix_cache.h) return here
 *
 * Invariant: a block is in the free list exactly when its count is 0.
 * Owned by the engine's thread. */
#ifndef PHI_ENGINE_KVPOOL_H
#define PHI_ENGINE_KVPOOL_H

#include "base/status.h"

#include <stdbool.h>

enum { PHI_NO_BLOCK = UINT32_MAX };

struct phi_kvpool {
    uint32_t n_blocks;
    uint32_t n_free;
    uint32_t *references; /* [n_blocks] */
    uint32_t *next;       /* [n_blocks + 1] the free list; entry n_blocks is its ring head */
    uint32_t *previous;
};

/* n_blocks >= 1, all free. */
enum phi_status phi_kvpool_init(struct phi_kvpool *pool, uint32_t n_blocks, struct phi_error *err);
void phi_kvpool_deinit(struct phi_kvpool *pool);

/* Takes a free block with one reference; PHI_NO_BLOCK when there is none. The block that was
 * released last comes first: its memory is warm, and blocks never needed are never touched. Of the blocks
 * released with their content, the one that has been free for longest comes first, after all others. */
uint32_t phi_kvpool_acquire(struct phi_kvpool *pool);

/* One more holder of a block, in use or free. */
void phi_kvpool_share(struct phi_kvpool *pool, uint32_t block);

/* One holder less; the last one frees the block, to be taken late when its content is worth keeping. */
void phi_kvpool_release(struct phi_kvpool *pool, uint32_t block, bool keep_content);

#endif
