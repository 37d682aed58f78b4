/* pretokenize.h: cutting text into words before BPE, as the regular expressions of the GPT-2,
 * cl100k and o200k vocabularies do, in linear time and constant memory.
 *
 * A general regex engine is not used: backtracking engines recurse or give up on a run of a few ten
 * thousand letters, and their Unicode tables change from machine to machine. */
#ifndef PHI_FORMATS_PRETOKENIZE_H
#define PHI_FORMATS_PRETOKENIZE_H

#include "base/str.h"

enum phi_split_pattern {
    PHI_SPLIT_NONE, /* the whole text is one word */
    PHI_SPLIT_GPT2,
    PHI_SPLIT_CL100K,
    PHI_SPLIT_O200K
};

/* Recognises a pattern by its text as it stands in tokenizer.json. False for any other pattern. */
bool phi_pretokenize_recognize(struct phi_str pattern, enum phi_split_pattern *out);

/* The length in bytes of the first word of `text`, which is valid UTF-8 and not empty; at least 1.
 * Every character belongs to a word, so calling this until the text is used up gives all matches of
 * the pattern. What a call reads beyond the word it returns is not read again more than twice. */
size_t phi_pretokenize_next(enum phi_split_pattern pattern, struct phi_str text);

#endif
