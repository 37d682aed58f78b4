/* str.h: counted strings. Text from files and requests may hold NUL bytes, so it is never passed as
 * a bare char pointer: a struct phi_str is a view (pointer and length) that owns nothing. */
#ifndef PHI_BASE_STR_H
#define PHI_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct phi_str {
    const char *data; /* UTF-8 unless said otherwise; not NUL-terminated */
    size_t n;         /* bytes */
};

#define PHI_STR(literal) ((struct phi_str){(literal), sizeof(literal) - 1})

static inline struct phi_str phi_str_from(const char *c_string)
{
    return (struct phi_str){c_string, strlen(c_string)};
}

static inline bool phi_str_eq(struct phi_str a, struct phi_str b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.data, b.data, a.n) == 0);
}

static inline bool phi_str_eq_c(struct phi_str a, const char *b)
{
    return phi_str_eq(a, phi_str_from(b));
}

static inline bool phi_str_starts_with(struct phi_str s, struct phi_str prefix)
{
    return s.n >= prefix.n && (prefix.n == 0 || memcmp(s.data, prefix.data, prefix.n) == 0);
}

static inline bool phi_str_ends_with(struct phi_str s, struct phi_str suffix)
{
    return s.n >= suffix.n &&
           (suffix.n == 0 || memcmp(s.data + s.n - suffix.n, suffix.data, suffix.n) == 0);
}

#endif
