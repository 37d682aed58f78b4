/* main.c: finds the sub-command and runs it. */
#include "cli/options.h"
#include "cli/term.h"

#include <string.h>

static const struct cli_command *const commands[] = {
    &cli_generate,   &cli_chat,     &cli_serve,  &cli_tokenize,
    &cli_detokenize, &cli_template, &cli_logits, &cli_inspect,
    &cli_quantize,   &cli_check_accuracy, &cli_align, &cli_run_batch, &cli_bench,
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static int print_version(void)
{
    struct cli_out out;
    cli_out_init(&out);
    cli_out_printf(&out, "phidelity %s\n", phi_version());
    return cli_out_finish(&out, CLI_OK);
}

static int print_overview(void)
{
    struct cli_out out;
    cli_out_init(&out);
    cli_out_write(&out,
                  PHI_STR("phidelity runs Microsoft's Phi models from a Hugging Face checkpoint "
                          "folder.\n\nusage: phidelity COMMAND MODEL [options]\n\n"));
    for (size_t i = 0; i < N_COMMANDS; i++)
        cli_out_printf(&out, "  %-14s %s\n", commands[i]->name, commands[i]->summary);
    cli_out_write(&out, PHI_STR("\n  phidelity COMMAND --help describes a command and its options\n"
                                "  phidelity --version\n"));
    return cli_out_finish(&out, CLI_OK);
}

static const struct cli_command *find_command(const char *name)
{
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}

static int unknown_command(const char *name)
{
    const char *names[N_COMMANDS];
    for (size_t i = 0; i < N_COMMANDS; i++)
        names[i] = commands[i]->name;
    const char *nearest = cli_nearest(name, names, N_COMMANDS);
    if (nearest)
        return cli_usage_error(NULL, "unknown command '%s' (did you mean %s?)", name, nearest);
    return cli_usage_error(NULL, "unknown command '%s'", name);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return cli_usage_error(NULL, "a command is missing");
    const char *name = argv[1];
    if (strcmp(name, "--version") == 0 || strcmp(name, "version") == 0)
        return print_version();
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 ||
        (strcmp(name, "help") == 0 && argc < 3))
        return print_overview();
    bool only_help = strcmp(name, "help") == 0;
    if (only_help)
        name = argv[2];
    const struct cli_command *command = find_command(name);
    if (!command)
        return unknown_command(name);
    return only_help ? cli_print_help(command) : command->run(argc - 1, argv + 1);
}
