/* status.c: see status.h. */
#include "base/status.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Length of the last character of text[0..n) if it was cut short, else 0. */
static size_t cut_tail(const char *text, size_t n)
{
    uint32_t cp;
    for (size_t i = 1; i <= 3 && i <= n; i++)
        if (phi_utf8_decode(text + n - i, i, &cp) == 0)
            return i;
    return 0;
}

void phi_clean_line(char *text, size_t capacity)
{
    size_t n = strlen(text);
    if (n == capacity - 1)
        text[n -= cut_tail(text, n)] = '\0';
    for (size_t i = 0; i < n;) {
        uint32_t cp = 0;
        int length = phi_utf8_decode(text + i, n - i, &cp);
        bool control = length > 0 && (cp < 0x20 || (cp >= 0x7f && cp < 0xa0));
        size_t step = length > 0 ? (size_t)length : 1;
        if (length <= 0 || control)
            memset(text + i, '?', step);
        i += step;
    }
}

/* The arguments may point into err->text, so the new text is made beside it. */
static void vset(struct phi_error *err, enum phi_status code, const char *fmt, va_list ap)
{
    char text[sizeof err->text];
    vsnprintf(text, sizeof text, fmt, ap);
    phi_clean_line(text, sizeof text);
    memcpy(err->text, text, strlen(text) + 1);
    err->code = code;
}

enum phi_status phi_fail(struct phi_error *err, enum phi_status code, const char *fmt, ...)
{
    if (err) {
        va_list ap;
        va_start(ap, fmt);
        vset(err, code, fmt, ap);
        va_end(ap);
    }
    return code;
}

enum phi_status phi_fail_memory(struct phi_error *err, const char *what, size_t n_bytes)
{
    return phi_fail(err, PHI_ERR_MEMORY, "out of memory: %zu bytes for %s", n_bytes, what);
}

enum phi_status phi_fail_prefix(struct phi_error *err, enum phi_status code, const char *fmt, ...)
{
    if (!err)
        return code;
    struct phi_error old = *err;
    char prefix[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(prefix, sizeof prefix, fmt, ap);
    va_end(ap);
    return phi_fail(err, old.code, "%s: %s", prefix, old.text);
}

const char *phi_status_name(enum phi_status code)
{
    switch (code) {
    case PHI_OK:
        return "ok";
    case PHI_ERR_INVALID:
        return "invalid";
    case PHI_ERR_IO:
        return "io";
    case PHI_ERR_FORMAT:
        return "format";
    case PHI_ERR_UNSUPPORTED:
        return "unsupported";
    case PHI_ERR_MEMORY:
        return "memory";
    case PHI_ERR_TOO_LONG:
        return "too_long";
    case PHI_ERR_CANCELLED:
        return "cancelled";
    case PHI_ERR_NAN:
        return "nan";
    case PHI_ERR_INTERNAL:
        return "internal";
    case PHI_ERR_BUSY:
        return "busy";
    }
    return "unknown";
}
