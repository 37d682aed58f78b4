/* cmd_startup.c: phidelity bench startup: from the start of the program to its first token, with
 * the model's files out of the page cache and in it. Every run is a process: this program's
 * generate, with the options of the model and the engine that were given here. */
#include "base/alloc.h"
#include "cli/bench/bench.h"
#include "cli/bench/child.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

struct own_flags {
    int n_cold, n_warmup, n_warm, input_len;
};

struct flags {
    struct own_flags own;
    struct bench_engine_flags shared;
};

/* clang-format off */
#define AT(member) .offset = offsetof(struct own_flags, member)
static const struct cli_option_group own_group = {
    "Benchmark",
    (const struct cli_option[]){
        {.name = "num-iters-cold", .kind = CLI_INT, AT(n_cold), .initial = "3", .max = INT_MAX,
         .help = "runs before each of which the folder's files are dropped from the page cache"},
        {.name = "num-iters-warmup", .kind = CLI_INT, AT(n_warmup), .initial = "1",
         .max = INT_MAX, .help = "runs after those that are not counted"},
        {.name = "num-iters-warm", .kind = CLI_INT, AT(n_warm), .initial = "3", .min = 1,
         .max = INT_MAX, .help = "runs with the files in the page cache"},
        {.name = "input-len", .kind = CLI_INT, AT(input_len), .initial = "5", .min = 1,
         .max = 10000, .help = "tokens of the prompt"},
        {0},
    },
};
#undef AT
/* clang-format on */

static int run(int argc, char **argv);

const struct cli_command cli_bench_startup = {
    .name = "bench startup",
    .arguments = "MODEL [options]",
    .summary = "times the program from its start to the first token",
    .details = "Each run is a process of its own. Options of model and engine are handed on to it.",
    .options =
        (const struct cli_option_use[]){
            {&own_group, offsetof(struct flags, own)},
            BENCH_SHARED_USES,
            {0},
        },
    .run = run,
};

enum { MAX_ARGUMENTS = 160 };

struct startup {
    const struct cli_args *args;
    struct flags *flags;
    char *argv[MAX_ARGUMENTS]; /* owned, NULL at the end */
    int argc;
    bool is_cold; /* the files did leave the page cache */
    double left;  /* the most of them that did not */
    struct bench_numbers cold_s, warm_s;
    uint64_t file_bytes, other_bytes, peak_bytes; /* of all warm runs the most */
};

/* --------------------------------------------------------------- the process's command line */

/* Takes the buffer's text over. */
static enum phi_status add_argument(struct startup *s, struct phi_buf *text, struct phi_error *err)
{
    if (text->failed || s->argc + 1 >= MAX_ARGUMENTS) {
        phi_buf_deinit(text);
        return phi_fail(err, PHI_ERR_MEMORY, "too many arguments");
    }
    s->argv[s->argc++] = text->data;
    return PHI_OK;
}

static enum phi_status add_words(struct startup *s, const char *const *words, size_t n,
                                 struct phi_error *err)
{
    for (size_t i = 0; i < n; i++) {
        struct phi_buf text = {0};
        phi_buf_append_c(&text, words[i]);
        PHI_TRY(add_argument(s, &text, err));
    }
    return PHI_OK;
}

/* Options that were given and are not ours but the model's or the engine's. */
static enum phi_status add_given(struct startup *s, struct phi_error *err)
{
    struct cli_found f;
    for (struct cli_cursor c = {0}; cli_next_option(s->args->command, &c, &f);) {
        struct phi_buf text = {0};
        bool ours = f.group == &own_group || f.group == &bench_shared_group;
        if (ours || !cli_is_given(s->args, &f))
            continue;
        if (f.option->kind == CLI_BOOL) {
            bool on = *(const bool *)cli_value_of(&f, s->flags);
            phi_buf_printf(&text, "--%s%s", on ? "" : "no-", f.option->name);
        } else {
            phi_buf_printf(&text, "--%s=", f.option->name);
            cli_format_value(&text, &f, s->flags);
        }
        PHI_TRY(add_argument(s, &text, err));
    }
    return PHI_OK;
}

static enum phi_status add_prompt(struct startup *s, struct phi_error *err)
{
    struct phi_model *tokenizer;
    struct phi_ids ids = {0};
    struct phi_buf text = {0};
    PHI_TRY(cli_open_model(s->args, &s->flags->shared.common, NULL, &tokenizer, err));
    enum phi_status status = bench_random_ids(tokenizer, (uint64_t)s->flags->shared.model.seed, 0,
                                              (size_t)s->flags->own.input_len, &ids, err);
    phi_buf_append_c(&text, "--prompt-token-ids=");
    for (size_t i = 0; i < ids.n; i++)
        phi_buf_printf(&text, "%" PRId32 " ", ids.data[i]);
    phi_ids_deinit(&ids);
    phi_model_close(tokenizer);
    if (status == PHI_OK)
        return add_argument(s, &text, err);
    phi_buf_deinit(&text);
    return status;
}

/* A few tokens, so that the process is still at work when its memory is looked at. */
static enum phi_status make_command(struct startup *s, struct phi_error *err)
{
    const char *const words[] = {
        "phidelity",       "generate",     s->args->positional[0], "--max-tokens=4",
        "--temperature=0", "--ignore-eos", "--print-token-ids",    "--no-stats",
    };
    PHI_TRY(add_words(s, words, sizeof words / sizeof *words, err));
    PHI_TRY(add_prompt(s, err));
    return add_given(s, err);
}

/* --------------------------------------------------------------- measuring */

static uint64_t greater(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static enum phi_status run_cold(struct startup *s, struct phi_error *err)
{
    struct bench_child child;
    for (int i = 0; i < s->flags->own.n_cold; i++) {
        double left;
        PHI_TRY(bench_evict(s->args->positional[0], &left, err));
        s->left = left > s->left ? left : s->left;
        if (left > 0.05) /* some other program has the files open */
            return PHI_OK;
        PHI_TRY(bench_child_run(s->argv, &child, err));
        bench_numbers_append(&s->cold_s, child.first_byte_s);
    }
    s->is_cold = s->flags->own.n_cold > 0;
    return PHI_OK;
}

static enum phi_status run_warm(struct startup *s, struct phi_error *err)
{
    struct bench_child child;
    for (int i = 0; i < s->flags->own.n_warmup + s->flags->own.n_warm; i++) {
        PHI_TRY(bench_child_run(s->argv, &child, err));
        if (i < s->flags->own.n_warmup)
            continue;
        bench_numbers_append(&s->warm_s, child.first_byte_s);
        s->file_bytes = greater(s->file_bytes, child.file_bytes);
        s->other_bytes = greater(s->other_bytes, child.other_bytes);
        s->peak_bytes = greater(s->peak_bytes, child.peak_bytes);
    }
    return PHI_OK;
}

/* --------------------------------------------------------------- telling */

static void print_times(struct cli_out *out, const char *title, const struct bench_numbers *x)
{
    struct bench_numbers sorted = bench_numbers_copy(x);
    cli_out_printf(out, "\n%s:\nAvg startup time: %.3f seconds\nStartup time percentiles:\n", title,
                   bench_mean(x));
    for (int i = 0; i < BENCH_N_PERCENTILES; i++)
        cli_out_printf(out, "  %d%%: %.3f seconds\n", bench_percentages[i],
                       bench_percentile(&sorted, bench_percentages[i]));
    bench_numbers_deinit(&sorted);
}

static void print(const struct startup *s, struct cli_out *out)
{
    static const char line[] = "============================================================";
    double mib = 1 << 20;
    cli_out_printf(out, "%s\nSTARTUP TIME BENCHMARK RESULTS\n%s\n", line, line);
    if (s->is_cold)
        print_times(out, "COLD STARTUP", &s->cold_s);
    else if (s->flags->own.n_cold > 0)
        cli_out_printf(out,
                       "\nCOLD STARTUP: not measured, %.0f%% of the model's files could not be "
                       "dropped from the page cache\n",
                       100 * s->left);
    print_times(out, "WARM STARTUP", &s->warm_s);
    cli_out_printf(out,
                   "\nPeak resident memory: %.1f MiB (of files up to %.1f MiB, else up to %.1f "
                   "MiB)\n%s\n",
                   (double)s->peak_bytes / mib, (double)s->file_bytes / mib,
                   (double)s->other_bytes / mib, line);
}

/* vLLM's keys, then ours. */
static json_t *to_json(const struct startup *s)
{
    json_t *json =
        json_pack("{s:f, s:o, s:o, s:I, s:I, s:I}", "avg_warm_startup_time", bench_mean(&s->warm_s),
                  "warm_startup_times", bench_numbers_json(&s->warm_s), "warm_startup_percentiles",
                  bench_percentiles_json(&s->warm_s), "peak_rss_bytes", (json_int_t)s->peak_bytes,
                  "peak_rss_file_bytes", (json_int_t)s->file_bytes, "peak_rss_other_bytes",
                  (json_int_t)s->other_bytes);
    json_t *cold =
        s->is_cold ? json_pack("{s:f, s:o, s:o}", "avg_cold_startup_time", bench_mean(&s->cold_s),
                               "cold_startup_times", bench_numbers_json(&s->cold_s),
                               "cold_startup_percentiles", bench_percentiles_json(&s->cold_s))
                   : json_object();
    if (json_object_update(json, cold) != 0) { /* also when there was no memory for either */
        json_decref(json);
        json = NULL;
    }
    json_decref(cold);
    return json;
}

static int tell(const struct startup *s)
{
    const char *path = s->flags->shared.own.output_json;
    struct cli_out out;
    struct phi_error err;
    cli_out_init(&out);
    print(s, &out);
    int status = cli_out_finish(&out, CLI_OK);
    if (path && bench_save_json(to_json(s), path, false, &err) != PHI_OK)
        status = cli_fail(&err);
    return status;
}

static int startup(const struct cli_args *args, struct flags *flags)
{
    struct startup s = {.args = args, .flags = flags};
    struct phi_error err;
    enum phi_status status = make_command(&s, &err);
    if (status == PHI_OK)
        status = run_cold(&s, &err);
    if (status == PHI_OK)
        status = run_warm(&s, &err);
    int code = status == PHI_OK ? tell(&s) : cli_fail(&err);
    for (int i = 0; i < s.argc; i++)
        phi_free(s.argv[i]);
    bench_numbers_deinit(&s.cold_s);
    bench_numbers_deinit(&s.warm_s);
    return code;
}

static int run(int argc, char **argv)
{
    struct flags flags = {0};
    struct cli_args args;
    int status = cli_parse(&cli_bench_startup, argc, argv, &flags, &args);
    if (status < 0 && args.n_positional == 2)
        status =
            cli_usage_error(&cli_bench_startup, "unexpected argument '%s'", args.positional[1]);
    if (status < 0)
        status = startup(&args, &flags);
    cli_options_deinit(&args, &flags);
    return status;
}
