/* scheduler.c: see scheduler.h. */
#include "engine/scheduler.h"
#include "base/alloc.h"
#include "base/size.h"

#include <assert.h>
#include <string.h>

enum phi_status phi_scheduler_init(struct phi_scheduler *s,
                                   const struct phi_scheduler_limits *limits,
                                   struct phi_kvpool *pool, struct phi_prefix_cache *cache,
                                   struct phi_error *err)
{
    assert(limits->max_num_seqs >= 1 && limits->block_size >= 1);
    assert(limits->max_num_batched_tokens >= limits->max_num_seqs);
    assert(limits->max_logit_rows >= limits->max_num_seqs);
    *s = (struct phi_scheduler){.limits = *limits, .pool = pool, .cache = cache};
    s->block_tokens = phi_alloc(limits->block_size, sizeof *s->block_tokens);
    s->running = phi_calloc(limits->max_num_seqs, sizeof *s->running);
    s->plan.entries = phi_calloc(limits->max_num_seqs, sizeof *s->plan.entries);
    if (!s->block_tokens || !s->running || !s->plan.entries) {
        phi_scheduler_deinit(s);
        return phi_fail_memory(err, "the scheduler",
                               limits->max_num_seqs *
                                   (sizeof *s->running + sizeof *s->plan.entries));
    }
    return PHI_OK;
}

void phi_scheduler_deinit(struct phi_scheduler *s)
{
    phi_free(s->block_tokens);
    phi_free(s->running);
    phi_free(s->plan.entries);
    *s = (struct phi_scheduler){0};
}

/* ---------------------------------------------------------------- lists and blocks */

bool phi_scheduler_before(const struct phi_scheduler *s, const struct phi_sequence *a,
                          const struct phi_sequence *b)
{
    if (s->limits.policy == PHI_PRIORITY && a->priority != b->priority)
        return a->priority < b->priority;
    return a->arrival < b->arrival;
}

/* Into its place, looked for from `near`, one that waits, or from the end (NULL). */
static void waiting_insert(struct phi_scheduler *s, struct phi_sequence *q,
                           struct phi_sequence *near)
{
    struct phi_sequence *before = near ? near : s->waiting_last;
    while (before && before->next && phi_scheduler_before(s, before->next, q))
        before = before->next;
    while (before && phi_scheduler_before(s, q, before))
        before = before->previous;
    struct phi_sequence *after = before ? before->next : s->waiting_first;
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
    if (s->waiting_newest == q)
        s->waiting_newest = q->previous;
    q->next = q->previous = NULL;
    s->n_waiting--;
}

static void running_insert(struct phi_scheduler *s, struct phi_sequence *q)
{
    uint32_t i = s->n_running++;
    for (; i > 0 && phi_scheduler_before(s, q, s->running[i - 1]); i--)
        s->running[i] = s->running[i - 1];
    s->running[i] = q;
    q->state = PHI_SEQUENCE_RUNNING;
}

static void running_remove(struct phi_scheduler *s, const struct phi_sequence *q)
{
    uint32_t i = 0;
    while (s->running[i] != q)
        i++;
    s->n_running--;
    memmove(&s->running[i], &s->running[i + 1], (s->n_running - i) * sizeof *s->running);
}

static uint32_t take_block(struct phi_scheduler *s)
{
    uint32_t block = phi_kvpool_acquire(s->pool);
    if (s->cache)
        phi_prefix_forget(s->cache, block);
    return block;
}

static void release_block(struct phi_scheduler *s, uint32_t block)
{
    phi_kvpool_release(s->pool, block, s->cache && phi_prefix_name(s->cache, block) != 0);
}

/* Last block first: of those whose content is forgotten, the sequence's first block is the next one
 * to be taken; of those that stay cached, its last one, since the others are worth more. */
static void drop_blocks(struct phi_scheduler *s, struct phi_sequence *q)
{
    while (q->n_blocks > 0)
        release_block(s, q->blocks[--q->n_blocks]);
    q->n_computed = q->n_named = 0;
}

/* Blocks for all of q's tokens; false (and nothing taken) when there are too few. */
static bool reserve_blocks(struct phi_scheduler *s, struct phi_sequence *q)
{
    size_t need = phi_scheduler_blocks_for(s, q->n_tokens);
    if (need > q->n_blocks + s->pool->n_free)
        return false;
    while (q->n_blocks < need)
        q->blocks[q->n_blocks++] = take_block(s);
    return true;
}

static bool wants_long_regime(const struct phi_scheduler *s, const struct phi_sequence *q)
{
    return s->limits.original_length != 0 && q->n_tokens > s->limits.original_length;
}

void phi_scheduler_add(struct phi_scheduler *s, struct phi_sequence *q)
{
    assert(q->n_tokens >= 1 && q->n_blocks == 0 && q->n_computed == 0);
    q->arrival = ++s->n_arrived;
    waiting_insert(s, q, s->waiting_newest);
    s->waiting_newest = q;
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
    waiting_insert(s, q, s->waiting_first);
    q->n_preemptions++;
    s->plan.n_preempted++;
}

/* Gives every running sequence the blocks of all its tokens, the first one first, by preempting the
 * last one where the pool has run out. */
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

/* Of a step's rows, what long prompts may have together while they keep others waiting. */
enum { LONG_SHARE = 4 };

/* What the step has left. */
struct budget {
    uint32_t rows;
    uint32_t long_rows;  /* of them, for long prompts that keep others waiting */
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

/* A prompt that needs several steps even by itself. */
static bool is_long(const struct phi_scheduler *s, const struct phi_sequence *q)
{
    return q->n_tokens - q->n_computed > s->limits.max_num_batched_tokens;
}

/* Whether steps full of q, which is long, would be too slow for somebody else: one who runs and is not
 * long, or one who waits, but not for q's own prompt, and whose priority is not less. */
static bool keeps_others_waiting(const struct phi_scheduler *s, const struct phi_sequence *q)
{
    bool ranked = s->limits.policy == PHI_PRIORITY;
    for (uint32_t i = 0; i < s->n_running; i++) {
        const struct phi_sequence *other = s->running[i];
        if (!is_long(s, other) && !(ranked && other->priority > q->priority))
            return true;
    }
    for (const struct phi_sequence *other = s->waiting_first; other; other = other->next) {
        if (ranked && other->priority > q->priority)
            return false;
        if (!q->group || other->group != q->group)
            return true;
    }
    return false;
}

/* Rows that q gets of the budget. */
static uint32_t share_of(const struct phi_scheduler *s, const struct phi_sequence *q,
                         struct budget *budget)
{
    uint32_t n = (uint32_t)phi_size_min(q->n_tokens - q->n_computed, budget->rows);
    if (n == 0 || !is_long(s, q) || !keeps_others_waiting(s, q))
        return n;
    n = (uint32_t)phi_size_min(n, phi_size_max(budget->long_rows, 1));
    budget->long_rows -= (uint32_t)phi_size_min(n, budget->long_rows);
    return n;
}

/* Adds the next rows of a running q, as many as the budget allows. */
static void plan_rows(struct phi_scheduler *s, struct phi_sequence *q, struct budget *budget)
{
    uint32_t n = share_of(s, q, budget);
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

/* What an admitted sequence takes over instead of computing it. */
struct takeover {
    size_t n_tokens;    /* leading positions */
    size_t n_blocks;    /* full blocks of them, to be shared; their numbers stand in q->blocks */
    uint32_t copy_from; /* block of the positions after those, to be copied; or PHI_NO_BLOCK */
    size_t n_free;      /* blocks among all these that nobody holds at present */
    bool from_cache;
};

/* A running sibling in q's regime, the one that has computed most; NULL when there is none. */
static const struct phi_sequence *find_sibling(const struct phi_scheduler *s,
                                               const struct phi_sequence *q)
{
    const struct phi_sequence *best = NULL;
    for (uint32_t i = 0; q->group && i < s->n_running; i++) {
        const struct phi_sequence *r = s->running[i];
        if (r->group == q->group && r->long_regime == wants_long_regime(s, q) &&
            (!best || r->n_computed > best->n_computed))
            best = r;
    }
    return best;
}

/* The first n positions that stand in `blocks`, which may be q's own array. */
static struct takeover take_over(const struct phi_scheduler *s, struct phi_sequence *q,
                                 const uint32_t *blocks, size_t n)
{
    struct takeover t = {n, n / s->limits.block_size, PHI_NO_BLOCK, 0, false};
    for (size_t b = 0; b < t.n_blocks; b++) {
        q->blocks[b] = blocks[b];
        t.n_free += s->pool->references[blocks[b]] == 0;
    }
    if (n % s->limits.block_size != 0) {
        t.copy_from = blocks[t.n_blocks];
        t.n_free += s->pool->references[t.copy_from] == 0;
    }
    return t;
}

/* Walks q's tokens through the cache block by block. The blocks found stand in q->blocks; returns
 * the number of their positions. */
static size_t find_cached(struct phi_scheduler *s, struct phi_sequence *q)
{
    const size_t size = s->limits.block_size;
    struct phi_prefix_parent prefix = phi_prefix_root(q->salt, wants_long_regime(s, q));
    size_t n = 0;
    for (; (n + 1) * size <= q->n_tokens; n++) {
        q->read_tokens(q, n * size, size, s->block_tokens);
        uint32_t block = phi_prefix_find(s->cache, prefix, s->block_tokens);
        if (block == PHI_NO_BLOCK)
            break;
        q->blocks[n] = block;
        prefix = phi_prefix_after(phi_prefix_name(s->cache, block));
    }
    return n * size;
}

/* What q can take over. Its last token is left, because that row must be computed for its logits,
 * and everything is while positions still want theirs. False when a sibling is computing q's prompt
 * right now. */
static bool find_takeover(struct phi_scheduler *s, struct phi_sequence *q, struct takeover *out)
{
    *out = (struct takeover){.copy_from = PHI_NO_BLOCK};
    if (q->n_scored < q->score_end)
        return true;
    const struct phi_sequence *sibling = find_sibling(s, q);
    if (sibling) {
        size_t n = phi_size_min(q->n_prompt, q->n_tokens - 1);
        if (sibling->n_computed < n)
            return false;
        *out = take_over(s, q, sibling->blocks, n);
    } else if (s->cache) {
        size_t n = phi_size_min(find_cached(s, q), q->n_tokens - 1);
        *out = take_over(s, q, q->blocks, n);
        out->from_cache = true;
    }
    return true;
}

/* Blocks are given out with one to spare for each sequence that runs, so that an admission does not
 * end in a preemption a few tokens later. */
static bool fits(const struct phi_scheduler *s, const struct phi_sequence *q,
                 const struct takeover *t)
{
    size_t need = phi_scheduler_blocks_for(s, q->n_tokens) - t->n_blocks + t->n_free;
    return need + s->n_running <= s->pool->n_free;
}

static void admit(struct phi_scheduler *s, struct phi_sequence *q, const struct takeover *t,
                  struct budget *budget)
{
    waiting_remove(s, q);
    running_insert(s, q);
    q->long_regime = wants_long_regime(s, q);
    for (; q->n_blocks < t->n_blocks; q->n_blocks++)
        phi_kvpool_share(s->pool, q->blocks[q->n_blocks]);
    if (t->copy_from != PHI_NO_BLOCK)
        phi_kvpool_share(s->pool, t->copy_from); /* lest it be taken as one of q's own */
    bool reserved = reserve_blocks(s, q);
    assert(reserved);
    (void)reserved;
    if (t->copy_from != PHI_NO_BLOCK)
        release_block(s, t->copy_from);
    q->n_computed = t->n_tokens;
    if (t->from_cache && q->n_preemptions == 0)
        q->n_cached = t->n_tokens;
    s->n_looked_up += q->n_tokens;
    s->n_found += t->n_tokens;
    budget->logit_rows--;
    plan_rows(s, q, budget);
    struct phi_plan_entry *entry = &s->plan.entries[s->plan.n_entries - 1];
    entry->copy_from = t->copy_from;
    if (t->copy_from != PHI_NO_BLOCK)
        entry->copy_to = q->blocks[t->n_blocks];
}

static void admit_waiting(struct phi_scheduler *s, struct budget *budget)
{
    for (struct phi_sequence *q = s->waiting_first, *next; q; q = next) {
        next = q->next;
        if (s->n_running == s->limits.max_num_seqs || budget->rows == 0 || budget->logit_rows == 0)
            return;
        struct takeover t;
        if (!find_takeover(s, q, &t))
            continue; /* and take it over when it is done */
        if (!fits(s, q, &t))
            return;
        admit(s, q, &t, budget);
    }
}

const struct phi_plan *phi_scheduler_plan(struct phi_scheduler *s)
{
    struct phi_plan *plan = &s->plan;
    plan->n_entries = plan->n_rows = plan->n_logit_rows = 0;
    plan->n_preempted = plan->n_crossed = 0;
    reserve_for_running(s);
    struct budget budget = {s->limits.max_num_batched_tokens,
                            s->limits.max_num_batched_tokens / LONG_SHARE,
                            s->limits.max_logit_rows - s->n_running};
    plan_running(s, &budget);
    if (plan->n_preempted == 0)
        admit_waiting(s, &budget);
    assert(plan->n_rows > 0 || (s->n_running == 0 && s->n_waiting == 0));
    return plan;
}

/* Tells the cache of the blocks that have become full. */
static void name_blocks(struct phi_scheduler *s, struct phi_sequence *q)
{
    const size_t size = s->limits.block_size;
    for (; (q->n_named + 1) * size <= q->n_computed; q->n_named++) {
        struct phi_prefix_parent parent = q->n_named > 0
                                              ? phi_prefix_after(q->prefix)
                                              : phi_prefix_root(q->salt, q->long_regime);
        q->read_tokens(q, q->n_named * size, size, s->block_tokens);
        q->prefix = phi_prefix_insert(s->cache, q->blocks[q->n_named], parent, s->block_tokens);
    }
}

void phi_scheduler_commit(struct phi_scheduler *s)
{
    for (uint32_t i = 0; i < s->plan.n_entries; i++) {
        const struct phi_plan_entry *entry = &s->plan.entries[i];
        entry->sequence->n_computed += entry->n_rows;
        entry->sequence->n_scored += entry->n_scores;
        if (s->cache)
            name_blocks(s, entry->sequence);
    }
}
