/* options.c: the tables of options, and their values; see options.h. */
#include "cli/options.h"
#include "cli/values.h"

#include <stdio.h>
#include <string.h>

enum { MAX_NAME = 64 };

/* --------------------------------------------------------------- looking up */

bool cli_next_option(const struct cli_command *command, struct cli_cursor *c, struct cli_found *out)
{
    for (; command->options[c->use].group; c->use++, c->option = 0) {
        const struct cli_option_use *use = &command->options[c->use];
        const struct cli_option *option = &use->group->options[c->option];
        if (option->name && c->number < CLI_MAX_OPTIONS) {
            *out = (struct cli_found){option, use->group, use->offset + option->offset, c->number};
            c->option++;
            c->number++;
            return true;
        }
    }
    return false;
}

/* The same name, with '_' and '-' alike. */
static bool same_name(const char *a, const char *b)
{
    for (; *a && (*a == *b || (*a == '_' && *b == '-') || (*a == '-' && *b == '_')); a++)
        b++;
    return *a == *b;
}

bool cli_find_option(const struct cli_command *command, const char *name, struct cli_found *out)
{
    for (struct cli_cursor c = {0}; cli_next_option(command, &c, out);)
        if (same_name(out->option->name, name))
            return true;
    return false;
}

bool cli_find_brief(const struct cli_command *command, const char *letter, struct cli_found *out)
{
    for (struct cli_cursor c = {0}; cli_next_option(command, &c, out);)
        if (out->option->brief && strcmp(out->option->brief, letter) == 0)
            return true;
    return false;
}

bool cli_given(const struct cli_args *args, const char *name)
{
    struct cli_found f;
    return cli_find_option(args->command, name, &f) && cli_is_given(args, &f);
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

const char *cli_nearest_option(const struct cli_command *command, const char *typed)
{
    const char *names[CLI_MAX_OPTIONS + 1];
    size_t n = 0;
    struct cli_found f;
    names[n++] = "help";
    for (struct cli_cursor c = {0}; cli_next_option(command, &c, &f);)
        names[n++] = f.option->name;
    return cli_nearest(typed, names, n);
}

/* --------------------------------------------------------------- setting */

/* Whether one of the words of "a|b" is `text`. */
static bool is_harmless(const struct cli_option *o, const char *text)
{
    const char *word = o->harmless;
    while (word) {
        size_t n = strcspn(word, "|");
        if (strlen(text) == n && strncmp(word, text, n) == 0)
            return true;
        word = word[n] ? word + n + 1 : NULL;
    }
    return false;
}

/* A value of an option that does nothing here: read, so that a mistake is found, and dropped. */
static bool set_inert(const struct cli_option *o, struct cli_args *args, const char *text,
                      char *why)
{
    union {
        bool boolean;
        int integer;
        int64_t integer64;
        double real;
        const char *text;
        struct cli_texts texts;
        json_t *json;
        struct phi_ids ids;
    } value;
    memset(&value, 0, sizeof value);
    if (o->refused && is_harmless(o, text))
        return true;
    bool good = cli_value_set(o, &value, &args->texts, text, why);
    cli_value_deinit(o, &value);
    if (!good || !o->refused || (o->kind == CLI_BOOL && strcmp(text, "false") == 0))
        return good;
    if (o->kind == CLI_BOOL)
        snprintf(why, CLI_WHY_SIZE, "is refused: %s", o->refused);
    else
        snprintf(why, CLI_WHY_SIZE, "is refused with '%.60s': %s", text, o->refused);
    return false;
}

static void mark_given(struct cli_args *args, const struct cli_found *f)
{
    args->given[f->number / 64] |= (uint64_t)1 << f->number % 64;
}

bool cli_set_option(const struct cli_found *f, struct cli_args *args, void *flags, const char *text,
                    char *why)
{
    mark_given(args, f);
    if (f->option->ignored || f->option->refused)
        return set_inert(f->option, args, text, why);
    return cli_value_set(f->option, cli_value_of(f, flags), &args->texts, text, why);
}

bool cli_set_option_member(const struct cli_found *f, struct cli_args *args, void *flags,
                           const char *path, const char *text, char *why)
{
    mark_given(args, f);
    if (f->option->refused)
        return set_inert(f->option, args, "{\"\": 0}", why);
    return f->option->ignored || cli_value_set_member(cli_value_of(f, flags), path, text, why);
}

void cli_options_deinit(struct cli_args *args, void *flags)
{
    struct cli_found f;
    for (struct cli_cursor c = {0}; cli_next_option(args->command, &c, &f);)
        if (!f.option->ignored && !f.option->refused)
            cli_value_deinit(f.option, cli_value_of(&f, flags));
    phi_arena_deinit(&args->texts);
}
