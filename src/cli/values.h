/* values.h: from an option's text to its value, with the reason when it is none. */
#ifndef PHI_CLI_VALUES_H
#define PHI_CLI_VALUES_H

#include "cli/options.h"

enum { CLI_WHY_SIZE = 256 };

/* Stores `text` as the option's value. False with a phrase in why[CLI_WHY_SIZE] that follows the
 * option's name in an error line: "must be from 0 to 2, not 3". */
bool cli_value_set(const struct cli_option *option, void *value, const char *text, char *why);

#endif
