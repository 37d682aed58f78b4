/* cmd_detokenize.c: phidelity detokenize: token ids to text. */
#include "base/file.h"
#include "cli/flags.h"
#include "cli/json_text.h"
#include "cli/prompts.h"

#include <jansson.h>
#include <string.h>

struct own_flags {
    struct cli_texts tokens, files;
    bool jsonl, skip_special_tokens;
};

struct flags {
    struct own_flags own;
    struct cli_common_flags common;
};

/* clang-format off */
static const struct cli_option_group own_group = {
    "Ids",
    (const struct cli_option[]){
        {.name = "tokens", .kind = CLI_TEXTS, .offset = offsetof(struct own_flags, tokens),
         .argument = "IDS", .help = "token ids: \"1 2 3\""},
        {.name = "file", .brief = "f", .kind = CLI_TEXTS,
         .offset = offsetof(struct own_flags, files), .argument = "FILE",
         .help = "a file; each of its lines is one list of ids; - is standard input"},
        {.name = "skip-special-tokens", .kind = CLI_BOOL,
         .offset = offsetof(struct own_flags, skip_special_tokens),
         .help = "leave control tokens out"},
        {.name = "jsonl", .kind = CLI_BOOL, .offset = offsetof(struct own_flags, jsonl),
         .help = "print each text as a JSON string, so that it keeps to its line"},
        {0},
    },
};
/* clang-format on */

static int run(int argc, char **argv);

const struct cli_command cli_detokenize = {
    .name = "detokenize",
    .arguments = "MODEL (--tokens IDS | -f FILE | -) [options]",
    .summary = "prints the text of token ids",
    .details = "Each list of ids gives one text, ended by a line end. Needs no weights.",
    .options =
        (const struct cli_option_use[]){
            {&own_group, offsetof(struct flags, own)},
            {&cli_common_group, offsetof(struct flags, common)},
            {0},
        },
    .run = run,
};

struct detokenizing {
    const struct phi_model *model;
    const struct own_flags *flags;
    const char *where; /* the file of the lines */
    struct phi_ids ids;
    struct cli_out out;
};

static void print_text(struct detokenizing *d, struct phi_str text)
{
    if (d->flags->jsonl) {
        cli_out_json(&d->out, json_stringn(text.data, text.n), JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
    } else {
        cli_out_write(&d->out, text);
        cli_out_write(&d->out, PHI_STR("\n"));
    }
}

static enum phi_status print_line(void *context, struct phi_str line, size_t number,
                                  struct phi_error *err)
{
    struct detokenizing *d = context;
    char *text = NULL;
    size_t n = 0, bad = 0;
    d->ids.n = 0;
    if (!cli_parse_ids(line, &d->ids, &bad))
        return phi_fail(err, PHI_ERR_INVALID, "%s line %zu: not a token id at byte %zu", d->where,
                        number, bad);
    if (d->ids.failed)
        return phi_fail_memory(err, "token ids", line.n);
    PHI_TRY(phi_detokenize(d->model, d->ids.data, d->ids.n, d->flags->skip_special_tokens, &text,
                           &n, err));
    print_text(d, (struct phi_str){text, n});
    phi_mem_free(text);
    return PHI_OK;
}

static enum phi_status print_file(struct detokenizing *d, const char *path, struct phi_error *err)
{
    enum { MAX_FILE_BYTES = 1 << 30 };
    struct phi_buf text = {0};
    d->where = path;
    enum phi_status status = phi_file_read(path, MAX_FILE_BYTES, &text, err);
    if (status == PHI_OK)
        status = cli_lines_each(phi_buf_str(&text), print_line, d, err);
    phi_buf_deinit(&text);
    return status;
}

static enum phi_status print_all(struct detokenizing *d, const struct cli_args *args,
                                 struct phi_error *err)
{
    d->where = "--tokens";
    for (size_t i = 0; i < d->flags->tokens.n; i++)
        PHI_TRY(print_line(d, phi_str_from(d->flags->tokens.data[i]), i + 1, err));
    for (size_t i = 0; i < d->flags->files.n; i++)
        PHI_TRY(print_file(d, d->flags->files.data[i], err));
    return args->n_positional == 2 ? print_file(d, "-", err) : PHI_OK;
}

static int detokenize(const struct cli_args *args, const struct flags *flags)
{
    struct detokenizing d = {.flags = &flags->own};
    struct phi_model *model = NULL;
    struct phi_error err;
    cli_out_init(&d.out);
    enum phi_status status = cli_open_model(args, &flags->common, NULL, &model, &err);
    d.model = model;
    if (status == PHI_OK)
        status = print_all(&d, args, &err);
    int code = cli_out_finish(&d.out, status == PHI_OK ? CLI_OK : cli_fail(&err));
    phi_ids_deinit(&d.ids);
    phi_model_close(model);
    return code;
}

static int run(int argc, char **argv)
{
    struct flags flags = {0};
    struct cli_args args;
    int status = cli_parse(&cli_detokenize, argc, argv, &flags, &args);
    if (status < 0 && args.n_positional == 2 && strcmp(args.positional[1], "-") != 0)
        status = cli_usage_error(&cli_detokenize, "unexpected argument '%s'", args.positional[1]);
    else if (status < 0 && !flags.own.tokens.n && !flags.own.files.n && args.n_positional == 1)
        status = cli_usage_error(&cli_detokenize, "ids are missing: --tokens IDS, -f FILE or -");
    else if (status < 0)
        status = detokenize(&args, &flags);
    cli_options_deinit(&args, &flags);
    return status;
}
