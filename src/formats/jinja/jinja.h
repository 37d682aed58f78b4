/* jinja.h: our Jinja: templates as transformers runs them (Jinja 3.1, an immutable sandbox,
 * trim_blocks, lstrip_blocks, loop controls, the generation tag, its own tojson, raise_exception
 * and strftime_now).
 *
 * Files, in reading order: value.h (what is computed with), text.h (as text),
 * unicode.h, lex.h, ast.h, parse.c and parse_expr.c, check.c,
 * eval.c and ops.c (expressions), exec.c (statements), builtins.c (with
 * tests and globals), filters.c, methods.c, format.c.
 *
 * A template is immutable once parsed; any number of threads may render it. Rendering is bounded in
 * steps, depth, memory and output (value.h); errors are "name:line: what". */
#ifndef PHI_FORMATS_JINJA_H
#define PHI_FORMATS_JINJA_H

#include "formats/jinja/value.h"

struct phi_jinja;

/* Parses `source` (copied; at most a few MB). `name` is for errors. PHI_ERR_FORMAT for what Jinja
 * refuses, PHI_ERR_UNSUPPORTED for what only this program does. */
enum phi_status phi_jinja_open(struct phi_str source, const char *name, struct phi_jinja **out,
                               struct phi_error *err);
void phi_jinja_close(struct phi_jinja *t); /* NULL is fine */

/* Prepares a rendering: `r` then makes values for `variables`, which the caller sets. */
void phi_jinja_run_init(struct phi_jinja_run *r, const struct phi_jinja *t, int64_t now_s,
                        struct phi_error *err);
void phi_jinja_run_deinit(struct phi_jinja_run *r);

/* Renders with r->variables; appends to *out. */
enum phi_status phi_jinja_render(const struct phi_jinja *t, struct phi_jinja_run *r,
                                 struct phi_buf *out);

/* Whether the template reads a variable of this name, has this string among its literals, or reads
 * an attribute or item of this name: what tells which kind of template it is. */
bool phi_jinja_reads_variable(const struct phi_jinja *t, const char *name);
bool phi_jinja_has_literal(const struct phi_jinja *t, const char *text);
bool phi_jinja_reads_member(const struct phi_jinja *t, const char *name);

#endif
