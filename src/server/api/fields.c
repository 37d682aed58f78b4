/* fields.c: see fields.h. */
#include "server/api/fields.h"
#include "base/log.h"
#include "formats/json.h"

#include <math.h>
#include <stdio.h>
#include <strings.h>

/* ---------------------------------------------------------------- the body */

/* "application/json", in any case and with any parameters. */
static bool is_json_type(struct phi_str header)
{
    static const char json_type[] = "application/json";
    size_t n = sizeof json_type - 1;
    while (header.n > 0 && (*header.data == ' ' || *header.data == '\t')) {
        header.data++;
        header.n--;
    }
    if (header.n < n || strncasecmp(header.data, json_type, n) != 0)
        return false;
    return header.n == n || strchr("; \t", header.data[n]) != NULL;
}

enum phi_status phi_fields_parse(struct phi_exchange *x, struct phi_fields *f,
                                 struct phi_refusal *r)
{
    *f = (struct phi_fields){0};
    if (x->body.failed)
        return phi_refuse_memory(r);
    if (!is_json_type(phi_exchange_header(x, "Content-Type")))
        return phi_refuse(r, PHI_REFUSED_SHAPE, NULL,
                          "Unsupported Media Type: Only 'application/json' is allowed");
    enum phi_status status = phi_json_parse(phi_buf_str(&x->body), "body", &f->body, &r->error);
    if (status == PHI_ERR_MEMORY)
        return phi_refuse_status(r, NULL);
    if (status != PHI_OK) {
        r->kind = PHI_REFUSED_SHAPE;
        r->param = NULL;
        return status;
    }
    if (!json_is_object(f->body))
        return phi_refuse(r, PHI_REFUSED_SHAPE, NULL, "body: expected a JSON object");
    return PHI_OK;
}

void phi_fields_deinit(struct phi_fields *f)
{
    json_decref(f->body);
    *f = (struct phi_fields){0};
}

/* ---------------------------------------------------------------- shapes */

static const char *const expectations[] = {
    [PHI_FIELD_BOOL] = "true or false",
    [PHI_FIELD_INT] = "an integer",
    [PHI_FIELD_REAL] = "a number",
    [PHI_FIELD_TEXT] = "a string",
    [PHI_FIELD_TEXTS] = "an array of strings",
    [PHI_FIELD_STOP] = "a string or an array of strings",
    [PHI_FIELD_IDS] = "an array of integers",
    [PHI_FIELD_TOKENS] = "an array of token ids",
    [PHI_FIELD_BIAS] = "an object with a number for each token id",
    [PHI_FIELD_PROMPT] =
        "a string, an array of strings, an array of token ids or an array of such arrays",
    [PHI_FIELD_OBJECT] = "an object",
    [PHI_FIELD_OBJECTS] = "an array of objects",
    [PHI_FIELD_VALUE] = "a value",
};

bool phi_field_integer(const json_t *v, int64_t *out)
{
    if (json_is_integer(v)) {
        *out = json_integer_value(v);
        return true;
    }
    static const double limit = 0x1p63;
    double real = json_is_real(v) ? json_real_value(v) : NAN;
    if (!(fabs(real) < limit) || real != floor(real))
        return false;
    *out = (int64_t)real;
    return true;
}

static bool is_string(const json_t *v)
{
    return json_is_string(v);
}

static bool is_object(const json_t *v)
{
    return json_is_object(v);
}

static bool is_integer(const json_t *v)
{
    int64_t ignored;
    return phi_field_integer(v, &ignored);
}

static bool is_id(const json_t *v)
{
    int64_t id;
    return phi_field_integer(v, &id) && id >= 0;
}

static bool is_array_of(const json_t *v, bool (*is_item)(const json_t *))
{
    if (!json_is_array(v))
        return false;
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!is_item(json_array_get(v, i)))
            return false;
    return true;
}

static bool is_id_array(const json_t *v)
{
    return is_array_of(v, is_id);
}

static bool is_bias(const json_t *v)
{
    json_t *object = (json_t *)v; /* jansson's iterators take no const */
    if (!json_is_object(v))
        return false;
    for (void *it = json_object_iter(object); it; it = json_object_iter_next(object, it))
        if (!json_is_number(json_object_iter_value(it)))
            return false;
    return true;
}

static bool has_shape(const json_t *v, enum phi_field_kind kind)
{
    switch (kind) {
    case PHI_FIELD_BOOL:
        return json_is_boolean(v);
    case PHI_FIELD_INT:
        return is_integer(v);
    case PHI_FIELD_REAL:
        return json_is_number(v);
    case PHI_FIELD_TEXT:
        return json_is_string(v);
    case PHI_FIELD_TEXTS:
        return is_array_of(v, is_string);
    case PHI_FIELD_STOP:
        return json_is_string(v) || is_array_of(v, is_string);
    case PHI_FIELD_IDS:
        return is_array_of(v, is_integer);
    case PHI_FIELD_TOKENS:
        return is_id_array(v);
    case PHI_FIELD_BIAS:
        return is_bias(v);
    case PHI_FIELD_PROMPT:
        return json_is_string(v) || is_array_of(v, is_string) || is_id_array(v) ||
               is_array_of(v, is_id_array);
    case PHI_FIELD_OBJECT:
        return json_is_object(v);
    case PHI_FIELD_OBJECTS:
        return is_array_of(v, is_object);
    case PHI_FIELD_VALUE:
        return true;
    }
    return false;
}

static void store(struct phi_fields *f, const struct phi_field *row, const json_t *v)
{
    if (row->offset == PHI_NO_MEMBER)
        return;
    void *member = (char *)f + row->offset;
    switch (row->kind) {
    case PHI_FIELD_BOOL:
        *(bool *)member = v ? json_is_true(v) : (row->flags & PHI_FIELD_TRUE) != 0;
        break;
    case PHI_FIELD_INT: {
        struct phi_opt_int *i = member;
        i->given = v != NULL;
        if (v)
            phi_field_integer(v, &i->value);
        break;
    }
    case PHI_FIELD_REAL:
        *(struct phi_opt_real *)member =
            (struct phi_opt_real){v != NULL, v ? json_number_value(v) : 0};
        break;
    case PHI_FIELD_TEXT:
        *(struct phi_str *)member = v ? phi_json_str(v) : (struct phi_str){NULL, 0};
        break;
    default:
        *(const json_t **)member = v;
    }
}

/* ---------------------------------------------------------------- ranges */

/* Whether the value is in the row's range; `text` gets the value as an error shows it. */
static bool in_range(const struct phi_field *row, const json_t *v, char text[40])
{
    if (row->kind == PHI_FIELD_TEXT) {
        snprintf(text, 40, "''");
        return (double)json_string_length(v) >= row->lo;
    }
    double value = json_number_value(v);
    if (json_is_integer(v))
        snprintf(text, 40, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    else
        snprintf(text, 40, "%.9g", value);
    return (row->flags & PHI_FIELD_ABOVE ? value > row->lo : value >= row->lo) && value <= row->hi;
}

/* vLLM shows the parameter again where the error names one. */
static enum phi_status refuse_range(const struct phi_field *row, const char *value,
                                    struct phi_refusal *r)
{
    const char *param = row->flags & PHI_FIELD_NAMED ? row->name : NULL;
    enum phi_refusal_kind kind =
        row->flags & PHI_FIELD_EARLY ? PHI_REFUSED_SHAPE : PHI_REFUSED_VALUE;
    if (!param)
        return phi_refuse(r, kind, NULL, "%s must %s, got %s.", row->name, row->must, value);
    return phi_refuse(r, kind, param, "%s must %s, got %s. (parameter=%s, value=%s)", row->name,
                      row->must, value, row->name, value);
}

/* false and [] are how clients say that they do not want something. */
static bool asks_for_nothing(const json_t *v)
{
    return json_is_false(v) || (json_is_array(v) && json_array_size(v) == 0);
}

/* ---------------------------------------------------------------- the two passes */

static enum phi_status read_row(struct phi_fields *f, const json_t *v, const char *path,
                                const struct phi_field *row, struct phi_refusal *r)
{
    char text[40];
    if (!v && row->flags & PHI_FIELD_REQUIRED)
        return phi_refuse(r, PHI_REFUSED_SHAPE, NULL, "%s%s: Field required", path, row->name);
    if (v && !has_shape(v, row->kind))
        return phi_refuse(r, PHI_REFUSED_SHAPE, NULL, "%s%s: expected %s", path, row->name,
                          expectations[row->kind]);
    if (v && row->must && row->flags & PHI_FIELD_EARLY && !in_range(row, v, text))
        return refuse_range(row, text, r);
    store(f, row, v);
    return PHI_OK;
}

static const struct phi_field *find_row(const struct phi_field_set *set, const char *name)
{
    for (const struct phi_field *const *list = set->lists; *list; list++)
        for (const struct phi_field *row = *list; row->name; row++)
            if (strcmp(row->name, name) == 0)
                return row;
    return NULL;
}

enum phi_status phi_fields_read(struct phi_fields *f, const json_t *object,
                                const struct phi_field_set *set, struct phi_refusal *r)
{
    for (const struct phi_field *const *list = set->lists; *list; list++)
        for (const struct phi_field *row = *list; row->name; row++)
            PHI_TRY(read_row(f, phi_json_field(object, row->name), set->path, row, r));
    json_t *members = (json_t *)object; /* jansson's iterators take no const */
    for (void *it = json_object_iter(members); it; it = json_object_iter_next(members, it)) {
        const char *name = json_object_iter_key(it);
        if (!find_row(set, name))
            phi_log(PHI_LOG_DEBUG, "ignoring a field of a request: %s%s", set->path, name);
    }
    return PHI_OK;
}

enum phi_status phi_fields_check(const json_t *object, const struct phi_field_set *set,
                                 struct phi_refusal *r)
{
    char text[40];
    for (const struct phi_field *const *list = set->lists; *list; list++) {
        for (const struct phi_field *row = *list; row->name; row++) {
            const json_t *v = phi_json_field(object, row->name);
            if (!v)
                continue;
            if (row->flags & PHI_FIELD_LATER && !asks_for_nothing(v))
                return phi_refuse(r, PHI_REFUSED_VALUE,
                                  row->flags & PHI_FIELD_NAMED ? row->name : NULL,
                                  "%s is not supported by this server yet.", row->name);
            if (row->must && !(row->flags & PHI_FIELD_EARLY) && !in_range(row, v, text))
                return refuse_range(row, text, r);
        }
    }
    return PHI_OK;
}

/* ---------------------------------------------------------------- the schema */

#define ARRAY_OF(item) "{\"type\":\"array\",\"items\":" item "}"
#define STRING "{\"type\":\"string\"}"
#define FULL_STRING "{\"type\":\"string\",\"minLength\":1}"
#define INTEGER "{\"type\":\"integer\"}"
#define TOKEN "{\"type\":\"integer\",\"minimum\":0}"
#define FULL_ARRAY_OF(item) "{\"type\":\"array\",\"minItems\":1,\"items\":" item "}"

/* Of each kind, the schemas of which a value matches one. Numbers and texts have ranges besides. */
static const char *const kind_schemas[] = {
    [PHI_FIELD_BOOL] = "{\"type\":\"boolean\"}",
    [PHI_FIELD_TEXTS] = ARRAY_OF(STRING),
    [PHI_FIELD_STOP] = FULL_STRING "," ARRAY_OF(FULL_STRING),
    [PHI_FIELD_IDS] = ARRAY_OF(INTEGER),
    [PHI_FIELD_TOKENS] = ARRAY_OF(TOKEN),
    [PHI_FIELD_BIAS] = "{\"type\":\"object\",\"additionalProperties\":{\"type\":\"number\"}}",
    /* clang-format off */
    [PHI_FIELD_PROMPT] = FULL_STRING "," FULL_ARRAY_OF(STRING) "," FULL_ARRAY_OF(TOKEN) ","
                         FULL_ARRAY_OF(FULL_ARRAY_OF(TOKEN)),
    /* clang-format on */
    [PHI_FIELD_OBJECT] = "{\"type\":\"object\"}",
    [PHI_FIELD_OBJECTS] = ARRAY_OF("{\"type\":\"object\"}"),
    [PHI_FIELD_VALUE] = NULL,
};

static void write_number_schema(struct phi_out *o, const struct phi_field *row)
{
    bool is_above = row->flags & PHI_FIELD_ABOVE;
    phi_out_open(o, NULL, '{');
    phi_out_c(o, "type", row->kind == PHI_FIELD_INT ? "integer" : "number");
    if (row->must && isfinite(row->lo))
        phi_out_real(o, is_above ? "exclusiveMinimum" : "minimum", row->lo);
    if (row->must && isfinite(row->hi))
        phi_out_real(o, "maximum", row->hi);
    phi_out_close(o, '}');
}

/* The values of a row, as members of "anyOf". */
static void write_alternatives(struct phi_out *o, const struct phi_field *row)
{
    if (row->flags & PHI_FIELD_LATER) {
        if (row->kind == PHI_FIELD_BOOL)
            phi_out_raw(o, NULL, "{\"enum\":[false]}");
    } else if (row->schema) {
        phi_out_raw(o, NULL, row->schema);
    } else if (row->kind == PHI_FIELD_INT || row->kind == PHI_FIELD_REAL) {
        write_number_schema(o, row);
    } else if (row->kind == PHI_FIELD_TEXT) {
        phi_out_raw(o, NULL, row->must ? FULL_STRING : STRING);
    } else {
        phi_out_raw(o, NULL, kind_schemas[row->kind]);
    }
    if (!(row->flags & PHI_FIELD_REQUIRED))
        phi_out_raw(o, NULL, "{\"type\":\"null\"}");
}

static void write_row(struct phi_out *o, const struct phi_field *row)
{
    phi_out_open(o, row->name, '{');
    if (row->kind != PHI_FIELD_VALUE || row->schema || row->flags & PHI_FIELD_LATER) {
        phi_out_open(o, "anyOf", '[');
        write_alternatives(o, row);
        phi_out_close(o, ']');
    }
    struct phi_buf text = {0};
    phi_buf_append_c(&text, row->help);
    if (row->must)
        phi_buf_printf(&text, "; must %s", row->must);
    if (row->initial)
        phi_buf_printf(&text, " (default %s)", row->initial);
    if (row->flags & PHI_FIELD_LATER)
        phi_buf_append_c(&text, " (not supported yet)");
    if (row->flags & PHI_FIELD_IGNORED)
        phi_buf_append_c(&text, " (accepted, without effect)");
    o->buf->failed |= text.failed;
    phi_out_text(o, "description", phi_buf_str(&text));
    phi_buf_deinit(&text);
    phi_out_close(o, '}');
}

void phi_fields_write_schema(struct phi_out *o, const char *key, const struct phi_field_set *set)
{
    phi_out_open(o, key, '{');
    phi_out_c(o, "type", "object");
    phi_out_open(o, "properties", '{');
    for (const struct phi_field *const *list = set->lists; *list; list++)
        for (const struct phi_field *row = *list; row->name; row++)
            write_row(o, row);
    phi_out_close(o, '}');
    phi_out_open(o, "required", '[');
    for (const struct phi_field *const *list = set->lists; *list; list++)
        for (const struct phi_field *row = *list; row->name; row++)
            if (row->flags & PHI_FIELD_REQUIRED)
                phi_out_c(o, NULL, row->name);
    phi_out_close(o, ']');
    phi_out_close(o, '}');
}
