/* json_out.h: writes JSON into a byte buffer, front to back. There is no tree to build, so there is
 * one place where memory can run out, and the buffer remembers that it did: a body is checked once,
 * at its end, and is never silently shorter than it should be.
 *
 * Every value takes the key it stands under, or NULL inside an array (and for the outermost value):
 *
 *   phi_out_open(&o, NULL, '{');  phi_out_int(&o, "n", 1);  phi_out_close(&o, '}');
 *
 * Text must be UTF-8; it is written as it is, but for what JSON wants escaped. */
#ifndef PHI_SERVER_API_JSON_OUT_H
#define PHI_SERVER_API_JSON_OUT_H

#include "base/buf.h"

#include <jansson.h>

struct phi_out {
    struct phi_buf *buf;
    bool comma; /* a value stands before, at this level */
};

void phi_out_open(struct phi_out *o, const char *key, char bracket);
void phi_out_close(struct phi_out *o, char bracket);

void phi_out_text(struct phi_out *o, const char *key, struct phi_str text);
void phi_out_c(struct phi_out *o, const char *key, const char *text); /* NULL is null */
void phi_out_int(struct phi_out *o, const char *key, int64_t value);
void phi_out_bool(struct phi_out *o, const char *key, bool value);
void phi_out_null(struct phi_out *o, const char *key);

/* The shortest digits that read back as the same float32. NaN and infinities have no JSON: null. */
void phi_out_real(struct phi_out *o, const char *key, double value);

/* A value that is JSON text already. */
void phi_out_raw(struct phi_out *o, const char *key, const char *json);

/* A value that was read from JSON. */
void phi_out_value(struct phi_out *o, const char *key, const json_t *value);

void phi_out_ids(struct phi_out *o, const char *key, const int32_t *ids, size_t n);

/* A key that is not a C string: what follows is written with key NULL. */
void phi_out_key(struct phi_out *o, struct phi_str key);

#endif
