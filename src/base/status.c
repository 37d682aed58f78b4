/* status.c: see status.h. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Error text is printed on one line of a terminal or a log: no byte of a hostile file may move the
 * cursor or start a new line. */
static void strip_controls(char *text)
{
    for (unsigned char *p = (unsigned char *)text; *p; p++)
        if (*p < 0x20 || *p == 0x7f)
            *p = '?';
}

static void vset(struct phi_error *err, enum phi_status code, const char *fmt, va_list ap)
{
    err->code = code;
    vsnprintf(err->text, sizeof err->text, fmt, ap);
    strip_controls(err->text);
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
    }
    return "unknown";
}
