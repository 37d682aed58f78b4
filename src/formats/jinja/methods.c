/* methods.c: methods of Python's types ("a".upper(), d.items(), ...). Those that would change
 * a list or dict are refused by the sandbox of the reference, so they are here only by name. */
#include "base/size.h"
#include "formats/jinja/eval.h"
#include "formats/jinja/text.h"
#include "formats/jinja/unicode.h"

#include <math.h>

#define METHOD(name)                                                                               \
    static enum phi_status method_##name(struct phi_jinja_run *r, struct phi_jinja_call *call,     \
                                         struct phi_jinja_value *out)

/* A string that is a part of the text of `self`. */
static struct phi_jinja_value part(const struct phi_jinja_call *call, size_t begin, size_t end)
{
    struct phi_jinja_value v =
        phi_jinja_str((struct phi_str){call->self.s.data + begin, end - begin});
    v.markup = call->self.markup;
    return v;
}

/* ---- case ---- */

static enum phi_status change_case(struct phi_jinja_run *r, struct phi_jinja_call *call,
                                   void (*fn)(struct phi_buf *, struct phi_str),
                                   struct phi_jinja_value *out)
{
    struct phi_buf b = {.limit = JINJA_MAX_OUTPUT_BYTES};
    PHI_TRY(phi_jinja_charge(r, call->self.s.n / 8));
    fn(&b, call->self.s);
    return phi_jinja_return_text(r, PHI_OK, &b, call->self.markup, out);
}

METHOD(upper)
{
    return change_case(r, call, phi_jinja_append_upper, out);
}

METHOD(lower)
{
    return change_case(r, call, phi_jinja_append_lower, out);
}

METHOD(title)
{
    return change_case(r, call, phi_jinja_append_title, out);
}

METHOD(capitalize)
{
    return change_case(r, call, phi_jinja_append_capitalized, out);
}

METHOD(swapcase)
{
    return change_case(r, call, phi_jinja_append_swapcase, out);
}

/* ---- strip ---- */

/* Moves *end to the start of the character in front of it. */
static uint32_t previous_char(struct phi_str s, size_t *end)
{
    do
        (*end)--;
    while (((unsigned char)s.data[*end] & 0xc0) == 0x80);
    size_t next = *end;
    return phi_jinja_next_char(s, &next);
}

static bool strips(uint32_t cp, struct phi_jinja_value chars)
{
    if (chars.type != JINJA_STR)
        return phi_jinja_char_is_space(cp);
    for (size_t i = 0; i < chars.s.n;)
        if (phi_jinja_next_char(chars.s, &i) == cp)
            return true;
    return false;
}

static enum phi_status strip(struct phi_jinja_run *r, struct phi_jinja_call *call, bool left,
                             bool right, struct phi_jinja_value *out)
{
    struct phi_str s = call->self.s;
    struct phi_jinja_value chars = call->arg[0];
    size_t begin = 0, end = s.n;
    if (phi_jinja_given(chars) && chars.type != JINJA_NONE && chars.type != JINJA_STR)
        return phi_jinja_error(r, "strip arg must be None or str");
    PHI_TRY(phi_jinja_charge(r, s.n / 16 * (1 + (chars.type == JINJA_STR ? chars.s.n / 16 : 0))));
    while (left && begin < end) {
        size_t next = begin;
        if (!strips(phi_jinja_next_char(s, &next), chars))
            break;
        begin = next;
    }
    while (right && end > begin) {
        size_t at = end;
        if (!strips(previous_char(s, &at), chars))
            break;
        end = at;
    }
    *out = part(call, begin, end);
    return PHI_OK;
}

METHOD(strip)
{
    return strip(r, call, true, true, out);
}

METHOD(lstrip)
{
    return strip(r, call, true, false, out);
}

METHOD(rstrip)
{
    return strip(r, call, false, true, out);
}

METHOD(removeprefix)
{
    struct phi_str prefix = {"", 0};
    PHI_TRY(phi_jinja_str_arg(r, call->arg[0], "removeprefix()", &prefix));
    *out = part(call, phi_str_starts_with(call->self.s, prefix) ? prefix.n : 0, call->self.s.n);
    return PHI_OK;
}

METHOD(removesuffix)
{
    struct phi_str suffix = {"", 0}, s = call->self.s;
    PHI_TRY(phi_jinja_str_arg(r, call->arg[0], "removesuffix()", &suffix));
    *out = part(call, 0, s.n - (phi_str_ends_with(s, suffix) ? suffix.n : 0));
    return PHI_OK;
}

/* ---- split and join ---- */

static enum phi_status add_part(struct phi_jinja_run *r, const struct phi_jinja_call *call,
                                size_t begin, size_t end, struct phi_jinja_value *out)
{
    PHI_TRY(phi_jinja_charge(r, 1));
    return phi_jinja_list_append(r, out->list, part(call, begin, end));
}

/* Words between white space; at most `limit` cuts when it is not negative. */
static enum phi_status split_words(struct phi_jinja_run *r, struct phi_jinja_call *call,
                                   int64_t limit, struct phi_jinja_value *out)
{
    struct phi_str s = call->self.s;
    size_t i = 0;
    for (;;) {
        size_t begin = i;
        while (i < s.n && phi_jinja_char_is_space(phi_jinja_next_char(s, &i)))
            begin = i;
        if (begin >= s.n)
            return PHI_OK;
        if (limit-- == 0)
            return add_part(r, call, begin, s.n, out);
        i = begin;
        size_t end = begin;
        while (i < s.n && !phi_jinja_char_is_space(phi_jinja_next_char(s, &i)))
            end = i;
        PHI_TRY(add_part(r, call, begin, end, out));
        i = end;
    }
}

/* The same from the right. */
static enum phi_status split_words_right(struct phi_jinja_run *r, struct phi_jinja_call *call,
                                         int64_t limit, struct phi_jinja_value *out)
{
    struct phi_jinja_value backward[3] = {phi_jinja_none(), phi_jinja_none(), phi_jinja_int(-1)};
    struct phi_str s = call->self.s;
    size_t i = s.n;
    for (;;) {
        size_t end = i;
        while (i > 0 && phi_jinja_char_is_space(previous_char(s, &i)))
            end = i;
        if (end == 0)
            break;
        i = limit == 0 ? 0 : end;
        size_t begin = i;
        while (i > 0 && !phi_jinja_char_is_space(previous_char(s, &i)))
            begin = i;
        PHI_TRY(add_part(r, call, begin, end, out));
        i = begin;
        if (limit-- == 0)
            break;
    }
    return phi_jinja_slice(r, *out, backward, out);
}

static enum phi_status split_by(struct phi_jinja_run *r, struct phi_jinja_call *call,
                                struct phi_str separator, int64_t limit,
                                struct phi_jinja_value *out)
{
    struct phi_str s = call->self.s;
    size_t begin = 0;
    while (limit-- != 0) {
        const char *hit = memmem(s.data + begin, s.n - begin, separator.data, separator.n);
        if (!hit)
            break;
        size_t at = (size_t)(hit - s.data);
        PHI_TRY(add_part(r, call, begin, at, out));
        begin = at + separator.n;
    }
    return add_part(r, call, begin, s.n, out);
}

static enum phi_status charge_search(struct phi_jinja_run *r, struct phi_str s, struct phi_str what)
{
    size_t cost;
    if (!phi_size_mul(s.n / 16, 1 + what.n / 16, &cost))
        cost = SIZE_MAX;
    return phi_jinja_charge(r, cost);
}

/* The last place of `what` in s[0..end), or -1. Not linear, so the caller charges for both lengths.
 */
static int64_t find_last(struct phi_str s, size_t end, struct phi_str what)
{
    for (size_t i = end + 1; i-- > 0;)
        if (end - i >= what.n && memcmp(s.data + i, what.data, what.n) == 0)
            return (int64_t)i;
    return -1;
}

static enum phi_status split_by_right(struct phi_jinja_run *r, struct phi_jinja_call *call,
                                      struct phi_str separator, int64_t limit,
                                      struct phi_jinja_value *out)
{
    struct phi_jinja_value backward[3] = {phi_jinja_none(), phi_jinja_none(), phi_jinja_int(-1)};
    size_t end = call->self.s.n;
    PHI_TRY(charge_search(r, call->self.s, separator));
    while (limit-- != 0) {
        int64_t at = find_last(call->self.s, end, separator);
        if (at < 0)
            break;
        PHI_TRY(add_part(r, call, (size_t)at + separator.n, end, out));
        end = (size_t)at;
    }
    PHI_TRY(add_part(r, call, 0, end, out));
    return phi_jinja_slice(r, *out, backward, out);
}

static enum phi_status split(struct phi_jinja_run *r, struct phi_jinja_call *call, bool right,
                             struct phi_jinja_value *out)
{
    struct phi_str separator = {"", 0};
    int64_t limit = -1;
    bool by_words = !phi_jinja_given(call->arg[0]) || call->arg[0].type == JINJA_NONE;
    if (!by_words)
        PHI_TRY(phi_jinja_str_arg(r, call->arg[0], "the separator", &separator));
    PHI_TRY(phi_jinja_int_arg(r, call->arg[1], "maxsplit", &limit));
    if (limit < 0)
        limit = INT64_MAX;
    if (!by_words && separator.n == 0)
        return phi_jinja_error(r, "empty separator");
    PHI_TRY(phi_jinja_charge(r, call->self.s.n / 16));
    PHI_TRY(phi_jinja_list_make(r, JINJA_LIST, 0, out));
    if (by_words)
        return right ? split_words_right(r, call, limit, out) : split_words(r, call, limit, out);
    return right ? split_by_right(r, call, separator, limit, out)
                 : split_by(r, call, separator, limit, out);
}

METHOD(split)
{
    return split(r, call, false, out);
}

METHOD(rsplit)
{
    return split(r, call, true, out);
}

METHOD(splitlines)
{
    struct phi_str s = call->self.s;
    bool keep = phi_jinja_given(call->arg[0]) && phi_jinja_truth(call->arg[0]);
    PHI_TRY(phi_jinja_list_make(r, JINJA_LIST, 0, out));
    for (size_t i = 0, begin = 0; i < s.n;) {
        size_t at = i;
        uint32_t cp = phi_jinja_next_char(s, &i);
        bool breaks = (cp >= '\n' && cp <= '\r') || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 ||
                      cp == 0x2028 || cp == 0x2029;
        if (cp == '\r' && i < s.n && s.data[i] == '\n')
            i++;
        if (breaks)
            PHI_TRY(add_part(r, call, begin, keep ? i : at, out));
        else if (i == s.n)
            PHI_TRY(add_part(r, call, begin, i, out));
        if (breaks)
            begin = i;
    }
    return PHI_OK;
}

static enum phi_status partition(struct phi_jinja_run *r, struct phi_jinja_call *call, bool right,
                                 struct phi_jinja_value *out)
{
    struct phi_str separator = {"", 0}, s = call->self.s;
    PHI_TRY(phi_jinja_str_arg(r, call->arg[0], "the separator", &separator));
    if (separator.n == 0)
        return phi_jinja_error(r, "empty separator");
    PHI_TRY(charge_search(r, s, separator));
    const char *hit = right ? NULL : memmem(s.data, s.n, separator.data, separator.n);
    int64_t at = right ? find_last(s, s.n, separator) : hit ? hit - s.data : -1;
    size_t cuts[4] = {0, 0, 0, s.n}; /* begin, separator, behind it, end */
    if (at >= 0) {
        cuts[1] = (size_t)at;
        cuts[2] = (size_t)at + separator.n;
    } else if (!right) {
        cuts[1] = cuts[2] = s.n;
    }
    PHI_TRY(phi_jinja_list_make(r, JINJA_TUPLE, 3, out));
    for (int i = 0; i < 3; i++)
        PHI_TRY(add_part(r, call, cuts[i], cuts[i + 1], out));
    return PHI_OK;
}

METHOD(partition)
{
    return partition(r, call, false, out);
}

METHOD(rpartition)
{
    return partition(r, call, true, out);
}

METHOD(join)
{
    struct phi_buf b = {.limit = JINJA_MAX_OUTPUT_BYTES};
    struct phi_jinja_iter it;
    enum phi_status status = PHI_OK;
    bool done = false;
    PHI_TRY(phi_jinja_iter_init(r, call->arg[0], &it));
    for (size_t i = 0; status == PHI_OK && !done && !b.failed; i++) {
        struct phi_jinja_value item;
        status = phi_jinja_iter_next(r, &it, &item, &done);
        if (status != PHI_OK || done)
            break;
        if (item.type != JINJA_STR) {
            status = phi_jinja_error(r, "sequence item %zu: expected str instance, %s found", i,
                                     phi_jinja_type_name(item));
            break;
        }
        if (i)
            phi_buf_append_str(&b, call->self.s);
        if (call->self.markup && !item.markup)
            phi_jinja_append_escaped(&b, item.s);
        else
            phi_buf_append_str(&b, item.s);
    }
    return phi_jinja_return_text(r, status, &b, call->self.markup, out);
}

METHOD(replace)
{
    struct phi_buf b = {.limit = JINJA_MAX_OUTPUT_BYTES};
    struct phi_str s = call->self.s, old = {"", 0}, new = {"", 0};
    int64_t count = -1;
    PHI_TRY(phi_jinja_str_arg(r, call->arg[0], "replace()", &old));
    PHI_TRY(phi_jinja_str_arg(r, call->arg[1], "replace()", &new));
    PHI_TRY(phi_jinja_int_arg(r, call->arg[2], "count", &count));
    PHI_TRY(phi_jinja_charge(r, s.n / 8));
    size_t i = 0;
    while (i <= s.n && count != 0) {
        const char *hit = old.n ? memmem(s.data + i, s.n - i, old.data, old.n) : s.data + i;
        if (!hit)
            break;
        size_t at = (size_t)(hit - s.data);
        phi_buf_append(&b, s.data + i, at - i);
        if (call->self.markup && !call->arg[1].markup)
            phi_jinja_append_escaped(&b, new);
        else
            phi_buf_append_str(&b, new);
        i = at + old.n;
        count--;
        if (old.n == 0) { /* between all characters, and at both ends */
            if (at == s.n)
                break;
            i = at + phi_jinja_char_bytes(s.data[at]);
            phi_buf_append(&b, s.data + at, i - at);
        }
    }
    if (i < s.n)
        phi_buf_append(&b, s.data + i, s.n - i);
    return phi_jinja_return_text(r, PHI_OK, &b, call->self.markup, out);
}

/* ---- search ---- */

/* The part of self that optional start and end arguments leave; false when start is behind the end.
 */
static enum phi_status search_range(struct phi_jinja_run *r, const struct phi_jinja_call *call,
                                    int first_arg, struct phi_str *s, size_t *offset, bool *empty)
{
    int64_t bounds[2] = {0, INT64_MAX}, n;
    PHI_TRY(phi_jinja_length(r, call->self, &n));
    for (int i = 0; i < 2; i++) {
        if (call->arg[first_arg + i].type != JINJA_NONE)
            PHI_TRY(phi_jinja_int_arg(r, call->arg[first_arg + i], "a bound", &bounds[i]));
        if (bounds[i] < 0)
            bounds[i] = bounds[i] < -n ? 0 : bounds[i] + n;
    }
    *empty = bounds[0] > n || bounds[0] > bounds[1];
    size_t begin = phi_jinja_char_offset(call->self.s, (size_t)bounds[0]);
    size_t end =
        bounds[1] >= n ? call->self.s.n : phi_jinja_char_offset(call->self.s, (size_t)bounds[1]);
    *s = (struct phi_str){call->self.s.data + begin, *empty ? 0 : end - begin};
    *offset = begin;
    return PHI_OK;
}

static enum phi_status find(struct phi_jinja_run *r, struct phi_jinja_call *call, bool last,
                            bool must, struct phi_jinja_value *out)
{
    struct phi_str what = {"", 0}, s;
    size_t offset;
    bool empty;
    PHI_TRY(phi_jinja_str_arg(r, call->arg[0], "find()", &what));
    PHI_TRY(search_range(r, call, 1, &s, &offset, &empty));
    if (last)
        PHI_TRY(charge_search(r, s, what));
    const char *hit = empty || last ? NULL
                      : what.n      ? memmem(s.data, s.n, what.data, what.n)
                                    : s.data;
    int64_t at = empty ? -1 : last ? find_last(s, s.n, what) : hit ? hit - s.data : -1;
    if (at < 0 && must)
        return phi_jinja_error(r, "substring not found");
    if (at >= 0)
        at = (int64_t)phi_jinja_n_chars((struct phi_str){call->self.s.data, offset + (size_t)at});
    *out = phi_jinja_int(at);
    return PHI_OK;
}

METHOD(find)
{
    return find(r, call, false, false, out);
}

METHOD(rfind)
{
    return find(r, call, true, false, out);
}

METHOD(str_index)
{
    return find(r, call, false, true, out);
}

METHOD(rindex)
{
    return find(r, call, true, true, out);
}

METHOD(str_count)
{
    struct phi_str what = {"", 0}, s;
    size_t offset;
    bool empty;
    int64_t n = 0;
    PHI_TRY(phi_jinja_str_arg(r, call->arg[0], "count()", &what));
    PHI_TRY(search_range(r, call, 1, &s, &offset, &empty));
    if (!empty && what.n == 0)
        n = (int64_t)phi_jinja_n_chars(s) + 1;
    for (size_t i = 0; !empty && what.n && i < s.n; n++) {
        const char *hit = memmem(s.data + i, s.n - i, what.data, what.n);
        if (!hit)
            break;
        i = (size_t)(hit - s.data) + what.n;
    }
    *out = phi_jinja_int(n);
    return PHI_OK;
}

static enum phi_status has_affix(struct phi_jinja_run *r, struct phi_jinja_call *call, bool at_end,
                                 struct phi_jinja_value *out)
{
    struct phi_jinja_value affixes = call->arg[0];
    struct phi_str s;
    size_t offset;
    bool empty, found = false;
    PHI_TRY(search_range(r, call, 1, &s, &offset, &empty));
    if (affixes.type != JINJA_STR && affixes.type != JINJA_TUPLE)
        return phi_jinja_error(r, "the argument must be str or a tuple of str, not %s",
                               phi_jinja_type_name(affixes));
    size_t n = affixes.type == JINJA_TUPLE ? affixes.list->n : 1;
    for (size_t i = 0; i < n; i++) {
        struct phi_jinja_value affix =
            affixes.type == JINJA_TUPLE ? affixes.list->items[i] : affixes;
        if (affix.type != JINJA_STR)
            return phi_jinja_error(r, "the tuple must only contain str, not %s",
                                   phi_jinja_type_name(affix));
        found |=
            !empty && (at_end ? phi_str_ends_with(s, affix.s) : phi_str_starts_with(s, affix.s));
        if (found)
            break;
    }
    *out = phi_jinja_bool(found);
    return PHI_OK;
}

METHOD(startswith)
{
    return has_affix(r, call, false, out);
}

METHOD(endswith)
{
    return has_affix(r, call, true, out);
}

/* ---- padding ---- */

static enum phi_status justify(struct phi_jinja_run *r, struct phi_jinja_call *call, char align,
                               struct phi_jinja_value *out)
{
    struct phi_buf b = {.limit = JINJA_MAX_OUTPUT_BYTES};
    struct phi_str fill = PHI_STR(" ");
    int64_t width = 0, n, left;
    PHI_TRY(phi_jinja_int_arg(r, call->arg[0], "width", &width));
    PHI_TRY(phi_jinja_str_arg(r, call->arg[1], "the fill character", &fill));
    if (phi_jinja_n_chars(fill) != 1)
        return phi_jinja_error(r, "The fill character must be exactly one character long");
    PHI_TRY(phi_jinja_length(r, call->self, &n));
    int64_t pad = width > n ? width - n : 0;
    left = align == '<' ? 0 : align == '>' ? pad : pad / 2 + (pad & width & 1);
    for (int64_t i = 0; i < left && !b.failed; i++)
        phi_buf_append_str(&b, fill);
    phi_buf_append_str(&b, call->self.s);
    for (int64_t i = left; i < pad && !b.failed; i++)
        phi_buf_append_str(&b, fill);
    return phi_jinja_return_text(r, PHI_OK, &b, call->self.markup, out);
}

METHOD(ljust)
{
    return justify(r, call, '<', out);
}

METHOD(rjust)
{
    return justify(r, call, '>', out);
}

METHOD(center)
{
    return justify(r, call, '^', out);
}

METHOD(zfill)
{
    struct phi_buf b = {.limit = JINJA_MAX_OUTPUT_BYTES};
    struct phi_str s = call->self.s;
    int64_t width = 0, n;
    PHI_TRY(phi_jinja_int_arg(r, call->arg[0], "width", &width));
    PHI_TRY(phi_jinja_length(r, call->self, &n));
    size_t sign = s.n && (s.data[0] == '-' || s.data[0] == '+');
    phi_buf_append(&b, s.data, sign);
    for (int64_t i = n; i < width && !b.failed; i++)
        phi_buf_append_char(&b, '0');
    phi_buf_append(&b, s.data + sign, s.n - sign);
    return phi_jinja_return_text(r, PHI_OK, &b, call->self.markup, out);
}

/* ---- classes of characters ---- */

/* Whether all characters (at least one) pass. */
static enum phi_status all_chars(struct phi_jinja_run *r, struct phi_jinja_call *call,
                                 bool (*is)(uint32_t), struct phi_jinja_value *out)
{
    bool all = call->self.s.n > 0;
    PHI_TRY(phi_jinja_charge(r, call->self.s.n / 16));
    for (size_t i = 0; all && i < call->self.s.n;)
        all = is(phi_jinja_next_char(call->self.s, &i));
    *out = phi_jinja_bool(all);
    return PHI_OK;
}

#define CLASS_METHOD(name, condition)                                                              \
    static bool char_##name(uint32_t cp)                                                           \
    {                                                                                              \
        return condition;                                                                          \
    }                                                                                              \
    METHOD(name)                                                                                   \
    {                                                                                              \
        return all_chars(r, call, char_##name, out);                                               \
    }

CLASS_METHOD(isalpha, phi_jinja_char_is(cp, JINJA_ALPHA))
CLASS_METHOD(isalnum, phi_jinja_char_is(cp, JINJA_ALPHA) || phi_jinja_char_is(cp, JINJA_NUMERIC))
CLASS_METHOD(isdecimal, phi_jinja_char_is(cp, JINJA_DECIMAL))
CLASS_METHOD(isdigit, phi_jinja_char_is(cp, JINJA_DIGIT))
CLASS_METHOD(isnumeric, phi_jinja_char_is(cp, JINJA_NUMERIC))
CLASS_METHOD(isspace, phi_jinja_char_is_space(cp))

METHOD(isascii)
{
    bool all = true;
    (void)r;
    for (size_t i = 0; i < call->self.s.n; i++)
        all &= (unsigned char)call->self.s.data[i] < 0x80;
    *out = phi_jinja_bool(all);
    return PHI_OK;
}

METHOD(islower)
{
    static const struct phi_jinja_args none;
    return phi_jinja_call_builtin(r, phi_jinja_find_test(PHI_STR("lower")), call->self, &none, out);
}

METHOD(isupper)
{
    static const struct phi_jinja_args none;
    return phi_jinja_call_builtin(r, phi_jinja_find_test(PHI_STR("upper")), call->self, &none, out);
}

METHOD(format)
{
    struct phi_buf b = {.limit = JINJA_MAX_OUTPUT_BYTES};
    enum phi_status status = phi_jinja_format_braces(r, call->self.s, call->args, &b);
    return phi_jinja_return_text(r, status, &b, call->self.markup, out);
}

/* A name listed with it is known to Python but not supported here. */
#define UNSUPPORTED(name)                                                                          \
    {                                                                                              \
        name, NULL, 0, NULL                                                                        \
    }

static const struct phi_jinja_builtin str_methods[] = {
    {"capitalize", "/", 0, method_capitalize},
    {"center", "/ width fillchar", 1, method_center},
    {"count", "/ sub start end", 1, method_str_count},
    {"endswith", "/ suffix start end", 1, method_endswith},
    {"find", "/ sub start end", 1, method_find},
    {"format", "*", 0, method_format},
    {"index", "/ sub start end", 1, method_str_index},
    {"isalnum", "/", 0, method_isalnum},
    {"isalpha", "/", 0, method_isalpha},
    {"isascii", "/", 0, method_isascii},
    {"isdecimal", "/", 0, method_isdecimal},
    {"isdigit", "/", 0, method_isdigit},
    {"islower", "/", 0, method_islower},
    {"isnumeric", "/", 0, method_isnumeric},
    {"isspace", "/", 0, method_isspace},
    {"isupper", "/", 0, method_isupper},
    {"join", "/ iterable", 1, method_join},
    {"ljust", "/ width fillchar", 1, method_ljust},
    {"lower", "/", 0, method_lower},
    {"lstrip", "/ chars", 0, method_lstrip},
    {"partition", "/ sep", 1, method_partition},
    {"removeprefix", "/ prefix", 1, method_removeprefix},
    {"removesuffix", "/ suffix", 1, method_removesuffix},
    {"replace", "/ old new count", 2, method_replace},
    {"rfind", "/ sub start end", 1, method_rfind},
    {"rindex", "/ sub start end", 1, method_rindex},
    {"rjust", "/ width fillchar", 1, method_rjust},
    {"rpartition", "/ sep", 1, method_rpartition},
    {"rsplit", "sep maxsplit", 0, method_rsplit},
    {"rstrip", "/ chars", 0, method_rstrip},
    {"split", "sep maxsplit", 0, method_split},
    {"splitlines", "keepends", 0, method_splitlines},
    {"startswith", "/ prefix start end", 1, method_startswith},
    {"strip", "/ chars", 0, method_strip},
    {"swapcase", "/", 0, method_swapcase},
    {"title", "/", 0, method_title},
    {"upper", "/", 0, method_upper},
    {"zfill", "/ width", 1, method_zfill},
    UNSUPPORTED("casefold"),
    UNSUPPORTED("encode"),
    UNSUPPORTED("expandtabs"),
    UNSUPPORTED("format_map"),
    UNSUPPORTED("isidentifier"),
    UNSUPPORTED("isprintable"),
    UNSUPPORTED("istitle"),
    UNSUPPORTED("maketrans"),
    UNSUPPORTED("translate"),
};

/* ---- lists, dicts, ranges ---- */

METHOD(sequence_count)
{
    struct phi_jinja_iter it;
    int64_t n = 0;
    PHI_TRY(phi_jinja_iter_init(r, call->self, &it));
    for (;;) {
        struct phi_jinja_value item;
        bool done, same;
        PHI_TRY(phi_jinja_iter_next(r, &it, &item, &done));
        if (done)
            break;
        PHI_TRY(phi_jinja_equal(r, item, call->arg[0], &same));
        n += same;
    }
    *out = phi_jinja_int(n);
    return PHI_OK;
}

METHOD(sequence_index)
{
    struct phi_jinja_iter it;
    int64_t n, start = 0, stop = INT64_MAX;
    PHI_TRY(phi_jinja_length(r, call->self, &n));
    PHI_TRY(phi_jinja_int_arg(r, call->arg[1], "start", &start));
    PHI_TRY(phi_jinja_int_arg(r, call->arg[2], "stop", &stop));
    start = start < -n ? 0 : start < 0 ? start + n : start;
    stop = stop < -n ? 0 : stop < 0 ? stop + n : stop;
    PHI_TRY(phi_jinja_iter_init(r, call->self, &it));
    for (int64_t i = 0; i < stop; i++) {
        struct phi_jinja_value item;
        bool done, same = false;
        PHI_TRY(phi_jinja_iter_next(r, &it, &item, &done));
        if (done)
            break;
        if (i >= start)
            PHI_TRY(phi_jinja_equal(r, item, call->arg[0], &same));
        if (!same)
            continue;
        *out = phi_jinja_int(i);
        return PHI_OK;
    }
    return phi_jinja_error(r, "the value is not in the list");
}

METHOD(list_copy)
{
    return phi_jinja_to_list(r, call->self, out);
}

METHOD(get)
{
    struct phi_jinja_value *found;
    PHI_TRY(phi_jinja_dict_find(r, call->self.dict, call->arg[0], &found));
    *out = found ? *found : phi_jinja_given(call->arg[1]) ? call->arg[1] : phi_jinja_none();
    return PHI_OK;
}

static enum phi_status view(struct phi_jinja_call *call, enum phi_jinja_view_kind kind,
                            struct phi_jinja_value *out)
{
    *out = (struct phi_jinja_value){.type = JINJA_VIEW, .view = kind, .dict = call->self.dict};
    return PHI_OK;
}

METHOD(items)
{
    (void)r;
    return view(call, JINJA_ITEMS, out);
}

METHOD(keys)
{
    (void)r;
    return view(call, JINJA_KEYS, out);
}

METHOD(values)
{
    (void)r;
    return view(call, JINJA_VALUES, out);
}

METHOD(dict_copy)
{
    (void)r;
    *out = call->self; /* nobody can change either */
    return PHI_OK;
}

/* ---- loop, cycler ---- */

METHOD(loop_cycle)
{
    const struct phi_jinja_args *args = call->args;
    if (args->n_keywords || !args->n_positional)
        return phi_jinja_error(r, "no items for cycling given");
    *out = args->positional[(uint64_t)call->self.loop->index0 % args->n_positional];
    return PHI_OK;
}

METHOD(loop_changed)
{
    struct phi_jinja_loop *loop = call->self.loop;
    struct phi_jinja_value now;
    bool same = false;
    PHI_TRY(phi_jinja_list_make(r, JINJA_TUPLE, call->args->n_positional, &now));
    for (size_t i = 0; i < call->args->n_positional; i++)
        PHI_TRY(phi_jinja_list_append(r, now.list, call->args->positional[i]));
    if (phi_jinja_given(loop->last_changed))
        PHI_TRY(phi_jinja_equal(r, loop->last_changed, now, &same));
    loop->last_changed = now;
    *out = phi_jinja_bool(!same);
    return PHI_OK;
}

METHOD(cycler_next)
{
    struct phi_jinja_cycler *c = call->self.cycler;
    (void)r;
    *out = c->items->items[c->next];
    c->next = (c->next + 1) % c->items->n;
    return PHI_OK;
}

METHOD(cycler_reset)
{
    (void)r;
    (void)out;
    call->self.cycler->next = 0;
    return PHI_OK;
}

METHOD(is_integer)
{
    (void)r;
    *out = phi_jinja_bool(isfinite(call->self.f) && floor(call->self.f) == call->self.f);
    return PHI_OK;
}

static const struct phi_jinja_builtin list_methods[] = {
    {"copy", "/", 0, method_list_copy},
    {"count", "/ value", 1, method_sequence_count},
    {"index", "/ value start stop", 1, method_sequence_index},
};

static const struct phi_jinja_builtin tuple_methods[] = {
    {"count", "/ value", 1, method_sequence_count},
    {"index", "/ value start stop", 1, method_sequence_index},
};

static const struct phi_jinja_builtin dict_methods[] = {
    {"copy", "/", 0, method_dict_copy}, {"get", "/ key default", 1, method_get},
    {"items", "/", 0, method_items},    {"keys", "/", 0, method_keys},
    {"values", "/", 0, method_values},  UNSUPPORTED("fromkeys"),
};

static const struct phi_jinja_builtin loop_methods[] = {
    {"changed", "*", 0, method_loop_changed},
    {"cycle", "*", 0, method_loop_cycle},
};

static const struct phi_jinja_builtin cycler_methods[] = {
    {"next", "/", 0, method_cycler_next},
    {"reset", "/", 0, method_cycler_reset},
};

static const struct phi_jinja_builtin float_methods[] = {
    {"is_integer", "/", 0, method_is_integer},
    UNSUPPORTED("as_integer_ratio"),
    UNSUPPORTED("conjugate"),
    UNSUPPORTED("hex"),
};

static const struct phi_jinja_builtin int_methods[] = {
    UNSUPPORTED("as_integer_ratio"), UNSUPPORTED("bit_count"), UNSUPPORTED("bit_length"),
    UNSUPPORTED("conjugate"),        UNSUPPORTED("to_bytes"),
};

static bool among(struct phi_str name, const char *const *names)
{
    for (; *names; names++)
        if (phi_str_eq_c(name, *names))
            return true;
    return false;
}

const struct phi_jinja_builtin *phi_jinja_find_method(struct phi_jinja_value object,
                                                      struct phi_str name, bool *blocked)
{
    static const char *const list_changes[] = {"append", "clear",   "extend", "insert", "pop",
                                               "remove", "reverse", "sort",   NULL};
    static const char *const dict_changes[] = {"clear",      "pop",    "popitem",
                                               "setdefault", "update", NULL};
    *blocked = false;
    switch (object.type) {
    case JINJA_STR:
        return JINJA_FIND(str_methods, name);
    case JINJA_LIST:
        *blocked = among(name, list_changes);
        return JINJA_FIND(list_methods, name);
    case JINJA_TUPLE:
    case JINJA_RANGE:
        return JINJA_FIND(tuple_methods, name);
    case JINJA_DICT:
        *blocked = among(name, dict_changes);
        return JINJA_FIND(dict_methods, name);
    case JINJA_LOOP:
        return JINJA_FIND(loop_methods, name);
    case JINJA_CYCLER:
        return JINJA_FIND(cycler_methods, name);
    case JINJA_FLOAT:
        return JINJA_FIND(float_methods, name);
    case JINJA_INT:
    case JINJA_BOOL:
        return JINJA_FIND(int_methods, name);
    default:
        return NULL;
    }
}
