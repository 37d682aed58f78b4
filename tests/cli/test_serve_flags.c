/* test_serve_flags.c: the flags of `phidelity serve`: each of them with good and bad values, what
 * has no effect and what is refused, the configuration file, the environment, and which of them
 * wins. */
#include "base/alloc.h"
#include "base/file.h"
#include "cli/serve.h"

#include "../temp_folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

enum { MAX_WORDS = 40 };

/* One parsed command line. */
struct parsed {
    struct serve_flags flags;
    struct cli_args args;
    struct serve_settings settings;
    int code;         /* -1: it would go on */
    char error[2048]; /* what was printed to standard error */
};

static char *no_environment[] = {NULL};

/* --------------------------------------------------------------- capturing */

struct capture {
    FILE *file;
    int saved;
};

static void capture_begin(struct capture *c)
{
    c->file = tmpfile();
    assert_non_null(c->file);
    fflush(stderr);
    c->saved = dup(STDERR_FILENO);
    dup2(fileno(c->file), STDERR_FILENO);
}

static void capture_end(struct capture *c, char *text, size_t capacity)
{
    fflush(stderr);
    dup2(c->saved, STDERR_FILENO);
    close(c->saved);
    rewind(c->file);
    text[fread(text, 1, capacity - 1, c->file)] = '\0';
    fclose(c->file);
}

/* --------------------------------------------------------------- parsing */

/* As `phidelity serve words...` does before it binds its address. */
static void parse(struct parsed *p, const char *const *words, char **environment)
{
    char *argv[MAX_WORDS + 2] = {(char *)(uintptr_t) "serve"};
    struct capture c;
    struct phi_error err;
    int argc = 1;
    for (; words[argc - 1]; argc++) {
        assert_true(argc < MAX_WORDS);
        argv[argc] = (char *)(uintptr_t)words[argc - 1];
    }
    *p = (struct parsed){0};
    capture_begin(&c);
    p->code = cli_parse(&cli_serve, argc, argv, &p->flags, &p->args);
    if (p->code < 0)
        p->code = cli_environment_read(serve_variables, environment, &p->args, &p->flags);
    if (p->code < 0)
        p->code = serve_check_flags(&p->args, &p->flags);
    if (p->code < 0 && serve_settings_init(&p->settings, &p->args, &p->flags, &err) != PHI_OK)
        p->code = cli_fail(&err);
    capture_end(&c, p->error, sizeof p->error);
}

static void done(struct parsed *p)
{
    serve_settings_deinit(&p->settings);
    cli_options_deinit(&p->args, &p->flags);
}

#define PARSE(p, ...) parse(p, (const char *const[]){__VA_ARGS__, NULL}, no_environment)

static void must_pass(const struct parsed *p, const char *flag, const char *value)
{
    if (p->code != -1)
        fail_msg("%s '%s': %s", flag, value, p->error);
}

/* Exit code 2 and one line that holds `fragment`. */
static void must_fail(const struct parsed *p, const char *flag, const char *fragment)
{
    const char *line_end = strchr(p->error, '\n');
    if (p->code != CLI_USAGE || !strstr(p->error, fragment) || !line_end || line_end[1])
        fail_msg("%s: code %d, error '%s', expected '%s'", flag, p->code, p->error, fragment);
}

/* The option's value as it could be typed. */
static void format_flag(struct parsed *p, const char *flag, char out[256])
{
    struct cli_found f;
    struct phi_buf text = {0};
    assert_true(cli_find_option(&cli_serve, flag, &f));
    cli_format_value(&text, &f, &p->flags);
    snprintf(out, 256, "%s", text.n ? text.data : "");
    phi_buf_deinit(&text);
}

static void must_be(struct parsed *p, const char *flag, const char *expected)
{
    char text[256];
    format_flag(p, flag, text);
    if (strcmp(text, expected) != 0)
        fail_msg("%s is '%s', expected '%s'", flag, text, expected);
}

static void write_text(struct temp_folder *folder, const char *name, const char *text)
{
    temp_write(folder, name, text, strlen(text));
}

/* --------------------------------------------------------------- every flag that works */

struct row {
    const char *flag;
    const char *good, *means; /* means: as it is shown again; NULL = as typed */
    const char *bad[4];
};

static const struct row rows[] = {
    {"model", "models/x", NULL, {NULL}},
    {"served-model-name", "phi", NULL, {""}},
    {"generation-config", "vllm", NULL, {NULL}},
    {"override-generation-config",
     "{\"top_k\": 3}",
     "{\"top_k\":3}",
     {"{", "3", "[]", "{\"a\":1,\"a\":2}"}},
    {"default-chat-template-kwargs", "{\"a\": [1]}", "{\"a\":[1]}", {"x", "\"x\""}},
    {"response-role", "model", NULL, {NULL}},
    {"max-waiting", "0", NULL, {"-1", "x", "1.5"}},
    {"cpus", "0-3,8", NULL, {NULL}},
    {"reserved-cpus", "1", NULL, {"-1", "x"}},
    {"host", "127.0.0.1", NULL, {NULL}},
    {"port", "0", NULL, {"-1", "65536", "http", ""}},
    {"uds", "/tmp/phi.sock", NULL, {NULL}},
    {"root-path", "/phi", NULL, {"phi"}},
    {"api-key", "secret", "***", {""}},
    {"allowed-origins", "[\"https://a\", \"b\"]", "https://a b", {"*", "[1]", "{}", "[\"a\""}},
    {"allowed-methods", "[\"GET\"]", "GET", {"GET"}},
    {"allowed-headers", "[]", "", {"x-a"}},
    {"dtype", "bfloat16", NULL, {"int8", ""}},
    {"quantization", "w4a8", NULL, {"int8", "gptq", ""}},
    {"quant-group-size", "64", NULL, {"-1", "x"}},
    {"load-format", "dummy", NULL, {"gguf", "pt"}},
    {"safetensors-load-strategy", "prefetch", NULL, {"torchao", ""}},
    {"threads", "2", NULL, {"-1", "1025", "two"}},
    {"seed", "42", NULL, {"x", "1e3"}},
    {"max-model-len", "25.6k", "25600", {"-2", "x", "1.5"}},
    {"max-num-seqs", "64", NULL, {"0", "-1", "513"}},
    {"max-num-batched-tokens", "2K", "2048", {"0", "x"}},
    {"block-size", "64", NULL, {"8", "512", "x"}},
    {"kv-cache-dtype", "bfloat16", NULL, {"fp8", "int8_per_token_head"}},
    {"gpu-memory-utilization", "0.5", NULL, {"0", "1.01", "-1", "nan"}},
    {"kv-cache-memory-bytes", "1G", "1073741824", {"x", "-1", "1.5K"}},
    {"num-gpu-blocks-override", "10", NULL, {"0", "-1", "x"}},
    {"scheduling-policy", "priority", NULL, {"lifo"}},
    {"tokenizer", "models/x", NULL, {NULL}},
    {"chat-template", "{{ messages }}", NULL, {NULL}},
    {"max-logprobs", "-1", NULL, {"-2", "x"}},
    {"stream-interval", "4", NULL, {"0", "-1"}},
    {"max-body-bytes", "1M", "1048576", {"10", "x"}},
    {"max-header-bytes", "8k", "8000", {"10", "2G"}},
    {"h11-max-incomplete-event-size", "4194304", NULL, {"0"}},
    {"max-connections", "100", NULL, {"0", "x"}},
    {"http-threads", "4", NULL, {"0", "257"}},
    {"idle-timeout", "5", NULL, {"0", "x"}},
    {"request-timeout", "5", NULL, {"0"}},
    {"write-timeout", "5", NULL, {"0"}},
    {"shutdown-timeout", "0", NULL, {"-1", "x"}},
    {"log-level", "warning", NULL, {"loud"}},
    {"uvicorn-log-level", "trace", NULL, {"loud"}},
    {"disable-access-log-for-endpoints", "/health, /metrics", "/health /metrics", {NULL}},
    {"max-log-len", "100", NULL, {"-2", "x"}},
    {"log-stats-interval", "0.5", NULL, {"0", "-1", "x"}},
    /* these need a second flag */
    {"config", NULL, NULL, {NULL}},
    {"ssl-keyfile", NULL, NULL, {"key.pem"}},
    {"ssl-certfile", NULL, NULL, {"cert.pem"}},
    {"ssl-ca-certs", NULL, NULL, {"ca.pem"}},
    {"ssl-cert-reqs", NULL, NULL, {"1", "2", "x"}},
    {"enable-log-outputs", NULL, NULL, {NULL}},
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

static void test_each_flag(void **state)
{
    struct parsed p;
    char flag[80], joined[256];
    (void)state;
    for (size_t i = 0; i < N_ROWS; i++) {
        const struct row *r = &rows[i];
        snprintf(flag, sizeof flag, "--%s", r->flag);
        for (size_t j = 0; j < 4 && r->bad[j]; j++) {
            PARSE(&p, "MODEL", flag, r->bad[j]);
            must_fail(&p, flag, flag);
            done(&p);
        }
        if (!r->good)
            continue;
        PARSE(&p, "MODEL", flag, r->good);
        must_pass(&p, flag, r->good);
        must_be(&p, r->flag, r->means ? r->means : r->good);
        done(&p);
        for (char *c = flag + 2; *c; c++)
            *c = *c == '-' ? '_' : *c;
        snprintf(joined, sizeof joined, "%s=%s", flag, r->good);
        PARSE(&p, "MODEL", joined);
        must_pass(&p, joined, "");
        must_be(&p, r->flag, r->means ? r->means : r->good);
        assert_true(cli_given(&p.args, r->flag));
        done(&p);
    }
}

/* A flag that is new in the tables needs a line above. */
static void test_no_flag_is_left_out(void **state)
{
    struct cli_found f;
    struct parsed p;
    (void)state;
    for (struct cli_cursor c = {0}; cli_next_option(&cli_serve, &c, &f);) {
        char flag[80];
        bool found = cli_inert_reason(f.option) != NULL;
        for (size_t i = 0; i < N_ROWS; i++)
            found = found || strcmp(rows[i].flag, f.option->name) == 0;
        if (!found && f.option->kind != CLI_BOOL)
            fail_msg("--%s has no row in this test", f.option->name);
        if (f.option->kind != CLI_BOOL || found)
            continue;
        bool initially = f.option->initial != NULL;
        snprintf(flag, sizeof flag, "--%s%s", initially ? "no-" : "", f.option->name);
        PARSE(&p, "MODEL", flag);
        must_pass(&p, flag, "");
        must_be(&p, f.option->name, initially ? "false" : "true");
        done(&p);
        PARSE(&p, "MODEL");
        must_be(&p, f.option->name, initially ? "true" : "false");
        done(&p);
    }
}

static void test_names_are_unique(void **state)
{
    struct cli_found a, b;
    (void)state;
    for (struct cli_cursor c = {0}; cli_next_option(&cli_serve, &c, &a);) {
        assert_true(cli_find_option(&cli_serve, a.option->name, &b));
        if (a.number != b.number)
            fail_msg("--%s is there twice", a.option->name);
        for (struct cli_cursor d = c; a.option->brief && cli_next_option(&cli_serve, &d, &b);)
            if (b.option->brief && strcmp(a.option->brief, b.option->brief) == 0)
                fail_msg("-%s is there twice", a.option->brief);
    }
    assert_true(a.number < CLI_MAX_OPTIONS - 1); /* else the last would be lost silently */
}

/* --------------------------------------------------------------- flags that do nothing */

static struct {
    int n;
    char last[512];
} logged;

static void count_line(void *context, int level, const char *line)
{
    (void)context;
    (void)level;
    logged.n++;
    snprintf(logged.last, sizeof logged.last, "%s", line);
}

/* Some value for an option that takes one. */
static const char *any_value(const struct cli_option *o)
{
    return o->kind == CLI_JSON ? "{\"a\": 1}" : o->kind == CLI_INT ? "2" : "something";
}

static void test_ignored(void **state)
{
    struct cli_found f;
    struct parsed p;
    char flag[80];
    int n_ignored = 0;
    (void)state;
    for (struct cli_cursor c = {0}; cli_next_option(&cli_serve, &c, &f);) {
        if (!f.option->ignored)
            continue;
        n_ignored++;
        snprintf(flag, sizeof flag, "--%s", f.option->name);
        if (f.option->kind == CLI_BOOL)
            PARSE(&p, "MODEL", flag);
        else
            PARSE(&p, "MODEL", flag, any_value(f.option));
        must_pass(&p, flag, "");
        logged.n = 0;
        cli_log_ignored(&p.args);
        assert_int_equal(logged.n, 1);
        assert_non_null(strstr(logged.last, flag));
        assert_non_null(strstr(logged.last, f.option->ignored));
        done(&p);
    }
    assert_true(n_ignored > 100);
    PARSE(&p, "MODEL", "--compilation-config", "{");
    must_fail(&p, "--compilation-config", "JSON");
    done(&p);
    PARSE(&p, "MODEL", "--port", "1");
    logged.n = 0;
    cli_log_ignored(&p.args);
    assert_int_equal(logged.n, 0);
    done(&p);
}

static void test_refused(void **state)
{
    struct cli_found f;
    struct parsed p;
    char flag[80];
    (void)state;
    for (struct cli_cursor c = {0}; cli_next_option(&cli_serve, &c, &f);) {
        if (!f.option->refused)
            continue;
        snprintf(flag, sizeof flag, "--%s", f.option->name);
        if (f.option->kind == CLI_BOOL)
            PARSE(&p, "MODEL", flag);
        else
            PARSE(&p, "MODEL", flag, any_value(f.option));
        must_fail(&p, flag, f.option->refused);
        must_fail(&p, flag, flag);
        done(&p);
        for (const char *word = f.option->harmless; word;) {
            char value[32];
            size_t n = strcspn(word, "|");
            snprintf(value, sizeof value, "%.*s", (int)n, word);
            PARSE(&p, "MODEL", flag, value);
            must_pass(&p, flag, value);
            done(&p);
            word = word[n] ? word + n + 1 : NULL;
        }
        snprintf(flag, sizeof flag, "--no-%s", f.option->name);
        PARSE(&p, "MODEL", flag);
        assert_int_equal(p.code, f.option->kind == CLI_BOOL ? -1 : CLI_USAGE);
        done(&p);
    }
}

/* --------------------------------------------------------------- spellings */

static void test_spellings(void **state)
{
    struct parsed p;
    (void)state;
    PARSE(&p, "--served-model-name", "a", "b", "--api-key", "k1", "k2", "--model", "M", "-tp", "1",
          "-O3", "-O.mode=3", "--compilation-config.a.b", "1", "-q", "none", "-cc", "{}");
    must_pass(&p, "a line", "");
    assert_string_equal(p.args.positional[0], "M");
    assert_int_equal(p.settings.server.served_names.n, 2);
    assert_string_equal(p.settings.server.served_names.data[1], "b");
    assert_int_equal(p.settings.server.api_keys.n, 2);
    assert_null(strstr(p.settings.text.data, "k1"));
    done(&p);

    PARSE(&p, "MODEL", "--served-model-name", "a", "b", "--served_model_name", "c", "--model",
          "other");
    assert_string_equal(p.args.positional[0], "MODEL");
    assert_int_equal(p.settings.server.served_names.n, 1); /* as with argparse, the last counts */
    done(&p);

    PARSE(&p, "--port", "1");
    must_fail(&p, "no model", "MODEL");
    done(&p);
    PARSE(&p, "--api-key", "k", "MODEL");
    must_fail(&p, "no model", "--api-key takes every word");
    done(&p);
    PARSE(&p, "MODEL", "other");
    must_fail(&p, "two models", "other");
    done(&p);
    PARSE(&p, "MODEL", "--max-num-seq", "3");
    must_fail(&p, "typing", "--max-num-seqs");
    done(&p);
    PARSE(&p, "MODEL", "--api-key", "--port", "1");
    must_fail(&p, "no key", "--api-key needs a value");
    done(&p);
    PARSE(&p, "MODEL", "--port.a", "1");
    must_fail(&p, "no member", "--port.a");
    done(&p);
    PARSE(&p, "MODEL", "-tp", "2");
    must_fail(&p, "-tp", "--tensor-parallel-size is refused with '2'");
    done(&p);
}

static void test_json_members(void **state)
{
    struct parsed p;
    (void)state;
    PARSE(&p, "MODEL", "--override-generation-config", "{\"top_k\": 5, \"temperature\": 1}",
          "--override-generation-config.temperature", "0.25",
          "--override_generation_config.top_p=0.5", "--default-chat-template-kwargs.a.b", "word",
          "--default-chat-template-kwargs.a.c", "[1, 2]");
    must_pass(&p, "members", "");
    must_be(&p, "override-generation-config", "{\"top_k\":5,\"temperature\":0.25,\"top_p\":0.5}");
    must_be(&p, "default-chat-template-kwargs", "{\"a\":{\"b\":\"word\",\"c\":[1,2]}}");
    assert_true(p.settings.sampling.temperature == 0.25 && p.settings.sampling.top_k == 5);
    done(&p);
    PARSE(&p, "MODEL", "--override-generation-config", "{\"top_k\": 5,\n\"top_p\": }");
    must_fail(&p, "place", "line 2 column 10");
    done(&p);
    PARSE(&p, "MODEL", "--override-generation-config.top_p", "2");
    assert_int_equal(p.code, CLI_FAILED);
    assert_non_null(strstr(p.error, "top_p: 2 is not between 0 and 1"));
    done(&p);
}

/* --------------------------------------------------------------- what flags come to */

static void test_server_options(void **state)
{
    struct parsed p;
    (void)state;
    PARSE(&p, "MODEL", "--host", "::1", "--port", "81", "--ssl-keyfile", "k", "--ssl-certfile", "c",
          "--ssl-ca-certs", "a", "--ssl-cert-reqs", "2", "--enable-log-requests",
          "--enable-log-outputs", "--uvicorn-log-level", "warning", "--disable-log-stats",
          "--max-logprobs", "-1", "--h11-max-incomplete-event-size", "5k", "--max-body-bytes", "2M",
          "--disable-access-log-for-endpoints", "/health,/ping");
    must_pass(&p, "a line", "");
    const struct phi_server_options *o = &p.settings.server;
    assert_string_equal(o->host, "::1");
    assert_int_equal(o->port, 81);
    assert_string_equal(o->model, "MODEL");
    assert_int_equal(o->served_names.n, 0);
    assert_string_equal(o->ssl_keyfile, "k");
    assert_true(o->ssl_require_client);
    assert_true(o->log_requests && o->log_outputs);
    assert_false(o->access_log);
    assert_false(o->log_stats);
    assert_int_equal(o->max_logprobs, -1);
    assert_int_equal(o->max_header_bytes, 5000);
    assert_int_equal(o->max_body_bytes, 2 << 20);
    assert_int_equal(o->access_log_except.n, 2);
    assert_string_equal(o->settings_text,
                        "model=MODEL\nhost=::1\nport=81\nssl-keyfile=k\nssl-certfile=c\n"
                        "ssl-ca-certs=a\nssl-cert-reqs=2\nmax-logprobs=-1\n"
                        "max-body-bytes=2097152\nh11-max-incomplete-event-size=5000\n"
                        "uvicorn-log-level=warning\n"
                        "disable-access-log-for-endpoints=/health /ping\n"
                        "enable-log-requests=true\nenable-log-outputs=true\n"
                        "disable-log-stats=true");
    done(&p);

    PARSE(&p, "MODEL");
    o = &p.settings.server;
    assert_null(o->host);
    assert_int_equal(o->port, 8000);
    assert_true(o->access_log && o->log_stats);
    assert_int_equal(o->idle_timeout_s, 90);
    assert_int_equal(o->request_timeout_s, 60);
    assert_int_equal(o->max_body_bytes, 32 << 20);
    assert_int_equal(o->max_header_bytes, 64 << 10);
    assert_int_equal(o->max_logprobs, 20);
    assert_int_equal(o->stream_interval, 1);
    assert_int_equal(o->allowed_origins.n, 1);
    assert_string_equal(o->allowed_origins.data[0], "*");
    assert_string_equal(o->settings_text, "model=MODEL");
    assert_null(o->root_path);
    done(&p);

    PARSE(&p, "MODEL", "--root-path", "/a/b//");
    assert_string_equal(p.settings.server.root_path, "/a/b");
    done(&p);
    PARSE(&p, "MODEL", "--root-path", "/");
    assert_null(p.settings.server.root_path);
    done(&p);
}

static void test_flags_that_need_others(void **state)
{
    static const char *const cases[][6] = {
        {"--ssl-keyfile", "k"},
        {"--ssl-certfile", "c"},
        {"--ssl-ca-certs", "a"},
        {"--ssl-keyfile", "k", "--ssl-certfile", "c", "--ssl-cert-reqs=2"},
        {"--enable-log-outputs"},
        {"--max-num-seqs", "64", "--max-num-batched-tokens", "32"},
    };
    struct parsed p;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *words[8] = {"MODEL"};
        memcpy(words + 1, cases[i], sizeof cases[i]);
        parse(&p, words, no_environment);
        must_fail(&p, cases[i][0], "--");
        done(&p);
    }
    /* the default of --max-num-seqs gives way instead */
    struct phi_engine_options o;
    struct phi_error err;
    PARSE(&p, "MODEL", "--max-num-batched-tokens", "32");
    must_pass(&p, "--max-num-batched-tokens", "32");
    assert_int_equal(cli_engine_options(&p.args, &p.flags.engine, 0, 0, NULL, &o, &err), PHI_OK);
    assert_int_equal(o.max_num_seqs, 32);
    done(&p);
}

static void test_engine_options(void **state)
{
    struct parsed p;
    struct phi_engine_options o;
    struct phi_error err;
    (void)state;
    PARSE(&p, "MODEL", "--max-model-len", "1K", "--gpu-memory-utilization", "0.5",
          "--kv-cache-memory-bytes", "1M", "--scheduling-policy", "priority", "--seed", "7",
          "--no-enable-prefix-caching", "--kv-cache-dtype", "half");
    assert_int_equal(
        cli_engine_options(&p.args, &p.flags.engine, p.flags.model.seed, 0, NULL, &o, &err),
        PHI_OK);
    assert_int_equal(o.max_model_len, 1024);
    assert_true(o.memory_utilization == 0.5);
    assert_int_equal(o.kv_bytes, 1 << 20);
    assert_int_equal(o.scheduling_policy, PHI_PRIORITY);
    assert_int_equal(o.kv_dtype, PHI_FLOAT16);
    assert_int_equal(o.seed, 7);
    assert_false(o.enable_prefix_caching);
    assert_int_equal(o.max_num_seqs, 128);
    done(&p);
    static const char *const longest[] = {"auto", "-1"};
    for (int i = 0; i < 2; i++) {
        PARSE(&p, "MODEL", "--max-model-len", longest[i]);
        assert_int_equal(cli_engine_options(&p.args, &p.flags.engine, 0, 0, NULL, &o, &err),
                         PHI_OK);
        assert_int_equal(o.max_model_len, 0);
        done(&p);
    }
}

/* --------------------------------------------------------------- generation_config.json */

static void test_generation_config(void **state)
{
    static const struct {
        const char *flag, *value; /* beside the model folder */
        double temperature;
        int max_tokens, cap;
        bool has_default;
    } cases[] = {
        {"--generation-config", "auto", 0.75, 99, 0, true},
        {"--generation-config", "vllm", 1, 16, 0, false},
        {"--generation-config", "OTHER", 0.5, 16, 0, false},
        {"--override-generation-config", "{\"max_new_tokens\": 7}", 0.75, 7, 7, true},
        {"--override-generation-config", "{\"temperature\": 0}", 0, 99, 0, true},
    };
    struct temp_folder model, other;
    struct parsed p;
    (void)state;
    temp_folder_open(&model);
    temp_folder_open(&other);
    write_text(&model, "generation_config.json", "{\"temperature\": 0.75, \"max_new_tokens\": 99}");
    write_text(&other, "generation_config.json", "{\"temperature\": 0.5}");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *value = strcmp(cases[i].value, "OTHER") == 0 ? other.path : cases[i].value;
        PARSE(&p, model.path, cases[i].flag, value);
        must_pass(&p, cases[i].flag, value);
        assert_true(p.settings.sampling.temperature == cases[i].temperature);
        assert_int_equal(p.settings.sampling.max_tokens, cases[i].max_tokens);
        assert_int_equal(p.settings.server.max_tokens_cap, cases[i].cap);
        assert_int_equal(p.settings.server.has_max_tokens_default, cases[i].has_default);
        done(&p);
    }
    PARSE(&p, model.path, "--generation-config", "/nowhere");
    assert_int_equal(p.code, CLI_FAILED);
    assert_non_null(strstr(p.error, "/nowhere/generation_config.json"));
    done(&p);
    write_text(&other, "generation_config.json", "[]");
    PARSE(&p, model.path, "--generation-config", other.path);
    assert_int_equal(p.code, CLI_FAILED);
    done(&p);
    temp_folder_close(&model);
    temp_folder_close(&other);
}

/* --------------------------------------------------------------- --config */

static void test_config_file(void **state)
{
    struct temp_folder folder;
    struct parsed p;
    (void)state;
    temp_folder_open(&folder);
    write_text(&folder, "a.yaml",
               "# a comment\n"
               "model: from/file\n"
               "port: 81\n"
               "max_model_len: 16k\n"
               "host:\n"
               "served-model-name: [a, 'b c']\n"
               "api-key:\n  - k1\n  - k2\n"
               "allowed-origins: ['https://a']\n"
               "enable-prefix-caching: no\n"
               "enable-log-requests: true\n"
               "disable-log-stats: false\n"
               "trust-remote-code: true\n"
               "tensor-parallel-size: 1\n"
               "gpu-memory-utilization: 0.90\n"
               "override-generation-config: {temperature: 0.5, extra: {a: [1, x, null]}}\n"
               "compilation-config: '{\"mode\": 3}'\n");
    const char *path = temp_path(&folder, "a.yaml");
    PARSE(&p, "--config", path, "--port", "82", "--no-enable-log-requests");
    must_pass(&p, "--config", path);
    assert_string_equal(p.args.positional[0], "from/file");
    must_be(&p, "port", "82"); /* the command line wins */
    must_be(&p, "enable-log-requests", "false");
    must_be(&p, "max-model-len", "16000");
    must_be(&p, "served-model-name", "a b c");
    assert_int_equal(p.settings.server.served_names.n, 2);
    assert_int_equal(p.settings.server.api_keys.n, 2);
    must_be(&p, "allowed-origins", "https://a");
    must_be(&p, "enable-prefix-caching", "false");
    must_be(&p, "gpu-memory-utilization", "0.9");
    must_be(&p, "override-generation-config",
            "{\"temperature\":0.5,\"extra\":{\"a\":[1,\"x\",null]}}");
    assert_false(cli_given(&p.args, "host"));
    assert_true(cli_given(&p.args, "trust-remote-code"));
    done(&p);
    PARSE(&p, "MODEL", "--config", path, "--served-model-name", "only");
    assert_string_equal(p.args.positional[0], "MODEL");
    assert_int_equal(p.settings.server.served_names.n, 1);
    done(&p);
    temp_folder_close(&folder);
}

static void test_bad_config_files(void **state)
{
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"port: 81\nmax-num-seq: 3\n", "a.yaml:2: unknown option 'max-num-seq' (did you mean "
                                       "max-num-seqs?)"},
        {"xyzzy: 1\n", "a.yaml:1: unknown option 'xyzzy'"},
        {"config: b.yaml\n", "a.yaml:1: unknown option 'config'"},
        {"port: http\n", "a.yaml:1: port must be an integer"},
        {"\n\nport: [1]\n", "a.yaml:3: port takes one value"},
        {"port: {a: 1}\n", "a.yaml:1: port takes one value"},
        {"port: 1\nport: 2\n", "a.yaml:2: port is there twice"},
        {"api-key: [[a]]\n", "a.yaml:1: api-key takes a list of plain values"},
        {"enable-log-requests: maybe\n", "a.yaml:1: enable-log-requests must be true or false"},
        {"tensor-parallel-size: 2\n", "a.yaml:1: tensor-parallel-size is refused"},
        {"enable-lora: true\n", "a.yaml:1: enable-lora is refused"},
        {"- port\n", "a.yaml:1: the file must hold lines"},
        {"port: 'x\n", "not valid YAML"},
        {"? [a]\n: 1\n", "a.yaml:1: a key must be the name"},
        {"override-generation-config: &a {x: *a}\n", "cannot be read as JSON"},
        {"override-generation-config:\n  a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
         "  b: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a]\n"
         "  c: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b, *b]\n"
         "  d: &d [*c, *c, *c, *c, *c, *c, *c, *c, *c, *c]\n",
         "cannot be read as JSON"},
        {"host: \"a\\0b\"\n", "NUL"},
    };
    struct temp_folder folder;
    struct parsed p;
    (void)state;
    temp_folder_open(&folder);
    const char *path = temp_path(&folder, "a.yaml");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_text(&folder, "a.yaml", cases[i].text);
        PARSE(&p, "MODEL", "--config", path);
        must_fail(&p, cases[i].text, cases[i].error);
        done(&p);
    }
    write_text(&folder, "a.yaml", "# nothing\n");
    PARSE(&p, "MODEL", "--config", path);
    must_pass(&p, "an empty file", "");
    done(&p);
    PARSE(&p, "MODEL", "--config", "/nowhere/x.yaml");
    must_fail(&p, "no file", "/nowhere/x.yaml");
    done(&p);
    temp_folder_close(&folder);
}

/* Each allocation in turn fails: an error line or none, but no crash and no leak. */
static void test_config_without_memory(void **state)
{
    struct temp_folder folder;
    struct parsed p;
    (void)state;
    temp_folder_open(&folder);
    write_text(&folder, "a.yaml",
               "served-model-name: [a, b]\nallowed-origins: [x]\nhost: h\n"
               "override-generation-config: {temperature: 0.5}\n");
    const char *path = temp_path(&folder, "a.yaml");
    for (long n = 1;; n++) {
        phi_alloc_fail_nth(n);
        PARSE(&p, "MODEL", "--config", path, "--default-chat-template-kwargs.a", "1");
        long count = phi_alloc_count();
        phi_alloc_fail_nth(0);
        bool went_on = p.code == -1;
        done(&p);
        if (count < n) {
            assert_true(went_on);
            break;
        }
    }
    temp_folder_close(&folder);
}

/* --------------------------------------------------------------- environment */

static void test_environment(void **state)
{
    static const struct {
        const char *variable, *flag, *means; /* means NULL: refused */
    } cases[] = {
        {"VLLM_API_KEY=k", "api-key", "***"},
        {"PHI_API_KEY=k", "api-key", "***"},
        {"VLLM_CPU_KVCACHE_SPACE=4", "kv-cache-memory-bytes", "4294967296"},
        {"PHI_KV_CACHE_GIB=1", "kv-cache-memory-bytes", "1073741824"},
        {"VLLM_CPU_KVCACHE_SPACE=0", "kv-cache-memory-bytes", "0"},
        {"VLLM_CPU_KVCACHE_SPACE=", "kv-cache-memory-bytes", "0"},
        {"VLLM_CPU_KVCACHE_SPACE=1.5", "VLLM_CPU_KVCACHE_SPACE", NULL},
        {"VLLM_CPU_KVCACHE_SPACE=-1", "VLLM_CPU_KVCACHE_SPACE", NULL},
        {"VLLM_CPU_KVCACHE_SPACE=4G", "VLLM_CPU_KVCACHE_SPACE", NULL},
        {"VLLM_CPU_KVCACHE_SPACE=9999999999999", "VLLM_CPU_KVCACHE_SPACE", NULL},
        {"VLLM_CPU_OMP_THREADS_BIND=0-1|2-3", "cpus", "0-1|2-3"},
        {"VLLM_CPU_NUM_OF_RESERVED_CPU=1", "reserved-cpus", "1"},
        {"VLLM_CPU_NUM_OF_RESERVED_CPU=x", "VLLM_CPU_NUM_OF_RESERVED_CPU", NULL},
        {"VLLM_LOG_STATS_INTERVAL=2.5", "log-stats-interval", "2.5"},
        {"VLLM_LOG_STATS_INTERVAL=0", "VLLM_LOG_STATS_INTERVAL", NULL},
        {"VLLM_LOGGING_LEVEL=WARNING", "log-level", "warning"},
        {"VLLM_LOGGING_LEVEL=LOUD", "VLLM_LOGGING_LEVEL", NULL},
        {"VLLM_HTTP_TIMEOUT_KEEP_ALIVE=5", "idle-timeout", "5"},
        {"VLLM_PORT=tcp://10.0.0.1:8000", "port", "8000"}, /* of a Kubernetes service */
    };
    struct parsed p;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *env[] = {(char *)(uintptr_t) "HOME=/", (char *)(uintptr_t)cases[i].variable, NULL};
        parse(&p, (const char *const[]){"MODEL", NULL}, env);
        if (!cases[i].means)
            must_fail(&p, cases[i].variable, cases[i].flag);
        else
            must_be(&p, cases[i].flag, cases[i].means);
        done(&p);
    }
}

static void test_environment_comes_last(void **state)
{
    char *env[] = {(char *)(uintptr_t) "VLLM_CPU_KVCACHE_SPACE=4",
                   (char *)(uintptr_t) "PHI_KV_CACHE_GIB=2",
                   (char *)(uintptr_t) "VLLM_LOG_STATS_INTERVAL=bad",
                   (char *)(uintptr_t) "VLLM_API_KEY=from-environment", NULL};
    struct temp_folder folder;
    struct parsed p;
    (void)state;
    temp_folder_open(&folder);
    write_text(&folder, "a.yaml", "api-key: from-file\n");
    const char *path = temp_path(&folder, "a.yaml");
    parse(&p, (const char *const[]){"MODEL", "--log-stats-interval", "3", "--config", path, NULL},
          env);
    must_pass(&p, "environment", "");
    must_be(&p, "log-stats-interval", "3");
    must_be(&p, "kv-cache-memory-bytes", "2147483648"); /* our name before vLLM's */
    assert_int_equal(p.settings.server.api_keys.n, 1);
    assert_string_equal(p.settings.server.api_keys.data[0], "from-file");
    done(&p);
    temp_folder_close(&folder);
}

static void test_environment_lines(void **state)
{
    static const struct {
        const char *variable;
        int n_lines;
        const char *says;
    } cases[] = {
        {"VLLM_ALLOW_LONG_MAX_MODEL_LEN=1", 1, "max_position_embeddings"},
        {"VLLM_NO_SUCH_THING=1", 1, "VLLM_NO_SUCH_THING"},
        {"VLLM_API_KEY=secret", 0, ""},
        {"VLLM_NO_SUCH_THING=", 1, "VLLM_NO_SUCH_THING"},
        {"VLLMX=1", 0, ""},
        {"PATH=/bin", 0, ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *env[] = {(char *)(uintptr_t)cases[i].variable, NULL};
        logged.n = 0;
        logged.last[0] = '\0';
        cli_environment_log(serve_variables, env);
        assert_int_equal(logged.n, cases[i].n_lines);
        assert_non_null(strstr(logged.last, cases[i].says));
    }
    for (const struct cli_variable *v = serve_variables; v->name; v++) {
        struct cli_found f;
        assert_true(!v->option || cli_find_option(&cli_serve, v->option, &f));
    }
}

/* --------------------------------------------------------------- processors */

static void test_cpus(void **state)
{
    static const char *const bad[] = {"", "x", "1-", "-1", "3-1", "1,,x", "0-99999", "0;1"};
    struct serve_own_flags own = {.bind_cpus = "auto", .reserved_cpus = 1 << 20};
    struct phi_error err;
    int n_threads = 0;
    (void)state;
    assert_int_equal(serve_place_threads(&own, &n_threads, &err), PHI_OK);
    assert_int_equal(n_threads, 1);
    n_threads = 5;
    assert_int_equal(serve_place_threads(&own, &n_threads, &err), PHI_OK);
    assert_int_equal(n_threads, 5);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        own.bind_cpus = bad[i];
        assert_int_equal(serve_place_threads(&own, &n_threads, &err), PHI_ERR_INVALID);
        assert_non_null(strstr(err.text, "--cpus"));
    }
}

/* --------------------------------------------------------------- docs/SERVING.md */

static void test_document(void **state)
{
    static const char begin[] = "<!-- flags: begin -->\n", end[] = "<!-- flags: end -->\n";
    char path[512];
    struct phi_buf document = {0}, tables = {0};
    struct phi_error err;
    (void)state;
    snprintf(path, sizeof path, "%s/../docs/SERVING.md", getenv("PHI_TESTS"));
    assert_int_equal(phi_file_read(path, 1 << 24, &document, &err), PHI_OK);
    const char *first = strstr(document.data, begin), *last = strstr(document.data, end);
    assert_true(first && last && first < last);
    first += strlen(begin);
    cli_append_markdown(&tables, &cli_serve);
    if (!phi_str_eq(phi_buf_str(&tables), (struct phi_str){first, (size_t)(last - first)}))
        fail_msg("the flags in docs/SERVING.md are not the program's: run scripts/flags_doc.py");
    phi_buf_deinit(&document);
    phi_buf_deinit(&tables);
}

static int set_up(void **state)
{
    (void)state;
    phi_set_log(count_line, NULL);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_flag),
        cmocka_unit_test(test_no_flag_is_left_out),
        cmocka_unit_test(test_names_are_unique),
        cmocka_unit_test(test_ignored),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_spellings),
        cmocka_unit_test(test_json_members),
        cmocka_unit_test(test_server_options),
        cmocka_unit_test(test_flags_that_need_others),
        cmocka_unit_test(test_engine_options),
        cmocka_unit_test(test_generation_config),
        cmocka_unit_test(test_config_file),
        cmocka_unit_test(test_bad_config_files),
        cmocka_unit_test(test_config_without_memory),
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_environment_comes_last),
        cmocka_unit_test(test_environment_lines),
        cmocka_unit_test(test_cpus),
        cmocka_unit_test(test_document),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
