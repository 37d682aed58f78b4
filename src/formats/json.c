/* json.c: see json.h. */
#include "formats/json.h"
#include "base/alloc.h"
#include "base/file.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

/* --- allocation ---
 *
 * Where an allocation fails while it parses, jansson 2.14 may report a syntax error, succeed with a
 * character missing from a string, or run into an assert of its own. So its allocations go through
 * phi_alloc, which also makes them part of the fault tests, and phi_json_parse asks afterwards
 * whether one failed. phi_alloc is malloc underneath: values made before the switch may be freed
 * after it. */

static _Thread_local bool parsing;
static _Thread_local bool allocation_failed; /* since the parse began */

static void *json_alloc(size_t n_bytes)
{
    void *p = phi_alloc(n_bytes, 1);
    if (!p && parsing) {
        allocation_failed = true;
        p = phi_alloc(n_bytes, 1); /* a second try lets it reach its end; the result is dropped */
    }
    return p;
}

static void route_allocations(void)
{
    json_malloc_t current_malloc;
    json_free_t current_free;
    json_get_alloc_funcs(&current_malloc, &current_free);
    if (current_malloc == malloc && current_free == free) /* else the application has its own */
        json_set_alloc_funcs(json_alloc, phi_free);
}

/* --- parsing --- */

enum phi_status phi_json_parse(struct phi_str text, const char *name, json_t **out,
                               struct phi_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    json_error_t e;
    pthread_once(&once, route_allocations);
    allocation_failed = false;
    parsing = true;
    *out = json_loadb(text.data ? text.data : "", text.n,
                      JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &e);
    parsing = false;
    if (allocation_failed) {
        json_decref(*out);
        *out = NULL;
        return phi_fail_memory(err, name, text.n);
    }
    if (*out)
        return PHI_OK;
    return phi_fail(err, PHI_ERR_FORMAT, "%s: not valid JSON: line %d column %d (byte %d): %s",
                    name, e.line, e.column, e.position, e.text);
}

enum phi_status phi_json_parse_file(const char *path, size_t max_bytes, json_t **out,
                                    struct phi_error *err)
{
    struct phi_buf text = {0};
    *out = NULL;
    enum phi_status status = phi_file_read(path, max_bytes, &text, err);
    if (status == PHI_OK)
        status = phi_json_parse(phi_buf_str(&text), path, out, err);
    phi_buf_deinit(&text);
    return status;
}

/* --- fields --- */

const json_t *phi_json_field(const json_t *obj, const char *field)
{
    const json_t *v = json_object_get(obj, field);
    return json_is_null(v) ? NULL : v;
}

static const char *type_name(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a number with a fraction";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    case JSON_NULL:
        return "null";
    }
    return "an unknown type";
}

static enum phi_status wrong_type(const char *name, const char *field, const char *expected,
                                  const json_t *v, struct phi_error *err)
{
    return phi_fail(err, PHI_ERR_FORMAT, "%s: %s: expected %s, found %s", name, field, expected,
                    type_name(v));
}

enum phi_status phi_json_get_int(const json_t *obj, const char *name, const char *field, int64_t lo,
                                 int64_t hi, int64_t *out, struct phi_error *err)
{
    const json_t *v = phi_json_field(obj, field);
    if (!v)
        return PHI_OK;
    if (!json_is_integer(v))
        return wrong_type(name, field, "an integer", v, err);
    int64_t value = json_integer_value(v);
    if (value < lo || value > hi)
        return phi_fail(err, PHI_ERR_FORMAT,
                        "%s: %s: %" PRId64 " is not between %" PRId64 " and %" PRId64, name, field,
                        value, lo, hi);
    *out = value;
    return PHI_OK;
}

enum phi_status phi_json_get_number(const json_t *obj, const char *name, const char *field,
                                    double *out, struct phi_error *err)
{
    const json_t *v = phi_json_field(obj, field);
    if (!v)
        return PHI_OK;
    if (!json_is_number(v))
        return wrong_type(name, field, "a number", v, err);
    *out = json_number_value(v);
    return PHI_OK;
}

enum phi_status phi_json_get_bool(const json_t *obj, const char *name, const char *field, bool *out,
                                  struct phi_error *err)
{
    const json_t *v = phi_json_field(obj, field);
    if (!v)
        return PHI_OK;
    if (!json_is_boolean(v))
        return wrong_type(name, field, "true or false", v, err);
    *out = json_is_true(v);
    return PHI_OK;
}

enum phi_status phi_json_get_str(const json_t *obj, const char *name, const char *field,
                                 struct phi_str *out, struct phi_error *err)
{
    const json_t *v = phi_json_field(obj, field);
    if (!v)
        return PHI_OK;
    if (!json_is_string(v))
        return wrong_type(name, field, "a string", v, err);
    *out = phi_json_str(v);
    return PHI_OK;
}

/* --- writing --- */

static int append_to_buf(const char *data, size_t n, void *context)
{
    struct phi_buf *out = context;
    phi_buf_append(out, data, n);
    return out->failed ? -1 : 0;
}

void phi_json_dump(const json_t *value, size_t flags, struct phi_buf *out)
{
    if (json_dump_callback(value, append_to_buf, out, flags) != 0)
        out->failed = true;
}
