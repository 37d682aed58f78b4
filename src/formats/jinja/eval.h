/* eval.h: running a parsed template. Expressions give values; statements append to run->out.
 */
#ifndef PHI_FORMATS_JINJA_EVAL_H
#define PHI_FORMATS_JINJA_EVAL_H

#include "formats/jinja/ast.h"
#include "formats/jinja/builtins.h"

struct phi_jinja_binding {
    struct phi_str name; /* interned by the parser: compared by pointer */
    struct phi_jinja_value value;
    struct phi_jinja_binding *next;
};

/* Variables set in one place: the template, a turn of a loop, a macro, a block. Reading goes
 * outward through `parent`; setting stays in the scope. */
struct phi_jinja_scope {
    struct phi_jinja_scope *parent; /* in the free list: the next one */
    struct phi_jinja_binding *bindings;
    bool captured; /* a macro or loop that may outlive it refers to it */
};

struct phi_jinja_macro {
    const struct phi_jinja_node *node; /* NODE_MACRO, NODE_CALL_BLOCK or NODE_GENERATION */
    struct phi_jinja_scope *scope;     /* where it was defined: what its body sees */
};

/* The `loop` variable and the iteration itself: items are taken one ahead of the body only when the
 * template asks for what comes next. */
struct phi_jinja_loop {
    const struct phi_jinja_node *node;
    struct phi_jinja_scope *scope; /* around the loop */
    struct phi_jinja_iter iter;
    int64_t index0;
    int64_t length; /* -1 until asked for */
    bool filtered;  /* iter gives what has passed the filter already */
    int64_t depth0;
    struct phi_jinja_value before, current;
    struct phi_jinja_value after; /* JINJA_MISSING unless peeked */
    bool at_end;                  /* peeked, and there was nothing */
    struct phi_jinja_value last_changed;
};

enum phi_status phi_jinja_eval(struct phi_jinja_run *r, const struct phi_jinja_node *node,
                               struct phi_jinja_scope *scope, struct phi_jinja_value *out);

/* Arguments of a call, filter or test node. */
enum phi_status phi_jinja_eval_args(struct phi_jinja_run *r, const struct phi_jinja_node *node,
                                    struct phi_jinja_scope *scope, struct phi_jinja_args *out);

/* callee(args) */
enum phi_status phi_jinja_call(struct phi_jinja_run *r, struct phi_jinja_value callee,
                               struct phi_jinja_args *args, struct phi_jinja_value *out);

/* object.name and object[key] by Jinja's rules: attribute first, or item first. What is not there
 * is undefined, not an error. */
enum phi_status phi_jinja_get_attr(struct phi_jinja_run *r, struct phi_jinja_value object,
                                   struct phi_str name, struct phi_jinja_value *out);
enum phi_status phi_jinja_get_item(struct phi_jinja_run *r, struct phi_jinja_value object,
                                   struct phi_jinja_value key, struct phi_jinja_value *out);
/* Only what belongs to the object itself: no items of dicts. */
enum phi_status phi_jinja_own_attr(struct phi_jinja_run *r, struct phi_jinja_value object,
                                   struct phi_str name, struct phi_jinja_value *out, bool *found);
/* The undefined value of a member that `object` lacks; its failure names both. */
enum phi_status phi_jinja_undefined_member(struct phi_jinja_run *r, struct phi_jinja_value object,
                                           struct phi_jinja_value key, struct phi_jinja_value *out);
/* What filters call an attribute: "a.b.0" follows items and attributes, an integer is an index,
 * none or missing is the object itself. `fallback` (unless none) replaces what is undefined on the
 * way. */
enum phi_status phi_jinja_get_path(struct phi_jinja_run *r, struct phi_jinja_value object,
                                   struct phi_jinja_value path, struct phi_jinja_value fallback,
                                   struct phi_jinja_value *out);
/* object[start:stop:step]; none or missing where not given */
enum phi_status phi_jinja_slice(struct phi_jinja_run *r, struct phi_jinja_value object,
                                const struct phi_jinja_value bounds[3],
                                struct phi_jinja_value *out);

enum phi_status phi_jinja_binary(struct phi_jinja_run *r, enum phi_jinja_token_kind op,
                                 struct phi_jinja_value a, struct phi_jinja_value b,
                                 struct phi_jinja_value *out);
enum phi_status phi_jinja_negate(struct phi_jinja_run *r, struct phi_jinja_value v, bool minus,
                                 struct phi_jinja_value *out);

/* Variables. */
enum phi_status phi_jinja_scope_make(struct phi_jinja_run *r, struct phi_jinja_scope *parent,
                                     struct phi_jinja_scope **out);
/* Takes the memory back for the next scope, unless captured: a loop of a million turns needs one.
 */
void phi_jinja_scope_release(struct phi_jinja_run *r, struct phi_jinja_scope *scope);
void phi_jinja_scope_capture(struct phi_jinja_scope *scope);
enum phi_status phi_jinja_assign(struct phi_jinja_run *r, struct phi_jinja_scope *scope,
                                 struct phi_str name, struct phi_jinja_value value);

/* exec.c */
enum phi_status phi_jinja_exec_template(struct phi_jinja_run *r, const struct phi_jinja *t);
/* A macro's text. */
enum phi_status phi_jinja_call_macro(struct phi_jinja_run *r, const struct phi_jinja_macro *macro,
                                     struct phi_jinja_args *args, struct phi_jinja_value *out);
/* loop(iterable) of a recursive loop. */
enum phi_status phi_jinja_call_loop(struct phi_jinja_run *r, const struct phi_jinja_loop *loop,
                                    struct phi_jinja_args *args, struct phi_jinja_value *out);
/* loop.name; *found is false for what a loop does not have. */
enum phi_status phi_jinja_loop_attr(struct phi_jinja_run *r, struct phi_jinja_loop *loop,
                                    struct phi_str name, struct phi_jinja_value *out, bool *found);

void phi_jinja_append_macro_repr(struct phi_buf *out, const struct phi_jinja_macro *macro);
enum phi_status phi_jinja_append_loop_repr(struct phi_jinja_run *r, struct phi_buf *out,
                                           struct phi_jinja_loop *loop);

/* One level down: bounds the recursion of the evaluator. */
enum phi_status phi_jinja_enter(struct phi_jinja_run *r);
static inline void phi_jinja_leave(struct phi_jinja_run *r)
{
    r->depth--;
}

#endif
