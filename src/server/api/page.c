/* page.c: GET /: one page that says what is running: the model, the settings, and live figures.
 * It needs nothing from anywhere else, and no script. */
#include "server/api/handlers.h"
#include "server/state.h"

#include <time.h>

static void append_escaped(struct phi_buf *b, const char *text)
{
    for (const char *c = text; *c; c++) {
        if (*c == '<')
            phi_buf_append_c(b, "&lt;");
        else if (*c == '&')
            phi_buf_append_c(b, "&amp;");
        else
            phi_buf_append_char(b, *c);
    }
}

static void append_row(struct phi_buf *b, const char *name, const char *value)
{
    phi_buf_printf(b, "<tr><th>%s<td>", name);
    append_escaped(b, value);
    phi_buf_append_c(b, "\n");
}

static void append_number(struct phi_buf *b, const char *name, double value, const char *unit)
{
    phi_buf_printf(b, "<tr><th>%s<td>%.10g%s\n", name, value, unit);
}

static void append_model(struct phi_buf *b, const struct phi_server *s)
{
    static const char *const dtypes[] = {
        [PHI_AUTO] = "auto",
        [PHI_FLOAT32] = "float32",
        [PHI_BFLOAT16] = "bfloat16",
        [PHI_FLOAT16] = "float16",
    };
    struct phi_model_info m;
    struct phi_engine_info e;
    phi_model_get_info(s->model, &m);
    phi_engine_get_info(s->engine, &e);
    append_row(b, "architecture", m.architecture);
    append_number(b, "parameters", (double)m.n_parameters, "");
    append_row(b, "dtype", dtypes[m.dtype]);
    append_row(b, "instruction set", m.isa);
    append_number(b, "threads", m.n_threads, "");
    append_row(b, "chat template", m.has_chat_template ? "yes" : "none");
    append_number(b, "longest context", e.max_model_len, " tokens");
    append_number(b, "answers at once", e.max_num_seqs, "");
    append_number(b, "tokens of a step", e.max_num_batched_tokens, "");
    append_number(b, "KV cache", (double)e.kv_tokens, " tokens");
    append_number(b, "KV cache", (double)e.kv_bytes / 1048576, " MiB");
}

static void append_figures(struct phi_buf *b, const struct phi_server *s)
{
    struct phi_engine_stats e;
    phi_engine_get_stats(s->engine, &e);
    append_number(b, "answers running", e.n_running, "");
    append_number(b, "answers waiting", e.n_waiting, "");
    append_number(b, "KV cache in use", e.kv_usage * 100, " %");
    append_number(b, "prompt tokens", (double)e.n_prompt_tokens, "");
    append_number(b, "tokens generated", (double)e.n_generated_tokens, "");
    append_number(b, "preemptions", (double)e.n_preemptions, "");
    if (e.n_prefix_queries > 0)
        append_number(b, "prefix cache hits",
                      100 * (double)e.n_prefix_hits / (double)e.n_prefix_queries, " %");
}

void phi_api_page(struct phi_exchange *x)
{
    static const char *const phases[] = {
        [PHI_SERVER_LOADING] = "loading the model",
        [PHI_SERVER_OPEN] = "serving",
        [PHI_SERVER_DRAINING] = "shutting down",
    };
    const struct phi_server *s = x->server;
    enum phi_server_phase phase = phi_server_phase(x->server);
    struct phi_buf b = {0};
    phi_buf_append_c(&b, "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n<title>");
    append_escaped(&b, phi_server_model_name(s));
    phi_buf_append_c(&b, " &middot; phidelity</title>\n"
                         "<style>body{font:16px/1.5 system-ui,sans-serif;margin:2em auto;"
                         "max-width:46em;padding:0 1em}th{text-align:left;font-weight:normal;"
                         "color:#666;padding-right:2em}pre{background:#eee;padding:1em;"
                         "overflow:auto}</style>\n<h1>");
    append_escaped(&b, phi_server_model_name(s));
    phi_buf_append_c(&b, "</h1>\n<table>\n");
    append_row(&b, "state", phases[phase]);
    append_row(&b, "program", "phidelity " PHI_VERSION);
    append_row(&b, "checkpoint", s->options->model);
    append_number(&b, "up", (double)(time(NULL) - (time_t)s->created_s), " s");
    if (phase != PHI_SERVER_LOADING) {
        append_model(&b, s);
        append_figures(&b, s);
    }
    phi_buf_append_c(&b, "</table>\n");
    if (s->options->settings_text && s->options->settings_text[0]) {
        phi_buf_append_c(&b, "<h2>Settings</h2>\n<pre>");
        append_escaped(&b, s->options->settings_text);
        phi_buf_append_c(&b, "</pre>\n");
    }
    phi_buf_append_c(&b, "<p>API: <a href=\"openapi.json\">openapi.json</a>, "
                         "<a href=\"v1/models\">models</a>, <a href=\"metrics\">metrics</a>, "
                         "<a href=\"health\">health</a></p>\n");
    phi_exchange_answer(x, 200, "text/html; charset=utf-8", &b);
}
