/* filters.c: filters (`x | f`), after jinja2/filters.py; tojson as transformers overrides it.
 */
#include "formats/jinja/eval.h"
#include "formats/jinja/text.h"
#include "formats/jinja/unicode.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define FILTER(name)                                                                               \
    static enum phi_status filter_##name(struct phi_jinja_run *r, struct phi_jinja_call *call,     \
                                         struct phi_jinja_value *out)

/* ---- text ---- */

typedef void (*text_fn)(struct phi_buf *out, struct phi_str s);

static enum phi_status map_text(struct phi_jinja_run *r, struct phi_jinja_value v, text_fn fn,
                                struct phi_jinja_value *out)
{
    struct phi_buf b = {.limit = JINJA_MAX_OUTPUT_BYTES};
    struct phi_str s;
    PHI_TRY(phi_jinja_to_str(r, v, &s));
    PHI_TRY(phi_jinja_charge(r, s.n / 8));
    fn(&b, s);
    return phi_jinja_return_text(r, PHI_OK, &b, v.type == JINJA_STR && v.markup, out);
}

FILTER(upper)
{
    return map_text(r, call->self, phi_jinja_append_upper, out);
}

FILTER(lower)
{
    return map_text(r, call->self, phi_jinja_append_lower, out);
}

FILTER(capitalize)
{
    return map_text(r, call->self, phi_jinja_append_capitalized, out);
}

/* Jinja's own idea of words: what stands behind white space, a dash or an opening bracket. */
static void append_titled(struct phi_buf *out, struct phi_str s)
{
    size_t begin = 0;
    for (size_t i = 0; i <= s.n;) {
        size_t at = i;
        uint32_t cp = i < s.n ? phi_jinja_next_char(s, &i) : ' ';
        bool separates =
            phi_jinja_char_is_space(cp) || (cp < 0x80 && cp && strchr("-({[<", (int)cp));
        if (!separates)
            continue;
        if (at > begin) {
            size_t first = phi_jinja_char_bytes(s.data[begin]);
            phi_jinja_append_upper(out, (struct phi_str){s.data + begin, first});
            phi_jinja_append_lower(out,
                                   (struct phi_str){s.data + begin + first, at - begin - first});
        }
        if (at == s.n)
            break;
        phi_buf_append(out, s.data + at, i - at);
        begin = i;
    }
}

FILTER(title)
{
    PHI_TRY(map_text(r, call->self, append_titled, out));
    out->markup = false;
    return PHI_OK;
}

FILTER(escape)
{
    if (call->self.type == JINJA_STR && call->self.markup) {
        *out = call->self;
        return PHI_OK;
    }
    PHI_TRY(map_text(r, call->self, phi_jinja_append_escaped, out));
    out->markup = true;
    return PHI_OK;
}

FILTER(forceescape)
{
    PHI_TRY(map_text(r, call->self, phi_jinja_append_escaped, out));
    out->markup = true;
    return PHI_OK;
}

FILTER(string)
{
    struct phi_str s;
    PHI_TRY(phi_jinja_to_str(r, call->self, &s));
    *out = phi_jinja_str(s);
    out->markup = call->self.type == JINJA_STR && call->self.markup;
    return PHI_OK;
}

FILTER(safe)
{
    PHI_TRY(filter_string(r, call, out));
    out->markup = true;
    return PHI_OK;
}

/* Filters that a string method does as well. */
static enum phi_status call_method(struct phi_jinja_run *r, const char *method,
                                   struct phi_jinja_value self, struct phi_jinja_value *positional,
                                   size_t n, struct phi_jinja_value *out)
{
    struct phi_str s;
    bool blocked, markup = self.type == JINJA_STR && self.markup;
    struct phi_jinja_args args = {.positional = positional, .n_positional = n};
    PHI_TRY(phi_jinja_to_str(r, self, &s));
    self = phi_jinja_str(s);
    self.markup = markup;
    return phi_jinja_call_builtin(r, phi_jinja_find_method(self, phi_str_from(method), &blocked),
                                  self, &args, out);
}

FILTER(trim)
{
    struct phi_jinja_value chars = phi_jinja_given(call->arg[0]) ? call->arg[0] : phi_jinja_none();
    return call_method(r, "strip", call->self, &chars, 1, out);
}

FILTER(center)
{
    struct phi_jinja_value width = phi_jinja_given(call->arg[0]) ? call->arg[0] : phi_jinja_int(80);
    return call_method(r, "center", call->self, &width, 1, out);
}

FILTER(replace)
{
    struct phi_jinja_value args[3] = {call->arg[0], call->arg[1], phi_jinja_int(-1)};
    struct phi_jinja_value self = call->self;
    for (int i = 0; i < 2; i++) {
        struct phi_str s;
        PHI_TRY(phi_jinja_to_str(r, args[i], &s));
        args[i] = phi_jinja_str(s);
    }
    if (phi_jinja_given(call->arg[2]) && call->arg[2].type != JINJA_NONE)
        args[2] = call->arg[2];
    self.markup = false;
    return call_method(r, "replace", self, args, 3, out);
}

FILTER(format)
{
    struct phi_buf b = {.limit = JINJA_MAX_OUTPUT_BYTES};
    struct phi_jinja_value args;
    struct phi_str s;
    PHI_TRY(phi_jinja_to_str(r, call->self, &s));
    if (call->args->n_positional && call->args->n_keywords)
        return phi_jinja_error(r, "can't handle positional and keyword arguments at the same time");
    PHI_TRY(phi_jinja_dict_make(r, JINJA_DICT, &args));
    for (size_t i = 0; i < call->args->n_keywords; i++)
        PHI_TRY(phi_jinja_dict_set(r, args.dict, phi_jinja_str(call->args->keywords[i].name),
                                   call->args->keywords[i].value));
    if (!call->args->n_keywords) {
        PHI_TRY(phi_jinja_list_make(r, JINJA_TUPLE, call->args->n_positional, &args));
        for (size_t i = 0; i < call->args->n_positional; i++)
            PHI_TRY(phi_jinja_list_append(r, args.list, call->args->positional[i]));
    }
    enum phi_status status = phi_jinja_format_percent(r, s, args, &b);
    return phi_jinja_return_text(r, status, &b, false, out);
}

static bool is_line_break(uint32_t cp)
{
    return (cp >= '\n' && cp <= '\r') || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 || cp == 0x2028 ||
           cp == 0x2029;
}

/* The line at s[*i] without its end; moves *i behind the end. */
static struct phi_str next_line(struct phi_str s, size_t *i)
{
    size_t begin = *i;
    while (*i < s.n) {
        size_t at = *i;
        uint32_t cp = phi_jinja_next_char(s, i);
        if (!is_line_break(cp))
            continue;
        if (cp == '\r' && *i < s.n && s.data[*i] == '\n')
            (*i)++;
        return (struct phi_str){s.data + begin, at - begin};
    }
    return (struct phi_str){s.data + begin, s.n - begin};
}

FILTER(indent)
{
    struct phi_buf b = {.limit = JINJA_MAX_OUTPUT_BYTES},
                   spaces = {.limit = JINJA_MAX_OUTPUT_BYTES};
    struct phi_str s = call->self.s, indention;
    struct phi_jinja_value width;
    int64_t n = 4;
    bool first = phi_jinja_given(call->arg[1]) && phi_jinja_truth(call->arg[1]);
    bool blank = phi_jinja_given(call->arg[2]) && phi_jinja_truth(call->arg[2]);
    if (call->self.type == JINJA_UNDEFINED)
        return phi_jinja_undefined_error(r, call->self);
    if (call->self.type != JINJA_STR)
        return phi_jinja_error(r, "indent needs a string, not %s", phi_jinja_type_name(call->self));
    if (call->arg[0].type == JINJA_STR) {
        indention = call->arg[0].s;
    } else {
        PHI_TRY(phi_jinja_int_arg(r, call->arg[0], "indent width", &n));
        for (int64_t i = 0; i < n && !spaces.failed; i++)
            phi_buf_append_char(&spaces, ' ');
        PHI_TRY(phi_jinja_return_text(r, PHI_OK, &spaces, false, &width));
        indention = width.s;
    }
    PHI_TRY(phi_jinja_charge(r, s.n / 8));
    if (first)
        phi_buf_append_str(&b, indention);
    bool ends = s.n == 0; /* a newline is added before the text is cut into lines */
    for (size_t i = 0; i < s.n || ends;) {
        size_t at = i;
        struct phi_str line = next_line(s, &i);
        if (at > 0) {
            phi_buf_append_char(&b, '\n');
            if (blank || line.n)
                phi_buf_append_str(&b, indention);
        }
        phi_buf_append_str(&b, line);
        if (ends)
            break;
        ends = i == s.n && line.data + line.n < s.data + s.n; /* the text ends with a line break */
        if (ends && at == i)
            break;
    }
    return phi_jinja_return_text(r, PHI_OK, &b, call->self.markup, out);
}

/* What is short enough passes, whatever it is; the rest must be text. */
FILTER(truncate)
{
    int64_t length = 255, leeway = 5, n;
    struct phi_str end = PHI_STR("...");
    bool killwords = phi_jinja_given(call->arg[1]) && phi_jinja_truth(call->arg[1]);
    PHI_TRY(phi_jinja_int_arg(r, call->arg[0], "length", &length));
    PHI_TRY(phi_jinja_str_arg(r, call->arg[2], "end", &end));
    if (call->arg[3].type != JINJA_NONE)
        PHI_TRY(phi_jinja_int_arg(r, call->arg[3], "leeway", &leeway));
    int64_t n_end = (int64_t)phi_jinja_n_chars(end);
    if (length < n_end || leeway < 0)
        return phi_jinja_error(r, "expected length >= %d and leeway >= 0", (int)n_end);
    PHI_TRY(phi_jinja_length(r, call->self, &n));
    if (n - leeway <= length) {
        *out = call->self;
        return PHI_OK;
    }
    if (call->self.type != JINJA_STR)
        return phi_jinja_error(r, "truncate needs a string, not %s",
                               phi_jinja_type_name(call->self));
    struct phi_buf b = {.limit = JINJA_MAX_OUTPUT_BYTES};
    struct phi_str s = {call->self.s.data,
                        phi_jinja_char_offset(call->self.s, (size_t)(length - n_end))};
    const char *space = killwords || s.n == 0 ? NULL : memrchr(s.data, ' ', s.n);
    if (space)
        s.n = (size_t)(space - s.data);
    phi_buf_append_str(&b, s);
    phi_buf_append_str(&b, end);
    return phi_jinja_return_text(r, PHI_OK, &b, call->self.markup, out);
}

FILTER(wordcount)
{
    struct phi_str s;
    int64_t n = 0;
    bool inside = false;
    PHI_TRY(phi_jinja_to_str(r, call->self, &s));
    PHI_TRY(phi_jinja_charge(r, s.n / 8));
    for (size_t i = 0; i < s.n;) {
        bool word = phi_jinja_char_is_word(phi_jinja_next_char(s, &i));
        n += word && !inside;
        inside = word;
    }
    *out = phi_jinja_int(n);
    return PHI_OK;
}

static void append_quoted(struct phi_buf *out, struct phi_str s, bool query)
{
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.data[i];
        bool keep = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                    (c && strchr("_.-~", c)) || (c == '/' && !query);
        if (keep)
            phi_buf_append_char(out, (char)c);
        else if (query && c == ' ')
            phi_buf_append_char(out, '+');
        else
            phi_buf_printf(out, "%%%02X", c);
    }
}

static enum phi_status append_query(struct phi_jinja_run *r, struct phi_buf *out,
                                    struct phi_jinja_value pairs)
{
    struct phi_jinja_iter it;
    bool done;
    if (pairs.type == JINJA_DICT)
        pairs =
            (struct phi_jinja_value){.type = JINJA_VIEW, .view = JINJA_ITEMS, .dict = pairs.dict};
    PHI_TRY(phi_jinja_iter_init(r, pairs, &it));
    for (bool first = true;; first = false) {
        struct phi_jinja_value item, pair;
        PHI_TRY(phi_jinja_iter_next(r, &it, &item, &done));
        if (done)
            return PHI_OK;
        PHI_TRY(phi_jinja_to_list(r, item, &pair));
        if (pair.list->n != 2)
            return phi_jinja_error(r, "urlencode needs pairs of a name and a value");
        phi_buf_append_c(out, first ? "" : "&");
        for (int i = 0; i < 2; i++) {
            struct phi_str s;
            PHI_TRY(phi_jinja_to_str(r, pair.list->items[i], &s));
            append_quoted(out, s, true);
            phi_buf_append_c(out, i ? "" : "=");
        }
    }
}

FILTER(urlencode)
{
    struct phi_buf b = {.limit = JINJA_MAX_OUTPUT_BYTES};
    struct phi_str s;
    enum phi_status status;
    if (call->self.type != JINJA_STR && phi_jinja_iterable(call->self)) {
        status = append_query(r, &b, call->self);
    } else {
        status = phi_jinja_to_str(r, call->self, &s);
        append_quoted(&b, s, false);
    }
    return phi_jinja_return_text(r, status, &b, false, out);
}

FILTER(tojson)
{
    struct phi_jinja_json_options options = {.item_separator = PHI_STR(", "),
                                             .key_separator = PHI_STR(": ")};
    struct phi_jinja_value indent = call->arg[1], separators = call->arg[2];
    struct phi_buf b = {.limit = JINJA_MAX_OUTPUT_BYTES}, spaces = {.limit = 1 << 16};
    options.ensure_ascii = phi_jinja_given(call->arg[0]) && phi_jinja_truth(call->arg[0]);
    options.sort_keys = phi_jinja_given(call->arg[3]) && phi_jinja_truth(call->arg[3]);
    if (phi_jinja_given(indent) && indent.type != JINJA_NONE) {
        int64_t n = 0;
        options.has_indent = true;
        options.item_separator = PHI_STR(",");
        if (indent.type == JINJA_STR) {
            options.indent = indent.s;
        } else {
            PHI_TRY(phi_jinja_int_arg(r, indent, "indent", &n));
            for (int64_t i = 0; i < n && !spaces.failed; i++)
                phi_buf_append_char(&spaces, ' ');
            PHI_TRY(phi_jinja_return_text(r, PHI_OK, &spaces, false, &indent));
            options.indent = indent.s;
        }
    }
    if (phi_jinja_given(separators) && separators.type != JINJA_NONE) {
        struct phi_jinja_value pair;
        PHI_TRY(phi_jinja_to_list(r, separators, &pair));
        if (pair.list->n != 2)
            return phi_jinja_error(r, "separators must be two strings");
        PHI_TRY(phi_jinja_str_arg(r, pair.list->items[0], "a separator", &options.item_separator));
        PHI_TRY(phi_jinja_str_arg(r, pair.list->items[1], "a separator", &options.key_separator));
    }
    enum phi_status status = phi_jinja_append_json(r, &b, call->self, &options);
    return phi_jinja_return_text(r, status, &b, false, out);
}

/* ---- numbers ---- */

FILTER(abs)
{
    const struct phi_jinja_value v = call->self;
    if (v.type == JINJA_FLOAT) {
        *out = phi_jinja_float(fabs(v.f));
        return PHI_OK;
    }
    if (v.type != JINJA_INT && v.type != JINJA_BOOL)
        return phi_jinja_error(r, "bad operand type for abs(): '%s'", phi_jinja_type_name(v));
    int64_t i = v.type == JINJA_BOOL ? v.b : v.i;
    return i < 0 ? phi_jinja_negate(r, v, true, out) : (*out = phi_jinja_int(i), PHI_OK);
}

/* int(float): toward zero. *fits is false for what 64 bits cannot hold. */
static bool float_to_int(double f, int64_t *out)
{
    if (!(fabs(f) < 9223372036854775808.0))
        return false;
    *out = (int64_t)f;
    return true;
}

FILTER(int)
{
    struct phi_jinja_value v = call->self;
    int64_t base = 10, i = 0;
    double f;
    bool overflow = false;
    PHI_TRY(phi_jinja_int_arg(r, call->arg[1], "base", &base));
    *out = phi_jinja_given(call->arg[0]) ? call->arg[0] : phi_jinja_int(0);
    if (v.type == JINJA_UNDEFINED)
        return phi_jinja_undefined_error(r, v);
    if (v.type == JINJA_INT || v.type == JINJA_BOOL) {
        *out = phi_jinja_int(v.type == JINJA_BOOL ? v.b : v.i);
    } else if (v.type == JINJA_FLOAT) {
        if (isnan(v.f))
            return PHI_OK;
        if (!float_to_int(v.f, &i))
            return phi_jinja_error(r, "cannot convert this float to an integer of 64 bits");
        *out = phi_jinja_int(i);
    } else if (v.type == JINJA_STR) {
        bool good_base = base == 0 || (base >= 2 && base <= 36);
        if (good_base && phi_jinja_parse_int(v.s, (int)base, &overflow, &i)) {
            if (overflow)
                return phi_jinja_error(r, "an integer beyond 64 bits");
            *out = phi_jinja_int(i);
        } else if (phi_jinja_parse_float(v.s, &f) && float_to_int(f, &i)) {
            *out = phi_jinja_int(i);
        }
    }
    return PHI_OK;
}

FILTER(float)
{
    const struct phi_jinja_value v = call->self;
    double f;
    *out = phi_jinja_given(call->arg[0]) ? call->arg[0] : phi_jinja_float(0.0);
    if (v.type == JINJA_UNDEFINED)
        return phi_jinja_undefined_error(r, v);
    if (v.type == JINJA_FLOAT)
        *out = v;
    else if (v.type == JINJA_INT || v.type == JINJA_BOOL)
        *out = phi_jinja_float(v.type == JINJA_BOOL ? v.b : (double)v.i);
    else if (v.type == JINJA_STR && phi_jinja_parse_float(v.s, &f))
        *out = phi_jinja_float(f);
    return PHI_OK;
}

/* Python's round(): to even, by the exact value of the float, which is what printf does too. */
static double round_float(double f, int64_t precision)
{
    char text[512];
    if (!isfinite(f) || precision > 100)
        return f;
    if (precision >= 0) {
        snprintf(text, sizeof text, "%.*f", (int)precision, f);
        return strtod(text, NULL);
    }
    double power = pow(10, (double)-precision);
    return isfinite(power) ? nearbyint(f / power) * power : copysign(0.0, f);
}

static enum phi_status round_int(struct phi_jinja_run *r, int64_t i, int64_t precision,
                                 struct phi_jinja_value *out)
{
    int64_t power = 1;
    *out = phi_jinja_int(i);
    if (precision >= 0)
        return PHI_OK;
    for (; precision < 0; precision++) {
        if (__builtin_mul_overflow(power, (int64_t)10, &power)) {
            *out = phi_jinja_int(0);
            return PHI_OK;
        }
    }
    int64_t rest = ((i % power) + power) % power, down = 0;
    if (__builtin_sub_overflow(i, rest, &down))
        return phi_jinja_error(r, "an integer beyond 64 bits");
    bool up = rest > power - rest || (rest == power - rest && (down / power) % 2 != 0);
    if (up && __builtin_add_overflow(down, power, &down))
        return phi_jinja_error(r, "an integer beyond 64 bits");
    *out = phi_jinja_int(down);
    return PHI_OK;
}

FILTER(round)
{
    const struct phi_jinja_value v = call->self;
    struct phi_str method = PHI_STR("common");
    int64_t precision = 0;
    bool is_int = v.type == JINJA_INT || v.type == JINJA_BOOL;
    PHI_TRY(phi_jinja_int_arg(r, call->arg[0], "precision", &precision));
    PHI_TRY(phi_jinja_str_arg(r, call->arg[1], "method", &method));
    if (!is_int && v.type != JINJA_FLOAT)
        return phi_jinja_error(r, "type %s doesn't define __round__ method",
                               phi_jinja_type_name(v));
    double f = v.type == JINJA_FLOAT ? v.f : v.type == JINJA_BOOL ? v.b : (double)v.i;
    if (phi_str_eq_c(method, "common")) {
        if (is_int)
            return round_int(r, v.type == JINJA_BOOL ? v.b : v.i, precision, out);
        *out = phi_jinja_float(round_float(f, precision));
        return PHI_OK;
    }
    bool ceiling = phi_str_eq_c(method, "ceil");
    if (!ceiling && !phi_str_eq_c(method, "floor"))
        return phi_jinja_error(r, "method must be common, ceil or floor");
    double power = pow(10, (double)precision), scaled = f * power;
    if (!isfinite(scaled) || power == 0)
        return phi_jinja_error(r, "the number is too large to be rounded");
    *out = phi_jinja_float((ceiling ? ceil(scaled) : floor(scaled)) / power);
    return PHI_OK;
}

/* ---- lists ---- */

FILTER(length)
{
    int64_t n;
    PHI_TRY(phi_jinja_length(r, call->self, &n));
    *out = phi_jinja_int(n);
    return PHI_OK;
}

FILTER(list)
{
    return phi_jinja_to_list(r, call->self, out);
}

FILTER(first)
{
    struct phi_jinja_iter it;
    bool done;
    PHI_TRY(phi_jinja_iter_init(r, call->self, &it));
    PHI_TRY(phi_jinja_iter_next(r, &it, out, &done));
    return done ? phi_jinja_undefined_make(r, out, "No first item, sequence was empty.") : PHI_OK;
}

FILTER(last)
{
    struct phi_jinja_value list;
    if (call->self.type == JINJA_GENERATOR)
        return phi_jinja_error(r, "'generator' object is not reversible");
    if (phi_jinja_is_sequence(call->self))
        list = call->self;
    else
        PHI_TRY(phi_jinja_to_list(r, call->self, &list));
    if (list.list->n == 0)
        return phi_jinja_undefined_make(r, out, "No last item, sequence was empty.");
    *out = list.list->items[list.list->n - 1];
    return PHI_OK;
}

FILTER(reverse)
{
    struct phi_jinja_value list,
        bounds[3] = {phi_jinja_none(), phi_jinja_none(), phi_jinja_int(-1)};
    if (call->self.type == JINJA_STR)
        return phi_jinja_slice(r, call->self, bounds, out);
    PHI_TRY(phi_jinja_to_list(r, call->self, &list));
    PHI_TRY(phi_jinja_slice(r, list, bounds, out));
    return call->self.type == JINJA_GENERATOR ? PHI_OK : phi_jinja_generator_make(r, *out, out);
}

FILTER(join)
{
    struct phi_buf b = {.limit = JINJA_MAX_OUTPUT_BYTES};
    struct phi_str separator = {"", 0};
    struct phi_jinja_iter it;
    enum phi_status status;
    bool by_attribute = phi_jinja_given(call->arg[1]) && call->arg[1].type != JINJA_NONE,
         done = false;
    PHI_TRY(phi_jinja_text_arg(r, call->arg[0], &separator));
    PHI_TRY(phi_jinja_iter_init(r, call->self, &it));
    for (bool first = true;; first = false) {
        struct phi_jinja_value item;
        status = phi_jinja_iter_next(r, &it, &item, &done);
        if (status == PHI_OK && !done && by_attribute)
            status = phi_jinja_get_path(r, item, call->arg[1], phi_jinja_none(), &item);
        if (status != PHI_OK || done)
            break;
        if (!first)
            phi_buf_append_str(&b, separator);
        status = phi_jinja_append_str(r, &b, item);
        if (status != PHI_OK || b.failed)
            break;
    }
    return phi_jinja_return_text(r, status, &b, false, out);
}

/* Sort keys: text without its case unless case_sensitive. */
static enum phi_status fold_case(struct phi_jinja_run *r, struct phi_jinja_value case_sensitive,
                                 struct phi_jinja_value *v)
{
    bool sensitive = phi_jinja_given(case_sensitive) && phi_jinja_truth(case_sensitive);
    return !sensitive && v->type == JINJA_STR ? map_text(r, *v, phi_jinja_append_lower, v) : PHI_OK;
}

/* The part of `attribute` up to the next comma; attributes are several sort keys. */
static enum phi_status sort_key(struct phi_jinja_run *r, struct phi_jinja_value item,
                                struct phi_jinja_value attribute,
                                struct phi_jinja_value case_sensitive, struct phi_jinja_value *out)
{
    struct phi_jinja_value v;
    PHI_TRY(phi_jinja_list_make(r, JINJA_LIST, 1, out));
    struct phi_str rest = attribute.type == JINJA_STR ? attribute.s : (struct phi_str){"", 0};
    for (;;) {
        const char *comma = rest.n ? memchr(rest.data, ',', rest.n) : NULL;
        struct phi_jinja_value part = attribute;
        if (attribute.type == JINJA_STR)
            part = phi_jinja_str(
                (struct phi_str){rest.data, comma ? (size_t)(comma - rest.data) : rest.n});
        PHI_TRY(phi_jinja_get_path(r, item, part, phi_jinja_none(), &v));
        PHI_TRY(fold_case(r, case_sensitive, &v));
        PHI_TRY(phi_jinja_list_append(r, out->list, v));
        if (!comma)
            return PHI_OK;
        rest = (struct phi_str){comma + 1, rest.n - part.s.n - 1};
    }
}

FILTER(sort)
{
    bool reverse = phi_jinja_given(call->arg[0]) && phi_jinja_truth(call->arg[0]);
    PHI_TRY(phi_jinja_to_list(r, call->self, out));
    struct phi_jinja_value *keys = phi_arena_alloc(&r->arena, out->list->n, sizeof *keys);
    if (!keys)
        return phi_jinja_no_memory(r);
    for (size_t i = 0; i < out->list->n; i++)
        PHI_TRY(sort_key(r, out->list->items[i], call->arg[2], call->arg[1], &keys[i]));
    return phi_jinja_sort(r, out->list, keys, reverse);
}

FILTER(dictsort)
{
    bool reverse = phi_jinja_given(call->arg[2]) && phi_jinja_truth(call->arg[2]);
    struct phi_str by = PHI_STR("key");
    PHI_TRY(phi_jinja_str_arg(r, call->arg[1], "by", &by));
    bool by_value = phi_str_eq_c(by, "value");
    if (!by_value && !phi_str_eq_c(by, "key"))
        return phi_jinja_error(r, "You can only sort by either \"key\" or \"value\"");
    if (call->self.type == JINJA_UNDEFINED)
        return phi_jinja_undefined_error(r, call->self);
    if (call->self.type != JINJA_DICT)
        return phi_jinja_error(r, "dictsort needs a mapping, not %s",
                               phi_jinja_type_name(call->self));
    struct phi_jinja_value items = {
        .type = JINJA_VIEW, .view = JINJA_ITEMS, .dict = call->self.dict};
    PHI_TRY(phi_jinja_to_list(r, items, out));
    struct phi_jinja_value *keys = phi_arena_alloc(&r->arena, out->list->n, sizeof *keys);
    if (!keys)
        return phi_jinja_no_memory(r);
    for (size_t i = 0; i < out->list->n; i++) {
        keys[i] = out->list->items[i].list->items[by_value];
        PHI_TRY(fold_case(r, call->arg[0], &keys[i]));
    }
    return phi_jinja_sort(r, out->list, keys, reverse);
}

static enum phi_status extreme(struct phi_jinja_run *r, struct phi_jinja_call *call, bool largest,
                               struct phi_jinja_value *out)
{
    struct phi_jinja_iter it;
    struct phi_jinja_value best_key = {.type = JINJA_MISSING}, item, key;
    PHI_TRY(phi_jinja_iter_init(r, call->self, &it));
    for (;;) {
        bool done, unordered = false;
        int order = 1;
        PHI_TRY(phi_jinja_iter_next(r, &it, &item, &done));
        if (done)
            break;
        PHI_TRY(phi_jinja_get_path(r, item, call->arg[1], phi_jinja_none(), &key));
        PHI_TRY(fold_case(r, call->arg[0], &key));
        if (phi_jinja_given(best_key)) {
            PHI_TRY(phi_jinja_compare(r, key, best_key, largest ? ">" : "<", &order, &unordered));
            if (unordered || (largest ? order <= 0 : order >= 0))
                continue;
        }
        best_key = key;
        *out = item;
    }
    if (!phi_jinja_given(best_key))
        return phi_jinja_undefined_make(r, out, "No aggregated item, sequence was empty.");
    return PHI_OK;
}

FILTER(min)
{
    return extreme(r, call, false, out);
}

FILTER(max)
{
    return extreme(r, call, true, out);
}

FILTER(sum)
{
    struct phi_jinja_iter it;
    bool by_attribute = phi_jinja_given(call->arg[0]) && call->arg[0].type != JINJA_NONE;
    *out = phi_jinja_given(call->arg[1]) ? call->arg[1] : phi_jinja_int(0);
    PHI_TRY(phi_jinja_iter_init(r, call->self, &it));
    if (out->type == JINJA_STR)
        return phi_jinja_error(r, "sum() can't sum strings [use ''.join(seq) instead]");
    for (;;) {
        struct phi_jinja_value item;
        bool done;
        PHI_TRY(phi_jinja_iter_next(r, &it, &item, &done));
        if (done)
            return PHI_OK;
        if (by_attribute)
            PHI_TRY(phi_jinja_get_path(r, item, call->arg[0], phi_jinja_none(), &item));
        PHI_TRY(phi_jinja_binary(r, TOKEN_ADD, *out, item, out));
    }
}

/* Groups of neighbours with equal keys, after sorting by them. */
FILTER(groupby)
{
    struct phi_jinja_value items, pair, group = {.type = JINJA_MISSING};
    struct phi_jinja_value fallback =
        phi_jinja_given(call->arg[1]) ? call->arg[1] : phi_jinja_none();
    PHI_TRY(phi_jinja_to_list(r, call->self, &items));
    size_t n = items.list->n;
    struct phi_jinja_value *keys = phi_arena_alloc(&r->arena, n, sizeof *keys), previous = {0};
    if (!keys)
        return phi_jinja_no_memory(r);
    for (int pass = 0; pass < 2; pass++) { /* the second time in sorted order */
        for (size_t i = 0; i < n; i++) {
            PHI_TRY(phi_jinja_get_path(r, items.list->items[i], call->arg[0], fallback, &keys[i]));
            PHI_TRY(fold_case(r, call->arg[2], &keys[i]));
        }
        if (pass == 0)
            PHI_TRY(phi_jinja_sort(r, items.list, keys, false));
    }
    PHI_TRY(phi_jinja_list_make(r, JINJA_LIST, 0, out));
    for (size_t i = 0; i < n; i++) {
        bool same = false;
        if (phi_jinja_given(group))
            PHI_TRY(phi_jinja_equal(r, keys[i], previous, &same));
        if (!same) {
            struct phi_jinja_value key;
            PHI_TRY(phi_jinja_get_path(r, items.list->items[i], call->arg[0], fallback, &key));
            PHI_TRY(phi_jinja_list_make(r, JINJA_LIST, 0, &group));
            PHI_TRY(phi_jinja_pair(r, key, group, &pair));
            pair.list->is_group = true;
            PHI_TRY(phi_jinja_list_append(r, out->list, pair));
        }
        previous = keys[i];
        PHI_TRY(phi_jinja_list_append(r, group.list, items.list->items[i]));
    }
    return PHI_OK;
}

FILTER(attr)
{
    bool found;
    struct phi_str name = {"", 0};
    PHI_TRY(phi_jinja_str_arg(r, call->arg[0], "attr()", &name));
    PHI_TRY(phi_jinja_own_attr(r, call->self, name, out, &found));
    if (found)
        return PHI_OK;
    return phi_jinja_undefined_member(r, call->self, phi_jinja_str(name), out);
}

FILTER(default)
{
    bool boolean = phi_jinja_given(call->arg[1]) && phi_jinja_truth(call->arg[1]);
    (void)r;
    *out = call->self;
    if (call->self.type == JINJA_UNDEFINED || (boolean && !phi_jinja_truth(call->self)))
        *out = phi_jinja_given(call->arg[0]) ? call->arg[0] : phi_jinja_str(PHI_STR(""));
    return PHI_OK;
}

/* ---- generators ---- */

/* A filter that yields: fills `items` from the call. */
typedef enum phi_status (*yield_fn)(struct phi_jinja_run *r, struct phi_jinja_call *call,
                                    struct phi_jinja_list *items);

/* Runs the filter now and keeps its failure, if any, for whoever reads that far. */
static enum phi_status generate(struct phi_jinja_run *r, struct phi_jinja_call *call,
                                yield_fn yield, struct phi_jinja_value *out)
{
    struct phi_jinja_value items;
    struct phi_error *outer = r->err, *failed;
    int depth = r->depth;
    PHI_TRY(phi_jinja_list_make(r, JINJA_LIST, 0, &items));
    PHI_TRY(phi_jinja_generator_make(r, items, out));
    failed = phi_arena_alloc(&r->arena, 1, sizeof *failed);
    if (!failed)
        return phi_jinja_no_memory(r);
    r->err = failed;
    enum phi_status status = yield(r, call, items.list);
    r->err = outer;
    r->depth = depth;
    if (status == PHI_OK)
        return PHI_OK;
    if (status == PHI_ERR_MEMORY ||
        status == PHI_ERR_TOO_LONG) { /* the bounds are no matter of order */
        if (outer)
            *outer = *failed;
        return status;
    }
    out->generator->failed = failed;
    return PHI_OK;
}

#define GENERATOR(name)                                                                            \
    static enum phi_status yield_##name(struct phi_jinja_run *r, struct phi_jinja_call *call,      \
                                        struct phi_jinja_list *items);                             \
    FILTER(name)                                                                                   \
    {                                                                                              \
        return generate(r, call, yield_##name, out);                                               \
    }                                                                                              \
    static enum phi_status yield_##name(struct phi_jinja_run *r, struct phi_jinja_call *call,      \
                                        struct phi_jinja_list *items)

GENERATOR(items)
{
    struct phi_jinja_value pair;
    if (call->self.type == JINJA_UNDEFINED)
        return PHI_OK;
    if (call->self.type != JINJA_DICT)
        return phi_jinja_error(r, "Can only get item pairs from a mapping.");
    for (size_t i = 0; i < call->self.dict->n; i++) {
        const struct phi_jinja_entry *e = &call->self.dict->entries[i];
        PHI_TRY(phi_jinja_pair(r, e->key, e->value, &pair));
        PHI_TRY(phi_jinja_list_append(r, items, pair));
    }
    return PHI_OK;
}

GENERATOR(unique)
{
    struct phi_jinja_iter it;
    struct phi_jinja_value seen, item, key, *found;
    PHI_TRY(phi_jinja_dict_make(r, JINJA_DICT, &seen));
    PHI_TRY(phi_jinja_iter_init(r, call->self, &it));
    for (;;) {
        bool done;
        PHI_TRY(phi_jinja_iter_next(r, &it, &item, &done));
        if (done)
            return PHI_OK;
        PHI_TRY(phi_jinja_get_path(r, item, call->arg[1], phi_jinja_none(), &key));
        PHI_TRY(fold_case(r, call->arg[0], &key));
        PHI_TRY(phi_jinja_dict_find(r, seen.dict, key, &found));
        if (found)
            continue;
        PHI_TRY(phi_jinja_dict_set(r, seen.dict, key, phi_jinja_none()));
        PHI_TRY(phi_jinja_list_append(r, items, item));
    }
}

GENERATOR(batch)
{
    struct phi_jinja_iter it;
    struct phi_jinja_value part = {.type = JINJA_MISSING}, item;
    int64_t size = 0;
    PHI_TRY(phi_jinja_int_arg(r, call->arg[0], "linecount", &size));
    PHI_TRY(phi_jinja_iter_init(r, call->self, &it));
    for (;;) {
        bool done;
        PHI_TRY(phi_jinja_iter_next(r, &it, &item, &done));
        if (done)
            break;
        if (!phi_jinja_given(part)) {
            PHI_TRY(phi_jinja_list_make(r, JINJA_LIST, 0, &part));
            if (size == 0) /* Python compares lengths, so an empty batch comes first */
                PHI_TRY(phi_jinja_list_append(r, items, part));
            if (size == 0)
                PHI_TRY(phi_jinja_list_make(r, JINJA_LIST, 0, &part));
        } else if ((int64_t)part.list->n == size) {
            PHI_TRY(phi_jinja_list_append(r, items, part));
            PHI_TRY(phi_jinja_list_make(r, JINJA_LIST, 0, &part));
        }
        PHI_TRY(phi_jinja_list_append(r, part.list, item));
    }
    if (!phi_jinja_given(part))
        return PHI_OK;
    bool fill = phi_jinja_given(call->arg[1]) && call->arg[1].type != JINJA_NONE;
    while (fill && (int64_t)part.list->n < size) {
        PHI_TRY(phi_jinja_charge(r, 1));
        PHI_TRY(phi_jinja_list_append(r, part.list, call->arg[1]));
    }
    return phi_jinja_list_append(r, items, part);
}

GENERATOR(slice)
{
    struct phi_jinja_value all, part;
    int64_t n_slices = 0, offset = 0;
    PHI_TRY(phi_jinja_to_list(r, call->self, &all));
    PHI_TRY(phi_jinja_int_arg(r, call->arg[0], "slices", &n_slices));
    if (n_slices == 0)
        return phi_jinja_error(r, "integer division or modulo by zero");
    int64_t n = (int64_t)all.list->n, per_slice = n / n_slices, extra = n % n_slices;
    for (int64_t i = 0; i < n_slices; i++) {
        int64_t start = offset + i * per_slice;
        offset += i < extra;
        int64_t end = offset + (i + 1) * per_slice;
        PHI_TRY(phi_jinja_charge(r, 1));
        PHI_TRY(phi_jinja_list_make(r, JINJA_LIST, 0, &part));
        for (int64_t k = start; k < end && k < n; k++)
            PHI_TRY(phi_jinja_list_append(r, part.list, all.list->items[k]));
        if (phi_jinja_given(call->arg[1]) && call->arg[1].type != JINJA_NONE && i >= extra)
            PHI_TRY(phi_jinja_list_append(r, part.list, call->arg[1]));
        PHI_TRY(phi_jinja_list_append(r, items, part));
    }
    return PHI_OK;
}

static const struct phi_jinja_value *keyword(const struct phi_jinja_args *args, const char *name)
{
    for (size_t i = 0; i < args->n_keywords; i++)
        if (phi_str_eq_c(args->keywords[i].name, name))
            return &args->keywords[i].value;
    return NULL;
}

/* map('upper'), map('replace', 'a', 'b'), map(attribute='x', default=y) */
GENERATOR(map)
{
    const struct phi_jinja_args *args = call->args;
    const struct phi_jinja_value *attribute = keyword(args, "attribute");
    const struct phi_jinja_value *fallback = keyword(args, "default");
    const struct phi_jinja_builtin *filter = NULL;
    struct phi_jinja_args rest = *args;
    struct phi_jinja_iter it;
    if (!phi_jinja_truth(call->self))
        return PHI_OK;
    if (args->n_positional || !attribute) {
        if (!args->n_positional)
            return phi_jinja_error(r, "map requires a filter argument");
        struct phi_str name = {"", 0};
        PHI_TRY(phi_jinja_str_arg(r, args->positional[0], "the filter's name", &name));
        attribute = NULL;
        filter = phi_jinja_find_filter(name);
        if (!filter)
            return phi_jinja_error(r, "No filter named '%.*s'.", JINJA_SHOWN(name));
        rest.positional++;
        rest.n_positional--;
    } else if (args->n_keywords > 1u + (fallback != NULL)) {
        return phi_jinja_error(r, "Unexpected keyword argument");
    }
    PHI_TRY(phi_jinja_iter_init(r, call->self, &it));
    for (;;) {
        struct phi_jinja_value item, mapped;
        bool done;
        PHI_TRY(phi_jinja_iter_next(r, &it, &item, &done));
        if (done)
            return PHI_OK;
        if (attribute)
            PHI_TRY(phi_jinja_get_path(r, item, *attribute, fallback ? *fallback : phi_jinja_none(),
                                       &mapped));
        else
            PHI_TRY(phi_jinja_call_builtin(r, filter, item, &rest, &mapped));
        PHI_TRY(phi_jinja_list_append(r, items, mapped));
    }
}

/* select, reject and their attr forms: items for which the test (or truth) equals `want`. */
static enum phi_status yield_chosen(struct phi_jinja_run *r, struct phi_jinja_call *call, bool want,
                                    bool by_attribute, struct phi_jinja_list *items)
{
    const struct phi_jinja_builtin *test = NULL;
    struct phi_jinja_args rest = *call->args;
    struct phi_jinja_value attribute = phi_jinja_none();
    struct phi_jinja_iter it;
    if (!phi_jinja_truth(call->self))
        return PHI_OK;
    if (by_attribute && !rest.n_positional)
        return phi_jinja_error(r, "Missing parameter for attribute name");
    if (by_attribute) {
        attribute = *rest.positional++;
        rest.n_positional--;
    }
    if (rest.n_positional) {
        struct phi_str name = {"", 0};
        PHI_TRY(phi_jinja_str_arg(r, rest.positional[0], "the test's name", &name));
        test = phi_jinja_find_test(name);
        if (!test)
            return phi_jinja_error(r, "No test named '%.*s'.", JINJA_SHOWN(name));
        rest.positional++;
        rest.n_positional--;
    }
    PHI_TRY(phi_jinja_iter_init(r, call->self, &it));
    for (;;) {
        struct phi_jinja_value item, tested;
        bool done;
        PHI_TRY(phi_jinja_iter_next(r, &it, &item, &done));
        if (done)
            return PHI_OK;
        tested = item;
        if (by_attribute)
            PHI_TRY(phi_jinja_get_path(r, item, attribute, phi_jinja_none(), &tested));
        if (test)
            PHI_TRY(phi_jinja_call_builtin(r, test, tested, &rest, &tested));
        if (phi_jinja_truth(tested) == want)
            PHI_TRY(phi_jinja_list_append(r, items, item));
    }
}

GENERATOR(select)
{
    return yield_chosen(r, call, true, false, items);
}

GENERATOR(reject)
{
    return yield_chosen(r, call, false, false, items);
}

GENERATOR(selectattr)
{
    return yield_chosen(r, call, true, true, items);
}

GENERATOR(rejectattr)
{
    return yield_chosen(r, call, false, true, items);
}

/* Every filter of Jinja is listed, so that "unknown" and "not supported" are told apart. */
const struct phi_jinja_builtin *phi_jinja_find_filter(struct phi_str name)
{
    static const struct phi_jinja_builtin filters[] = {
        {"abs", "", 0, filter_abs},
        {"attr", "name", 1, filter_attr},
        {"batch", "linecount fill_with", 1, filter_batch},
        {"capitalize", "", 0, filter_capitalize},
        {"center", "width", 0, filter_center},
        {"count", "", 0, filter_length},
        {"d", "default_value boolean", 0, filter_default},
        {"default", "default_value boolean", 0, filter_default},
        {"dictsort", "case_sensitive by reverse", 0, filter_dictsort},
        {"e", "", 0, filter_escape},
        {"escape", "", 0, filter_escape},
        {"filesizeformat", NULL, 0, NULL},
        {"first", "", 0, filter_first},
        {"float", "default", 0, filter_float},
        {"forceescape", "", 0, filter_forceescape},
        {"format", "*", 0, filter_format},
        {"groupby", "attribute default case_sensitive", 1, filter_groupby},
        {"indent", "width first blank", 0, filter_indent},
        {"int", "default base", 0, filter_int},
        {"items", "", 0, filter_items},
        {"join", "d attribute", 0, filter_join},
        {"last", "", 0, filter_last},
        {"length", "", 0, filter_length},
        {"list", "", 0, filter_list},
        {"lower", "", 0, filter_lower},
        {"map", "*", 0, filter_map},
        {"max", "case_sensitive attribute", 0, filter_max},
        {"min", "case_sensitive attribute", 0, filter_min},
        {"pprint", NULL, 0, NULL},
        {"random", NULL, 0, NULL},
        {"reject", "*", 0, filter_reject},
        {"rejectattr", "*", 0, filter_rejectattr},
        {"replace", "old new count", 2, filter_replace},
        {"reverse", "", 0, filter_reverse},
        {"round", "precision method", 0, filter_round},
        {"safe", "", 0, filter_safe},
        {"select", "*", 0, filter_select},
        {"selectattr", "*", 0, filter_selectattr},
        {"slice", "slices fill_with", 1, filter_slice},
        {"sort", "reverse case_sensitive attribute", 0, filter_sort},
        {"string", "", 0, filter_string},
        {"striptags", NULL, 0, NULL},
        {"sum", "attribute start", 0, filter_sum},
        {"title", "", 0, filter_title},
        {"tojson", "ensure_ascii indent separators sort_keys", 0, filter_tojson},
        {"trim", "chars", 0, filter_trim},
        {"truncate", "length killwords end leeway", 0, filter_truncate},
        {"unique", "case_sensitive attribute", 0, filter_unique},
        {"upper", "", 0, filter_upper},
        {"urlencode", "", 0, filter_urlencode},
        {"urlize", NULL, 0, NULL},
        {"wordcount", "", 0, filter_wordcount},
        {"wordwrap", NULL, 0, NULL},
        {"xmlattr", NULL, 0, NULL},
    };
    return JINJA_FIND(filters, name);
}
