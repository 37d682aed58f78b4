/* help_markdown.c: a command's option tables as the Markdown of docs/SERVING.md. */
#include "cli/environment.h"
#include "cli/term.h"

#include <string.h>

/* Text of a table's cell: '|' would end it, '<' would begin a tag. */
static void append_cell(struct phi_buf *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '|' || *text == '<')
            phi_buf_append_char(out, '\\');
        phi_buf_append_char(out, *text);
    }
}

static void append_option(struct phi_buf *out, const struct cli_option *o)
{
    struct phi_buf spelling = {0}, text = {0};
    cli_append_spelling(&spelling, o);
    cli_append_description(&text, o);
    out->failed = out->failed || spelling.failed || text.failed;
    if (!out->failed) {
        phi_buf_printf(out, "| `%s` | ", spelling.data);
        if (o->initial)
            phi_buf_printf(out, "`%s` ", o->initial);
        phi_buf_append_c(out, "| ");
        append_cell(out, text.data);
        phi_buf_append_c(out, " |\n");
    }
    phi_buf_deinit(&spelling);
    phi_buf_deinit(&text);
}

/* One row for the options of one reason. Returns the first of the next reason. */
static const struct cli_option *append_inert(struct phi_buf *out, const struct cli_option *o)
{
    const char *reason = cli_inert_reason(o);
    phi_buf_append_c(out, "|");
    for (bool first = true; o->name && strcmp(cli_inert_reason(o), reason) == 0; o++) {
        phi_buf_printf(out, "%s `--%s`", first ? "" : ",", o->name);
        first = false;
        if (!o->harmless)
            continue;
        phi_buf_append_c(out, " (fine: ");
        for (const char *p = o->harmless; *p; p++)
            phi_buf_append_c(out, *p == '|' ? ", " : (char[]){*p, '\0'});
        phi_buf_append_c(out, ")");
    }
    phi_buf_append_c(out, " | ");
    append_cell(out, reason);
    phi_buf_append_c(out, " |\n");
    return o;
}

static void append_group(struct phi_buf *out, const struct cli_option_group *group)
{
    const struct cli_option *o = group->options;
    phi_buf_printf(out, "\n### %s\n\n", group->title);
    phi_buf_append_c(out, cli_inert_reason(o) ? "| flags | why |\n|---|---|\n"
                                              : "| flag | default | meaning |\n|---|---|---|\n");
    while (o->name) {
        if (cli_inert_reason(o))
            o = append_inert(out, o);
        else
            append_option(out, o++);
    }
}

static void append_variables(struct phi_buf *out, const struct cli_variable *v)
{
    phi_buf_append_c(out, "\n### Environment\n\n| variable | sets | meaning |\n|---|---|---|\n");
    for (; v->name; v++) {
        phi_buf_append_c(out, "| ");
        if (v->own_name)
            phi_buf_printf(out, "`%s`, ", v->own_name);
        phi_buf_printf(out, "`%s` | ", v->name);
        if (v->option)
            phi_buf_printf(out, "`--%s` ", v->option);
        phi_buf_append_c(out, "| ");
        append_cell(out, v->help);
        phi_buf_append_c(out, " |\n");
    }
}

void cli_append_markdown(struct phi_buf *out, const struct cli_command *command)
{
    for (const struct cli_option_use *use = command->options; use->group; use++)
        append_group(out, use->group);
    if (command->variables)
        append_variables(out, command->variables);
}

int cli_print_markdown(const struct cli_command *command)
{
    struct cli_out out;
    struct phi_buf text = {0};
    cli_append_markdown(&text, command);
    cli_out_init(&out);
    cli_out_write(&out, phi_buf_str(&text));
    if (text.failed)
        cli_out_out_of_memory(&out);
    phi_buf_deinit(&text);
    return cli_out_finish(&out, CLI_OK);
}
