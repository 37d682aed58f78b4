/* answers.c: see generate.h. */
#include "base/alloc.h"
#include "cli/follow.h"
#include "cli/generate.h"

#include <math.h>
#include <stdio.h>

/* --------------------------------------------------------------- plain output */

/* Several answers are told apart on standard error; standard output holds nothing but the answers,
 * each ended by a line end. */
static void begin_turn(struct answer_printer *p)
{
    if (p->n_jobs * p->n_answers > 1) {
        cli_out_flush(p->out);
        fprintf(stderr, "--- prompt %zu of %zu, answer %zu of %zu\n", p->job_index + 1, p->n_jobs,
                p->turn + 1, p->n_answers);
    }
}

static void append_piece(const struct answer_printer *p, struct answer *a, struct phi_buf *to,
                         const struct phi_event *ev)
{
    if (!p->print_ids) {
        phi_buf_append(to, ev->text.data, ev->text.n);
        return;
    }
    for (size_t i = 0; i < ev->n_tokens; i++)
        phi_buf_printf(to, a->n_ids_printed++ ? " %d" : "%d", (int)ev->tokens[i]);
}

static void print_piece(struct answer_printer *p, const struct phi_event *ev)
{
    struct answer *answers = p->job->answers;
    struct answer *a = &answers[ev->index];
    if ((size_t)ev->index != p->turn) {
        append_piece(p, a, &a->pending, ev);
        return;
    }
    append_piece(p, a, &p->out->buf, ev);
    while (answers[p->turn].finish != PHI_FINISH_NONE) {
        phi_buf_append_char(&p->out->buf, '\n');
        if (++p->turn == p->n_answers)
            break;
        begin_turn(p);
        struct phi_buf *waiting = &answers[p->turn].pending;
        if (waiting->failed)
            cli_out_out_of_memory(p->out);
        cli_out_write(p->out, phi_buf_str(waiting));
        phi_buf_deinit(waiting);
    }
    cli_out_flush(p->out);
}

/* --------------------------------------------------------------- JSON output */

enum { LOGPROB_FLOOR = -9999 }; /* JSON has no -infinity; vLLM prints this instead */

/* [n_rows, n] of logprobs as a list of lists; a row of padding alone is null. */
static json_t *logprob_rows(const struct phi_logprob *rows, size_t n_rows, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n_rows; i++) {
        json_t *row = json_array();
        for (size_t j = 0; j < n; j++) {
            const struct phi_logprob *l = &rows[i * n + j];
            double value = isfinite(l->logprob) ? (double)l->logprob : LOGPROB_FLOOR;
            if (l->token >= 0)
                json_array_append_new(row, json_pack("{s:i, s:f, s:i}", "token_id", (int)l->token,
                                                     "logprob", value, "rank", (int)l->rank));
        }
        if (json_array_size(row) == 0) {
            json_decref(row);
            row = json_null();
        }
        json_array_append_new(list, row);
    }
    return list;
}

static void collect(struct answer *a, const struct phi_event *ev)
{
    phi_buf_append(&a->text, ev->text.data, ev->text.n);
    phi_ids_append_n(&a->ids, ev->tokens, ev->n_tokens);
    if (ev->n_logprobs) {
        json_t *rows = logprob_rows(ev->logprobs, ev->n_tokens, ev->n_logprobs);
        if (!a->logprobs)
            a->logprobs = json_array();
        json_array_extend(a->logprobs, rows);
        json_decref(rows);
    }
    if (ev->finish == PHI_FINISH_NONE)
        return;
    if (ev->stop_string.n)
        a->stop_reason = json_stringn(ev->stop_string.data, ev->stop_string.n);
    else if (ev->stop_token >= 0)
        a->stop_reason = json_integer(ev->stop_token);
}

static json_t *ids_json(const struct phi_ids *ids)
{
    json_t *list = json_array();
    for (size_t i = 0; i < ids->n; i++)
        json_array_append_new(list, json_integer(ids->data[i]));
    return list;
}

/* vLLM's names for a request's output and its answers. */
static json_t *job_json(const struct job *job, size_t n_answers)
{
    size_t n_logprobs = 0;
    const struct phi_logprob *prompt = phi_request_prompt_logprobs(job->request, &n_logprobs);
    json_t *outputs = json_array();
    for (size_t i = 0; i < n_answers; i++) {
        const struct answer *a = &job->answers[i];
        struct phi_str text = phi_buf_str(&a->text);
        json_array_append_new(outputs,
                              json_pack("{s:i, s:o, s:o, s:O?, s:s, s:O?}", "index", (int)i, "text",
                                        json_stringn(text.data, text.n), "token_ids",
                                        ids_json(&a->ids), "logprobs", a->logprobs, "finish_reason",
                                        cli_finish_name(a->finish), "stop_reason", a->stop_reason));
    }
    return json_pack(
        "{s:o, s:o?, s:o}", "prompt_token_ids", ids_json(&job->prompt), "prompt_logprobs",
        prompt ? logprob_rows(prompt, job->prompt.n, n_logprobs) : NULL, "outputs", outputs);
}

static int dump_to_out(const char *text, size_t n, void *context)
{
    cli_out_write(context, (struct phi_str){text, n});
    return 0;
}

static void print_json(struct answer_printer *p)
{
    json_t *value = job_json(p->job, p->n_answers);
    if (!value || json_dump_callback(value, dump_to_out, p->out, JSON_ENSURE_ASCII) != 0)
        cli_out_out_of_memory(p->out);
    json_decref(value);
    cli_out_write(p->out, PHI_STR("\n"));
    cli_out_flush(p->out);
}

/* --------------------------------------------------------------- following */

static void on_event(void *context, const struct phi_event *ev)
{
    struct answer_printer *p = context;
    struct answer *a = &p->job->answers[ev->index];
    a->finish = ev->finish;
    if (p->json)
        collect(a, ev);
    else
        print_piece(p, ev);
    if (p->out->error) /* nobody can read the rest */
        phi_request_cancel(p->job->request);
    if (ev->finish == PHI_FINISH_ERROR) {
        struct phi_error err;
        phi_fail(&err, ev->status, "prompt %zu: %s", p->job_index + 1, ev->error);
        cli_fail(&err);
        p->failed = true;
    }
}

void answers_print(struct answer_printer *p, struct job *job, size_t job_index)
{
    p->job = job;
    p->job_index = job_index;
    p->turn = 0;
    if (!p->json)
        begin_turn(p);
    cli_follow(job->request, on_event, p);
    if (p->json)
        print_json(p);
}

void job_deinit(struct job *job, size_t n_answers)
{
    for (size_t i = 0; job->answers && i < n_answers; i++) {
        struct answer *a = &job->answers[i];
        phi_buf_deinit(&a->pending);
        phi_buf_deinit(&a->text);
        phi_ids_deinit(&a->ids);
        json_decref(a->logprobs);
        json_decref(a->stop_reason);
    }
    phi_free(job->answers);
    phi_ids_deinit(&job->prompt);
    phi_request_release(job->request);
    *job = (struct job){0};
}
