/* generation.c: see generation.h. */
#include "server/generation.h"
#include "base/alloc.h"
#include "base/size.h"
#include "server/metrics.h"
#include "server/request_log.h"

#include <time.h>

enum {
    MAX_CHOICES = 65536, /* of one HTTP request */
    /* Tokens of a text up to this long are counted, and the error says how many there are. */
    CHEAP_TEXT_BYTES = 1 << 16
};

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

/* ---------------------------------------------------------------- lengths */

/* Tokens that a prompt may have beside the answer. */
static int64_t room_for_prompt(const struct phi_genjob *g, int64_t max_model_len)
{
    int64_t n_answer = g->max_tokens > 0 ? g->max_tokens : 1;
    return max_model_len - n_answer;
}

/* Bytes that are not blanks: of blanks, an added token may swallow any number. */
static size_t count_solid_bytes(struct phi_text text)
{
    size_t n = 0;
    for (size_t i = 0; i < text.n; i++)
        n += (unsigned char)text.data[i] > ' ';
    return n;
}

static enum phi_status check_text(const struct phi_genjob *g, struct phi_text text,
                                  struct phi_refusal *r)
{
    struct phi_model_info model;
    struct phi_engine_info engine;
    phi_model_get_info(g->server->model, &model);
    phi_engine_get_info(g->server->engine, &engine);
    int64_t room = room_for_prompt(g, engine.max_model_len);
    if (room < 1 || g->fields.truncate_prompt_tokens.given || model.longest_token_bytes == 0)
        return PHI_OK;
    size_t most = (size_t)room * (size_t)model.longest_token_bytes;
    if (text.n <= CHEAP_TEXT_BYTES || text.n <= most || count_solid_bytes(text) <= most)
        return PHI_OK;
    return phi_refuse(r, PHI_REFUSED_VALUE, "input_text",
                      "This model's maximum context length is %d tokens. However, you requested "
                      "%lld output tokens and your prompt contains %zu bytes (more than %zu bytes, "
                      "which is the upper bound for %lld input tokens). Please reduce the length "
                      "of the input prompt or the number of requested output tokens. "
                      "(parameter=input_text, value=%zu)",
                      engine.max_model_len, (long long)g->max_tokens, text.n, most,
                      (long long)room, text.n);
}

enum phi_status phi_genjob_tokenize(struct phi_genjob *g, struct phi_prompt *p,
                                    struct phi_text text, struct phi_refusal *r)
{
    PHI_TRY(check_text(g, text, r));
    enum phi_status status = phi_tokenize(g->server->model, text, g->fields.add_special_tokens,
                                          &p->ids, &p->n_ids, &r->error);
    return status == PHI_OK ? PHI_OK : phi_refuse_status(r, NULL);
}

static enum phi_status truncate_prompts(struct phi_genjob *g, int64_t max_model_len,
                                        struct phi_refusal *r)
{
    const struct phi_fields *f = &g->fields;
    int64_t room = room_for_prompt(g, max_model_len), limit = f->truncate_prompt_tokens.value;
    struct phi_model_info info;
    if (!f->truncate_prompt_tokens.given)
        return PHI_OK;
    if (limit < 0)
        limit = room;
    if (limit > room)
        return phi_refuse(r, PHI_REFUSED_VALUE, "truncate_prompt_tokens",
                          "truncate_prompt_tokens must not exceed max_model_len - max_tokens = "
                          "%lld, got %lld. (parameter=truncate_prompt_tokens, value=%lld)",
                          (long long)room, (long long)limit, (long long)limit);
    phi_model_get_info(g->server->model, &info);
    bool keeps_end =
        f->truncation_side.data ? phi_str_eq_c(f->truncation_side, "left") : info.truncates_left;
    for (size_t i = 0; i < g->n_prompts; i++) {
        struct phi_prompt *p = &g->prompts[i];
        size_t n = (size_t)limit;
        if (p->n_ids <= n)
            continue;
        if (keeps_end)
            memmove(p->ids, p->ids + p->n_ids - n, n * sizeof *p->ids);
        p->n_ids = n;
        p->is_cut = true;
    }
    return PHI_OK;
}

static enum phi_status check_length(const struct phi_genjob *g, const struct phi_prompt *p,
                                    int64_t max_model_len, struct phi_refusal *r)
{
    long long n = (long long)p->n_ids, limit = (long long)max_model_len;
    long long n_answer = (long long)g->max_tokens;
    if (n == 0)
        return phi_refuse(r, PHI_REFUSED_VALUE, NULL, "The decoder prompt cannot be empty");
    if (n + n_answer > limit)
        return phi_refuse(r, PHI_REFUSED_VALUE, "input_tokens",
                          "This model's maximum context length is %lld tokens. However, you "
                          "requested %lld output tokens and your prompt contains %lld input "
                          "tokens, for a total of %lld tokens. Please reduce the length of the "
                          "input prompt or the number of requested output tokens. "
                          "(parameter=input_tokens, value=%lld)",
                          limit, n_answer, n, n + n_answer, n);
    if (n == limit)
        return phi_refuse(r, PHI_REFUSED_VALUE, NULL,
                          "The decoder prompt (length %lld) plus the number of requested output "
                          "tokens (at least 1) is longer than the maximum model length of %lld.",
                          n, limit);
    return PHI_OK;
}

enum phi_status phi_genjob_fit(struct phi_genjob *g, struct phi_refusal *r)
{
    struct phi_engine_info info;
    phi_engine_get_info(g->server->engine, &info);
    if (g->max_tokens > info.max_model_len)
        return phi_refuse(r, PHI_REFUSED_VALUE, g->max_tokens_field,
                          "%s=%lld cannot be greater than max_model_len=%d. Please request fewer "
                          "output tokens. (parameter=%s, value=%lld)",
                          g->max_tokens_field, (long long)g->max_tokens, info.max_model_len,
                          g->max_tokens_field, (long long)g->max_tokens);
    PHI_TRY(truncate_prompts(g, info.max_model_len, r));
    for (size_t i = 0; i < g->n_prompts; i++)
        PHI_TRY(check_length(g, &g->prompts[i], info.max_model_len, r));
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

enum phi_status phi_genjob_start(struct phi_genjob *g, struct phi_exchange *x,
                                 struct phi_refusal *r)
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
    for (size_t i = 0; i < g->n_prompts; i++) {
        struct phi_prompt *p = &g->prompts[i];
        struct phi_sampling sampling = sampling_of(g, p, info.max_model_len);
        phi_request_log_received(g, i, &sampling);
        phi_exchange_acquire(x); /* given back by the last notification */
        enum phi_status status = phi_request_submit(g->server->engine, p->ids, p->n_ids, &sampling,
                                                    &options, &p->request, &r->error);
        if (status != PHI_OK) {
            phi_exchange_release(x);
            return phi_refuse_status(r, status == PHI_ERR_TOO_LONG ? "input_tokens" : NULL);
        }
    }
    x->job = &g->job;
    if (f->stream)
        phi_exchange_stream(x);
    return PHI_OK;
}

static void cancel(struct phi_job *job)
{
    struct phi_genjob *g = (struct phi_genjob *)job;
    for (size_t i = 0; i < g->n_prompts; i++)
        phi_request_cancel(g->prompts[i].request);
}

/* ---------------------------------------------------------------- events */

static void take_event(struct phi_genjob *g, struct phi_prompt *p, const struct phi_event *ev)
{
    size_t n_answers = (size_t)g->sampling.n;
    struct phi_choice *c = &g->choices[(size_t)(p - g->prompts) * n_answers + (size_t)ev->index];
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

static bool is_out_of_memory(const struct phi_choice *c)
{
    return c->text.failed || c->tokens.failed || c->logprobs.failed || c->stop_string.failed;
}

/* Takes all that the engine has ready. */
static enum phi_status take_events(struct phi_genjob *g, struct phi_refusal *r)
{
    enum phi_status status = PHI_OK;
    for (size_t i = 0; i < g->n_prompts; i++) {
        struct phi_prompt *p = &g->prompts[i];
        struct phi_event ev;
        while (!p->ended && phi_request_next(p->request, &ev, 0) == 1) {
            take_event(g, p, &ev);
            if (ev.finish == PHI_FINISH_ERROR && status == PHI_OK) {
                phi_fail(&r->error, ev.status, "%s", ev.error);
                status = phi_refuse_status(r, NULL);
            }
            if (ev.last) {
                struct phi_request_stats stats;
                p->ended = true;
                g->n_ended++;
                phi_request_get_stats(p->request, &stats);
                p->n_cached = stats.n_cached_tokens;
                record(g, p, ev.finish, &stats);
            }
        }
    }
    for (size_t i = 0; i < g->n_choices && status == PHI_OK; i++)
        if (is_out_of_memory(&g->choices[i]))
            status = phi_refuse_memory(r);
    return status;
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

void phi_event_begin(struct phi_out *o, struct phi_buf *out)
{
    *o = (struct phi_out){.buf = out};
    phi_buf_append_c(out, "data: ");
    phi_out_open(o, NULL, '{');
}

void phi_event_end(struct phi_out *o)
{
    phi_out_close(o, '}');
    phi_buf_append_c(o->buf, "\n\n");
}

/* Whether a chunk about the choice is due. */
static bool has_news(const struct phi_genjob *g, const struct phi_choice *c)
{
    if (c->is_told)
        return false;
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
    if (c->finish != PHI_FINISH_NONE) {
        c->is_told = true;
        g->n_told++;
    }
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

static void stream_error(struct phi_genjob *g, const struct phi_refusal *r, struct phi_buf *out)
{
    cancel(&g->job);
    phi_buf_append_c(out, "data: ");
    phi_refusal_write(r, out);
    phi_buf_append_c(out, "\n\ndata: [DONE]\n\n");
}

static enum phi_job_state pull(struct phi_exchange *x, struct phi_job *job)
{
    struct phi_genjob *g = (struct phi_genjob *)job;
    struct phi_refusal refusal;
    enum phi_status status = take_events(g, &refusal);
    if (status != PHI_OK && !g->fields.stream) {
        cancel(job);
        phi_refusal_answer(&refusal, x);
        return PHI_JOB_DONE;
    }
    if (status != PHI_OK) {
        stream_error(g, &refusal, &x->stream);
        return PHI_JOB_DONE;
    }
    if (!g->fields.stream) {
        if (g->n_ended < g->n_prompts)
            return PHI_JOB_WAIT;
        answer_whole(g, x);
        return PHI_JOB_DONE;
    }
    for (size_t i = 0; i < g->n_choices; i++)
        stream_choice(g, i, &x->stream);
    if (g->n_ended == g->n_prompts) {
        end_stream(g, &x->stream);
        return PHI_JOB_DONE;
    }
    return x->stream.n > 0 ? PHI_JOB_MORE : PHI_JOB_WAIT;
}

/* ---------------------------------------------------------------- for the writers */

void phi_genjob_write_head(const struct phi_genjob *g, struct phi_out *o, const char *object)
{
    phi_out_text(o, "id", g->id);
    phi_out_c(o, "object", object);
    phi_out_int(o, "created", g->created_s);
    phi_out_c(o, "model", phi_server_model_name(g->server));
}

static void write_usage(struct phi_out *o, size_t n_prompt, size_t n_answer, const size_t *n_cached)
{
    phi_out_open(o, "usage", '{');
    phi_out_int(o, "prompt_tokens", (int64_t)n_prompt);
    phi_out_int(o, "total_tokens", (int64_t)(n_prompt + n_answer));
    phi_out_int(o, "completion_tokens", (int64_t)n_answer);
    if (n_cached) {
        phi_out_open(o, "prompt_tokens_details", '{');
        phi_out_int(o, "cached_tokens", (int64_t)*n_cached);
        phi_out_close(o, '}');
    } else {
        phi_out_null(o, "prompt_tokens_details");
    }
    phi_out_close(o, '}');
}

/* A prompt counts once, whatever its n. */
void phi_genjob_write_usage(const struct phi_genjob *g, struct phi_out *o)
{
    size_t n_prompt = 0, n_answer = 0, n_cached = 0;
    for (size_t i = 0; i < g->n_prompts; i++) {
        n_prompt += g->prompts[i].n_ids;
        n_cached += g->prompts[i].n_cached;
    }
    for (size_t i = 0; i < g->n_choices; i++)
        n_answer += g->choices[i].n_output;
    write_usage(o, n_prompt, n_answer,
                g->server->options->prompt_tokens_details ? &n_cached : NULL);
}

void phi_genjob_write_choice_usage(const struct phi_genjob *g, size_t i, struct phi_out *o)
{
    const struct phi_prompt *p = &g->prompts[i / (size_t)g->sampling.n];
    write_usage(o, p->n_ids, g->choices[i].n_output, NULL);
}

void phi_genjob_write_fingerprint(struct phi_out *o)
{
    phi_out_c(o, "system_fingerprint", "phidelity-" PHI_VERSION);
}

const char *phi_finish_name(enum phi_finish finish)
{
    static const char *const names[] = {
        [PHI_FINISH_NONE] = NULL,     [PHI_FINISH_STOP] = "stop",   [PHI_FINISH_LENGTH] = "length",
        [PHI_FINISH_ABORT] = "abort", [PHI_FINISH_ERROR] = "error",
    };
    return names[finish];
}

void phi_genjob_write_finish(const struct phi_choice *c, struct phi_out *o, bool always)
{
    phi_out_c(o, "finish_reason", phi_finish_name(c->finish));
    if (c->finish == PHI_FINISH_NONE && !always)
        return;
    if (c->stop_string.n > 0)
        phi_out_text(o, "stop_reason", phi_buf_str(&c->stop_string));
    else if (c->stop_token >= 0)
        phi_out_int(o, "stop_reason", c->stop_token);
    else
        phi_out_null(o, "stop_reason");
}

struct phi_scored phi_choice_scored(const struct phi_choice *c)
{
    return (struct phi_scored){
        .tokens = c->tokens.data,
        .n = c->n_logprobs > 0 ? c->tokens.n : 0,
        .rows = (const struct phi_logprob *)(const void *)c->logprobs.data,
        .n_logprobs = c->n_logprobs,
    };
}

struct phi_scored phi_prompt_scored(const struct phi_prompt *p)
{
    struct phi_scored scored = {.tokens = p->ids, .n = p->n_ids};
    scored.rows = phi_request_prompt_logprobs(p->request, &scored.n_logprobs);
    if (!scored.rows)
        scored.n = 0;
    return scored;
}
