/* generation.c: the life of a job: submission, events, answer or stream, end. See generation.h. */
#include "server/api/generation.h"
#include "base/alloc.h"
#include "base/size.h"
#include "server/metrics/metrics.h"
#include "server/api/request_log.h"

#include <time.h>

enum { MAX_CHOICES = 65536 }; /* of one HTTP request */

/* ---------------------------------------------------------------- one comes, one goes */

static enum phi_job_state pull(struct phi_exchange *x, struct phi_job *job);
static void cancel(struct phi_job *job);

static void record(struct phi_genjob *g, const struct phi_prompt *p, enum phi_finish finish,
                   const struct phi_request_stats *stats)
{
    struct phi_request_record r = {
        .finish = finish,
        .n = g->sampling.n,
        .max_tokens = (int)g->max_tokens,
        .stats = *stats,
    };
    const struct phi_choice *c = &g->choices[(size_t)(p - g->prompts) * (size_t)r.n];
    for (int k = 0; k < r.n; k++)
        r.n_longest_tokens = phi_size_max(r.n_longest_tokens, c[k].n_output);
    phi_metrics_request_ended(g->server->metrics, &r);
    phi_request_log_ended(g, (size_t)(p - g->prompts), finish, stats);
}

/* A request that did not come to its end was left by its client, or by a sibling that failed. */
static void prompt_deinit(struct phi_genjob *g, struct phi_prompt *p)
{
    if (p->request && !p->ended) {
        struct phi_request_stats stats;
        phi_request_get_stats(p->request, &stats);
        record(g, p, PHI_FINISH_ABORT, &stats);
    }
    phi_request_release(p->request);
    phi_mem_free(p->ids);
    phi_mem_free(p->text);
}

static void generation_free(struct phi_job *job)
{
    struct phi_genjob *g = (struct phi_genjob *)job;
    struct phi_server *server = g->server;
    for (size_t i = 0; i < g->n_prompts; i++)
        prompt_deinit(g, &g->prompts[i]);
    for (size_t i = 0; i < g->n_choices; i++) {
        struct phi_choice *c = &g->choices[i];
        phi_buf_deinit(&c->text);
        phi_ids_deinit(&c->tokens);
        phi_buf_deinit(&c->logprobs);
        phi_buf_deinit(&c->stop_string);
        phi_spelling_deinit(&c->spelling);
    }
    phi_free(g->prompts);
    phi_free(g->choices);
    phi_fields_deinit(&g->fields);
    phi_arena_deinit(&g->arena);
    phi_free(g);
    atomic_fetch_sub(&server->n_jobs, 1);
}

static struct phi_genjob *create(struct phi_exchange *x, const struct phi_genjob_form *form)
{
    struct phi_genjob *g = phi_calloc(1, sizeof *g);
    if (!g)
        return NULL;
    g->job = (struct phi_job){pull, cancel, generation_free};
    g->server = x->server;
    g->form = form;
    g->created_s = (int64_t)time(NULL);
    atomic_fetch_add(&x->server->n_jobs, 1);
    return g;
}

void phi_genjob_handle(struct phi_exchange *x, const struct phi_genjob_form *form,
                       enum phi_status (*run)(struct phi_genjob *g, struct phi_exchange *x,
                                              struct phi_refusal *r))
{
    struct phi_refusal refusal;
    struct phi_genjob *g = create(x, form);
    if (!g)
        phi_refuse_memory(&refusal);
    else if (run(g, x, &refusal) == PHI_OK)
        return;
    phi_refusal_answer(&refusal, x);
    if (g)
        generation_free(&g->job);
}

enum phi_status phi_genjob_set_prompts(struct phi_genjob *g, size_t n, struct phi_refusal *r)
{
    size_t n_answers = (size_t)g->sampling.n;
    if (n > MAX_CHOICES / n_answers)
        return phi_refuse(r, PHI_REFUSED_VALUE, NULL,
                          "%zu prompts with n=%zu are more than %d answers to one request.", n,
                          n_answers, MAX_CHOICES);
    g->prompts = phi_calloc(n, sizeof *g->prompts);
    g->choices = phi_calloc(n * n_answers, sizeof *g->choices);
    if (!g->prompts || !g->choices)
        return phi_refuse_memory(r);
    g->n_prompts = n;
    g->n_choices = n * n_answers;
    for (size_t i = 0; i < g->n_choices; i++) {
        g->choices[i].stop_token = -1;
        g->choices[i].spelling.model = g->server->model;
    }
    return PHI_OK;
}

/* ---------------------------------------------------------------- submission */

/* The engine's thread. A whole answer needs waking once, a streaming one for each piece. */
static void notify_whole(void *exchange, bool ended)
{
    if (!ended)
        return;
    phi_exchange_wake(exchange);
    phi_exchange_release(exchange);
}

static void notify_stream(void *exchange, bool ended)
{
    phi_exchange_wake(exchange);
    if (ended)
        phi_exchange_release(exchange);
}

/* Of one prompt: the server may bound the answer's length, too. */
static struct phi_sampling sampling_of(const struct phi_genjob *g, const struct phi_prompt *p,
                                       int max_model_len)
{
    struct phi_sampling s = g->sampling;
    int64_t n = g->max_tokens, cap = g->server->options->max_tokens_cap;
    if (n == 0) {
        n = max_model_len - (int64_t)p->n_ids;
        if (g->default_max_tokens > 0 && g->default_max_tokens < n)
            n = g->default_max_tokens;
    }
    if (cap > 0 && cap < n)
        n = cap;
    s.max_tokens = g->only_prompt ? 1 : (int)n;
    return s;
}

static enum phi_status submit_prompt(struct phi_genjob *g, struct phi_exchange *x,
                                     struct phi_prompt *p, struct phi_refusal *r)
{
    const struct phi_fields *f = &g->fields;
    struct phi_engine_info info;
    phi_engine_get_info(g->server->engine, &info);
    const struct phi_request_options options = {
        .priority = f->priority.value,
        .cache_salt = {f->cache_salt.data, f->cache_salt.n},
        .notify = f->stream ? notify_stream : notify_whole,
        .notify_context = x,
    };
    struct phi_sampling sampling = sampling_of(g, p, info.max_model_len);
    phi_exchange_acquire(x); /* given back by the last notification */
    enum phi_status status = phi_request_submit(g->server->engine, p->ids, p->n_ids, &sampling,
                                                &options, &p->request, &r->error);
    if (status != PHI_OK) {
        phi_exchange_release(x);
        return phi_refuse_status(r, status == PHI_ERR_TOO_LONG ? "input_tokens" : NULL);
    }
    phi_request_log_received(g, (size_t)(p - g->prompts), &sampling);
    return PHI_OK;
}

/* Submits prompts until all are, or the engine takes no more for now. Then those of the job that
 * run make room, and the job is woken when they do; if there are none, the client has to come
 * again. */
static enum phi_status submit(struct phi_genjob *g, struct phi_exchange *x, struct phi_refusal *r)
{
    for (size_t i = atomic_load(&g->n_submitted); i < g->n_prompts; i++) {
        if (atomic_load(&g->cancelled)) {
            phi_fail(&r->error, PHI_ERR_CANCELLED, "the server is shutting down");
            return phi_refuse_status(r, NULL);
        }
        enum phi_status status = submit_prompt(g, x, &g->prompts[i], r);
        if (status == PHI_ERR_BUSY && i > g->n_ended)
            return PHI_OK;
        PHI_TRY(status);
        atomic_store(&g->n_submitted, i + 1);
        if (atomic_load(&g->cancelled)) /* perhaps just before it could be seen */
            phi_request_cancel(g->prompts[i].request);
    }
    return PHI_OK;
}

enum phi_status phi_genjob_start(struct phi_genjob *g, struct phi_exchange *x,
                                 struct phi_refusal *r)
{
    PHI_TRY(submit(g, x, r));
    x->job = &g->job;
    if (g->fields.stream)
        phi_exchange_stream(x);
    return PHI_OK;
}

/* The watcher's thread, while submit may go on in another: each sees what the other did first. */
static void cancel(struct phi_job *job)
{
    struct phi_genjob *g = (struct phi_genjob *)job;
    atomic_store(&g->cancelled, true);
    size_t n = atomic_load(&g->n_submitted);
    for (size_t i = 0; i < n; i++)
        phi_request_cancel(g->prompts[i].request);
}

/* ---------------------------------------------------------------- events */

static void collect(const struct phi_genjob *g, struct phi_choice *c, const struct phi_event *ev)
{
    c->finish = ev->finish;
    if (g->only_prompt) {
        if (c->finish == PHI_FINISH_STOP)
            c->finish = PHI_FINISH_LENGTH;
        return;
    }
    phi_buf_append(&c->text, ev->text.data, ev->text.n);
    phi_ids_append_n(&c->tokens, ev->tokens, ev->n_tokens);
    phi_buf_append(&c->logprobs, ev->logprobs,
                   ev->n_tokens * ev->n_logprobs * sizeof *ev->logprobs);
    c->n_logprobs = ev->n_logprobs;
    c->n_output += ev->n_tokens;
    c->stop_token = ev->stop_token;
    phi_buf_append(&c->stop_string, ev->stop_string.data, ev->stop_string.n);
}

static void end_prompt(struct phi_genjob *g, struct phi_prompt *p, enum phi_finish finish)
{
    struct phi_request_stats stats;
    p->ended = true;
    g->n_ended++;
    phi_request_get_stats(p->request, &stats);
    p->n_cached = stats.n_cached_tokens;
    record(g, p, finish, &stats);
}

/* Whether a chunk about the choice is due. */
static bool has_news(const struct phi_genjob *g, const struct phi_choice *c)
{
    if (c->finish != PHI_FINISH_NONE)
        return true;
    if (c->tokens.n == 0 ||
        (c->is_begun && c->tokens.n < (size_t)g->server->options->stream_interval))
        return false;
    bool tells_tokens = c->n_logprobs > 0 || g->fields.return_token_ids;
    return c->text.n > 0 || tells_tokens || (!c->is_begun && g->form->has_opening(g));
}

static void stream_choice(struct phi_genjob *g, size_t i, struct phi_buf *out)
{
    struct phi_choice *c = &g->choices[i];
    if (!has_news(g, c))
        return;
    phi_request_log_output(g, i);
    g->form->write_chunks(g, i, out);
    c->is_begun = true;
    phi_buf_clear(&c->text);
    phi_buf_clear(&c->logprobs);
    c->tokens.n = 0;
}

static enum phi_status take_event(struct phi_genjob *g, struct phi_prompt *p,
                                  const struct phi_event *ev, struct phi_buf *stream,
                                  struct phi_refusal *r)
{
    size_t i = (size_t)(p - g->prompts) * (size_t)g->sampling.n + (size_t)ev->index;
    struct phi_choice *c = &g->choices[i];
    collect(g, c, ev);
    if (ev->last)
        end_prompt(g, p, ev->finish);
    if (ev->finish == PHI_FINISH_ERROR) {
        phi_fail(&r->error, ev->status, "%s", ev->error);
        return phi_refuse_status(r, NULL);
    }
    if (c->text.failed || c->tokens.failed || c->logprobs.failed || c->stop_string.failed)
        return phi_refuse_memory(r);
    if (g->fields.stream)
        stream_choice(g, i, stream);
    return PHI_OK;
}

/* Takes all that the engine has ready; a streaming job tells of it at once. */
static enum phi_status take_events(struct phi_genjob *g, struct phi_buf *stream,
                                   struct phi_refusal *r)
{
    size_t n = atomic_load(&g->n_submitted);
    for (size_t i = 0; i < n; i++) {
        struct phi_prompt *p = &g->prompts[i];
        struct phi_event ev;
        while (!p->ended && phi_request_next(p->request, &ev, 0) == 1)
            PHI_TRY(take_event(g, p, &ev, stream, r));
    }
    return PHI_OK;
}

/* ---------------------------------------------------------------- answers */

static void answer_whole(struct phi_genjob *g, struct phi_exchange *x)
{
    struct phi_buf body = {0};
    struct phi_out o = {.buf = &body};
    for (size_t i = 0; i < g->n_choices; i++)
        phi_request_log_output(g, i);
    g->form->write_answer(g, &o);
    phi_exchange_answer(x, 200, "application/json", &body);
}

static void end_stream(struct phi_genjob *g, struct phi_buf *out)
{
    if (g->include_usage) {
        struct phi_out o;
        phi_event_begin(&o, out);
        phi_genjob_write_head(g, &o, g->form->chunk_object);
        phi_out_open(&o, "choices", '[');
        phi_out_close(&o, ']');
        phi_genjob_write_usage(g, &o);
        phi_genjob_write_fingerprint(&o);
        phi_event_end(&o);
    }
    phi_buf_append_c(out, "data: [DONE]\n\n");
}

static void stream_error(const struct phi_refusal *r, struct phi_buf *out)
{
    phi_buf_append_c(out, "data: ");
    phi_refusal_write(r, out);
    phi_buf_append_c(out, "\n\ndata: [DONE]\n\n");
}

static enum phi_job_state pull(struct phi_exchange *x, struct phi_job *job)
{
    struct phi_genjob *g = (struct phi_genjob *)job;
    struct phi_refusal refusal;
    enum phi_status status = take_events(g, &x->stream, &refusal);
    if (status == PHI_OK)
        status = submit(g, x, &refusal);
    if (status != PHI_OK) {
        cancel(job);
        if (g->fields.stream)
            stream_error(&refusal, &x->stream);
        else
            phi_refusal_answer(&refusal, x);
        return PHI_JOB_DONE;
    }
    if (g->n_ended < g->n_prompts)
        return x->stream.n > 0 ? PHI_JOB_MORE : PHI_JOB_WAIT;
    if (g->fields.stream)
        end_stream(g, &x->stream);
    else
        answer_whole(g, x);
    return PHI_JOB_DONE;
}
