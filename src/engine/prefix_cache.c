/* prefix_cache.c: see prefix_cache.h. */
#include "engine/prefix_cache.h"
#include "base/alloc.h"
#include "base/siphash.h"
#include "base/size.h"

#include <string.h>

enum { ROOT_SHORT = 1, ROOT_LONG = 2 };

enum phi_status phi_prefix_cache_init(struct phi_prefix_cache *c, uint32_t n_blocks,
                                      uint32_t block_size, const struct phi_prefix_seed *seed,
                                      struct phi_error *err)
{
    *c = (struct phi_prefix_cache){
        .block_size = block_size, .n_buckets = 1, .seed = *seed, .last_name = ROOT_LONG};
    while (c->n_buckets < n_blocks)
        c->n_buckets *= 2;
    size_t n_tokens;
    bool fits = phi_size_mul(n_blocks, block_size, &n_tokens);
    c->entries = phi_calloc(n_blocks, sizeof *c->entries);
    c->tokens = fits ? phi_alloc(n_tokens, sizeof *c->tokens) : NULL;
    c->buckets = phi_alloc(c->n_buckets, sizeof *c->buckets);
    if (!c->entries || !c->tokens || !c->buckets) {
        phi_prefix_cache_deinit(c);
        return phi_fail_memory(err, "the prefix cache",
                               n_blocks * (sizeof *c->entries + block_size * sizeof *c->tokens));
    }
    for (uint32_t b = 0; b < c->n_buckets; b++)
        c->buckets[b] = PHI_NO_BLOCK;
    return PHI_OK;
}

void phi_prefix_cache_deinit(struct phi_prefix_cache *c)
{
    phi_free(c->entries);
    phi_free(c->tokens);
    phi_free(c->buckets);
    *c = (struct phi_prefix_cache){0};
}

struct phi_prefix_salt phi_prefix_salt(const struct phi_prefix_cache *c, struct phi_str text)
{
    struct phi_prefix_salt salt = {{0, 0}};
    if (text.n == 0)
        return salt;
    phi_siphash128(c->seed.salts, text, salt.bits);
    salt.bits[0] |= 1; /* never 0, which is the names' */
    return salt;
}

struct phi_prefix_parent phi_prefix_root(struct phi_prefix_salt salt, bool long_regime)
{
    uint64_t regime = long_regime ? ROOT_LONG : ROOT_SHORT;
    return (struct phi_prefix_parent){salt.bits[0], salt.bits[1] ^ regime};
}

static int32_t *tokens_of(const struct phi_prefix_cache *c, uint32_t block)
{
    return c->tokens + (size_t)block * c->block_size;
}

/* SplitMix64's output function, which spreads every bit of x over all. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ x >> 27) * 0x94D049BB133111EBull;
    return x ^ x >> 31;
}

static uint32_t *bucket_of(const struct phi_prefix_cache *c, struct phi_prefix_parent parent,
                           const int32_t *tokens)
{
    uint64_t h = mix(mix(c->seed.buckets ^ parent.name) ^ parent.salt);
    for (uint32_t i = 0; i < c->block_size; i++)
        h = mix(h + (uint32_t)tokens[i] + 0x9E3779B97F4A7C15ull);
    return &c->buckets[h & (c->n_buckets - 1)];
}

static bool same_parent(struct phi_prefix_parent a, struct phi_prefix_parent b)
{
    return a.salt == b.salt && a.name == b.name;
}

uint32_t phi_prefix_find(const struct phi_prefix_cache *c, struct phi_prefix_parent parent,
                         const int32_t *tokens)
{
    uint32_t block = *bucket_of(c, parent, tokens);
    while (block != PHI_NO_BLOCK &&
           (!same_parent(c->entries[block].parent, parent) ||
            memcmp(tokens_of(c, block), tokens, c->block_size * sizeof *tokens) != 0))
        block = c->entries[block].next;
    return block;
}

uint64_t phi_prefix_insert(struct phi_prefix_cache *c, uint32_t block,
                           struct phi_prefix_parent parent, const int32_t *tokens)
{
    uint32_t known = phi_prefix_find(c, parent, tokens);
    if (known != PHI_NO_BLOCK)
        return c->entries[known].name;
    phi_prefix_forget(c, block); /* it may bear a name under a prefix that is gone */
    uint32_t *bucket = bucket_of(c, parent, tokens);
    memcpy(tokens_of(c, block), tokens, c->block_size * sizeof *tokens);
    c->entries[block] = (struct phi_prefix_entry){++c->last_name, parent, *bucket};
    *bucket = block;
    return c->last_name;
}

void phi_prefix_forget(struct phi_prefix_cache *c, uint32_t block)
{
    struct phi_prefix_entry *entry = &c->entries[block];
    if (entry->name == 0)
        return;
    uint32_t *link = bucket_of(c, entry->parent, tokens_of(c, block));
    while (*link != block)
        link = &c->entries[*link].next;
    *link = entry->next;
    entry->name = 0;
}
