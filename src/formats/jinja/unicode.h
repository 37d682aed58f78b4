/* unicode.h: characters as Python's str methods see them: classes and full case mapping. */
#ifndef PHI_FORMATS_JINJA_UNICODE_H
#define PHI_FORMATS_JINJA_UNICODE_H

#include "base/buf.h"

#include <stdint.h>

enum phi_jinja_class {
    JINJA_ALPHA,
    JINJA_DECIMAL,
    JINJA_DIGIT,
    JINJA_NUMERIC,
    JINJA_UPPER,
    JINJA_LOWER,
    JINJA_TITLE,
    JINJA_UNPRINTABLE
};

bool phi_jinja_char_is(uint32_t cp, enum phi_jinja_class class);
bool phi_jinja_char_is_space(uint32_t cp); /* str.isspace, str.strip, \s */
bool phi_jinja_char_is_word(uint32_t cp);  /* \w */

/* str.upper, .lower, .title, .capitalize, .swapcase of valid UTF-8, appended to out. */
void phi_jinja_append_upper(struct phi_buf *out, struct phi_str s);
void phi_jinja_append_lower(struct phi_buf *out, struct phi_str s);
void phi_jinja_append_title(struct phi_buf *out, struct phi_str s);
void phi_jinja_append_capitalized(struct phi_buf *out, struct phi_str s);
void phi_jinja_append_swapcase(struct phi_buf *out, struct phi_str s);

/* The code point at s[*i]; moves *i behind it. s is valid UTF-8, *i < s.n. */
uint32_t phi_jinja_next_char(struct phi_str s, size_t *i);

#endif
