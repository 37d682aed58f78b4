/* tokenizer_impl.h: what an opened tokenizer is made of; shared by the tokenizer_*.c files only.
 *
 *   text -> added tokens cut out -> normalizer -> words -> BPE -> post-processor -> ids
 *   ids -> token strings -> decoder -> text
 */
#ifndef PHI_FORMATS_TOKENIZER_IMPL_H
#define PHI_FORMATS_TOKENIZER_IMPL_H

#include "base/arena.h"
#include "formats/bpe.h"
#include "formats/json.h"
#include "formats/pretokenize.h"
#include "formats/tokenizer.h"
#include "formats/tokenizer_added.h"

/* One step of a normalizer, or of a decoder, where only replacements occur. */
struct phi_text_rule {
    bool prepend;        /* puts `to` in front of a text that is not empty; `from` is unused */
    struct phi_str from; /* not empty */
    struct phi_str to;
};

enum { PHI_MAX_TEXT_RULES = 8 };

struct phi_text_rules {
    struct phi_text_rule rules[PHI_MAX_TEXT_RULES]; /* in order */
    size_t n;
};

/* Either ByteLevel, or replacements and then, where asked for, byte fallback and stripping. */
struct phi_token_decoder {
    bool byte_level;
    struct phi_text_rules replace;
    bool byte_fallback;
    size_t strip_start;        /* at most this many leading strip characters go */
    struct phi_str strip_char; /* one character */
};

struct phi_tokenizer {
    struct phi_arena arena; /* the strings of the pipeline */
    struct phi_vocab vocab;
    struct phi_bpe bpe;
    struct phi_added_token *added; /* [n_added], in the file's order */
    size_t n_added;
    struct phi_trie raw_trie, normalized_trie;
    struct phi_text_rules normalizer;
    enum phi_split_pattern split;
    struct phi_str mark; /* empty, or a character that no merge joins to another on its left */
    struct phi_ids prefix, suffix; /* what the post-processor adds */
    struct phi_token_decoder decoder;
    struct phi_str bos, eos;
    bool truncates_left;
};

/* Fills t from tokenizer.json's text. */
enum phi_status phi_tokenizer_load(struct phi_tokenizer *t, struct phi_str text, const char *name,
                                   struct phi_error *err);

/* Reads vocabulary, merges and the flags of "model". */
enum phi_status phi_tokenizer_load_model(struct phi_tokenizer *t, const json_t *model,
                                         struct phi_str vocab, struct phi_str merges,
                                         const char *name, struct phi_error *err);

/* Applies the rules in order; *out is replaced, `other` is scratch. The result is in *out. */
void phi_text_rules_apply(const struct phi_text_rules *rules, struct phi_str text,
                          struct phi_buf *out, struct phi_buf *other);

/* The string that a token decodes from: an added token that is normalized counts in that form. */
struct phi_str phi_tokenizer_decoded_form(const struct phi_tokenizer *t, int32_t id,
                                          const struct phi_token *token);

#endif
