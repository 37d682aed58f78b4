/* scheduler.c: see scheduler.h. */
#include "engine/scheduler.h"
#include "base/alloc.h"
#include "base/size.h"

#include <assert.h>
#include <string.h>

enum phi_status phi_scheduler_init(struct phi_scheduler *s,
                                   const struct phi_scheduler_limits *limits,
                                   struct phi_kvpool *pool, struct phi_error *err)
{
    assert(limits->max_num_seqs >= 1 && limits->block_size >= 1);
    assert(limits->max_num_batched_tokens >= limits->max_num_seqs);
    assert(limits->max_logit_rows >= limits->max_num_seqs);
    *s = (struct phi_scheduler){.limits = *limits, .pool = pool};
    s->running = phi_calloc(limits->max_num_seqs, sizeof *s->running);
    s->plan.entries = phi_calloc(limits->max_num_seqs, sizeof *s->plan.entries);
    if (!s->running || !s->plan.entries) {
        phi_scheduler_deinit(s);
        return phi_fail_memory(err, "the scheduler",
                               limits->max_num_seqs *
                                   (sizeof *s->running + sizeof *s->plan.entries));
    }
    return PHI_OK;
}

void phi_scheduler_deinit(struct phi_scheduler *s)
{
    phi_free(s->running);
    phi_free(s->plan.entries);
    *s = (struct phi_scheduler){0};
}

/* ---------------------------------------------------------------- lists and blocks */

static void waiting_insert(struct phi_scheduler *s, struct phi_sequence *q, bool at_front)
{
    struct phi_sequence *before = at_front ? NULL : s->waiting_last;
    struct phi_sequence *after = at_front ? s->waiting_first : NULL;
    q->previous = before;
    q->next = after;
    *(before ? &before->next : &s->waiting_first) = q;
    *(after ? &after->previous : &s->waiting_last) = q;
    q->state = PHI_SEQUENCE_WAITING;
    s->n_waiting++;
}

static void waiting_remove(struct phi_scheduler *s, struct phi_sequence *q)
{
    *(q->previous ? &q->previous->next : &s->waiting_first) = q->next;
    *(q->next ? &q->next->previous : &s->waiting_last) = q->previous;
    q->next = q->previous = NULL;
    s->n_waiting--;
}

static void running_remove(struct phi_scheduler *s, const struct phi_sequence *q)
{
    uint32_t i = 0;
    while (s->running[i] != q)
        i++;
    s->n_running--;
    memmove(&s->running[i], &s->running[i + 1], (s->n_running - i) * sizeof *s->running);
}

/* Last block first, so that the sequence's first block is the next one to be taken. */
static void drop_blocks(struct phi_scheduler *s, struct phi_sequence *q)
{
    while (q->n_blocks > 0)
        phi_kvpool_release(s->pool, q->blocks[--q->n_blocks]);
    q->n_computed = 0;
}

/* Blocks for all of q's tokens; false (and nothing taken) when there are too few. */
static bool reserve_blocks(struct phi_scheduler *s, struct phi_sequence *q)
{
    size_t need = phi_scheduler_blocks_for(s, q->n_tokens);
    if (need > q->n_blocks + s->pool->n_free)
        return false;
    while (q->n_blocks < need)
        q->blocks[q->n_blocks++] = phi_kvpool_acquire(s->pool);
    return true;
}

static bool wants_long_regime(const struct phi_scheduler *s, const struct phi_sequence *q)
{
    return s->limits.original_length != 0 && q->n_tokens > s->limits.original_length;
}

void phi_scheduler_add(struct phi_scheduler *s, struct phi_sequence *q)
{
    assert(q->n_tokens >= 1 && q->n_blocks == 0 && q->n_computed == 0);
    waiting_insert(s, q, false);
}

void phi_scheduler_end(struct phi_scheduler *s, struct phi_sequence *q)
{
    if (q->state == PHI_SEQUENCE_RUNNING)
        running_remove(s, q);
    else if (q->state == PHI_SEQUENCE_WAITING)
        waiting_remove(s, q);
    drop_blocks(s, q);
    q->state = PHI_SEQUENCE_ENDED;
}

/* ---------------------------------------------------------------- running sequences */

static void preempt_last(struct phi_scheduler *s)
{
    struct phi_sequence *q = s->running[--s->n_running];
    drop_blocks(s, q);
    waiting_insert(s, q, true);
    s->plan.n_preempted++;
}

/* Gives every running sequence the blocks of all its tokens, the oldest first, by preempting the
 * youngest where the pool has run out. */
static void reserve_for_running(struct phi_scheduler *s)
{
    for (uint32_t i = 0; i < s->n_running; i++) {
        struct phi_sequence *q = s->running[i];
        if (wants_long_regime(s, q) != q->long_regime) {
            drop_blocks(s, q);
            q->long_regime = !q->long_regime;
            s->plan.n_crossed++;
        }
        while (i < s->n_running && !reserve_blocks(s, q))
            preempt_last(s); /* q itself when it is the last */
    }
}

/* What the step has left. */
struct budget {
    uint32_t rows;
    uint32_t logit_rows; /* beyond the one that each running sequence may need */
};

/* Scored positions among the next n rows of q. */
static uint32_t n_scores_of(const struct phi_sequence *q, uint32_t n)
{
    size_t end = phi_size_min(q->n_computed + n, q->score_end);
    return end > q->n_scored ? (uint32_t)(end - q->n_scored) : 0;
}

static bool samples_after(const struct phi_sequence *q, uint32_t n)
{
    return q->n_computed + n == q->n_tokens && phi_sequence_samples(q);
}

/* Adds the next rows of a running q, as many as the budget allows. */
static void plan_rows(struct phi_scheduler *s, struct phi_sequence *q, struct budget *budget)
{
    size_t remaining = q->n_tokens - q->n_computed;
    uint32_t n = (uint32_t)phi_size_min(remaining, budget->rows);
    while (n > 1 && n_scores_of(q, n) + samples_after(q, n) > budget->logit_rows + 1)
        n--;
    if (n == 0)
        return;
    struct phi_plan *plan = &s->plan;
    uint32_t n_scores = n_scores_of(q, n), n_logits = n_scores + samples_after(q, n);
    plan->entries[plan->n_entries++] = (struct phi_plan_entry){
        .sequence = q,
        .first_row = plan->n_rows,
        .n_rows = n,
        .first_position = q->n_computed,
        .first_logit_row = plan->n_logit_rows,
        .n_scores = n_scores,
        .samples = samples_after(q, n),
        .copy_from = PHI_NO_BLOCK,
        .copy_to = PHI_NO_BLOCK,
    };
    plan->n_rows += n;
    plan->n_logit_rows += n_logits;
    budget->rows -= n;
    if (n_logits > 1)
        budget->logit_rows -= n_logits - 1;
}

/* Each sequence that needs just its next token has one row of the budget kept for it; prompts share
 * what is left. */
static void plan_running(struct phi_scheduler *s, struct budget *budget)
{
    uint32_t n_decodes = 0;
    for (uint32_t i = 0; i < s->n_running; i++)
        n_decodes += s->running[i]->n_tokens - s->running[i]->n_computed == 1;
    budget->rows -= n_decodes;
    for (uint32_t i = 0; i < s->n_running; i++) {
        struct phi_sequence *q = s->running[i];
        if (q->n_tokens - q->n_computed == 1)
            budget->rows++;
        plan_rows(s, q, budget);
    }
}

/* ---------------------------------------------------------------- admission */

/* The positions that q can take over from a sibling: its prompt, but not its last token, whose row
 * must be computed for its logits, nor positions that still want theirs. */
static size_t shareable(const struct phi_sequence *q)
{
    if (!q->group || q->n_scored < q->score_end)
        return 0;
    return phi_size_min(q->n_prompt, q->n_tokens - 1);
}

/* A running sibling in q's regime, the one that has computed most; NULL when there is none. */
static const struct phi_sequence *find_sibling(const struct phi_scheduler *s,
                                               const struct phi_sequence *q)
{
    const struct phi_sequence *best = NULL;
    for (uint32_t i = 0; i < s->n_running; i++) {
        const struct phi_sequence *r = s->running[i];
        if (r->group == q->group && r->long_regime == wants_long_regime(s, q) &&
            (!best || r->n_computed > best->n_computed))
            best = r;
    }
    return best;
}

/* Blocks are given out with one to spare for each sequence that runs, so that an admission does not
 * end in a preemption a few tokens later. */
static bool fits(const struct phi_scheduler *s, const struct phi_sequence *q, size_t n_shared)
{
    size_t need = phi_scheduler_blocks_for(s, q->n_tokens) - n_shared / s->limits.block_size;
    return need + s->n_running <= s->pool->n_free;
}

static void admit(struct phi_scheduler *s, struct phi_sequence *q,
                  const struct phi_sequence *sibling, size_t n_shared, struct budget *budget)
{
    size_t n_full = n_shared / s->limits.block_size;
    waiting_remove(s, q);
    q->state = PHI_SEQUENCE_RUNNING;
    q->long_regime = wants_long_regime(s, q);
    s->running[s->n_running++] = q;
    for (size_t b = 0; b < n_full; b++) {
        q->blocks[q->n_blocks++] = sibling->blocks[b];
        phi_kvpool_share(s->pool, sibling->blocks[b]);
    }
    bool reserved = reserve_blocks(s, q);
    assert(reserved);
    (void)reserved;
    q->n_computed = n_shared;
    budget->logit_rows--;
    plan_rows(s, q, budget);
    if (n_shared % s->limits.block_size != 0) {
        struct phi_plan_entry *entry = &s->plan.entries[s->plan.n_entries - 1];
        entry->copy_from = sibling->blocks[n_full];
        entry->copy_to = q->blocks[n_full];
    }
}

static void admit_waiting(struct phi_scheduler *s, struct budget *budget)
{
    for (struct phi_sequence *q = s->waiting_first, *next; q; q = next) {
        next = q->next;
        if (s->n_running == s->limits.max_num_seqs || budget->rows == 0 || budget->logit_rows == 0)
            return;
        size_t n_shared = shareable(q);
        const struct phi_sequence *sibling = n_shared > 0 ? find_sibling(s, q) : NULL;
        if (sibling && sibling->n_computed < n_shared)
            continue; /* the prompt is being computed right now: take it over when it is done */
        if (!sibling)
            n_shared = 0;
        if (!fits(s, q, n_shared))
            return;
        admit(s, q, sibling, n_shared, budget);
    }
}

const struct phi_plan *phi_scheduler_plan(struct phi_scheduler *s)
{
    struct phi_plan *plan = &s->plan;
    plan->n_entries = plan->n_rows = plan->n_logit_rows = 0;
    plan->n_preempted = plan->n_crossed = 0;
    reserve_for_running(s);
    struct budget budget = {s->limits.max_num_batched_tokens,
                            s->limits.max_logit_rows - s->n_running};
    plan_running(s, &budget);
    if (plan->n_preempted == 0)
        admit_waiting(s, &budget);
    assert(plan->n_rows > 0 || (s->n_running == 0 && s->n_waiting == 0));
    return plan;
}

void phi_scheduler_commit(struct phi_scheduler *s)
{
    for (uint32_t i = 0; i < s->plan.n_entries; i++) {
        const struct phi_plan_entry *entry = &s->plan.entries[i];
        entry->sequence->n_computed += entry->n_rows;
        entry->sequence->n_scored += entry->n_scores;
    }
}
