/* options.h: one table per group of options feeds the parser (command_line.h), the defaults, --help
 * and the tables of docs/SERVING.md, so that they cannot disagree. A command lists the groups it
 * uses and where, in its own struct of flags, each group's values live; parsing is then a walk over
 * tables.
 *
 * Spelling follows vLLM: --max-tokens 5, --max_tokens 5, --max-tokens=5; a boolean is --x or
 * --no-x; the last of repeated values counts, except in CLI_TEXTS and CLI_IDS, where every one
 * adds. A value that follows an option is taken as it is, also when it begins with a dash.
 *
 * Values come from the command line, then from --config FILE (config_file.h), then from the
 * environment (environment.h), then from the table; the first that speaks wins. */
#ifndef PHI_CLI_OPTIONS_H
#define PHI_CLI_OPTIONS_H

#include "base/arena.h"
#include "base/buf.h"
#include "cli/cli.h"

#include <jansson.h>
#include <stdint.h>

enum cli_kind {
    CLI_BOOL,      /* bool */
    CLI_INT,       /* int */
    CLI_INT64,     /* int64_t */
    CLI_REAL,      /* double; finite */
    CLI_TEXT,      /* const char * */
    CLI_TEXTS,     /* struct cli_texts: each use adds one */
    CLI_WORDS,     /* struct cli_texts: every word up to the next option; the last use counts */
    CLI_COMMAS,    /* struct cli_texts: "a,b" */
    CLI_JSON_LIST, /* struct cli_texts: ["a", "b"] */
    CLI_JSON,      /* json_t *, an object or NULL: '{"a": 1}'; --x.a 1 sets one member */
    CLI_IDS,       /* struct phi_ids: token ids separated by blanks or commas; each use adds */
    CLI_CHOICE     /* int: one of `names` */
};

struct cli_name {
    const char *name; /* NULL ends the list */
    int value;
};

struct cli_texts {
    const char **data; /* owned; the strings belong to argv or to cli_args.texts */
    size_t n;
};

struct cli_option {
    const char *name;  /* with dashes, without the leading two; NULL ends the table */
    const char *brief; /* with one dash: "p", "tp"; NULL = none */
    enum cli_kind kind;
    size_t offset;        /* of the value in the group's struct */
    const char *initial;  /* the default, read as if it had been typed; NULL = zero, and help says
                             nothing about it */
    const char *argument; /* its name in help: "TEXT" */
    const char *help;
    double min, max;              /* numbers: inclusive; min == max means no limits */
    bool above_min;               /* min itself is out */
    bool human_size;              /* 25.6k = 25600, 1K = 1024; m, M, g, G, t, T likewise */
    bool secret;                  /* not to be shown again */
    const struct cli_name *names; /* CLI_CHOICE; numbers: words that stand for one, may be NULL */

    /* Options of vLLM's that do nothing here. Their values are read and stored nowhere. */
    const char *ignored;  /* accepted: "there is no graph to capture" */
    const char *refused;  /* an error, unless the value asks for nothing: "one process, for now" */
    const char *harmless; /* with refused: the values that ask for nothing, as "1|auto" */
};

struct cli_option_group {
    const char *title;
    const struct cli_option *options;
};

struct cli_option_use {
    const struct cli_option_group *group; /* NULL ends the list */
    size_t offset;                        /* of the group's struct in the command's flags */
};

enum { CLI_MAX_OPTIONS = 384 }; /* of one command */

struct cli_args {
    const struct cli_command *command;
    const char *positional[2];
    int n_positional;
    uint64_t given[CLI_MAX_OPTIONS / 64]; /* bit i: something other than the table has set the
                                             command's i-th option */
    struct phi_arena texts;               /* strings that values point to and that are not argv's */
};

/* Frees the values and the strings that cli_parse (command_line.h) made. */
void cli_options_deinit(struct cli_args *args, void *flags);

/* Whether anything but the table has set the option (full name). */
bool cli_given(const struct cli_args *args, const char *name);

/* --------------------------------------------------------------- for those that walk the tables */

/* An option together with where its value lies in the command's flags and its number there. */
struct cli_found {
    const struct cli_option *option;
    const struct cli_option_group *group;
    size_t offset;
    int number;
};

struct cli_cursor {
    int use, option, number;
};

/* Steps through all options of a command; start with a zeroed cursor. */
bool cli_next_option(const struct cli_command *command, struct cli_cursor *c,
                     struct cli_found *out);

/* By full name; '_' and '-' are the same. */
bool cli_find_option(const struct cli_command *command, const char *name, struct cli_found *out);

/* By its letter. */
bool cli_find_brief(const struct cli_command *command, const char *letter, struct cli_found *out);

static inline void *cli_value_of(const struct cli_found *f, void *flags)
{
    return (char *)flags + f->offset;
}

static inline bool cli_is_given(const struct cli_args *args, const struct cli_found *f)
{
    return (args->given[f->number / 64] >> f->number % 64 & 1) != 0;
}

enum { CLI_WHY_SIZE = 512 };

/* Sets the option from one text, as the command line does, and marks it as given; a CLI_BOOL takes
 * "true" or "false". False with a phrase in why[CLI_WHY_SIZE] that follows the option's name in an
 * error line: "must be from 0 to 2, not 3". */
bool cli_set_option(const struct cli_found *f, struct cli_args *args, void *flags, const char *text,
                    char *why);

/* As cli_set_option, for one member of an option's JSON object: "a.b" in --option.a.b=VALUE. */
bool cli_set_option_member(const struct cli_found *f, struct cli_args *args, void *flags,
                           const char *path, const char *text, char *why);

/* Appends the value in a form that could be typed; secrets as ***. */
void cli_format_value(struct phi_buf *out, const struct cli_found *f, void *flags);

/* One log line for each option that was given and has no effect. */
void cli_log_ignored(const struct cli_args *args);

/* --------------------------------------------------------------- help */

/* Writes the command's help, made from its tables, to standard output; returns the exit code. */
int cli_print_help(const struct cli_command *command);

/* The same tables as docs/SERVING.md has them (scripts/flags_doc.py puts them there). */
void cli_append_markdown(struct phi_buf *out, const struct cli_command *command);

/* --help-markdown, which --help does not mention. */
int cli_print_markdown(const struct cli_command *command);

/* "--dtype D", "-p, --prompt TEXT", "--[no-]stats". */
void cli_append_spelling(struct phi_buf *out, const struct cli_option *o);

/* Help and choices, in one paragraph. */
void cli_append_description(struct phi_buf *out, const struct cli_option *o);

/* Why an option does nothing here; NULL when it works. */
const char *cli_inert_reason(const struct cli_option *o);

/* --------------------------------------------------------------- pieces */

/* Appends the ids in text: decimal numbers below 2^31 separated by blanks, line ends or commas, in
 * square brackets or not. False when there is anything else; *bad is then the offset. */
bool cli_parse_ids(struct phi_str text, struct phi_ids *out, size_t *bad);

/* The candidate nearest to `typed` by edits, or NULL when none is near enough to be meant. */
const char *cli_nearest(const char *typed, const char *const *candidates, size_t n);

/* The command's option nearest to `typed`, or NULL. */
const char *cli_nearest_option(const struct cli_command *command, const char *typed);

#endif
