/* serve_flags.c: the options of `phidelity serve` that do something, under vLLM's names where it
 * has one, and the variables of the environment. The engine's and the model's are in flags.c. */
#include "cli/serve.h"

#include <limits.h>

enum { VERIFY_NONE = 0, VERIFY_REQUIRED = 2 }; /* Python's ssl.CERT_NONE, ssl.CERT_REQUIRED */

static const struct cli_name verify_names[] = {
    {"0", VERIFY_NONE}, {"2", VERIFY_REQUIRED}, {NULL, 0}};

static const struct cli_name level_names[] = {
    {"debug", PHI_LOG_DEBUG},     {"info", PHI_LOG_INFO},
    {"warning", PHI_LOG_WARNING}, {"error", PHI_LOG_ERROR},
    {"critical", PHI_LOG_ERROR},  {NULL, 0},
};

static const struct cli_name uvicorn_names[] = {
    {"info", PHI_LOG_INFO},   {"trace", PHI_LOG_DEBUG}, {"debug", PHI_LOG_DEBUG},
    {"warning", PHI_LOG_WARNING}, {"error", PHI_LOG_ERROR}, {"critical", PHI_LOG_ERROR},
    {NULL, 0},
};

/* clang-format off */
#define AT(member) .offset = offsetof(struct serve_own_flags, member)

const struct cli_option_group serve_model_group = {
    "What is served",
    (const struct cli_option[]){
        {.name = "model", .kind = CLI_TEXT, AT(model), .argument = "MODEL",
         .help = "the checkpoint folder, when it is not the first argument"},
        {.name = "config", .kind = CLI_TEXT, AT(config), .argument = "FILE",
         .help = "a YAML file with lines of 'flag: value'; what the command line gives wins"},
        {.name = "served-model-name", .kind = CLI_WORDS, AT(served_names), .argument = "NAME...",
         .help = "names that requests may use; the first is echoed in answers and metrics; without "
                 "it, MODEL as it was typed"},
        {.name = "generation-config", .kind = CLI_TEXT, AT(generation_config), .argument = "C",
         .initial = "auto",
         .help = "where the defaults of sampling come from: auto, the model's "
                 "generation_config.json; vllm, none; or a folder with such a file"},
        {.name = "override-generation-config", .kind = CLI_JSON, AT(override_generation),
         .argument = "JSON",
         .help = "sampling defaults over those, as {\"temperature\": 0.5}; max_new_tokens here "
                 "bounds every answer"},
        {.name = "default-chat-template-kwargs", .kind = CLI_JSON, AT(chat_template_kwargs),
         .argument = "JSON", .help = "variables for the chat template; a request's own win"},
        {.name = "trust-request-chat-template", .kind = CLI_BOOL, AT(trust_request_chat_template),
         .help = "requests may bring a chat template"},
        {.name = "response-role", .kind = CLI_TEXT, AT(response_role), .argument = "ROLE",
         .initial = "assistant", .help = "role of answers in a chat"},
        {.name = "disable-sliding-window", .kind = CLI_BOOL, AT(disable_sliding_window),
         .help = "end contexts at the model's sliding window, if it has one"},
        {.name = "max-waiting", .kind = CLI_INT, AT(max_waiting), .initial = "2048",
         .max = INT_MAX,
         .help = "requests that may wait for their turn; one more is answered 503 with "
                 "Retry-After; 0 sets no limit"},
        {.name = "cpus", .kind = CLI_TEXT, AT(bind_cpus), .argument = "LIST",
         .initial = "auto",
         .help = "processors to compute on, as 0-7,16; auto and nobind leave it to the system"},
        {.name = "reserved-cpus", .kind = CLI_INT, AT(reserved_cpus), .initial = "0", .max = 4096,
         .help = "processors left to the HTTP side when --threads is 0"},
        {0},
    },
};

const struct cli_option_group serve_access_group = {
    "Address and access",
    (const struct cli_option[]){
        {.name = "host", .kind = CLI_TEXT, AT(host), .argument = "HOST",
         .help = "address or name to listen on; without it, every address of the machine"},
        {.name = "port", .kind = CLI_INT, AT(port), .initial = "8000", .max = 65535,
         .help = "TCP port; 0 takes a free one"},
        {.name = "uds", .kind = CLI_TEXT, AT(uds), .argument = "PATH",
         .help = "a Unix socket instead of host and port"},
        {.name = "root-path", .kind = CLI_TEXT, AT(root_path), .argument = "PATH",
         .help = "prefix that a proxy in front leaves in paths"},
        {.name = "api-key", .kind = CLI_WORDS, AT(api_keys), .argument = "KEY...", .secret = true,
         .help = "paths under /v1 need one of these keys as 'Authorization: Bearer KEY'"},
        {.name = "ssl-keyfile", .kind = CLI_TEXT, AT(ssl_keyfile), .argument = "FILE",
         .help = "private key (PEM); with --ssl-certfile: HTTPS"},
        {.name = "ssl-certfile", .kind = CLI_TEXT, AT(ssl_certfile), .argument = "FILE",
         .help = "certificate and its chain (PEM)"},
        {.name = "ssl-ca-certs", .kind = CLI_TEXT, AT(ssl_ca_certs), .argument = "FILE",
         .help = "authorities whose client certificates are accepted (PEM)"},
        {.name = "ssl-cert-reqs", .kind = CLI_CHOICE, AT(ssl_cert_reqs), .argument = "N",
         .initial = "0", .names = verify_names,
         .help = "whether a client must show a certificate, 2, or need not, 0"},
        {.name = "allowed-origins", .kind = CLI_JSON_LIST, AT(allowed_origins),
         .argument = "JSON", .initial = "[\"*\"]", .help = "CORS: origins, a JSON list"},
        {.name = "allowed-methods", .kind = CLI_JSON_LIST, AT(allowed_methods),
         .argument = "JSON", .initial = "[\"*\"]", .help = "CORS: methods, a JSON list"},
        {.name = "allowed-headers", .kind = CLI_JSON_LIST, AT(allowed_headers),
         .argument = "JSON", .initial = "[\"*\"]", .help = "CORS: request headers, a JSON list"},
        {.name = "allow-credentials", .kind = CLI_BOOL, AT(allow_credentials),
         .help = "CORS: requests may carry credentials"},
        {0},
    },
};

const struct cli_option_group serve_answer_group = {
    "Answers",
    (const struct cli_option[]){
        {.name = "max-logprobs", .kind = CLI_INT, AT(max_logprobs), .initial = "20", .min = -1,
         .max = INT_MAX,
         .help = "most that logprobs, top_logprobs and prompt_logprobs may ask for; -1 sets no "
                 "limit"},
        {.name = "return-tokens-as-token-ids", .kind = CLI_BOOL, AT(return_tokens_as_token_ids),
         .help = "tokens of logprobs are written token_id:N"},
        {.name = "stream-interval", .kind = CLI_INT, AT(stream_interval), .initial = "1",
         .min = 1, .max = INT_MAX, .help = "tokens of one streamed chunk; the first goes at once"},
        {.name = "enable-prompt-tokens-details", .kind = CLI_BOOL, AT(prompt_tokens_details),
         .help = "usage tells how many prompt tokens came from the prefix cache"},
        {.name = "enable-force-include-usage", .kind = CLI_BOOL, AT(force_include_usage),
         .help = "every stream ends with its usage"},
        {.name = "enable-request-id-headers", .kind = CLI_BOOL, AT(request_id_headers),
         .help = "answers carry X-Request-Id"},
        {.name = "enable-server-load-tracking", .kind = CLI_BOOL, AT(server_load_tracking),
         .help = "/load counts the requests that are being answered"},
        {0},
    },
};

const struct cli_option_group serve_limit_group = {
    "Limits of the HTTP side",
    (const struct cli_option[]){
        {.name = "max-body-bytes", .kind = CLI_INT64, AT(max_body_bytes), .initial = "32M",
         .min = 1024, .max = 1e12, .human_size = true, .help = "size of a request; more is 413"},
        {.name = "max-header-bytes", .kind = CLI_INT64, AT(max_header_bytes), .initial = "64K",
         .min = 1024, .max = 1 << 30, .human_size = true,
         .help = "size of a request's header lines; more is 431"},
        {.name = "h11-max-incomplete-event-size", .kind = CLI_INT64, AT(max_header_bytes),
         .min = 1024, .max = 1 << 30, .human_size = true,
         .help = "vLLM's name of --max-header-bytes"},
        {.name = "max-connections", .kind = CLI_INT, AT(max_connections), .initial = "16384",
         .min = 1, .max = 1 << 20, .help = "connections at a time"},
        {.name = "http-threads", .kind = CLI_INT, AT(http_threads), .initial = "4", .min = 1,
         .max = 256, .help = "threads that read, tokenise and answer"},
        {.name = "idle-timeout", .kind = CLI_INT, AT(idle_timeout_s), .argument = "S",
         .initial = "90", .min = 1, .max = 86400,
         .help = "seconds that a connection may stay open between requests"},
        {.name = "request-timeout", .kind = CLI_INT, AT(request_timeout_s), .argument = "S",
         .initial = "60", .min = 1, .max = 86400,
         .help = "seconds from a request's first line to its last byte"},
        {.name = "write-timeout", .kind = CLI_INT, AT(write_timeout_s), .argument = "S",
         .initial = "60", .min = 1, .max = 86400,
         .help = "seconds that a client may take nothing of what is ready for it"},
        {.name = "shutdown-timeout", .kind = CLI_INT, AT(shutdown_timeout_s), .argument = "S",
         .initial = "25", .max = 86400,
         .help = "seconds that requests may run on after SIGTERM; 0 cancels them at once"},
        {0},
    },
};

const struct cli_option_group serve_log_group = {
    "Log",
    (const struct cli_option[]){
        {.name = "log-level", .kind = CLI_CHOICE, AT(log_level), .argument = "L",
         .initial = "info", .names = level_names, .help = "the least level that is shown"},
        {.name = "uvicorn-log-level", .kind = CLI_CHOICE, AT(uvicorn_log_level), .argument = "L",
         .initial = "info", .names = uvicorn_names,
         .help = "above info there is no access log"},
        {.name = "disable-uvicorn-access-log", .kind = CLI_BOOL, AT(disable_access_log),
         .help = "no log line for each request answered"},
        {.name = "disable-access-log-for-endpoints", .kind = CLI_COMMAS, AT(access_log_except),
         .argument = "PATHS", .help = "no such line for these paths, as /health,/metrics"},
        {.name = "enable-log-requests", .kind = CLI_BOOL, AT(log_requests),
         .help = "log each request's id and parameters; at debug level also its prompt"},
        {.name = "enable-log-outputs", .kind = CLI_BOOL, AT(log_outputs),
         .help = "log each answer; needs --enable-log-requests"},
        {.name = "max-log-len", .kind = CLI_INT, AT(max_log_len), .initial = "-1", .min = -1,
         .max = INT_MAX, .help = "characters or ids of a prompt that are logged; -1 sets no limit"},
        {.name = "disable-log-stats", .kind = CLI_BOOL, AT(disable_log_stats),
         .help = "no statistics line and no request metrics"},
        {.name = "log-stats-interval", .kind = CLI_REAL, AT(log_stats_interval_s),
         .argument = "S", .initial = "10", .above_min = true, .max = 86400,
         .help = "seconds between statistics lines"},
        {0},
    },
};

#undef AT

#define NO_REPORTS "nothing about its use is ever sent anywhere"
#define NO_TORCH "there is no PyTorch, CUDA or NCCL in this program"
#define ONE_PROCESS "there is one process"

const struct cli_variable serve_variables[] = {
    {.name = "VLLM_API_KEY", .own_name = "PHI_API_KEY", .option = "api-key",
     .help = "a key that requests must bring"},
    {.name = "VLLM_CPU_KVCACHE_SPACE", .own_name = "PHI_KV_CACHE_GIB",
     .option = "kv-cache-memory-bytes", .gibibytes = true,
     .help = "size of the KV cache in whole GiB; 0 is as if unset"},
    {.name = "VLLM_CPU_OMP_THREADS_BIND", .own_name = "PHI_CPUS", .option = "cpus",
     .help = "processors to compute on; of several lists (0-3|4-7) the first"},
    {.name = "VLLM_CPU_NUM_OF_RESERVED_CPU", .own_name = "PHI_RESERVED_CPUS",
     .option = "reserved-cpus", .help = "processors left to the HTTP side"},
    {.name = "VLLM_LOG_STATS_INTERVAL", .own_name = "PHI_LOG_STATS_INTERVAL",
     .option = "log-stats-interval", .help = "seconds between statistics lines"},
    {.name = "VLLM_LOGGING_LEVEL", .own_name = "PHI_LOG_LEVEL", .option = "log-level",
     .help = "the least level that is shown"},
    {.name = "VLLM_HTTP_TIMEOUT_KEEP_ALIVE", .own_name = "PHI_IDLE_TIMEOUT",
     .option = "idle-timeout", .help = "seconds that an idle connection stays open"},
    {.name = "VLLM_ALLOW_LONG_MAX_MODEL_LEN",
     .help = "contexts end at max_position_embeddings, beyond which the model has no positions"},
    {.name = "VLLM_BATCH_INVARIANT",
     .help = "answers never depend on what else is computed, with or without it"},
    {.name = "VLLM_PORT", .help = "it is not the port of the API; that is --port"},
    {.name = "VLLM_HOST_IP", .help = ONE_PROCESS "; the address to listen on is --host"},
    {.name = "VLLM_NO_USAGE_STATS", .help = NO_REPORTS},
    {.name = "VLLM_DO_NOT_TRACK", .help = NO_REPORTS},
    {.name = "VLLM_USAGE_SOURCE", .help = NO_REPORTS},
    {.name = "VLLM_USAGE_STATS_SERVER", .help = NO_REPORTS},
    {.name = "VLLM_USE_MODELSCOPE", .help = "nothing is downloaded"},
    {.name = "VLLM_CACHE_ROOT", .help = "nothing is cached in files"},
    {.name = "VLLM_CONFIG_ROOT", .help = "no settings are read but --config"},
    {.name = "VLLM_CONFIGURE_LOGGING", .help = "the log goes to standard error"},
    {.name = "VLLM_LOGGING_CONFIG_PATH", .help = "the log goes to standard error"},
    {.name = "VLLM_LOGGING_STREAM", .help = "the log goes to standard error"},
    {.name = "VLLM_LOGGING_PREFIX", .help = "lines have no prefix"},
    {.name = "VLLM_LOGGING_COLOR", .help = "the log has no colours"},
    {.name = "VLLM_DISABLE_LOG_LOGO", .help = "there is none"},
    {.name = "VLLM_USE_V1", .help = "there is one engine"},
    {.name = "VLLM_ENABLE_V1_MULTIPROCESSING", .help = ONE_PROCESS},
    {.name = "VLLM_WORKER_MULTIPROC_METHOD", .help = ONE_PROCESS},
    {.name = "VLLM_RPC_TIMEOUT", .help = ONE_PROCESS},
    {.name = "VLLM_ENGINE_READY_TIMEOUT_S", .help = ONE_PROCESS},
    {.name = "VLLM_ENGINE_ITERATION_TIMEOUT_S", .help = ONE_PROCESS},
    {.name = "VLLM_KEEP_ALIVE_ON_ENGINE_DEATH", .help = ONE_PROCESS},
    {.name = "VLLM_TARGET_DEVICE", .help = "this program computes on CPUs"},
    {.name = "VLLM_CPU_SGL_KERNEL", .help = NO_TORCH},
    {.name = "VLLM_CPU_MOE_PREPACK", .help = NO_TORCH},
    {.name = "VLLM_CPU_ATTN_SPLIT_KV", .help = "attention always splits at fixed positions"},
    {.name = "VLLM_ATTENTION_BACKEND", .help = "there is one attention"},
    {.name = "VLLM_USE_FLASHINFER_SAMPLER", .help = NO_TORCH},
    {.name = "VLLM_USE_TRITON_FLASH_ATTN", .help = NO_TORCH},
    {.name = "VLLM_NCCL_SO_PATH", .help = NO_TORCH},
    {.name = "VLLM_DISABLE_COMPILE_CACHE", .help = NO_TORCH},
    {.name = "VLLM_USE_STANDALONE_COMPILE", .help = NO_TORCH},
    {.name = "VLLM_USE_PRECOMPILED", .help = NO_TORCH},
    {.name = "VLLM_FLOAT32_MATMUL_PRECISION", .help = "--dtype alone decides"},
    {.name = "VLLM_KV_CACHE_LAYOUT", .help = "there is one layout"},
    {.name = "VLLM_COMPUTE_NANS_IN_LOGITS",
     .help = "NaNs are always noticed, end their request and are counted"},
    {.name = "VLLM_PLUGINS", .help = "there are no plugins"},
    {.name = "VLLM_SERVER_DEV_MODE", .help = "there are no such routes"},
    {.name = "VLLM_SKIP_MODEL_NAME_VALIDATION",
     .help = "a request that names another model is always answered 404"},
    {0},
};
/* clang-format on */
