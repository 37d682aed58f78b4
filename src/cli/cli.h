/* cli.h: what the sub-commands share: their table, exit codes and the two kinds of error line.
 *
 * A command is a table of options (options.h) and a function. It returns its exit code: 0 for
 * success, 1 for an operating error (file, model, memory, output), 2 for a wrong command line, 130
 * when Ctrl-C ended it. Where the code is a verdict (check-accuracy, align) 1 is a miss and nothing
 * else, and operating errors are 2, too. Every error is one line on standard error. */
#ifndef PHI_CLI_CLI_H
#define PHI_CLI_CLI_H

#include "base/status.h"

enum {
    CLI_OK = 0,
    CLI_FAILED = 1,
    CLI_MISSED = 1,
    CLI_USAGE = 2,
    CLI_NO_VERDICT = 2,
    CLI_INTERRUPTED = 130
};

struct cli_option_use;
struct cli_variable;

struct cli_command {
    const char *name;
    const char *arguments; /* after the name in the usage line: "MODEL -p TEXT | -f FILE | -" */
    const char *summary;   /* one line */
    const char *details;   /* paragraphs for --help, may be NULL */
    const struct cli_option_use *options; /* ends with a zeroed entry */
    const struct cli_variable *variables; /* environment.h; NULL = none */
    bool without_model;                   /* MODEL may be missing */
    int (*run)(int argc, char **argv);    /* argv[0] is the command's name */
};

extern const struct cli_command cli_generate, cli_chat, cli_tokenize, cli_detokenize, cli_template,
    cli_logits, cli_inspect, cli_quantize, cli_serve, cli_check_accuracy, cli_align, cli_run_batch,
    cli_bench;

/* Prints "phidelity: error: <text>" and returns CLI_FAILED. */
int cli_fail(const struct phi_error *err);

/* The same where the exit code is a verdict: returns CLI_NO_VERDICT. */
int cli_fail_to_judge(const struct phi_error *err);

/* Prints "phidelity: error: <command>: <text>; see phidelity <command> --help", returns CLI_USAGE.
 */
int cli_usage_error(const struct cli_command *command, const char *fmt, ...) PHI_PRINTF(2, 3);

#endif
