/* server.h: the HTTP front door: an OpenAI-compatible API over one engine, with vLLM's routes,
 * fields, errors, metrics and log lines.
 *
 * The life of a server:
 *
 *   phi_server_start    binds the address and answers: /health says 503 "loading", so does all work
 *   phi_server_open     takes model and engine: from now on requests are served
 *   phi_server_drain    takes no new work, waits for what runs, cancels what takes too long
 *   phi_server_stop     cancels what is left, closes every connection, frees everything
 *
 * Threads: libmicrohttpd's threads parse, tokenise and answer; the engine's thread only wakes a
 * connection (exchange.h); one watcher thread notices clients that left or dawdle (watch.h). */
#ifndef PHI_SERVER_SERVER_H
#define PHI_SERVER_SERVER_H

#include "phidelity.h"

struct phi_server;

struct phi_strings {
    const char *const *data;
    size_t n;
};

/* Strings and lists are the caller's and must outlive the server. NULL = not given. */
struct phi_server_options {
    /* where */
    const char *host; /* an address or a name; NULL = all interfaces, IPv6 and IPv4 */
    int port;         /* 0 = one that is free; see phi_server_port */
    const char *uds;  /* path of a Unix socket, instead of host and port */
    const char *root_path; /* prefix that a proxy leaves in the path: "/phi" */

    /* who */
    const char *model;                /* the folder as the user named it: "root" in /v1/models */
    struct phi_strings served_names;  /* the first is echoed; none = {model} */
    struct phi_strings api_keys;      /* any of them opens the paths under /v1 */
    const char *ssl_keyfile, *ssl_certfile, *ssl_ca_certs; /* PEM */
    bool ssl_require_client;          /* a client must show a certificate of ssl_ca_certs */
    struct phi_strings allowed_origins, allowed_methods, allowed_headers; /* CORS; "*" = any */
    bool allow_credentials;

    /* limits */
    size_t max_body_bytes;    /* of a request; more is 413 */
    size_t max_header_bytes;  /* of all header lines; more is 431 */
    int max_connections;
    int idle_timeout_s;       /* a connection between requests */
    int request_timeout_s;    /* from a request's first line to its last byte */
    int write_timeout_s;      /* a client that takes nothing of what is ready for it */
    int n_threads;            /* of HTTP */

    /* what requests may ask for, and their defaults */
    bool has_max_tokens_default;      /* sampling.max_tokens came from generation_config */
    int max_tokens_cap;               /* of --override-generation-config; 0 = none */
    int max_logprobs;                 /* -1 = the vocabulary */
    bool trust_request_chat_template;
    struct phi_text chat_template_kwargs; /* JSON object; n = 0: none */
    const char *response_role;        /* "assistant" */
    bool return_tokens_as_token_ids;
    bool prompt_tokens_details;       /* usage.prompt_tokens_details */
    bool force_include_usage;
    int stream_interval;              /* tokens of a chunk, >= 1 */
    bool request_id_headers;          /* X-Request-Id in answers */
    bool server_load_tracking;        /* /load counts */

    /* what is logged */
    bool access_log;
    struct phi_strings access_log_except; /* paths */
    bool log_requests, log_outputs;
    int max_log_len;                  /* characters or ids of a prompt; -1 = all */
    bool log_stats;                   /* the statistics line, and the request metrics */
    double log_stats_interval_s;

    /* "flag=value" lines of what was set, shown by / and at the start */
    const char *settings_text;
};

/* The defaults of every field but model. */
void phi_server_options_init(struct phi_server_options *o);

/* PHI_ERR_IO names the address and why it cannot be bound; PHI_ERR_INVALID an option. */
enum phi_status phi_server_start(const struct phi_server_options *o, struct phi_server **out,
                                 struct phi_error *err);
int phi_server_port(const struct phi_server *s); /* 0 for a Unix socket */

/* All three stay the caller's and must outlive the server. `sampling` holds the defaults of requests, which may
 * come from the model. */
enum phi_status phi_server_open(struct phi_server *s, struct phi_model *m, struct phi_engine *e,
                                const struct phi_sampling *sampling, struct phi_error *err);

/* Takes no new work. Returns true when all work has ended within timeout_s; what has not is cancelled then. */
bool phi_server_drain(struct phi_server *s, double timeout_s);

void phi_server_stop(struct phi_server *s); /* NULL is fine */

#endif
