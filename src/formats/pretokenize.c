/* pretokenize.c: see pretokenize.h. Each function below is one alternative, or a group of them, of
 * a pattern, and keeps the order in which a backtracking engine would try them. */
#include "formats/pretokenize.h"
#include "formats/unicode_tables.h"

#include <assert.h>

#define GPT2_PATTERN                                                                               \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

#define CL100K_PATTERN                                                                             \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}"                       \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

#define O200K_PATTERN                                                                              \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"    \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"                                                                \
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*"   \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"                                                                \
    "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

bool phi_pretokenize_recognize(struct phi_str pattern, enum phi_split_pattern *out)
{
    static const struct {
        const char *text;
        enum phi_split_pattern id;
    } known[] = {
        {GPT2_PATTERN, PHI_SPLIT_GPT2},
        {CL100K_PATTERN, PHI_SPLIT_CL100K},
        {O200K_PATTERN, PHI_SPLIT_O200K},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (phi_str_eq_c(pattern, known[i].text)) {
            *out = known[i].id;
            return true;
        }
    return false;
}

/* The class of the character at s[i]; *n is its length. At the end of the text both are 0. */
static unsigned class_at(struct phi_str s, size_t i, size_t *n)
{
    if (i >= s.n) {
        *n = 0;
        return 0;
    }
    const unsigned char *p = (const unsigned char *)s.data + i;
    uint32_t cp = p[0];
    if (cp < 0x80) {
        *n = 1;
    } else if (cp < 0xE0) {
        *n = 2;
        cp = (cp & 0x1Fu) << 6 | (p[1] & 0x3Fu);
    } else if (cp < 0xF0) {
        *n = 3;
        cp = (cp & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
    } else {
        *n = 4;
        cp = (cp & 0x07u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu);
    }
    return phi_unicode_class(cp);
}

/* The end of the run of characters from i on that have a class in `mask`. */
static size_t run_of(struct phi_str s, size_t i, unsigned mask)
{
    size_t n;
    while (class_at(s, i, &n) & mask)
        i += n;
    return i;
}

/* The end of the run of [^\s\p{L}\p{N}] from i on. */
static size_t run_of_others(struct phi_str s, size_t i)
{
    for (;;) {
        size_t n;
        unsigned class = class_at(s, i, &n);
        if (n == 0 || class & (PHI_CHAR_SPACE | PHI_CHAR_LETTER | PHI_CHAR_NUMBER))
            return i;
        i += n;
    }
}

static bool is_newline(char c)
{
    return c == '\r' || c == '\n';
}

/* The length of 's, 't, 're, 've, 'm, 'll or 'd at s[i], or 0. With `fold` in either case; U+017F
 * (long s) is the one character outside ASCII that folds to one of these letters. */
static size_t contraction(struct phi_str s, size_t i, bool fold)
{
    size_t left = s.n - i;
    if (left < 2 || s.data[i] != '\'')
        return 0;
    if (fold && left >= 3 && s.data[i + 1] == '\xC5' && s.data[i + 2] == '\xBF')
        return 3;
    char lower = fold ? 0x20 : 0;
    char first = s.data[i + 1] | lower;
    if (first == 's' || first == 't' || first == 'm' || first == 'd')
        return 2;
    if (left < 3)
        return 0;
    char second = s.data[i + 2] | lower;
    bool matches =
        ((first == 'r' || first == 'v') && second == 'e') || (first == 'l' && second == 'l');
    return matches ? 3 : 0;
}

/* \p{N}{1,3} at 0, where a number stands. */
static size_t up_to_three_numbers(struct phi_str s)
{
    size_t end = 0;
    for (int i = 0; i < 3; i++) {
        size_t n;
        if (!(class_at(s, end, &n) & PHI_CHAR_NUMBER))
            break;
        end += n;
    }
    return end;
}

/* \s*[\r\n]+|\s+(?!\S)|\s+, the first alternative only with `newlines`. The text starts with white
 * space that no earlier alternative took. The first gives back blanks after the last newline; the
 * second gives back one character when something else than white space follows. */
static size_t white_space(struct phi_str s, bool newlines)
{
    size_t end = 0, last = 0, after_newline = 0, n;
    while (class_at(s, end, &n) & PHI_CHAR_SPACE) {
        last = end;
        end += n;
        if (is_newline(s.data[last]))
            after_newline = end;
    }
    if (newlines && after_newline)
        return after_newline;
    return end < s.n && last > 0 ? last : end;
}

static size_t gpt2_word(struct phi_str s)
{
    size_t n = contraction(s, 0, false);
    if (n)
        return n;
    size_t start = s.data[0] == ' ' ? 1 : 0;
    unsigned class = class_at(s, start, &n);
    if (class & PHI_CHAR_LETTER)
        return run_of(s, start, PHI_CHAR_LETTER);
    if (class & PHI_CHAR_NUMBER)
        return run_of(s, start, PHI_CHAR_NUMBER);
    size_t end = run_of_others(s, start);
    return end > start ? end : white_space(s, false);
}

/* The alternatives that cl100k and o200k share, from ` ?[^\s\p{L}\p{N}]+[\r\n]*` on; o200k lets a
 * slash follow as a newline may. */
static size_t others_or_white_space(struct phi_str s, bool slash)
{
    size_t start = s.data[0] == ' ' ? 1 : 0;
    size_t end = run_of_others(s, start);
    if (end == start)
        return white_space(s, true);
    while (end < s.n && (is_newline(s.data[end]) || (slash && s.data[end] == '/')))
        end++;
    return end;
}

/* Whether [^\r\n\p{L}\p{N}] matches the character at 0, whose class is given. */
static bool may_precede_letters(struct phi_str s, unsigned class)
{
    return !(class & (PHI_CHAR_LETTER | PHI_CHAR_NUMBER)) && !is_newline(s.data[0]);
}

static size_t cl100k_word(struct phi_str s)
{
    size_t n = contraction(s, 0, true);
    if (n)
        return n;
    unsigned class = class_at(s, 0, &n);
    size_t start = may_precede_letters(s, class) ? n : 0;
    size_t end = run_of(s, start, PHI_CHAR_LETTER);
    if (end > start)
        return end;
    if (class & PHI_CHAR_NUMBER)
        return up_to_three_numbers(s);
    return others_or_white_space(s, false);
}

/* [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+ at i: the end of the match, or 0 when
 * there is none. The first class takes all it can. Where a lower-case letter follows, the second
 * goes on from there; otherwise the first gives back up to the last character that is in both
 * classes, and the second gets just that one, since upper case follows it. */
static size_t upper_then_lower(struct phi_str s, size_t i)
{
    const unsigned both = PHI_CHAR_CASELESS | PHI_CHAR_MARK;
    size_t end = i, after_both = 0, n;
    unsigned class;
    while ((class = class_at(s, end, &n)) & (PHI_CHAR_UPPER | both)) {
        end += n;
        if (class & both)
            after_both = end;
    }
    if (class & PHI_CHAR_LOWER)
        return run_of(s, end, PHI_CHAR_LOWER | both);
    return after_both;
}

/* The first two alternatives of o200k without their contraction; 0 when neither matches. Once the
 * first has failed, the letters that the second can find are all upper case. */
static size_t o200k_letters(struct phi_str s)
{
    size_t n;
    unsigned class = class_at(s, 0, &n);
    size_t start = may_precede_letters(s, class) ? n : 0;
    size_t end = upper_then_lower(s, start);
    if (!end && start)
        end = upper_then_lower(s, 0); /* a mark may be the prefix or a part of the word */
    if (end)
        return end;
    end = run_of(s, start, PHI_CHAR_UPPER);
    return end > start ? end : 0;
}

static size_t o200k_word(struct phi_str s)
{
    size_t end = o200k_letters(s);
    if (end)
        return end + contraction(s, end, true);
    size_t n;
    if (class_at(s, 0, &n) & PHI_CHAR_NUMBER)
        return up_to_three_numbers(s);
    return others_or_white_space(s, true);
}

size_t phi_pretokenize_next(enum phi_split_pattern pattern, struct phi_str text)
{
    assert(text.n > 0);
    switch (pattern) {
    case PHI_SPLIT_NONE:
        return text.n;
    case PHI_SPLIT_GPT2:
        return gpt2_word(text);
    case PHI_SPLIT_CL100K:
        return cl100k_word(text);
    case PHI_SPLIT_O200K:
        return o200k_word(text);
    }
    assert(!"a split pattern");
    return text.n;
}
