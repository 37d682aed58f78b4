/* environment.h: variables of the environment that set options, and those of vLLM's that have no
 * effect here. They count only for what neither the command line nor --config has set. */
#ifndef PHI_CLI_ENVIRONMENT_H
#define PHI_CLI_ENVIRONMENT_H

#include "cli/options.h"

struct cli_variable {
    const char *name;     /* vLLM's name; NULL ends the table */
    const char *own_name; /* ours, which comes first; NULL = none */
    const char *option;   /* the option that it sets; NULL = it has no effect */
    const char *help;     /* its meaning, or why it has no effect */
    bool gibibytes;       /* a whole number of GiB, 0 = as if unset */
};

/* Sets options from `env` ("NAME=value", NULL at the end, like environ). Returns -1 to go on, else
 * the exit code after an error line. */
int cli_environment_read(const struct cli_variable *variables, char **env, struct cli_args *args,
                         void *flags);

/* One log line for each variable that is set and has no effect, and for each VLLM_* that is
 * unknown. */
void cli_environment_log(const struct cli_variable *variables, char **env);

#endif
