/* unicode.c: see unicode.h. */
#include "formats/jinja/unicode.h"
#include "base/utf8.h"

struct range {
    uint32_t first, last;
    uint32_t step; /* 1, or 2: every second code point */
};

struct shift {
    uint32_t first, last;
    uint32_t step;
    int32_t delta;
};

struct special {
    uint32_t cp;
    uint32_t to[3]; /* 0 = end */
};

#include "formats/jinja/unicode_tables.h"

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

struct case_map {
    const struct shift *shifts;
    size_t n_shifts;
    const struct special *specials;
    size_t n_specials;
};

#define CASE_MAP(name)                                                                             \
    {                                                                                              \
        name##_shifts, COUNT(name##_shifts), name##_specials, COUNT(name##_specials)               \
    }

static const struct case_map upper_map = CASE_MAP(to_upper);
static const struct case_map lower_map = CASE_MAP(to_lower);
static const struct case_map title_map = CASE_MAP(to_title);

static bool in_ranges(const struct range *table, size_t n, uint32_t cp)
{
    size_t lo = 0, hi = n; /* the first range that ends at or after cp */
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (table[mid].last < cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < n && cp >= table[lo].first && (cp - table[lo].first) % table[lo].step == 0;
}

bool phi_jinja_char_is(uint32_t cp, enum phi_jinja_class class)
{
    switch (class) {
    case JINJA_ALPHA:
        return in_ranges(alpha, COUNT(alpha), cp);
    case JINJA_DECIMAL:
        return in_ranges(decimal, COUNT(decimal), cp);
    case JINJA_DIGIT:
        return in_ranges(digit, COUNT(digit), cp);
    case JINJA_NUMERIC:
        return in_ranges(numeric, COUNT(numeric), cp);
    case JINJA_UPPER:
        return in_ranges(upper, COUNT(upper), cp);
    case JINJA_LOWER:
        return in_ranges(lower, COUNT(lower), cp);
    case JINJA_TITLE:
        return in_ranges(title_case, COUNT(title_case), cp);
    case JINJA_UNPRINTABLE:
        return in_ranges(unprintable, COUNT(unprintable), cp);
    }
    return false;
}

bool phi_jinja_char_is_space(uint32_t cp)
{
    return (cp >= 0x09 && cp <= 0x0d) || (cp >= 0x1c && cp <= 0x20) || cp == 0x85 || cp == 0xa0 ||
           cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

bool phi_jinja_char_is_word(uint32_t cp)
{
    return cp == '_' || phi_jinja_char_is(cp, JINJA_ALPHA) || phi_jinja_char_is(cp, JINJA_NUMERIC);
}

uint32_t phi_jinja_next_char(struct phi_str s, size_t *i)
{
    uint32_t cp = 0xfffd;
    int n = phi_utf8_decode(s.data + *i, s.n - *i, &cp);
    *i += n > 0 ? (size_t)n : 1;
    return cp;
}

static void append_char(struct phi_buf *out, uint32_t cp)
{
    char bytes[4];
    phi_buf_append(out, bytes, (size_t)phi_utf8_encode(cp, bytes));
}

static void append_mapped(struct phi_buf *out, const struct case_map *map, uint32_t cp)
{
    for (size_t i = 0; i < map->n_specials && map->specials[i].cp <= cp; i++) {
        if (map->specials[i].cp != cp)
            continue;
        for (size_t k = 0; k < 3 && map->specials[i].to[k]; k++)
            append_char(out, map->specials[i].to[k]);
        return;
    }
    size_t lo = 0, hi = map->n_shifts;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (map->shifts[mid].last < cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    const struct shift *shift = &map->shifts[lo];
    if (lo < map->n_shifts && cp >= shift->first && (cp - shift->first) % shift->step == 0)
        cp = (uint32_t)((int32_t)cp + shift->delta);
    append_char(out, cp);
}

static bool is_cased(uint32_t cp)
{
    return in_ranges(cased, COUNT(cased), cp);
}

static bool is_ignorable(uint32_t cp)
{
    return in_ranges(case_ignorable, COUNT(case_ignorable), cp);
}

/* A capital sigma at s[at] is final when a cased letter stands before it and none after it, marks
 * aside (Unicode Standard, table 3-17). */
static bool is_final_sigma(struct phi_str s, size_t at)
{
    bool before = false;
    for (size_t i = at; i > 0 && !before;) {
        do
            i--;
        while (((unsigned char)s.data[i] & 0xc0) == 0x80);
        size_t next = i;
        uint32_t cp = phi_jinja_next_char(s, &next);
        before = is_cased(cp) && !is_ignorable(cp);
        if (!before && !is_ignorable(cp))
            return false;
    }
    if (!before)
        return false;
    for (size_t i = at + 2; i < s.n;) {
        uint32_t cp = phi_jinja_next_char(s, &i);
        if (!is_ignorable(cp))
            return !is_cased(cp);
    }
    return true;
}

/* Lower case of the character at s[at]. */
static void append_lower_at(struct phi_buf *out, struct phi_str s, size_t at, uint32_t cp)
{
    if (cp == 0x3a3)
        append_char(out, is_final_sigma(s, at) ? 0x3c2 : 0x3c3);
    else
        append_mapped(out, &lower_map, cp);
}

void phi_jinja_append_upper(struct phi_buf *out, struct phi_str s)
{
    for (size_t i = 0; i < s.n;)
        append_mapped(out, &upper_map, phi_jinja_next_char(s, &i));
}

void phi_jinja_append_lower(struct phi_buf *out, struct phi_str s)
{
    for (size_t i = 0; i < s.n;) {
        size_t at = i;
        uint32_t cp = phi_jinja_next_char(s, &i);
        append_lower_at(out, s, at, cp);
    }
}

void phi_jinja_append_title(struct phi_buf *out, struct phi_str s)
{
    bool inside = false; /* of a word: the character before was cased */
    for (size_t i = 0; i < s.n;) {
        size_t at = i;
        uint32_t cp = phi_jinja_next_char(s, &i);
        if (inside)
            append_lower_at(out, s, at, cp);
        else
            append_mapped(out, &title_map, cp);
        inside = is_cased(cp);
    }
}

void phi_jinja_append_capitalized(struct phi_buf *out, struct phi_str s)
{
    size_t i = 0;
    if (s.n)
        append_mapped(out, &title_map, phi_jinja_next_char(s, &i));
    while (i < s.n) {
        size_t at = i;
        uint32_t cp = phi_jinja_next_char(s, &i);
        append_lower_at(out, s, at, cp);
    }
}

void phi_jinja_append_swapcase(struct phi_buf *out, struct phi_str s)
{
    for (size_t i = 0; i < s.n;) {
        size_t at = i;
        uint32_t cp = phi_jinja_next_char(s, &i);
        if (phi_jinja_char_is(cp, JINJA_UPPER))
            append_lower_at(out, s, at, cp);
        else if (phi_jinja_char_is(cp, JINJA_LOWER))
            append_mapped(out, &upper_map, cp);
        else
            append_char(out, cp);
    }
}
