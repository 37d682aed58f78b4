/* cmd_check_accuracy.c: phidelity check-accuracy: a model's logits against those that transformers
 * gave on another day, perhaps on another machine. */
#include "cli/accuracy/accuracy.h"
#include "cli/flags.h"

struct own_flags {
    const char *reference, *html;
    struct accuracy_limits limits;
    double layer_limit;
    bool json, locate;
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
    "Comparison",
    (const struct cli_option[]){
        {.name = "reference", .brief = "r", .kind = CLI_TEXT, AT(reference), .argument = "FILE",
         .help = "the right logits, as `python -m phidelity.reference` or `phidelity logits` wrote "
                 "them"},
        {.name = "min-top1", .kind = CLI_REAL, AT(limits.top1), .argument = "PERCENT",
         .initial = "99", .max = 100,
         .help = "positions whose likeliest token must be the reference's"},
        {.name = "min-cosine", .kind = CLI_REAL, AT(limits.cosine), .argument = "X",
         .initial = "0.99", .min = -1, .max = 1, .help = "cosine of the logits, at every position"},
        {.name = "max-kl", .kind = CLI_REAL, AT(limits.kl), .argument = "X", .initial = "0.01",
         .max = 1e9, .help = "divergence from the reference's distribution, at every position"},
        {.name = "locate", .kind = CLI_BOOL, AT(locate),
         .help = "also compare what each layer gives, and name the first that leaves the "
                 "reference, which is a miss too; the file needs --layers"},
        {.name = "max-layer-difference", .kind = CLI_REAL, AT(layer_limit), .argument = "X",
         .initial = "0", .max = 1e9,
         .help = "relative difference beyond which a layer has left the reference; 0 takes 1e-4 for "
                 "float32, 0.03 for shorter floats, 0.15 for w8a8 and 0.6 for w4a8"},
        {0},
    },
};

static const struct cli_option_group output_group = {
    "Output",
    (const struct cli_option[]){
        {.name = "json", .kind = CLI_BOOL, AT(json),
         .help = "print one JSON object, with the numbers of every position"},
        {.name = "html", .kind = CLI_TEXT, AT(html), .argument = "FILE",
         .help = "also write a page with verdict, numbers and plots"},
        {0},
    },
};
#undef AT
/* clang-format on */

static int run(int argc, char **argv);

const struct cli_command cli_check_accuracy = {
    .name = "check-accuracy",
    .arguments = "MODEL --reference FILE [options]",
    .summary = "compares a model's logits with those of a reference",
    .details =
        "Exit code 0 when all limits are kept, 1 when one is missed, 2 when that could not be "
        "told.\ndocs/ACCURACY.md says how to make the reference and how to read the numbers.",
    .options =
        (const struct cli_option_use[]){
            {&own_group, offsetof(struct flags, own)},
            {&output_group, offsetof(struct flags, own)},
            {&cli_model_group, offsetof(struct flags, model)},
            {&cli_engine_group, offsetof(struct flags, engine)},
            {&cli_common_group, offsetof(struct flags, common)},
            {0},
        },
    .run = run,
};

static enum phi_status open_reference(struct accuracy *a, const char *path, struct phi_error *err)
{
    PHI_TRY(reference_open(&a->reference, path, (size_t)a->info.vocab_size, err));
    if (a->reference.n_longest > (size_t)a->info.max_position_embeddings)
        return phi_fail(
            err, PHI_ERR_TOO_LONG,
            "%s: a prompt has %zu tokens, which is more than this model's context of %d", path,
            a->reference.n_longest, a->info.max_position_embeddings);
    return PHI_OK;
}

/* Above what right models show: a few 1e-6 in float32, 1e-3 in shorter floats, 0.05 and 0.3 with 8
 * and 4 bits. */
static double usual_limit(const struct phi_model_info *m)
{
    switch (m->quantization) {
    case PHI_W8A8:
        return 0.15;
    case PHI_W4A8:
        return 0.6;
    default:
        return m->dtype == PHI_FLOAT32 ? 1e-4 : 0.03;
    }
}

static enum phi_status start_locating(struct accuracy *a, const struct own_flags *flags,
                                      struct locate *locate, struct phi_error *err)
{
    const struct phi_model_info *m = &a->info;
    int n_widest = m->vocab_size > m->hidden_size ? m->vocab_size : m->hidden_size;
    double limit = flags->layer_limit > 0 ? flags->layer_limit : usual_limit(m);
    if (!a->reference.has_layers)
        return phi_fail(err, PHI_ERR_INVALID,
                        "%s: holds no layers: --locate needs a reference written with --layers",
                        a->reference.path);
    a->locate = locate;
    return locate_init(locate, &a->reference, m->n_layers, (size_t)n_widest, limit, err);
}

static enum phi_status measure(const struct cli_args *args, const struct flags *flags,
                               struct accuracy *a, struct locate *locate, struct phi_error *err)
{
    struct phi_model *model = NULL;
    struct phi_engine *engine = NULL;
    struct phi_engine_options o;
    enum phi_status status = cli_open_model(args, &flags->common, &flags->model, &model, err);
    if (status == PHI_OK) {
        phi_model_get_info(model, &a->info);
        status = open_reference(a, flags->own.reference, err);
        if (status == PHI_OK && flags->own.locate)
            status = start_locating(a, &flags->own, locate, err);
    }
    if (status == PHI_OK)
        status = cli_engine_options(args, &flags->engine, flags->model.seed, 1, model, &o, err);
    if (status == PHI_OK && !cli_given(args, "max-model-len"))
        o.max_model_len = (int)a->reference.n_longest;
    if (status == PHI_OK)
        status = phi_engine_create(model, &o, &engine, err);
    if (status == PHI_OK)
        status = accuracy_measure(a, engine, err);
    phi_engine_destroy(engine);
    phi_model_close(model);
    return status;
}

static int report(const struct accuracy *a, const struct own_flags *flags)
{
    struct cli_out out;
    struct phi_error err;
    int code = accuracy_passes(a) ? CLI_OK : CLI_MISSED;
    cli_out_init(&out);
    if (flags->json)
        accuracy_print_json(a, &out);
    else
        accuracy_print_table(a, &out);
    if (flags->html && accuracy_write_page(a, flags->html, &err) != PHI_OK)
        code = cli_fail_to_judge(&err);
    return cli_out_finish(&out, CLI_OK) == CLI_OK ? code : CLI_NO_VERDICT;
}

static int run(int argc, char **argv)
{
    struct flags flags = {0};
    struct cli_args args;
    struct phi_error err;
    int code = cli_parse(&cli_check_accuracy, argc, argv, &flags, &args);
    if (code >= 0)
        ;
    else if (args.n_positional == 2)
        code = cli_usage_error(&cli_check_accuracy, "unexpected argument '%s'", args.positional[1]);
    else if (!flags.own.reference)
        code = cli_usage_error(&cli_check_accuracy, "--reference FILE is missing");
    if (code < 0) {
        struct accuracy a = {.model = args.positional[0], .limits = flags.own.limits};
        struct locate locate = {0};
        code = measure(&args, &flags, &a, &locate, &err) == PHI_OK ? report(&a, &flags.own)
                                                                   : cli_fail_to_judge(&err);
        locate_deinit(&locate);
        accuracy_deinit(&a);
    }
    cli_options_deinit(&args, &flags);
    return code;
}
