/* parse.h: what the two halves of the parser share: the token cursor, node making, errors. */
#ifndef PHI_FORMATS_JINJA_PARSE_H
#define PHI_FORMATS_JINJA_PARSE_H

#include "formats/jinja/ast.h"

/* Nesting that the parser accepts; every level costs about a kilobyte of stack. */
enum { JINJA_MAX_PARSE_DEPTH = 200 };

struct phi_jinja_parser {
    struct phi_arena *arena;
    const char *name;
    struct phi_error *err;
    const struct phi_jinja_token *at; /* never beyond TOKEN_EOF */
    int depth;
    struct phi_jinja_special_names used; /* read since the beginning of the innermost macro */
    struct phi_str *names;               /* interned; open addressing */
    size_t n_names, names_capacity;
};

enum phi_status phi_jinja_parse_fail(struct phi_jinja_parser *p, int line, const char *fmt, ...)
    PHI_PRINTF(3, 4);

/* Counts nesting: enter on the way down, leave on the way up. */
enum phi_status phi_jinja_parse_enter(struct phi_jinja_parser *p);
void phi_jinja_parse_leave(struct phi_jinja_parser *p);

enum phi_status phi_jinja_new_node(struct phi_jinja_parser *p, enum phi_jinja_node_kind kind,
                                   int line, struct phi_jinja_node **out);

/* The one copy of this name. */
enum phi_status phi_jinja_intern(struct phi_jinja_parser *p, struct phi_str name,
                                 struct phi_str *out);

/* Appends nodes to a list. */
struct phi_jinja_node_list {
    struct phi_jinja_node *first, *last;
};
void phi_jinja_append_node(struct phi_jinja_node_list *list, struct phi_jinja_node *node);

static inline bool phi_jinja_at(const struct phi_jinja_parser *p, enum phi_jinja_token_kind kind)
{
    return p->at->kind == kind;
}

bool phi_jinja_at_name(const struct phi_jinja_parser *p, const char *name);
bool phi_jinja_skip(struct phi_jinja_parser *p,
                    enum phi_jinja_token_kind kind); /* when it is there */
bool phi_jinja_skip_name(struct phi_jinja_parser *p, const char *name);
enum phi_status phi_jinja_expect(struct phi_jinja_parser *p, enum phi_jinja_token_kind kind,
                                 const char *what);
enum phi_status phi_jinja_expect_name(struct phi_jinja_parser *p, const char *name);
/* Any name, interned. */
enum phi_status phi_jinja_take_name(struct phi_jinja_parser *p, struct phi_str *out);
void phi_jinja_next_token(struct phi_jinja_parser *p);

/* parse_expr.c */

/* How a possible tuple ends besides ")" and the end of the tag. */
struct phi_jinja_tuple_options {
    bool targets;       /* only what can be assigned to: names, and name.attribute with ... */
    bool namespace_ref; /* ... this */
    bool no_condition;  /* "if" belongs to the statement */
    bool parentheses;   /* "()" is a tuple */
    const char *end;    /* a name that ends it, or NULL */
};

enum phi_status phi_jinja_parse_expression(struct phi_jinja_parser *p, struct phi_jinja_node **out);
enum phi_status phi_jinja_parse_tuple(struct phi_jinja_parser *p,
                                      struct phi_jinja_tuple_options options,
                                      struct phi_jinja_node **out);
/* a | f | g: filters applied to `input` (NULL in blocks). With `start_inline` the first has no bar.
 */
enum phi_status phi_jinja_parse_filters(struct phi_jinja_parser *p, struct phi_jinja_node *input,
                                        bool start_inline, struct phi_jinja_node **out);

#endif
