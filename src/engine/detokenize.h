/* detokenize.h: from an answer's tokens to its text, with stop strings. Pure state: the engine's
 * thread runs one per answer that has stop strings, to see where the answer ends; the thread that
 * reads the events runs another over the same tokens, to have the text. Both come to the same
 * end. */
#ifndef PHI_ENGINE_DETOKENIZE_H
#define PHI_ENGINE_DETOKENIZE_H

#include "engine/stop.h"
#include "formats/tokenizer.h"

struct phi_detokenizer {
    bool has_tokenizer; /* without one, tokens have no text */
    bool has_stops;
    struct phi_decode_stream stream;
    struct phi_stop_matcher matcher;
    struct phi_buf piece;
    size_t n_tokens, min_tokens;
    int match; /* the index of the stop string that ended the text, or -1 */
};

/* `tokenizer` may be NULL. The stop set must outlive the detokenizer. */
enum phi_status phi_detokenizer_init(struct phi_detokenizer *d,
                                     const struct phi_tokenizer *tokenizer, bool skip_special,
                                     const struct phi_stop_set *stops, bool include_stop,
                                     size_t min_tokens, struct phi_error *err);
void phi_detokenizer_deinit(struct phi_detokenizer *d);

/* Room for max_tokens tokens, so that pushing them allocates nothing. */
enum phi_status phi_detokenizer_reserve(struct phi_detokenizer *d, size_t max_tokens,
                                        struct phi_error *err);

/* Appends to *out (may be NULL when there are stop strings) the text that became certain with this
 * token. Sets d->match; nothing follows a match. */
enum phi_status phi_detokenizer_push(struct phi_detokenizer *d, int32_t token, struct phi_buf *out,
                                     struct phi_error *err);

/* The answer ended: appends what was held back, unless a stop string ended it. */
enum phi_status phi_detokenizer_finish(struct phi_detokenizer *d, struct phi_buf *out,
                                       struct phi_error *err);

#endif
