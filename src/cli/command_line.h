/* command_line.h: a command's words become values of its flags. The order of precedence is decided
 * here: the command line, the file of --config, the table. */
#ifndef PHI_CLI_COMMAND_LINE_H
#define PHI_CLI_COMMAND_LINE_H

#include "cli/options.h"

/* Fills *flags (the command's struct, zeroed by the caller) with defaults, argv, and the file of
 * --config where the command has that option. Returns -1 to go on; otherwise the exit code to
 * return at once: --help was printed, or an error was. The caller ends with cli_options_deinit in
 * every case. */
int cli_parse(const struct cli_command *command, int argc, char **argv, void *flags,
              struct cli_args *args);

#endif
