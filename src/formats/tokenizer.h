/* tokenizer.h: tokenizer.json (+ tokenizer_config.json): text <-> token ids, equal to Hugging Face
 * `tokenizers` for the pipelines that Phi checkpoints use: byte-level BPE with the GPT-2, cl100k
 * and o200k patterns, and SentencePiece-style BPE (prepended mark, byte fallback).
 *
 * An opened tokenizer is immutable; any number of threads may encode and decode with it. */
#ifndef PHI_FORMATS_TOKENIZER_H
#define PHI_FORMATS_TOKENIZER_H

#include "base/buf.h"

struct phi_tokenizer;

/* Reads dir/tokenizer.json and, where present, dir/tokenizer_config.json and
 * special_tokens_map.json. */
enum phi_status phi_tokenizer_open(const char *dir, struct phi_tokenizer **out,
                                   struct phi_error *err);

/* From the texts of the two files (config may be empty). `name` is used in errors. */
enum phi_status phi_tokenizer_parse(struct phi_str tokenizer_json, struct phi_str config_json,
                                    const char *name, struct phi_tokenizer **out,
                                    struct phi_error *err);
void phi_tokenizer_close(struct phi_tokenizer *t); /* NULL is fine */

/* With plain_text, control tokens in the text are ordinary text: of the added tokens only those are
 * matched that are normalized and not special, as phi-1's runs of blanks are. */
struct phi_encode_options {
    bool add_special_tokens; /* run the post-processor (BOS where the file says so) */
    bool plain_text;
};

/* Appends the ids of `text` (valid UTF-8; PHI_ERR_INVALID naming the byte otherwise) to *ids. Time
 * is O(n log n) for any input. */
enum phi_status phi_tokenizer_encode(const struct phi_tokenizer *t, struct phi_str text,
                                     struct phi_encode_options options, struct phi_ids *ids,
                                     struct phi_error *err);

/* Appends the text of `ids` as valid UTF-8 (invalid bytes become U+FFFD). Ids without a token print
 * nothing. skip_special leaves out added tokens marked special. */
enum phi_status phi_tokenizer_decode(const struct phi_tokenizer *t, const int32_t *ids, size_t n,
                                     bool skip_special, struct phi_buf *out, struct phi_error *err);

/* Incremental decoding. The concatenation of all pieces equals phi_tokenizer_decode of all ids, and
 * no piece cuts a character. A run of SentencePiece byte tokens waits until it is decided: if all
 * of it is not UTF-8, each of its bytes is one U+FFFD. Each push takes time proportional to its
 * token. */
struct phi_decode_stream {
    const struct phi_tokenizer *tokenizer;
    bool skip_special;
    bool started;           /* text was emitted: a space is no longer at the start */
    bool run_is_broken;     /* a byte run that cannot become valid: its bytes are U+FFFD at once */
    size_t n_stripped;      /* characters already taken off the start */
    size_t n_valid;         /* so many bytes of a pending byte run are whole characters */
    struct phi_buf pending; /* bytes of a character, or of a byte run, that is not complete yet */
    struct phi_buf form[2]; /* scratch */
};

void phi_decode_stream_init(struct phi_decode_stream *s, const struct phi_tokenizer *t,
                            bool skip_special);
void phi_decode_stream_deinit(struct phi_decode_stream *s);
/* Appends to *out what became certain with this id. */
enum phi_status phi_decode_stream_push(struct phi_decode_stream *s, int32_t id, struct phi_buf *out,
                                       struct phi_error *err);
/* Appends what is still pending, incomplete bytes as U+FFFD. */
enum phi_status phi_decode_stream_finish(struct phi_decode_stream *s, struct phi_buf *out,
                                         struct phi_error *err);

/* 1 + the greatest id that has a token. */
int32_t phi_tokenizer_n_ids(const struct phi_tokenizer *t);

/* The id of a token's exact string (added tokens first), -1 when there is none. */
int32_t phi_tokenizer_find(const struct phi_tokenizer *t, struct phi_str token);

/* The bytes that one token stands for in running text (a byte-level token's bytes, "▁" as a space,
 * <0x0A> as its byte). Appends; nothing for an id without a token. */
void phi_tokenizer_token_bytes(const struct phi_tokenizer *t, int32_t id, struct phi_buf *out);

/* The token as the file spells it ("Ġdef", "<0x0A>"), for the tokenizer's lifetime; empty for an id
 * without a token. */
struct phi_str phi_tokenizer_spelling(const struct phi_tokenizer *t, int32_t id);

bool phi_tokenizer_is_special(const struct phi_tokenizer *t, int32_t id);

/* From tokenizer_config.json / special_tokens_map.json: -1 or empty when absent. */
int32_t phi_tokenizer_bos_id(const struct phi_tokenizer *t);
int32_t phi_tokenizer_eos_id(const struct phi_tokenizer *t);
struct phi_str phi_tokenizer_bos(const struct phi_tokenizer *t);
struct phi_str phi_tokenizer_eos(const struct phi_tokenizer *t);
/* "left" or "right" (truncation_side; "right" by default): which side truncate_prompt_tokens cuts.
 */
bool phi_tokenizer_truncates_left(const struct phi_tokenizer *t);

#endif
