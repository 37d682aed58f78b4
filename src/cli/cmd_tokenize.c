/* cmd_tokenize.c: phidelity tokenize: text to token ids. */
#include "cli/flags.h"
#include "cli/prompts.h"

#include <string.h>

struct flags {
    struct cli_prompt_flags prompts;
    struct cli_common_flags common;
};

static int run(int argc, char **argv);

const struct cli_command cli_tokenize = {
    .name = "tokenize",
    .arguments = "MODEL (-p TEXT | -f FILE | -) [options]",
    .summary = "prints the token ids of texts",
    .details = "Ids are separated by spaces, one output line for each text. Needs no weights.",
    .options =
        (const struct cli_option_use[]){
            {&cli_text_prompt_group, offsetof(struct flags, prompts)},
            {&cli_common_group, offsetof(struct flags, common)},
            {0},
        },
    .run = run,
};

struct tokenizing {
    const struct phi_model *model;
    bool special_tokens;
    struct phi_ids ids;
    struct cli_out out;
};

static enum phi_status print_one(void *context, const struct cli_prompt *prompt,
                                 struct phi_error *err)
{
    struct tokenizing *t = context;
    t->ids.n = 0;
    PHI_TRY(cli_prompt_ids(t->model, prompt, t->special_tokens, &t->ids, err));
    for (size_t i = 0; i < t->ids.n; i++)
        cli_out_printf(&t->out, i ? " %d" : "%d", (int)t->ids.data[i]);
    cli_out_write(&t->out, PHI_STR("\n"));
    return PHI_OK;
}

static int tokenize(const struct cli_args *args, const struct flags *flags)
{
    struct tokenizing t = {.special_tokens = flags->prompts.special_tokens};
    struct phi_model *model = NULL;
    struct phi_error err;
    cli_out_init(&t.out);
    enum phi_status status = cli_open_model(args, &flags->common, NULL, &model, &err);
    t.model = model;
    if (status == PHI_OK)
        status = cli_prompts_each(args, &flags->prompts, print_one, &t, &err);
    int code = cli_out_finish(&t.out, status == PHI_OK ? CLI_OK : cli_fail(&err));
    phi_ids_deinit(&t.ids);
    phi_model_close(model);
    return code;
}

static int run(int argc, char **argv)
{
    struct flags flags = {0};
    struct cli_args args;
    int status = cli_parse(&cli_tokenize, argc, argv, &flags, &args);
    if (status < 0 && args.n_positional == 2 && strcmp(args.positional[1], "-") != 0)
        status = cli_usage_error(&cli_tokenize, "unexpected argument '%s'", args.positional[1]);
    else if (status < 0 && !cli_has_prompts(&args, &flags.prompts))
        status = cli_usage_error(&cli_tokenize, "a text is missing: -p TEXT, -f FILE or -");
    else if (status < 0)
        status = tokenize(&args, &flags);
    cli_options_deinit(&args, &flags);
    return status;
}
