/* jinja.c: see jinja.h. */
#include "formats/jinja/jinja.h"
#include "base/alloc.h"
#include "formats/jinja/eval.h"

enum { MAX_SOURCE_BYTES = 8 * 1024 * 1024 };

enum phi_status phi_jinja_open(struct phi_str source, const char *name, struct phi_jinja **out,
                               struct phi_error *err)
{
    struct phi_jinja_tokens tokens;
    *out = NULL;
    if (source.n > MAX_SOURCE_BYTES)
        return phi_fail(err, PHI_ERR_TOO_LONG, "%s: a template of more than %d bytes", name,
                        MAX_SOURCE_BYTES);
    struct phi_jinja *t = phi_calloc(1, sizeof *t);
    if (!t)
        return phi_fail_memory(err, name, sizeof *t);
    t->name = phi_arena_dup(&t->arena, phi_str_from(name)).data;
    enum phi_status status = t->name ? PHI_OK : phi_fail_memory(err, name, strlen(name));
    if (status == PHI_OK)
        status = phi_jinja_lex(&t->arena, source, t->name, &tokens, err);
    if (status == PHI_OK)
        status = phi_jinja_parse(t, &tokens, err);
    if (status == PHI_OK)
        status = phi_jinja_check(t->body, t->name, err);
    if (status == PHI_OK)
        status = phi_jinja_resolve(t, err);
    if (status != PHI_OK) {
        phi_jinja_close(t);
        return status;
    }
    *out = t;
    return PHI_OK;
}

void phi_jinja_close(struct phi_jinja *t)
{
    if (!t)
        return;
    phi_arena_deinit(&t->arena);
    phi_free(t);
}

void phi_jinja_run_init(struct phi_jinja_run *r, const struct phi_jinja *t, int64_t now_s,
                        struct phi_error *err)
{
    *r = (struct phi_jinja_run){.arena = {.limit_bytes = JINJA_MAX_ARENA_BYTES},
                                .err = err,
                                .name = t->name,
                                .line = 1,
                                .steps_left = JINJA_MAX_STEPS,
                                .now_s = now_s,
                                .special = &t->special};
}

void phi_jinja_run_deinit(struct phi_jinja_run *r)
{
    phi_arena_deinit(&r->arena);
}

enum phi_status phi_jinja_render(const struct phi_jinja *t, struct phi_jinja_run *r,
                                 struct phi_buf *out)
{
    static const struct phi_jinja_dict none;
    struct phi_buf text = {.limit = JINJA_MAX_OUTPUT_BYTES};
    if (!r->variables)
        r->variables = &none;
    r->out = &text;
    r->odd_type = NULL;
    enum phi_status status = phi_jinja_exec_template(r, t);
    if (status == PHI_OK) {
        phi_buf_append_str(out, phi_buf_str(&text));
        if (out->failed)
            status = phi_fail_memory(r->err, "the rendered prompt", text.n);
    }
    phi_buf_deinit(&text);
    r->out = NULL;
    return status;
}

/* ---- what kind of template it is ---- */

struct search {
    const char *name;
    enum { VARIABLE, LITERAL, MEMBER } what;
    bool found;
};

static void look(const struct phi_jinja_node *node, void *context)
{
    struct search *s = context;
    if (s->what == VARIABLE)
        s->found |= node->kind == NODE_NAME && phi_str_eq_c(node->name, s->name);
    if (s->what != VARIABLE)
        s->found |= node->kind == NODE_CONST && node->value.type == JINJA_STR &&
                    phi_str_eq_c(node->value.s, s->name);
    if (s->what == MEMBER)
        s->found |= node->kind == NODE_ATTR && phi_str_eq_c(node->name, s->name);
}

bool phi_jinja_reads_variable(const struct phi_jinja *t, const char *name)
{
    struct search s = {name, VARIABLE, false};
    phi_jinja_walk(t->body, look, &s);
    return s.found;
}

bool phi_jinja_has_literal(const struct phi_jinja *t, const char *text)
{
    struct search s = {text, LITERAL, false};
    phi_jinja_walk(t->body, look, &s);
    return s.found;
}

/* A name in quotes may be a member too: m['tools'], m.get('tools'), 'tools' in m. */
bool phi_jinja_reads_member(const struct phi_jinja *t, const char *name)
{
    struct search s = {name, MEMBER, false};
    phi_jinja_walk(t->body, look, &s);
    return s.found;
}
