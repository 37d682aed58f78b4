/* options.h: one table per group of options feeds the parser, the defaults and --help, so that the
 * three cannot disagree. A command lists the groups it uses and where, in its own struct of flags,
 * each group's values live; parsing is then a walk over tables.
 *
 * Spelling follows vLLM: --max-tokens 5, --max_tokens 5, --max-tokens=5; a boolean is --x or
 * --no-x; the last of repeated values counts, except in lists, where every one adds. A value that
 * follows an option is taken as it is, also when it begins with a dash. */
#ifndef PHI_CLI_OPTIONS_H
#define PHI_CLI_OPTIONS_H

#include "base/buf.h"
#include "cli/cli.h"

#include <stdint.h>

enum cli_kind {
    CLI_BOOL,  /* bool */
    CLI_INT,   /* int */
    CLI_INT64, /* int64_t */
    CLI_REAL,  /* double; finite */
    CLI_TEXT,  /* const char *, into argv */
    CLI_TEXTS, /* struct cli_texts: each use adds one */
    CLI_IDS,   /* struct phi_ids: token ids separated by blanks or commas; each use adds */
    CLI_CHOICE /* int: one of `names` */
};

struct cli_name {
    const char *name; /* NULL ends the list */
    int value;
};

struct cli_texts {
    const char **data; /* owned; the strings belong to argv */
    size_t n;
};

struct cli_option {
    const char *name; /* with dashes, without the leading two; NULL ends the table */
    char letter;      /* -p; 0 = none */
    enum cli_kind kind;
    size_t offset;        /* of the value in the group's struct */
    const char *initial;  /* the default, read as if it had been typed; NULL = zero, and help says
                             nothing about it */
    const char *argument; /* its name in help: "TEXT" */
    const char *help;
    double min, max;              /* numbers: inclusive; min == max means no limits */
    bool above_min;               /* min itself is out */
    bool human_size;              /* 25.6k = 25600, 1K = 1024; m, M, g, G, t, T likewise */
    const struct cli_name *names; /* CLI_CHOICE; numbers: words that stand for one, may be NULL */
};

struct cli_option_group {
    const char *title;
    const struct cli_option *options;
};

struct cli_option_use {
    const struct cli_option_group *group; /* NULL ends the list */
    size_t offset;                        /* of the group's struct in the command's flags */
};

struct cli_args {
    const struct cli_command *command;
    const char *positional[2];
    int n_positional;
    uint64_t given; /* bit i: the i-th option of the command was on the command line */
};

/* Fills *flags (the command's struct, zeroed by the caller) with defaults and then argv. Returns -1
 * to go on; otherwise the exit code to return at once: --help was printed, or an error was. The
 * caller ends with cli_options_deinit in every case. */
int cli_parse(const struct cli_command *command, int argc, char **argv, void *flags,
              struct cli_args *args);
void cli_options_deinit(const struct cli_command *command, void *flags);

/* Whether the option (full name) was on the command line. */
bool cli_given(const struct cli_args *args, const char *name);

/* Writes the command's help, made from its tables, to standard output; returns the exit code. */
int cli_print_help(const struct cli_command *command);

/* Appends the ids in text: decimal numbers below 2^31 separated by blanks, line ends or commas, in
 * square brackets or not. False when there is anything else; *bad is then the offset. */
bool cli_parse_ids(struct phi_str text, struct phi_ids *out, size_t *bad);

/* The candidate nearest to `typed` by edits, or NULL when none is near enough to be meant. */
const char *cli_nearest(const char *typed, const char *const *candidates, size_t n);

#endif
