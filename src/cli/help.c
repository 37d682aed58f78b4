/* help.c: a command's help, laid out from its option tables. */
#include "cli/options.h"
#include "cli/term.h"

#include <string.h>

enum { HELP_COLUMN = 32, HELP_WIDTH = 98 };

/* Appends text broken at blanks into lines of HELP_WIDTH, continued at HELP_COLUMN. */
static void append_wrapped(struct phi_buf *out, const char *text, size_t column)
{
    while (*text) {
        size_t n = strcspn(text, " ");
        if (column > HELP_COLUMN && column + 1 + n > HELP_WIDTH) {
            phi_buf_printf(out, "\n%*s", HELP_COLUMN, "");
            column = HELP_COLUMN;
        } else if (column > HELP_COLUMN) {
            phi_buf_append_char(out, ' ');
            column++;
        }
        phi_buf_append(out, text, n);
        column += n;
        text += n + (text[n] == ' ');
    }
}

/* "--dtype D", "-p, --prompt TEXT", "--[no-]stats". */
static void append_spelling(struct phi_buf *out, const struct cli_option *o)
{
    if (o->letter)
        phi_buf_printf(out, "-%c, ", o->letter);
    phi_buf_printf(out, o->kind == CLI_BOOL ? "--[no-]%s" : "--%s", o->name);
    if (o->kind != CLI_BOOL)
        phi_buf_printf(out, " %s", o->argument ? o->argument : "N");
}

static void append_description(struct phi_buf *out, const struct cli_option *o)
{
    phi_buf_append_c(out, o->help);
    if (o->kind == CLI_CHOICE) {
        phi_buf_append_c(out, ":");
        for (const struct cli_name *c = o->names; c->name; c++)
            phi_buf_printf(out, "%s %s", c == o->names ? "" : ",", c->name);
    }
    if (o->kind == CLI_TEXTS || o->kind == CLI_IDS)
        phi_buf_append_c(out, "; may be repeated");
    if (o->initial)
        phi_buf_printf(out, " (default %s)", o->initial);
}

static void append_option(struct phi_buf *out, const struct cli_option *o)
{
    struct phi_buf description = {0};
    size_t start = out->n;
    phi_buf_append_c(out, "  ");
    append_spelling(out, o);
    size_t column = out->n - start;
    if (column + 2 > HELP_COLUMN) {
        phi_buf_append_char(out, '\n');
        column = 0;
    }
    phi_buf_printf(out, "%*s", (int)(HELP_COLUMN - column), "");
    append_description(&description, o);
    if (!description.failed && description.data)
        append_wrapped(out, description.data, HELP_COLUMN);
    phi_buf_append_char(out, '\n');
    out->failed = out->failed || description.failed;
    phi_buf_deinit(&description);
}

int cli_print_help(const struct cli_command *command)
{
    struct cli_out out;
    struct phi_buf text = {0};
    phi_buf_printf(&text, "usage: phidelity %s %s\n\n%s\n", command->name, command->arguments,
                   command->summary);
    if (command->details)
        phi_buf_printf(&text, "\n%s\n", command->details);
    for (const struct cli_option_use *use = command->options; use->group; use++) {
        phi_buf_printf(&text, "\n%s\n", use->group->title);
        for (const struct cli_option *o = use->group->options; o->name; o++)
            append_option(&text, o);
    }
    phi_buf_append_c(&text, "\n  -h, --help"
                            "                    this text\n");
    cli_out_init(&out);
    cli_out_write(&out, phi_buf_str(&text));
    if (text.failed)
        cli_out_out_of_memory(&out);
    phi_buf_deinit(&text);
    return cli_out_finish(&out, CLI_OK);
}
