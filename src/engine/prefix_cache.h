/* prefix_cache.h: finds the KV block that already holds given tokens after a given prefix.
 *
 * Every cached content has a name: a number given out once and never again. A block's content is
 * the name of the prefix before it and its own tokens, and both are compared in full on a lookup,
 * so that no collision of hashes can ever serve another text's keys. The empty prefix has a name,
 * the root, for each LongRoPE regime and each salt, hence blocks of different regimes or salts
 * never meet.
 *
 *   root --"a b c d"--> name 3 (block 7) --"e f g h"--> name 4 (block 2)
 *                                        --"e f x y"--> name 9 (block 5)
 *
 * A salt stands for itself by 128 bits of a hash whose key is random, so that nobody can look for
 * another text with the same ones.
 *
 * A block stays cached while it is in use and after its release, until the pool gives it to somebody
 * else. When a prefix's block is gone, what continued it can no longer be reached and ages out of the
 * pool. Owned by the engine's thread; allocates only at init. */
#ifndef PHI_ENGINE_PREFIX_CACHE_H
#define PHI_ENGINE_PREFIX_CACHE_H

#include "base/str.h"
#include "engine/kvpool.h"

#include <stdbool.h>

/* Whom a prompt may share cached blocks with; all 0 = those without a salt. */
struct phi_prefix_salt {
    uint64_t bits[2];
};

/* What stands before a block: a prefix that has a name, or nothing. */
struct phi_prefix_parent {
    uint64_t salt; /* upper half of a root; 0 = the prefix has a name, or the root has no salt */
    uint64_t name; /* or the lower half of a root */
};

struct phi_prefix_entry {
    uint64_t name; /* of the content; 0 = this block is not cached */
    struct phi_prefix_parent parent;
    uint32_t next; /* block in the same bucket, or PHI_NO_BLOCK */
};

/* Random numbers: of the hash that finds a bucket, so that nobody can aim at one, and of salts. */
struct phi_prefix_seed {
    uint64_t buckets;
    uint64_t salts[2];
};

struct phi_prefix_cache {
    uint32_t block_size;
    struct phi_prefix_entry *entries; /* [n_blocks] */
    int32_t *tokens;                  /* [n_blocks, block_size] */
    uint32_t *buckets;                /* [n_buckets] first block of each, or PHI_NO_BLOCK */
    uint32_t n_buckets;               /* a power of 2 */
    struct phi_prefix_seed seed;
    uint64_t last_name;
};

enum phi_status phi_prefix_cache_init(struct phi_prefix_cache *c, uint32_t n_blocks,
                                      uint32_t block_size, const struct phi_prefix_seed *seed,
                                      struct phi_error *err);
void phi_prefix_cache_deinit(struct phi_prefix_cache *c);

/* From any thread. An empty text is no salt. */
struct phi_prefix_salt phi_prefix_salt(const struct phi_prefix_cache *c, struct phi_str text);

/* The empty prefix. */
struct phi_prefix_parent phi_prefix_root(struct phi_prefix_salt salt, bool long_regime);

static inline struct phi_prefix_parent phi_prefix_after(uint64_t name)
{
    return (struct phi_prefix_parent){0, name};
}

/* The block whose content is tokens [block_size] after the prefix `parent`, or PHI_NO_BLOCK. */
uint32_t phi_prefix_find(const struct phi_prefix_cache *c, struct phi_prefix_parent parent,
                         const int32_t *tokens);

/* Notes the content of a full block and returns its name. When another block holds the same content
 * that one stays the cached one, and its name is returned. */
uint64_t phi_prefix_insert(struct phi_prefix_cache *c, uint32_t block,
                           struct phi_prefix_parent parent, const int32_t *tokens);

/* The block is about to be overwritten. Nothing happens when it is not cached. */
void phi_prefix_forget(struct phi_prefix_cache *c, uint32_t block);

/* The name of a block's content, 0 when it is not cached. */
static inline uint64_t phi_prefix_name(const struct phi_prefix_cache *c, uint32_t block)
{
    return c->entries[block].name;
}

#endif
