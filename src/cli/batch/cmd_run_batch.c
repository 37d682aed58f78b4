/* cmd_run_batch.c: phidelity run-batch: a file of API requests, answered without a server. */
#include "base/clock.h"
#include "cli/batch/batch.h"
#include "cli/serve.h"

struct batch_flags {
    const char *in, *out;
    bool resume;
};

/* What `serve` takes for its answers is taken here too. It stands first, because the settings of
 * `serve` look options up from there. */
struct flags {
    struct serve_flags serve;
    struct batch_flags own;
};

/* clang-format off */
#define AT(member) .offset = offsetof(struct batch_flags, member)
static const struct cli_option_group own_group = {
    "Batch",
    (const struct cli_option[]){
        {.name = "input-file", .brief = "i", .kind = CLI_TEXT, AT(in), .argument = "FILE",
         .help = "requests, a JSON object a line: custom_id, method, url, body"},
        {.name = "output-file", .brief = "o", .kind = CLI_TEXT, AT(out), .argument = "FILE",
         .help = "their answers, in the same order"},
        {.name = "resume", .kind = CLI_BOOL, AT(resume),
         .help = "go on where an earlier run of the same batch was broken off"},
        {.name = "output-tmp-dir", .kind = CLI_TEXT, .argument = "DIR",
         .ignored = "the output is a file, and written where it stays"},
        {.name = "enable-metrics", .kind = CLI_BOOL, .refused = "no port is opened for a batch"},
        {0},
    },
};
#undef AT
/* clang-format on */

static int run(int argc, char **argv);

const struct cli_command cli_run_batch = {
    .name = "run-batch",
    .arguments = "MODEL -i IN.jsonl -o OUT.jsonl [options]",
    .summary = "answers a file of API requests, as vllm run-batch does",
    .details = "A request's url is /v1/chat/completions or /v1/completions, its body what the "
               "server takes there.\nA line that cannot be answered gets an entry that says why, "
               "and the run goes on.",
    .options =
        (const struct cli_option_use[]){
            {&own_group, offsetof(struct flags, own)},
            {&serve_model_group, offsetof(struct flags, serve.own)},
            {&serve_answer_group, offsetof(struct flags, serve.own)},
            {&cli_model_group, offsetof(struct flags, serve.model)},
            {&cli_engine_group, offsetof(struct flags, serve.engine)},
            {&cli_common_group, offsetof(struct flags, serve.common)},
            {0},
        },
    .run = run,
};

struct session {
    struct batch batch;
    struct serve_settings settings;
    struct phi_model *model;
    struct phi_engine *engine;
    struct phi_local *local;
};

static enum phi_status prepare(struct session *s, const struct cli_args *args,
                               const struct flags *flags, struct phi_error *err)
{
    struct phi_engine_options o;
    struct cli_model_flags model = flags->serve.model;
    PHI_TRY(serve_settings_init(&s->settings, args, &flags->serve, err));
    s->settings.server.log_stats = s->settings.server.access_log = false;
    PHI_TRY(batch_open(&s->batch, flags->own.resume, err));
    PHI_TRY(serve_place_threads(&flags->serve.own, &model.threads, err));
    PHI_TRY(cli_open_model(args, &flags->serve.common, &model, &s->model, err));
    PHI_TRY(serve_engine_options(&s->settings, s->model, &o, err));
    o.max_waiting = 0; /* we wait ourselves */
    PHI_TRY(phi_engine_create(s->model, &o, &s->engine, err));
    return phi_local_open(&s->settings.server, s->model, s->engine, &s->settings.sampling,
                          &s->local, err);
}

static int finish(const struct batch *b, double seconds)
{
    if (cli_interrupts() > 0 && b->n_out < b->n_lines) {
        fprintf(stderr, "phidelity: %zu of %zu answers are in %s; --resume goes on from there\n",
                b->n_out, b->n_lines, b->out_path);
        return CLI_INTERRUPTED;
    }
    fprintf(stderr, "phidelity: %zu requests, %zu of them with an error, in %.2f s\n",
            b->n_out - b->n_resumed, b->n_refused, seconds);
    return CLI_OK;
}

static int run_batch(const struct cli_args *args, const struct flags *flags)
{
    struct phi_error err, close_err;
    struct phi_engine_info info;
    struct session s = {.batch = {.in_path = flags->own.in, .out_path = flags->own.out}};
    double start_s = phi_clock_s();
    enum phi_status status = prepare(&s, args, flags, &err);
    if (status == PHI_OK) {
        cli_interrupt_catch(true);
        phi_engine_get_info(s.engine, &info);
        status = batch_run(&s.batch, s.local, 2 * (size_t)info.max_num_seqs, &err);
    }
    phi_local_close(s.local);
    enum phi_status closed = batch_close(&s.batch, &close_err);
    int code = status != PHI_OK   ? cli_fail(&err)
               : closed != PHI_OK ? cli_fail(&close_err)
                                  : finish(&s.batch, phi_clock_s() - start_s);
    phi_engine_destroy(s.engine);
    phi_model_close(s.model);
    serve_settings_deinit(&s.settings);
    return code;
}

static int run(int argc, char **argv)
{
    struct flags flags = {0};
    struct cli_args args;
    int code = cli_parse(&cli_run_batch, argc, argv, &flags, &args);
    if (code < 0)
        code = serve_check_flags(&args, &flags.serve);
    if (code < 0 && (!flags.own.in || !flags.own.out))
        code = cli_usage_error(&cli_run_batch, "-i FILE and -o FILE are both needed");
    if (code < 0)
        code = run_batch(&args, &flags);
    cli_options_deinit(&args, &flags);
    return code;
}
