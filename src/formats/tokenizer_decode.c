/* tokenizer_decode.c: ids to text. There is one decoder, the incremental one; decoding a whole list
 * is pushing its ids, so the pieces of a stream cannot differ from the whole. */
#include "formats/tokenizer_impl.h"
#include "base/utf8.h"

#define REPLACEMENT "\xEF\xBF\xBD" /* U+FFFD */

struct phi_str phi_tokenizer_decoded_form(const struct phi_tokenizer *t, int32_t id,
                                          const struct phi_token *token)
{
    if (token->flags & PHI_TOKEN_REWRITTEN)
        for (size_t i = 0; i < t->n_added; i++)
            if (t->added[i].id == id)
                return t->added[i].pattern;
    return phi_vocab_string(&t->vocab, token);
}

/* Appends the bytes of a byte-level token. A token with a character outside the alphabet (an added
 * one) stands for itself. */
static void append_byte_level(struct phi_str token, struct phi_buf *out)
{
    size_t begin = out->n;
    if (!phi_buf_reserve(out, token.n))
        return;
    for (size_t i = 0; i < token.n;) {
        uint32_t cp = (unsigned char)token.data[i];
        int n = cp < 0x80 ? 1 : phi_utf8_decode(token.data + i, token.n - i, &cp);
        int byte = phi_byte_level_byte(cp);
        if (byte < 0) {
            out->n = begin;
            phi_buf_append_str(out, token);
            return;
        }
        phi_buf_append_char(out, (char)byte);
        i += (size_t)n;
    }
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The byte that a token of the form <0x0A> stands for; -1 for any other token. Rust's
 * from_str_radix, which the library reads the digits with, also takes a plus sign. */
static int fallback_byte(struct phi_str token)
{
    if (token.n != 6 || memcmp(token.data, "<0x", 3) != 0 || token.data[5] != '>')
        return -1;
    int high = token.data[3] == '+' ? 0 : hex_digit(token.data[3]);
    int low = hex_digit(token.data[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* --- Byte-level: bytes wait until they are whole characters ---------------------------------- */

static void flush_characters(struct phi_decode_stream *s, bool at_end, struct phi_buf *out)
{
    struct phi_str left = phi_buf_str(&s->pending);
    while (left.n) {
        size_t n = phi_utf8_valid_prefix(left);
        phi_buf_append(out, left.data, n);
        left.data += n;
        left.n -= n;
        if (left.n == 0)
            break;
        uint32_t cp;
        int length = phi_utf8_decode(left.data, left.n, &cp);
        if (length == 0 && !at_end)
            break;
        n = length == 0 ? left.n : (size_t)-length;
        phi_buf_append_c(out, REPLACEMENT);
        left.data += n;
        left.n -= n;
    }
    phi_buf_remove_front(&s->pending, s->pending.n - left.n);
}

/* --- SentencePiece: byte tokens wait until their run is decided --------------------------------
 */

/* Appends text, of which the start loses as many strip characters as the decoder says. */
static void emit(struct phi_decode_stream *s, struct phi_str text, struct phi_buf *out)
{
    const struct phi_token_decoder *d = &s->tokenizer->decoder;
    while (!s->started && s->n_stripped < d->strip_start && text.n &&
           phi_str_starts_with(text, d->strip_char)) {
        text.data += d->strip_char.n;
        text.n -= d->strip_char.n;
        s->n_stripped++;
    }
    if (text.n)
        s->started = true;
    phi_buf_append_str(out, text);
}

/* All bytes of a run that is not UTF-8 become U+FFFD. */
static void break_run(struct phi_decode_stream *s, struct phi_buf *out)
{
    for (size_t i = 0; i < s->pending.n; i++)
        emit(s, PHI_STR(REPLACEMENT), out);
    phi_buf_clear(&s->pending);
    s->n_valid = 0;
    s->run_is_broken = true;
}

static void push_run_byte(struct phi_decode_stream *s, char byte, struct phi_buf *out)
{
    phi_buf_append_char(&s->pending, byte);
    if (s->pending.failed)
        return;
    if (s->run_is_broken) {
        break_run(s, out);
        return;
    }
    while (s->n_valid < s->pending.n) {
        uint32_t cp;
        int n = phi_utf8_decode(s->pending.data + s->n_valid, s->pending.n - s->n_valid, &cp);
        if (n < 0)
            break_run(s, out);
        if (n <= 0)
            return;
        s->n_valid += (size_t)n;
    }
}

static void end_run(struct phi_decode_stream *s, struct phi_buf *out)
{
    if (s->n_valid < s->pending.n)
        break_run(s, out);
    else
        emit(s, phi_buf_str(&s->pending), out);
    phi_buf_clear(&s->pending);
    s->n_valid = 0;
    s->run_is_broken = false;
}

/* --- The stream ------------------------------------------------------------------------------ */

void phi_decode_stream_init(struct phi_decode_stream *s, const struct phi_tokenizer *t,
                            bool skip_special)
{
    *s = (struct phi_decode_stream){.tokenizer = t, .skip_special = skip_special};
}

void phi_decode_stream_deinit(struct phi_decode_stream *s)
{
    phi_buf_deinit(&s->pending);
    phi_buf_deinit(&s->form[0]);
    phi_buf_deinit(&s->form[1]);
}

static enum phi_status check_memory(const struct phi_decode_stream *s, const struct phi_buf *out,
                                    struct phi_error *err)
{
    if (out->failed || s->pending.failed || s->form[0].failed)
        return phi_fail_memory(err, "decoded text", out->n);
    return PHI_OK;
}

/* Whether decoding leaves a token out. The library compares the form that a token decodes to with
 * the special tokens' contents, so a rewritten one is never recognised. */
static bool is_left_out(const struct phi_decode_stream *s, const struct phi_token *token)
{
    return s->skip_special && token->flags & PHI_TOKEN_SPECIAL &&
           !(token->flags & PHI_TOKEN_REWRITTEN);
}

enum phi_status phi_decode_stream_push(struct phi_decode_stream *s, int32_t id, struct phi_buf *out,
                                       struct phi_error *err)
{
    const struct phi_tokenizer *t = s->tokenizer;
    const struct phi_token *token = phi_vocab_at(&t->vocab, id);
    if (!token || is_left_out(s, token))
        return PHI_OK;
    struct phi_str form = phi_tokenizer_decoded_form(t, id, token);
    if (t->decoder.byte_level) {
        append_byte_level(form, &s->pending);
        flush_characters(s, false, out);
        return check_memory(s, out, err);
    }
    if (t->decoder.replace.n) {
        phi_text_rules_apply(&t->decoder.replace, form, &s->form[0], &s->form[1]);
        form = phi_buf_str(&s->form[0]);
    }
    int byte = t->decoder.byte_fallback ? fallback_byte(form) : -1;
    if (byte >= 0) {
        push_run_byte(s, (char)byte, out);
    } else {
        end_run(s, out);
        emit(s, form, out);
    }
    return check_memory(s, out, err);
}

enum phi_status phi_decode_stream_finish(struct phi_decode_stream *s, struct phi_buf *out,
                                         struct phi_error *err)
{
    if (s->tokenizer->decoder.byte_level)
        flush_characters(s, true, out);
    else
        end_run(s, out);
    return check_memory(s, out, err);
}

enum phi_status phi_tokenizer_decode(const struct phi_tokenizer *t, const int32_t *ids, size_t n,
                                     bool skip_special, struct phi_buf *out, struct phi_error *err)
{
    struct phi_decode_stream s;
    enum phi_status status = PHI_OK;
    phi_decode_stream_init(&s, t, skip_special);
    for (size_t i = 0; i < n && status == PHI_OK; i++)
        status = phi_decode_stream_push(&s, ids[i], out, err);
    if (status == PHI_OK)
        status = phi_decode_stream_finish(&s, out, err);
    phi_decode_stream_deinit(&s);
    return status;
}

void phi_tokenizer_token_bytes(const struct phi_tokenizer *t, int32_t id, struct phi_buf *out)
{
    const struct phi_token *token = phi_vocab_at(&t->vocab, id);
    if (!token)
        return;
    struct phi_str form = phi_tokenizer_decoded_form(t, id, token);
    if (t->decoder.byte_level) {
        append_byte_level(form, out);
        return;
    }
    struct phi_buf replaced = {0}, other = {0};
    phi_text_rules_apply(&t->decoder.replace, form, &replaced, &other);
    int byte = t->decoder.byte_fallback ? fallback_byte(phi_buf_str(&replaced)) : -1;
    if (byte >= 0)
        phi_buf_append_char(out, (char)byte);
    else
        phi_buf_append_str(out, phi_buf_str(&replaced));
    out->failed |= replaced.failed;
    phi_buf_deinit(&replaced);
    phi_buf_deinit(&other);
}
