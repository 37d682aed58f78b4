/* cmd_chat.c: phidelity chat: a conversation. Each turn renders the whole history through the
 * model's chat template and submits it as one request.
 *
 * Standard output holds the answers and nothing else, each ended by a line end; the prompt sign and
 * remarks go to standard error, and only when someone is typing. So
 *     printf 'What is 2 plus 2?\nAnd plus 3?\n' | phidelity chat MODEL
 * prints two lines. Ctrl-C stops an answer; once more, at the prompt, it leaves. */
#include "cli/flags.h"
#include "cli/follow.h"
#include "cli/json_text.h"
#include "cli/line_reader.h"

#include <jansson.h>
#include <stdio.h>
#include <unistd.h>

struct own_flags {
    const char *system, *prompt;
    bool stats;
};

struct flags {
    struct own_flags own;
    struct cli_sampling_flags sampling;
    struct cli_model_flags model;
    struct cli_engine_flags engine;
    struct cli_common_flags common;
};

/* clang-format off */
#define AT(member) .offset = offsetof(struct own_flags, member)
static const struct cli_option_group own_group = {
    "Chat",
    (const struct cli_option[]){
        {.name = "system", .kind = CLI_TEXT, AT(system), .argument = "TEXT",
         .help = "the system message"},
        {.name = "prompt", .brief = "p", .kind = CLI_TEXT, AT(prompt), .argument = "TEXT",
         .help = "say this, print the answer and leave"},
        {.name = "stats", .kind = CLI_BOOL, AT(stats),
         .help = "a line on standard error after each answer"},
        {0},
    },
};
#undef AT
/* clang-format on */

static int run(int argc, char **argv);

const struct cli_command cli_chat = {
    .name = "chat",
    .arguments = "MODEL [options]",
    .summary = "talks with a chat model",
    .details = "Each line of standard input is a turn. /reset forgets the conversation, /exit or "
               "the end of\n"
               "input leaves. Ctrl-C stops an answer; once more, at the prompt, it leaves.",
    .options =
        (const struct cli_option_use[]){
            {&own_group, offsetof(struct flags, own)},
            {&cli_sampling_group, offsetof(struct flags, sampling)},
            {&cli_model_group, offsetof(struct flags, model)},
            {&cli_engine_group, offsetof(struct flags, engine)},
            {&cli_common_group, offsetof(struct flags, common)},
            {0},
        },
    .run = run,
};

struct chat {
    const struct flags *flags;
    struct phi_model *model;
    struct phi_engine *engine;
    struct cli_sampling sampling;
    json_t *messages;
    struct cli_out out;
    struct phi_request *request; /* of the turn under way */
    struct phi_buf answer;       /* of the turn under way */
    enum phi_finish finish;
    struct phi_error *err; /* of the turn under way */
};

/* --------------------------------------------------------------- messages */

static enum phi_status add_message(struct chat *c, const char *role, struct phi_str content,
                                   struct phi_error *err)
{
    json_t *text = json_stringn(content.data, content.n);
    if (!text)
        return phi_fail(err, PHI_ERR_INVALID, "the message is not valid UTF-8");
    json_t *message = json_pack("{s:s, s:o}", "role", role, "content", text);
    if (!message || json_array_append_new(c->messages, message) != 0)
        return phi_fail_memory(err, "messages", content.n);
    return PHI_OK;
}

static void drop_last_message(struct chat *c)
{
    json_array_remove(c->messages, json_array_size(c->messages) - 1);
}

static enum phi_status reset(struct chat *c, struct phi_error *err)
{
    json_array_clear(c->messages);
    if (!c->flags->own.system)
        return PHI_OK;
    return add_message(c, "system", phi_str_from(c->flags->own.system), err);
}

/* --------------------------------------------------------------- one turn */

static void on_event(void *context, const struct phi_event *ev)
{
    struct chat *c = context;
    phi_buf_append(&c->answer, ev->text.data, ev->text.n);
    cli_out_write(&c->out, (struct phi_str){ev->text.data, ev->text.n});
    cli_out_flush(&c->out);
    c->finish = ev->finish;
    if (ev->finish == PHI_FINISH_ERROR)
        phi_fail(c->err, ev->status, "%s", ev->error);
    if (c->out.error)
        phi_request_cancel(c->request);
}

/* The history as the ids that the model sees. */
static enum phi_status prompt_ids(const struct chat *c, int32_t **ids, size_t *n,
                                  struct phi_error *err)
{
    char *text = NULL;
    size_t n_text = 0;
    enum phi_status status = cli_render_chat(c->model, c->messages, NULL, &text, &n_text, err);
    if (status == PHI_OK)
        status = phi_tokenize(c->model, (struct phi_text){text, n_text}, false, ids, n, err);
    phi_mem_free(text);
    return status;
}

static enum phi_status answer(struct chat *c, struct phi_error *err)
{
    int32_t *ids = NULL;
    size_t n = 0;
    c->err = err;
    c->finish = PHI_FINISH_NONE;
    phi_buf_clear(&c->answer);
    PHI_TRY(prompt_ids(c, &ids, &n, err));
    enum phi_status status =
        phi_request_submit(c->engine, ids, n, &c->sampling.params, NULL, &c->request, err);
    phi_mem_free(ids);
    PHI_TRY(status);
    cli_follow(c->request, on_event, c);
    cli_out_write(&c->out, PHI_STR("\n"));
    cli_out_flush(&c->out);
    if (c->flags->own.stats)
        cli_print_stats(c->request, c->finish);
    phi_request_release(c->request);
    c->request = NULL;
    return c->finish == PHI_FINISH_ERROR ? err->code : PHI_OK;
}

/* A failed turn is forgotten, so that the conversation can go on without it. */
static enum phi_status take_turn(struct chat *c, struct phi_str line, struct phi_error *err)
{
    PHI_TRY(add_message(c, "user", line, err));
    enum phi_status status = answer(c, err);
    if (status != PHI_OK) {
        drop_last_message(c);
        return status;
    }
    return add_message(c, "assistant", phi_buf_str(&c->answer), err);
}

/* --------------------------------------------------------------- the conversation */

static enum phi_status take_line(struct chat *c, struct phi_str line, struct phi_error *err)
{
    if (line.n == 0)
        return PHI_OK;
    return phi_str_eq_c(line, "/reset") ? reset(c, err) : take_turn(c, line, err);
}

/* Reads lines until the end of input, /exit, or Ctrl-C twice in a row. Returns the exit code. */
static int converse(struct chat *c)
{
    bool typing = isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
    struct cli_line_reader reader = {0};
    struct phi_error err;
    int code = CLI_OK;
    int n_interrupts = 0; /* those that have been answered: the next one must not be missed */
    while (!c->out.error) {
        if (typing)
            fprintf(stderr, "> ");
        enum cli_line got = cli_read_line(&reader, n_interrupts, &err);
        if (got == CLI_LINE_INTERRUPTED && (n_interrupts = cli_interrupts()) < 2) {
            fprintf(stderr, "\n(Ctrl-C again or /exit leaves)\n");
            continue;
        }
        if (got == CLI_LINE_FAILED)
            code = cli_fail(&err);
        if (got != CLI_LINE_READ || phi_str_eq_c(phi_buf_str(&reader.line), "/exit"))
            break;
        cli_interrupts_clear();
        enum phi_status status = take_line(c, phi_buf_str(&reader.line), &err);
        if (status != PHI_OK)
            code = cli_fail(&err);
        n_interrupts = cli_interrupts();
    }
    if (typing)
        fprintf(stderr, "\n");
    cli_line_reader_deinit(&reader);
    return typing ? CLI_OK : code;
}

static enum phi_status prepare(struct chat *c, const struct cli_args *args, struct phi_error *err)
{
    const struct flags *flags = c->flags;
    struct phi_model_info info;
    struct phi_engine_options o;
    PHI_TRY(cli_open_model(args, &flags->common, &flags->model, &c->model, err));
    phi_model_get_info(c->model, &info);
    if (!info.has_chat_template)
        return phi_fail(err, PHI_ERR_UNSUPPORTED,
                        "%s: the model has no chat template; give one with --chat-template, or use "
                        "phidelity generate",
                        args->positional[0]);
    PHI_TRY(
        cli_sampling_init(&c->sampling, args, &flags->sampling, flags->model.seed, c->model, err));
    struct phi_sampling plain;
    phi_sampling_init(&plain);
    if (!cli_given(args, "max-tokens") && c->sampling.params.max_tokens == plain.max_tokens)
        c->sampling.params.max_tokens = 0; /* an answer ends by itself; 16 tokens are no answer */
    PHI_TRY(cli_engine_options(args, &flags->engine, flags->model.seed, 1, c->model, &o, err));
    PHI_TRY(phi_engine_create(c->model, &o, &c->engine, err));
    c->messages = json_array();
    return c->messages ? reset(c, err) : phi_fail_memory(err, "messages", 0);
}

static int chat(const struct cli_args *args, const struct flags *flags)
{
    struct chat c = {.flags = flags};
    struct phi_error err;
    int code;
    cli_out_init(&c.out);
    if (prepare(&c, args, &err) != PHI_OK) {
        code = cli_fail(&err);
    } else if (flags->own.prompt) {
        cli_interrupt_catch(true);
        enum phi_status status = take_turn(&c, phi_str_from(flags->own.prompt), &err);
        code = status != PHI_OK ? cli_fail(&err) : cli_interrupts() ? CLI_INTERRUPTED : CLI_OK;
    } else {
        cli_interrupt_catch(false);
        code = converse(&c);
    }
    code = cli_out_finish(&c.out, code);
    phi_buf_deinit(&c.answer);
    json_decref(c.messages);
    cli_sampling_deinit(&c.sampling);
    phi_engine_destroy(c.engine);
    phi_model_close(c.model);
    return code;
}

static int run(int argc, char **argv)
{
    struct flags flags = {0};
    struct cli_args args;
    int code = cli_parse(&cli_chat, argc, argv, &flags, &args);
    if (code < 0 && args.n_positional == 2)
        code = cli_usage_error(&cli_chat, "unexpected argument '%s'", args.positional[1]);
    else if (code < 0 && flags.sampling.n != 1)
        code = cli_usage_error(&cli_chat, "--n must be 1: a conversation has one answer a turn");
    else if (code < 0)
        code = chat(&args, &flags);
    cli_options_deinit(&args, &flags);
    return code;
}
