/* builtins.h: what templates call: filters, tests, methods and global functions, each a row
 * of a table that names it and its parameters. Arguments are matched to parameters here, once for
 * all. */
#ifndef PHI_FORMATS_JINJA_BUILTINS_H
#define PHI_FORMATS_JINJA_BUILTINS_H

#include "formats/jinja/value.h"

enum { JINJA_MAX_PARAMS = 6 };

struct phi_jinja_keyword {
    struct phi_str name;
    struct phi_jinja_value value;
};

/* The arguments of a call, as written. */
struct phi_jinja_args {
    struct phi_jinja_value *positional;
    size_t n_positional;
    struct phi_jinja_keyword *keywords;
    size_t n_keywords;
};

/* A call of a builtin. */
struct phi_jinja_call {
    struct phi_jinja_value self; /* what is filtered or tested; the object of a method */
    struct phi_jinja_value arg[JINJA_MAX_PARAMS]; /* by parameter; JINJA_MISSING where not given */
    const struct phi_jinja_args *args;
};

struct phi_jinja_builtin {
    const char *name;
    /* Parameter names separated by blanks; the first n_required must be given. "/" in front: they
     * cannot be given by name. "*": anything, read from call->args. NULL: known, but not supported
     * here. */
    const char *params;
    int n_required;
    enum phi_status (*fn)(struct phi_jinja_run *r, struct phi_jinja_call *call,
                          struct phi_jinja_value *out);
};

/* NULL when Jinja knows no such name. */
const struct phi_jinja_builtin *phi_jinja_find_filter(struct phi_str name);
const struct phi_jinja_builtin *phi_jinja_find_test(struct phi_str name);
const struct phi_jinja_builtin *phi_jinja_find_global(struct phi_str name);

/* A method of the object's type. *blocked when the sandbox refuses it (it would change the object).
 */
const struct phi_jinja_builtin *phi_jinja_find_method(struct phi_jinja_value object,
                                                      struct phi_str name, bool *blocked);

/* Matches args to the parameters and calls. A test gives a bool. */
enum phi_status phi_jinja_call_builtin(struct phi_jinja_run *r,
                                       const struct phi_jinja_builtin *builtin,
                                       struct phi_jinja_value self,
                                       const struct phi_jinja_args *args,
                                       struct phi_jinja_value *out);

/* --- between the files of builtins --- */

const struct phi_jinja_builtin *phi_jinja_find_in(const struct phi_jinja_builtin *table, size_t n,
                                                  struct phi_str name);
#define JINJA_FIND(table, name) phi_jinja_find_in((table), sizeof(table) / sizeof(table)[0], (name))

/* Readers of arguments; `what` names the argument in errors. A missing argument leaves *out. */
enum phi_status phi_jinja_int_arg(struct phi_jinja_run *r, struct phi_jinja_value v,
                                  const char *what, int64_t *out);
enum phi_status phi_jinja_str_arg(struct phi_jinja_run *r, struct phi_jinja_value v,
                                  const char *what, struct phi_str *out);
/* str() of it, as filters take text. */
enum phi_status phi_jinja_text_arg(struct phi_jinja_run *r, struct phi_jinja_value v,
                                   struct phi_str *out);
static inline bool phi_jinja_given(struct phi_jinja_value v)
{
    return v.type != JINJA_MISSING;
}

/* Finishes a function that wrote text: the text of `b` as a string (markup as given), b released.
 * The status passed in goes first. */
enum phi_status phi_jinja_return_text(struct phi_jinja_run *r, enum phi_status status,
                                      struct phi_buf *b, bool markup, struct phi_jinja_value *out);

/* HTML escapes of MarkupSafe. */
void phi_jinja_append_escaped(struct phi_buf *out, struct phi_str s);

/* printf-style `format % args` (format.c). args: a tuple, a dict, or one value. */
enum phi_status phi_jinja_format_percent(struct phi_jinja_run *r, struct phi_str format,
                                         struct phi_jinja_value args, struct phi_buf *out);
/* str.format */
enum phi_status phi_jinja_format_braces(struct phi_jinja_run *r, struct phi_str format,
                                        const struct phi_jinja_args *args, struct phi_buf *out);

/* int(text, base) and float(text) of Python: surrounding space, signs, underscores. False: not one.
 */
bool phi_jinja_parse_int(struct phi_str s, int base, bool *overflow, int64_t *out);
bool phi_jinja_parse_float(struct phi_str s, double *out);

#endif
