/* unicode_tables.h: what a tokenizer's patterns ask about a character, by Unicode 16.0, the version
 * that the reference library follows; the C library's own tables differ from machine to machine.
 *
 * Two stages: phi_unicode_index maps a block of 128 code points to one of the different blocks in
 * phi_unicode_blocks. tools/gen_unicode.py writes both. */
#ifndef PHI_FORMATS_UNICODE_TABLES_H
#define PHI_FORMATS_UNICODE_TABLES_H

#include <stdint.h>

/* Bits of a character's class. */
enum {
    PHI_CHAR_UPPER = 1,                                                   /* Lu or Lt */
    PHI_CHAR_LOWER = 2,                                                   /* Ll */
    PHI_CHAR_CASELESS = 4,                                                /* Lm or Lo */
    PHI_CHAR_MARK = 8,                                                    /* M */
    PHI_CHAR_NUMBER = 16,                                                 /* N */
    PHI_CHAR_SPACE = 32,                                                  /* White_Space: \s */
    PHI_CHAR_WORD = 64,                                                   /* \w */
    PHI_CHAR_LETTER = PHI_CHAR_UPPER | PHI_CHAR_LOWER | PHI_CHAR_CASELESS /* L */
};

enum { PHI_UNICODE_SHIFT = 7 };

extern const unsigned char phi_unicode_index[];
extern const unsigned char phi_unicode_blocks[];

/* cp <= U+10FFFF. */
static inline unsigned phi_unicode_class(uint32_t cp)
{
    uint32_t block = phi_unicode_index[cp >> PHI_UNICODE_SHIFT];
    return phi_unicode_blocks[block << PHI_UNICODE_SHIFT | (cp & ((1u << PHI_UNICODE_SHIFT) - 1))];
}

#endif
