/* values.h: from an option's text to its value, with the reason when it is none. */
#ifndef PHI_CLI_VALUES_H
#define PHI_CLI_VALUES_H

#include "cli/options.h"

/* Stores `text` as the option's value; what must be copied goes to `texts`. False with a phrase in
 * why[CLI_WHY_SIZE] that follows the option's name in an error line. */
bool cli_value_set(const struct cli_option *option, void *value, struct phi_arena *texts,
                   const char *text, char *why);

/* --x.a.b 1: sets one member of a CLI_JSON value, making the objects on the way. `text` is JSON, or
 * a string as it is. */
bool cli_value_set_member(json_t **value, const char *path, const char *text, char *why);

/* Empties a list, so that its next value is its first. Other values are left alone. */
void cli_value_restart(const struct cli_option *option, void *value);

void cli_value_deinit(const struct cli_option *option, void *value);

#endif
