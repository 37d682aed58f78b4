/* text.c: see text.h. */
#include "formats/jinja/text.h"
#include "formats/jinja/eval.h"
#include "formats/jinja/unicode.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

size_t phi_jinja_n_chars(struct phi_str s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++)
        n += ((unsigned char)s.data[i] & 0xc0) != 0x80;
    return n;
}

size_t phi_jinja_char_offset(struct phi_str s, size_t i)
{
    size_t at = 0;
    while (i > 0 && at < s.n) {
        at += phi_jinja_char_bytes(s.data[at]);
        i--;
    }
    return at;
}

/* Python prints up to 16 digits before it turns to an exponent. */
void phi_jinja_append_float(struct phi_buf *out, double f)
{
    char digits[40];
    if (isnan(f) || isinf(f)) {
        phi_buf_append_c(out, isnan(f) ? "nan" : f > 0 ? "inf" : "-inf");
        return;
    }
    for (int precision = 0; precision < 17; precision++) {
        snprintf(digits, sizeof digits, "%.*e", precision, f);
        if (strtod(digits, NULL) == f)
            break;
    }
    const char *e = strchr(digits, 'e');
    int exponent = (int)strtol(e + 1, NULL, 10);
    if (exponent < -4 || exponent >= 16) {
        phi_buf_append(out, digits, (size_t)(e - digits));
        phi_buf_printf(out, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
        return;
    }
    bool negative = digits[0] == '-';
    char plain[24];
    int n = 0;
    for (const char *p = digits + negative; p < e; p++)
        if (*p != '.')
            plain[n++] = *p;
    if (negative)
        phi_buf_append_char(out, '-');
    if (exponent < 0) {
        phi_buf_append_c(out, "0.");
        for (int i = -1; i > exponent; i--)
            phi_buf_append_char(out, '0');
        phi_buf_append(out, plain, (size_t)n);
        return;
    }
    for (int i = 0; i <= exponent || i < n; i++) {
        if (i == exponent + 1)
            phi_buf_append_char(out, '.');
        phi_buf_append_char(out, i < n ? plain[i] : '0');
    }
    if (n <= exponent + 1)
        phi_buf_append_c(out, ".0");
}

static void append_escape(struct phi_buf *out, uint32_t cp)
{
    if (cp <= 0xff)
        phi_buf_printf(out, "\\x%02" PRIx32, cp);
    else if (cp <= 0xffff)
        phi_buf_printf(out, "\\u%04" PRIx32, cp);
    else
        phi_buf_printf(out, "\\U%08" PRIx32, cp);
}

static void append_str_repr(struct phi_buf *out, struct phi_str s)
{
    bool has_single = s.n && memchr(s.data, '\'', s.n);
    bool has_double = s.n && memchr(s.data, '"', s.n);
    char quote = has_single && !has_double ? '"' : '\'';
    phi_buf_append_char(out, quote);
    for (size_t i = 0; i < s.n;) {
        size_t at = i;
        uint32_t cp = phi_jinja_next_char(s, &i);
        if (cp == (unsigned char)quote || cp == '\\') {
            phi_buf_append_char(out, '\\');
            phi_buf_append_char(out, (char)cp);
        } else if (cp == '\n' || cp == '\r' || cp == '\t') {
            phi_buf_append_c(out, cp == '\n' ? "\\n" : cp == '\r' ? "\\r" : "\\t");
        } else if (phi_jinja_char_is(cp, JINJA_UNPRINTABLE)) {
            append_escape(out, cp);
        } else {
            phi_buf_append(out, s.data + at, i - at);
        }
    }
    phi_buf_append_char(out, quote);
}

static enum phi_status append_repr(struct phi_jinja_run *r, struct phi_buf *out,
                                   struct phi_jinja_value v, int depth);

static enum phi_status append_items(struct phi_jinja_run *r, struct phi_buf *out,
                                    const struct phi_jinja_list *list, int depth)
{
    for (size_t i = 0; i < list->n; i++) {
        if (i)
            phi_buf_append_c(out, ", ");
        PHI_TRY(append_repr(r, out, list->items[i], depth - 1));
    }
    return PHI_OK;
}

static enum phi_status append_dict(struct phi_jinja_run *r, struct phi_buf *out,
                                   const struct phi_jinja_dict *d, int depth)
{
    phi_buf_append_char(out, '{');
    for (size_t i = 0; i < d->n; i++) {
        if (i)
            phi_buf_append_c(out, ", ");
        PHI_TRY(append_repr(r, out, d->entries[i].key, depth - 1));
        phi_buf_append_c(out, ": ");
        PHI_TRY(append_repr(r, out, d->entries[i].value, depth - 1));
    }
    phi_buf_append_char(out, '}');
    return PHI_OK;
}

static enum phi_status append_view(struct phi_jinja_run *r, struct phi_buf *out,
                                   struct phi_jinja_value v, int depth)
{
    phi_buf_append_c(out, phi_jinja_type_name(v));
    phi_buf_append_c(out, "([");
    for (size_t i = 0; i < v.dict->n; i++) {
        const struct phi_jinja_entry *e = &v.dict->entries[i];
        phi_buf_append_c(out, i ? ", " : "");
        if (v.view == JINJA_ITEMS)
            phi_buf_append_char(out, '(');
        if (v.view != JINJA_VALUES)
            PHI_TRY(append_repr(r, out, e->key, depth - 1));
        if (v.view == JINJA_ITEMS)
            phi_buf_append_c(out, ", ");
        if (v.view != JINJA_KEYS)
            PHI_TRY(append_repr(r, out, e->value, depth - 1));
        if (v.view == JINJA_ITEMS)
            phi_buf_append_char(out, ')');
    }
    phi_buf_append_c(out, "])");
    return PHI_OK;
}

static void append_range(struct phi_buf *out, const struct phi_jinja_range *range)
{
    phi_buf_printf(out, "range(%" PRId64 ", %" PRId64, range->start, range->stop);
    if (range->step != 1)
        phi_buf_printf(out, ", %" PRId64, range->step);
    phi_buf_append_char(out, ')');
}

static enum phi_status append_containers(struct phi_jinja_run *r, struct phi_buf *out,
                                         struct phi_jinja_value v, int depth)
{
    switch (v.type) {
    case JINJA_LIST:
        phi_buf_append_char(out, '[');
        PHI_TRY(append_items(r, out, v.list, depth));
        phi_buf_append_char(out, ']');
        return PHI_OK;
    case JINJA_TUPLE:
        phi_buf_append_char(out, '(');
        PHI_TRY(append_items(r, out, v.list, depth));
        phi_buf_append_c(out, v.list->n == 1 ? ",)" : ")");
        return PHI_OK;
    case JINJA_DICT:
        return append_dict(r, out, v.dict, depth);
    case JINJA_NAMESPACE:
        phi_buf_append_c(out, "<Namespace ");
        PHI_TRY(append_dict(r, out, v.dict, depth));
        phi_buf_append_char(out, '>');
        return PHI_OK;
    default:
        return append_view(r, out, v, depth);
    }
}

static enum phi_status append_repr(struct phi_jinja_run *r, struct phi_buf *out,
                                   struct phi_jinja_value v, int depth)
{
    if (depth == 0)
        return phi_jinja_fail(r, PHI_ERR_TOO_LONG, "values nested more than %d levels deep",
                              JINJA_MAX_NESTING);
    if (out->failed)
        return phi_jinja_text_too_long(r);
    PHI_TRY(phi_jinja_charge(r, 1));
    switch (v.type) {
    case JINJA_UNDEFINED:
        phi_buf_append_c(out, "Undefined");
        return PHI_OK;
    case JINJA_NONE:
        phi_buf_append_c(out, "None");
        return PHI_OK;
    case JINJA_BOOL:
        phi_buf_append_c(out, v.b ? "True" : "False");
        return PHI_OK;
    case JINJA_INT:
        phi_buf_printf(out, "%" PRId64, v.i);
        return PHI_OK;
    case JINJA_FLOAT:
        phi_jinja_append_float(out, v.f);
        return PHI_OK;
    case JINJA_STR:
        phi_buf_append_c(out, v.markup ? "Markup(" : "");
        append_str_repr(out, v.s);
        phi_buf_append_c(out, v.markup ? ")" : "");
        return phi_jinja_charge(r, v.s.n / 16);
    case JINJA_RANGE:
        append_range(out, v.range);
        return PHI_OK;
    case JINJA_MACRO:
        phi_jinja_append_macro_repr(out, v.macro);
        return PHI_OK;
    case JINJA_LOOP:
        return phi_jinja_append_loop_repr(r, out, v.loop);
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_DICT:
    case JINJA_VIEW:
    case JINJA_NAMESPACE:
        return append_containers(r, out, v, depth);
    default: /* Python adds an address, which no template can want */
        phi_buf_printf(out, "<%s object>", phi_jinja_type_name(v));
        return PHI_OK;
    }
}

enum phi_status phi_jinja_append_repr(struct phi_jinja_run *r, struct phi_buf *out,
                                      struct phi_jinja_value v)
{
    return append_repr(r, out, v, JINJA_MAX_NESTING);
}

enum phi_status phi_jinja_append_str(struct phi_jinja_run *r, struct phi_buf *out,
                                     struct phi_jinja_value v)
{
    if (v.type == JINJA_UNDEFINED)
        return PHI_OK;
    if (v.type != JINJA_STR)
        return append_repr(r, out, v, JINJA_MAX_NESTING);
    phi_buf_append_str(out, v.s);
    return phi_jinja_charge(r, v.s.n / 64);
}

enum phi_status phi_jinja_to_str(struct phi_jinja_run *r, struct phi_jinja_value v,
                                 struct phi_str *out)
{
    *out = (struct phi_str){"", 0};
    if (v.type == JINJA_STR) {
        *out = v.s;
        return PHI_OK;
    }
    struct phi_buf b = {.limit = JINJA_MAX_OUTPUT_BYTES};
    struct phi_jinja_value text;
    enum phi_status status = phi_jinja_append_str(r, &b, v);
    if (status == PHI_OK)
        status = phi_jinja_str_from_buf(r, &b, &text);
    if (status == PHI_OK)
        *out = text.s;
    phi_buf_deinit(&b);
    return status;
}

/* ---- JSON ---- */

static void append_json_str(struct phi_buf *out, struct phi_str s, bool ensure_ascii)
{
    phi_buf_append_char(out, '"');
    for (size_t i = 0; i < s.n;) {
        size_t at = i;
        uint32_t cp = phi_jinja_next_char(s, &i);
        if (cp == '"' || cp == '\\') {
            phi_buf_append_char(out, '\\');
            phi_buf_append_char(out, (char)cp);
        } else if (cp == '\n' || cp == '\r' || cp == '\t' || cp == '\f' || cp == '\b') {
            phi_buf_append_char(out, '\\');
            phi_buf_append_char(out, cp == '\n'   ? 'n'
                                     : cp == '\r' ? 'r'
                                     : cp == '\t' ? 't'
                                     : cp == '\f' ? 'f'
                                                  : 'b');
        } else if (cp < 0x20 || (ensure_ascii && cp >= 0x7f && cp <= 0xffff)) {
            phi_buf_printf(out, "\\u%04" PRIx32, cp);
        } else if (ensure_ascii && cp > 0xffff) {
            uint32_t v = cp - 0x10000;
            phi_buf_printf(out, "\\u%04" PRIx32 "\\u%04" PRIx32, 0xd800 + (v >> 10),
                           0xdc00 + (v & 0x3ff));
        } else {
            phi_buf_append(out, s.data + at, i - at);
        }
    }
    phi_buf_append_char(out, '"');
}

static void append_json_float(struct phi_buf *out, double f)
{
    if (isnan(f) || isinf(f))
        phi_buf_append_c(out, isnan(f) ? "NaN" : f > 0 ? "Infinity" : "-Infinity");
    else
        phi_jinja_append_float(out, f);
}

struct dump {
    struct phi_jinja_run *r;
    struct phi_buf *out;
    const struct phi_jinja_json_options *options;
};

static enum phi_status dump_value(const struct dump *d, struct phi_jinja_value v, int level);

static void new_line(const struct dump *d, int level)
{
    if (!d->options->has_indent)
        return;
    phi_buf_append_char(d->out, '\n');
    for (int i = 0; i < level; i++)
        phi_buf_append_str(d->out, d->options->indent);
}

static enum phi_status dump_list(const struct dump *d, const struct phi_jinja_list *list, int level)
{
    phi_buf_append_char(d->out, '[');
    for (size_t i = 0; i < list->n; i++) {
        if (i)
            phi_buf_append_str(d->out, d->options->item_separator);
        new_line(d, level + 1);
        PHI_TRY(dump_value(d, list->items[i], level + 1));
    }
    if (list->n)
        new_line(d, level);
    phi_buf_append_char(d->out, ']');
    return PHI_OK;
}

static enum phi_status dump_key(const struct dump *d, struct phi_jinja_value key)
{
    switch (key.type) {
    case JINJA_STR:
        append_json_str(d->out, key.s, d->options->ensure_ascii);
        return PHI_OK;
    case JINJA_FLOAT:
        phi_buf_append_char(d->out, '"');
        append_json_float(d->out, key.f);
        phi_buf_append_char(d->out, '"');
        return PHI_OK;
    case JINJA_INT:
        phi_buf_printf(d->out, "\"%" PRId64 "\"", key.i);
        return PHI_OK;
    case JINJA_BOOL:
        phi_buf_append_c(d->out, key.b ? "\"true\"" : "\"false\"");
        return PHI_OK;
    case JINJA_NONE:
        phi_buf_append_c(d->out, "\"null\"");
        return PHI_OK;
    default:
        return phi_jinja_error(d->r, "keys must be str, int, float, bool or None, not %s",
                               phi_jinja_type_name(key));
    }
}

/* The entries in the order in which to write them. */
static enum phi_status sorted_items(const struct dump *d, const struct phi_jinja_dict *dict,
                                    struct phi_jinja_value *out)
{
    PHI_TRY(phi_jinja_list_make(d->r, JINJA_LIST, dict->n, out));
    struct phi_jinja_value *keys = phi_arena_alloc(&d->r->arena, dict->n, sizeof *keys);
    if (!keys)
        return phi_jinja_no_memory(d->r);
    for (size_t i = 0; i < dict->n; i++) {
        struct phi_jinja_value pair;
        keys[i] = dict->entries[i].key;
        PHI_TRY(phi_jinja_pair(d->r, dict->entries[i].key, dict->entries[i].value, &pair));
        PHI_TRY(phi_jinja_list_append(d->r, out->list, pair));
    }
    return d->options->sort_keys ? phi_jinja_sort(d->r, out->list, keys, false) : PHI_OK;
}

static enum phi_status dump_dict(const struct dump *d, const struct phi_jinja_dict *dict, int level)
{
    struct phi_jinja_value items;
    PHI_TRY(sorted_items(d, dict, &items));
    phi_buf_append_char(d->out, '{');
    for (size_t i = 0; i < items.list->n; i++) {
        const struct phi_jinja_value *pair = items.list->items[i].list->items;
        if (i)
            phi_buf_append_str(d->out, d->options->item_separator);
        new_line(d, level + 1);
        PHI_TRY(dump_key(d, pair[0]));
        phi_buf_append_str(d->out, d->options->key_separator);
        PHI_TRY(dump_value(d, pair[1], level + 1));
    }
    if (dict->n)
        new_line(d, level);
    phi_buf_append_char(d->out, '}');
    return PHI_OK;
}

static enum phi_status dump_value(const struct dump *d, struct phi_jinja_value v, int level)
{
    if (level > JINJA_MAX_NESTING)
        return phi_jinja_fail(d->r, PHI_ERR_TOO_LONG, "values nested more than %d levels deep",
                              JINJA_MAX_NESTING);
    if (d->out->failed)
        return phi_jinja_text_too_long(d->r);
    PHI_TRY(phi_jinja_charge(d->r, 1 + (size_t)level / 8));
    switch (v.type) {
    case JINJA_NONE:
        phi_buf_append_c(d->out, "null");
        return PHI_OK;
    case JINJA_BOOL:
        phi_buf_append_c(d->out, v.b ? "true" : "false");
        return PHI_OK;
    case JINJA_INT:
        phi_buf_printf(d->out, "%" PRId64, v.i);
        return PHI_OK;
    case JINJA_FLOAT:
        append_json_float(d->out, v.f);
        return PHI_OK;
    case JINJA_STR:
        append_json_str(d->out, v.s, d->options->ensure_ascii);
        return phi_jinja_charge(d->r, v.s.n / 16);
    case JINJA_LIST:
    case JINJA_TUPLE:
        return dump_list(d, v.list, level);
    case JINJA_DICT:
        return dump_dict(d, v.dict, level);
    default:
        return phi_jinja_error(d->r, "Object of type %s is not JSON serializable",
                               phi_jinja_type_name(v));
    }
}

enum phi_status phi_jinja_append_json(struct phi_jinja_run *r, struct phi_buf *out,
                                      struct phi_jinja_value v,
                                      const struct phi_jinja_json_options *options)
{
    struct dump d = {r, out, options};
    return dump_value(&d, v, 0);
}
