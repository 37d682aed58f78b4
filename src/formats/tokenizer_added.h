/* tokenizer_added.h: added tokens: strings that are cut out of the text, each one id, before BPE
 * sees the rest. After tokenizer/added_vocabulary.rs of huggingface/tokenizers.
 *
 * Matching is leftmost, then longest, among all tokens of a set. There are two sets: tokens that
 * match the raw text, and those (`normalized`) that match what the normalizer makes of the
 * remaining pieces. */
#ifndef PHI_FORMATS_TOKENIZER_ADDED_H
#define PHI_FORMATS_TOKENIZER_ADDED_H

#include "base/status.h"
#include "base/str.h"

struct phi_added_token {
    struct phi_str content;
    struct phi_str pattern; /* what is matched: the content, normalized where `normalized` is set */
    int32_t id;
    bool single_word; /* matches only between characters that are not \w */
    bool lstrip;      /* swallows white space before it */
    bool rstrip;      /* swallows white space behind it */
    bool normalized;
    bool special;
};

/* A trie over bytes. Children of a node are a list, as there are few; those of the root are a
 * table. */
struct phi_trie_node {
    int32_t child, sibling; /* -1: none */
    int32_t token;          /* the index of the token that ends here, -1: none */
    unsigned char byte;
};

struct phi_trie {
    struct phi_trie_node *nodes;
    size_t n, capacity;
    int32_t first[256];
};

void phi_trie_init(struct phi_trie *t);
void phi_trie_deinit(struct phi_trie *t);

/* Adds a pattern, not empty. PHI_ERR_FORMAT when it is there already. */
enum phi_status phi_trie_add(struct phi_trie *t, struct phi_str pattern, int32_t token,
                             struct phi_error *err);

/* A place where a token stands: text[begin..end) is the token with what it swallows. */
struct phi_added_match {
    const struct phi_added_token *token;
    size_t begin, end;
};

/* Walks over the matches in a text. */
struct phi_added_scan {
    const struct phi_trie *trie;
    const struct phi_added_token *tokens;
    struct phi_str text;
    bool plain_text; /* control tokens (special, or not normalized) are ordinary text */
    size_t at;       /* where the search goes on */
    size_t done;     /* the end of the last match with what it swallowed */
};

/* The next match; false when there is none. Takes time proportional to the text it passes times the
 * length of the longest token. */
bool phi_added_next(struct phi_added_scan *scan, struct phi_added_match *out);

#endif
