/* parse.c: statements, and the tools of the parser. */
#include "formats/jinja/parse.h"

#include <stdarg.h>
#include <stdio.h>

enum phi_status phi_jinja_parse_fail(struct phi_jinja_parser *p, int line, const char *fmt, ...)
{
    char text[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return phi_fail(p->err, PHI_ERR_FORMAT, "%s:%d: %s", p->name, line, text);
}

enum phi_status phi_jinja_parse_enter(struct phi_jinja_parser *p)
{
    if (p->depth >= JINJA_MAX_PARSE_DEPTH)
        return phi_jinja_parse_fail(p, p->at->line, "nested more than %d levels deep",
                                    JINJA_MAX_PARSE_DEPTH);
    p->depth++;
    return PHI_OK;
}

void phi_jinja_parse_leave(struct phi_jinja_parser *p)
{
    p->depth--;
}

enum phi_status phi_jinja_new_node(struct phi_jinja_parser *p, enum phi_jinja_node_kind kind,
                                   int line, struct phi_jinja_node **out)
{
    struct phi_jinja_node *node = phi_arena_alloc(p->arena, 1, sizeof *node);
    if (!node)
        return phi_fail(p->err, PHI_ERR_MEMORY, "%s:%d: out of memory", p->name, line);
    node->kind = kind;
    node->line = line;
    *out = node;
    return PHI_OK;
}

void phi_jinja_append_node(struct phi_jinja_node_list *list, struct phi_jinja_node *node)
{
    if (list->last)
        list->last->next = node;
    else
        list->first = node;
    list->last = node;
}

/* ---- names ---- */

static size_t name_slot(const struct phi_jinja_parser *p, struct phi_str name)
{
    size_t h = 5381;
    for (size_t i = 0; i < name.n; i++)
        h = h * 33 ^ (unsigned char)name.data[i];
    size_t at = h & (p->names_capacity - 1);
    while (p->names[at].data && !phi_str_eq(p->names[at], name))
        at = (at + 1) & (p->names_capacity - 1);
    return at;
}

enum phi_status phi_jinja_intern(struct phi_jinja_parser *p, struct phi_str name,
                                 struct phi_str *out)
{
    if (p->n_names * 2 >= p->names_capacity) {
        struct phi_jinja_parser old = *p;
        p->names_capacity = old.names_capacity ? old.names_capacity * 2 : 64;
        p->names = phi_arena_alloc(p->arena, p->names_capacity, sizeof *p->names);
        if (!p->names) {
            p->names = old.names;
            p->names_capacity = old.names_capacity;
            return phi_fail(p->err, PHI_ERR_MEMORY, "%s: out of memory", p->name);
        }
        for (size_t i = 0; i < old.names_capacity; i++)
            if (old.names[i].data)
                p->names[name_slot(p, old.names[i])] = old.names[i];
    }
    size_t at = name_slot(p, name);
    if (!p->names[at].data) {
        p->names[at] = name;
        p->n_names++;
    }
    *out = p->names[at];
    return PHI_OK;
}

/* ---- tokens ---- */

void phi_jinja_next_token(struct phi_jinja_parser *p)
{
    if (p->at->kind != TOKEN_EOF)
        p->at++;
}

bool phi_jinja_at_name(const struct phi_jinja_parser *p, const char *name)
{
    return p->at->kind == TOKEN_NAME && phi_str_eq_c(p->at->text, name);
}

bool phi_jinja_skip(struct phi_jinja_parser *p, enum phi_jinja_token_kind kind)
{
    bool there = p->at->kind == kind;
    if (there)
        phi_jinja_next_token(p);
    return there;
}

bool phi_jinja_skip_name(struct phi_jinja_parser *p, const char *name)
{
    bool there = phi_jinja_at_name(p, name);
    if (there)
        phi_jinja_next_token(p);
    return there;
}

static enum phi_status unexpected(struct phi_jinja_parser *p, const char *wanted)
{
    struct phi_str shown = phi_jinja_token_shown(p->at);
    return phi_jinja_parse_fail(p, p->at->line, "expected %s, got '%.*s'", wanted,
                                JINJA_SHOWN(shown));
}

enum phi_status phi_jinja_expect(struct phi_jinja_parser *p, enum phi_jinja_token_kind kind,
                                 const char *what)
{
    return phi_jinja_skip(p, kind) ? PHI_OK : unexpected(p, what);
}

enum phi_status phi_jinja_expect_name(struct phi_jinja_parser *p, const char *name)
{
    return phi_jinja_skip_name(p, name) ? PHI_OK : unexpected(p, name);
}

enum phi_status phi_jinja_take_name(struct phi_jinja_parser *p, struct phi_str *out)
{
    if (p->at->kind != TOKEN_NAME)
        return unexpected(p, "a name");
    PHI_TRY(phi_jinja_intern(p, p->at->text, out));
    phi_jinja_next_token(p);
    return PHI_OK;
}

static enum phi_status expect_block_end(struct phi_jinja_parser *p)
{
    return phi_jinja_expect(p, TOKEN_BLOCK_END, "end of statement block");
}

/* ---- bodies ---- */

/* The names that can end a body, e.g. {"elif", "else", "endif"}; NULL-terminated, NULL: the
 * template. */
typedef const char *const *end_names;

static enum phi_status parse_statement(struct phi_jinja_parser *p, struct phi_jinja_node **out);

static bool at_end_name(const struct phi_jinja_parser *p, end_names ends)
{
    for (; ends && *ends; ends++)
        if (phi_jinja_at_name(p, *ends))
            return true;
    return false;
}

/* Text, prints and statements up to the tag that ends the body; the cursor stays on the tag's name.
 */
static enum phi_status parse_nodes(struct phi_jinja_parser *p, end_names ends,
                                   const struct phi_jinja_node **out)
{
    struct phi_jinja_node_list body = {0};
    struct phi_jinja_node *node;
    for (;;) {
        int line = p->at->line;
        if (phi_jinja_at(p, TOKEN_DATA)) {
            PHI_TRY(phi_jinja_new_node(p, NODE_TEXT, line, &node));
            node->value = phi_jinja_str(p->at->text);
            phi_jinja_next_token(p);
        } else if (phi_jinja_skip(p, TOKEN_VARIABLE_BEGIN)) {
            struct phi_jinja_node *value;
            PHI_TRY(phi_jinja_new_node(p, NODE_PRINT, line, &node));
            PHI_TRY(phi_jinja_parse_tuple(p, (struct phi_jinja_tuple_options){0}, &value));
            node->a = value;
            PHI_TRY(phi_jinja_expect(p, TOKEN_VARIABLE_END, "end of print statement"));
        } else if (phi_jinja_skip(p, TOKEN_BLOCK_BEGIN)) {
            if (at_end_name(p, ends))
                break;
            PHI_TRY(parse_statement(p, &node));
            PHI_TRY(expect_block_end(p));
        } else {
            break;
        }
        phi_jinja_append_node(&body, node);
    }
    *out = body.first;
    return PHI_OK;
}

/* The body of the statement whose tag ends here. */
static enum phi_status parse_body(struct phi_jinja_parser *p, end_names ends,
                                  const struct phi_jinja_node **out)
{
    phi_jinja_skip(p, TOKEN_COLON); /* as in Python */
    PHI_TRY(expect_block_end(p));
    PHI_TRY(phi_jinja_parse_enter(p));
    PHI_TRY(parse_nodes(p, ends, out));
    phi_jinja_parse_leave(p);
    if (phi_jinja_at(p, TOKEN_EOF))
        return phi_jinja_parse_fail(p, p->at->line, "Unexpected end of template: '%s' is missing",
                                    ends[0]);
    return PHI_OK;
}

/* The same where only one name can end it, which is taken. */
static enum phi_status parse_body_to(struct phi_jinja_parser *p, const char *end,
                                     const struct phi_jinja_node **out)
{
    const char *const ends[] = {end, NULL};
    PHI_TRY(parse_body(p, ends, out));
    phi_jinja_next_token(p);
    return PHI_OK;
}

/* ---- statements ---- */

static bool can_assign(const struct phi_jinja_node *target)
{
    switch (target->kind) {
    case NODE_NAME:
    case NODE_NAMESPACE_REF:
        return true;
    case NODE_TUPLE:
        for (const struct phi_jinja_node *item = target->items; item; item = item->next)
            if (!can_assign(item))
                return false;
        return true;
    default:
        return false;
    }
}

static enum phi_status parse_target(struct phi_jinja_parser *p, bool namespace_ref, const char *end,
                                    struct phi_jinja_node **out)
{
    struct phi_jinja_tuple_options options = {
        .targets = true, .namespace_ref = namespace_ref, .end = end};
    int line = p->at->line;
    PHI_TRY(phi_jinja_parse_tuple(p, options, out));
    if (!can_assign(*out))
        return phi_jinja_parse_fail(p, line, "can't assign to this expression");
    return PHI_OK;
}

static enum phi_status parse_for(struct phi_jinja_parser *p, struct phi_jinja_node *node)
{
    static const char *const ends[] = {"endfor", "else", NULL};
    struct phi_jinja_tuple_options over = {.no_condition = true, .end = "recursive"};
    struct phi_jinja_node *target, *iterable, *test;
    PHI_TRY(parse_target(p, false, "in", &target));
    PHI_TRY(phi_jinja_expect_name(p, "in"));
    PHI_TRY(phi_jinja_parse_tuple(p, over, &iterable));
    node->a = target;
    node->b = iterable;
    if (phi_jinja_skip_name(p, "if")) {
        PHI_TRY(phi_jinja_parse_expression(p, &test));
        node->c = test;
    }
    node->recursive = phi_jinja_skip_name(p, "recursive");
    PHI_TRY(parse_body(p, ends, &node->items));
    if (phi_jinja_skip_name(p, "endfor"))
        return PHI_OK;
    phi_jinja_next_token(p); /* else */
    return parse_body_to(p, "endfor", &node->more);
}

/* An elif is an if in the else branch. */
static enum phi_status parse_if(struct phi_jinja_parser *p, struct phi_jinja_node *node)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    for (;;) {
        struct phi_jinja_node *test, *elif;
        PHI_TRY(phi_jinja_parse_tuple(p, (struct phi_jinja_tuple_options){.no_condition = true},
                                      &test));
        node->a = test;
        PHI_TRY(parse_body(p, ends, &node->items));
        int line = p->at->line;
        if (phi_jinja_skip_name(p, "endif"))
            return PHI_OK;
        if (phi_jinja_skip_name(p, "else"))
            return parse_body_to(p, "endif", &node->more);
        phi_jinja_next_token(p); /* elif */
        PHI_TRY(phi_jinja_new_node(p, NODE_IF, line, &elif));
        node->more = elif;
        node = elif;
    }
}

static enum phi_status parse_set(struct phi_jinja_parser *p, struct phi_jinja_node *node)
{
    struct phi_jinja_node *target, *value;
    PHI_TRY(parse_target(p, true, NULL, &target));
    node->a = target;
    if (phi_jinja_skip(p, TOKEN_ASSIGN)) {
        PHI_TRY(phi_jinja_parse_tuple(p, (struct phi_jinja_tuple_options){0}, &value));
        node->b = value;
        return PHI_OK;
    }
    node->kind = NODE_SET_BLOCK;
    PHI_TRY(phi_jinja_parse_filters(p, NULL, false, &value));
    node->b = value;
    return parse_body_to(p, "endset", &node->items);
}

/* "(a, b=1)" into node->more */
static enum phi_status parse_signature(struct phi_jinja_parser *p, struct phi_jinja_node *node)
{
    struct phi_jinja_node_list params = {0};
    bool has_default = false;
    PHI_TRY(phi_jinja_expect(p, TOKEN_LPAREN, "("));
    while (!phi_jinja_at(p, TOKEN_RPAREN)) {
        struct phi_jinja_node *param, *value;
        if (params.first)
            PHI_TRY(phi_jinja_expect(p, TOKEN_COMMA, ","));
        PHI_TRY(phi_jinja_new_node(p, NODE_PARAM, p->at->line, &param));
        PHI_TRY(phi_jinja_take_name(p, &param->name));
        if (phi_jinja_skip(p, TOKEN_ASSIGN)) {
            PHI_TRY(phi_jinja_parse_expression(p, &value));
            param->a = value;
            has_default = true;
        } else if (has_default) {
            return phi_jinja_parse_fail(p, param->line,
                                        "non-default argument follows default argument");
        }
        for (struct phi_jinja_node *q = params.first; q; q = (struct phi_jinja_node *)q->next)
            if (q->name.data == param->name.data)
                return phi_jinja_parse_fail(p, param->line, "duplicate argument '%.*s'",
                                            JINJA_SHOWN(q->name));
        phi_jinja_append_node(&params, param);
    }
    node->more = params.first;
    return phi_jinja_expect(p, TOKEN_RPAREN, ")");
}

/* Which of caller, kwargs and varargs the body reads decides what a macro accepts. */
static enum phi_status parse_macro_body(struct phi_jinja_parser *p, struct phi_jinja_node *macro,
                                        const char *end)
{
    struct phi_jinja_special_names outside = p->used;
    p->used = (struct phi_jinja_special_names){0};
    PHI_TRY(parse_body_to(p, end, &macro->items));
    macro->uses = p->used;
    p->used.caller |= outside.caller;
    p->used.kwargs |= outside.kwargs;
    p->used.varargs |= outside.varargs;
    for (const struct phi_jinja_node *q = macro->more; q; q = q->next) {
        if (phi_str_eq_c(q->name, "caller") && macro->uses.caller && !q->a)
            return phi_jinja_parse_fail(
                p, macro->line, "the argument 'caller' must be omitted or be given a default");
        macro->uses.caller &= !phi_str_eq_c(q->name, "caller");
        macro->uses.kwargs &= !phi_str_eq_c(q->name, "kwargs");
        macro->uses.varargs &= !phi_str_eq_c(q->name, "varargs");
    }
    return PHI_OK;
}

static enum phi_status parse_macro(struct phi_jinja_parser *p, struct phi_jinja_node *node)
{
    PHI_TRY(phi_jinja_take_name(p, &node->name));
    PHI_TRY(parse_signature(p, node));
    return parse_macro_body(p, node, "endmacro");
}

static enum phi_status parse_call_block(struct phi_jinja_parser *p, struct phi_jinja_node *node)
{
    struct phi_jinja_node *call;
    if (phi_jinja_at(p, TOKEN_LPAREN))
        PHI_TRY(parse_signature(p, node));
    PHI_TRY(phi_jinja_parse_expression(p, &call));
    if (call->kind != NODE_CALL)
        return phi_jinja_parse_fail(p, node->line, "expected call");
    node->a = call;
    return parse_macro_body(p, node, "endcall");
}

static enum phi_status parse_filter_block(struct phi_jinja_parser *p, struct phi_jinja_node *node)
{
    struct phi_jinja_node *filters;
    PHI_TRY(phi_jinja_parse_filters(p, NULL, true, &filters));
    node->a = filters;
    return parse_body_to(p, "endfilter", &node->items);
}

static enum phi_status parse_generation(struct phi_jinja_parser *p, struct phi_jinja_node *node)
{
    return parse_body_to(p, "endgeneration", &node->items);
}

static enum phi_status parse_with(struct phi_jinja_parser *p, struct phi_jinja_node *node)
{
    struct phi_jinja_node_list sets = {0};
    while (!phi_jinja_at(p, TOKEN_BLOCK_END)) {
        struct phi_jinja_node *set, *target, *value;
        if (sets.first)
            PHI_TRY(phi_jinja_expect(p, TOKEN_COMMA, ","));
        PHI_TRY(phi_jinja_new_node(p, NODE_SET, p->at->line, &set));
        PHI_TRY(parse_target(p, false, NULL, &target));
        PHI_TRY(phi_jinja_expect(p, TOKEN_ASSIGN, "="));
        PHI_TRY(phi_jinja_parse_expression(p, &value));
        set->a = target;
        set->b = value;
        phi_jinja_append_node(&sets, set);
    }
    node->more = sets.first;
    return parse_body_to(p, "endwith", &node->items);
}

static enum phi_status parse_nothing(struct phi_jinja_parser *p, struct phi_jinja_node *node)
{
    (void)p;
    (void)node;
    return PHI_OK;
}

static enum phi_status unknown_statement(struct phi_jinja_parser *p)
{
    static const char *const known[] = {"include", "import",     "from",  "extends",
                                        "block",   "autoescape", "print", NULL};
    struct phi_str name = p->at->text;
    if (at_end_name(p, known))
        return phi_fail(p->err, PHI_ERR_UNSUPPORTED,
                        "%s:%d: the statement '%.*s' is not supported in chat templates", p->name,
                        p->at->line, JINJA_SHOWN(name));
    return phi_jinja_parse_fail(p, p->at->line, "Encountered unknown tag '%.*s'",
                                JINJA_SHOWN(name));
}

static enum phi_status parse_statement(struct phi_jinja_parser *p, struct phi_jinja_node **out)
{
    static const struct {
        const char *name;
        enum phi_jinja_node_kind kind;
        enum phi_status (*parse)(struct phi_jinja_parser *p, struct phi_jinja_node *node);
    } statements[] = {
        {"for", NODE_FOR, parse_for},
        {"if", NODE_IF, parse_if},
        {"set", NODE_SET, parse_set},
        {"macro", NODE_MACRO, parse_macro},
        {"call", NODE_CALL_BLOCK, parse_call_block},
        {"filter", NODE_FILTER_BLOCK, parse_filter_block},
        {"generation", NODE_GENERATION, parse_generation},
        {"with", NODE_WITH, parse_with},
        {"break", NODE_BREAK, parse_nothing},
        {"continue", NODE_CONTINUE, parse_nothing},
    };
    if (!phi_jinja_at(p, TOKEN_NAME))
        return phi_jinja_parse_fail(p, p->at->line, "tag name expected");
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++) {
        if (!phi_jinja_at_name(p, statements[i].name))
            continue;
        PHI_TRY(phi_jinja_new_node(p, statements[i].kind, p->at->line, out));
        phi_jinja_next_token(p);
        return statements[i].parse(p, *out);
    }
    return unknown_statement(p);
}

enum phi_status phi_jinja_parse(struct phi_jinja *t, const struct phi_jinja_tokens *tokens,
                                struct phi_error *err)
{
    struct phi_jinja_parser p = {
        .arena = &t->arena, .name = t->name, .err = err, .at = tokens->items};
    PHI_TRY(phi_jinja_intern(&p, PHI_STR("loop"), &t->special.loop));
    PHI_TRY(phi_jinja_intern(&p, PHI_STR("caller"), &t->special.caller));
    PHI_TRY(phi_jinja_intern(&p, PHI_STR("kwargs"), &t->special.kwargs));
    PHI_TRY(phi_jinja_intern(&p, PHI_STR("varargs"), &t->special.varargs));
    const struct phi_jinja_node *body;
    PHI_TRY(parse_nodes(&p, NULL, &body));
    t->body = (struct phi_jinja_node *)body;
    t->n_names = p.n_names;
    if (!phi_jinja_at(&p, TOKEN_EOF))
        return unexpected(&p, "text, a tag or the end");
    return PHI_OK;
}
