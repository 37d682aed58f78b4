/* cmd_quantize.c: phidelity quantize: a checkpoint's weights as integers, in a folder of its own.
 */
#include "cli/flags.h"

struct own_flags {
    int scheme; /* enum phi_quantization */
    int quant_group_size, threads;
    bool quantize_lm_head;
};

struct flags {
    struct own_flags own;
    struct cli_common_flags common;
};

static const struct cli_name scheme_names[] = {
    {"w8a8", PHI_W8A8},
    {"w4a16", PHI_W4A8},
    {"w4a8", PHI_W4A8},
    {NULL, 0},
};

/* clang-format off */
#define AT(member) .offset = offsetof(struct own_flags, member)
static const struct cli_option_group own_group = {
    "Quantisation",
    (const struct cli_option[]){
        {.name = "scheme", .kind = CLI_CHOICE, AT(scheme), .argument = "S", .initial = "w8a8",
         .names = scheme_names,
         .help = "w8a8: 8-bit weights, one scale a row; w4a16: 4-bit weights in groups, which run "
                 "here with 8-bit activations"},
        {.name = "quant-group-size", .kind = CLI_INT, AT(quant_group_size), .initial = "0",
         .max = 65536,
         .help = "of w4a16: weights that share a scale, a multiple of 32; 0 takes 128, 64 or 32"},
        {.name = "quantize-lm-head", .kind = CLI_BOOL, AT(quantize_lm_head),
         .help = "make the output head 8-bit too, with a matrix of its own where it is the "
                 "embedding; not every reader knows such heads"},
        {.name = "threads", .kind = CLI_INT, AT(threads), .initial = "0", .max = 1024,
         .help = "threads that compute; 0 takes one for each physical core"},
        {0},
    },
};
#undef AT
/* clang-format on */

static int run(int argc, char **argv);

const struct cli_command cli_quantize = {
    .name = "quantize",
    .arguments = "MODEL OUT --scheme w8a8|w4a16 [options]",
    .summary = "writes a checkpoint folder with integer weights, which opens at once",
    .details =
        "OUT is made. It has the compressed-tensors layout, which vLLM and transformers read "
        "too.",
    .options =
        (const struct cli_option_use[]){
            {&own_group, offsetof(struct flags, own)},
            {&cli_common_group, offsetof(struct flags, common)},
            {0},
        },
    .run = run,
};

static enum phi_status quantize(const struct cli_args *args, const struct flags *flags,
                                struct phi_error *err)
{
    struct phi_model *model;
    const struct cli_model_flags open = {
        .dtype = PHI_AUTO,
        .quantization = flags->own.scheme,
        .quant_group_size = flags->own.quant_group_size,
        .quantize_lm_head = flags->own.quantize_lm_head,
        .threads = flags->own.threads,
    };
    PHI_TRY(cli_open_model(args, &flags->common, &open, &model, err));
    enum phi_status status = phi_model_write_quantized(model, args->positional[1], err);
    phi_model_close(model);
    return status;
}

static int run(int argc, char **argv)
{
    struct flags flags = {0};
    struct cli_args args;
    int code = cli_parse(&cli_quantize, argc, argv, &flags, &args);
    if (code < 0 && args.n_positional < 2)
        code = cli_usage_error(&cli_quantize, "OUT, the folder to write, is missing");
    if (code < 0) {
        struct phi_error err;
        code = quantize(&args, &flags, &err) == PHI_OK ? CLI_OK : cli_fail(&err);
    }
    cli_options_deinit(&args, &flags);
    return code;
}
