/* serve_settings.c: from flags to the options of the server, the engine and the threads. */
#include "cli/serve.h"
#include "base/file.h"
#include "base/threads.h"
#include "formats/json.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_GENERATION_BYTES = 1 << 20 };

/* --------------------------------------------------------------- flags that must agree */

int serve_check_flags(const struct cli_args *args, const struct serve_flags *flags)
{
    const struct serve_own_flags *own = &flags->own;
    const struct cli_engine_flags *engine = &flags->engine;
    if (args->n_positional == 2)
        return cli_usage_error(args->command, "unexpected argument '%s'", args->positional[1]);
    if (!own->ssl_keyfile != !own->ssl_certfile)
        return cli_usage_error(args->command, "--ssl-keyfile and --ssl-certfile need each other");
    if (own->ssl_cert_reqs != 0 && !own->ssl_ca_certs)
        return cli_usage_error(args->command, "--ssl-cert-reqs needs --ssl-ca-certs");
    if (own->ssl_ca_certs && !own->ssl_certfile)
        return cli_usage_error(args->command, "--ssl-ca-certs needs --ssl-certfile");
    if (own->log_outputs && !own->log_requests)
        return cli_usage_error(args->command, "--enable-log-outputs needs --enable-log-requests");
    if (cli_given(args, "max-num-seqs") && engine->max_num_seqs > engine->max_num_batched_tokens)
        return cli_usage_error(args->command,
                               "--max-num-batched-tokens (%d) must be at least --max-num-seqs (%d)",
                               engine->max_num_batched_tokens, engine->max_num_seqs);
    for (size_t i = 0; i < own->served_names.n; i++)
        if (own->served_names.data[i][0] == '\0')
            return cli_usage_error(args->command, "--served-model-name must not be empty");
    for (size_t i = 0; i < own->api_keys.n; i++)
        if (own->api_keys.data[i][0] == '\0')
            return cli_usage_error(args->command, "--api-key must not be empty");
    if (own->root_path && own->root_path[0] != '/' && own->root_path[0] != '\0')
        return cli_usage_error(args->command, "--root-path must begin with '/', not '%s'",
                               own->root_path);
    return -1;
}

/* --------------------------------------------------------------- defaults of sampling */

/* dir/generation_config.json into *g; a file that is not there is an error only where it was asked
 * for. */
static enum phi_status read_folder(const char *dir, bool must_exist, struct phi_generation *g,
                                   struct phi_error *err)
{
    struct phi_buf path = {0};
    json_t *object = NULL;
    if (!phi_path_join(&path, dir, "generation_config.json"))
        return phi_fail_memory(err, "a path", strlen(dir));
    enum phi_status status = PHI_OK;
    if (must_exist || phi_file_exists(path.data))
        status = phi_json_parse_file(path.data, MAX_GENERATION_BYTES, &object, err);
    if (object && !json_is_object(object))
        status = phi_fail(err, PHI_ERR_FORMAT, "%s: expected an object", path.data);
    else if (object)
        status = phi_generation_read(object, path.data, g, err);
    json_decref(object);
    phi_buf_deinit(&path);
    return status;
}

static enum phi_status init_sampling(struct serve_settings *s, struct phi_error *err)
{
    const struct serve_own_flags *own = &s->flags->own;
    const char *source = own->generation_config, *name = "--override-generation-config";
    bool automatic = strcmp(source, "auto") == 0;
    struct phi_generation *g = &s->generation, override = {0};
    phi_sampling_init(&s->sampling);
    if (strcmp(source, "vllm") != 0)
        PHI_TRY(read_folder(automatic ? s->args->positional[0] : source, !automatic, g, err));
    s->server.has_max_tokens_default = g->has_max_new_tokens;
    if (own->override_generation) {
        PHI_TRY(phi_generation_read(own->override_generation, name, g, err));
        PHI_TRY(phi_generation_read(own->override_generation, name, &override, err));
    }
    if (override.has_max_new_tokens)
        s->server.max_tokens_cap = override.max_new_tokens;
    phi_generation_apply(g, &s->sampling);
    return PHI_OK;
}

/* --------------------------------------------------------------- server */

static struct phi_strings strings_of(const struct cli_texts *texts)
{
    return (struct phi_strings){texts->data, texts->n};
}

static void set_address(struct phi_server_options *o, const struct serve_own_flags *own)
{
    o->host = own->host;
    o->port = own->port;
    o->uds = own->uds;
    o->api_keys = strings_of(&own->api_keys);
    o->ssl_keyfile = own->ssl_keyfile;
    o->ssl_certfile = own->ssl_certfile;
    o->ssl_ca_certs = own->ssl_ca_certs;
    o->ssl_require_client = own->ssl_cert_reqs != 0;
    o->allowed_origins = strings_of(&own->allowed_origins);
    o->allowed_methods = strings_of(&own->allowed_methods);
    o->allowed_headers = strings_of(&own->allowed_headers);
    o->allow_credentials = own->allow_credentials;
}

static void set_limits(struct phi_server_options *o, const struct serve_own_flags *own)
{
    o->max_body_bytes = (size_t)own->max_body_bytes;
    o->max_header_bytes = (size_t)own->max_header_bytes;
    o->max_connections = own->max_connections;
    o->idle_timeout_s = own->idle_timeout_s;
    o->request_timeout_s = own->request_timeout_s;
    o->write_timeout_s = own->write_timeout_s;
    o->n_threads = own->http_threads;
}

static void set_answers(struct phi_server_options *o, const struct serve_own_flags *own)
{
    o->max_logprobs = own->max_logprobs;
    o->trust_request_chat_template = own->trust_request_chat_template;
    o->response_role = own->response_role;
    o->return_tokens_as_token_ids = own->return_tokens_as_token_ids;
    o->prompt_tokens_details = own->prompt_tokens_details;
    o->force_include_usage = own->force_include_usage;
    o->stream_interval = own->stream_interval;
    o->request_id_headers = own->request_id_headers;
    o->server_load_tracking = own->server_load_tracking;
}

static void set_log(struct phi_server_options *o, const struct serve_own_flags *own)
{
    o->access_log = !own->disable_access_log && own->uvicorn_log_level <= PHI_LOG_INFO;
    o->access_log_except = strings_of(&own->access_log_except);
    o->log_requests = own->log_requests;
    o->log_outputs = own->log_outputs;
    o->max_log_len = own->max_log_len;
    o->log_stats = !own->disable_log_stats;
    o->log_stats_interval_s = own->log_stats_interval_s;
}

/* "flag=value" lines of all that was set, the model first. */
static void list_settings(struct serve_settings *s)
{
    struct cli_found f;
    phi_buf_printf(&s->text, "model=%s", s->args->positional[0]);
    for (struct cli_cursor c = {0}; cli_next_option(s->args->command, &c, &f);) {
        if (!cli_is_given(s->args, &f) || cli_inert_reason(f.option) ||
            strcmp(f.option->name, "model") == 0)
            continue;
        phi_buf_printf(&s->text, "\n%s=", f.option->name);
        cli_format_value(&s->text, &f, (void *)(uintptr_t)s->flags);
    }
}

enum phi_status serve_settings_init(struct serve_settings *s, const struct cli_args *args,
                                    const struct serve_flags *flags, struct phi_error *err)
{
    const struct serve_own_flags *own = &flags->own;
    *s = (struct serve_settings){.args = args, .flags = flags};
    struct phi_server_options *o = &s->server;
    phi_server_options_init(o);
    set_address(o, own);
    set_limits(o, own);
    set_answers(o, own);
    set_log(o, own);
    o->model = args->positional[0];
    o->served_names = strings_of(&own->served_names);
    PHI_TRY(init_sampling(s, err));
    if (own->root_path) {
        size_t n = strlen(own->root_path);
        while (n > 0 && own->root_path[n - 1] == '/')
            n--;
        phi_buf_append(&s->root_path, own->root_path, n);
        if (s->root_path.failed)
            return phi_fail_memory(err, "--root-path", n);
        o->root_path = n > 0 ? s->root_path.data : NULL;
    }
    if (own->chat_template_kwargs) {
        struct phi_buf *text = &s->chat_template_kwargs;
        phi_json_dump(own->chat_template_kwargs, JSON_COMPACT, text);
        if (text->failed)
            return phi_fail_memory(err, "--default-chat-template-kwargs", text->n);
        o->chat_template_kwargs = (struct phi_text){text->data, text->n};
    }
    list_settings(s);
    if (s->text.failed)
        return phi_fail_memory(err, "the list of settings", s->text.n);
    o->settings_text = s->text.data;
    return PHI_OK;
}

void serve_settings_deinit(struct serve_settings *s)
{
    phi_buf_deinit(&s->chat_template_kwargs);
    phi_buf_deinit(&s->root_path);
    phi_buf_deinit(&s->text);
}

/* --------------------------------------------------------------- log */

static void log_unknown_keys(const json_t *object)
{
    static const char *const known[] = {"temperature",        "top_p",          "top_k",    "min_p",
                                        "repetition_penalty", "max_new_tokens", "do_sample"};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
            found = found || strcmp(known[i], key) == 0;
        if (!found)
            phi_log(PHI_LOG_WARNING, "--override-generation-config: %s has no effect here", key);
    }
}

/* The line by which one sees that answers are not sampled with vLLM's own defaults. */
static void log_generation(const struct phi_generation *g, const char *source)
{
    struct phi_buf text = {0};
    if (g->has_temperature)
        phi_buf_printf(&text, ", temperature %g", g->temperature);
    if (g->has_top_p)
        phi_buf_printf(&text, ", top_p %g", g->top_p);
    if (g->has_top_k)
        phi_buf_printf(&text, ", top_k %d", g->top_k);
    if (g->has_min_p)
        phi_buf_printf(&text, ", min_p %g", g->min_p);
    if (g->has_repetition_penalty)
        phi_buf_printf(&text, ", repetition_penalty %g", g->repetition_penalty);
    if (g->has_max_new_tokens)
        phi_buf_printf(&text, ", max_tokens %d", g->max_new_tokens);
    if (text.n > 0 && !text.failed)
        phi_log(PHI_LOG_INFO,
                "Default sampling parameters (--generation-config %s, and overrides): %s. "
                "--generation-config vllm leaves out the model's.",
                source, text.data + 2);
    phi_buf_deinit(&text);
}

void serve_settings_log(const struct serve_settings *s)
{
    struct phi_buf line = {0};
    for (const char *p = s->text.data; *p; p++)
        phi_buf_append_c(&line, *p == '\n' ? ", " : (char[]){*p, '\0'});
    phi_log(PHI_LOG_INFO, "phidelity %s, non-default args: %s", phi_version(),
            line.failed ? "" : line.data);
    phi_buf_deinit(&line);
    log_generation(&s->generation, s->flags->own.generation_config);
    log_unknown_keys(s->flags->own.override_generation);
}

/* --------------------------------------------------------------- engine */

enum phi_status serve_engine_options(const struct serve_settings *s, const struct phi_model *model,
                                     struct phi_engine_options *out, struct phi_error *err)
{
    const struct serve_flags *flags = s->flags;
    struct phi_model_info info;
    PHI_TRY(cli_engine_options(s->args, &flags->engine, flags->model.seed, 0, model, out, err));
    out->max_waiting = flags->own.max_waiting;
    phi_model_get_info(model, &info);
    if (!flags->own.disable_sliding_window || info.sliding_window == 0)
        return PHI_OK;
    if (out->max_model_len > info.sliding_window)
        return phi_fail(err, PHI_ERR_INVALID,
                        "--disable-sliding-window ends contexts at %d tokens, but --max-model-len "
                        "asks for %d",
                        info.sliding_window, out->max_model_len);
    if (out->max_model_len == 0 && info.max_position_embeddings > info.sliding_window)
        out->max_model_len = info.sliding_window;
    return PHI_OK;
}

/* --------------------------------------------------------------- threads */

/* "0-7,16": the first of several lists. False when it is none, or names a processor out of range.
 */
static bool parse_cpus(const char *text, cpu_set_t *out)
{
    CPU_ZERO(out);
    while (*text && *text != '|') {
        char *end;
        unsigned long first = strtoul(text, &end, 10), last = first;
        if (*text < '0' || *text > '9')
            return false;
        text = end;
        if (*text == '-') {
            last = strtoul(text + 1, &end, 10);
            if (text[1] < '0' || text[1] > '9')
                return false;
            text = end;
        }
        if (last < first || last >= CPU_SETSIZE)
            return false;
        for (unsigned long cpu = first; cpu <= last; cpu++)
            CPU_SET(cpu, out);
        if (*text == ',')
            text++;
        else if (*text && *text != '|')
            return false;
    }
    return CPU_COUNT(out) > 0;
}

enum phi_status serve_place_threads(const struct serve_own_flags *own, int *n_threads,
                                    struct phi_error *err)
{
    const char *list = own->bind_cpus;
    cpu_set_t cpus;
    if (strcmp(list, "auto") != 0 && strcmp(list, "nobind") != 0) {
        if (!parse_cpus(list, &cpus))
            return phi_fail(err, PHI_ERR_INVALID,
                            "--cpus: expected auto, nobind or processors as 0-7,16, not '%s'",
                            list);
        if (sched_setaffinity(0, sizeof cpus, &cpus) != 0)
            return phi_fail(err, PHI_ERR_INVALID,
                            "--cpus: this process may use none of the processors %s", list);
    }
    if (*n_threads == 0 && own->reserved_cpus > 0) {
        int n = phi_n_cores() - own->reserved_cpus;
        *n_threads = n < 1 ? 1 : n;
    }
    return PHI_OK;
}
