/* kvpool.c: see kvpool.h. */
#include "engine/kvpool.h"
#include "base/alloc.h"

#include <assert.h>

static void unlink_free(struct phi_kvpool *pool, uint32_t block)
{
    pool->next[pool->previous[block]] = pool->next[block];
    pool->previous[pool->next[block]] = pool->previous[block];
    pool->n_free--;
}

static void link_free_after(struct phi_kvpool *pool, uint32_t block, uint32_t where)
{
    pool->previous[block] = where;
    pool->next[block] = pool->next[where];
    pool->previous[pool->next[where]] = block;
    pool->next[where] = block;
    pool->n_free++;
}

enum phi_status phi_kvpool_init(struct phi_kvpool *pool, uint32_t n_blocks, struct phi_error *err)
{
    assert(n_blocks >= 1 && n_blocks < PHI_NO_BLOCK);
    *pool = (struct phi_kvpool){.n_blocks = n_blocks};
    size_t n = (size_t)n_blocks + 1;
    pool->references = phi_calloc(n, sizeof *pool->references);
    pool->next = phi_calloc(n, sizeof *pool->next);
    pool->previous = phi_calloc(n, sizeof *pool->previous);
    if (!pool->references || !pool->next || !pool->previous) {
        phi_kvpool_deinit(pool);
        return phi_fail_memory(err, "the KV block table", 3 * n * sizeof(uint32_t));
    }
    uint32_t ring = n_blocks;
    pool->next[ring] = pool->previous[ring] = ring;
    for (uint32_t block = n_blocks; block-- > 0;)
        link_free_after(pool, block, ring);
    return PHI_OK;
}

void phi_kvpool_deinit(struct phi_kvpool *pool)
{
    phi_free(pool->references);
    phi_free(pool->next);
    phi_free(pool->previous);
    *pool = (struct phi_kvpool){0};
}

uint32_t phi_kvpool_acquire(struct phi_kvpool *pool)
{
    if (pool->n_free == 0)
        return PHI_NO_BLOCK;
    uint32_t block = pool->next[pool->n_blocks];
    unlink_free(pool, block);
    pool->references[block] = 1;
    return block;
}

void phi_kvpool_share(struct phi_kvpool *pool, uint32_t block)
{
    assert(block < pool->n_blocks);
    if (pool->references[block]++ == 0)
        unlink_free(pool, block);
}

void phi_kvpool_release(struct phi_kvpool *pool, uint32_t block, bool keep_content)
{
    uint32_t ring = pool->n_blocks;
    assert(block < pool->n_blocks && pool->references[block] > 0);
    if (--pool->references[block] == 0)
        link_free_after(pool, block, keep_content ? pool->previous[ring] : ring);
}
