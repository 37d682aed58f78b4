/* step.c: one step of the engine: from the scheduler's plan to published tokens. */
#include "engine/engine.h"
#include "engine/logprobs.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/size.h"

#include <string.h>

static float *logits_row(const struct phi_engine *e, size_t row)
{
    return e->logits + row * (size_t)e->model->config.vocab_size;
}

/* ---------------------------------------------------------------- plan to batch */

static void copy_block(const struct phi_engine *e, const struct phi_plan_entry *entry)
{
    if (entry->copy_from != PHI_NO_BLOCK)
        memcpy(e->kv.data + entry->copy_to * e->kv.block_bytes,
               e->kv.data + entry->copy_from * e->kv.block_bytes, e->kv.block_bytes);
}

/* The scored rows, which stand one after the other, then the last one when it gives a token. */
static void fill_logit_rows(const struct phi_engine *e, const struct phi_plan_entry *entry)
{
    uint32_t *rows = e->logit_rows + entry->first_logit_row;
    uint32_t first =
        entry->first_row + (uint32_t)(entry->sequence->n_scored - entry->first_position);
    for (uint32_t i = 0; i < entry->n_scores; i++)
        *rows++ = first + i;
    if (entry->samples)
        *rows = entry->first_row + entry->n_rows - 1;
    for (uint32_t i = 0; i < entry->n_scores + entry->samples; i++)
        e->row_entries[entry->first_logit_row + i] = (uint32_t)(entry - e->scheduler.plan.entries);
}

/* Most of the step's rows are this entry's, so that it is not worth finishing without them. But who
 * shares steps with prompts that come and are cancelled has every second one finished. */
static bool dominates(const struct phi_engine *e, const struct phi_plan *plan,
                      const struct phi_plan_entry *entry)
{
    return plan->n_entries == 1 || (entry->n_rows > plan->n_rows / 2 && !e->broke_off_others);
}

/* Either this sees that the request was cancelled in the meantime, or who cancels it sees that it
 * is dominant. */
static void set_dominant(struct phi_engine *e, struct phi_request *r)
{
    atomic_store(&e->dominant, r);
    if (atomic_load(&r->cancelled))
        atomic_store(&e->cancel_step, true);
}

/* phi_batch.probe: hands a tensor's rows to those whose requests trace. */
static void trace_rows(void *context, const char *name, const float *data, size_t n_cols)
{
    const struct phi_plan *plan = context;
    for (uint32_t i = 0; i < plan->n_entries; i++) {
        const struct phi_plan_entry *entry = &plan->entries[i];
        struct phi_request *r = phi_answer_of(entry->sequence)->request;
        if (!r->trace)
            continue;
        phi_alloc_forbid(false); /* the sink is the caller's code */
        r->trace(r->sink_context, name, entry->first_position, entry->n_rows, n_cols,
                 data + entry->first_row * n_cols);
        phi_alloc_forbid(true);
    }
}

static struct phi_batch make_batch(struct phi_engine *e, const struct phi_plan *plan)
{
    bool is_traced = false;
    for (uint32_t i = 0; i < plan->n_entries; i++) {
        const struct phi_plan_entry *entry = &plan->entries[i];
        struct phi_answer *a = phi_answer_of(entry->sequence);
        if (phi_request_start(a->request))
            atomic_fetch_sub(&e->n_unstarted, 1);
        copy_block(e, entry);
        phi_answer_read_tokens(entry->sequence, entry->first_position, entry->n_rows,
                               e->tokens + entry->first_row);
        fill_logit_rows(e, entry);
        e->seqs[i] = (struct phi_batch_seq){
            .first_row = entry->first_row,
            .n_rows = entry->n_rows,
            .first_position = (uint32_t)entry->first_position,
            .blocks = entry->sequence->blocks,
            .long_regime = entry->sequence->long_regime,
        };
        if (dominates(e, plan, entry))
            set_dominant(e, a->request);
        is_traced = is_traced || a->request->trace;
    }
    return (struct phi_batch){
        .tokens = e->tokens,
        .n_tokens = plan->n_rows,
        .seqs = e->seqs,
        .n_seqs = plan->n_entries,
        .logit_rows = e->logit_rows,
        .n_logit_rows = plan->n_logit_rows,
        .logits = e->logits,
        .cancel = &e->cancel_step,
        .probe = is_traced ? trace_rows : NULL,
        .probe_context = (void *)(uintptr_t)plan,
    };
}

/* ---------------------------------------------------------------- logits to tokens */

static void end_with_error(struct phi_engine *e, struct phi_request *r, enum phi_status status,
                           const char *text)
{
    if (status == PHI_ERR_NAN)
        phi_counter_add(&e->counters.n_nan_requests, 1);
    phi_engine_end_request(e, r, PHI_FINISH_ERROR, status, text);
}

/* A position of a prompt, whose logits go to a sink later, or as the log-probability of the next token
 * to the request now. False when a logit is NaN or infinite. */
static bool score_row(const struct phi_request *r, struct phi_sampler *s, const float *logits,
                      size_t position)
{
    if (r->sink)
        return phi_row_scan(&s->row, logits);
    size_t next = position + 1;
    return phi_logprobs_row(s, logits, r->prompt[next], r->n_prompt_logprobs - 1,
                            r->prompt_logprobs + next * r->n_prompt_logprobs);
}

/* The next token of an answer, or why there is none; its log-probabilities go to the answer. */
static int32_t sample_row(const struct phi_answer *a, struct phi_sampler *s, const float *logits)
{
    const struct phi_request *r = a->request;
    struct phi_sampling_state state = r->params.state;
    state.prompt = r->prompt;
    state.n_prompt = r->n_prompt;
    state.output = a->output;
    state.n_output = a->n_output;
    state.key = a->key;
    state.stream = a->stream;
    int32_t token = phi_sampler_sample(s, logits, &state);
    if (token >= 0 && r->n_logprobs > 0)
        phi_logprobs_row(s, logits, token, r->n_logprobs - 1,
                         a->logprobs + a->n_output * r->n_logprobs);
    return token;
}

/* One row of logits, on any thread. */
static void judge_row(void *context, size_t row, int thread)
{
    struct phi_engine *e = context;
    const struct phi_plan_entry *entry = &e->scheduler.plan.entries[e->row_entries[row]];
    const struct phi_answer *a = phi_answer_of(entry->sequence);
    struct phi_sampler *s = &e->samplers[thread];
    size_t i = row - entry->first_logit_row, first = a->sequence.n_scored - entry->n_scores;
    if (i == entry->n_scores)
        e->verdicts[row] = sample_row(a, s, logits_row(e, row));
    else
        e->verdicts[row] =
            score_row(a->request, s, logits_row(e, row), first + i) ? 0 : PHI_TOKEN_UNDEFINED;
}

/* Whether the answer's newest token, its n-th, ends it, and how: first by its id (after
 * min_tokens), then by its text, then by its number. A stop string names the reason when several
 * apply. */
static enum phi_status find_ending(struct phi_answer *a, int32_t token, size_t n,
                                   struct phi_ending *out, struct phi_error *err)
{
    const struct phi_params *p = &a->request->params;
    *out = (struct phi_ending){.stop_string = -1};
    if (n >= p->state.min_tokens)
        out->by_token = phi_params_token_end(p, token);
    if (p->stops.n_strings > 0 && (out->by_token == PHI_TOKEN_GOES_ON || p->include_stop)) {
        PHI_TRY(phi_detokenizer_push(&a->watch, token, NULL, err));
        out->stop_string = a->watch.match;
    }
    if (out->by_token != PHI_TOKEN_GOES_ON || out->stop_string >= 0)
        out->finish = PHI_FINISH_STOP;
    else if (n == p->max_tokens)
        out->finish = PHI_FINISH_LENGTH;
    return PHI_OK;
}

static void count_token(struct phi_engine *e, struct phi_answer *a)
{
    struct phi_counters *c = &e->counters;
    phi_counter_add(&c->n_generated_tokens, 1);
    if (a->last_token_s > 0)
        phi_counter_observe(&c->inter_token_s, e->step_s - a->last_token_s);
    a->last_token_s = e->step_s;
    if (a->request->first_token_s > 0)
        return;
    phi_counter_add(&c->n_prompt_tokens, a->request->n_prompt);
    phi_counter_add(&c->n_cached_prompt_tokens, a->sequence.n_cached);
}

static void take_token(struct phi_engine *e, struct phi_answer *a, int32_t token)
{
    struct phi_request *r = a->request;
    struct phi_ending ending;
    struct phi_error err;
    if (token == PHI_TOKEN_NONE) {
        end_with_error(
            e, r, PHI_ERR_INVALID,
            "no token is allowed: allowed_token_ids, bad_words and min_tokens leave none");
        return;
    }
    a->output[a->n_output] = token;
    count_token(e, a);
    enum phi_status status = find_ending(a, token, a->n_output + 1, &ending, &err);
    if (status != PHI_OK)
        end_with_error(e, r, status, err.text);
    else if (ending.finish != PHI_FINISH_NONE)
        phi_engine_end_answer(e, a, 1, &ending);
    else {
        a->sequence.n_tokens++;
        phi_answer_publish(a, 1, &ending);
    }
}

/* Hands the logits of a prompt's positions to the request's sink. False when it wants no more. */
static bool fill_sink(const struct phi_engine *e, const struct phi_plan_entry *entry,
                      size_t first_position)
{
    const struct phi_request *r = phi_answer_of(entry->sequence)->request;
    phi_alloc_forbid(false); /* the sink is the caller's code */
    int stop = r->sink(r->sink_context, first_position, entry->n_scores,
                       logits_row(e, entry->first_logit_row));
    phi_alloc_forbid(true);
    return stop == 0;
}

static bool is_defined(const int32_t *verdicts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (verdicts[i] == PHI_TOKEN_UNDEFINED)
            return false;
    return true;
}

static void take_results(struct phi_engine *e, const struct phi_plan_entry *entry)
{
    struct phi_sequence *q = entry->sequence;
    struct phi_answer *a = phi_answer_of(q);
    struct phi_request *r = a->request;
    const int32_t *verdicts = e->verdicts + entry->first_logit_row;
    if (q->state != PHI_SEQUENCE_RUNNING)
        return; /* ended by an error of a sibling in this step */
    if (!is_defined(verdicts, entry->n_scores + entry->samples)) {
        end_with_error(e, r, PHI_ERR_NAN, "the model produced NaN or infinite logits");
        return;
    }
    if (entry->n_scores > 0 && r->sink && !fill_sink(e, entry, q->n_scored - entry->n_scores)) {
        end_with_error(e, r, PHI_ERR_CANCELLED, "cancelled by the caller");
        return;
    }
    if (entry->samples)
        take_token(e, a, verdicts[entry->n_scores]);
    else if (q->n_computed == q->n_tokens)
        phi_engine_end_answer(e, a, 0,
                              &(struct phi_ending){.finish = PHI_FINISH_STOP, .stop_string = -1});
}

/* ---------------------------------------------------------------- the step */

/* The forward pass itself failed, which no request is to blame for: all that were in it end. */
static void fail_step(struct phi_engine *e, const struct phi_error *err)
{
    while (e->scheduler.n_running > 0)
        end_with_error(e, phi_answer_of(e->scheduler.running[0])->request, err->code, err->text);
}

static void count_plan(struct phi_engine *e, const struct phi_plan *plan)
{
    struct phi_counters *c = &e->counters;
    phi_counter_add(&c->n_preemptions, plan->n_preempted);
    phi_counter_add(&c->n_crossings, plan->n_crossed);
    phi_counter_set(&c->n_prefix_queries, e->scheduler.n_looked_up);
    phi_counter_set(&c->n_prefix_hits, e->scheduler.n_found);
    phi_engine_count_present(e);
}

void phi_engine_step(struct phi_engine *e)
{
    struct phi_error err;
    atomic_store(&e->dominant, NULL);
    const struct phi_plan *plan = phi_scheduler_plan(&e->scheduler);
    count_plan(e, plan);
    if (plan->n_rows == 0)
        return;
    struct phi_batch batch = make_batch(e, plan);
    enum phi_status status = phi_forward(e->model->net, e->workspace, &e->kv, &batch, &err);
    e->broke_off_others = status == PHI_ERR_CANCELLED && plan->n_entries > 1;
    if (status == PHI_ERR_CANCELLED)
        return; /* nothing is counted as computed: those that stay are planned again */
    e->step_s = phi_clock_s();
    phi_counter_add(&e->counters.n_steps, 1);
    phi_counter_observe(&e->counters.iteration_tokens, plan->n_rows);
    if (status != PHI_OK) {
        fail_step(e, &err);
        return;
    }
    phi_scheduler_commit(&e->scheduler);
    phi_pool_run(phi_workspace_pool(e->workspace), plan->n_logit_rows, judge_row, e);
    for (uint32_t i = 0; i < plan->n_entries; i++)
        take_results(e, &plan->entries[i]);
}
