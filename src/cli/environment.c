/* environment.c: see environment.h. */
#include "cli/environment.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

/* The variable's value; NULL when it is not set or empty. */
static const char *look_up(char **env, const char *name)
{
    size_t n = name ? strlen(name) : 0;
    for (; n > 0 && *env; env++)
        if (strncmp(*env, name, n) == 0 && (*env)[n] == '=' && (*env)[n + 1] != '\0')
            return *env + n + 1;
    return NULL;
}

/* "4" -> "4G", which a human size reads as GiB. NULL with a phrase in why. */
static const char *in_gibibytes(struct cli_args *args, const char *value, char *why)
{
    char text[32];
    size_t n = strlen(value);
    if (n > 9 || value[strspn(value, "0123456789")] != '\0') {
        snprintf(why, CLI_WHY_SIZE, "must be a whole number of GiB, not '%.60s'", value);
        return NULL;
    }
    snprintf(text, sizeof text, "%sG", value);
    const char *kept = phi_arena_dup(&args->texts, phi_str_from(text)).data;
    if (!kept)
        snprintf(why, CLI_WHY_SIZE, "needs more memory than there is");
    return kept;
}

static bool set_from(const struct cli_variable *v, const struct cli_found *f, const char *value,
                     struct cli_args *args, void *flags, char *why)
{
    if (v->gibibytes && value[strspn(value, "0")] == '\0')
        return true;
    if (v->gibibytes)
        value = in_gibibytes(args, value, why);
    return value && cli_set_option(f, args, flags, value, why);
}

int cli_environment_read(const struct cli_variable *variables, char **env, struct cli_args *args,
                         void *flags)
{
    char why[CLI_WHY_SIZE];
    struct cli_found f;
    for (const struct cli_variable *v = variables; v->name; v++) {
        const char *name = look_up(env, v->own_name) ? v->own_name : v->name;
        const char *value = look_up(env, name);
        if (!value || !v->option || !cli_find_option(args->command, v->option, &f) ||
            cli_is_given(args, &f))
            continue;
        if (!set_from(v, &f, value, args, flags, why))
            return cli_usage_error(args->command, "the environment's %s %s", name, why);
    }
    return -1;
}

static const struct cli_variable *find(const struct cli_variable *variables, const char *name,
                                       size_t n)
{
    for (const struct cli_variable *v = variables; v->name; v++)
        if (strlen(v->name) == n && strncmp(v->name, name, n) == 0)
            return v;
    return NULL;
}

void cli_environment_log(const struct cli_variable *variables, char **env)
{
    for (; *env; env++) {
        size_t n = strcspn(*env, "=");
        if (strncmp(*env, "VLLM_", 5) != 0 || (*env)[n] == '\0')
            continue;
        const struct cli_variable *v = find(variables, *env, n);
        if (!v)
            phi_log(PHI_LOG_WARNING, "unknown environment variable %.*s has no effect", (int)n,
                    *env);
        else if (!v->option)
            phi_log(PHI_LOG_INFO, "the environment's %s has no effect here: %s", v->name, v->help);
    }
}
