/* serve_results.c: what `bench serve` tells: failures, the report, the file of results; see
 * serve_bench.h. */
#include "cli/bench/serve_bench.h"
#include "base/alloc.h"

#include <stdio.h>
#include <time.h>

enum { MAX_FAILURES_SHOWN = 10 };

static void print_failures(const struct serve_bench *b, struct cli_out *out)
{
    size_t n_shown = 0;
    for (size_t i = 0; i < b->dataset.n && n_shown < MAX_FAILURES_SHOWN; i++) {
        const struct bench_answer *a = &b->answers[i];
        if (a->success)
            continue;
        if (n_shown == 0)
            cli_out_printf(out, "Failed requests during benchmark run detected (capping to %d):\n",
                           MAX_FAILURES_SHOWN);
        cli_out_printf(out, "Error %zu: ", n_shown++);
        cli_out_write(out, phi_str_from(a->error));
        cli_out_write(out, PHI_STR("\n"));
    }
}

static const char *backend_name(const struct serve_bench *b)
{
    return b->flags->serve.backend == BENCH_CHAT ? "openai-chat" : "openai";
}

static const char *label(const struct serve_bench *b)
{
    return b->flags->result.label ? b->flags->result.label : backend_name(b);
}

/* "inf" or the number. */
static void append_rate(const struct serve_bench *b, struct phi_buf *out)
{
    if (b->setting.request_rate > 0)
        phi_buf_printf(out, "%g", b->setting.request_rate);
    else
        phi_buf_append_c(out, "inf");
}

static void make_path(const struct serve_bench *b, const char *date, struct phi_buf *out)
{
    const struct bench_result_flags *f = &b->flags->result;
    const char *slash = strrchr(b->model_id.data, '/');
    if (f->folder)
        phi_buf_printf(out, "%s/", f->folder);
    if (f->file_name) {
        phi_buf_append_c(out, f->file_name);
        return;
    }
    phi_buf_printf(out, "%s-", label(b));
    append_rate(b, out);
    phi_buf_append_c(out, "qps");
    if (b->setting.max_concurrency > 0)
        phi_buf_printf(out, "-concurrency%d", b->setting.max_concurrency);
    phi_buf_printf(out, "-%s-%s.json", slash ? slash + 1 : b->model_id.data, date);
}

/* What was measured, before how it went; vLLM's keys. */
static json_t *head_json(const struct serve_bench *b, const char *date)
{
    const struct cli_texts *metadata = &b->flags->result.metadata;
    json_t *rate =
        b->setting.request_rate > 0 ? json_real(b->setting.request_rate) : json_string("inf");
    json_t *limit =
        b->setting.max_concurrency > 0 ? json_integer(b->setting.max_concurrency) : json_null();
    json_t *head = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:o, s:f, s:o}", "date", date,
                             "endpoint_type", backend_name(b), "backend", backend_name(b), "label",
                             label(b), "model_id", b->model_id.data, "tokenizer_id",
                             b->tokenizer_dir.data ? b->tokenizer_dir.data : "", "num_prompts",
                             (json_int_t)b->dataset.n, "request_rate", rate, "burstiness",
                             b->flags->serve.burstiness, "max_concurrency", limit);
    for (size_t i = 0; i < metadata->n && head; i++) {
        const char *text = metadata->data[i];
        size_t n_key = strcspn(text, "=");
        struct phi_buf key = {0};
        phi_buf_append(&key, text, n_key);
        phi_buf_append_char(&key, '\0');
        if (key.failed || !bench_json_set(head, key.data, json_string(text + n_key + 1))) {
            json_decref(head);
            head = NULL;
        }
        phi_buf_deinit(&key);
    }
    return head;
}

static enum phi_status save(const struct serve_bench *b, struct bench_serve_report *r,
                            struct phi_error *err)
{
    const struct bench_result_flags *f = &b->flags->result;
    char date[32];
    time_t now = time(NULL);
    struct tm parts;
    struct phi_buf path = {0};
    localtime_r(&now, &parts);
    strftime(date, sizeof date, "%Y%m%d-%H%M%S", &parts);
    make_path(b, date, &path);
    json_t *results = path.failed ? NULL : head_json(b, date);
    if (results &&
        !bench_serve_report_json(r, &b->setting, b->answers, b->dataset.n, f->detailed, results)) {
        json_decref(results);
        results = NULL;
    }
    enum phi_status status =
        bench_save_json(results, path.data ? path.data : "results", f->append, err);
    phi_buf_deinit(&path);
    return status;
}

int serve_bench_tell(const struct serve_bench *b)
{
    struct bench_serve_report r;
    struct cli_out out;
    struct phi_error err;
    bench_serve_report_init(&r, &b->setting, b->answers, b->dataset.n, b->seconds);
    cli_out_init(&out);
    if (r.failed)
        cli_out_out_of_memory(&out);
    print_failures(b, &out);
    bench_serve_report_print(&r, &b->setting, &out);
    int status = cli_out_finish(&out, CLI_OK);
    if ((b->flags->result.save || b->flags->result.append) && save(b, &r, &err) != PHI_OK)
        status = cli_fail(&err);
    if (status == CLI_OK && r.n_completed == 0) {
        phi_fail(&err, PHI_ERR_IO, "all requests failed");
        status = cli_fail(&err);
    }
    bench_serve_report_deinit(&r);
    return status;
}
