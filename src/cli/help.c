/* help.c: a command's help, laid out from its option tables. */
#include "cli/environment.h"
#include "cli/term.h"

#include <string.h>

enum { HELP_COLUMN = 32, HELP_WIDTH = 98, INERT_COLUMN = 6 };

/* Appends text broken at blanks into lines of HELP_WIDTH, continued at `indent`. */
static void append_wrapped(struct phi_buf *out, const char *text, size_t column, size_t indent)
{
    bool first = true;
    for (; *text; first = false) {
        size_t n = strcspn(text, " ");
        if (!first && column + 1 + n > HELP_WIDTH) {
            phi_buf_printf(out, "\n%*s", (int)indent, "");
            column = indent;
        } else if (!first) {
            phi_buf_append_char(out, ' ');
            column++;
        }
        phi_buf_append(out, text, n);
        column += n;
        text += n + (text[n] == ' ');
    }
    phi_buf_append_char(out, '\n');
}

void cli_append_spelling(struct phi_buf *out, const struct cli_option *o)
{
    if (o->brief)
        phi_buf_printf(out, "-%s, ", o->brief);
    phi_buf_printf(out, o->kind == CLI_BOOL ? "--[no-]%s" : "--%s", o->name);
    if (o->kind != CLI_BOOL)
        phi_buf_printf(out, " %s", o->argument ? o->argument : "N");
}

void cli_append_description(struct phi_buf *out, const struct cli_option *o)
{
    phi_buf_append_c(out, o->help);
    if (o->kind == CLI_CHOICE) {
        phi_buf_append_c(out, ":");
        for (const struct cli_name *c = o->names; c->name; c++)
            phi_buf_printf(out, "%s %s", c == o->names ? "" : ",", c->name);
    }
    if (o->kind == CLI_TEXTS || o->kind == CLI_IDS)
        phi_buf_append_c(out, "; may be repeated");
}

static void append_entry(struct phi_buf *out, const char *name, const char *text)
{
    size_t column = 2 + strlen(name);
    phi_buf_printf(out, "  %s", name);
    if (column + 2 > HELP_COLUMN) {
        phi_buf_append_char(out, '\n');
        column = 0;
    }
    phi_buf_printf(out, "%*s", (int)(HELP_COLUMN - column), "");
    append_wrapped(out, text, HELP_COLUMN, HELP_COLUMN);
}

static void append_option(struct phi_buf *out, const struct cli_option *o)
{
    struct phi_buf name = {0}, text = {0};
    cli_append_spelling(&name, o);
    cli_append_description(&text, o);
    if (o->initial)
        phi_buf_printf(&text, " (default %s)", o->initial);
    if (!name.failed && !text.failed)
        append_entry(out, name.data, text.data);
    out->failed = out->failed || name.failed || text.failed;
    phi_buf_deinit(&name);
    phi_buf_deinit(&text);
}

const char *cli_inert_reason(const struct cli_option *o)
{
    return o->ignored ? o->ignored : o->refused;
}

/* Options that do nothing, those of one reason together. Returns the first of the next reason. */
static const struct cli_option *append_inert(struct phi_buf *out, const struct cli_option *o)
{
    struct phi_buf text = {0};
    const char *reason = cli_inert_reason(o);
    for (; o->name && strcmp(cli_inert_reason(o), reason) == 0; o++)
        phi_buf_printf(&text, "%s--%s", text.n ? ", " : "", o->name);
    phi_buf_printf(&text, ": %s", reason);
    phi_buf_append_c(out, "  ");
    if (!text.failed)
        append_wrapped(out, text.data, 2, INERT_COLUMN);
    out->failed = out->failed || text.failed;
    phi_buf_deinit(&text);
    return o;
}

static void append_group(struct phi_buf *out, const struct cli_option_group *group)
{
    phi_buf_printf(out, "\n%s\n", group->title);
    const struct cli_option *o = group->options;
    while (o->name) {
        if (cli_inert_reason(o))
            o = append_inert(out, o);
        else
            append_option(out, o++);
    }
}

static void append_variables(struct phi_buf *out, const struct cli_variable *v)
{
    phi_buf_append_c(out, "\nEnvironment\n");
    for (; v->name; v++) {
        struct phi_buf name = {0};
        phi_buf_printf(&name, "%s%s%s", v->own_name ? v->own_name : "", v->own_name ? ", " : "",
                       v->name);
        if (!name.failed)
            append_entry(out, name.data, v->help);
        out->failed = out->failed || name.failed;
        phi_buf_deinit(&name);
    }
}

int cli_print_help(const struct cli_command *command)
{
    struct cli_out out;
    struct phi_buf text = {0};
    phi_buf_printf(&text, "usage: phidelity %s %s\n\n%s\n", command->name, command->arguments,
                   command->summary);
    if (command->details)
        phi_buf_printf(&text, "\n%s\n", command->details);
    for (const struct cli_option_use *use = command->options; use->group; use++)
        append_group(&text, use->group);
    if (command->variables)
        append_variables(&text, command->variables);
    phi_buf_append_c(&text, "\n  -h, --help"
                            "                    this text\n");
    cli_out_init(&out);
    cli_out_write(&out, phi_buf_str(&text));
    if (text.failed)
        cli_out_out_of_memory(&out);
    phi_buf_deinit(&text);
    return cli_out_finish(&out, CLI_OK);
}
