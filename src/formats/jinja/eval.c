/* eval.c: expressions (eval.h). */
#include "formats/jinja/eval.h"
#include "formats/jinja/text.h"

enum phi_status phi_jinja_enter(struct phi_jinja_run *r)
{
    if (r->depth >= JINJA_MAX_DEPTH)
        return phi_jinja_fail(r, PHI_ERR_TOO_LONG,
                              "the template nests or calls more than %d levels deep",
                              JINJA_MAX_DEPTH);
    r->depth++;
    return phi_jinja_charge(r, 1);
}

/* ---- variables ---- */

enum phi_status phi_jinja_scope_make(struct phi_jinja_run *r, struct phi_jinja_scope *parent,
                                     struct phi_jinja_scope **out)
{
    *out = r->free_scopes;
    if (*out)
        r->free_scopes = (*out)->parent;
    else
        *out = phi_arena_alloc(&r->arena, 1, sizeof **out);
    if (!*out)
        return phi_jinja_no_memory(r);
    **out = (struct phi_jinja_scope){.parent = parent};
    return PHI_OK;
}

void phi_jinja_scope_release(struct phi_jinja_run *r, struct phi_jinja_scope *scope)
{
    if (scope->captured)
        return;
    while (scope->bindings) {
        struct phi_jinja_binding *b = scope->bindings;
        scope->bindings = b->next;
        b->next = r->free_bindings;
        r->free_bindings = b;
    }
    scope->parent = r->free_scopes;
    r->free_scopes = scope;
}

void phi_jinja_scope_capture(struct phi_jinja_scope *scope)
{
    for (; scope && !scope->captured; scope = scope->parent)
        scope->captured = true;
}

enum phi_status phi_jinja_assign(struct phi_jinja_run *r, struct phi_jinja_scope *scope,
                                 struct phi_str name, struct phi_jinja_value value)
{
    for (struct phi_jinja_binding *b = scope->bindings; b; b = b->next) {
        if (b->name.data == name.data) {
            b->value = value;
            return PHI_OK;
        }
    }
    struct phi_jinja_binding *b = r->free_bindings;
    if (b)
        r->free_bindings = b->next;
    else
        b = phi_arena_alloc(&r->arena, 1, sizeof *b);
    if (!b)
        return phi_jinja_no_memory(r);
    *b = (struct phi_jinja_binding){name, value, scope->bindings};
    scope->bindings = b;
    return PHI_OK;
}

static enum phi_status method_value(struct phi_jinja_run *r,
                                    const struct phi_jinja_builtin *builtin,
                                    struct phi_jinja_value self, struct phi_jinja_value *out)
{
    struct phi_jinja_method *m = phi_arena_alloc(&r->arena, 1, sizeof *m);
    if (!m)
        return phi_jinja_no_memory(r);
    *m = (struct phi_jinja_method){builtin, self};
    *out = (struct phi_jinja_value){.type = JINJA_METHOD, .method = m};
    return PHI_OK;
}

/* Set in the template, then given by the caller, then global functions. */
static enum phi_status eval_name(struct phi_jinja_run *r, struct phi_str name,
                                 struct phi_jinja_scope *scope, struct phi_jinja_value *out)
{
    for (; scope; scope = scope->parent) {
        for (const struct phi_jinja_binding *b = scope->bindings; b; b = b->next) {
            if (b->name.data == name.data) {
                *out = b->value;
                return PHI_OK;
            }
        }
    }
    const struct phi_jinja_value *given = phi_jinja_dict_get(r->variables, name);
    if (given) {
        *out = *given;
        return PHI_OK;
    }
    const struct phi_jinja_builtin *global = phi_jinja_find_global(name);
    if (global)
        return method_value(r, global, phi_jinja_none(), out);
    return phi_jinja_undefined_make(r, out, "'%.*s' is undefined", JINJA_SHOWN(name));
}

/* ---- attributes and items ---- */

/* A type as Python spells it out in full: with the module that it comes from. */
static const char *qualified_type_name(struct phi_jinja_value v)
{
    switch (v.type) {
    case JINJA_STR:
        return v.markup ? "markupsafe.Markup" : "str";
    case JINJA_NAMESPACE:
        return "jinja2.utils.Namespace";
    case JINJA_CYCLER:
        return "jinja2.utils.Cycler";
    case JINJA_JOINER:
        return "jinja2.utils.Joiner";
    case JINJA_MACRO:
        return "jinja2.runtime.Macro";
    case JINJA_LOOP:
        return "jinja2.runtime.LoopContext";
    default:
        return phi_jinja_type_name(v);
    }
}

/* Jinja quotes the object for names, but not for other keys. */
enum phi_status phi_jinja_undefined_member(struct phi_jinja_run *r, struct phi_jinja_value object,
                                           struct phi_jinja_value key, struct phi_jinja_value *out)
{
    struct phi_buf b = {.limit = JINJA_MAX_OUTPUT_BYTES};
    struct phi_jinja_value shown;
    bool is_none = object.type == JINJA_NONE;
    const char *type = is_none ? "None" : qualified_type_name(object);
    const char *word = is_none ? "" : " object";
    enum phi_status status = phi_jinja_append_repr(r, &b, key);
    PHI_TRY(phi_jinja_return_text(r, status, &b, false, &shown));
    if (key.type == JINJA_STR)
        return phi_jinja_undefined_make(r, out, "'%s%s' has no attribute %.*s", type, word,
                                        JINJA_SHOWN(shown.s));
    return phi_jinja_undefined_make(r, out, "%s%s has no element %.*s", type, word,
                                    JINJA_SHOWN(shown.s));
}

static bool range_attr(const struct phi_jinja_range *range, struct phi_str name,
                       struct phi_jinja_value *out)
{
    if (phi_str_eq_c(name, "start"))
        *out = phi_jinja_int(range->start);
    else if (phi_str_eq_c(name, "stop"))
        *out = phi_jinja_int(range->stop);
    else if (phi_str_eq_c(name, "step"))
        *out = phi_jinja_int(range->step);
    else
        return false;
    return true;
}

static bool number_attr(struct phi_jinja_value v, struct phi_str name, struct phi_jinja_value *out)
{
    bool is_float = v.type == JINJA_FLOAT;
    if (phi_str_eq_c(name, "real") || (!is_float && phi_str_eq_c(name, "numerator")))
        *out = v.type == JINJA_BOOL ? phi_jinja_int(v.b) : v;
    else if (phi_str_eq_c(name, "imag"))
        *out = is_float ? phi_jinja_float(0.0) : phi_jinja_int(0);
    else if (!is_float && phi_str_eq_c(name, "denominator"))
        *out = phi_jinja_int(1);
    else
        return false;
    return true;
}

/* getattr(object, name): what belongs to the object's type, and the contents of namespaces. */
enum phi_status phi_jinja_own_attr(struct phi_jinja_run *r, struct phi_jinja_value object,
                                   struct phi_str name, struct phi_jinja_value *out, bool *found)
{
    *found = false;
    if (object.type == JINJA_UNDEFINED)
        return phi_jinja_undefined_error(r, object);
    if (object.type == JINJA_NAMESPACE) {
        const struct phi_jinja_value *v = phi_jinja_dict_get(object.dict, name);
        *found = v != NULL;
        if (v)
            *out = *v;
        return PHI_OK;
    }
    if (object.type == JINJA_LOOP)
        PHI_TRY(phi_jinja_loop_attr(r, object.loop, name, out, found));
    if (object.type == JINJA_RANGE)
        *found = range_attr(object.range, name, out);
    if (object.type == JINJA_BOOL || object.type == JINJA_INT || object.type == JINJA_FLOAT)
        *found = number_attr(object, name, out);
    if (object.type == JINJA_CYCLER && phi_str_eq_c(name, "current")) {
        *out = object.cycler->items->items[object.cycler->next];
        *found = true;
    }
    if (object.type == JINJA_TUPLE && object.list->is_group &&
        (phi_str_eq_c(name, "grouper") || phi_str_eq_c(name, "list"))) {
        *out = object.list->items[name.n == 4];
        *found = true;
    }
    if (object.type == JINJA_MACRO && phi_str_eq_c(name, "name")) {
        *out = object.macro->node->name.data ? phi_jinja_str(object.macro->node->name)
                                             : phi_jinja_none();
        *found = true;
    }
    if (*found)
        return PHI_OK;
    bool blocked = false;
    const struct phi_jinja_builtin *method = phi_jinja_find_method(object, name, &blocked);
    *found = method || blocked;
    if (blocked)
        return phi_jinja_undefined_make(r, out,
                                        "access to attribute '%.*s' of '%s' object is unsafe.",
                                        JINJA_SHOWN(name), phi_jinja_type_name(object));
    return method ? method_value(r, method, object, out) : PHI_OK;
}

enum phi_status phi_jinja_get_attr(struct phi_jinja_run *r, struct phi_jinja_value object,
                                   struct phi_str name, struct phi_jinja_value *out)
{
    bool found;
    PHI_TRY(phi_jinja_own_attr(r, object, name, out, &found));
    if (found)
        return PHI_OK;
    if (object.type == JINJA_DICT) {
        const struct phi_jinja_value *v = phi_jinja_dict_get(object.dict, name);
        if (v) {
            *out = *v;
            return PHI_OK;
        }
    }
    return phi_jinja_undefined_member(r, object, phi_jinja_str(name), out);
}

/* Python's index: from the end when negative. False when there is no such item. */
static bool resolve_index(int64_t i, int64_t n, int64_t *out)
{
    *out = i < 0 ? i + n : i;
    return *out >= 0 && *out < n;
}

static enum phi_status index_item(struct phi_jinja_run *r, struct phi_jinja_value object, int64_t i,
                                  struct phi_jinja_value *out, bool *found)
{
    int64_t n, at;
    *found = false;
    if (!phi_jinja_is_sequence(object) && object.type != JINJA_STR && object.type != JINJA_RANGE)
        return PHI_OK;
    PHI_TRY(phi_jinja_length(r, object, &n));
    *found = resolve_index(i, n, &at);
    if (!*found)
        return PHI_OK;
    if (object.type == JINJA_STR) {
        size_t byte = phi_jinja_char_offset(object.s, (size_t)at);
        *out = phi_jinja_str(
            (struct phi_str){object.s.data + byte, phi_jinja_char_bytes(object.s.data[byte])});
        out->markup = object.markup;
    } else if (object.type == JINJA_RANGE) {
        *out = phi_jinja_int(object.range->start + at * object.range->step);
    } else {
        *out = object.list->items[at];
    }
    return PHI_OK;
}

enum phi_status phi_jinja_get_item(struct phi_jinja_run *r, struct phi_jinja_value object,
                                   struct phi_jinja_value key, struct phi_jinja_value *out)
{
    bool found = false;
    if (object.type == JINJA_UNDEFINED)
        return phi_jinja_undefined_error(r, object);
    if (object.type == JINJA_DICT && phi_jinja_hashable(key)) {
        struct phi_jinja_value *v;
        PHI_TRY(phi_jinja_dict_find(r, object.dict, key, &v));
        if (v) {
            *out = *v;
            return PHI_OK;
        }
    }
    if (key.type == JINJA_INT || key.type == JINJA_BOOL)
        PHI_TRY(index_item(r, object, key.type == JINJA_BOOL ? key.b : key.i, out, &found));
    if (key.type == JINJA_STR)
        PHI_TRY(phi_jinja_own_attr(r, object, key.s, out, &found));
    if (found)
        return PHI_OK;
    return phi_jinja_undefined_member(r, object, key, out);
}

static size_t count_digits(struct phi_str s)
{
    size_t n = 0;
    while (n < s.n && s.data[n] >= '0' && s.data[n] <= '9')
        n++;
    return n;
}

enum phi_status phi_jinja_get_path(struct phi_jinja_run *r, struct phi_jinja_value object,
                                   struct phi_jinja_value path, struct phi_jinja_value fallback,
                                   struct phi_jinja_value *out)
{
    *out = object;
    if (path.type == JINJA_MISSING || path.type == JINJA_NONE)
        return PHI_OK;
    struct phi_str rest = path.type == JINJA_STR ? path.s : (struct phi_str){"", 0};
    for (;;) {
        const char *dot = rest.n ? memchr(rest.data, '.', rest.n) : NULL;
        struct phi_jinja_value key = path;
        if (path.type == JINJA_STR) {
            int64_t index = 0;
            bool too_big;
            key = phi_jinja_str(
                (struct phi_str){rest.data, dot ? (size_t)(dot - rest.data) : rest.n});
            size_t n_digits = count_digits(key.s);
            if (key.s.n && n_digits == key.s.n && phi_jinja_parse_int(key.s, 10, &too_big, &index))
                key = phi_jinja_int(too_big ? INT64_MAX : index);
        }
        PHI_TRY(phi_jinja_get_item(r, *out, key, out));
        if (out->type == JINJA_UNDEFINED && fallback.type != JINJA_NONE)
            *out = fallback;
        if (!dot)
            return PHI_OK;
        rest = (struct phi_str){dot + 1, rest.n - (size_t)(dot - rest.data) - 1};
    }
}

static enum phi_status slice_bound(struct phi_jinja_run *r, struct phi_jinja_value v,
                                   int64_t if_none, int64_t *out)
{
    if (v.type == JINJA_NONE || v.type == JINJA_MISSING)
        *out = if_none;
    else if (v.type == JINJA_INT || v.type == JINJA_BOOL)
        *out = v.type == JINJA_BOOL ? v.b : v.i;
    else
        return phi_jinja_error(r, "slice indices must be integers or None");
    return PHI_OK;
}

/* Into 0..n (or -1..n-1 going down), as Python's slice.indices. */
static int64_t clamp_bound(int64_t i, int64_t n, bool down)
{
    if (i < 0)
        i = i < -n ? -1 : i + n;
    if (i < 0)
        return down ? -1 : 0;
    return i >= n ? (down ? n - 1 : n) : i;
}

static enum phi_status slice_str(struct phi_jinja_run *r, struct phi_str s, int64_t start,
                                 int64_t stop, int64_t step, struct phi_jinja_value *out)
{
    if (step == 1) {
        size_t begin = phi_jinja_char_offset(s, (size_t)start);
        struct phi_str rest = {s.data + begin, s.n - begin};
        size_t n = stop > start ? phi_jinja_char_offset(rest, (size_t)(stop - start)) : 0;
        *out = phi_jinja_str((struct phi_str){rest.data, n});
        return PHI_OK;
    }
    struct phi_buf b = {.limit = JINJA_MAX_OUTPUT_BYTES};
    size_t n_chars = phi_jinja_n_chars(s);
    size_t *offsets = phi_arena_alloc(&r->arena, n_chars + 1, sizeof *offsets);
    if (!offsets)
        return phi_jinja_no_memory(r);
    for (size_t i = 0, at = 0; i < n_chars; i++, at += phi_jinja_char_bytes(s.data[at]))
        offsets[i] = at;
    for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
        phi_buf_append(&b, s.data + offsets[i], phi_jinja_char_bytes(s.data[offsets[i]]));
        if (__builtin_add_overflow(i, step, &i))
            break;
    }
    return phi_jinja_return_text(r, PHI_OK, &b, false, out);
}

static enum phi_status slice_range(struct phi_jinja_run *r, const struct phi_jinja_range *from,
                                   int64_t start, int64_t stop, int64_t step,
                                   struct phi_jinja_value *out)
{
    struct phi_jinja_range *range = phi_arena_alloc(&r->arena, 1, sizeof *range);
    if (!range)
        return phi_jinja_no_memory(r);
    int64_t distance = step > 0 ? stop - start : start - stop;
    uint64_t stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    range->n = distance > 0 ? (int64_t)(((uint64_t)distance - 1) / stride + 1) : 0;
    if (__builtin_mul_overflow(from->step, step, &range->step) ||
        __builtin_mul_overflow(from->step, start, &range->start) ||
        __builtin_add_overflow(from->start, range->start, &range->start) ||
        __builtin_mul_overflow(from->step, stop, &range->stop) ||
        __builtin_add_overflow(from->start, range->stop, &range->stop))
        return phi_jinja_error(r, "an integer beyond 64 bits");
    *out = (struct phi_jinja_value){.type = JINJA_RANGE, .range = range};
    return PHI_OK;
}

enum phi_status phi_jinja_slice(struct phi_jinja_run *r, struct phi_jinja_value object,
                                const struct phi_jinja_value bounds[3], struct phi_jinja_value *out)
{
    int64_t n, start = 0, stop = 0, step = 1;
    if (object.type == JINJA_UNDEFINED)
        return phi_jinja_undefined_error(r, object);
    if (!phi_jinja_is_sequence(object) && object.type != JINJA_STR && object.type != JINJA_RANGE)
        return phi_jinja_error(r, "'%s' object is not subscriptable by a slice",
                               phi_jinja_type_name(object));
    PHI_TRY(phi_jinja_length(r, object, &n));
    PHI_TRY(phi_jinja_charge(r, (size_t)n / 16));
    PHI_TRY(slice_bound(r, bounds[2], 1, &step));
    if (step == 0)
        return phi_jinja_error(r, "slice step cannot be zero");
    PHI_TRY(slice_bound(r, bounds[0], step > 0 ? 0 : INT64_MAX, &start));
    PHI_TRY(slice_bound(r, bounds[1], step > 0 ? INT64_MAX : INT64_MIN, &stop));
    start = clamp_bound(start, n, step < 0);
    stop = clamp_bound(stop, n, step < 0);
    if (object.type == JINJA_STR) {
        PHI_TRY(slice_str(r, object.s, start, stop, step, out));
        out->markup = object.markup;
        return PHI_OK;
    }
    if (object.type == JINJA_RANGE)
        return slice_range(r, object.range, start, stop, step, out);
    PHI_TRY(phi_jinja_list_make(r, object.type, 0, out));
    for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
        struct phi_jinja_value item;
        bool found;
        PHI_TRY(index_item(r, object, i, &item, &found));
        PHI_TRY(phi_jinja_list_append(r, out->list, item));
        if (__builtin_add_overflow(i, step, &i))
            break;
    }
    return PHI_OK;
}

/* ---- calls ---- */

static enum phi_status add_keyword(struct phi_jinja_run *r, struct phi_jinja_args *args,
                                   struct phi_str name, struct phi_jinja_value value)
{
    for (size_t i = 0; i < args->n_keywords; i++)
        if (phi_str_eq(args->keywords[i].name, name))
            return phi_jinja_error(r, "got multiple values for keyword argument '%.*s'",
                                   JINJA_SHOWN(name));
    args->keywords[args->n_keywords++] = (struct phi_jinja_keyword){name, value};
    return PHI_OK;
}

static enum phi_status spread_keywords(struct phi_jinja_run *r, struct phi_jinja_value v,
                                       struct phi_jinja_args *args)
{
    if (v.type != JINJA_DICT)
        return phi_jinja_error(r, "argument after ** must be a mapping, not %s",
                               phi_jinja_type_name(v));
    struct phi_jinja_keyword *all =
        phi_arena_alloc(&r->arena, args->n_keywords + v.dict->n + 1, sizeof *all);
    if (!all)
        return phi_jinja_no_memory(r);
    if (args->n_keywords)
        memcpy(all, args->keywords, args->n_keywords * sizeof *all);
    args->keywords = all;
    for (size_t i = 0; i < v.dict->n; i++) {
        const struct phi_jinja_entry *e = &v.dict->entries[i];
        if (e->key.type != JINJA_STR)
            return phi_jinja_error(r, "keywords must be strings");
        PHI_TRY(phi_jinja_charge(r, args->n_keywords + 1));
        PHI_TRY(add_keyword(r, args, e->key.s, e->value));
    }
    return PHI_OK;
}

enum phi_status phi_jinja_eval_args(struct phi_jinja_run *r, const struct phi_jinja_node *node,
                                    struct phi_jinja_scope *scope, struct phi_jinja_args *out)
{
    size_t n_keywords = 0;
    struct phi_jinja_value positional, v;
    *out = (struct phi_jinja_args){0};
    if (!node->items && !node->more && !node->b && !node->c)
        return PHI_OK;
    PHI_TRY(phi_jinja_list_make(r, JINJA_LIST, 0, &positional));
    for (const struct phi_jinja_node *n = node->items; n; n = n->next) {
        PHI_TRY(phi_jinja_eval(r, n, scope, &v));
        PHI_TRY(phi_jinja_list_append(r, positional.list, v));
    }
    for (const struct phi_jinja_node *n = node->more; n; n = n->next)
        n_keywords++;
    out->keywords = phi_arena_alloc(&r->arena, n_keywords + 1, sizeof *out->keywords);
    if (!out->keywords)
        return phi_jinja_no_memory(r);
    for (const struct phi_jinja_node *n = node->more; n; n = n->next) {
        PHI_TRY(phi_jinja_eval(r, n->a, scope, &v));
        PHI_TRY(add_keyword(r, out, n->name, v));
    }
    if (node->b) {
        struct phi_jinja_value rest;
        PHI_TRY(phi_jinja_eval(r, node->b, scope, &v));
        PHI_TRY(phi_jinja_to_list(r, v, &rest));
        for (size_t i = 0; i < rest.list->n; i++)
            PHI_TRY(phi_jinja_list_append(r, positional.list, rest.list->items[i]));
    }
    if (node->c) {
        PHI_TRY(phi_jinja_eval(r, node->c, scope, &v));
        PHI_TRY(spread_keywords(r, v, out));
    }
    out->positional = positional.list->items;
    out->n_positional = positional.list->n;
    return PHI_OK;
}

enum phi_status phi_jinja_call(struct phi_jinja_run *r, struct phi_jinja_value callee,
                               struct phi_jinja_args *args, struct phi_jinja_value *out)
{
    switch (callee.type) {
    case JINJA_UNDEFINED:
        return phi_jinja_undefined_error(r, callee);
    case JINJA_METHOD:
        return phi_jinja_call_builtin(r, callee.method->builtin, callee.method->self, args, out);
    case JINJA_MACRO:
        return phi_jinja_call_macro(r, callee.macro, args, out);
    case JINJA_LOOP:
        return phi_jinja_call_loop(r, callee.loop, args, out);
    case JINJA_JOINER:
        *out = callee.cycler->used ? callee.cycler->items->items[0] : phi_jinja_str(PHI_STR(""));
        callee.cycler->used = true;
        return PHI_OK;
    default:
        return phi_jinja_error(r, "'%s' object is not callable", phi_jinja_type_name(callee));
    }
}

static enum phi_status eval_call(struct phi_jinja_run *r, const struct phi_jinja_node *node,
                                 struct phi_jinja_scope *scope, struct phi_jinja_value *out)
{
    struct phi_jinja_value callee;
    struct phi_jinja_args args;
    PHI_TRY(phi_jinja_eval(r, node->a, scope, &callee));
    PHI_TRY(phi_jinja_eval_args(r, node, scope, &args));
    r->line = node->line;
    return phi_jinja_call(r, callee, &args, out);
}

/* Filters and tests. */
static enum phi_status eval_builtin(struct phi_jinja_run *r, const struct phi_jinja_node *node,
                                    struct phi_jinja_scope *scope, struct phi_jinja_value *out)
{
    struct phi_jinja_value input = r->block_text;
    struct phi_jinja_args args;
    if (node->a)
        PHI_TRY(phi_jinja_eval(r, node->a, scope, &input));
    PHI_TRY(phi_jinja_eval_args(r, node, scope, &args));
    r->line = node->line;
    if (!node->builtin)
        return phi_jinja_error(r, "No %s named '%.*s' found.",
                               node->kind == NODE_TEST ? "test" : "filter",
                               JINJA_SHOWN(node->name));
    return phi_jinja_call_builtin(r, node->builtin, input, &args, out);
}

/* ---- operators ---- */

static enum phi_status eval_sequence(struct phi_jinja_run *r, const struct phi_jinja_node *node,
                                     struct phi_jinja_scope *scope, struct phi_jinja_value *out)
{
    PHI_TRY(phi_jinja_list_make(r, node->kind == NODE_TUPLE ? JINJA_TUPLE : JINJA_LIST, 0, out));
    for (const struct phi_jinja_node *n = node->items; n; n = n->next) {
        struct phi_jinja_value item;
        PHI_TRY(phi_jinja_eval(r, n, scope, &item));
        PHI_TRY(phi_jinja_list_append(r, out->list, item));
    }
    return PHI_OK;
}

static enum phi_status eval_dict(struct phi_jinja_run *r, const struct phi_jinja_node *node,
                                 struct phi_jinja_scope *scope, struct phi_jinja_value *out)
{
    PHI_TRY(phi_jinja_dict_make(r, JINJA_DICT, out));
    for (const struct phi_jinja_node *n = node->items; n; n = n->next) {
        struct phi_jinja_value key, value;
        PHI_TRY(phi_jinja_eval(r, n->a, scope, &key));
        PHI_TRY(phi_jinja_eval(r, n->b, scope, &value));
        PHI_TRY(phi_jinja_dict_set(r, out->dict, key, value));
    }
    return PHI_OK;
}

/* a ~ b: text of each */
static enum phi_status eval_concat(struct phi_jinja_run *r, const struct phi_jinja_node *node,
                                   struct phi_jinja_scope *scope, struct phi_jinja_value *out)
{
    struct phi_buf b = {.limit = JINJA_MAX_OUTPUT_BYTES};
    enum phi_status status = PHI_OK;
    for (const struct phi_jinja_node *n = node->items; n && status == PHI_OK; n = n->next) {
        struct phi_jinja_value part;
        status = phi_jinja_eval(r, n, scope, &part);
        if (status == PHI_OK)
            status = phi_jinja_append_str(r, &b, part);
    }
    return phi_jinja_return_text(r, status, &b, false, out);
}

static enum phi_status compare_one(struct phi_jinja_run *r, const struct phi_jinja_node *operand,
                                   struct phi_jinja_value a, struct phi_jinja_value b, bool *out)
{
    static const char *const names[] = {
        [TOKEN_LT] = "<", [TOKEN_LTEQ] = "<=", [TOKEN_GT] = ">", [TOKEN_GTEQ] = ">="};
    int order;
    bool unordered;
    switch (operand->op) {
    case TOKEN_EQ:
        return phi_jinja_equal(r, a, b, out);
    case TOKEN_NE:
        PHI_TRY(phi_jinja_equal(r, a, b, out));
        *out = !*out;
        return PHI_OK;
    case TOKEN_NAME:
        PHI_TRY(phi_jinja_contains(r, b, a, out));
        *out = *out != operand->negated;
        return PHI_OK;
    default:
        PHI_TRY(phi_jinja_compare(r, a, b, names[operand->op], &order, &unordered));
        *out = !unordered && (operand->op == TOKEN_LT     ? order < 0
                              : operand->op == TOKEN_LTEQ ? order <= 0
                              : operand->op == TOKEN_GT   ? order > 0
                                                          : order >= 0);
        return PHI_OK;
    }
}

/* a < b < c: each pair, stopping at the first that does not hold. */
static enum phi_status eval_compare(struct phi_jinja_run *r, const struct phi_jinja_node *node,
                                    struct phi_jinja_scope *scope, struct phi_jinja_value *out)
{
    struct phi_jinja_value left, right;
    bool holds = true;
    PHI_TRY(phi_jinja_eval(r, node->a, scope, &left));
    for (const struct phi_jinja_node *n = node->items; n && holds; n = n->next) {
        PHI_TRY(phi_jinja_eval(r, n->a, scope, &right));
        r->line = n->line;
        PHI_TRY(compare_one(r, n, left, right, &holds));
        left = right;
    }
    *out = phi_jinja_bool(holds);
    return PHI_OK;
}

static enum phi_status eval_item(struct phi_jinja_run *r, const struct phi_jinja_node *node,
                                 struct phi_jinja_scope *scope, struct phi_jinja_value *out)
{
    struct phi_jinja_value object, key;
    PHI_TRY(phi_jinja_eval(r, node->a, scope, &object));
    if (node->b->kind != NODE_SLICE) {
        PHI_TRY(phi_jinja_eval(r, node->b, scope, &key));
        r->line = node->line;
        return phi_jinja_get_item(r, object, key, out);
    }
    const struct phi_jinja_node *parts[3] = {node->b->a, node->b->b, node->b->c};
    struct phi_jinja_value bounds[3];
    for (int i = 0; i < 3; i++) {
        bounds[i] = phi_jinja_none();
        if (parts[i])
            PHI_TRY(phi_jinja_eval(r, parts[i], scope, &bounds[i]));
    }
    r->line = node->line;
    return phi_jinja_slice(r, object, bounds, out);
}

static enum phi_status eval_choice(struct phi_jinja_run *r, const struct phi_jinja_node *node,
                                   struct phi_jinja_scope *scope, struct phi_jinja_value *out)
{
    struct phi_jinja_value test;
    if (node->kind == NODE_COND) {
        PHI_TRY(phi_jinja_eval(r, node->b, scope, &test));
        if (phi_jinja_truth(test))
            return phi_jinja_eval(r, node->a, scope, out);
        if (node->c)
            return phi_jinja_eval(r, node->c, scope, out);
        return phi_jinja_undefined_make(r, out,
                                        "the inline if-expression on line %d evaluated to false "
                                        "and no else section was defined.",
                                        node->line);
    }
    PHI_TRY(phi_jinja_eval(r, node->a, scope, out));
    if (phi_jinja_truth(*out) == (node->kind == NODE_AND))
        return phi_jinja_eval(r, node->b, scope, out);
    return PHI_OK;
}

static enum phi_status eval_operator(struct phi_jinja_run *r, const struct phi_jinja_node *node,
                                     struct phi_jinja_scope *scope, struct phi_jinja_value *out)
{
    struct phi_jinja_value a, b;
    PHI_TRY(phi_jinja_eval(r, node->a, scope, &a));
    if (node->kind == NODE_NOT) {
        *out = phi_jinja_bool(!phi_jinja_truth(a));
        return PHI_OK;
    }
    if (node->kind == NODE_NEG || node->kind == NODE_POS)
        return phi_jinja_negate(r, a, node->kind == NODE_NEG, out);
    if (node->kind == NODE_ATTR) {
        r->line = node->line;
        return phi_jinja_get_attr(r, a, node->name, out);
    }
    PHI_TRY(phi_jinja_eval(r, node->b, scope, &b));
    r->line = node->line;
    return phi_jinja_binary(r, node->op, a, b, out);
}

static enum phi_status eval_inside(struct phi_jinja_run *r, const struct phi_jinja_node *node,
                                   struct phi_jinja_scope *scope, struct phi_jinja_value *out)
{
    switch (node->kind) {
    case NODE_LIST:
    case NODE_TUPLE:
        return eval_sequence(r, node, scope, out);
    case NODE_DICT:
        return eval_dict(r, node, scope, out);
    case NODE_CONCAT:
        return eval_concat(r, node, scope, out);
    case NODE_COMPARE:
        return eval_compare(r, node, scope, out);
    case NODE_AND:
    case NODE_OR:
    case NODE_COND:
        return eval_choice(r, node, scope, out);
    case NODE_ITEM:
        return eval_item(r, node, scope, out);
    case NODE_CALL:
        return eval_call(r, node, scope, out);
    case NODE_FILTER:
    case NODE_TEST:
        return eval_builtin(r, node, scope, out);
    case NODE_NOT:
    case NODE_NEG:
    case NODE_POS:
    case NODE_ATTR:
    case NODE_BINARY:
        return eval_operator(r, node, scope, out);
    default:
        return phi_jinja_fail(r, PHI_ERR_INTERNAL, "a statement where an expression should be");
    }
}

enum phi_status phi_jinja_eval(struct phi_jinja_run *r, const struct phi_jinja_node *node,
                               struct phi_jinja_scope *scope, struct phi_jinja_value *out)
{
    r->line = node->line;
    if (node->kind == NODE_CONST) {
        *out = node->value;
        return PHI_OK;
    }
    if (node->kind == NODE_NAME)
        return eval_name(r, node->name, scope, out);
    PHI_TRY(phi_jinja_enter(r));
    PHI_TRY(eval_inside(r, node, scope, out));
    phi_jinja_leave(r);
    return PHI_OK;
}
