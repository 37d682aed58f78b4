/* command_line.c: the parser of argv; see command_line.h. */
#include "cli/command_line.h"
#include "cli/config_file.h"
#include "cli/values.h"

#include <stdio.h>
#include <string.h>

enum { MAX_NAME = 64, MAX_PATH = 192 };

/* --------------------------------------------------------------- one argument */

/* "--name.path=value" in its pieces. */
struct spelling {
    const char *typed;
    char name[MAX_NAME];
    char path[MAX_PATH]; /* "" = none */
    const char *value;   /* NULL = none */
};

static bool split_argument(const char *arg, struct spelling *s)
{
    const char *body = arg + (arg[1] == '-' ? 2 : 1);
    size_t n = strcspn(body, "="), n_name = strcspn(body, ".=");
    size_t n_path = n > n_name ? n - n_name - 1 : 0;
    *s = (struct spelling){.typed = arg, .value = body[n] ? body + n + 1 : NULL};
    if (n_name >= sizeof s->name || n_path >= sizeof s->path)
        return false;
    memcpy(s->name, body, n_name);
    if (n_path > 0)
        memcpy(s->path, body + n_name + 1, n_path);
    return true;
}

static int unknown_option(const struct cli_command *command, const char *typed, const char *name)
{
    const char *nearest = typed[1] == '-' ? cli_nearest_option(command, name) : NULL;
    if (nearest)
        return cli_usage_error(command, "unknown option %s (did you mean --%s?)", typed, nearest);
    return cli_usage_error(command, "unknown option %s", typed);
}

/* Finds the option that is meant. -O3 is -O 3. */
static bool resolve(const struct cli_command *command, struct spelling *s, struct cli_found *f,
                    bool *negated)
{
    *negated = false;
    if (s->typed[1] != '-') {
        if (cli_find_brief(command, s->name, f))
            return true;
        const char *rest = s->typed + 2, letter[] = {s->typed[1], '\0'};
        if (*rest == '\0' || rest[strspn(rest, "0123456789")] != '\0')
            return false;
        s->value = rest;
        return cli_find_brief(command, letter, f);
    }
    if (cli_find_option(command, s->name, f))
        return true;
    *negated = (strncmp(s->name, "no-", 3) == 0 || strncmp(s->name, "no_", 3) == 0) &&
               cli_find_option(command, s->name + 3, f) && f->option->kind == CLI_BOOL;
    return *negated;
}

/* The words after argv[*i] up to the next option; at least one. */
static bool take_words(const struct cli_found *f, struct cli_args *args, void *flags, char **argv,
                       int *i, char *why)
{
    const char *next = argv[*i + 1];
    if (!next || (next[0] == '-' && next[1])) {
        snprintf(why, CLI_WHY_SIZE, "needs a value");
        return false;
    }
    for (; next && !(next[0] == '-' && next[1]); next = argv[*i + 1]) {
        if (!cli_set_option(f, args, flags, next, why))
            return false;
        ++*i;
    }
    return true;
}

static bool take_value(const struct cli_found *f, struct cli_args *args, void *flags,
                       const struct spelling *s, char **argv, int *i, char *why)
{
    const char *value = s->value;
    if (f->option->kind == CLI_WORDS && !f->option->ignored && !f->option->refused)
        cli_value_restart(f->option, cli_value_of(f, flags));
    if (f->option->kind == CLI_WORDS && !value)
        return take_words(f, args, flags, argv, i, why);
    if (!value && !argv[*i + 1]) {
        snprintf(why, CLI_WHY_SIZE, "needs a value");
        return false;
    }
    if (!value)
        value = argv[++*i];
    if (s->path[0])
        return cli_set_option_member(f, args, flags, s->path, value, why);
    return cli_set_option(f, args, flags, value, why);
}

/* The option argv[*i] and its value; moves *i to the last word used. */
static int parse_option(const struct cli_command *command, void *flags, struct cli_args *args,
                        char **argv, int *i)
{
    struct spelling s;
    struct cli_found f;
    char why[CLI_WHY_SIZE] = "";
    bool negated, good;
    if (!split_argument(argv[*i], &s) || !resolve(command, &s, &f, &negated))
        return unknown_option(command, argv[*i], s.name);
    if (s.path[0] && f.option->kind != CLI_JSON && !f.option->ignored)
        return unknown_option(command, argv[*i], s.name);
    if (f.option->kind == CLI_BOOL && s.value)
        return cli_usage_error(command, "--%s takes no value", f.option->name);
    if (f.option->kind == CLI_BOOL)
        good = cli_set_option(&f, args, flags, negated ? "false" : "true", why);
    else
        good = take_value(&f, args, flags, &s, argv, i, why);
    return good ? -1 : cli_usage_error(command, "--%s %s", f.option->name, why);
}

/* --------------------------------------------------------------- the whole command line */

static int parse_words(const struct cli_command *command, int argc, char **argv, void *flags,
                       struct cli_args *args)
{
    bool options_ended = false;
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        if (!options_ended && strcmp(arg, "--") == 0) {
            options_ended = true;
        } else if (!options_ended && (strcmp(arg, "-h") == 0 || strcmp(arg, "--help") == 0 ||
                                      strncmp(arg, "--help=", 7) == 0)) {
            return cli_print_help(command); /* of vLLM's --help=GROUP, all groups */
        } else if (!options_ended && strcmp(arg, "--help-markdown") == 0) {
            return cli_print_markdown(command);
        } else if (!options_ended && arg[0] == '-' && arg[1] != '\0') {
            int status = parse_option(command, flags, args, argv, &i);
            if (status >= 0)
                return status;
        } else if (args->n_positional == 2) {
            return cli_usage_error(command, "unexpected argument '%s'", arg);
        } else {
            args->positional[args->n_positional++] = arg;
        }
    }
    return -1;
}

/* The text of an option that not every command has; NULL when it is not there or was not given. */
static const char *given_text(const struct cli_args *args, const char *name, void *flags)
{
    struct cli_found f;
    if (!cli_find_option(args->command, name, &f) || !cli_is_given(args, &f))
        return NULL;
    return *(const char **)cli_value_of(&f, flags);
}

/* An option that takes many words may have taken MODEL for one of them. */
static int missing_model(const struct cli_args *args)
{
    struct cli_found f;
    for (struct cli_cursor c = {0}; cli_next_option(args->command, &c, &f);)
        if (f.option->kind == CLI_WORDS && cli_is_given(args, &f))
            return cli_usage_error(args->command,
                                   "MODEL, a checkpoint folder, is missing: --%s takes every word "
                                   "up to the next option, so put MODEL first",
                                   f.option->name);
    return cli_usage_error(args->command, "MODEL, a checkpoint folder, is missing");
}

/* Puts the defaults into place. They come from our own tables, so a bad one is a bug. */
static void set_defaults(const struct cli_command *command, void *flags, struct cli_args *args)
{
    struct cli_found f;
    char why[CLI_WHY_SIZE];
    for (struct cli_cursor c = {0}; cli_next_option(command, &c, &f);) {
        const char *initial = f.option->initial;
        if (!initial || f.option->ignored || f.option->refused)
            continue;
        if (f.option->kind == CLI_BOOL)
            *(bool *)cli_value_of(&f, flags) = strcmp(initial, "on") == 0;
        else
            cli_value_set(f.option, cli_value_of(&f, flags), &args->texts, initial, why);
    }
}

int cli_parse(const struct cli_command *command, int argc, char **argv, void *flags,
              struct cli_args *args)
{
    *args = (struct cli_args){.command = command};
    set_defaults(command, flags, args);
    int status = parse_words(command, argc, argv, flags, args);
    const char *file = given_text(args, "config", flags);
    if (status < 0 && file)
        status = cli_config_read(file, args, flags);
    if (status < 0 && args->n_positional == 0) {
        args->positional[0] = given_text(args, "model", flags);
        args->n_positional = args->positional[0] != NULL;
    }
    if (status < 0 && args->n_positional == 0 && !command->without_model)
        status = missing_model(args);
    return status;
}
