/* check.c: the checks that Jinja makes when it compiles a template (ast.h), and the
 * walk over a tree. */
#include "formats/jinja/ast.h"

/* Where a node stands. `soft`: inside a branch of an if or a ternary, where an unknown filter is an
 * error only once it is reached; a loop or macro inside the branch is hard again, as in Jinja. */
struct place {
    bool soft;
    bool in_loop;   /* break has something to leave: false again in a macro */
    bool below_for; /* `loop` cannot be assigned: true in a macro too */
    int depth;
};

struct checker {
    const char *name;
    struct phi_error *err;
};

enum { MAX_TREE_DEPTH = 1000 };

static enum phi_status check(const struct checker *c, const struct phi_jinja_node *node,
                             struct place place);

static enum phi_status check_list(const struct checker *c, const struct phi_jinja_node *node,
                                  struct place place)
{
    for (; node; node = node->next)
        PHI_TRY(check(c, node, place));
    return PHI_OK;
}

static enum phi_status check_children(const struct checker *c, const struct phi_jinja_node *node,
                                      struct place place)
{
    place.depth++;
    PHI_TRY(check_list(c, node->a, place));
    PHI_TRY(check_list(c, node->b, place));
    PHI_TRY(check_list(c, node->c, place));
    PHI_TRY(check_list(c, node->items, place));
    return check_list(c, node->more, place);
}

static enum phi_status fail(const struct checker *c, const struct phi_jinja_node *node,
                            const char *what)
{
    return phi_fail(c->err, PHI_ERR_FORMAT, "%s:%d: %s", c->name, node->line, what);
}

static bool assigns_loop(const struct phi_jinja_node *target)
{
    if (target->kind == NODE_NAME)
        return phi_str_eq_c(target->name, "loop");
    for (const struct phi_jinja_node *item = target->items; item; item = item->next)
        if (assigns_loop(item))
            return true;
    return false;
}

static enum phi_status check_for(const struct checker *c, const struct phi_jinja_node *node,
                                 struct place place)
{
    struct place inside = {.in_loop = true, .below_for = true, .depth = place.depth + 1};
    struct place otherwise = inside;
    otherwise.in_loop = place.in_loop && !node->recursive;
    place.depth++;
    PHI_TRY(check(c, node->b, place));
    if (node->c)
        PHI_TRY(check(c, node->c, inside));
    PHI_TRY(check_list(c, node->items, inside));
    PHI_TRY(check_list(c, node->more, otherwise));
    if (assigns_loop(node->a))
        return fail(c, node, "Can't assign to special loop variable in for-loop target");
    return PHI_OK;
}

static enum phi_status check(const struct checker *c, const struct phi_jinja_node *node,
                             struct place place)
{
    struct place function = {.below_for = place.below_for, .depth = place.depth};
    struct place inner = place;
    inner.soft = false;
    if (place.depth > MAX_TREE_DEPTH)
        return fail(c, node, "nested too deeply");
    switch (node->kind) {
    case NODE_FILTER:
    case NODE_TEST:
        if (!node->builtin && !place.soft)
            return phi_fail(c->err, PHI_ERR_FORMAT, "%s:%d: No %s named '%.*s'", c->name,
                            node->line, node->kind == NODE_TEST ? "test" : "filter",
                            JINJA_SHOWN(node->name));
        return check_children(c, node, place);
    case NODE_IF:
    case NODE_COND:
        place.soft = true;
        return check_children(c, node, place);
    case NODE_FOR:
        return check_for(c, node, place);
    case NODE_MACRO:
    case NODE_CALL_BLOCK:
    case NODE_GENERATION:
        if (node->a) { /* the call itself stands outside of the block */
            struct place outside = place;
            outside.depth++;
            PHI_TRY(check(c, node->a, outside));
        }
        function.depth++;
        PHI_TRY(check_list(c, node->more, function));
        return check_list(c, node->items, function);
    case NODE_SET:
    case NODE_SET_BLOCK:
        if (place.below_for && assigns_loop(node->a))
            return fail(c, node, "Can't assign to special loop variable in for-loop target");
        return check_children(c, node, node->kind == NODE_SET ? place : inner);
    case NODE_FILTER_BLOCK:
        return check_children(c, node, inner);
    case NODE_WITH: /* its assignments are parameters of the block */
        for (const struct phi_jinja_node *set = node->more; set; set = set->next)
            PHI_TRY(check_children(c, set, place));
        inner.depth++;
        return check_list(c, node->items, inner);
    case NODE_BREAK:
    case NODE_CONTINUE:
        return place.in_loop ? PHI_OK : fail(c, node, "break or continue outside of a loop");
    default:
        return check_children(c, node, place);
    }
}

enum phi_status phi_jinja_check(const struct phi_jinja_node *body, const char *name,
                                struct phi_error *err)
{
    struct checker c = {name, err};
    return check_list(&c, body, (struct place){0});
}

void phi_jinja_walk(const struct phi_jinja_node *node,
                    void (*visit)(const struct phi_jinja_node *, void *), void *context)
{
    for (; node; node = node->next) {
        visit(node, context);
        phi_jinja_walk(node->a, visit, context);
        phi_jinja_walk(node->b, visit, context);
        phi_jinja_walk(node->c, visit, context);
        phi_jinja_walk(node->items, visit, context);
        phi_jinja_walk(node->more, visit, context);
    }
}
