/* status.h: the error path. Every operating error (file, request, memory) is made by phi_fail(),
 * which writes the text once, where the cause is known; callers only pass it on or prefix it. */
#ifndef PHI_BASE_STATUS_H
#define PHI_BASE_STATUS_H

#include "phidelity.h"

#if defined(__GNUC__)
#define PHI_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define PHI_PRINTF(fmt, args)
#endif

/* Fills *err (may be NULL) and returns `code`, so that `return phi_fail(err, PHI_ERR_IO, ...)`
 * reads as one statement. The text is cut to fit and passed through phi_clean_line. */
enum phi_status phi_fail(struct phi_error *err, enum phi_status code, const char *fmt, ...)
    PHI_PRINTF(3, 4);

/* The same for a failed allocation: names what was being allocated and how many bytes. */
enum phi_status phi_fail_memory(struct phi_error *err, const char *what, size_t n_bytes);

/* Puts "prefix: " in front of the text already in *err (may be NULL). Returns err->code, or `code`
 * when err is NULL. */
enum phi_status phi_fail_prefix(struct phi_error *err, enum phi_status code, const char *fmt, ...)
    PHI_PRINTF(3, 4);

/* Makes a C string fit for one line of a terminal or a log, in place: control characters (of which
 * a hostile file name or field may be full) and bytes that are not UTF-8 become '?'. A character
 * that was cut because the text filled its `capacity` is dropped. */
void phi_clean_line(char *text, size_t capacity);

/* "invalid", "io", ...: a stable short name. */
const char *phi_status_name(enum phi_status code);

/* Passes a failure on unchanged. */
#define PHI_TRY(expr)                                                                              \
    do {                                                                                           \
        enum phi_status phi_try_status_ = (expr);                                                  \
        if (phi_try_status_ != PHI_OK)                                                             \
            return phi_try_status_;                                                                \
    } while (0)

#endif
