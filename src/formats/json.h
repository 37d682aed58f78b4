/* json.h: the one reader of JSON fields, over jansson. A field error names the file and the field
 * and says what was expected. `null` means absent for every optional field. */
#ifndef PHI_FORMATS_JSON_H
#define PHI_FORMATS_JSON_H

#include "base/buf.h"
#include "base/status.h"
#include "base/str.h"

#include <jansson.h>

/* Parses `text`, which must hold one JSON value and nothing else (strict UTF-8, NUL inside strings
 * allowed, bounded depth, duplicate keys refused). `name` is the file or source, for errors, which
 * carry line and byte. The caller owns *out (json_decref). */
enum phi_status phi_json_parse(struct phi_str text, const char *name, json_t **out,
                               struct phi_error *err);

/* Reads and parses a file of at most max_bytes. */
enum phi_status phi_json_parse_file(const char *path, size_t max_bytes, json_t **out,
                                    struct phi_error *err);

/* Field readers. `obj` is an object; `name` is the file, for errors. A missing or null field leaves
 * *out as it was (the caller puts the default there first) and is PHI_OK. A field of another type
 * is PHI_ERR_FORMAT with text "name: field: expected an integer, found a string". */
enum phi_status phi_json_get_int(const json_t *obj, const char *name, const char *field, int64_t lo,
                                 int64_t hi, int64_t *out, struct phi_error *err);
enum phi_status phi_json_get_number(const json_t *obj, const char *name, const char *field,
                                    double *out, struct phi_error *err);
enum phi_status phi_json_get_bool(const json_t *obj, const char *name, const char *field, bool *out,
                                  struct phi_error *err);
/* The view lives as long as obj. */
enum phi_status phi_json_get_str(const json_t *obj, const char *name, const char *field,
                                 struct phi_str *out, struct phi_error *err);

/* Appends the value as text, with jansson's flags. A failed allocation shows in out->failed: jansson's
 * own buffer (json_dumps) loses an object's key then and says nothing. */
void phi_json_dump(const json_t *value, size_t flags, struct phi_buf *out);

/* The field's value, or NULL when missing or null. */
const json_t *phi_json_field(const json_t *obj, const char *field);

static inline struct phi_str phi_json_str(const json_t *string)
{
    return (struct phi_str){json_string_value(string), json_string_length(string)};
}

#endif
