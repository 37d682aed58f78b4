/* errors.c: the two kinds of error line; see cli.h. */
#include "cli/cli.h"

#include <stdarg.h>
#include <stdio.h>

int cli_fail(const struct phi_error *err)
{
    fprintf(stderr, "phidelity: error: %s\n", err->text);
    return CLI_FAILED;
}

int cli_fail_to_judge(const struct phi_error *err)
{
    cli_fail(err);
    return CLI_NO_VERDICT;
}

int cli_usage_error(const struct cli_command *command, const char *fmt, ...)
{
    char text[512];
    struct phi_error err;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (command)
        phi_fail(&err, PHI_ERR_INVALID, "%s: %s; see phidelity %s --help", command->name, text,
                 command->name);
    else
        phi_fail(&err, PHI_ERR_INVALID, "%s; see phidelity --help", text);
    cli_fail(&err);
    return CLI_USAGE;
}
