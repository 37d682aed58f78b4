/* cmd_kernels.c: phidelity bench kernels: bench/kernel_bench.h from the command line. */
#include "bench/kernel_bench.h"
#include "cli/bench/bench.h"

struct flags {
    const char *filter;
    bool all;
    int threads;
};

/* clang-format off */
static const struct cli_option_group own_group = {
    "Benchmark",
    (const struct cli_option[]){
        {.name = "filter", .kind = CLI_TEXT, .offset = offsetof(struct flags, filter),
         .argument = "TEXT",
         .help = "of everything, lines that hold this, as 'avx2 matmul_f32 512x'; one that begins "
                 "with ref takes the reference kernels too, which are slow"},
        {.name = "all", .kind = CLI_BOOL, .offset = offsetof(struct flags, all),
         .help = "everything: all instruction sets and shapes, and matrices on one thread too; ten "
                 "minutes and more"},
        {.name = "threads", .kind = CLI_INT, .offset = offsetof(struct flags, threads),
         .initial = "0", .max = 1024,
         .help = "threads that share a matrix; 0 takes one for each physical core"},
        {0},
    },
};
/* clang-format on */

static int run(int argc, char **argv);

const struct cli_command cli_bench_kernels = {
    .name = "bench kernels",
    .arguments = "[options]",
    .summary = "each kernel's speed and its share of this machine's limits",
    .details = "Without options, in about a minute: the instruction set that the program uses, on "
               "the\nshapes that say most. A line's limits are measured with it.",
    .options = (const struct cli_option_use[]){{&own_group, 0}, {0}},
    .without_model = true,
    .run = run,
};

static int run(int argc, char **argv)
{
    struct flags flags = {0};
    struct cli_args args;
    struct phi_error err;
    int status = cli_parse(&cli_bench_kernels, argc, argv, &flags, &args);
    if (status < 0 && args.n_positional > 0)
        status =
            cli_usage_error(&cli_bench_kernels, "unexpected argument '%s'", args.positional[0]);
    if (status < 0) {
        const struct phi_kernel_bench o = {flags.filter, flags.all, flags.threads};
        bool good = phi_bench_kernels(&o, &err) == PHI_OK;
        status = good ? CLI_OK : cli_fail(&err);
    }
    cli_options_deinit(&args, &flags);
    return status;
}
