/* builtins.c: matching arguments to parameters; tests (`is ...`); global functions. */
#include "formats/jinja/eval.h"
#include "formats/jinja/text.h"
#include "formats/jinja/unicode.h"

#include <math.h>
#include <time.h>

const struct phi_jinja_builtin *phi_jinja_find_in(const struct phi_jinja_builtin *table, size_t n,
                                                  struct phi_str name)
{
    for (size_t i = 0; i < n; i++)
        if (phi_str_eq_c(name, table[i].name))
            return &table[i];
    return NULL;
}

/* ---- arguments ---- */

/* The next blank-separated word of *params; n is 0 at the end. */
static struct phi_str next_param(const char **params)
{
    while (**params == ' ')
        (*params)++;
    struct phi_str word = {*params, strcspn(*params, " ")};
    *params += word.n;
    return word;
}

static enum phi_status match_arguments(struct phi_jinja_run *r,
                                       const struct phi_jinja_builtin *builtin,
                                       const struct phi_jinja_args *args,
                                       struct phi_jinja_call *call)
{
    const char *params = builtin->params;
    size_t n = 0, n_named = 0;
    bool positional_only = params[0] == '/';
    params += positional_only;
    for (struct phi_str name = next_param(&params); name.n; name = next_param(&params), n++) {
        if (n < args->n_positional)
            call->arg[n] = args->positional[n];
        for (size_t k = 0; k < args->n_keywords && !positional_only; k++) {
            if (!phi_str_eq(args->keywords[k].name, name))
                continue;
            if (phi_jinja_given(call->arg[n]))
                return phi_jinja_error(r, "%s() got multiple values for argument '%.*s'",
                                       builtin->name, JINJA_SHOWN(name));
            call->arg[n] = args->keywords[k].value;
            n_named++;
        }
        if ((int)n < builtin->n_required && !phi_jinja_given(call->arg[n]))
            return phi_jinja_error(r, "%s() is missing its argument '%.*s'", builtin->name,
                                   JINJA_SHOWN(name));
    }
    if (args->n_positional > n)
        return phi_jinja_error(r, "%s() takes %zu arguments but %zu were given", builtin->name, n,
                               args->n_positional);
    if (args->n_keywords > n_named)
        return phi_jinja_error(r, "%s() got an unexpected keyword argument", builtin->name);
    return PHI_OK;
}

enum phi_status phi_jinja_call_builtin(struct phi_jinja_run *r,
                                       const struct phi_jinja_builtin *builtin,
                                       struct phi_jinja_value self,
                                       const struct phi_jinja_args *args,
                                       struct phi_jinja_value *out)
{
    struct phi_jinja_call call = {.self = self, .args = args};
    if (!builtin->params)
        return phi_jinja_fail(r, PHI_ERR_UNSUPPORTED,
                              "'%s' of Jinja is not supported by this program", builtin->name);
    for (int i = 0; i < JINJA_MAX_PARAMS; i++)
        call.arg[i].type = JINJA_MISSING;
    if (builtin->params[0] != '*')
        PHI_TRY(match_arguments(r, builtin, args, &call));
    PHI_TRY(phi_jinja_charge(r, 1));
    *out = phi_jinja_none();
    return builtin->fn(r, &call, out);
}

enum phi_status phi_jinja_int_arg(struct phi_jinja_run *r, struct phi_jinja_value v,
                                  const char *what, int64_t *out)
{
    if (v.type == JINJA_INT || v.type == JINJA_BOOL)
        *out = v.type == JINJA_BOOL ? v.b : v.i;
    else if (v.type == JINJA_UNDEFINED)
        return phi_jinja_undefined_error(r, v);
    else if (phi_jinja_given(v))
        return phi_jinja_error(r, "%s must be an integer, not %s", what, phi_jinja_type_name(v));
    return PHI_OK;
}

enum phi_status phi_jinja_str_arg(struct phi_jinja_run *r, struct phi_jinja_value v,
                                  const char *what, struct phi_str *out)
{
    if (v.type == JINJA_STR)
        *out = v.s;
    else if (phi_jinja_given(v))
        return phi_jinja_error(r, "%s must be a string, not %s", what, phi_jinja_type_name(v));
    return PHI_OK;
}

enum phi_status phi_jinja_text_arg(struct phi_jinja_run *r, struct phi_jinja_value v,
                                   struct phi_str *out)
{
    return phi_jinja_given(v) ? phi_jinja_to_str(r, v, out) : PHI_OK;
}

enum phi_status phi_jinja_return_text(struct phi_jinja_run *r, enum phi_status status,
                                      struct phi_buf *b, bool markup, struct phi_jinja_value *out)
{
    if (status == PHI_OK)
        status = phi_jinja_str_from_buf(r, b, out);
    if (status == PHI_OK)
        out->markup = markup;
    phi_buf_deinit(b);
    return status;
}

void phi_jinja_append_escaped(struct phi_buf *out, struct phi_str s)
{
    for (size_t i = 0; i < s.n; i++) {
        switch (s.data[i]) {
        case '&':
            phi_buf_append_c(out, "&amp;");
            break;
        case '<':
            phi_buf_append_c(out, "&lt;");
            break;
        case '>':
            phi_buf_append_c(out, "&gt;");
            break;
        case '"':
            phi_buf_append_c(out, "&#34;");
            break;
        case '\'':
            phi_buf_append_c(out, "&#39;");
            break;
        default:
            phi_buf_append_char(out, s.data[i]);
        }
    }
}

/* ---- tests ---- */

#define TYPE_TEST(name, condition)                                                                 \
    static enum phi_status test_##name(struct phi_jinja_run *r, struct phi_jinja_call *call,       \
                                       struct phi_jinja_value *out)                                \
    {                                                                                              \
        const struct phi_jinja_value v = call->self;                                               \
        (void)r;                                                                                   \
        *out = phi_jinja_bool(condition);                                                          \
        return PHI_OK;                                                                             \
    }

TYPE_TEST(defined, v.type != JINJA_UNDEFINED)
TYPE_TEST(undefined, v.type == JINJA_UNDEFINED)
TYPE_TEST(none, v.type == JINJA_NONE)
TYPE_TEST(boolean, v.type == JINJA_BOOL)
TYPE_TEST(true, v.type == JINJA_BOOL && v.b)
TYPE_TEST(false, v.type == JINJA_BOOL && !v.b)
TYPE_TEST(integer, v.type == JINJA_INT)
TYPE_TEST(float, v.type == JINJA_FLOAT)
TYPE_TEST(number, v.type == JINJA_BOOL || v.type == JINJA_INT || v.type == JINJA_FLOAT)
TYPE_TEST(string, v.type == JINJA_STR)
TYPE_TEST(mapping, v.type == JINJA_DICT)
TYPE_TEST(iterable, phi_jinja_iterable(v) || v.type == JINJA_LOOP)
/* what has len() and [] */
TYPE_TEST(sequence, phi_jinja_has_length(v) && v.type != JINJA_VIEW)
TYPE_TEST(callable, v.type == JINJA_METHOD || v.type == JINJA_MACRO || v.type == JINJA_LOOP ||
                        v.type == JINJA_JOINER || v.type == JINJA_UNDEFINED)
TYPE_TEST(escaped, v.type == JINJA_STR && v.markup)

static enum phi_status test_case(struct phi_jinja_run *r, struct phi_jinja_call *call,
                                 bool want_upper, struct phi_jinja_value *out)
{
    struct phi_str s;
    bool any = false, other = false;
    PHI_TRY(phi_jinja_to_str(r, call->self, &s));
    PHI_TRY(phi_jinja_charge(r, s.n / 16));
    for (size_t i = 0; i < s.n;) {
        uint32_t cp = phi_jinja_next_char(s, &i);
        any |= phi_jinja_char_is(cp, want_upper ? JINJA_UPPER : JINJA_LOWER);
        other |= phi_jinja_char_is(cp, want_upper ? JINJA_LOWER : JINJA_UPPER) ||
                 phi_jinja_char_is(cp, JINJA_TITLE);
    }
    *out = phi_jinja_bool(any && !other);
    return PHI_OK;
}

static enum phi_status test_lower(struct phi_jinja_run *r, struct phi_jinja_call *call,
                                  struct phi_jinja_value *out)
{
    return test_case(r, call, false, out);
}

static enum phi_status test_upper(struct phi_jinja_run *r, struct phi_jinja_call *call,
                                  struct phi_jinja_value *out)
{
    return test_case(r, call, true, out);
}

static enum phi_status remainder_is(struct phi_jinja_run *r, struct phi_jinja_value v,
                                    struct phi_jinja_value by, int64_t want,
                                    struct phi_jinja_value *out)
{
    struct phi_jinja_value rest;
    bool equal;
    PHI_TRY(phi_jinja_binary(r, TOKEN_MOD, v, by, &rest));
    PHI_TRY(phi_jinja_equal(r, rest, phi_jinja_int(want), &equal));
    *out = phi_jinja_bool(equal);
    return PHI_OK;
}

static enum phi_status test_odd(struct phi_jinja_run *r, struct phi_jinja_call *call,
                                struct phi_jinja_value *out)
{
    return remainder_is(r, call->self, phi_jinja_int(2), 1, out);
}

static enum phi_status test_even(struct phi_jinja_run *r, struct phi_jinja_call *call,
                                 struct phi_jinja_value *out)
{
    return remainder_is(r, call->self, phi_jinja_int(2), 0, out);
}

static enum phi_status test_divisibleby(struct phi_jinja_run *r, struct phi_jinja_call *call,
                                        struct phi_jinja_value *out)
{
    return remainder_is(r, call->self, call->arg[0], 0, out);
}

static enum phi_status test_eq(struct phi_jinja_run *r, struct phi_jinja_call *call,
                               struct phi_jinja_value *out)
{
    bool equal;
    PHI_TRY(phi_jinja_equal(r, call->self, call->arg[0], &equal));
    *out = phi_jinja_bool(equal);
    return PHI_OK;
}

static enum phi_status test_ne(struct phi_jinja_run *r, struct phi_jinja_call *call,
                               struct phi_jinja_value *out)
{
    PHI_TRY(test_eq(r, call, out));
    out->b = !out->b;
    return PHI_OK;
}

#define ORDER_TEST(name, sign, condition)                                                          \
    static enum phi_status test_##name(struct phi_jinja_run *r, struct phi_jinja_call *call,       \
                                       struct phi_jinja_value *out)                                \
    {                                                                                              \
        int order;                                                                                 \
        bool unordered;                                                                            \
        PHI_TRY(phi_jinja_compare(r, call->self, call->arg[0], sign, &order, &unordered));         \
        *out = phi_jinja_bool(!unordered && (condition));                                          \
        return PHI_OK;                                                                             \
    }

ORDER_TEST(lt, "<", order < 0)
ORDER_TEST(le, "<=", order <= 0)
ORDER_TEST(gt, ">", order > 0)
ORDER_TEST(ge, ">=", order >= 0)

static enum phi_status test_in(struct phi_jinja_run *r, struct phi_jinja_call *call,
                               struct phi_jinja_value *out)
{
    bool found;
    PHI_TRY(phi_jinja_contains(r, call->arg[0], call->self, &found));
    *out = phi_jinja_bool(found);
    return PHI_OK;
}

/* Identity: scalars of one type that are equal are one object as far as a template should rely on
 * it. */
static enum phi_status test_sameas(struct phi_jinja_run *r, struct phi_jinja_call *call,
                                   struct phi_jinja_value *out)
{
    const struct phi_jinja_value a = call->self, b = call->arg[0];
    bool same = a.type == b.type;
    if (same && (a.type <= JINJA_STR || a.type == JINJA_METHOD))
        PHI_TRY(phi_jinja_equal(r, a, b, &same));
    else if (same)
        same = a.list == b.list;
    *out = phi_jinja_bool(same);
    return PHI_OK;
}

static enum phi_status test_filter(struct phi_jinja_run *r, struct phi_jinja_call *call,
                                   struct phi_jinja_value *out)
{
    (void)r;
    *out = phi_jinja_bool(call->self.type == JINJA_STR && phi_jinja_find_filter(call->self.s));
    return PHI_OK;
}

static enum phi_status test_test(struct phi_jinja_run *r, struct phi_jinja_call *call,
                                 struct phi_jinja_value *out)
{
    (void)r;
    *out = phi_jinja_bool(call->self.type == JINJA_STR && phi_jinja_find_test(call->self.s));
    return PHI_OK;
}

const struct phi_jinja_builtin *phi_jinja_find_test(struct phi_str name)
{
    static const struct phi_jinja_builtin tests[] = {
        {"!=", "/ b", 1, test_ne},
        {"<", "/ b", 1, test_lt},
        {"<=", "/ b", 1, test_le},
        {"==", "/ b", 1, test_eq},
        {">", "/ b", 1, test_gt},
        {">=", "/ b", 1, test_ge},
        {"boolean", "", 0, test_boolean},
        {"callable", "", 0, test_callable},
        {"defined", "", 0, test_defined},
        {"divisibleby", "num", 1, test_divisibleby},
        {"eq", "/ b", 1, test_eq},
        {"equalto", "/ b", 1, test_eq},
        {"escaped", "", 0, test_escaped},
        {"even", "", 0, test_even},
        {"false", "", 0, test_false},
        {"filter", "", 0, test_filter},
        {"float", "", 0, test_float},
        {"ge", "/ b", 1, test_ge},
        {"greaterthan", "/ b", 1, test_gt},
        {"gt", "/ b", 1, test_gt},
        {"in", "seq", 1, test_in},
        {"integer", "", 0, test_integer},
        {"iterable", "", 0, test_iterable},
        {"le", "/ b", 1, test_le},
        {"lessthan", "/ b", 1, test_lt},
        {"lower", "", 0, test_lower},
        {"lt", "/ b", 1, test_lt},
        {"mapping", "", 0, test_mapping},
        {"ne", "/ b", 1, test_ne},
        {"none", "", 0, test_none},
        {"number", "", 0, test_number},
        {"odd", "", 0, test_odd},
        {"sameas", "other", 1, test_sameas},
        {"sequence", "", 0, test_sequence},
        {"string", "", 0, test_string},
        {"test", "", 0, test_test},
        {"true", "", 0, test_true},
        {"undefined", "", 0, test_undefined},
        {"upper", "", 0, test_upper},
    };
    return JINJA_FIND(tests, name);
}

/* ---- global functions ---- */

static enum phi_status global_range(struct phi_jinja_run *r, struct phi_jinja_call *call,
                                    struct phi_jinja_value *out)
{
    struct phi_jinja_range range = {.step = 1};
    PHI_TRY(phi_jinja_int_arg(r, call->arg[0], "range()", &range.start));
    if (phi_jinja_given(call->arg[1])) {
        PHI_TRY(phi_jinja_int_arg(r, call->arg[1], "range()", &range.stop));
        PHI_TRY(phi_jinja_int_arg(r, call->arg[2], "range()", &range.step));
    } else {
        range.stop = range.start;
        range.start = 0;
    }
    if (range.step == 0)
        return phi_jinja_error(r, "range() arg 3 must not be zero");
    __int128 distance = (__int128)range.stop - range.start, step = range.step;
    __int128 n = (step > 0) == (distance > 0) ? (distance + step + (step > 0 ? -1 : 1)) / step : 0;
    if (n > JINJA_MAX_RANGE)
        return phi_jinja_fail(r, PHI_ERR_TOO_LONG,
                              "Range too big. The sandbox blocks ranges larger than "
                              "MAX_RANGE (%d).",
                              JINJA_MAX_RANGE);
    range.n = distance == 0 ? 0 : (int64_t)n;
    struct phi_jinja_range *copy = phi_arena_alloc(&r->arena, 1, sizeof *copy);
    if (!copy)
        return phi_jinja_no_memory(r);
    *copy = range;
    *out = (struct phi_jinja_value){.type = JINJA_RANGE, .range = copy};
    return PHI_OK;
}

/* What dict() and namespace() take: a mapping or pairs, then keywords. */
static enum phi_status fill_dict(struct phi_jinja_run *r, const struct phi_jinja_args *args,
                                 struct phi_jinja_dict *d)
{
    struct phi_jinja_value items, pair;
    if (args->n_positional > 1)
        return phi_jinja_error(r, "dict expected at most 1 argument, got %zu", args->n_positional);
    if (args->n_positional == 1 && args->positional[0].type == JINJA_DICT) {
        const struct phi_jinja_dict *from = args->positional[0].dict;
        for (size_t i = 0; i < from->n; i++)
            PHI_TRY(phi_jinja_dict_set(r, d, from->entries[i].key, from->entries[i].value));
    } else if (args->n_positional == 1) {
        PHI_TRY(phi_jinja_to_list(r, args->positional[0], &items));
        for (size_t i = 0; i < items.list->n; i++) {
            PHI_TRY(phi_jinja_to_list(r, items.list->items[i], &pair));
            if (pair.list->n != 2)
                return phi_jinja_error(
                    r,
                    "dictionary update sequence element #%zu has length %zu; 2 is "
                    "required",
                    i, pair.list->n);
            PHI_TRY(phi_jinja_dict_set(r, d, pair.list->items[0], pair.list->items[1]));
        }
    }
    for (size_t i = 0; i < args->n_keywords; i++)
        PHI_TRY(phi_jinja_dict_set(r, d, phi_jinja_str(args->keywords[i].name),
                                   args->keywords[i].value));
    return PHI_OK;
}

static enum phi_status global_dict(struct phi_jinja_run *r, struct phi_jinja_call *call,
                                   struct phi_jinja_value *out)
{
    PHI_TRY(phi_jinja_dict_make(r, JINJA_DICT, out));
    return fill_dict(r, call->args, out->dict);
}

static enum phi_status global_namespace(struct phi_jinja_run *r, struct phi_jinja_call *call,
                                        struct phi_jinja_value *out)
{
    PHI_TRY(phi_jinja_dict_make(r, JINJA_NAMESPACE, out));
    PHI_TRY(fill_dict(r, call->args, out->dict));
    for (size_t i = 0; i < out->dict->n; i++) {
        struct phi_jinja_value name = out->dict->entries[i].key;
        if (name.type == JINJA_STR && name.s.n && name.s.data[0] == '_')
            return phi_jinja_error(
                r,
                "Chat templates cannot store underscore-prefixed attributes on a "
                "namespace, but got '%.*s'",
                JINJA_SHOWN(name.s));
    }
    return PHI_OK;
}

static enum phi_status make_cycler(struct phi_jinja_run *r, enum phi_jinja_type type,
                                   struct phi_jinja_value items, struct phi_jinja_value *out)
{
    struct phi_jinja_cycler *c = phi_arena_alloc(&r->arena, 1, sizeof *c);
    if (!c)
        return phi_jinja_no_memory(r);
    c->items = items.list;
    *out = (struct phi_jinja_value){.type = type, .cycler = c};
    return PHI_OK;
}

static enum phi_status global_cycler(struct phi_jinja_run *r, struct phi_jinja_call *call,
                                     struct phi_jinja_value *out)
{
    struct phi_jinja_value items;
    if (call->args->n_keywords)
        return phi_jinja_error(r, "cycler() takes no keyword arguments");
    if (!call->args->n_positional)
        return phi_jinja_error(r, "at least one item has to be provided");
    PHI_TRY(phi_jinja_list_make(r, JINJA_TUPLE, call->args->n_positional, &items));
    for (size_t i = 0; i < call->args->n_positional; i++)
        PHI_TRY(phi_jinja_list_append(r, items.list, call->args->positional[i]));
    return make_cycler(r, JINJA_CYCLER, items, out);
}

static enum phi_status global_joiner(struct phi_jinja_run *r, struct phi_jinja_call *call,
                                     struct phi_jinja_value *out)
{
    struct phi_jinja_value items, sep = phi_jinja_str(PHI_STR(", "));
    if (phi_jinja_given(call->arg[0]))
        sep = call->arg[0];
    PHI_TRY(phi_jinja_list_make(r, JINJA_TUPLE, 1, &items));
    PHI_TRY(phi_jinja_list_append(r, items.list, sep));
    return make_cycler(r, JINJA_JOINER, items, out);
}

/* The template's own refusal: its text is the error. */
static enum phi_status global_raise_exception(struct phi_jinja_run *r, struct phi_jinja_call *call,
                                              struct phi_jinja_value *out)
{
    struct phi_str message = {"", 0};
    (void)out;
    PHI_TRY(phi_jinja_text_arg(r, call->arg[0], &message));
    return phi_jinja_error(r, "%.*s", (int)(message.n < 800 ? message.n : 800), message.data);
}

/* strftime of the local time. A time without a zone prints nothing for %Z and %z in Python. */
static enum phi_status global_strftime_now(struct phi_jinja_run *r, struct phi_jinja_call *call,
                                           struct phi_jinja_value *out)
{
    struct phi_str format = {"", 0};
    PHI_TRY(phi_jinja_str_arg(r, call->arg[0], "strftime_now()", &format));
    time_t now = r->now_s < 0 ? time(NULL) : (time_t)r->now_s;
    struct tm tm;
    if (!localtime_r(&now, &tm))
        return phi_jinja_error(r, "the time cannot be shown");
    PHI_TRY(phi_jinja_charge(r, format.n));
    struct phi_buf b = {.limit = JINJA_MAX_OUTPUT_BYTES};
    for (size_t i = 0; i < format.n; i++) {
        char directive[] = {'%', i + 1 < format.n ? format.data[i + 1] : '\0', '\0'}, text[128];
        if (format.data[i] != '%' || !directive[1]) {
            phi_buf_append_char(&b, format.data[i]);
            continue;
        }
        i++;
        if (directive[1] == 'f')
            phi_buf_append_c(&b, "000000");
        else if (directive[1] == '-' || directive[1] == '_' || directive[1] == '0' ||
                 directive[1] == '^' || directive[1] == '#') { /* a flag of glibc */
            char flagged[] = {'%', directive[1], i + 1 < format.n ? format.data[++i] : '\0', '\0'};
            phi_buf_append(&b, text, strftime(text, sizeof text, flagged, &tm));
        } else if (directive[1] != 'Z' && directive[1] != 'z')
            phi_buf_append(&b, text, strftime(text, sizeof text, directive, &tm));
    }
    return phi_jinja_return_text(r, PHI_OK, &b, false, out);
}

const struct phi_jinja_builtin *phi_jinja_find_global(struct phi_str name)
{
    static const struct phi_jinja_builtin globals[] = {
        {"cycler", "*", 0, global_cycler},
        {"dict", "*", 0, global_dict},
        {"joiner", "sep", 0, global_joiner},
        {"lipsum", NULL, 0, NULL},
        {"namespace", "*", 0, global_namespace},
        {"raise_exception", "message", 1, global_raise_exception},
        {"range", "/ start stop step", 1, global_range},
        {"strftime_now", "format", 1, global_strftime_now},
    };
    return JINJA_FIND(globals, name);
}
