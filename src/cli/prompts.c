/* prompts.c: see prompts.h. */
#include "cli/prompts.h"
#include "base/file.h"
#include "formats/json.h"

#include <stdio.h>

enum { MAX_FILE_BYTES = 1 << 30, MAX_WHERE = 300 };

/* clang-format off */
#define AT(member) .offset = offsetof(struct cli_prompt_flags, member)
#define TEXT_OPTION                                                                                \
    {.name = "prompt", .brief = "p", .kind = CLI_TEXTS, AT(texts), .argument = "TEXT",            \
     .help = "a prompt"}
#define FILE_OPTION                                                                                \
    {.name = "file", .brief = "f", .kind = CLI_TEXTS, AT(files), .argument = "FILE",              \
     .help = "a file that is one prompt, its bytes as they are; - is standard input"}
#define LINES_OPTION                                                                               \
    {.name = "lines", .kind = CLI_BOOL, AT(lines), .help = "each line of a file is a prompt"}
#define SPECIAL_OPTION                                                                             \
    {.name = "special-tokens", .kind = CLI_BOOL, AT(special_tokens), .initial = "on",              \
     .help = "add what the tokenizer puts around a text, such as a begin token"}

const struct cli_option_group cli_prompt_group = {
    "Prompts",
    (const struct cli_option[]){
        TEXT_OPTION,
        FILE_OPTION,
        {.name = "prompt-token-ids", .kind = CLI_TEXTS, AT(token_ids), .argument = "IDS",
         .help = "a prompt as token ids: \"1 2 3\""},
        LINES_OPTION,
        {.name = "jsonl", .kind = CLI_BOOL, AT(jsonl),
         .help = "each line of a file is a JSON string, or a JSON array of token ids"},
        SPECIAL_OPTION,
        {0},
    },
};

const struct cli_option_group cli_text_prompt_group = {
    "Prompts",
    (const struct cli_option[]){
        TEXT_OPTION,
        FILE_OPTION,
        LINES_OPTION,
        {.name = "jsonl", .kind = CLI_BOOL, AT(jsonl),
         .help = "each line of a file is a JSON string"},
        SPECIAL_OPTION,
        {0},
    },
};
#undef AT
/* clang-format on */

bool cli_has_prompts(const struct cli_args *args, const struct cli_prompt_flags *flags)
{
    return flags->texts.n || flags->files.n || flags->token_ids.n || args->n_positional == 2;
}

enum phi_status cli_lines_each(struct phi_str text, cli_line_fn fn, void *context,
                               struct phi_error *err)
{
    size_t number = 1;
    while (text.n) {
        const char *newline = memchr(text.data, '\n', text.n);
        size_t n = newline ? (size_t)(newline - text.data) : text.n;
        PHI_TRY(fn(context, (struct phi_str){text.data, n}, number++, err));
        n += newline != NULL;
        text.data += n;
        text.n -= n;
    }
    return PHI_OK;
}

static enum phi_status give_ids(struct phi_str text, const char *where, cli_prompt_fn fn,
                                void *context, struct phi_error *err)
{
    struct phi_ids ids = {0};
    size_t bad;
    enum phi_status status;
    if (!cli_parse_ids(text, &ids, &bad))
        status = phi_fail(err, PHI_ERR_INVALID, "%s: not a token id at byte %zu", where, bad);
    else if (ids.failed)
        status = phi_fail_memory(err, where, text.n);
    else
        status = fn(
            context,
            &(struct cli_prompt){.where = where, .is_ids = true, .ids = ids.data, .n_ids = ids.n},
            err);
    phi_ids_deinit(&ids);
    return status;
}

/* The lines of one file on their way to fn. */
struct line_reader {
    const char *path;
    bool jsonl;
    cli_prompt_fn fn;
    void *context;
};

static enum phi_status give_line(void *context, struct phi_str line, size_t number,
                                 struct phi_error *err)
{
    struct line_reader *r = context;
    char where[MAX_WHERE];
    snprintf(where, sizeof where, "%.250s line %zu", r->path, number);
    if (!r->jsonl)
        return r->fn(r->context, &(struct cli_prompt){.where = where, .text = line}, err);
    json_t *value;
    PHI_TRY(phi_json_parse(line, where, &value, err));
    enum phi_status status;
    if (json_is_array(value))
        status = give_ids(line, where, r->fn, r->context, err);
    else if (json_is_string(value))
        status = r->fn(r->context,
                       &(struct cli_prompt){.where = where, .text = phi_json_str(value)}, err);
    else
        status = phi_fail(err, PHI_ERR_FORMAT, "%s: expected a JSON string or an array", where);
    json_decref(value);
    return status;
}

static enum phi_status give_file(const struct cli_prompt_flags *flags, const char *path,
                                 cli_prompt_fn fn, void *context, struct phi_error *err)
{
    struct phi_buf text = {0};
    struct line_reader reader = {path, flags->jsonl, fn, context};
    enum phi_status status = phi_file_read(path, MAX_FILE_BYTES, &text, err);
    if (status == PHI_OK && (flags->lines || flags->jsonl))
        status = cli_lines_each(phi_buf_str(&text), give_line, &reader, err);
    else if (status == PHI_OK)
        status = fn(context, &(struct cli_prompt){.where = path, .text = phi_buf_str(&text)}, err);
    phi_buf_deinit(&text);
    return status;
}

enum phi_status cli_prompts_each(const struct cli_args *args, const struct cli_prompt_flags *flags,
                                 cli_prompt_fn fn, void *context, struct phi_error *err)
{
    for (size_t i = 0; i < flags->texts.n; i++) {
        struct cli_prompt prompt = {.where = "--prompt",
                                    .text = phi_str_from(flags->texts.data[i])};
        PHI_TRY(fn(context, &prompt, err));
    }
    for (size_t i = 0; i < flags->token_ids.n; i++)
        PHI_TRY(give_ids(phi_str_from(flags->token_ids.data[i]), "--prompt-token-ids", fn, context,
                         err));
    for (size_t i = 0; i < flags->files.n; i++)
        PHI_TRY(give_file(flags, flags->files.data[i], fn, context, err));
    if (args->n_positional == 2)
        PHI_TRY(give_file(flags, "-", fn, context, err));
    return PHI_OK;
}

enum phi_status cli_prompt_ids(const struct phi_model *model, const struct cli_prompt *prompt,
                               bool special_tokens, struct phi_ids *out, struct phi_error *err)
{
    if (prompt->is_ids) {
        phi_ids_append_n(out, prompt->ids, prompt->n_ids);
    } else {
        struct phi_text text = {prompt->text.data, prompt->text.n};
        int32_t *ids = NULL;
        size_t n = 0;
        enum phi_status status = phi_tokenize(model, text, special_tokens, &ids, &n, err);
        if (status != PHI_OK)
            return phi_fail_prefix(err, status, "%s", prompt->where);
        phi_ids_append_n(out, ids, n);
        phi_mem_free(ids);
    }
    return out->failed ? phi_fail_memory(err, "prompt ids", out->n * sizeof(int32_t)) : PHI_OK;
}
