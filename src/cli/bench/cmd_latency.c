/* cmd_latency.c: phidelity bench latency: one batch of random prompts from start to end, several
 * times; and how near its two parts come to this machine's limits, which are measured before the
 * first run and after each one, so that a run is compared with the machine as it was around it. */
#include "base/alloc.h"
#include "cli/bench/batch.h"
#include "cli/bench/cost.h"

#include <limits.h>
#include <stdio.h>

struct own_flags {
    int input_len, output_len, batch_size, n, n_warmup, n_iters;
};

struct flags {
    struct own_flags own;
    struct bench_engine_flags shared;
};

/* clang-format off */
#define AT(member) .offset = offsetof(struct own_flags, member)
#define COUNT .kind = CLI_INT, .min = 1, .max = INT_MAX
static const struct cli_option_group own_group = {
    "Benchmark",
    (const struct cli_option[]){
        {.name = "input-len", COUNT, AT(input_len), .initial = "32",
         .help = "tokens of each prompt"},
        {.name = "output-len", COUNT, AT(output_len), .initial = "128",
         .help = "tokens of each answer"},
        {.name = "batch-size", COUNT, AT(batch_size), .initial = "8", .help = "prompts at once"},
        {.name = "n", .kind = CLI_INT, AT(n), .initial = "1", .min = 1, .max = 16384,
         .help = "answers for each prompt"},
        {.name = "num-iters-warmup", .kind = CLI_INT, AT(n_warmup), .initial = "10",
         .max = INT_MAX, .help = "runs before the measured ones"},
        {.name = "num-iters", COUNT, AT(n_iters), .initial = "30", .help = "measured runs"},
        {0},
    },
};
#undef COUNT
#undef AT
/* clang-format on */

static int run(int argc, char **argv);

const struct cli_command cli_bench_latency = {
    .name = "bench latency",
    .arguments = "MODEL [options]",
    .summary = "times one batch of random prompts from start to end",
    .details = "Also tells how near prefill and decode come to what this machine can do, which is "
               "measured around\neach run. docs/BENCHMARKS.md defines every figure.",
    .options =
        (const struct cli_option_use[]){
            {&own_group, offsetof(struct flags, own)},
            BENCH_SHARED_USES,
            {0},
        },
    .run = run,
};

struct latency {
    const struct cli_args *args;
    const struct flags *flags;
    struct phi_model *model;
    struct phi_engine *engine;
    struct phi_limits *limits;
    struct bench_cost cost;
    struct bench_prompt *prompts; /* [batch_size] */
    struct phi_sampling sampling;
    /* One value of each measured run. Limits in their own units a second, ratios of them. */
    struct bench_numbers seconds, decode_tok_s, prefill_tok_s, read, peak, decode_ratio,
        prefill_ratio;
};

static enum phi_status make_prompts(struct latency *l, struct phi_error *err)
{
    const struct own_flags *own = &l->flags->own;
    size_t n = (size_t)own->batch_size;
    l->prompts = phi_calloc(n, sizeof *l->prompts);
    if (!l->prompts)
        return phi_fail_memory(err, "prompts", n * sizeof *l->prompts);
    for (size_t i = 0; i < n; i++) {
        PHI_TRY(bench_random_ids(l->model, (uint64_t)l->flags->shared.model.seed, i,
                                 (size_t)own->input_len, &l->prompts[i].ids, err));
        l->prompts[i].output_len = own->output_len;
    }
    phi_sampling_init(&l->sampling);
    l->sampling.n = own->n;
    l->sampling.ignore_eos = true;
    return PHI_OK;
}

static enum phi_status prepare(struct latency *l, struct phi_error *err)
{
    const struct flags *f = l->flags;
    struct phi_engine_options o;
    struct phi_model_info model;
    struct phi_engine_info engine;
    PHI_TRY(cli_open_model(l->args, &f->shared.common, &f->shared.model, &l->model, err));
    phi_model_get_info(l->model, &model);
    PHI_TRY(cli_engine_options(l->args, &f->shared.engine, f->shared.model.seed,
                               (size_t)f->own.batch_size * (size_t)f->own.n, l->model, &o, err));
    if (!cli_given(l->args, "enable-prefix-caching"))
        o.enable_prefix_caching = false; /* every run has the same prompts */
    PHI_TRY(phi_engine_create(l->model, &o, &l->engine, err));
    phi_engine_get_info(l->engine, &engine);
    PHI_TRY(phi_limits_create(model.n_threads, &l->limits, err));
    const struct cli_model_flags *asked = &f->shared.model;
    bool own_head = asked->quantization != PHI_UNQUANTIZED && asked->quantize_lm_head;
    PHI_TRY(bench_cost_init(&l->cost, l->args->positional[0], own_head, &model, &engine, l->limits,
                            err));
    return make_prompts(l, err);
}

/* --------------------------------------------------------------- measuring */

struct limit_values {
    double read, peak;
};

static struct limit_values measure_limits(struct latency *l)
{
    return (struct limit_values){phi_limits_measure(l->limits, PHI_LIMIT_READ),
                                 phi_limits_measure(l->limits, l->cost.arithmetic)};
}

static void record(struct latency *l, const struct bench_batch *b, struct limit_values before,
                   struct limit_values after)
{
    const struct own_flags *own = &l->flags->own;
    double read = (before.read + after.read) / 2, peak = (before.peak + after.peak) / 2;
    double decode_s = b->seconds - b->prefill_s;
    double decode_tok_s = b->n_decoded > 0 ? b->n_decoded / decode_s : 0;
    double bytes = bench_cost_decode_bytes(&l->cost, own->batch_size * own->n, own->input_len,
                                           own->output_len);
    double flops = own->batch_size * bench_cost_prefill_flops(&l->cost, own->input_len);
    bench_numbers_append(&l->seconds, b->seconds);
    bench_numbers_append(&l->decode_tok_s, decode_tok_s);
    bench_numbers_append(&l->prefill_tok_s, (double)b->n_prompt_tokens / b->prefill_s);
    bench_numbers_append(&l->read, read);
    bench_numbers_append(&l->peak, peak);
    bench_numbers_append(&l->decode_ratio, decode_tok_s * bytes / read);
    bench_numbers_append(&l->prefill_ratio, flops / b->prefill_s / peak);
}

static enum phi_status measure(struct latency *l, struct phi_error *err)
{
    const struct own_flags *own = &l->flags->own;
    struct cli_progress progress;
    struct limit_values before = {0, 0}, after;
    uint64_t n_runs = (uint64_t)own->n_warmup + (uint64_t)own->n_iters;
    enum phi_status status = PHI_OK;
    cli_progress_init(&progress);
    for (uint64_t i = 0; i < n_runs && status == PHI_OK; i++) {
        struct bench_batch batch;
        bool measured = i >= (uint64_t)own->n_warmup;
        if (i == (uint64_t)own->n_warmup)
            before = measure_limits(l);
        cli_progress_show(&progress, measured ? "measuring" : "warming up", i, n_runs);
        status = bench_batch_run(l->engine, l->prompts, (size_t)own->batch_size, &l->sampling,
                                 &batch, err);
        if (!measured || status != PHI_OK)
            continue;
        after = measure_limits(l);
        record(l, &batch, before, after);
        before = after;
    }
    cli_progress_clear(&progress);
    return status;
}

/* --------------------------------------------------------------- telling */

/* Medians, beside the runs' own times. */
struct summary {
    double bytes_per_token, decode_tok_s, prefill_tok_s, read_gbs, peak_gflops, decode_ratio,
        prefill_ratio;
    double computed_ratio; /* prefill_ratio without the operations that were left out */
};

static struct summary summarise(struct latency *l)
{
    const struct own_flags *own = &l->flags->own;
    const double left_out = bench_cost_skipped_flops(&l->cost, own->input_len) /
                            bench_cost_prefill_flops(&l->cost, own->input_len);
    return (struct summary){
        .bytes_per_token = bench_cost_decode_bytes(&l->cost, own->batch_size * own->n,
                                                   own->input_len, own->output_len),
        .decode_tok_s = bench_median(&l->decode_tok_s),
        .prefill_tok_s = bench_median(&l->prefill_tok_s),
        .read_gbs = bench_median(&l->read) / 1e9,
        .peak_gflops = bench_median(&l->peak) / 1e9,
        .decode_ratio = bench_median(&l->decode_ratio),
        .prefill_ratio = bench_median(&l->prefill_ratio),
        .computed_ratio = bench_median(&l->prefill_ratio) * (1 - left_out),
    };
}

static void print(struct cli_out *out, const struct latency *l, const struct summary *s)
{
    struct bench_numbers sorted = bench_numbers_copy(&l->seconds);
    const char *kind = bench_cost_arithmetic(&l->cost);
    cli_out_printf(out, "Avg latency: %.6f seconds\n", bench_mean(&l->seconds));
    for (int i = 0; i < BENCH_N_PERCENTILES; i++)
        cli_out_printf(out, "%d%% percentile latency: %.6f seconds\n", bench_percentages[i],
                       bench_percentile(&sorted, bench_percentages[i]));
    cli_out_printf(out,
                   "Prefill: %.1f tokens/s, %.1f%% of the arithmetic peak (%.1f GFLOP/s, %s), "
                   "%.1f%% by what is computed\n",
                   s->prefill_tok_s, 100 * s->prefill_ratio, s->peak_gflops, kind,
                   100 * s->computed_ratio);
    cli_out_printf(out,
                   "Decode: %.2f tokens/s at %.1f MB a token, %.1f%% of the read bandwidth "
                   "(%.1f GB/s)\n",
                   s->decode_tok_s, s->bytes_per_token / 1e6, 100 * s->decode_ratio, s->read_gbs);
    bench_numbers_deinit(&sorted);
}

/* vLLM's keys, then ours. */
static json_t *to_json(const struct latency *l, const struct summary *s)
{
    return json_pack("{s:f, s:o, s:o, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "avg_latency",
                     bench_mean(&l->seconds), "latencies", bench_numbers_json(&l->seconds),
                     "percentiles", bench_percentiles_json(&l->seconds), "decode_tok_s",
                     s->decode_tok_s, "prefill_tok_s", s->prefill_tok_s, "bytes_per_token",
                     s->bytes_per_token, "read_bandwidth_gbs", s->read_gbs,
                     "arithmetic_peak_gflops", s->peak_gflops, "decode_bandwidth_ratio",
                     s->decode_ratio, "prefill_peak_ratio", s->prefill_ratio,
                     "prefill_computed_peak_ratio", s->computed_ratio);
}

static int tell(struct latency *l)
{
    const char *path = l->flags->shared.own.output_json;
    struct cli_out out;
    struct phi_error err;
    struct summary s = summarise(l);
    cli_out_init(&out);
    print(&out, l, &s);
    int status = cli_out_finish(&out, CLI_OK);
    if (path && bench_save_json(to_json(l, &s), path, false, &err) != PHI_OK)
        status = cli_fail(&err);
    return status;
}

static int latency(const struct cli_args *args, const struct flags *flags)
{
    struct latency l = {.args = args, .flags = flags};
    struct phi_error err;
    enum phi_status status = prepare(&l, &err);
    if (status == PHI_OK)
        status = measure(&l, &err);
    int code = status == PHI_OK ? tell(&l) : cli_fail(&err);
    for (int i = 0; i < flags->own.batch_size && l.prompts; i++)
        phi_ids_deinit(&l.prompts[i].ids);
    phi_free(l.prompts);
    struct bench_numbers *lists[] = {&l.seconds,      &l.decode_tok_s, &l.prefill_tok_s, &l.read,
                                     &l.decode_ratio, &l.peak,         &l.prefill_ratio};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        bench_numbers_deinit(lists[i]);
    phi_limits_destroy(l.limits);
    phi_engine_destroy(l.engine);
    phi_model_close(l.model);
    return code;
}

static int run(int argc, char **argv)
{
    struct flags flags = {0};
    struct cli_args args;
    int status = cli_parse(&cli_bench_latency, argc, argv, &flags, &args);
    if (status < 0 && args.n_positional == 2)
        status =
            cli_usage_error(&cli_bench_latency, "unexpected argument '%s'", args.positional[1]);
    if (status < 0)
        status = latency(&args, &flags);
    cli_options_deinit(&args, &flags);
    return status;
}
