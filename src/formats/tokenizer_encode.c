/* tokenizer_encode.c: text to ids. */
#include "formats/tokenizer_impl.h"
#include "base/utf8.h"

/* Positions within a word are 31-bit, and a byte may become two symbols. */
enum { MAX_TEXT_BYTES = 1 << 29 };

struct encoder {
    const struct phi_tokenizer *t;
    bool plain_text;
    struct phi_bpe_scratch scratch;
    struct phi_buf normal[2];
    struct phi_ids *ids;
    struct phi_error *err;
};

/* The length of the first word of a normalized piece. */
static size_t next_word(const struct phi_tokenizer *t, struct phi_str text)
{
    if (t->mark.n == 0)
        return phi_pretokenize_next(t->split, text);
    size_t i = 0;
    while (phi_str_starts_with((struct phi_str){text.data + i, text.n - i}, t->mark))
        i += t->mark.n;
    const char *next = memmem(text.data + i, text.n - i, t->mark.data, t->mark.n);
    return next ? (size_t)(next - text.data) : text.n;
}

static enum phi_status encode_words(struct encoder *e, struct phi_str text)
{
    while (text.n) {
        size_t n = next_word(e->t, text);
        PHI_TRY(phi_bpe_encode(&e->t->bpe, &e->scratch, (struct phi_str){text.data, n}, e->ids,
                               e->err));
        text.data += n;
        text.n -= n;
    }
    return PHI_OK;
}

typedef enum phi_status (*encode_piece_fn)(struct encoder *e, struct phi_str piece);

/* Cuts added tokens out of `text` and hands the pieces between them on. A token may stand in blanks
 * that the one before it swallowed; then, as in the library, the text goes on where the later one
 * ends. */
static enum phi_status cut_added(struct encoder *e, const struct phi_trie *trie,
                                 struct phi_str text, encode_piece_fn encode_piece)
{
    struct phi_added_scan scan = {trie, e->t->added, text, e->plain_text, 0, 0};
    struct phi_added_match match;
    size_t done = 0;
    while (phi_added_next(&scan, &match)) {
        if (done < match.begin)
            PHI_TRY(encode_piece(e, (struct phi_str){text.data + done, match.begin - done}));
        phi_ids_append(e->ids, match.token->id);
        done = match.end;
    }
    if (done < text.n)
        return encode_piece(e, (struct phi_str){text.data + done, text.n - done});
    return PHI_OK;
}

static enum phi_status encode_raw_piece(struct encoder *e, struct phi_str piece)
{
    if (e->t->normalizer.n == 0)
        return cut_added(e, &e->t->normalized_trie, piece, encode_words);
    phi_text_rules_apply(&e->t->normalizer, piece, &e->normal[0], &e->normal[1]);
    if (e->normal[0].failed)
        return phi_fail_memory(e->err, "the normalized text", piece.n);
    return cut_added(e, &e->t->normalized_trie, phi_buf_str(&e->normal[0]), encode_words);
}

static enum phi_status check_text(struct phi_str text, struct phi_error *err)
{
    if (text.n > MAX_TEXT_BYTES)
        return phi_fail(err, PHI_ERR_TOO_LONG,
                        "the text has %zu bytes, at most %d can be tokenized", text.n,
                        MAX_TEXT_BYTES);
    size_t n = phi_utf8_valid_prefix(text);
    if (n < text.n)
        return phi_fail(err, PHI_ERR_INVALID, "the text is not valid UTF-8 at byte %zu", n);
    return PHI_OK;
}

enum phi_status phi_tokenizer_encode(const struct phi_tokenizer *t, struct phi_str text,
                                     struct phi_encode_options options, struct phi_ids *ids,
                                     struct phi_error *err)
{
    PHI_TRY(check_text(text, err));
    struct encoder e = {.t = t, .plain_text = options.plain_text, .ids = ids, .err = err};
    e.normal[0].limit = e.normal[1].limit = MAX_TEXT_BYTES;
    if (options.add_special_tokens)
        phi_ids_append_n(ids, t->prefix.data, t->prefix.n);
    enum phi_status status = cut_added(&e, &t->raw_trie, text, encode_raw_piece);
    if (options.add_special_tokens)
        phi_ids_append_n(ids, t->suffix.data, t->suffix.n);
    if (status == PHI_OK && ids->failed)
        status = phi_fail_memory(err, "token ids", ids->n * sizeof *ids->data);
    phi_bpe_scratch_deinit(&e.scratch);
    phi_buf_deinit(&e.normal[0]);
    phi_buf_deinit(&e.normal[1]);
    return status;
}
