/* stop.h: stop strings, matched on the text of an answer as it grows.
 *
 * Text is handed on as soon as it can no longer be part of a stop string: what is held back is
 * exactly the longest end of the text so far that begins some stop string. The result does not
 * depend on how the text is cut into pieces: the match that is complete first wins, the longest of
 * those that end together.
 *
 * Each string is followed by its own Knuth-Morris-Pratt automaton, so the time is linear in the
 * text. */
#ifndef PHI_ENGINE_STOP_H
#define PHI_ENGINE_STOP_H

#include "base/buf.h"

#include <stdint.h>

struct phi_stop_string {
    char *text;
    size_t n;          /* bytes, >= 1 */
    uint32_t *failure; /* [n] length of the longest proper prefix that ends at this byte */
};

/* The strings of one request; immutable once made. */
struct phi_stop_set {
    struct phi_stop_string *strings;
    size_t n_strings;
    size_t longest; /* bytes */
};

/* Copies the strings. PHI_ERR_INVALID when one is empty or not valid UTF-8. */
enum phi_status phi_stop_set_init(struct phi_stop_set *set, const struct phi_text *strings,
                                  size_t n_strings, struct phi_error *err);
void phi_stop_set_deinit(struct phi_stop_set *set);

struct phi_stop_matcher {
    const struct phi_stop_set *set;
    bool include;        /* the stop string itself belongs to the text */
    uint32_t *states;    /* [n_strings] bytes matched so far */
    struct phi_buf held; /* text not handed on yet */
};

enum phi_status phi_stop_matcher_init(struct phi_stop_matcher *m, const struct phi_stop_set *set,
                                      bool include, struct phi_error *err);
void phi_stop_matcher_deinit(struct phi_stop_matcher *m);

/* Takes the next piece of text and appends to *out (NULL: nowhere) what has become certain. Returns
 * the index of the string that ended the text, which is then complete, or -1. Not `armed`: the
 * piece may begin a match but not complete one (min_tokens). Memory failures are left in
 * out->failed and m->held.failed. */
int phi_stop_matcher_push(struct phi_stop_matcher *m, struct phi_str piece, bool armed,
                          struct phi_buf *out);

/* The text ends here without a match: appends what was held back. */
void phi_stop_matcher_finish(struct phi_stop_matcher *m, struct phi_buf *out);

#endif
