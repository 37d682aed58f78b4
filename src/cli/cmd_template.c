/* cmd_template.c: phidelity template: chat messages to the prompt that the model sees. */
#include "base/file.h"
#include "cli/flags.h"
#include "cli/json_text.h"
#include "formats/json.h"

struct own_flags {
    const char *file, *tools, *template_kwargs;
    bool add_generation_prompt, continue_final_message, print_token_ids;
};

struct flags {
    struct own_flags own;
    struct cli_common_flags common;
};

/* clang-format off */
#define AT(member) .offset = offsetof(struct own_flags, member)
static const struct cli_option_group own_group = {
    "Messages",
    (const struct cli_option[]){
        {.name = "file", .brief = "f", .kind = CLI_TEXT, AT(file), .argument = "FILE",
         .help = "a JSON array of messages ({\"role\", \"content\"}), or an object with `messages` "
                 "and any of the chat API's fields that a template sees; - is standard input"},
        {.name = "tools", .kind = CLI_TEXT, AT(tools), .argument = "FILE",
         .help = "a JSON array of tools"},
        {.name = "chat-template-kwargs", .kind = CLI_TEXT, AT(template_kwargs),
         .argument = "JSON", .help = "an object of further variables for the template"},
        {.name = "add-generation-prompt", .kind = CLI_BOOL, AT(add_generation_prompt),
         .initial = "on", .help = "end with the opening of the model's turn"},
        {.name = "continue-final-message", .kind = CLI_BOOL, AT(continue_final_message),
         .help = "leave the last message open instead"},
        {.name = "print-token-ids", .kind = CLI_BOOL, AT(print_token_ids),
         .help = "print the prompt's token ids instead of its text"},
        {0},
    },
};
#undef AT
/* clang-format on */

static int run(int argc, char **argv);

const struct cli_command cli_template = {
    .name = "template",
    .arguments = "MODEL -f MESSAGES.json [options]",
    .summary = "prints the prompt that chat messages become",
    .details = "The text is printed as it is, with no line end added. Needs no weights.",
    .options =
        (const struct cli_option_use[]){
            {&own_group, offsetof(struct flags, own)},
            {&cli_common_group, offsetof(struct flags, common)},
            {0},
        },
    .run = run,
};

enum { MAX_FILE_BYTES = 1 << 28 };

/* Reads the message file into messages and options: an object's other fields are options as they
 * are. */
static enum phi_status read_messages(const char *path, json_t **messages, json_t *options,
                                     struct phi_error *err)
{
    json_t *root;
    PHI_TRY(phi_json_parse_file(path, MAX_FILE_BYTES, &root, err));
    enum phi_status status = PHI_OK;
    if (json_is_object(root)) {
        *messages = json_incref(json_object_get(root, "messages"));
        json_object_del(root, "messages");
        if (json_object_update(options, root) != 0)
            status = phi_fail_memory(err, path, 0);
    } else {
        *messages = json_incref(root);
    }
    if (!json_is_array(*messages))
        status = phi_fail(err, PHI_ERR_FORMAT, "%s: expected an array of messages", path);
    json_decref(root);
    return status;
}

static enum phi_status read_options(const struct own_flags *flags, const struct cli_args *args,
                                    json_t *options, struct phi_error *err)
{
    json_t *value;
    if (flags->tools) {
        PHI_TRY(phi_json_parse_file(flags->tools, MAX_FILE_BYTES, &value, err));
        json_object_set_new(options, "tools", value);
    }
    if (flags->template_kwargs) {
        PHI_TRY(phi_json_parse(phi_str_from(flags->template_kwargs), "--chat-template-kwargs",
                               &value, err));
        json_object_set_new(options, "chat_template_kwargs", value);
    }
    if (cli_given(args, "add-generation-prompt"))
        json_object_set_new(options, "add_generation_prompt",
                            json_boolean(flags->add_generation_prompt));
    if (cli_given(args, "continue-final-message"))
        json_object_set_new(options, "continue_final_message",
                            json_boolean(flags->continue_final_message));
    return PHI_OK;
}

static enum phi_status print_ids(const struct phi_model *model, struct phi_text text,
                                 struct cli_out *out, struct phi_error *err)
{
    int32_t *ids = NULL;
    size_t n = 0;
    PHI_TRY(phi_tokenize(model, text, false, &ids, &n, err));
    for (size_t i = 0; i < n; i++)
        cli_out_printf(out, i ? " %d" : "%d", (int)ids[i]);
    cli_out_write(out, PHI_STR("\n"));
    phi_mem_free(ids);
    return PHI_OK;
}

static enum phi_status print_rendered(const struct cli_args *args, const struct flags *flags,
                                      const struct phi_model *model, struct cli_out *out,
                                      struct phi_error *err)
{
    json_t *messages = NULL, *options = json_object();
    char *text = NULL;
    size_t n = 0;
    enum phi_status status = read_messages(flags->own.file, &messages, options, err);
    if (status == PHI_OK)
        status = read_options(&flags->own, args, options, err);
    if (status == PHI_OK)
        status = cli_render_chat(model, messages, options, &text, &n, err);
    if (status == PHI_OK && flags->own.print_token_ids)
        status = print_ids(model, (struct phi_text){text, n}, out, err);
    else if (status == PHI_OK)
        cli_out_write(out, (struct phi_str){text, n});
    phi_mem_free(text);
    json_decref(messages);
    json_decref(options);
    return status;
}

static int run(int argc, char **argv)
{
    struct flags flags = {0};
    struct cli_args args;
    struct phi_model *model = NULL;
    struct cli_out out;
    struct phi_error err;
    int code = cli_parse(&cli_template, argc, argv, &flags, &args);
    if (code < 0 && args.n_positional == 2)
        code = cli_usage_error(&cli_template, "unexpected argument '%s'", args.positional[1]);
    else if (code < 0 && !flags.own.file)
        code = cli_usage_error(&cli_template, "messages are missing: -f MESSAGES.json");
    if (code < 0) {
        cli_out_init(&out);
        enum phi_status status = cli_open_model(&args, &flags.common, NULL, &model, &err);
        if (status == PHI_OK)
            status = print_rendered(&args, &flags, model, &out, &err);
        code = cli_out_finish(&out, status == PHI_OK ? CLI_OK : cli_fail(&err));
    }
    phi_model_close(model);
    cli_options_deinit(&args, &flags);
    return code;
}
