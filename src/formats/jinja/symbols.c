/* symbols.c: which variables begin a scope undefined.
 *
 * Jinja decides when it compiles what a name means in a scope: a name that the scope sets, and that
 * neither it nor a scope around it has read or set before in the text, is a variable of the scope
 * from its start, undefined until set, even where the caller gave a variable of that name. (A name
 * set only in a branch of an if still begins as the caller's.) What is read in a macro, a loop's
 * body or a block does not count for the scope around it. This pass finds those names, so that
 * entering a scope can bind them.
 *
 * After jinja2/idtracking.py. The depth of the tree is bounded by phi_jinja_check. */
#include "formats/jinja/ast.h"

#include <stdio.h>

/* A name and whether the present scope or one around it knows it. */
struct symbol {
    const char *name; /* interned; NULL: a free slot */
    bool known;
};

struct mark {
    struct symbol *symbol;
    struct mark *next;
};

struct resolver {
    struct phi_jinja *t;
    struct phi_error *err;
    struct phi_arena scratch;
    struct symbol *symbols; /* open addressing; a slot for every name of the template */
    size_t capacity;
};

/* One scope. */
struct frame {
    struct phi_jinja_unset **unset; /* the list to make */
    struct mark *marks;             /* names that it made known, to be forgotten at its end */
};

static enum phi_status no_memory(const struct resolver *s)
{
    return phi_fail(s->err, PHI_ERR_MEMORY, "%s: out of memory", s->t->name);
}

static struct symbol *find(struct resolver *s, struct phi_str name)
{
    size_t h = (size_t)((uintptr_t)name.data * UINT64_C(0x9e3779b97f4a7c15) >> 24);
    size_t at = h & (s->capacity - 1);
    while (s->symbols[at].name && s->symbols[at].name != name.data)
        at = (at + 1) & (s->capacity - 1);
    s->symbols[at].name = name.data;
    return &s->symbols[at];
}

/* The scope knows the name from here on. */
static enum phi_status learn(struct resolver *s, struct frame *f, struct phi_str name)
{
    struct symbol *symbol = find(s, name);
    if (symbol->known)
        return PHI_OK;
    struct mark *mark = phi_arena_alloc(&s->scratch, 1, sizeof *mark);
    if (!mark)
        return no_memory(s);
    symbol->known = true;
    *mark = (struct mark){symbol, f->marks};
    f->marks = mark;
    return PHI_OK;
}

static enum phi_status add_unset(struct resolver *s, struct frame *f, struct phi_str name)
{
    char message[256];
    struct phi_jinja_unset *u = phi_arena_alloc(&s->t->arena, 1, sizeof *u);
    if (!u)
        return no_memory(s);
    snprintf(message, sizeof message, "'%.*s' is undefined", JINJA_SHOWN(name));
    u->name = name;
    u->undefined.message = phi_arena_dup(&s->t->arena, phi_str_from(message));
    u->next = *f->unset;
    *f->unset = u;
    return u->undefined.message.data ? PHI_OK : no_memory(s);
}

static enum phi_status set_name(struct resolver *s, struct frame *f, struct phi_str name,
                                bool in_branch)
{
    if (!in_branch && !find(s, name)->known)
        PHI_TRY(add_unset(s, f, name));
    return learn(s, f, name);
}

/* ---- what a scope's own statements read and set ---- */

static enum phi_status read_names(struct resolver *s, struct frame *f,
                                  const struct phi_jinja_node *node)
{
    for (; node; node = node->next) {
        if (node->kind == NODE_NAME)
            PHI_TRY(learn(s, f, node->name));
        PHI_TRY(read_names(s, f, node->a));
        PHI_TRY(read_names(s, f, node->b));
        PHI_TRY(read_names(s, f, node->c));
        PHI_TRY(read_names(s, f, node->items));
        PHI_TRY(read_names(s, f, node->more));
    }
    return PHI_OK;
}

static enum phi_status set_target(struct resolver *s, struct frame *f,
                                  const struct phi_jinja_node *target, bool in_branch)
{
    if (target->kind == NODE_NAME)
        return set_name(s, f, target->name, in_branch);
    if (target->kind == NODE_NAMESPACE_REF)
        return learn(s, f, target->name);
    for (const struct phi_jinja_node *item = target->items; item; item = item->next)
        PHI_TRY(set_target(s, f, item, in_branch));
    return PHI_OK;
}

static enum phi_status scan(struct resolver *s, struct frame *f, const struct phi_jinja_node *node,
                            bool in_branch)
{
    for (; node; node = node->next) {
        switch (node->kind) {
        case NODE_PRINT:
        case NODE_CALL_BLOCK:
        case NODE_FILTER_BLOCK:
            PHI_TRY(read_names(s, f, node->a));
            break;
        case NODE_FOR:
            PHI_TRY(read_names(s, f, node->b));
            break;
        case NODE_IF:
            PHI_TRY(read_names(s, f, node->a));
            PHI_TRY(scan(s, f, node->items, true));
            PHI_TRY(scan(s, f, node->more, true));
            break;
        case NODE_SET:
            PHI_TRY(read_names(s, f, node->b));
            PHI_TRY(set_target(s, f, node->a, in_branch));
            break;
        case NODE_SET_BLOCK:
            PHI_TRY(set_target(s, f, node->a, in_branch));
            break;
        case NODE_MACRO:
            PHI_TRY(set_name(s, f, node->name, in_branch));
            break;
        case NODE_WITH:
            for (const struct phi_jinja_node *set = node->more; set; set = set->next)
                PHI_TRY(read_names(s, f, set->b));
            break;
        default:
            break;
        }
    }
    return PHI_OK;
}

/* ---- scopes in scopes ---- */

static enum phi_status descend(struct resolver *s, struct phi_jinja_node *node);

/* Scans a scope's body, goes into the scopes within it, and forgets. */
static enum phi_status finish(struct resolver *s, struct frame *f,
                              const struct phi_jinja_node *body)
{
    PHI_TRY(scan(s, f, body, false));
    PHI_TRY(descend(s, (struct phi_jinja_node *)body));
    for (struct mark *mark = f->marks; mark; mark = mark->next)
        mark->symbol->known = false;
    return PHI_OK;
}

static enum phi_status enter_for(struct resolver *s, struct phi_jinja_node *node)
{
    struct frame body = {.unset = &node->unset}, otherwise = {.unset = &node->unset_else};
    PHI_TRY(learn(s, &body, s->t->special.loop));
    PHI_TRY(set_target(s, &body, node->a, true));
    PHI_TRY(finish(s, &body, node->items));
    return finish(s, &otherwise, node->more);
}

static enum phi_status enter_macro(struct resolver *s, struct phi_jinja_node *node)
{
    struct frame f = {.unset = &node->unset};
    for (const struct phi_jinja_node *q = node->more; q; q = q->next) {
        PHI_TRY(learn(s, &f, q->name));
        PHI_TRY(read_names(s, &f, q->a));
    }
    if (node->uses.caller)
        PHI_TRY(learn(s, &f, s->t->special.caller));
    if (node->uses.kwargs)
        PHI_TRY(learn(s, &f, s->t->special.kwargs));
    if (node->uses.varargs)
        PHI_TRY(learn(s, &f, s->t->special.varargs));
    return finish(s, &f, node->items);
}

static enum phi_status enter_block(struct resolver *s, struct phi_jinja_node *node)
{
    struct frame f = {.unset = &node->unset};
    if (node->kind == NODE_WITH)
        for (const struct phi_jinja_node *set = node->more; set; set = set->next)
            PHI_TRY(set_target(s, &f, set->a, true));
    return finish(s, &f, node->items);
}

static enum phi_status descend(struct resolver *s, struct phi_jinja_node *node)
{
    for (; node; node = (struct phi_jinja_node *)node->next) {
        switch (node->kind) {
        case NODE_IF:
            PHI_TRY(descend(s, (struct phi_jinja_node *)node->items));
            PHI_TRY(descend(s, (struct phi_jinja_node *)node->more));
            break;
        case NODE_FOR:
            PHI_TRY(enter_for(s, node));
            break;
        case NODE_MACRO:
        case NODE_CALL_BLOCK:
        case NODE_GENERATION:
            PHI_TRY(enter_macro(s, node));
            break;
        case NODE_SET_BLOCK:
        case NODE_FILTER_BLOCK:
        case NODE_WITH:
            PHI_TRY(enter_block(s, node));
            break;
        default:
            break;
        }
    }
    return PHI_OK;
}

enum phi_status phi_jinja_resolve(struct phi_jinja *t, struct phi_error *err)
{
    struct resolver s = {.t = t, .err = err, .capacity = 16};
    struct frame root = {.unset = &t->unset};
    while (s.capacity < t->n_names * 2)
        s.capacity *= 2;
    s.symbols = phi_arena_alloc(&s.scratch, s.capacity, sizeof *s.symbols);
    enum phi_status status = s.symbols ? finish(&s, &root, t->body) : no_memory(&s);
    phi_arena_deinit(&s.scratch);
    return status;
}
