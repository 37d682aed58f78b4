/* cmd_align.c: phidelity align: does a server answer what the model answers here? */
#include "base/alloc.h"
#include "base/size.h"
#include "cli/align/align.h"
#include "cli/child_server.h"
#include "cli/flags.h"

#include <limits.h>

enum { MODE_SHORT = 1, MODE_LONG = 2 };

struct own_flags {
    const char *url, *api_key, *server_model, *prompts, *html;
    int mode, judge, short_tokens, long_tokens, long_prompt, timeout_s;
    struct align_limits limits;
    bool extensions, json;
};

struct flags {
    struct own_flags own;
    struct cli_model_flags model;
    struct cli_engine_flags engine;
    struct cli_common_flags common;
};

static const struct cli_name mode_names[] = {
    {"both", MODE_SHORT | MODE_LONG}, {"short", MODE_SHORT}, {"long", MODE_LONG}, {NULL, 0}};
static const struct cli_name judge_names[] = {{"auto", ALIGN_AUTO},
                                              {"exact", ALIGN_EXACT},
                                              {"strict", ALIGN_STRICT},
                                              {"relaxed", ALIGN_RELAXED},
                                              {NULL, 0}};
static const struct cli_name any_length[] = {{"any", -1}, {NULL, 0}};

/* clang-format off */
#define AT(member) .offset = offsetof(struct own_flags, member)
static const struct cli_option_group server_group = {
    "Server",
    (const struct cli_option[]){
        {.name = "url", .kind = CLI_TEXT, AT(url), .argument = "URL",
         .help = "an OpenAI-compatible server, as http://host:8000; without it, this program "
                 "serves the same model with the same flags on a free port"},
        {.name = "api-key", .kind = CLI_TEXT, AT(api_key), .argument = "KEY", .secret = true,
         .help = "the server's key"},
        {.name = "served-model-name", .kind = CLI_TEXT, AT(server_model), .argument = "NAME",
         .help = "the model's name there (default: the first of /v1/models)"},
        {.name = "extensions", .kind = CLI_BOOL, AT(extensions), .initial = "on",
         .help = "use vLLM's request fields, to compare token ids; without them texts are compared, "
                 "by this model's tokens"},
        {.name = "timeout", .kind = CLI_INT, AT(timeout_s), .argument = "SECONDS",
         .initial = "600", .min = 1, .max = 86400, .help = "of one answer"},
        {0},
    },
};

static const struct cli_option_group prompt_group = {
    "Prompts",
    (const struct cli_option[]){
        {.name = "mode", .kind = CLI_CHOICE, AT(mode), .argument = "M", .initial = "both",
         .names = mode_names,
         .help = "short prompts, long ones (across the length at which LongRoPE changes), or both"},
        {.name = "prompts", .kind = CLI_TEXT, AT(prompts), .argument = "FILE",
         .help = "other short prompts: each line is a JSON string, an array of token ids, or an "
                 "array of chat messages"},
        {.name = "max-tokens", .kind = CLI_INT, AT(short_tokens), .initial = "32", .min = 1,
         .max = 1 << 20, .help = "length of short answers"},
        {.name = "long-max-tokens", .kind = CLI_INT, AT(long_tokens), .initial = "64", .min = 1,
         .max = 1 << 20, .help = "length of answers to long prompts"},
        {.name = "long-prompt-len", .kind = CLI_INT, AT(long_prompt), .initial = "0",
         .max = INT_MAX, .help = "tokens of the long prompt; 0 takes two about LongRoPE's original "
                                 "length, or else one of at most 4096"},
        {0},
    },
};

static const struct cli_option_group judge_group = {
    "Judgement",
    (const struct cli_option[]){
        {.name = "judge", .kind = CLI_CHOICE, AT(judge), .argument = "J", .initial = "auto",
         .names = judge_names,
         .help = "auto is exact for the server started here, and with --url strict for short and "
                 "relaxed for long prompts; exact: every token equal"},
        {.name = "strict-window", .kind = CLI_INT, AT(limits.window), .initial = "32", .min = 1,
         .max = INT_MAX, .help = "strict looks at so many first tokens"},
        {.name = "strict-min-equal", .kind = CLI_INT, AT(limits.min_equal), .initial = "16",
         .max = INT_MAX, .help = "and so many of them, from the first on, must be equal"},
        {.name = "relaxed-min-prefix", .kind = CLI_INT, AT(limits.min_prefix), .initial = "16",
         .max = INT_MAX, .help = "relaxed: so many first tokens must be equal, and"},
        {.name = "relaxed-min-edit", .kind = CLI_REAL, AT(limits.min_edit), .argument = "X",
         .initial = "0.85", .max = 1, .help = "1 - edit distance / length must reach this, or"},
        {.name = "relaxed-min-rouge", .kind = CLI_REAL, AT(limits.min_rouge), .argument = "X",
         .initial = "0.8", .max = 1, .help = "ROUGE-L must reach this"},
        {.name = "max-length-difference", .kind = CLI_INT, AT(limits.max_length_difference),
         .initial = "any", .min = -1, .max = INT_MAX, .names = any_length,
         .help = "tokens by which the lengths may differ"},
        {0},
    },
};

static const struct cli_option_group output_group = {
    "Output",
    (const struct cli_option[]){
        {.name = "json", .kind = CLI_BOOL, AT(json), .help = "print one JSON object"},
        {.name = "html", .kind = CLI_TEXT, AT(html), .argument = "FILE",
         .help = "also write a page with verdict and both answers"},
        {0},
    },
};
#undef AT
/* clang-format on */

static int run(int argc, char **argv);

const struct cli_command cli_align = {
    .name = "align",
    .arguments = "MODEL [--url URL] [options]",
    .summary = "compares a server's answers with the model's own",
    .details = "Every prompt is answered greedily twice: by the engine in this process, and by a "
               "server over HTTP.\nExit code 0 when all answers agree, 1 when one does not, 2 when "
               "that could not be told.",
    .options =
        (const struct cli_option_use[]){
            {&server_group, offsetof(struct flags, own)},
            {&prompt_group, offsetof(struct flags, own)},
            {&judge_group, offsetof(struct flags, own)},
            {&output_group, offsetof(struct flags, own)},
            {&cli_model_group, offsetof(struct flags, model)},
            {&cli_engine_group, offsetof(struct flags, engine)},
            {&cli_common_group, offsetof(struct flags, common)},
            {0},
        },
    .run = run,
};

/* All that lives while the command runs. */
struct session {
    const struct cli_args *args;
    struct flags *flags;
    struct align align;
    struct child_server child;
    struct http_client client;
    json_t *models; /* the answer of /v1/models, which holds the name */
};

static void set_judges(struct align *a, const struct own_flags *own)
{
    bool is_ours = own->url == NULL;
    a->short_judge = a->long_judge = (enum align_judge)own->judge;
    if (own->judge == ALIGN_AUTO) {
        a->short_judge = is_ours ? ALIGN_EXACT : ALIGN_STRICT;
        a->long_judge = is_ours ? ALIGN_EXACT : ALIGN_RELAXED;
    }
}

static enum phi_status prepare(struct session *s, struct phi_error *err)
{
    struct align *a = &s->align;
    const struct own_flags *own = &s->flags->own;
    struct phi_engine_options o;
    struct align_plan plan = {
        .with_short = own->mode & MODE_SHORT,
        .with_long = own->mode & MODE_LONG,
        .short_tokens = own->short_tokens,
        .long_tokens = own->long_tokens,
        .long_prompt = own->long_prompt,
        .prompts = own->prompts,
    };
    PHI_TRY(cli_open_model(s->args, &s->flags->common, &s->flags->model, &a->m, err));
    PHI_TRY(cli_engine_options(s->args, &s->flags->engine, s->flags->model.seed, 1, a->m, &o, err));
    if (cli_given(s->args, "max-model-len"))
        plan.max_model_len = o.max_model_len;
    PHI_TRY(align_make_cases(a, &plan, err));
    if (!cli_given(s->args, "max-model-len"))
        o.max_model_len = (int)phi_size_min(align_longest(a), INT_MAX);
    PHI_TRY(phi_engine_create(a->m, &o, &a->e, err));
    if (!own->url)
        PHI_TRY(child_server_start(&s->child, s->args, s->flags, o.max_model_len, err));
    return http_client_init(&s->client, own->url ? own->url : s->child.url, own->api_key,
                            own->timeout_s, err);
}

/* The name that requests carry: as given, or the first that the server has. */
static enum phi_status find_name(struct session *s, struct phi_error *err)
{
    json_error_t ignored;
    s->align.server_model = s->flags->own.server_model;
    if (s->align.server_model)
        return PHI_OK;
    int status = http_client_get(&s->client, "/v1/models", err);
    if (status == 0)
        return PHI_ERR_IO;
    if (status == 200)
        s->models = json_loadb(s->client.body.data, s->client.body.n, 0, &ignored);
    const json_t *first = json_array_get(json_object_get(s->models, "data"), 0);
    s->align.server_model = json_string_value(json_object_get(first, "id"));
    if (!s->align.server_model)
        return phi_fail(err, PHI_ERR_IO,
                        "%s/v1/models: status %d and no model: give "
                        "--served-model-name",
                        s->client.base.data, status);
    return PHI_OK;
}

static enum phi_status ask_all(struct session *s, struct phi_error *err)
{
    struct align *a = &s->align;
    struct cli_progress progress;
    enum phi_status status = PHI_OK;
    cli_progress_init(&progress);
    for (size_t i = 0; status == PHI_OK && i < a->n_cases; i++) {
        struct align_case *c = &a->cases[i];
        cli_progress_show(&progress, "asking", i, a->n_cases);
        status = align_ask_here(a, c, err);
        if (status == PHI_OK)
            status = align_ask_there(a, c, err);
        if (status == PHI_OK)
            status = align_judge(a, c, err);
        else
            phi_fail_prefix(err, status, "prompt %zu", i);
    }
    cli_progress_clear(&progress);
    return status;
}

static int report(const struct align *a, const struct own_flags *own)
{
    struct cli_out out;
    struct phi_error err;
    int code = align_passes(a) ? CLI_OK : CLI_MISSED;
    cli_out_init(&out);
    if (own->json)
        align_print_json(a, &out);
    else
        align_print_table(a, &out);
    if (own->html && align_write_page(a, own->html, &err) != PHI_OK)
        code = cli_fail_to_judge(&err);
    return cli_out_finish(&out, CLI_OK) == CLI_OK ? code : CLI_NO_VERDICT;
}

static int align(const struct cli_args *args, struct flags *flags)
{
    struct phi_error err;
    struct session s = {.args = args, .flags = flags};
    s.align = (struct align){.model = args->positional[0],
                             .client = &s.client,
                             .extensions = flags->own.extensions,
                             .limits = flags->own.limits};
    set_judges(&s.align, &flags->own);
    enum phi_status status = prepare(&s, &err);
    if (status == PHI_OK)
        status = find_name(&s, &err);
    if (status == PHI_OK)
        status = ask_all(&s, &err);
    int code = status == PHI_OK ? report(&s.align, &flags->own) : cli_fail_to_judge(&err);
    http_client_deinit(&s.client);
    child_server_stop(&s.child);
    align_deinit(&s.align);
    phi_engine_destroy(s.align.e);
    phi_model_close(s.align.m);
    json_decref(s.models);
    return code;
}

static int run(int argc, char **argv)
{
    struct flags flags = {0};
    struct cli_args args;
    int code = cli_parse(&cli_align, argc, argv, &flags, &args);
    if (code >= 0)
        ;
    else if (args.n_positional == 2)
        code = cli_usage_error(&cli_align, "unexpected argument '%s'", args.positional[1]);
    else if (flags.own.mode == MODE_LONG && flags.own.prompts)
        code = cli_usage_error(&cli_align, "--prompts are short ones: not with --mode long");
    else
        code = align(&args, &flags);
    cli_options_deinit(&args, &flags);
    return code;
}
