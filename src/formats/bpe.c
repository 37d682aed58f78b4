/* bpe.c: see bpe.h. */
#include "formats/bpe.h"
#include "base/alloc.h"
#include "base/size.h"
#include "base/utf8.h"

#include <assert.h>
#include <stdio.h>

enum { NO_RANK = -1, SHORT_WORD = 48 /* symbols; beyond, the heap is faster */ };

/* --- The alphabet of ByteLevel --------------------------------------------------------------- */

static bool stands_for_itself(uint32_t c)
{
    return (c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xAC) || (c >= 0xAE && c <= 0xFF);
}

/* The bytes that do not stand for themselves, in increasing order: 0x00-0x20, 0x7F-0xA0, 0xAD. */
uint32_t phi_byte_level_char(unsigned char byte)
{
    if (stands_for_itself(byte))
        return byte;
    if (byte <= 0x20)
        return 0x100u + byte;
    return byte == 0xAD ? 0x143 : 0x121u + (byte - 0x7Fu);
}

int phi_byte_level_byte(uint32_t cp)
{
    if (cp < 0x100)
        return stands_for_itself(cp) ? (int)cp : -1;
    if (cp <= 0x120)
        return (int)(cp - 0x100);
    if (cp <= 0x142)
        return (int)(cp - 0x121 + 0x7F);
    return cp == 0x143 ? 0xAD : -1;
}

/* --- Merge table --------------------------------------------------------------------------- */

static uint64_t pair_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static size_t slot_of(const struct phi_bpe *bpe, uint64_t pair)
{
    uint64_t h = (pair ^ pair >> 29) * 0x9E3779B97F4A7C15u;
    return (size_t)(h >> 32) & (bpe->n_slots - 1);
}

/* The rule for a pair, or a free slot. */
static struct phi_merge *find_merge(const struct phi_bpe *bpe, uint64_t pair)
{
    size_t slot = slot_of(bpe, pair);
    while (bpe->merges[slot].rank != (uint32_t)NO_RANK && bpe->merges[slot].pair != pair)
        slot = (slot + 1) & (bpe->n_slots - 1);
    return &bpe->merges[slot];
}

enum phi_status phi_bpe_init(struct phi_bpe *bpe, const struct phi_vocab *vocab, size_t n_merges,
                             struct phi_error *err)
{
    size_t n_slots = 16;
    while (n_slots / 2 < n_merges)
        n_slots *= 2;
    bpe->merges = phi_alloc(n_slots, sizeof *bpe->merges);
    if (!bpe->merges)
        return phi_fail_memory(err, "the merge table", n_slots * sizeof *bpe->merges);
    memset(bpe->merges, 0xFF, n_slots * sizeof *bpe->merges);
    bpe->n_slots = n_slots;
    bpe->vocab = vocab;
    return PHI_OK;
}

void phi_bpe_deinit(struct phi_bpe *bpe)
{
    phi_free(bpe->merges);
    *bpe = (struct phi_bpe){0};
}

void phi_bpe_add_merge(struct phi_bpe *bpe, int32_t left, int32_t right, uint32_t rank, int32_t id)
{
    uint64_t pair = pair_of(left, right);
    *find_merge(bpe, pair) = (struct phi_merge){pair, rank, id};
}

void phi_bpe_index(struct phi_bpe *bpe)
{
    for (int b = 0; b < 256; b++) {
        char text[8];
        int n = snprintf(text, sizeof text, "<0x%02X>", b);
        bpe->fallback_ids[b] =
            phi_vocab_find(bpe->vocab, (struct phi_str){text, (size_t)n}, PHI_TOKEN_MODEL);
        if (!bpe->byte_level && b >= 0x80) {
            bpe->byte_ids[b] = -1;
            continue;
        }
        uint32_t c = bpe->byte_level ? phi_byte_level_char((unsigned char)b) : (uint32_t)b;
        n = phi_utf8_encode(c, text);
        bpe->byte_ids[b] =
            phi_vocab_find(bpe->vocab, (struct phi_str){text, (size_t)n}, PHI_TOKEN_MODEL);
    }
}

void phi_bpe_scratch_deinit(struct phi_bpe_scratch *scratch)
{
    phi_ids_deinit(&scratch->symbols);
    phi_buf_deinit(&scratch->alphabet);
    phi_free(scratch->links);
    phi_free(scratch->heap);
    *scratch = (struct phi_bpe_scratch){0};
}

/* --- From characters to symbols -------------------------------------------------------------- */

/* Unknown characters wait, to be fused with their neighbours, until a known one is added. */
struct unknowns {
    bool pending;
    bool nameless; /* there was one, and the vocabulary lacks the token for them */
};

static void flush_unknowns(const struct phi_bpe *bpe, struct unknowns *u, struct phi_ids *symbols)
{
    if (u->pending)
        phi_ids_append(symbols, bpe->unk_id);
    u->pending = false;
}

/* Adds the tokens of one character's bytes; false when one of them has none. As in the library,
 * this does not flush pending unknowns. */
static bool add_fallback(const struct phi_bpe *bpe, struct phi_str c, struct phi_ids *symbols)
{
    for (size_t i = 0; i < c.n; i++)
        if (bpe->fallback_ids[(unsigned char)c.data[i]] < 0)
            return false;
    for (size_t i = 0; i < c.n; i++)
        phi_ids_append(symbols, bpe->fallback_ids[(unsigned char)c.data[i]]);
    return true;
}

/* Adds one character; `id` is its token or -1. */
static void add_char(const struct phi_bpe *bpe, struct phi_str c, int32_t id, struct unknowns *u,
                     struct phi_ids *symbols)
{
    if (id >= 0) {
        flush_unknowns(bpe, u, symbols);
        phi_ids_append(symbols, id);
    } else if (!(bpe->byte_fallback && add_fallback(bpe, c, symbols)) && bpe->has_unk) {
        if (!bpe->fuse_unk)
            flush_unknowns(bpe, u, symbols);
        u->pending = true;
        u->nameless |= bpe->unk_id < 0;
    }
}

static void add_bytes(const struct phi_bpe *bpe, struct phi_str word, struct unknowns *u,
                      struct phi_ids *symbols)
{
    for (size_t i = 0; i < word.n; i++) {
        unsigned char byte = (unsigned char)word.data[i];
        char c[4];
        size_t n = (size_t)phi_utf8_encode(phi_byte_level_char(byte), c);
        add_char(bpe, (struct phi_str){c, n}, bpe->byte_ids[byte], u, symbols);
    }
}

static void add_chars(const struct phi_bpe *bpe, struct phi_str word, struct unknowns *u,
                      struct phi_ids *symbols)
{
    for (size_t i = 0; i < word.n;) {
        unsigned char first = (unsigned char)word.data[i];
        size_t n = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
        struct phi_str c = {word.data + i, n};
        int32_t id = n == 1 ? bpe->byte_ids[first] : phi_vocab_find(bpe->vocab, c, PHI_TOKEN_MODEL);
        add_char(bpe, c, id, u, symbols);
        i += n;
    }
}

/* --- Merging ------------------------------------------------------------------------------- */

/* A word's symbols while it is merged: a doubly linked list in an array. `rank` and `merged` are
 * those of the pair that a symbol forms with its right neighbour. */
struct link {
    int32_t id; /* -1: absorbed by its left neighbour */
    int32_t previous, next;
    uint32_t rank; /* NO_RANK: the pair has no rule */
    int32_t merged;
};

static void set_pair(const struct phi_bpe *bpe, struct link *left, int32_t right_id)
{
    const struct phi_merge *m = find_merge(bpe, pair_of(left->id, right_id));
    left->rank = m->rank;
    left->merged = m->id;
}

/* Repeatedly scans for the lowest rank. */
static size_t merge_short(const struct phi_bpe *bpe, int32_t *ids, size_t n)
{
    struct link links[SHORT_WORD];
    assert(n >= 1 && n <= SHORT_WORD);
    for (size_t i = 0; i < n; i++)
        links[i].id = ids[i];
    for (size_t i = 0; i + 1 < n; i++)
        set_pair(bpe, &links[i], ids[i + 1]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (links[i].rank < links[best].rank)
                best = i;
        if (links[best].rank == (uint32_t)NO_RANK)
            break;
        links[best].id = links[best].merged;
        n--;
        for (size_t i = best + 1; i < n; i++)
            links[i] = links[i + 1];
        if (best + 1 < n)
            set_pair(bpe, &links[best], links[best + 1].id);
        if (best > 0)
            set_pair(bpe, &links[best - 1], links[best].id);
    }
    for (size_t i = 0; i < n; i++)
        ids[i] = links[i].id;
    return n;
}

/* A heap of (rank, position) packed in one integer, four children to a node; the least on top.
 * Entries of pairs that have changed since stay in it and are recognised when they come up. */
struct heap {
    uint64_t *at;
    size_t n;
};

static void heap_sift_down(struct heap *h, size_t i)
{
    uint64_t value = h->at[i];
    for (;;) {
        size_t child = 4 * i + 1;
        if (child >= h->n)
            break;
        size_t end = phi_size_min(child + 4, h->n), least = child;
        for (size_t c = child + 1; c < end; c++)
            if (h->at[c] < h->at[least])
                least = c;
        if (h->at[least] >= value)
            break;
        h->at[i] = h->at[least];
        i = least;
    }
    h->at[i] = value;
}

static void heap_push(struct heap *h, uint64_t value)
{
    size_t i = h->n++;
    while (i > 0 && h->at[(i - 1) / 4] > value) {
        h->at[i] = h->at[(i - 1) / 4];
        i = (i - 1) / 4;
    }
    h->at[i] = value;
}

static uint64_t heap_pop(struct heap *h)
{
    uint64_t top = h->at[0];
    h->at[0] = h->at[--h->n];
    if (h->n)
        heap_sift_down(h, 0);
    return top;
}

static void push_pair(struct heap *h, const struct link *links, int32_t at)
{
    if (links[at].rank != (uint32_t)NO_RANK)
        heap_push(h, (uint64_t)links[at].rank << 32 | (uint32_t)at);
}

/* Joins the pair at `at` and announces the two pairs that this makes. */
static void merge_at(const struct phi_bpe *bpe, struct link *links, int32_t at, struct heap *h)
{
    struct link *left = &links[at], *right = &links[left->next];
    left->id = left->merged;
    left->next = right->next;
    left->rank = (uint32_t)NO_RANK;
    right->id = -1;
    right->rank = (uint32_t)NO_RANK;
    if (left->next >= 0) {
        links[left->next].previous = at;
        set_pair(bpe, left, links[left->next].id);
        push_pair(h, links, at);
    }
    if (left->previous >= 0) {
        set_pair(bpe, &links[left->previous], left->id);
        push_pair(h, links, left->previous);
    }
}

/* Each merge takes at least one entry off the heap and puts at most two on it, and there are fewer
 * than n merges, so 2n entries are enough. */
static bool reserve_long(struct phi_bpe_scratch *scratch, size_t n)
{
    if (scratch->links_capacity < n) {
        struct link *links = phi_realloc(scratch->links, n, sizeof *links);
        if (!links)
            return false;
        scratch->links = links;
        scratch->links_capacity = n;
    }
    if (scratch->heap_capacity < 2 * n) {
        uint64_t *heap = phi_realloc(scratch->heap, 2 * n, sizeof *heap);
        if (!heap)
            return false;
        scratch->heap = heap;
        scratch->heap_capacity = 2 * n;
    }
    return true;
}

static size_t merge_long(const struct phi_bpe *bpe, struct phi_bpe_scratch *scratch, int32_t *ids,
                         size_t n)
{
    struct link *links = scratch->links;
    struct heap h = {scratch->heap, 0};
    for (size_t i = 0; i < n; i++) {
        bool is_last = i + 1 == n;
        links[i] = (struct link){ids[i], (int32_t)i - 1, is_last ? -1 : (int32_t)i + 1,
                                 (uint32_t)NO_RANK, -1};
        if (is_last)
            break;
        set_pair(bpe, &links[i], ids[i + 1]);
        if (links[i].rank != (uint32_t)NO_RANK)
            h.at[h.n++] = (uint64_t)links[i].rank << 32 | (uint32_t)i;
    }
    for (size_t i = h.n / 4 + 1; i-- > 0;)
        if (i < h.n)
            heap_sift_down(&h, i);
    while (h.n) {
        uint64_t top = heap_pop(&h);
        int32_t at = (int32_t)(uint32_t)top;
        if (links[at].rank == (uint32_t)(top >> 32))
            merge_at(bpe, links, at, &h);
    }
    size_t n_out = 0;
    for (int32_t i = 0; i >= 0; i = links[i].next)
        ids[n_out++] = links[i].id;
    return n_out;
}

/* --- One word ------------------------------------------------------------------------------ */

/* The token that is the whole word, or -1. */
static int32_t whole_word(const struct phi_bpe *bpe, struct phi_bpe_scratch *scratch,
                          struct phi_str word)
{
    if (!bpe->byte_level)
        return phi_vocab_find(bpe->vocab, word, PHI_TOKEN_MODEL);
    phi_buf_clear(&scratch->alphabet);
    for (size_t i = 0; i < word.n; i++) {
        char c[4];
        int n = phi_utf8_encode(phi_byte_level_char((unsigned char)word.data[i]), c);
        phi_buf_append(&scratch->alphabet, c, (size_t)n);
    }
    if (scratch->alphabet.failed)
        return -1;
    return phi_vocab_find(bpe->vocab, phi_buf_str(&scratch->alphabet), PHI_TOKEN_MODEL);
}

enum phi_status phi_bpe_encode(const struct phi_bpe *bpe, struct phi_bpe_scratch *scratch,
                               struct phi_str word, struct phi_ids *ids, struct phi_error *err)
{
    if (word.n == 0)
        return PHI_OK;
    if (bpe->ignore_merges) {
        int32_t id = whole_word(bpe, scratch, word);
        if (id >= 0) {
            phi_ids_append(ids, id);
            return ids->failed ? phi_fail_memory(err, "token ids", sizeof id) : PHI_OK;
        }
        if (scratch->alphabet.failed)
            return phi_fail_memory(err, "a word", word.n);
    }
    struct phi_ids *symbols = &scratch->symbols;
    struct unknowns u = {0};
    symbols->n = 0;
    if (bpe->byte_level)
        add_bytes(bpe, word, &u, symbols);
    else
        add_chars(bpe, word, &u, symbols);
    flush_unknowns(bpe, &u, symbols);
    if (u.nameless)
        return phi_fail(err, PHI_ERR_INVALID,
                        "the text has characters that the vocabulary lacks, and it lacks its "
                        "unknown token too");
    size_t n = symbols->n;
    if (symbols->failed || (n > SHORT_WORD && !reserve_long(scratch, n)))
        return phi_fail_memory(err, "the symbols of a word", word.n * sizeof(struct link));
    if (n > SHORT_WORD)
        n = merge_long(bpe, scratch, symbols->data, n);
    else if (n > 1)
        n = merge_short(bpe, symbols->data, n);
    phi_ids_append_n(ids, symbols->data, n);
    return ids->failed ? phi_fail_memory(err, "token ids", n * sizeof(int32_t)) : PHI_OK;
}
