/* cmd_generate.c: phidelity generate: continues prompts. */
#include "base/alloc.h"
#include "base/clock.h"
#include "cli/follow.h"
#include "cli/generate.h"

#include <stdio.h>

struct output_flags {
    bool print_token_ids, json, stats;
};

struct flags {
    struct cli_prompt_flags prompts;
    struct output_flags output;
    struct cli_sampling_flags sampling;
    struct cli_model_flags model;
    struct cli_engine_flags engine;
    struct cli_common_flags common;
};

/* clang-format off */
static const struct cli_option_group output_group = {
    "Output",
    (const struct cli_option[]){
        {.name = "print-token-ids", .kind = CLI_BOOL,
         .offset = offsetof(struct output_flags, print_token_ids),
         .help = "print the answer's token ids, separated by spaces, instead of its text"},
        {.name = "json", .kind = CLI_BOOL,
         .offset = offsetof(struct output_flags, json),
         .help = "print one line of JSON for each prompt: prompt_token_ids, prompt_logprobs and "
                 "outputs with text, token_ids, logprobs, finish_reason and stop_reason"},
        {.name = "stats", .kind = CLI_BOOL,
         .offset = offsetof(struct output_flags, stats),
         .initial = "on", .help = "the closing line on standard error"},
        {0},
    },
};
/* clang-format on */

static int run(int argc, char **argv);

const struct cli_command cli_generate = {
    .name = "generate",
    .arguments = "MODEL (-p TEXT | -f FILE | -) [options]",
    .summary = "continues a prompt, printing the text as it comes",
    .details = "MODEL is a checkpoint folder. Several prompts decode together and are printed in "
               "order, each\n"
               "answer ended by a line end; a line on standard error tells which is which. Without "
               "-p, -f or\n"
               "--prompt-token-ids, - reads the prompt from standard input. Ctrl-C ends the answer "
               "(exit 130).",
    .options =
        (const struct cli_option_use[]){
            {&cli_prompt_group, offsetof(struct flags, prompts)},
            {&output_group, offsetof(struct flags, output)},
            {&cli_sampling_group, offsetof(struct flags, sampling)},
            {&cli_model_group, offsetof(struct flags, model)},
            {&cli_engine_group, offsetof(struct flags, engine)},
            {&cli_common_group, offsetof(struct flags, common)},
            {0},
        },
    .run = run,
};

struct generate {
    const struct cli_args *args;
    const struct flags *flags;
    struct phi_model *model;
    struct phi_engine *engine;
    struct cli_sampling sampling;
    struct job *jobs;
    size_t n_jobs, n_jobs_allocated;
    size_t n_answers; /* per job */
};

/* Adds one prompt's job, not yet submitted. */
static enum phi_status add_job(void *context, const struct cli_prompt *prompt,
                               struct phi_error *err)
{
    struct generate *g = context;
    if (g->n_jobs == g->n_jobs_allocated) {
        size_t n = g->n_jobs_allocated ? 2 * g->n_jobs_allocated : 8;
        struct job *grown = phi_realloc(g->jobs, n, sizeof *grown);
        if (!grown)
            return phi_fail_memory(err, "prompts", n * sizeof *grown);
        g->jobs = grown;
        g->n_jobs_allocated = n;
    }
    struct job *job = &g->jobs[g->n_jobs++];
    *job = (struct job){.answers = phi_calloc(g->n_answers, sizeof *job->answers)};
    if (!job->answers)
        return phi_fail_memory(err, "answers", g->n_answers * sizeof *job->answers);
    return cli_prompt_ids(g->model, prompt, g->flags->prompts.special_tokens, &job->prompt, err);
}

static enum phi_status submit_all(struct generate *g, struct phi_error *err)
{
    for (size_t i = 0; i < g->n_jobs; i++) {
        struct job *job = &g->jobs[i];
        enum phi_status status = phi_request_submit(g->engine, job->prompt.data, job->prompt.n,
                                                    &g->sampling.params, NULL, &job->request, err);
        if (status != PHI_OK && g->n_jobs > 1)
            return phi_fail_prefix(err, status, "prompt %zu", i + 1);
        PHI_TRY(status);
    }
    return PHI_OK;
}

static enum phi_status prepare(struct generate *g, struct phi_error *err)
{
    const struct flags *flags = g->flags;
    struct phi_engine_options o;
    PHI_TRY(cli_open_model(g->args, &flags->common, &flags->model, &g->model, err));
    PHI_TRY(cli_sampling_init(&g->sampling, g->args, &flags->sampling, flags->model.seed, g->model,
                              err));
    g->n_answers = (size_t)g->sampling.params.n;
    PHI_TRY(cli_prompts_each(g->args, &flags->prompts, add_job, g, err));
    PHI_TRY(cli_engine_options(g->args, &flags->engine, flags->model.seed,
                               g->n_jobs * g->n_answers, g->model, &o, err));
    PHI_TRY(phi_engine_create(g->model, &o, &g->engine, err));
    return submit_all(g, err);
}

static void print_total(const struct generate *g, double seconds)
{
    size_t n_prompt = 0, n_output = 0;
    for (size_t i = 0; i < g->n_jobs; i++) {
        struct phi_request_stats t;
        phi_request_get_stats(g->jobs[i].request, &t);
        n_prompt += t.n_prompt_tokens;
        n_output += t.n_output_tokens;
    }
    fprintf(stderr,
            "phidelity: %zu prompts, %zu prompt tokens and %zu output tokens in %.3f s: %.1f and "
            "%.1f/s\n",
            g->n_jobs, n_prompt, n_output, seconds, (double)n_prompt / seconds,
            (double)n_output / seconds);
}

/* Follows every job; returns the exit code. */
static int print_all(struct generate *g)
{
    struct cli_out out;
    struct answer_printer printer = {.out = &out,
                                     .json = g->flags->output.json,
                                     .print_ids = g->flags->output.print_token_ids,
                                     .n_jobs = g->n_jobs,
                                     .n_answers = g->n_answers};
    double start_s = phi_clock_s();
    cli_out_init(&out);
    cli_interrupt_catch(true);
    for (size_t i = 0; i < g->n_jobs && !cli_interrupts() && !out.error; i++)
        answers_print(&printer, &g->jobs[i], i);
    int status = cli_out_finish(&out, printer.failed ? CLI_FAILED : CLI_OK);
    bool all_ended = !cli_interrupts() && status != CLI_FAILED;
    if (g->flags->output.stats && g->n_jobs * g->n_answers == 1)
        cli_print_stats(g->jobs[0].request, g->jobs[0].answers[0].finish);
    else if (g->flags->output.stats && all_ended)
        print_total(g, phi_clock_s() - start_s);
    return cli_interrupts() ? CLI_INTERRUPTED : status;
}

static int generate(const struct cli_args *args, const struct flags *flags)
{
    struct generate g = {.args = args, .flags = flags};
    struct phi_error err;
    int status = prepare(&g, &err) == PHI_OK ? print_all(&g) : cli_fail(&err);
    for (size_t i = 0; i < g.n_jobs; i++)
        job_deinit(&g.jobs[i], g.n_answers);
    phi_free(g.jobs);
    cli_sampling_deinit(&g.sampling);
    phi_engine_destroy(g.engine);
    phi_model_close(g.model);
    return status;
}

static int run(int argc, char **argv)
{
    struct flags flags = {0};
    struct cli_args args;
    int status = cli_parse(&cli_generate, argc, argv, &flags, &args);
    bool logprobs = flags.sampling.logprobs >= 0 || flags.sampling.prompt_logprobs >= 0;
    if (status >= 0)
        ;
    else if (args.n_positional == 2 && strcmp(args.positional[1], "-") != 0)
        status = cli_usage_error(&cli_generate, "unexpected argument '%s'", args.positional[1]);
    else if (!cli_has_prompts(&args, &flags.prompts))
        status = cli_usage_error(&cli_generate, "a prompt is missing: -p TEXT, -f FILE or -");
    else if (logprobs && !flags.output.json)
        status = cli_usage_error(&cli_generate, "--logprobs and --prompt-logprobs need --json");
    else
        status = generate(&args, &flags);
    cli_options_deinit(&args, &flags);
    return status;
}
