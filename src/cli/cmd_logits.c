/* cmd_logits.c: phidelity logits: the logits of every position of one sequence, to a file. */
#include "base/buf.h"
#include "cli/flags.h"
#include "cli/logits_file.h"
#include "cli/prompts.h"

#include <string.h>

struct own_flags {
    struct phi_ids tokens;
    const char *prompt, *file, *out;
    bool special_tokens;
};

struct flags {
    struct own_flags own;
    struct cli_model_flags model;
    struct cli_engine_flags engine;
    struct cli_common_flags common;
};

/* clang-format off */
#define AT(member) .offset = offsetof(struct own_flags, member)
static const struct cli_option_group own_group = {
    "Sequence",
    (const struct cli_option[]){
        {.name = "tokens", .kind = CLI_IDS, AT(tokens), .argument = "IDS",
         .help = "the sequence as token ids: \"1 2 3\""},
        {.name = "prompt", .brief = "p", .kind = CLI_TEXT, AT(prompt), .argument = "TEXT",
         .help = "the sequence as text"},
        {.name = "file", .brief = "f", .kind = CLI_TEXT, AT(file), .argument = "FILE",
         .help = "the sequence as a file of text; - is standard input"},
        {.name = "special-tokens", .kind = CLI_BOOL, AT(special_tokens), .initial = "on",
         .help = "add what the tokenizer puts around a text, such as a begin token"},
        {.name = "out", .brief = "o", .kind = CLI_TEXT, AT(out), .argument = "FILE",
         .help = "the safetensors file to write"},
        {0},
    },
};
#undef AT
/* clang-format on */

static int run(int argc, char **argv);

const struct cli_command cli_logits = {
    .name = "logits",
    .arguments = "MODEL (--tokens IDS | -p TEXT | -f FILE) --out FILE.safetensors [options]",
    .summary = "writes the logits of every position to a safetensors file",
    .details = "The file holds `logits`, float32 [n_tokens, vocab_size], and `input_ids`, int64 "
               "[n_tokens].",
    .options =
        (const struct cli_option_use[]){
            {&own_group, offsetof(struct flags, own)},
            {&cli_model_group, offsetof(struct flags, model)},
            {&cli_engine_group, offsetof(struct flags, engine)},
            {&cli_common_group, offsetof(struct flags, common)},
            {0},
        },
    .run = run,
};

struct writing {
    struct logits_file file;
    struct cli_progress progress;
};

static int write_rows(void *context, size_t first_row, size_t n_rows, const float *logits)
{
    struct writing *w = context;
    if (first_row != w->file.n_rows || !logits_file_append(&w->file, logits, n_rows))
        return 1;
    cli_progress_show(&w->progress, "logits", w->file.n_rows, w->file.n_tokens);
    return 0;
}

static enum phi_status write_logits(struct phi_engine *engine, const struct phi_ids *ids,
                                    size_t vocab_size, const char *path, struct phi_error *err)
{
    struct writing w;
    struct phi_error close_err;
    cli_progress_init(&w.progress);
    PHI_TRY(logits_file_open(&w.file, path, ids->data, ids->n, vocab_size, err));
    enum phi_status status = phi_engine_logits(engine, ids->data, ids->n, write_rows, &w, err);
    cli_progress_clear(&w.progress);
    enum phi_status closed = logits_file_close(&w.file, &close_err);
    bool our_failure = status == PHI_OK || status == PHI_ERR_CANCELLED;
    if (closed != PHI_OK && our_failure) /* the file's own reason says more */
        return phi_fail(err, closed, "%s", close_err.text);
    return status;
}

struct sequence {
    const struct phi_model *model;
    const struct own_flags *flags;
    struct phi_ids ids;
};

static enum phi_status append_text(void *context, const struct cli_prompt *prompt,
                                   struct phi_error *err)
{
    struct sequence *s = context;
    return cli_prompt_ids(s->model, prompt, s->flags->special_tokens, &s->ids, err);
}

static enum phi_status read_sequence(struct sequence *s, const struct cli_args *args,
                                     struct phi_error *err)
{
    const struct own_flags *flags = s->flags;
    struct cli_prompt_flags prompts = {
        .texts = {(const char **)(uintptr_t)&flags->prompt, flags->prompt ? 1 : 0},
        .files = {(const char **)(uintptr_t)&flags->file, flags->file ? 1 : 0},
    };
    phi_ids_append_n(&s->ids, flags->tokens.data, flags->tokens.n);
    return cli_prompts_each(args, &prompts, append_text, s, err);
}

static enum phi_status logits(const struct cli_args *args, const struct flags *flags,
                              struct phi_model **model, struct phi_engine **engine,
                              struct sequence *s, struct phi_error *err)
{
    struct phi_engine_options o;
    struct phi_model_info info;
    PHI_TRY(cli_open_model(args, &flags->common, &flags->model, model, err));
    phi_model_get_info(*model, &info);
    s->model = *model;
    PHI_TRY(read_sequence(s, args, err));
    PHI_TRY(cli_engine_options(args, &flags->engine, flags->model.seed, 1, *model, &o, err));
    PHI_TRY(phi_engine_create(*model, &o, engine, err));
    return write_logits(*engine, &s->ids, (size_t)info.vocab_size, flags->own.out, err);
}

static int run(int argc, char **argv)
{
    struct flags flags = {0};
    struct cli_args args;
    int code = cli_parse(&cli_logits, argc, argv, &flags, &args);
    int n_sources =
        (flags.own.tokens.n > 0) + (flags.own.prompt != NULL) + (flags.own.file != NULL);
    if (code >= 0)
        ;
    else if (args.n_positional == 2)
        code = cli_usage_error(&cli_logits, "unexpected argument '%s'", args.positional[1]);
    else if (n_sources != 1)
        code = cli_usage_error(&cli_logits, "give one of --tokens IDS, -p TEXT and -f FILE");
    else if (!flags.own.out)
        code = cli_usage_error(&cli_logits, "--out FILE is missing");
    if (code < 0) {
        struct phi_model *model = NULL;
        struct phi_engine *engine = NULL;
        struct sequence s = {.flags = &flags.own};
        struct phi_error err;
        enum phi_status status = logits(&args, &flags, &model, &engine, &s, &err);
        code = status == PHI_OK ? CLI_OK : cli_fail(&err);
        phi_ids_deinit(&s.ids);
        phi_engine_destroy(engine);
        phi_model_close(model);
    }
    cli_options_deinit(&args, &flags);
    return code;
}
