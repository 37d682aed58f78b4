/* cmd_serve.c: phidelity serve: the life of the server.
 *
 *   bind  ->  load the model  ->  create the engine  ->  serve  ->  drain  ->  exit
 *
 * The address is taken before anything slow happens, so that a port in use fails at once and a
 * probe of /health is answered, with 503, from the first moment. */
#include "cli/serve.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "server/api/routes.h"

#include <errno.h>
#include <inttypes.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

static int run(int argc, char **argv);

const struct cli_command cli_serve = {
    .name = "serve",
    .arguments = "MODEL [options]",
    .summary = "serves a model over HTTP, as vllm serve does",
    .details = "MODEL is a checkpoint folder. The API is OpenAI's as vLLM speaks it: "
               "/v1/chat/completions,\n"
               "/v1/completions, /v1/models and others; /health, /metrics. Flags are vLLM's; a "
               "value comes\n"
               "from the command line, else from --config, else from the environment.\n"
               "\n"
               "SIGTERM and Ctrl-C stop taking requests, let those that run end "
               "(--shutdown-timeout), and\n"
               "exit with 0; a second one exits at once with 1. Other exit codes: 1 when the "
               "server cannot\n"
               "start, 2 for a wrong command line.",
    .options =
        (const struct cli_option_use[]){
            {&serve_model_group, offsetof(struct serve_flags, own)},
            {&serve_access_group, offsetof(struct serve_flags, own)},
            {&cli_model_group, offsetof(struct serve_flags, model)},
            {&cli_engine_group, offsetof(struct serve_flags, engine)},
            {&cli_common_group, offsetof(struct serve_flags, common)},
            {&serve_answer_group, offsetof(struct serve_flags, own)},
            {&serve_limit_group, offsetof(struct serve_flags, own)},
            {&serve_log_group, offsetof(struct serve_flags, own)},
            {&serve_ignored_group, 0},
            {&serve_refused_group, 0},
            {0},
        },
    .variables = serve_variables,
    .run = run,
};

/* --------------------------------------------------------------- signals */

/* A signal handler can reach nothing but globals. */
static atomic_int n_signals;
static atomic_bool serving; /* before, there is nothing to finish */
static sem_t stop_requested;

static void on_signal(int number)
{
    int saved_errno = errno;
    (void)number;
    if (!atomic_load(&serving))
        _exit(CLI_OK);
    if (atomic_fetch_add(&n_signals, 1) > 0)
        _exit(CLI_FAILED);
    sem_post(&stop_requested);
    errno = saved_errno;
}

static void catch_signals(void)
{
    struct sigaction stop = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sem_init(&stop_requested, 0, 0);
    sigemptyset(&stop.sa_mask);
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
}

static void wait_for_signal(void)
{
    while (sem_wait(&stop_requested) != 0)
        ;
}

/* --------------------------------------------------------------- the start */

/* "1,234,567" */
static const char *with_commas(uint64_t n, char out[32])
{
    char digits[24];
    int n_digits = snprintf(digits, sizeof digits, "%" PRIu64, n), at = 0;
    for (int i = 0; i < n_digits; i++) {
        if (i > 0 && (n_digits - i) % 3 == 0)
            out[at++] = ',';
        out[at++] = digits[i];
    }
    out[at] = '\0';
    return out;
}

static double gib(uint64_t n_bytes)
{
    return (double)n_bytes / (1024.0 * 1024 * 1024);
}

static void log_address(const struct phi_server_options *o, int port)
{
    const char *scheme = o->ssl_certfile ? "https" : "http";
    const char *host = o->host ? o->host : "0.0.0.0";
    if (o->uds)
        phi_log(PHI_LOG_INFO, "Listening on unix:%s; /health says 503 until the model is loaded",
                o->uds);
    else
        phi_log(PHI_LOG_INFO,
                strchr(host, ':')
                    ? "Listening on %s://[%s]:%d; /health says 503 until the model is loaded"
                    : "Listening on %s://%s:%d; /health says 503 until the model is loaded",
                scheme, host, port);
}

static void log_routes(void)
{
    struct phi_buf text = {0};
    for (const struct phi_route *r = phi_routes; r->path; r++)
        phi_buf_printf(&text, ", %s %s", r->method, r->path);
    if (text.n > 0 && !text.failed)
        phi_log(PHI_LOG_INFO, "Available routes are: %s", text.data + 2);
    phi_buf_deinit(&text);
}

static void log_model(const struct phi_model *model, double seconds)
{
    char parameters[32];
    struct phi_model_info m;
    phi_model_get_info(model, &m);
    phi_log(PHI_LOG_INFO,
            "%s: %s parameters as %s, kernels for %s, %d thread%s; loading took %.2f s and %.2f "
            "GiB",
            m.architecture, with_commas(m.n_parameters, parameters), phi_dtype_name(m.dtype), m.isa,
            m.n_threads, m.n_threads == 1 ? "" : "s", seconds,
            gib(m.weight_bytes + m.converted_bytes));
    if (!m.has_chat_template)
        phi_log(PHI_LOG_INFO,
                "the model has no chat template: /v1/chat/completions needs --chat-template");
}

static void log_engine(const struct phi_engine *engine)
{
    char tokens[32], length[32];
    struct phi_engine_info e;
    phi_engine_get_info(engine, &e);
    phi_log(PHI_LOG_INFO, "Available KV cache memory: %.2f GiB", gib(e.kv_bytes));
    phi_log(PHI_LOG_INFO, "KV cache size: %s tokens", with_commas(e.kv_tokens, tokens));
    phi_log(PHI_LOG_INFO, "Maximum concurrency for %s tokens per request: %.2fx",
            with_commas((uint64_t)e.max_model_len, length), (double)e.kv_tokens / e.max_model_len);
    phi_log(PHI_LOG_INFO, "at most %d requests and %d tokens in a step, blocks of %d tokens",
            e.max_num_seqs, e.max_num_batched_tokens, e.block_size);
}

/* --------------------------------------------------------------- the life */

struct service {
    struct phi_server *server;
    struct phi_model *model;
    struct phi_engine *engine;
};

static enum phi_status load(struct service *v, const struct serve_settings *s,
                            struct phi_error *err)
{
    struct phi_engine_options o;
    struct cli_model_flags model = s->flags->model;
    double start_s = phi_clock_s();
    PHI_TRY(serve_place_threads(&s->flags->own, &model.threads, err));
    serve_log_over_bar(true);
    enum phi_status status = cli_load_model(s->args, &s->flags->common, &model, &v->model, err);
    serve_log_over_bar(false);
    PHI_TRY(status);
    log_model(v->model, phi_clock_s() - start_s);
    PHI_TRY(serve_engine_options(s, v->model, &o, err));
    PHI_TRY(phi_engine_create(v->model, &o, &v->engine, err));
    log_engine(v->engine);
    return PHI_OK;
}

static enum phi_status start(struct service *v, const struct serve_settings *s,
                             struct phi_error *err)
{
    double start_s = phi_clock_s();
    PHI_TRY(phi_server_start(&s->server, &v->server, err));
    log_address(&s->server, phi_server_port(v->server));
    PHI_TRY(load(v, s, err));
    PHI_TRY(phi_server_open(v->server, v->model, v->engine, &s->sampling, err));
    atomic_store(&serving, true);
    log_routes();
    phi_log(PHI_LOG_INFO, "Application startup complete after %.2f s.", phi_clock_s() - start_s);
    return PHI_OK;
}

static void drain(struct service *v, int timeout_s)
{
    phi_log(PHI_LOG_INFO, "Shutdown initiated (timeout=%d); another signal exits at once",
            timeout_s);
    if (!phi_server_drain(v->server, timeout_s))
        phi_log(PHI_LOG_WARNING, "requests that ran longer than --shutdown-timeout were cancelled");
}

static int serve(const struct serve_settings *s)
{
    struct service v = {0};
    struct phi_error err;
    int code = CLI_OK;
    catch_signals();
    if (start(&v, s, &err) == PHI_OK) {
        wait_for_signal();
        drain(&v, s->flags->own.shutdown_timeout_s);
    } else {
        phi_log(PHI_LOG_ERROR, "%s", err.text);
        code = CLI_FAILED;
    }
    phi_server_stop(v.server);
    phi_engine_destroy(v.engine);
    phi_model_close(v.model);
    if (code == CLI_OK)
        phi_log(PHI_LOG_INFO, "Application shutdown complete.");
    return code;
}

static int run(int argc, char **argv)
{
    struct serve_flags flags = {0};
    struct cli_args args;
    struct serve_settings settings = {0};
    struct phi_error err;
    int code = cli_parse(&cli_serve, argc, argv, &flags, &args);
    if (code < 0)
        code = cli_environment_read(serve_variables, environ, &args, &flags);
    if (code < 0)
        code = serve_check_flags(&args, &flags);
    if (code < 0) {
        serve_log_init();
        serve_log_set_level(flags.common.verbose ? PHI_LOG_DEBUG
                                                 : (enum phi_log_level)flags.own.log_level);
        if (serve_settings_init(&settings, &args, &flags, &err) == PHI_OK) {
            serve_settings_log(&settings);
            cli_log_ignored(&args);
            cli_environment_log(serve_variables, environ);
            code = serve(&settings);
        } else {
            code = cli_fail(&err);
        }
        serve_settings_deinit(&settings);
    }
    cli_options_deinit(&args, &flags);
    return code;
}
