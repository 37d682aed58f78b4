/* detokenize.c: see detokenize.h. */
#include "engine/detokenize.h"

/* Longer than any token's text that a vocabulary holds; only a first guess for a buffer. */
enum { TOKEN_BYTES = 1024 };

enum phi_status phi_detokenizer_init(struct phi_detokenizer *d,
                                     const struct phi_tokenizer *tokenizer, bool skip_special,
                                     const struct phi_stop_set *stops, bool include_stop,
                                     size_t min_tokens, struct phi_error *err)
{
    *d = (struct phi_detokenizer){
        .has_tokenizer = tokenizer != NULL,
        .has_stops = tokenizer && stops->n_strings > 0,
        .min_tokens = min_tokens,
        .match = -1,
    };
    if (tokenizer)
        phi_decode_stream_init(&d->stream, tokenizer, skip_special);
    return d->has_stops ? phi_stop_matcher_init(&d->matcher, stops, include_stop, err) : PHI_OK;
}

void phi_detokenizer_deinit(struct phi_detokenizer *d)
{
    if (d->has_tokenizer)
        phi_decode_stream_deinit(&d->stream);
    phi_stop_matcher_deinit(&d->matcher);
    phi_buf_deinit(&d->piece);
    *d = (struct phi_detokenizer){0};
}

static enum phi_status out_of_memory(struct phi_error *err)
{
    return phi_fail(err, PHI_ERR_MEMORY, "out of memory for an answer's text");
}

static enum phi_status append(struct phi_detokenizer *d, struct phi_buf *out, struct phi_error *err)
{
    bool armed = d->n_tokens > d->min_tokens;
    d->match = phi_stop_matcher_push(&d->matcher, phi_buf_str(&d->piece), armed, out);
    bool failed = d->piece.failed || d->matcher.held.failed || (out && out->failed);
    return failed ? out_of_memory(err) : PHI_OK;
}

enum phi_status phi_detokenizer_push(struct phi_detokenizer *d, int32_t token, struct phi_buf *out,
                                     struct phi_error *err)
{
    d->n_tokens++;
    if (!d->has_tokenizer || d->match >= 0)
        return PHI_OK;
    if (!d->has_stops)
        return phi_decode_stream_push(&d->stream, token, out, err);
    phi_buf_clear(&d->piece);
    PHI_TRY(phi_decode_stream_push(&d->stream, token, &d->piece, err));
    return append(d, out, err);
}

enum phi_status phi_detokenizer_finish(struct phi_detokenizer *d, struct phi_buf *out,
                                       struct phi_error *err)
{
    if (!d->has_tokenizer || d->match >= 0)
        return PHI_OK;
    if (!d->has_stops)
        return phi_decode_stream_finish(&d->stream, out, err);
    phi_buf_clear(&d->piece);
    PHI_TRY(phi_decode_stream_finish(&d->stream, &d->piece, err));
    phi_stop_matcher_finish(&d->matcher, out);
    phi_buf_append_str(out, phi_buf_str(&d->piece));
    return out->failed ? out_of_memory(err) : PHI_OK;
}

enum phi_status phi_detokenizer_reserve(struct phi_detokenizer *d, size_t max_tokens,
                                        struct phi_error *err)
{
    /* A run of byte tokens may wait until it is decided, each byte then being a U+FFFD of three. */
    if (!d->has_tokenizer)
        return PHI_OK;
    if (!phi_buf_reserve(&d->piece, 3 * max_tokens + TOKEN_BYTES) ||
        !phi_buf_reserve(&d->stream.pending, max_tokens + TOKEN_BYTES) ||
        !phi_buf_reserve(&d->stream.form[0], TOKEN_BYTES) ||
        !phi_buf_reserve(&d->stream.form[1], TOKEN_BYTES) ||
        (d->has_stops && !phi_buf_reserve(&d->matcher.held,
                                          d->matcher.set->longest + 3 * max_tokens + TOKEN_BYTES)))
        return out_of_memory(err);
    return PHI_OK;
}
