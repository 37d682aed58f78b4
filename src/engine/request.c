/* request.c: see request.h. */
#include "engine/request.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/size.h"
#include "engine/logprobs.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <time.h>

/* ---------------------------------------------------------------- creating and freeing */

static enum phi_status check_prompt(const int32_t *ids, size_t n, int vocab_size,
                                    struct phi_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= vocab_size)
            return phi_fail(err, PHI_ERR_INVALID,
                            "Token id %d is out of vocabulary (index %zu of the prompt; size %d).",
                            ids[i], i, vocab_size);
    return PHI_OK;
}

static enum phi_status init_answer(struct phi_request *r, int index, const struct phi_model *m,
                                   size_t block_size, struct phi_error *err)
{
    struct phi_answer *a = &r->answers[index];
    const struct phi_params *p = &r->params;
    size_t n_tokens = r->n_prompt + p->max_tokens, n_logprobs = 0;
    a->request = r;
    a->index = index;
    a->ending.stop_string = -1;
    a->sequence.owner = a;
    a->sequence.read_tokens = phi_answer_read_tokens;
    a->sequence.group = p->n > 1 ? r : NULL;
    a->sequence.n_prompt = a->sequence.n_tokens = r->n_prompt;
    a->output = phi_alloc(p->max_tokens, sizeof *a->output);
    a->sequence.blocks = phi_alloc(phi_size_ceil_div(n_tokens, block_size), sizeof(uint32_t));
    if (!a->output || !a->sequence.blocks)
        return phi_fail_memory(err, "an answer's tokens", n_tokens * sizeof *a->output);
    if (r->n_logprobs > 0) {
        if (phi_size_mul(p->max_tokens, r->n_logprobs, &n_logprobs))
            a->logprobs = phi_alloc(n_logprobs, sizeof *a->logprobs);
        if (!a->logprobs)
            return phi_fail_memory(err, "logprobs", n_logprobs * sizeof *a->logprobs);
    }
    PHI_TRY(phi_detokenizer_init(&a->text, m->tokenizer, p->skip_special, &p->stops,
                                 p->include_stop, p->state.min_tokens, err));
    if (p->stops.n_strings == 0)
        return PHI_OK;
    PHI_TRY(phi_detokenizer_init(&a->watch, m->tokenizer, p->skip_special, &p->stops,
                                 p->include_stop, p->state.min_tokens, err));
    return phi_detokenizer_reserve(&a->watch, p->max_tokens, err);
}

static enum phi_status init_prompt_logprobs(struct phi_request *r, struct phi_error *err)
{
    size_t n;
    if (r->params.prompt_logprobs < 0)
        return PHI_OK;
    r->n_prompt_logprobs = (size_t)r->params.prompt_logprobs + 1;
    if (phi_size_mul(r->n_prompt, r->n_prompt_logprobs, &n))
        r->prompt_logprobs = phi_alloc(n, sizeof *r->prompt_logprobs);
    if (!r->prompt_logprobs)
        return phi_fail(err, PHI_ERR_MEMORY, "out of memory: prompt_logprobs of %zu tokens",
                        r->n_prompt);
    phi_logprobs_pad(r->n_prompt_logprobs - 1, r->prompt_logprobs);
    return PHI_OK;
}

static enum phi_status fill(struct phi_request *r, const struct phi_model *m, size_t block_size,
                            const int32_t *prompt, struct phi_error *err)
{
    int n = r->params.n;
    r->prompt = phi_alloc(r->n_prompt, sizeof *r->prompt);
    r->answers = phi_calloc((size_t)n, sizeof *r->answers);
    r->ready = phi_alloc((size_t)n, sizeof *r->ready);
    if (!r->prompt || !r->answers || !r->ready)
        return phi_fail_memory(err, "a request",
                               r->n_prompt * sizeof *prompt + (size_t)n * sizeof *r->answers);
    memcpy(r->prompt, prompt, r->n_prompt * sizeof *prompt);
    r->n_logprobs = r->params.logprobs < 0 ? 0 : (size_t)r->params.logprobs + 1;
    PHI_TRY(init_prompt_logprobs(r, err));
    for (int i = 0; i < n; i++)
        PHI_TRY(init_answer(r, i, m, block_size, err));
    /* Every row of the prompt tells of the token after it; only the first answer scores them. */
    if (r->sink)
        r->answers[0].sequence.score_end = r->n_prompt;
    else if (r->prompt_logprobs)
        r->answers[0].sequence.score_end = r->n_prompt - 1;
    r->n_running_answers = n;
    return PHI_OK;
}

static void init_lock(struct phi_request *r)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&r->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&r->lock, NULL);
}

enum phi_status phi_request_create(const struct phi_model *m, size_t max_model_len,
                                   size_t block_size, const int32_t *prompt, size_t n_prompt,
                                   const struct phi_sampling *s, phi_logits_sink sink,
                                   void *sink_context, struct phi_request **out,
                                   struct phi_error *err)
{
    *out = NULL;
    PHI_TRY(check_prompt(prompt, n_prompt, m->config.vocab_size, err));
    struct phi_request *r = phi_calloc(1, sizeof *r);
    if (!r)
        return phi_fail_memory(err, "a request", sizeof *r);
    r->n_prompt = n_prompt;
    r->sink = sink;
    r->sink_context = sink_context;
    atomic_init(&r->n_references, 1);
    init_lock(r);
    enum phi_status status = phi_params_init(&r->params, s, m, n_prompt, max_model_len, err);
    if (status == PHI_OK)
        status = fill(r, m, block_size, prompt, err);
    if (status != PHI_OK) {
        phi_request_unref(r);
        return status;
    }
    r->submit_s = phi_clock_s();
    *out = r;
    return PHI_OK;
}

static void request_free(struct phi_request *r)
{
    for (int i = 0; r->answers && i < r->params.n; i++) {
        struct phi_answer *a = &r->answers[i];
        phi_free(a->output);
        phi_free(a->logprobs);
        phi_free(a->sequence.blocks);
        phi_detokenizer_deinit(&a->watch);
        phi_detokenizer_deinit(&a->text);
    }
    phi_free(r->answers);
    phi_free(r->prompt);
    phi_free(r->prompt_logprobs);
    phi_free(r->ready);
    phi_buf_deinit(&r->text);
    phi_params_deinit(&r->params);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    phi_free(r);
}

void phi_request_acquire(struct phi_request *r)
{
    atomic_fetch_add(&r->n_references, 1);
}

void phi_request_unref(struct phi_request *r)
{
    if (atomic_fetch_sub(&r->n_references, 1) == 1)
        request_free(r);
}

/* ---------------------------------------------------------------- the engine's side */

void phi_answer_read_tokens(const struct phi_sequence *q, size_t begin, size_t n, int32_t *out)
{
    const struct phi_answer *a = phi_answer_of(q);
    size_t n_prompt = a->request->n_prompt;
    for (size_t p = begin; p < begin + n; p++)
        *out++ = p < n_prompt ? a->request->prompt[p] : a->output[p - n_prompt];
}

bool phi_request_start(struct phi_request *r)
{
    if (r->start_s > 0)
        return false;
    pthread_mutex_lock(&r->lock);
    r->start_s = phi_clock_s();
    pthread_mutex_unlock(&r->lock);
    return true;
}

/* Outside the lock: what is called may lock things of its own. */
static void notify(const struct phi_request *r, bool ended)
{
    if (r->notify)
        r->notify(r->notify_context, ended);
}

void phi_answer_publish(struct phi_answer *answer, size_t n_new, const struct phi_ending *ending)
{
    struct phi_request *r = answer->request;
    pthread_mutex_lock(&r->lock);
    bool is_news = !answer->ready;
    answer->n_output += n_new;
    if (n_new > 0 && r->first_token_s == 0) {
        r->first_token_s = phi_clock_s();
        r->n_cached = answer->sequence.n_cached;
    }
    if (ending->finish != PHI_FINISH_NONE) {
        answer->ending = *ending;
        r->end_s = phi_clock_s();
        r->n_preemptions += answer->sequence.n_preemptions;
    }
    if (is_news) {
        answer->ready = true;
        r->ready[(r->ready_first + r->n_ready++) % r->params.n] = answer->index;
    }
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->lock);
    if (is_news)
        notify(r, false);
}

void phi_request_set_error(struct phi_request *r, const char *text)
{
    pthread_mutex_lock(&r->lock);
    snprintf(r->error, sizeof r->error, "%s", text);
    pthread_mutex_unlock(&r->lock);
}

void phi_request_detach(struct phi_request *r)
{
    pthread_mutex_lock(&r->lock);
    r->engine = NULL;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    notify(r, true);
}

/* ---------------------------------------------------------------- the reader's side */

void phi_request_wait(struct phi_request *r)
{
    pthread_mutex_lock(&r->lock);
    while (r->engine)
        pthread_cond_wait(&r->changed, &r->lock);
    pthread_mutex_unlock(&r->lock);
}

static struct timespec deadline_after(int timeout_ms)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += timeout_ms / 1000;
    t.tv_nsec += timeout_ms % 1000 * 1000000L;
    if (t.tv_nsec >= 1000000000L) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000L;
    }
    return t;
}

/* Waits for an answer with news. NULL on timeout. Locked. */
static struct phi_answer *take_ready(struct phi_request *r, int timeout_ms)
{
    struct timespec deadline = deadline_after(timeout_ms < 0 ? 0 : timeout_ms);
    while (r->n_ready == 0) {
        if (timeout_ms < 0)
            pthread_cond_wait(&r->changed, &r->lock);
        else if (timeout_ms == 0 ||
                 pthread_cond_timedwait(&r->changed, &r->lock, &deadline) == ETIMEDOUT)
            break;
    }
    if (r->n_ready == 0)
        return NULL;
    struct phi_answer *a = &r->answers[r->ready[r->ready_first]];
    r->ready_first = (r->ready_first + 1) % r->params.n;
    r->n_ready--;
    a->ready = false;
    return a;
}

/* The text of the tokens that are new, and of the end. A token that ends the answer is no text
 * unless include_stop_str_in_output. */
static enum phi_status decode_new(struct phi_answer *a, size_t n_output,
                                  const struct phi_ending *ending, struct phi_buf *out,
                                  struct phi_error *err)
{
    size_t n_text = n_output;
    if (ending->by_token != PHI_TOKEN_GOES_ON && !a->request->params.include_stop)
        n_text--;
    for (size_t i = a->n_delivered; i < n_text; i++)
        PHI_TRY(phi_detokenizer_push(&a->text, a->output[i], out, err));
    if (ending->finish == PHI_FINISH_NONE)
        return PHI_OK;
    return phi_detokenizer_finish(&a->text, out, err);
}

/* A reader that cannot hold the text loses this request. */
static void fail_text(struct phi_answer *a, const struct phi_error *err)
{
    a->text_failed = true;
    a->request->event_error = *err;
    phi_request_cancel(a->request);
}

static void fill_event(struct phi_answer *a, size_t n_output, const struct phi_ending *ending,
                       struct phi_event *ev)
{
    struct phi_request *r = a->request;
    struct phi_error err;
    phi_buf_clear(&r->text);
    if (!a->text_failed && decode_new(a, n_output, ending, &r->text, &err) != PHI_OK)
        fail_text(a, &err);
    *ev = (struct phi_event){
        .index = a->index,
        .text = {r->text.data ? r->text.data : "", r->text.n},
        .tokens = a->output + a->n_delivered,
        .n_tokens = n_output - a->n_delivered,
        .logprobs = a->logprobs ? a->logprobs + a->n_delivered * r->n_logprobs : NULL,
        .n_logprobs = r->n_logprobs,
        .finish = ending->finish,
        .stop_token = -1,
        .status = ending->status,
    };
    a->n_delivered = n_output;
    if (ending->stop_string >= 0) {
        const struct phi_stop_string *s = &r->params.stops.strings[ending->stop_string];
        ev->stop_string = (struct phi_text){s->text, s->n};
    } else if (ending->by_token == PHI_TOKEN_STOP_ID) {
        ev->stop_token = a->output[n_output - 1];
    }
    if (ending->finish == PHI_FINISH_NONE)
        return;
    if (a->text_failed) {
        ev->finish = PHI_FINISH_ERROR;
        ev->status = PHI_ERR_MEMORY;
    }
    if (ev->finish == PHI_FINISH_ERROR)
        ev->error = a->text_failed ? r->event_error.text : r->error;
    ev->last = ++r->n_finish_delivered == r->params.n;
}

int phi_request_next(struct phi_request *r, struct phi_event *ev, int timeout_ms)
{
    if (r->n_finish_delivered == r->params.n)
        return -1;
    pthread_mutex_lock(&r->lock);
    struct phi_answer *a = take_ready(r, timeout_ms);
    size_t n_output = a ? a->n_output : 0;
    struct phi_ending ending = a ? a->ending : (struct phi_ending){0};
    pthread_mutex_unlock(&r->lock);
    if (!a)
        return 0;
    fill_event(a, n_output, &ending, ev);
    return 1;
}

const struct phi_logprob *phi_request_prompt_logprobs(const struct phi_request *r,
                                                      size_t *n_logprobs)
{
    *n_logprobs = r->n_prompt_logprobs;
    return r->prompt_logprobs;
}

void phi_request_get_stats(const struct phi_request *r, struct phi_request_stats *out)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&r->lock;
    *out = (struct phi_request_stats){.n_prompt_tokens = r->n_prompt};
    for (int i = 0; i < r->params.n; i++)
        out->n_output_tokens += r->answers[i].n_delivered;
    pthread_mutex_lock(lock);
    out->queue_s = r->start_s > 0 ? r->start_s - r->submit_s : 0;
    out->first_token_s = r->first_token_s > 0 ? r->first_token_s - r->submit_s : 0;
    out->end_s = r->end_s > 0 ? r->end_s - r->submit_s : 0;
    out->n_cached_tokens = r->n_cached;
    out->n_preemptions = r->n_preemptions;
    pthread_mutex_unlock(lock);
}

void phi_request_release(struct phi_request *r)
{
    if (!r)
        return;
    phi_request_cancel(r);
    phi_request_unref(r);
}
