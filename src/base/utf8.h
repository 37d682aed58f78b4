/* utf8.h: strict UTF-8 (no surrogates, no overlong forms, at most U+10FFFF), after the Unicode
 * Standard, section 3.9, tables 3-6 and 3-7. */
#ifndef PHI_BASE_UTF8_H
#define PHI_BASE_UTF8_H

#include "base/buf.h"

#include <stdint.h>

/* Decodes the character at s[0..n), n >= 1. Returns its length 1..4 and sets *cp. For an invalid
 * sequence returns the negated length (-1..-3) of its maximal ill-formed subpart, to be replaced by
 * one U+FFFD. When s ends inside a character that could still become valid, returns 0. */
int phi_utf8_decode(const char *s, size_t n, uint32_t *cp);

/* Writes cp (a valid scalar value) to out[4]; returns the length 1..4. */
int phi_utf8_encode(uint32_t cp, char out[4]);

bool phi_utf8_valid(struct phi_str s);

/* Offset of the first invalid or incomplete sequence; s.n when all is valid. */
size_t phi_utf8_valid_prefix(struct phi_str s);

/* Appends s with each maximal ill-formed subpart replaced by U+FFFD (as String::from_utf8_lossy of
 * Rust and Python's errors="replace" do). A trailing incomplete character is one U+FFFD. */
void phi_utf8_append_lossy(struct phi_buf *out, struct phi_str s);

#endif
