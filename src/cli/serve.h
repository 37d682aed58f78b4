/* serve.h: the parts of `phidelity serve`: its flags (serve_flags.c, and serve_inert.c for those
 * of vLLM's that do nothing here), what they come to (serve_settings.c), its log (serve_log.c), and
 * the life of the server (cmd_serve.c). */
#ifndef PHI_CLI_SERVE_H
#define PHI_CLI_SERVE_H

#include "base/log.h"
#include "cli/environment.h"
#include "cli/flags.h"
#include "formats/config.h"
#include "server/server.h"

/* --------------------------------------------------------------- flags */

struct serve_own_flags {
    /* model */
    const char *model, *config, *generation_config, *response_role;
    struct cli_texts served_names;
    json_t *override_generation, *chat_template_kwargs;
    bool disable_sliding_window, trust_request_chat_template;
    int max_waiting, reserved_cpus;
    const char *bind_cpus;

    /* address and access */
    const char *host, *uds, *root_path;
    int port;
    struct cli_texts api_keys, allowed_origins, allowed_methods, allowed_headers;
    bool allow_credentials;
    const char *ssl_keyfile, *ssl_certfile, *ssl_ca_certs;
    int ssl_cert_reqs;

    /* answers */
    int max_logprobs, stream_interval;
    bool return_tokens_as_token_ids, prompt_tokens_details, force_include_usage;
    bool request_id_headers, server_load_tracking;

    /* limits */
    int64_t max_body_bytes, max_header_bytes;
    int max_connections, http_threads, idle_timeout_s, request_timeout_s, write_timeout_s,
        shutdown_timeout_s;

    /* log */
    int log_level, uvicorn_log_level, max_log_len;
    bool log_requests, log_outputs, disable_access_log, disable_log_stats;
    struct cli_texts access_log_except;
    double log_stats_interval_s;
};

struct serve_flags {
    struct serve_own_flags own;
    struct cli_model_flags model;
    struct cli_engine_flags engine;
    struct cli_common_flags common;
};

extern const struct cli_option_group serve_model_group, serve_access_group, serve_answer_group,
    serve_limit_group, serve_log_group;
extern const struct cli_option_group serve_ignored_group, serve_refused_group;
extern const struct cli_variable serve_variables[];

/* --------------------------------------------------------------- settings */

/* What the flags come to. Everything points into flags, args or this struct. */
struct serve_settings {
    const struct cli_args *args;
    const struct serve_flags *flags;
    struct phi_server_options server;
    struct phi_generation generation; /* generation_config.json and what overrides it */
    struct phi_sampling sampling;     /* the defaults of requests, made from it */
    struct phi_buf chat_template_kwargs;
    struct phi_buf root_path; /* without a '/' at its end */
    struct phi_buf text;      /* "flag=value" lines */
};

/* Checks that flags agree with each other; returns -1 or the exit code after an error line. */
int serve_check_flags(const struct cli_args *args, const struct serve_flags *flags);

/* Reads the folder's generation_config.json as --generation-config says. PHI_ERR_INVALID, _IO,
 * _FORMAT. The caller ends with serve_settings_deinit in every case. */
enum phi_status serve_settings_init(struct serve_settings *s, const struct cli_args *args,
                                    const struct serve_flags *flags, struct phi_error *err);
void serve_settings_deinit(struct serve_settings *s);

/* Log lines that tell what was set, and how answers are sampled where requests do not say. */
void serve_settings_log(const struct serve_settings *s);

/* The engine's options, which need the opened model. */
enum phi_status serve_engine_options(const struct serve_settings *s, const struct phi_model *model,
                                     struct phi_engine_options *out, struct phi_error *err);

/* Threads for the model: --threads, else what --cpus and --reserved-cpus leave. Narrows this
 * thread's affinity, which later threads inherit. */
enum phi_status serve_place_threads(const struct serve_own_flags *own, int *n_threads,
                                    struct phi_error *err);

/* --------------------------------------------------------------- log */

/* Sends the library's and the server's log lines to standard error, one write each:
 * "INFO 11-30 09:12:33 [serve] text". */
void serve_log_init(void);
void serve_log_set_level(enum phi_log_level least);

/* While `on`, lines first take away the progress bar that may stand on the terminal. */
void serve_log_over_bar(bool on);

#endif
