/* bpe.h: byte-pair encoding of one word: its characters become tokens, then the adjacent pair with
 * the lowest merge rank is joined, the leftmost first among equals, until no pair has a rank.
 * After models/bpe of huggingface/tokenizers, whose results it equals.
 *
 * A word may be a whole book (a vocabulary without a pre-tokenizer), so long words use a heap and
 * take O(n log n); short ones are scanned. */
#ifndef PHI_FORMATS_BPE_H
#define PHI_FORMATS_BPE_H

#include "formats/tokenizer_vocab.h"

struct phi_merge {
    uint64_t pair; /* left id in the upper half, right id in the lower */
    uint32_t rank; /* UINT32_MAX: a free slot */
    int32_t id;    /* what the two become */
};

struct phi_bpe {
    const struct phi_vocab *vocab;
    struct phi_merge *merges; /* [n_slots], a power of two; open addressing by pair */
    size_t n_slots;
    bool byte_level; /* words are bytes that stand for the characters of the ByteLevel alphabet */
    bool byte_fallback; /* a character without a token becomes its bytes' tokens <0x00>..<0xFF> */
    bool fuse_unk;      /* neighbouring unknown characters become one unknown token */
    bool ignore_merges; /* a word that is a token needs no merging */
    bool has_unk;
    int32_t unk_id;        /* -1: declared but not in the vocabulary */
    int32_t byte_ids[256]; /* byte_level: the token of each byte; else of each ASCII character */
    int32_t fallback_ids[256]; /* <0x00>..<0xFF>, -1 where missing */
};

/* What a word's encoding needs while it runs; kept between words to save allocations. Zeroed =
 * empty. */
struct phi_bpe_scratch {
    struct phi_ids symbols;
    struct phi_buf alphabet; /* the word in ByteLevel's alphabet */
    void *links;             /* for long words */
    size_t links_capacity;
    uint64_t *heap;
    size_t heap_capacity;
};

/* Allocates the merge table for n_merges rules; *bpe was zeroed and may have flags set. The flags
 * and unk_id are the caller's to set. */
enum phi_status phi_bpe_init(struct phi_bpe *bpe, const struct phi_vocab *vocab, size_t n_merges,
                             struct phi_error *err);
void phi_bpe_deinit(struct phi_bpe *bpe);

/* At most n_merges times. A pair that is already there gets the later rank, as in the library. */
void phi_bpe_add_merge(struct phi_bpe *bpe, int32_t left, int32_t right, uint32_t rank, int32_t id);

/* Looks up the tokens of single characters and bytes, once `vocab` and the flags are complete. */
void phi_bpe_index(struct phi_bpe *bpe);

/* Appends the ids of `word` (valid UTF-8, fewer than 2^31 bytes) to *ids. */
enum phi_status phi_bpe_encode(const struct phi_bpe *bpe, struct phi_bpe_scratch *scratch,
                               struct phi_str word, struct phi_ids *ids, struct phi_error *err);

void phi_bpe_scratch_deinit(struct phi_bpe_scratch *scratch);

/* ByteLevel's alphabet: the code point that stands for a byte, and back (-1 for a character that
 * stands for none). Printable Latin-1 stands for itself, the other 68 bytes for U+0100 and on, so
 * that no token holds a blank or a control character. */
uint32_t phi_byte_level_char(unsigned char byte);
int phi_byte_level_byte(uint32_t cp);

#endif
