/* cmd_throughput.c: phidelity bench throughput: many prompts at once, through the engine alone. */
#include "cli/bench/batch.h"

#include <stdio.h>

struct own_flags {
    int n;
};

struct flags {
    struct own_flags own;
    struct bench_dataset_flags dataset;
    struct bench_engine_flags shared;
};

/* clang-format off */
#define AT(member) .offset = offsetof(struct own_flags, member)
static const struct cli_option_group own_group = {
    "Benchmark",
    (const struct cli_option[]){
        {.name = "n", .kind = CLI_INT, AT(n), .initial = "1", .min = 1, .max = 16384,
         .help = "answers for each prompt"},
        {0},
    },
};
#undef AT
/* clang-format on */

static int run(int argc, char **argv);

const struct cli_command cli_bench_throughput = {
    .name = "bench throughput",
    .arguments = "MODEL [options]",
    .summary = "requests and tokens a second with many prompts at once",
    .details = "All prompts are submitted at the start; answers have the asked number of tokens, "
               "whatever they say.",
    .options =
        (const struct cli_option_use[]){
            {&own_group, offsetof(struct flags, own)},
            {&bench_dataset_group, offsetof(struct flags, dataset)},
            BENCH_SHARED_USES,
            {0},
        },
    .run = run,
};

struct throughput {
    const struct cli_args *args;
    const struct flags *flags;
    struct phi_model *model;
    struct phi_engine *engine;
    struct bench_dataset dataset;
    struct bench_batch batch;
};

static enum phi_status measure(struct throughput *t, struct phi_error *err)
{
    const struct flags *f = t->flags;
    const struct bench_engine_flags *shared = &f->shared;
    uint64_t seed = (uint64_t)shared->model.seed;
    struct phi_engine_options o;
    struct phi_sampling sampling;
    PHI_TRY(cli_open_model(t->args, &shared->common, &shared->model, &t->model, err));
    PHI_TRY(bench_dataset_load(&t->dataset, &f->dataset, seed, t->model, err));
    PHI_TRY(cli_engine_options(t->args, &shared->engine, shared->model.seed,
                               t->dataset.n * (size_t)f->own.n, t->model, &o, err));
    PHI_TRY(phi_engine_create(t->model, &o, &t->engine, err));
    phi_sampling_init(&sampling);
    sampling.n = f->own.n;
    sampling.ignore_eos = true;
    return bench_batch_run(t->engine, t->dataset.data, t->dataset.n, &sampling, &t->batch, err);
}

static int tell(const struct throughput *t)
{
    const char *path = t->flags->shared.own.output_json;
    const struct bench_batch *b = &t->batch;
    struct cli_out out;
    struct phi_error err;
    size_t n_tokens = b->n_prompt_tokens + b->n_output_tokens;
    double requests_s = (double)t->dataset.n / b->seconds;
    double tokens_s = (double)n_tokens / b->seconds;
    double output_s = (double)b->n_output_tokens / b->seconds;
    cli_out_init(&out);
    cli_out_printf(&out,
                   "Throughput: %.2f requests/s, %.2f total tokens/s, %.2f output tokens/s\n"
                   "Total num prompt tokens:  %zu\nTotal num output tokens:  %zu\n",
                   requests_s, tokens_s, output_s, b->n_prompt_tokens, b->n_output_tokens);
    int status = cli_out_finish(&out, CLI_OK);
    if (!path)
        return status;
    json_t *results = json_pack(
        "{s:f, s:I, s:I, s:f, s:f, s:f}", "elapsed_time", b->seconds, "num_requests",
        (json_int_t)t->dataset.n, "total_num_tokens", (json_int_t)n_tokens, "requests_per_second",
        requests_s, "tokens_per_second", tokens_s, "output_tokens_per_second", output_s);
    return bench_save_json(results, path, false, &err) == PHI_OK ? status : cli_fail(&err);
}

static int throughput(const struct cli_args *args, const struct flags *flags)
{
    struct throughput t = {.args = args, .flags = flags};
    struct phi_error err;
    int status = measure(&t, &err) == PHI_OK ? tell(&t) : cli_fail(&err);
    bench_dataset_deinit(&t.dataset);
    phi_engine_destroy(t.engine);
    phi_model_close(t.model);
    return status;
}

static int run(int argc, char **argv)
{
    struct flags flags = {0};
    struct cli_args args;
    int status = cli_parse(&cli_bench_throughput, argc, argv, &flags, &args);
    if (status < 0 && args.n_positional == 2)
        status =
            cli_usage_error(&cli_bench_throughput, "unexpected argument '%s'", args.positional[1]);
    if (status < 0)
        status = throughput(&args, &flags);
    cli_options_deinit(&args, &flags);
    return status;
}
