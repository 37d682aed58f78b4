/* options.c: the parser; see options.h. */
#include "cli/options.h"
#include "base/alloc.h"
#include "cli/values.h"

#include <stdio.h>
#include <string.h>

enum { MAX_OPTIONS = 64, MAX_NAME = 64 };

/* An option together with where its value lies in the command's flags and its number there. */
struct found {
    const struct cli_option *option;
    size_t offset;
    int number;
};

/* --------------------------------------------------------------- looking up */

/* Steps through all options of a command; start with a zeroed cursor. */
struct cursor {
    int use, option, number;
};

static bool next_option(const struct cli_command *command, struct cursor *c, struct found *out)
{
    for (; command->options[c->use].group; c->use++, c->option = 0) {
        const struct cli_option_use *use = &command->options[c->use];
        const struct cli_option *option = &use->group->options[c->option];
        if (option->name) {
            *out = (struct found){option, use->offset + option->offset, c->number};
            c->option++;
            c->number++;
            return true;
        }
    }
    return false;
}

static bool find_name(const struct cli_command *command, const char *name, struct found *out)
{
    for (struct cursor c = {0}; next_option(command, &c, out);)
        if (strcmp(out->option->name, name) == 0)
            return true;
    return false;
}

static bool find_letter(const struct cli_command *command, char letter, struct found *out)
{
    for (struct cursor c = {0}; next_option(command, &c, out);)
        if (letter != 0 && out->option->letter == letter)
            return true;
    return false;
}

bool cli_given(const struct cli_args *args, const char *name)
{
    struct found f;
    return find_name(args->command, name, &f) && (args->given >> f.number & 1) != 0;
}

static void *value_of(const struct found *f, void *flags)
{
    return (char *)flags + f->offset;
}

/* --------------------------------------------------------------- spelling help */

/* Levenshtein distance, capped by the buffer: names are short. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t n = strlen(b), row[MAX_NAME + 1];
    if (n > MAX_NAME)
        return MAX_NAME;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < n; j++) {
            size_t change = diagonal + (a[i] != b[j]);
            diagonal = row[j + 1];
            size_t best = row[j] < row[j + 1] ? row[j] + 1 : row[j + 1] + 1;
            row[j + 1] = change < best ? change : best;
        }
    }
    return row[n];
}

const char *cli_nearest(const char *typed, const char *const *candidates, size_t n)
{
    const char *best = NULL;
    size_t limit = strlen(typed) / 3 + 1, best_distance = limit + 1;
    for (size_t i = 0; i < n; i++) {
        size_t d = edit_distance(typed, candidates[i]);
        if (d < best_distance) {
            best = candidates[i];
            best_distance = d;
        }
    }
    return best;
}

static int unknown_option(const struct cli_command *command, const char *typed)
{
    const char *names[MAX_OPTIONS + 1];
    size_t n = 0;
    struct found f;
    names[n++] = "help";
    for (struct cursor c = {0}; n <= MAX_OPTIONS && next_option(command, &c, &f);)
        names[n++] = f.option->name;
    const char *nearest = typed[1] == '-' ? cli_nearest(typed + 2, names, n) : NULL;
    if (nearest)
        return cli_usage_error(command, "unknown option %s (did you mean --%s?)", typed, nearest);
    return cli_usage_error(command, "unknown option %s", typed);
}

/* --------------------------------------------------------------- parsing */

/* Puts the defaults into place. They come from our own tables, so a bad one is a bug. */
static void set_defaults(const struct cli_command *command, void *flags)
{
    struct found f;
    char why[CLI_WHY_SIZE];
    for (struct cursor c = {0}; next_option(command, &c, &f);) {
        if (f.option->initial && f.option->kind == CLI_BOOL)
            *(bool *)value_of(&f, flags) = strcmp(f.option->initial, "on") == 0;
        else if (f.option->initial)
            cli_value_set(f.option, value_of(&f, flags), f.option->initial, why);
    }
}

/* One "--name[=value]" or "-x"; `next` is the argument that follows. Sets *used_next. */
static int parse_option(const struct cli_command *command, void *flags, struct cli_args *args,
                        const char *arg, const char *next, bool *used_next)
{
    char name[MAX_NAME];
    struct found f;
    const char *value = NULL;
    bool negated = false;
    if (arg[1] != '-') {
        if (arg[2] != '\0' || !find_letter(command, arg[1], &f))
            return unknown_option(command, arg);
    } else {
        size_t n = strcspn(arg + 2, "=");
        if (n >= sizeof name)
            return unknown_option(command, arg);
        for (size_t i = 0; i < n; i++)
            name[i] = arg[2 + i] == '_' ? '-' : arg[2 + i];
        name[n] = '\0';
        if (arg[2 + n] == '=')
            value = arg + 2 + n + 1;
        if (!find_name(command, name, &f)) {
            negated = strncmp(name, "no-", 3) == 0 && find_name(command, name + 3, &f) &&
                      f.option->kind == CLI_BOOL;
            if (!negated)
                return unknown_option(command, arg);
        }
    }
    args->given |= (uint64_t)1 << f.number;
    if (f.option->kind == CLI_BOOL) {
        if (value)
            return cli_usage_error(command, "--%s takes no value", f.option->name);
        *(bool *)value_of(&f, flags) = !negated;
        return -1;
    }
    if (!value) {
        if (!next)
            return cli_usage_error(command, "--%s needs a value", f.option->name);
        value = next;
        *used_next = true;
    }
    char why[CLI_WHY_SIZE];
    if (!cli_value_set(f.option, value_of(&f, flags), value, why))
        return cli_usage_error(command, "--%s %s", f.option->name, why);
    return -1;
}

int cli_parse(const struct cli_command *command, int argc, char **argv, void *flags,
              struct cli_args *args)
{
    bool options_ended = false;
    *args = (struct cli_args){.command = command};
    set_defaults(command, flags);
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        if (!options_ended && strcmp(arg, "--") == 0) {
            options_ended = true;
        } else if (!options_ended && (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0)) {
            return cli_print_help(command);
        } else if (!options_ended && arg[0] == '-' && arg[1] != '\0') {
            bool used_next = false;
            int status = parse_option(command, flags, args, arg, argv[i + 1], &used_next);
            if (status >= 0)
                return status;
            i += used_next;
        } else if (args->n_positional == 2) {
            return cli_usage_error(command, "unexpected argument '%s'", arg);
        } else {
            args->positional[args->n_positional++] = arg;
        }
    }
    if (args->n_positional == 0)
        return cli_usage_error(command, "MODEL, a checkpoint folder, is missing");
    return -1;
}

void cli_options_deinit(const struct cli_command *command, void *flags)
{
    struct found f;
    for (struct cursor c = {0}; next_option(command, &c, &f);) {
        if (f.option->kind == CLI_TEXTS)
            phi_free(((struct cli_texts *)value_of(&f, flags))->data);
        else if (f.option->kind == CLI_IDS)
            phi_ids_deinit(value_of(&f, flags));
    }
}
