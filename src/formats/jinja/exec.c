/* exec.c: statements, macros and loops (eval.h). */
#include "formats/jinja/eval.h"
#include "formats/jinja/text.h"

#include <inttypes.h>

/* How a body ended: break and continue travel outward to their loop. */
enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE };

static enum phi_status exec_body(struct phi_jinja_run *r, const struct phi_jinja_node *node,
                                 struct phi_jinja_scope *scope, enum flow *flow);

/* A scope with the variables that begin undefined in it. */
static enum phi_status open_scope(struct phi_jinja_run *r, struct phi_jinja_scope *parent,
                                  struct phi_jinja_unset *unset, struct phi_jinja_scope **out)
{
    PHI_TRY(phi_jinja_scope_make(r, parent, out));
    for (; unset; unset = unset->next) {
        struct phi_jinja_value v = {.type = JINJA_UNDEFINED, .undefined = &unset->undefined};
        PHI_TRY(phi_jinja_assign(r, *out, unset->name, v));
    }
    return PHI_OK;
}

/* ---- output ---- */

static enum phi_status check_output(struct phi_jinja_run *r)
{
    return r->out->failed ? phi_jinja_text_too_long(r) : PHI_OK;
}

static enum phi_status print(struct phi_jinja_run *r, struct phi_jinja_value v)
{
    PHI_TRY(phi_jinja_append_str(r, r->out, v));
    return check_output(r);
}

/* What a block gives goes out as it is, so it must be text. Jinja joins the pieces when all of them
 * are there, and refuses only then. */
static enum phi_status print_piece(struct phi_jinja_run *r, struct phi_jinja_value v)
{
    if (v.type == JINJA_STR)
        return print(r, v);
    if (!r->odd_type) {
        r->odd_type = phi_jinja_type_name(v);
        r->odd_line = r->line;
    }
    return PHI_OK;
}

static enum phi_status join_pieces(struct phi_jinja_run *r)
{
    if (!r->odd_type)
        return PHI_OK;
    r->line = r->odd_line;
    return phi_jinja_error(r, "expected str instance, %s found", r->odd_type);
}

/* Where pieces go while a body is run into a string, and where they went before. */
struct redirection {
    struct phi_buf text;
    struct phi_buf *outer;
    const char *outer_odd_type;
    int outer_odd_line;
};

static void redirect(struct phi_jinja_run *r, struct redirection *to)
{
    *to = (struct redirection){{.limit = JINJA_MAX_OUTPUT_BYTES}, r->out, r->odd_type, r->odd_line};
    r->out = &to->text;
    r->odd_type = NULL;
}

/* Ends it; `status` is how the body ended. When it was left by break or continue, the text is dropped
 * without being joined, as in Jinja. */
static enum phi_status redirect_end(struct phi_jinja_run *r, struct redirection *to,
                                    enum phi_status status, enum flow flow,
                                    struct phi_jinja_value *out)
{
    if (status == PHI_OK && flow == FLOW_NEXT)
        status = join_pieces(r);
    r->out = to->outer;
    r->odd_type = to->outer_odd_type;
    r->odd_line = to->outer_odd_line;
    return phi_jinja_return_text(r, status, &to->text, false, out);
}

/* Runs a body into a string instead of the output. */
static enum phi_status capture(struct phi_jinja_run *r, const struct phi_jinja_node *body,
                               struct phi_jinja_scope *scope, enum flow *flow,
                               struct phi_jinja_value *out)
{
    struct redirection to;
    redirect(r, &to);
    enum phi_status status = exec_body(r, body, scope, flow);
    return redirect_end(r, &to, status, *flow, out);
}

/* ---- assignment ---- */

static enum phi_status assign_attribute(struct phi_jinja_run *r,
                                        const struct phi_jinja_node *target,
                                        struct phi_jinja_scope *scope, struct phi_jinja_value value)
{
    struct phi_jinja_value ns;
    struct phi_jinja_node name = {.kind = NODE_NAME, .line = target->line, .name = target->name};
    PHI_TRY(phi_jinja_eval(r, &name, scope, &ns));
    if (ns.type != JINJA_NAMESPACE)
        return phi_jinja_error(r, "cannot assign attribute on non-namespace object");
    if (target->attribute.data[0] == '_')
        return phi_jinja_error(r,
                               "Chat templates cannot store underscore-prefixed attributes on a "
                               "namespace, but got '%.*s'",
                               JINJA_SHOWN(target->attribute));
    return phi_jinja_dict_set(r, ns.dict, phi_jinja_str(target->attribute), value);
}

static enum phi_status assign(struct phi_jinja_run *r, const struct phi_jinja_node *target,
                              struct phi_jinja_scope *scope, struct phi_jinja_value value)
{
    if (target->kind == NODE_NAME)
        return phi_jinja_assign(r, scope, target->name, value);
    if (target->kind == NODE_NAMESPACE_REF)
        return assign_attribute(r, target, scope, value);
    struct phi_jinja_value items;
    size_t n = 0, i = 0;
    PHI_TRY(phi_jinja_enter(r));
    PHI_TRY(phi_jinja_to_list(r, value, &items));
    for (const struct phi_jinja_node *t = target->items; t; t = t->next)
        n++;
    if (items.list->n < n)
        return phi_jinja_error(r, "not enough values to unpack (expected %zu, got %zu)", n,
                               items.list->n);
    if (items.list->n > n)
        return phi_jinja_error(r, "too many values to unpack (expected %zu)", n);
    for (const struct phi_jinja_node *t = target->items; t; t = t->next)
        PHI_TRY(assign(r, t, scope, items.list->items[i++]));
    phi_jinja_leave(r);
    return PHI_OK;
}

static enum phi_status exec_set(struct phi_jinja_run *r, const struct phi_jinja_node *node,
                                struct phi_jinja_scope *scope)
{
    struct phi_jinja_value value;
    PHI_TRY(phi_jinja_eval(r, node->b, scope, &value));
    r->line = node->line;
    return assign(r, node->a, scope, value);
}

/* Applies a block's filters to its text. */
static enum phi_status filter_block(struct phi_jinja_run *r, const struct phi_jinja_node *filters,
                                    struct phi_jinja_scope *scope, struct phi_jinja_value *text)
{
    struct phi_jinja_value outer = r->block_text;
    r->block_text = *text;
    PHI_TRY(phi_jinja_eval(r, filters, scope, text));
    r->block_text = outer;
    return PHI_OK;
}

static enum phi_status exec_set_block(struct phi_jinja_run *r, const struct phi_jinja_node *node,
                                      struct phi_jinja_scope *scope, enum flow *flow)
{
    struct phi_jinja_scope *inner;
    struct phi_jinja_value text;
    PHI_TRY(open_scope(r, scope, node->unset, &inner));
    PHI_TRY(capture(r, node->items, inner, flow, &text));
    if (*flow != FLOW_NEXT)
        return PHI_OK;
    if (node->b)
        PHI_TRY(filter_block(r, node->b, inner, &text));
    phi_jinja_scope_release(r, inner);
    r->line = node->line;
    return assign(r, node->a, scope, text);
}

static enum phi_status exec_filter_block(struct phi_jinja_run *r, const struct phi_jinja_node *node,
                                         struct phi_jinja_scope *scope, enum flow *flow)
{
    struct phi_jinja_scope *inner;
    struct phi_jinja_value text;
    PHI_TRY(open_scope(r, scope, node->unset, &inner));
    PHI_TRY(capture(r, node->items, inner, flow, &text));
    if (*flow != FLOW_NEXT)
        return PHI_OK;
    PHI_TRY(filter_block(r, node->a, inner, &text));
    phi_jinja_scope_release(r, inner);
    return print_piece(r, text);
}

static enum phi_status exec_with(struct phi_jinja_run *r, const struct phi_jinja_node *node,
                                 struct phi_jinja_scope *scope, enum flow *flow)
{
    struct phi_jinja_scope *inner;
    PHI_TRY(open_scope(r, scope, node->unset, &inner));
    for (const struct phi_jinja_node *set = node->more; set; set = set->next) {
        struct phi_jinja_value value;
        PHI_TRY(phi_jinja_eval(r, set->b, scope, &value));
        PHI_TRY(assign(r, set->a, inner, value));
    }
    PHI_TRY(exec_body(r, node->items, inner, flow));
    phi_jinja_scope_release(r, inner);
    return PHI_OK;
}

/* ---- loops ---- */

/* The next item that passes the loop's filter, or *done. */
static enum phi_status take_item(struct phi_jinja_run *r, struct phi_jinja_loop *loop,
                                 struct phi_jinja_value *out, bool *done)
{
    const struct phi_jinja_node *node = loop->node;
    for (;;) {
        PHI_TRY(phi_jinja_iter_next(r, &loop->iter, out, done));
        if (*done || !node->c || loop->filtered)
            return PHI_OK;
        struct phi_jinja_scope *scope;
        struct phi_jinja_value test;
        PHI_TRY(phi_jinja_scope_make(r, loop->scope, &scope));
        PHI_TRY(assign(r, node->a, scope, *out));
        PHI_TRY(phi_jinja_eval(r, node->c, scope, &test));
        phi_jinja_scope_release(r, scope);
        if (phi_jinja_truth(test))
            break;
    }
    if (node->a->kind == NODE_TUPLE) { /* what came through the filter was unpacked and packed */
        PHI_TRY(phi_jinja_to_list(r, *out, out));
        out->type = JINJA_TUPLE;
    }
    return PHI_OK;
}

static enum phi_status peek(struct phi_jinja_run *r, struct phi_jinja_loop *loop)
{
    bool done;
    if (phi_jinja_given(loop->after) || loop->at_end)
        return PHI_OK;
    PHI_TRY(take_item(r, loop, &loop->after, &done));
    if (done) {
        loop->after = (struct phi_jinja_value){.type = JINJA_MISSING};
        loop->at_end = true;
    }
    return PHI_OK;
}

static enum phi_status advance(struct phi_jinja_run *r, struct phi_jinja_loop *loop, bool *done)
{
    struct phi_jinja_value item = loop->after;
    *done = loop->at_end;
    if (!*done && !phi_jinja_given(item))
        PHI_TRY(take_item(r, loop, &item, done));
    if (*done)
        return PHI_OK;
    loop->after = (struct phi_jinja_value){.type = JINJA_MISSING};
    loop->index0++;
    loop->before = loop->current;
    loop->current = item;
    return PHI_OK;
}

/* Of what has no length, the rest is read ahead. */
static enum phi_status loop_length(struct phi_jinja_run *r, struct phi_jinja_loop *loop,
                                   int64_t *out)
{
    if (loop->length < 0 && !loop->node->c && phi_jinja_has_length(loop->iter.over)) {
        PHI_TRY(phi_jinja_length(r, loop->iter.over, &loop->length));
    } else if (loop->length < 0) {
        struct phi_jinja_value rest;
        PHI_TRY(phi_jinja_list_make(r, JINJA_LIST, 0, &rest));
        for (;;) {
            struct phi_jinja_value item;
            bool done;
            PHI_TRY(take_item(r, loop, &item, &done));
            if (done)
                break;
            PHI_TRY(phi_jinja_list_append(r, rest.list, item));
        }
        loop->iter = (struct phi_jinja_iter){.over = rest};
        loop->length = (int64_t)rest.list->n + loop->index0 + 1 + phi_jinja_given(loop->after);
        loop->filtered = true;
    }
    *out = loop->length;
    return PHI_OK;
}

static enum phi_status exec_for(struct phi_jinja_run *r, const struct phi_jinja_node *node,
                                struct phi_jinja_scope *scope, struct phi_jinja_value over,
                                int64_t depth0, enum flow *flow)
{
    struct phi_jinja_value missing = {.type = JINJA_MISSING};
    struct phi_jinja_loop *loop = phi_arena_alloc(&r->arena, 1, sizeof *loop);
    bool completed = false; /* one turn ran to its end; without any, the else branch runs */
    if (!loop)
        return phi_jinja_no_memory(r);
    *loop = (struct phi_jinja_loop){.node = node,
                                    .scope = scope,
                                    .index0 = -1,
                                    .length = -1,
                                    .depth0 = depth0,
                                    .before = missing,
                                    .current = missing,
                                    .after = missing,
                                    .last_changed = missing};
    if (node->recursive || node->c) /* evaluated in this scope for as long as somebody has `loop` */
        phi_jinja_scope_capture(scope);
    PHI_TRY(phi_jinja_iter_init(r, over, &loop->iter));
    for (;;) {
        struct phi_jinja_scope *turn;
        bool done;
        enum flow inner = FLOW_NEXT;
        r->line = node->line;
        PHI_TRY(advance(r, loop, &done));
        if (done)
            break;
        PHI_TRY(open_scope(r, scope, node->unset, &turn));
        PHI_TRY(assign(r, node->a, turn, loop->current));
        PHI_TRY(phi_jinja_assign(r, turn, r->special->loop,
                                 (struct phi_jinja_value){.type = JINJA_LOOP, .loop = loop}));
        PHI_TRY(exec_body(r, node->items, turn, &inner));
        phi_jinja_scope_release(r, turn);
        if (inner == FLOW_BREAK)
            break;
        completed |= inner == FLOW_NEXT;
    }
    if (completed || !node->more)
        return PHI_OK;
    struct phi_jinja_scope *otherwise;
    PHI_TRY(open_scope(r, scope, node->unset_else, &otherwise));
    return exec_body(r, node->more, otherwise, flow);
}

static enum phi_status exec_for_node(struct phi_jinja_run *r, const struct phi_jinja_node *node,
                                     struct phi_jinja_scope *scope, enum flow *flow)
{
    struct phi_jinja_value over;
    PHI_TRY(phi_jinja_eval(r, node->b, scope, &over));
    return exec_for(r, node, scope, over, 0, flow);
}

enum phi_status phi_jinja_call_loop(struct phi_jinja_run *r, const struct phi_jinja_loop *loop,
                                    struct phi_jinja_args *args, struct phi_jinja_value *out)
{
    struct redirection to;
    enum flow flow = FLOW_NEXT;
    if (!loop->node->recursive)
        return phi_jinja_error(
            r, "The loop must have the 'recursive' marker to be called recursively.");
    if (args->n_positional != 1 || args->n_keywords)
        return phi_jinja_error(r, "loop() takes one argument");
    PHI_TRY(phi_jinja_enter(r));
    redirect(r, &to);
    enum phi_status status =
        exec_for(r, loop->node, loop->scope, args->positional[0], loop->depth0 + 1, &flow);
    phi_jinja_leave(r);
    return redirect_end(r, &to, status, flow, out);
}

/* loop.cycle(...) and loop.changed(...) are methods; methods.c. */
enum phi_status phi_jinja_loop_attr(struct phi_jinja_run *r, struct phi_jinja_loop *loop,
                                    struct phi_str name, struct phi_jinja_value *out, bool *found)
{
    int64_t length;
    *found = true;
    if (phi_str_eq_c(name, "index0"))
        *out = phi_jinja_int(loop->index0);
    else if (phi_str_eq_c(name, "index"))
        *out = phi_jinja_int(loop->index0 + 1);
    else if (phi_str_eq_c(name, "first"))
        *out = phi_jinja_bool(loop->index0 == 0);
    else if (phi_str_eq_c(name, "depth"))
        *out = phi_jinja_int(loop->depth0 + 1);
    else if (phi_str_eq_c(name, "depth0"))
        *out = phi_jinja_int(loop->depth0);
    else if (phi_str_eq_c(name, "last") || phi_str_eq_c(name, "nextitem")) {
        PHI_TRY(peek(r, loop));
        if (name.n == 4)
            *out = phi_jinja_bool(loop->at_end);
        else if (loop->at_end)
            return phi_jinja_undefined_make(r, out, "there is no next item");
        else
            *out = loop->after;
    } else if (phi_str_eq_c(name, "previtem")) {
        if (loop->index0 == 0)
            return phi_jinja_undefined_make(r, out, "there is no previous item");
        *out = loop->before;
    } else if (phi_str_eq_c(name, "length") || phi_str_eq_c(name, "revindex") ||
               phi_str_eq_c(name, "revindex0")) {
        PHI_TRY(loop_length(r, loop, &length));
        if (name.n == 6)
            *out = phi_jinja_int(length);
        else
            *out = phi_jinja_int(length - loop->index0 - (name.n == 9));
    } else {
        *found = false;
    }
    return PHI_OK;
}

enum phi_status phi_jinja_append_loop_repr(struct phi_jinja_run *r, struct phi_buf *out,
                                           struct phi_jinja_loop *loop)
{
    int64_t length;
    PHI_TRY(loop_length(r, loop, &length));
    phi_buf_printf(out, "<LoopContext %" PRId64 "/%" PRId64 ">", loop->index0 + 1, length);
    return PHI_OK;
}

/* ---- macros ---- */

/* Takes the named keyword out of args. */
static bool take_keyword(struct phi_jinja_args *args, struct phi_str name,
                         struct phi_jinja_value *out)
{
    for (size_t i = 0; i < args->n_keywords; i++) {
        if (!phi_str_eq(args->keywords[i].name, name))
            continue;
        *out = args->keywords[i].value;
        args->n_keywords--;
        memmove(&args->keywords[i], &args->keywords[i + 1],
                (args->n_keywords - i) * sizeof args->keywords[0]);
        return true;
    }
    return false;
}

static enum phi_status bind_params(struct phi_jinja_run *r, const struct phi_jinja_node *node,
                                   struct phi_jinja_scope *scope, struct phi_jinja_args *args,
                                   size_t *n_taken)
{
    struct phi_jinja_value missing = {.type = JINJA_MISSING};
    for (const struct phi_jinja_node *q = node->more; q; q = q->next) {
        struct phi_jinja_value value = missing;
        if (*n_taken < args->n_positional)
            value = args->positional[(*n_taken)++];
        else
            take_keyword(args, q->name, &value);
        PHI_TRY(phi_jinja_assign(r, scope, q->name, value));
    }
    for (const struct phi_jinja_node *q = node->more; q; q = q->next) {
        struct phi_jinja_value value = missing;
        for (const struct phi_jinja_binding *b = scope->bindings; b; b = b->next)
            if (b->name.data == q->name.data)
                value = b->value;
        if (phi_jinja_given(value))
            continue;
        if (q->a)
            PHI_TRY(phi_jinja_eval(r, q->a, scope, &value));
        else
            PHI_TRY(phi_jinja_undefined_make(r, &value, "parameter '%.*s' was not provided",
                                             JINJA_SHOWN(q->name)));
        PHI_TRY(phi_jinja_assign(r, scope, q->name, value));
    }
    return PHI_OK;
}

/* What is left of the arguments goes to caller, kwargs and varargs, or is too much. */
static enum phi_status bind_rest(struct phi_jinja_run *r, const struct phi_jinja_node *node,
                                 struct phi_jinja_scope *scope, struct phi_jinja_args *args,
                                 size_t n_taken)
{
    struct phi_jinja_value v;
    int n_params = 0;
    for (const struct phi_jinja_node *q = node->more; q; q = q->next)
        n_params++;
    if (node->uses.caller) {
        if (!take_keyword(args, PHI_STR("caller"), &v) || v.type == JINJA_NONE)
            PHI_TRY(phi_jinja_undefined_make(r, &v, "No caller defined"));
        PHI_TRY(phi_jinja_assign(r, scope, r->special->caller, v));
    }
    if (node->uses.kwargs) {
        PHI_TRY(phi_jinja_dict_make(r, JINJA_DICT, &v));
        for (size_t i = 0; i < args->n_keywords; i++)
            PHI_TRY(phi_jinja_dict_set(r, v.dict, phi_jinja_str(args->keywords[i].name),
                                       args->keywords[i].value));
        PHI_TRY(phi_jinja_assign(r, scope, r->special->kwargs, v));
    } else if (args->n_keywords) {
        return phi_jinja_error(r, "macro '%.*s' takes no keyword argument '%.*s'",
                               JINJA_SHOWN(node->name), JINJA_SHOWN(args->keywords[0].name));
    }
    if (node->uses.varargs) {
        PHI_TRY(phi_jinja_list_make(r, JINJA_TUPLE, 0, &v));
        for (size_t i = n_taken; i < args->n_positional; i++)
            PHI_TRY(phi_jinja_list_append(r, v.list, args->positional[i]));
        PHI_TRY(phi_jinja_assign(r, scope, r->special->varargs, v));
    } else if (args->n_positional > n_taken) {
        return phi_jinja_error(r, "macro '%.*s' takes not more than %d argument(s)",
                               JINJA_SHOWN(node->name), n_params);
    }
    return PHI_OK;
}

enum phi_status phi_jinja_call_macro(struct phi_jinja_run *r, const struct phi_jinja_macro *macro,
                                     struct phi_jinja_args *args, struct phi_jinja_value *out)
{
    struct phi_jinja_scope *scope;
    enum flow flow = FLOW_NEXT;
    size_t n_taken = 0;
    PHI_TRY(phi_jinja_enter(r));
    PHI_TRY(open_scope(r, macro->scope, macro->node->unset, &scope));
    PHI_TRY(bind_params(r, macro->node, scope, args, &n_taken));
    PHI_TRY(bind_rest(r, macro->node, scope, args, n_taken));
    PHI_TRY(capture(r, macro->node->items, scope, &flow, out));
    phi_jinja_scope_release(r, scope);
    phi_jinja_leave(r);
    return PHI_OK;
}

static enum phi_status make_macro(struct phi_jinja_run *r, const struct phi_jinja_node *node,
                                  struct phi_jinja_scope *scope, struct phi_jinja_value *out)
{
    struct phi_jinja_macro *macro = phi_arena_alloc(&r->arena, 1, sizeof *macro);
    if (!macro)
        return phi_jinja_no_memory(r);
    phi_jinja_scope_capture(scope);
    *macro = (struct phi_jinja_macro){node, scope};
    *out = (struct phi_jinja_value){.type = JINJA_MACRO, .macro = macro};
    return PHI_OK;
}

static enum phi_status exec_macro(struct phi_jinja_run *r, const struct phi_jinja_node *node,
                                  struct phi_jinja_scope *scope)
{
    struct phi_jinja_value macro;
    PHI_TRY(make_macro(r, node, scope, &macro));
    return phi_jinja_assign(r, scope, node->name, macro);
}

/* {% call f(...) %}: the body is a macro that f receives as `caller`. */
static enum phi_status exec_call_block(struct phi_jinja_run *r, const struct phi_jinja_node *node,
                                       struct phi_jinja_scope *scope)
{
    struct phi_jinja_value callee, caller, text;
    struct phi_jinja_args args;
    PHI_TRY(make_macro(r, node, scope, &caller));
    PHI_TRY(phi_jinja_eval(r, node->a->a, scope, &callee));
    PHI_TRY(phi_jinja_eval_args(r, node->a, scope, &args));
    r->line = node->line;
    struct phi_jinja_keyword *keywords =
        phi_arena_alloc(&r->arena, args.n_keywords + 1, sizeof *keywords);
    if (!keywords)
        return phi_jinja_no_memory(r);
    for (size_t i = 0; i < args.n_keywords; i++) {
        if (phi_str_eq_c(args.keywords[i].name, "caller"))
            return phi_jinja_error(r, "the keyword argument 'caller' is given twice");
        keywords[i] = args.keywords[i];
    }
    keywords[args.n_keywords] = (struct phi_jinja_keyword){PHI_STR("caller"), caller};
    args.keywords = keywords;
    args.n_keywords++;
    PHI_TRY(phi_jinja_call(r, callee, &args, &text));
    return print_piece(r, text);
}

/* The text of the assistant: a macro called on the spot, so what it sets stays inside. */
static enum phi_status exec_generation(struct phi_jinja_run *r, const struct phi_jinja_node *node,
                                       struct phi_jinja_scope *scope)
{
    struct phi_jinja_macro macro = {node, scope};
    struct phi_jinja_args args = {0};
    struct phi_jinja_value text;
    PHI_TRY(phi_jinja_call_macro(r, &macro, &args, &text));
    return print(r, text);
}

void phi_jinja_append_macro_repr(struct phi_buf *out, const struct phi_jinja_macro *macro)
{
    if (macro->node->name.data)
        phi_buf_printf(out, "<Macro '%.*s'>", JINJA_SHOWN(macro->node->name));
    else
        phi_buf_append_c(out, "<Macro anonymous>");
}

/* ---- bodies ---- */

static enum phi_status exec_if(struct phi_jinja_run *r, const struct phi_jinja_node *node,
                               struct phi_jinja_scope *scope, enum flow *flow)
{
    struct phi_jinja_value test;
    PHI_TRY(phi_jinja_eval(r, node->a, scope, &test));
    return exec_body(r, phi_jinja_truth(test) ? node->items : node->more, scope, flow);
}

static enum phi_status exec_print(struct phi_jinja_run *r, const struct phi_jinja_node *node,
                                  struct phi_jinja_scope *scope)
{
    struct phi_jinja_value v;
    PHI_TRY(phi_jinja_eval(r, node->a, scope, &v));
    r->line = node->line;
    return print(r, v);
}

static enum phi_status exec_node(struct phi_jinja_run *r, const struct phi_jinja_node *node,
                                 struct phi_jinja_scope *scope, enum flow *flow)
{
    switch (node->kind) {
    case NODE_TEXT:
        return print(r, node->value);
    case NODE_PRINT:
        return exec_print(r, node, scope);
    case NODE_IF:
        return exec_if(r, node, scope, flow);
    case NODE_FOR:
        return exec_for_node(r, node, scope, flow);
    case NODE_SET:
        return exec_set(r, node, scope);
    case NODE_SET_BLOCK:
        return exec_set_block(r, node, scope, flow);
    case NODE_MACRO:
        return exec_macro(r, node, scope);
    case NODE_CALL_BLOCK:
        return exec_call_block(r, node, scope);
    case NODE_FILTER_BLOCK:
        return exec_filter_block(r, node, scope, flow);
    case NODE_GENERATION:
        return exec_generation(r, node, scope);
    case NODE_WITH:
        return exec_with(r, node, scope, flow);
    case NODE_BREAK:
        *flow = FLOW_BREAK;
        return PHI_OK;
    case NODE_CONTINUE:
        *flow = FLOW_CONTINUE;
        return PHI_OK;
    default:
        return phi_jinja_fail(r, PHI_ERR_INTERNAL, "an expression where a statement should be");
    }
}

static enum phi_status exec_body(struct phi_jinja_run *r, const struct phi_jinja_node *node,
                                 struct phi_jinja_scope *scope, enum flow *flow)
{
    PHI_TRY(phi_jinja_enter(r));
    for (; node && *flow == FLOW_NEXT; node = node->next) {
        r->line = node->line;
        PHI_TRY(phi_jinja_charge(r, 1));
        PHI_TRY(exec_node(r, node, scope, flow));
    }
    phi_jinja_leave(r);
    return PHI_OK;
}

enum phi_status phi_jinja_exec_template(struct phi_jinja_run *r, const struct phi_jinja *t)
{
    struct phi_jinja_scope *scope;
    enum flow flow = FLOW_NEXT;
    PHI_TRY(open_scope(r, NULL, t->unset, &scope));
    PHI_TRY(exec_body(r, t->body, scope, &flow));
    return join_pieces(r);
}
