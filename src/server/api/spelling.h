/* spelling.h: the text of single tokens, one after the other. A token may hold only a part of a
 * character; its text is then empty, and the token that completes the character has all of it, so
 * that the texts of an answer's tokens join to the answer. */
#ifndef PHI_SERVER_API_SPELLING_H
#define PHI_SERVER_API_SPELLING_H

#include "base/buf.h"
#include "phidelity.h"

/* Zeroed but for `model`, it stands before the first token. */
struct phi_spelling {
    const struct phi_model *model;
    struct phi_buf before;  /* bytes of an incomplete character before the last token taken */
    struct phi_buf pending; /* and after it */
    size_t n_characters;    /* of all texts taken so far */
};

void phi_spelling_deinit(struct phi_spelling *s);

/* The next token: *text gets its text, *bytes (may be NULL) its own bytes. Both are cleared first;
 * `failed` of *text tells that memory ran out. */
void phi_spelling_take(struct phi_spelling *s, int32_t id, struct phi_buf *text,
                       struct phi_buf *bytes);

/* The same for a token that might have stood in the place of the last one taken. What it leaves
 * incomplete is shown as U+FFFD. */
void phi_spelling_instead(struct phi_spelling *s, int32_t id, struct phi_buf *text,
                          struct phi_buf *bytes);

#endif
