/* format.c: "%s" % x and "{}".format(x), and reading numbers, as Python does. */
#include "formats/jinja/eval.h"
#include "formats/jinja/text.h"
#include "formats/jinja/unicode.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_WIDTH = 1000000 };

/* How one value is laid out; both notations fill this. */
struct layout {
    struct phi_str fill; /* one character */
    char align;          /* < > ^ or = (between sign and digits); 0: the type's own */
    char sign;           /* + - or space */
    bool alternate;      /* 0x, 0o, 0b */
    bool zero;
    char grouping; /* , or _; 0 none */
    int64_t width;
    int64_t precision; /* -1 none */
    char type;
};

/* ---- reading numbers ---- */

static struct phi_str trim(struct phi_str s)
{
    size_t begin = s.n, end = 0;
    for (size_t i = 0; i < s.n;) {
        size_t at = i;
        if (phi_jinja_char_is_space(phi_jinja_next_char(s, &i)))
            continue;
        begin = at < begin ? at : begin;
        end = i;
    }
    return begin < end ? (struct phi_str){s.data + begin, end - begin}
                       : (struct phi_str){s.data, 0};
}

static int digit_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'z' ? c - 'a' + 10 : 99;
}

bool phi_jinja_parse_int(struct phi_str s, int base, bool *overflow, int64_t *out)
{
    s = trim(s);
    size_t i = 0;
    bool negative = s.n && s.data[0] == '-', digits = false, underscore = true;
    *overflow = false;
    *out = 0;
    if (s.n && (s.data[0] == '-' || s.data[0] == '+'))
        i++;
    if (s.n - i > 2 && s.data[i] == '0') {
        char prefix = s.data[i + 1] | 0x20;
        int named = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 0;
        if (named && (base == named || base == 0)) {
            base = named;
            i += 2;
            underscore = false;
        }
    }
    if (base == 0)
        base = 10;
    for (; i < s.n; i++) {
        if (s.data[i] == '_' && (digits ? !underscore : !underscore)) {
            underscore = true;
            continue;
        }
        int digit = digit_value(s.data[i]);
        if (digit >= base)
            return false;
        digits = true;
        underscore = false;
        *overflow |= __builtin_mul_overflow(*out, (int64_t)base, out);
        *overflow |= negative ? __builtin_sub_overflow(*out, (int64_t)digit, out)
                              : __builtin_add_overflow(*out, (int64_t)digit, out);
    }
    return digits && !underscore;
}

bool phi_jinja_parse_float(struct phi_str s, double *out)
{
    char text[400];
    size_t n = 0;
    s = trim(s);
    if (s.n == 0 || s.n >= sizeof text)
        return false;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.data[i];
        if (c == '_') { /* only between digits */
            if (i == 0 || i + 1 == s.n || digit_value(s.data[i - 1]) > 9 ||
                digit_value(s.data[i + 1]) > 9)
                return false;
            continue;
        }
        if (c == '\0' || c == 'x' || c == 'X' || c == 'p' || c == 'P' || c == '(')
            return false; /* what strtod takes and Python does not */
        text[n++] = c;
    }
    text[n] = '\0';
    char *end;
    *out = strtod(text, &end);
    return end == text + n && !phi_jinja_char_is_space((unsigned char)text[0]);
}

/* ---- laying out ---- */

static void append_fill(struct phi_buf *out, struct phi_str fill, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        phi_buf_append_str(out, fill);
}

/* `sign` stands before `digits`; both together are padded to the width. */
static void append_padded(struct phi_buf *out, const struct layout *l, char default_align,
                          struct phi_str sign, struct phi_str digits)
{
    int64_t n = (int64_t)(phi_jinja_n_chars(sign) + phi_jinja_n_chars(digits));
    int64_t pad = l->width > n ? l->width - n : 0;
    char align = l->align ? l->align : default_align;
    int64_t left = align == '>' ? pad : align == '^' ? pad / 2 : 0;
    if (align != '=')
        append_fill(out, l->fill, left);
    phi_buf_append_str(out, sign);
    if (align == '=')
        append_fill(out, l->fill, pad);
    phi_buf_append_str(out, digits);
    if (align == '<' || align == '^')
        append_fill(out, l->fill, pad - left);
}

static struct phi_str sign_text(const struct layout *l, bool negative)
{
    if (negative)
        return PHI_STR("-");
    return l->sign == '+' ? PHI_STR("+") : l->sign == ' ' ? PHI_STR(" ") : PHI_STR("");
}

/* Separators every three digits of the whole part. */
static void append_grouped(struct phi_buf *out, const char *digits, char separator)
{
    size_t whole = strspn(digits, "0123456789");
    for (size_t i = 0; i < whole; i++) {
        if (i && (whole - i) % 3 == 0)
            phi_buf_append_char(out, separator);
        phi_buf_append_char(out, digits[i]);
    }
    phi_buf_append_c(out, digits + whole);
}

static enum phi_status append_int(struct phi_jinja_run *r, struct phi_buf *out,
                                  const struct layout *l, int64_t i)
{
    char digits[72], sign[8];
    uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    const char *prefix = "";
    size_t n = 0;
    unsigned base = l->type == 'x' || l->type == 'X' ? 16
                    : l->type == 'o'                 ? 8
                    : l->type == 'b'                 ? 2
                                                     : 10;
    do {
        unsigned d = (unsigned)(u % base);
        digits[n++] = (char)(d < 10 ? '0' + d : (l->type == 'X' ? 'A' : 'a') + d - 10);
        u /= base;
    } while (u);
    for (size_t k = 0; k < n / 2; k++) {
        char swap = digits[k];
        digits[k] = digits[n - 1 - k];
        digits[n - 1 - k] = swap;
    }
    digits[n] = '\0';
    if (l->alternate && base != 10)
        prefix = base == 16 ? (l->type == 'X' ? "0X" : "0x") : base == 8 ? "0o" : "0b";
    struct phi_str s = sign_text(l, i < 0);
    snprintf(sign, sizeof sign, "%.*s%s", (int)s.n, s.data, prefix);
    struct phi_buf grouped = {0};
    if (l->precision > (int64_t)n)
        append_fill(&grouped, PHI_STR("0"), l->precision - (int64_t)n);
    if (l->grouping)
        append_grouped(&grouped, digits, l->grouping);
    else
        phi_buf_append_c(&grouped, digits);
    append_padded(out, l, '>', phi_str_from(sign), phi_buf_str(&grouped));
    bool failed = grouped.failed;
    phi_buf_deinit(&grouped);
    return failed ? phi_jinja_no_memory(r) : PHI_OK;
}

static enum phi_status append_float(struct phi_jinja_run *r, struct phi_buf *out,
                                    const struct layout *l, double f)
{
    char spec[16], digits[512];
    int precision = l->precision < 0 ? 6 : (int)l->precision;
    char type = l->type == '%' ? 'f' : l->type;
    if (precision > 100)
        return phi_jinja_fail(r, PHI_ERR_UNSUPPORTED, "a float with more than 100 digits");
    if (l->type == '%')
        f *= 100;
    snprintf(spec, sizeof spec, "%%%s.*%c", l->alternate ? "#" : "", type);
    int n = snprintf(digits, sizeof digits - 1, spec, precision, fabs(f));
    if (l->type == '%')
        snprintf(digits + n, sizeof digits - (size_t)n, "%%");
    struct phi_buf grouped = {0};
    if (l->grouping)
        append_grouped(&grouped, digits, l->grouping);
    else
        phi_buf_append_c(&grouped, digits);
    append_padded(out, l, '>', sign_text(l, signbit(f) && !isnan(f)), phi_buf_str(&grouped));
    bool failed = grouped.failed;
    phi_buf_deinit(&grouped);
    return failed ? phi_jinja_no_memory(r) : PHI_OK;
}

static void append_text(struct phi_buf *out, const struct layout *l, char default_align,
                        struct phi_str s)
{
    if (l->precision >= 0)
        s.n = phi_jinja_char_offset(s, (size_t)l->precision);
    append_padded(out, l, default_align, PHI_STR(""), s);
}

static bool is_int(struct phi_jinja_value v)
{
    return v.type == JINJA_INT || v.type == JINJA_BOOL;
}

static int64_t as_int(struct phi_jinja_value v)
{
    return v.type == JINJA_BOOL ? v.b : v.i;
}

/* ---- % ---- */

static enum phi_status bad_format(struct phi_jinja_run *r)
{
    return phi_jinja_error(r, "malformed format string");
}

static enum phi_status read_number(struct phi_jinja_run *r, struct phi_str s, size_t *i,
                                   int64_t *out)
{
    *out = 0;
    for (; *i < s.n && s.data[*i] >= '0' && s.data[*i] <= '9'; (*i)++) {
        *out = *out * 10 + (s.data[*i] - '0');
        if (*out > MAX_WIDTH)
            return phi_jinja_fail(r, PHI_ERR_TOO_LONG, "a format width beyond %d", MAX_WIDTH);
    }
    return PHI_OK;
}

/* Where the values of % come from. */
struct percent_args {
    struct phi_jinja_value all;
    size_t next;
    bool by_name; /* %(name)s was used */
};

static enum phi_status next_value(struct phi_jinja_run *r, struct percent_args *a,
                                  struct phi_jinja_value *out)
{
    if (a->all.type == JINJA_TUPLE ? a->next >= a->all.list->n : a->next > 0)
        return phi_jinja_error(r, "not enough arguments for format string");
    *out = a->all.type == JINJA_TUPLE ? a->all.list->items[a->next] : a->all;
    a->next++;
    return PHI_OK;
}

static enum phi_status percent_value(struct phi_jinja_run *r, struct phi_buf *out, struct layout *l,
                                     struct phi_jinja_value v)
{
    struct phi_str text;
    if (l->zero && !l->align && l->type != 's' && l->type != 'r' && l->type != 'a' &&
        l->type != 'c') {
        l->align = '=';
        l->fill = PHI_STR("0");
    }
    if (l->type == 'i' || l->type == 'u')
        l->type = 'd';
    switch (l->type) {
    case 's':
        PHI_TRY(phi_jinja_to_str(r, v, &text));
        append_text(out, l, '>', text);
        return PHI_OK;
    case 'r': {
        struct phi_buf b = {.limit = JINJA_MAX_OUTPUT_BYTES};
        struct phi_jinja_value shown;
        enum phi_status status = phi_jinja_append_repr(r, &b, v);
        PHI_TRY(phi_jinja_return_text(r, status, &b, false, &shown));
        append_text(out, l, '>', shown.s);
        return PHI_OK;
    }
    case 'd':
        if (v.type == JINJA_FLOAT && fabs(v.f) < 9e18)
            v = phi_jinja_int((int64_t)v.f);
        /* fall through */
    case 'x':
    case 'X':
    case 'o':
        if (!is_int(v))
            return phi_jinja_error(r, "%%%c format: an integer is required, not %s", l->type,
                                   phi_jinja_type_name(v));
        return append_int(r, out, l, as_int(v));
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
        if (!is_int(v) && v.type != JINJA_FLOAT)
            return phi_jinja_error(r, "must be real number, not %s", phi_jinja_type_name(v));
        return append_float(r, out, l, is_int(v) ? (double)as_int(v) : v.f);
    case 'c':
        if (v.type == JINJA_STR && phi_jinja_n_chars(v.s) == 1) {
            append_text(out, l, '>', v.s);
            return PHI_OK;
        }
        return phi_jinja_error(r, "%%c requires a character");
    default:
        return phi_jinja_error(r, "unsupported format character '%c'", l->type);
    }
}

/* One directive; *i stands behind the "%". */
static enum phi_status percent_directive(struct phi_jinja_run *r, struct phi_str f, size_t *i,
                                         struct percent_args *a, struct phi_buf *out)
{
    struct layout l = {.fill = PHI_STR(" "), .precision = -1};
    struct phi_jinja_value v = {.type = JINJA_MISSING}, width;
    if (*i < f.n && f.data[*i] == '(') {
        const char *close = memchr(f.data + *i, ')', f.n - *i);
        if (!close || a->all.type != JINJA_DICT)
            return phi_jinja_error(r,
                                   close ? "format requires a mapping" : "incomplete format key");
        struct phi_str key = {f.data + *i + 1, (size_t)(close - f.data) - *i - 1};
        const struct phi_jinja_value *found = phi_jinja_dict_get(a->all.dict, key);
        if (!found)
            return phi_jinja_error(r, "'%.*s'", JINJA_SHOWN(key));
        v = *found;
        a->by_name = true;
        *i = (size_t)(close - f.data) + 1;
    }
    for (; *i < f.n && f.data[*i] && strchr("-+ #0", f.data[*i]); (*i)++) {
        char c = f.data[*i];
        if (c == '-')
            l.align = '<';
        else if (c == '+' || (c == ' ' && l.sign != '+'))
            l.sign = c;
        l.alternate |= c == '#';
        l.zero |= c == '0';
    }
    if (*i < f.n && f.data[*i] == '*') {
        PHI_TRY(next_value(r, a, &width));
        PHI_TRY(phi_jinja_int_arg(r, width, "*", &l.width));
        if (l.width > MAX_WIDTH || l.width < 0)
            return phi_jinja_fail(r, PHI_ERR_TOO_LONG, "a format width beyond %d", MAX_WIDTH);
        (*i)++;
    } else {
        PHI_TRY(read_number(r, f, i, &l.width));
    }
    if (*i < f.n && f.data[*i] == '.') {
        (*i)++;
        PHI_TRY(read_number(r, f, i, &l.precision));
    }
    if (*i >= f.n)
        return phi_jinja_error(r, "incomplete format");
    l.type = f.data[(*i)++];
    if (l.type == '%') {
        phi_buf_append_char(out, '%');
        return PHI_OK;
    }
    if (!phi_jinja_given(v))
        PHI_TRY(next_value(r, a, &v));
    return percent_value(r, out, &l, v);
}

enum phi_status phi_jinja_format_percent(struct phi_jinja_run *r, struct phi_str format,
                                         struct phi_jinja_value args, struct phi_buf *out)
{
    struct percent_args a = {.all = args};
    PHI_TRY(phi_jinja_charge(r, format.n));
    for (size_t i = 0; i < format.n;) {
        if (format.data[i] != '%') {
            phi_buf_append_char(out, format.data[i++]);
            continue;
        }
        i++;
        PHI_TRY(percent_directive(r, format, &i, &a, out));
    }
    /* A mapping (in Python: what can be subscripted) need not be used up. */
    bool unused = a.next == 0 && !a.by_name && args.type != JINJA_DICT && args.type != JINJA_LIST &&
                  args.type != JINJA_RANGE && args.type != JINJA_UNDEFINED;
    if (args.type == JINJA_TUPLE)
        unused = a.next < args.list->n;
    return unused ? phi_jinja_error(r, "not all arguments converted during string formatting")
                  : PHI_OK;
}

/* ---- {} ---- */

/* [[fill]align][sign][#][0][width][grouping][.precision][type] */
static enum phi_status read_layout(struct phi_jinja_run *r, struct phi_str s, struct layout *l)
{
    size_t i = 0, first = s.n ? phi_jinja_char_bytes(s.data[0]) : 0;
    *l = (struct layout){.fill = PHI_STR(" "), .precision = -1};
    if (first < s.n && s.data[first] && strchr("<>^=", s.data[first])) {
        l->fill = (struct phi_str){s.data, first};
        l->align = s.data[first];
        i = first + 1;
    } else if (s.n && s.data[0] && strchr("<>^=", s.data[0])) {
        l->align = s.data[i++];
    }
    if (i < s.n && s.data[i] && strchr("+- ", s.data[i]))
        l->sign = s.data[i++];
    if (i < s.n && s.data[i] == '#')
        l->alternate = s.data[i++];
    if (i < s.n && s.data[i] == '0') {
        l->zero = true;
        i++;
    }
    PHI_TRY(read_number(r, s, &i, &l->width));
    if (i < s.n && (s.data[i] == ',' || s.data[i] == '_'))
        l->grouping = s.data[i++];
    if (i < s.n && s.data[i] == '.') {
        size_t digits = ++i;
        PHI_TRY(read_number(r, s, &i, &l->precision));
        if (i == digits)
            return phi_jinja_error(r, "Format specifier missing precision");
    }
    if (i < s.n)
        l->type = s.data[i++];
    return i == s.n ? PHI_OK : phi_jinja_error(r, "Invalid format specifier");
}

static enum phi_status format_value(struct phi_jinja_run *r, struct phi_str spec,
                                    struct phi_jinja_value v, struct phi_buf *out)
{
    struct layout l;
    struct phi_str text;
    if (spec.n == 0)
        return phi_jinja_append_str(r, out, v);
    PHI_TRY(read_layout(r, spec, &l));
    bool number = is_int(v) || v.type == JINJA_FLOAT;
    if (l.zero && number && !l.align) {
        l.align = '=';
        l.fill = PHI_STR("0");
    } else if (l.zero && !l.align) {
        l.align = '<';
        l.fill = PHI_STR("0");
    }
    if (number && (l.type == 'e' || l.type == 'E' || l.type == 'f' || l.type == 'F' ||
                   l.type == 'g' || l.type == 'G' || l.type == '%'))
        return append_float(r, out, &l, is_int(v) ? (double)as_int(v) : v.f);
    if (is_int(v) && (!l.type || (l.type != 's' && strchr("dxXob", l.type)))) {
        if (l.precision >= 0)
            return phi_jinja_error(r, "Precision not allowed in integer format specifier");
        return append_int(r, out, &l, as_int(v));
    }
    if (v.type == JINJA_FLOAT && !l.type && l.precision < 0 && !l.grouping) {
        PHI_TRY(phi_jinja_to_str(r, phi_jinja_float(fabs(v.f)), &text));
        append_padded(out, &l, '>', sign_text(&l, signbit(v.f) && !isnan(v.f)), text);
        return PHI_OK;
    }
    if (v.type == JINJA_STR && (!l.type || l.type == 's') && !l.sign && !l.grouping &&
        l.align != '=' && !l.alternate) {
        append_text(out, &l, '<', v.s);
        return PHI_OK;
    }
    return phi_jinja_error(r, "the format '%.*s' is not supported for %s", JINJA_SHOWN(spec),
                           phi_jinja_type_name(v));
}

/* The value that a field's name stands for: "", "0", "name", then .attribute and [item]. */
static enum phi_status field_value(struct phi_jinja_run *r, struct phi_str field,
                                   const struct phi_jinja_args *args, size_t *next,
                                   struct phi_jinja_value *out)
{
    size_t n = 0;
    int64_t index;
    bool overflow;
    while (n < field.n && field.data[n] != '.' && field.data[n] != '[')
        n++;
    struct phi_str first = {field.data, n};
    if (n == 0 || phi_jinja_parse_int(first, 10, &overflow, &index)) {
        index = n == 0 ? (int64_t)(*next)++ : index;
        if (index < 0 || index >= (int64_t)args->n_positional)
            return phi_jinja_error(
                r, "Replacement index %" PRId64 " out of range for positional args tuple", index);
        *out = args->positional[index];
    } else {
        size_t k = 0;
        while (k < args->n_keywords && !phi_str_eq(args->keywords[k].name, first))
            k++;
        if (k == args->n_keywords)
            return phi_jinja_error(r, "'%.*s'", JINJA_SHOWN(first));
        *out = args->keywords[k].value;
    }
    while (n < field.n) {
        bool item = field.data[n] == '[';
        size_t begin = ++n;
        while (n < field.n &&
               (item ? field.data[n] != ']' : field.data[n] != '.' && field.data[n] != '['))
            n++;
        struct phi_str name = {field.data + begin, n - begin};
        if (name.n == 0 || (item && n == field.n))
            return bad_format(r);
        n += item;
        if (!item)
            PHI_TRY(phi_jinja_get_attr(r, *out, name, out));
        else if (phi_jinja_parse_int(name, 10, &overflow, &index))
            PHI_TRY(phi_jinja_get_item(r, *out, phi_jinja_int(index), out));
        else
            PHI_TRY(phi_jinja_get_item(r, *out, phi_jinja_str(name), out));
    }
    return PHI_OK;
}

static enum phi_status replacement(struct phi_jinja_run *r, struct phi_str inside,
                                   const struct phi_jinja_args *args, size_t *next,
                                   struct phi_buf *out)
{
    struct phi_str field = inside, spec = {"", 0};
    struct phi_jinja_value v;
    char conversion = 0;
    const char *end = inside.n ? memchr(inside.data, ':', inside.n) : NULL;
    if (end) {
        field.n = (size_t)(end - inside.data);
        spec = (struct phi_str){end + 1, inside.n - field.n - 1};
    }
    if (field.n >= 2 && field.data[field.n - 2] == '!') {
        conversion = field.data[field.n - 1];
        field.n -= 2;
    }
    PHI_TRY(field_value(r, field, args, next, &v));
    if (conversion && conversion != 'r' && conversion != 's')
        return bad_format(r);
    if (conversion) {
        struct phi_buf b = {.limit = JINJA_MAX_OUTPUT_BYTES};
        enum phi_status status =
            conversion == 'r' ? phi_jinja_append_repr(r, &b, v) : phi_jinja_append_str(r, &b, v);
        PHI_TRY(phi_jinja_return_text(r, status, &b, false, &v));
    }
    return format_value(r, spec, v, out);
}

enum phi_status phi_jinja_format_braces(struct phi_jinja_run *r, struct phi_str format,
                                        const struct phi_jinja_args *args, struct phi_buf *out)
{
    size_t next = 0;
    PHI_TRY(phi_jinja_charge(r, format.n));
    for (size_t i = 0; i < format.n;) {
        char c = format.data[i];
        if ((c == '{' || c == '}') && i + 1 < format.n && format.data[i + 1] == c) {
            phi_buf_append_char(out, c);
            i += 2;
        } else if (c == '}') {
            return phi_jinja_error(r, "Single '}' encountered in format string");
        } else if (c == '{') {
            const char *close = memchr(format.data + i, '}', format.n - i);
            if (!close)
                return phi_jinja_error(r, "Single '{' encountered in format string");
            struct phi_str inside = {format.data + i + 1, (size_t)(close - format.data) - i - 1};
            if (inside.n && memchr(inside.data, '{', inside.n))
                return phi_jinja_fail(r, PHI_ERR_UNSUPPORTED,
                                      "nested fields in a format are not supported");
            PHI_TRY(replacement(r, inside, args, &next, out));
            i = (size_t)(close - format.data) + 1;
        } else {
            phi_buf_append_char(out, c);
            i++;
        }
    }
    return PHI_OK;
}
