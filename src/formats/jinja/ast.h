/* ast.h: a parsed template: a tree of nodes in one arena, never changed after parsing, so
 * that any number of threads may render it at once. */
#ifndef PHI_FORMATS_JINJA_AST_H
#define PHI_FORMATS_JINJA_AST_H

#include "formats/jinja/lex.h"
#include "formats/jinja/value.h"

/* What the fields of a node hold, by kind. Fields not listed are empty. */
enum phi_jinja_node_kind {
    /* expressions */
    NODE_CONST,   /* value */
    NODE_NAME,    /* name */
    NODE_LIST,    /* items */
    NODE_TUPLE,   /* items */
    NODE_DICT,    /* items: NODE_PAIR */
    NODE_PAIR,    /* a: key, b: value */
    NODE_NOT,     /* a */
    NODE_NEG,     /* a */
    NODE_POS,     /* a */
    NODE_AND,     /* a, b */
    NODE_OR,      /* a, b */
    NODE_BINARY,  /* op, a, b */
    NODE_CONCAT,  /* items (~) */
    NODE_COMPARE, /* a, items: NODE_OPERAND */
    NODE_OPERAND, /* op (TOKEN_NAME: in), negated, a */
    NODE_COND,    /* a if b else c (c may be NULL) */
    NODE_ATTR,    /* a.name */
    NODE_ITEM,    /* a[b]; b may be a NODE_SLICE */
    NODE_SLICE,   /* [a:b:c], each may be NULL */
    NODE_CALL,    /* a(items, more: NODE_KEYWORD, *b, **c) */
    NODE_KEYWORD, /* name = a */
    NODE_FILTER,  /* a | name(items, more, *b, **c); a is NULL where a block's text goes in */
    NODE_TEST,    /* a is name(items, more, *b, **c) */
    /* statements */
    NODE_TEXT,          /* value: a string */
    NODE_PRINT,         /* a */
    NODE_FOR,           /* for a in b if c: items; else: more; `recursive` */
    NODE_IF,            /* if a: items; else: more (elif: one NODE_IF in it) */
    NODE_SET,           /* a = b */
    NODE_SET_BLOCK,     /* a = items through the filters b (NULL: none) */
    NODE_NAMESPACE_REF, /* name.attribute, as a target */
    NODE_MACRO,         /* name(more: NODE_PARAM): items; uses */
    NODE_PARAM,         /* name, a: default or NULL */
    NODE_CALL_BLOCK,    /* a: the call; more: parameters of the caller; items: its body */
    NODE_FILTER_BLOCK,  /* items through the filters a */
    NODE_GENERATION,    /* items: text that the model wrote; rendered like a call block */
    NODE_WITH,          /* more: NODE_SET; items */
    NODE_BREAK,
    NODE_CONTINUE
};

struct phi_jinja_builtin; /* builtins.h */

/* Names that mean something in a macro that reads them. */
struct phi_jinja_special_names {
    bool caller, kwargs, varargs;
};

/* A variable that is undefined when its scope begins, whatever the caller gave (symbols.c).
 */
struct phi_jinja_unset {
    struct phi_str name;
    struct phi_jinja_undefined undefined;
    struct phi_jinja_unset *next;
};

struct phi_jinja_node {
    enum phi_jinja_node_kind kind;
    enum phi_jinja_token_kind op;
    int line;
    bool negated, recursive;
    struct phi_jinja_special_names uses;     /* macros and call blocks */
    struct phi_str name, attribute;          /* interned: equal names have equal pointers */
    const struct phi_jinja_builtin *builtin; /* filters and tests; NULL: no such name */
    struct phi_jinja_value value;
    const struct phi_jinja_node *a, *b, *c;
    const struct phi_jinja_node *items, *more; /* first of a list linked by `next` */
    const struct phi_jinja_node *next;
    struct phi_jinja_unset *unset, *unset_else; /* of the scope that it opens */
};

struct phi_jinja {
    struct phi_arena arena;
    const char *name; /* for errors */
    struct phi_jinja_node *body;
    struct phi_jinja_names special;
    size_t n_names;
    struct phi_jinja_unset *unset; /* of the outermost scope */
};

/* Parses a token list into t->body and t->special; the nodes are in the template's arena. */
enum phi_status phi_jinja_parse(struct phi_jinja *t, const struct phi_jinja_tokens *tokens,
                                struct phi_error *err);

/* What Jinja checks when it compiles: unknown filters and tests (outside of branches, where they
 * fail only when reached), break outside of a loop, assignments to `loop`. */
enum phi_status phi_jinja_check(const struct phi_jinja_node *body, const char *name,
                                struct phi_error *err);

/* Finds the variables that begin undefined and notes them on the nodes. After phi_jinja_check. */
enum phi_status phi_jinja_resolve(struct phi_jinja *t, struct phi_error *err);

/* Calls visit for every node below and beside `node`, parents first; only for a tree that
 * phi_jinja_check has accepted, which bounds its depth. */
void phi_jinja_walk(const struct phi_jinja_node *node,
                    void (*visit)(const struct phi_jinja_node *, void *), void *context);

#endif
