/* A seeded simulation of the scheduler under both policies: random requests arrive, grow, share
 * prompts, cross LongRoPE's limit, are cancelled and end, over pools so small that preemption is
 * constant. KV
 * memory is imitated by one mark per position, which says what would have been written there; every
 * row computed checks the marks of all positions before it. */
#include "engine/scheduler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { N_SEQUENCES = 60, MAX_TOKENS = 160, MAX_BLOCKS = 64, MAX_BLOCK_SIZE = 8 };

static uint64_t random_state;

static uint32_t random_below(uint32_t n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)((random_state >> 32) % n);
}

struct simulated {
    struct phi_sequence sequence;
    uint32_t blocks[MAX_TOKENS];
    /* The content: tokens below n_common are those of `common`, which many share; then those of the
     * prompt, then those of the answer. */
    uint32_t common, prompt_id, id;
    size_t n_common;
    uint64_t expected[2][MAX_TOKENS]; /* marks, by regime */
    enum phi_sequence_state before;   /* the step */
    size_t n_max;       /* ends at this length */
    size_t score_end;
    size_t arrival; /* step */
    bool cancelled_early;
};

struct simulation {
    struct phi_kvpool pool;
    struct phi_prefix_cache cache;
    struct phi_scheduler scheduler;
    struct simulated all[N_SEQUENCES];
    uint64_t marks[MAX_BLOCKS][MAX_BLOCK_SIZE];
    size_t n_ended, n_preempted, n_crossed, n_copied, n_found;
};

static int32_t token_of(const struct simulated *a, size_t position)
{
    uint32_t content = position < a->n_common               ? a->common
                       : position < a->sequence.n_prompt ? 100 + a->prompt_id
                                                         : 1000 + a->id;
    return (int32_t)(content * 1000 + position % 3);
}

static void read_tokens(const struct phi_sequence *q, size_t begin, size_t n, int32_t *out)
{
    for (size_t p = begin; p < begin + n; p++)
        *out++ = token_of(q->owner, p);
}

/* What KV memory holds for each position: depends on all tokens up to it and on the regime, and here
 * on the salt too, so that sharing across salts shows. */
static void fill_expected(struct simulated *a)
{
    for (int regime = 0; regime < 2; regime++) {
        uint64_t h = (uint64_t)regime + 2 * a->sequence.salt.bits[0];
        for (size_t p = 0; p < MAX_TOKENS; p++) {
            h = (h ^ (uint64_t)token_of(a, p)) * 0x9E3779B97F4A7C15ull + 1;
            a->expected[regime][p] = h;
        }
    }
}

static uint64_t mark_of(const struct simulated *a, size_t position, bool long_regime)
{
    return a->expected[long_regime][position];
}

static void check_blocks(const struct simulation *sim)
{
    uint32_t counted[MAX_BLOCKS] = {0}, n_used = 0;
    for (size_t i = 0; i < N_SEQUENCES; i++) {
        const struct phi_sequence *q = &sim->all[i].sequence;
        if (q->state != PHI_SEQUENCE_RUNNING)
            assert_int_equal(q->n_blocks, 0);
        for (size_t b = 0; b < q->n_blocks; b++)
            counted[q->blocks[b]]++;
    }
    for (uint32_t b = 0; b < sim->pool.n_blocks; b++) {
        assert_int_equal(counted[b], sim->pool.references[b]);
        n_used += counted[b] > 0;
    }
    assert_int_equal(n_used + sim->pool.n_free, sim->pool.n_blocks);
}

static uint64_t *mark_at(struct simulation *sim, const struct phi_sequence *q, size_t position)
{
    uint32_t size = sim->scheduler.limits.block_size;
    assert_true(position / size < q->n_blocks);
    return &sim->marks[q->blocks[position / size]][position % size];
}

static void compute_entry(struct simulation *sim, const struct phi_plan_entry *e)
{
    const struct phi_sequence *q = e->sequence;
    const struct simulated *a = q->owner;
    assert_int_equal(e->first_position, q->n_computed);
    assert_true(e->n_rows >= 1 && q->n_computed + e->n_rows <= q->n_tokens);
    size_t original = sim->scheduler.limits.original_length;
    assert_int_equal(q->long_regime, original != 0 && q->n_tokens > original);
    if (e->copy_from != PHI_NO_BLOCK) {
        memcpy(sim->marks[e->copy_to], sim->marks[e->copy_from], sizeof sim->marks[0]);
        sim->n_copied++;
    }
    for (size_t p = 0; p < e->first_position; p++)
        assert_int_equal(*mark_at(sim, q, p), mark_of(a, p, q->long_regime));
    for (size_t p = e->first_position; p < e->first_position + e->n_rows; p++) {
        /* Nobody else may hold a block that is written, unless it already holds the same. */
        uint32_t block = q->blocks[p / sim->scheduler.limits.block_size];
        assert_int_equal(sim->pool.references[block], 1);
        *mark_at(sim, q, p) = mark_of(a, p, q->long_regime);
    }
    assert_int_equal(e->samples,
                     e->first_position + e->n_rows == q->n_tokens && q->score_end < q->n_tokens);
}

static void end_sequence(struct simulation *sim, struct simulated *a)
{
    phi_scheduler_end(&sim->scheduler, &a->sequence);
    sim->n_ended++;
}

/* Carries the plan out and lets the sequences grow or end. */
static void run_plan(struct simulation *sim, const struct phi_plan *plan)
{
    const struct phi_scheduler_limits *limits = &sim->scheduler.limits;
    uint32_t n_rows = 0, n_logits = 0;
    assert_true(plan->n_rows <= limits->max_num_batched_tokens);
    assert_true(plan->n_logit_rows <= limits->max_logit_rows);
    assert_true(plan->n_entries <= limits->max_num_seqs);
    for (uint32_t i = 0; i < plan->n_entries; i++) {
        const struct phi_plan_entry *e = &plan->entries[i];
        assert_int_equal(e->first_row, n_rows);
        assert_int_equal(e->first_logit_row, n_logits);
        n_rows += e->n_rows;
        n_logits += e->n_scores + e->samples;
        compute_entry(sim, e);
    }
    assert_int_equal(n_rows, plan->n_rows);
    assert_int_equal(n_logits, plan->n_logit_rows);
    phi_scheduler_commit(&sim->scheduler);
    for (uint32_t i = 0; i < plan->n_entries; i++) {
        struct phi_sequence *q = plan->entries[i].sequence;
        struct simulated *a = q->owner;
        bool done = q->n_computed == q->n_tokens;
        if (done)
            assert_int_equal(q->n_scored, q->score_end);
        if (plan->entries[i].samples && q->n_tokens < a->n_max)
            q->n_tokens++;
        else if (done)
            end_sequence(sim, a);
    }
    sim->n_preempted += plan->n_preempted;
    sim->n_crossed += plan->n_crossed;
}

static void note_states(struct simulation *sim)
{
    for (size_t i = 0; i < N_SEQUENCES; i++)
        sim->all[i].before = sim->all[i].sequence.state;
}

/* One of q's prompt is being computed, for q too. */
static bool waits_for_sibling(const struct simulation *sim, const struct phi_sequence *q)
{
    for (uint32_t i = 0; i < sim->scheduler.n_running; i++)
        if (sim->scheduler.running[i]->group == q->group)
            return true;
    return false;
}

/* Nobody starves: the first one that runs moves on, nobody is admitted before one that waits in
 * front of it, and who gives its blocks back stands behind all who keep theirs. */
static void check_order(const struct simulation *sim, const struct phi_plan *plan)
{
    const struct phi_scheduler *s = &sim->scheduler;
    bool first_moves = false;
    for (uint32_t i = 0; i < plan->n_entries; i++)
        first_moves |= plan->entries[i].sequence == s->running[0];
    assert_true(first_moves || s->n_running == 0);
    for (uint32_t i = 1; i < s->n_running; i++)
        assert_true(phi_scheduler_before(s, s->running[i - 1], s->running[i]));
    for (const struct phi_sequence *w = s->waiting_first; w; w = w->next) {
        const struct simulated *waiting = w->owner;
        if (w->next)
            assert_true(phi_scheduler_before(s, w, w->next));
        for (uint32_t i = 0; i < s->n_running; i++) {
            const struct simulated *running = s->running[i]->owner;
            bool overtakes = phi_scheduler_before(s, w, s->running[i]);
            if (waiting->before == PHI_SEQUENCE_RUNNING)
                assert_false(overtakes);
            else if (overtakes && running->before == PHI_SEQUENCE_WAITING)
                assert_true(waits_for_sibling(sim, w));
        }
    }
}

static void make_sequences(struct simulation *sim, size_t capacity)
{
    for (uint32_t i = 0; i < N_SEQUENCES; i++) {
        struct simulated *a = &sim->all[i], *leader = i > 0 ? &sim->all[i - 1] : NULL;
        struct phi_sequence *q = &a->sequence;
        a->id = i;
        q->owner = a;
        q->blocks = a->blocks;
        q->read_tokens = read_tokens;
        bool joins = leader && leader->sequence.score_end < leader->sequence.n_prompt &&
                     random_below(3) == 0;
        if (joins) {
            a->prompt_id = leader->prompt_id;
            q->salt = leader->sequence.salt;
            q->priority = leader->sequence.priority;
            a->common = leader->common;
            a->n_common = leader->n_common;
            a->arrival = leader->arrival;
            q->n_prompt = leader->sequence.n_prompt;
            q->group = leader->sequence.group;
        } else {
            a->prompt_id = i;
            a->arrival = random_below(100);
            q->n_prompt = 1 + random_below((uint32_t)capacity - 1);
            q->group = a;
            a->common = random_below(2);
            a->n_common = random_below((uint32_t)q->n_prompt + 1);
            q->salt.bits[0] = random_below(3) == 0 ? 1 + random_below(2) : 0;
            q->priority = (int64_t)random_below(4) - 2;
            if (random_below(4) == 0)
                q->score_end = random_below(2) ? q->n_prompt : q->n_prompt - 1;
        }
        q->n_tokens = q->n_prompt;
        fill_expected(a);
        a->n_max = q->n_prompt + random_below((uint32_t)(capacity - q->n_prompt) + 1);
    }
}

static void simulate(uint64_t seed, struct simulation *sim)
{
    random_state = seed * 0x9E3779B97F4A7C15ull + 1;
    memset(sim, 0, sizeof *sim);
    uint32_t block_size = 1 + random_below(MAX_BLOCK_SIZE),
             n_blocks = 2 + random_below(MAX_BLOCKS - 1);
    size_t capacity = block_size * n_blocks < MAX_TOKENS ? block_size * n_blocks : MAX_TOKENS;
    struct phi_scheduler_limits limits = {.max_num_seqs = 1 + random_below(12),
                                          .block_size = block_size};
    limits.policy = seed / 4 % 2 ? PHI_PRIORITY : PHI_FCFS;
    limits.max_num_batched_tokens = limits.max_num_seqs + random_below(40);
    limits.max_logit_rows = limits.max_num_seqs + random_below(8);
    limits.original_length = random_below(2) ? random_below((uint32_t)capacity) : 0;
    assert_int_equal(phi_kvpool_init(&sim->pool, n_blocks, NULL), PHI_OK);
    struct phi_prefix_cache *cache = seed % 4 != 0 ? &sim->cache : NULL;
    assert_int_equal(phi_prefix_cache_init(&sim->cache, n_blocks, block_size,
                                           &(struct phi_prefix_seed){seed, {0, 0}}, NULL), PHI_OK);
    assert_int_equal(phi_scheduler_init(&sim->scheduler, &limits, &sim->pool, cache, NULL), PHI_OK);
    make_sequences(sim, capacity);

    for (size_t step = 0; sim->n_ended < N_SEQUENCES; step++) {
        for (size_t i = 0; i < N_SEQUENCES; i++)
            if (sim->all[i].arrival == step)
                phi_scheduler_add(&sim->scheduler, &sim->all[i].sequence);
        if (random_below(20) == 0) {
            struct simulated *a = &sim->all[random_below(N_SEQUENCES)];
            bool alive = a->sequence.state == PHI_SEQUENCE_RUNNING ||
                         a->sequence.state == PHI_SEQUENCE_WAITING;
            if (alive)
                end_sequence(sim, a);
        }
        note_states(sim);
        const struct phi_plan *plan = phi_scheduler_plan(&sim->scheduler);
        check_blocks(sim);
        check_order(sim, plan);
        if (plan->n_rows == 0)
            assert_true(sim->scheduler.n_running == 0 && sim->scheduler.n_waiting == 0);
        run_plan(sim, plan);
        check_blocks(sim);
        assert_true(step < 200000); /* everything ends */
    }
    assert_int_equal(sim->pool.n_free, n_blocks);
    assert_true(sim->scheduler.n_found <= sim->scheduler.n_looked_up);
    sim->n_found = sim->scheduler.n_found;
    phi_scheduler_deinit(&sim->scheduler);
    phi_prefix_cache_deinit(&sim->cache);
    phi_kvpool_deinit(&sim->pool);
}

static void test_simulation(void **state)
{
    (void)state;
    struct simulation *sim = malloc(sizeof *sim);
    size_t n_preempted = 0, n_crossed = 0, n_copied = 0, n_found = 0;
    for (uint64_t seed = 1; seed <= 1500; seed++) {
        simulate(seed, sim);
        n_preempted += sim->n_preempted;
        n_crossed += sim->n_crossed;
        n_copied += sim->n_copied;
        n_found += sim->n_found;
    }
    printf("# 1500 traces: %zu preemptions, %zu crossings, %zu copied blocks\n", n_preempted,
           n_crossed, n_copied);
    printf("# %zu tokens taken over\n", n_found);
    assert_true(n_preempted > 1000 && n_crossed > 1000 && n_copied > 100 && n_found > 100000);
    free(sim);
}

/* ---------------------------------------------------------------- single situations */

struct fixture {
    struct phi_kvpool pool;
    struct phi_scheduler scheduler;
    struct phi_sequence q[4];
    uint32_t blocks[4][32];
};

static void set_up(struct fixture *f, struct phi_scheduler_limits limits, uint32_t n_blocks)
{
    memset(f, 0, sizeof *f);
    assert_int_equal(phi_kvpool_init(&f->pool, n_blocks, NULL), PHI_OK);
    assert_int_equal(phi_scheduler_init(&f->scheduler, &limits, &f->pool, NULL, NULL), PHI_OK);
    for (int i = 0; i < 4; i++)
        f->q[i].blocks = f->blocks[i];
}

static void add(struct fixture *f, int i, size_t n_prompt)
{
    f->q[i].n_prompt = f->q[i].n_tokens = n_prompt;
    phi_scheduler_add(&f->scheduler, &f->q[i]);
}

static void tear_down(struct fixture *f)
{
    phi_scheduler_deinit(&f->scheduler);
    phi_kvpool_deinit(&f->pool);
}

/* A decoding sequence has its row even while a long prompt takes the rest of every step. */
static void test_decodes_beside_chunks(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, (struct phi_scheduler_limits){2, 8, 2, 4, 0, PHI_FCFS}, 32);
    add(&f, 0, 20);
    const struct phi_plan *plan = phi_scheduler_plan(&f.scheduler);
    assert_int_equal(plan->n_rows, 8);
    phi_scheduler_commit(&f.scheduler);
    add(&f, 1, 1);
    plan = phi_scheduler_plan(&f.scheduler);
    assert_int_equal(plan->n_entries, 2);
    phi_scheduler_commit(&f.scheduler);
    for (int step = 0; step < 3; step++) {
        f.q[1].n_tokens++; /* what it said */
        plan = phi_scheduler_plan(&f.scheduler);
        assert_int_equal(plan->n_entries, 2);
        phi_scheduler_commit(&f.scheduler);
        assert_int_equal(f.q[1].n_computed, f.q[1].n_tokens);
    }
    assert_int_equal(f.q[0].n_computed, 20);
    tear_down(&f);
}

/* The next step's rows of the four sequences. */
static void check_rows(struct fixture *f, const uint32_t expected[4])
{
    uint32_t n_rows[4] = {0};
    const struct phi_plan *plan = phi_scheduler_plan(&f->scheduler);
    for (uint32_t i = 0; i < plan->n_entries; i++)
        n_rows[plan->entries[i].sequence - f->q] = plan->entries[i].n_rows;
    for (int i = 0; i < 4; i++)
        assert_int_equal(n_rows[i], expected[i]);
    phi_scheduler_commit(&f->scheduler);
}

#define ROWS(...) ((const uint32_t[4]){__VA_ARGS__})

/* A short prompt has its token in the step after it has come, whoever is in the middle of long
 * ones, and that step is a small one. */
static void test_long_prompts_make_room(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, (struct phi_scheduler_limits){4, 16, 4, 4, 0, PHI_FCFS}, 64);
    add(&f, 0, 100);
    check_rows(&f, ROWS(16)); /* nobody else is there */
    add(&f, 1, 90);
    check_rows(&f, ROWS(4, 12)); /* it may not be as long as it looks: its start may be cached */
    check_rows(&f, ROWS(16)); /* but it is, and can wait */
    add(&f, 2, 9);
    check_rows(&f, ROWS(4, 1, 9));
    f.q[2].n_tokens++;
    add(&f, 3, 12);
    check_rows(&f, ROWS(4, 1, 1, 10)); /* the step is full */
    f.q[2].n_tokens++;
    check_rows(&f, ROWS(4, 1, 1, 2));
    phi_scheduler_end(&f.scheduler, &f.q[2]);
    phi_scheduler_end(&f.scheduler, &f.q[3]);
    for (int step = 0; step < 3; step++)
        check_rows(&f, ROWS(16));
    check_rows(&f, ROWS(4, 4)); /* its last rows; the other has somebody beside it */
    tear_down(&f);
}

/* Those who are to wait anyway do not make a long prompt's steps small: the other answers to it, and lower
 * priorities. */
static void test_long_prompts_alone(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, (struct phi_scheduler_limits){4, 16, 4, 4, 0, PHI_PRIORITY}, 64);
    f.q[0].group = f.q[1].group = &f;
    f.q[2].priority = 1;
    f.q[3].priority = -1;
    for (int i = 0; i < 3; i++)
        add(&f, i, i < 2 ? 100 : 9);
    check_rows(&f, ROWS(16));
    add(&f, 3, 9);
    check_rows(&f, ROWS(4, 0, 3, 9));
    phi_scheduler_end(&f.scheduler, &f.q[3]);
    check_rows(&f, ROWS(16));
    tear_down(&f);
}

/* One token more than the original length: all rows again, with the long factors. */
static void test_crossing(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, (struct phi_scheduler_limits){1, 6, 1, 4, 8, PHI_FCFS}, 8);
    add(&f, 0, 7);
    static const struct {
        uint32_t n_rows;
        size_t first;
        bool long_regime, samples;
    } expected[] = {{6, 0, false, false}, {1, 6, false, true}, {1, 7, false, true},
                    {6, 0, true, false},  {3, 6, true, true},  {1, 9, true, true}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const struct phi_plan *plan = phi_scheduler_plan(&f.scheduler);
        assert_int_equal(plan->n_rows, expected[i].n_rows);
        assert_int_equal(plan->entries[0].first_position, expected[i].first);
        assert_int_equal(f.q[0].long_regime, expected[i].long_regime);
        assert_int_equal(plan->entries[0].samples, expected[i].samples);
        phi_scheduler_commit(&f.scheduler);
        f.q[0].n_tokens += expected[i].samples;
    }
    tear_down(&f);
}

/* The youngest gives way, keeps its tokens and returns to the head of the queue. */
static void test_preemption(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, (struct phi_scheduler_limits){3, 16, 3, 4, 0, PHI_FCFS}, 4);
    add(&f, 0, 4);
    add(&f, 1, 4);
    phi_scheduler_plan(&f.scheduler);
    phi_scheduler_commit(&f.scheduler);
    add(&f, 2, 12); /* waits: 2 of 4 blocks are in use */
    f.q[0].n_tokens = 9;
    f.q[1].n_tokens = 5;
    const struct phi_plan *plan = phi_scheduler_plan(&f.scheduler);
    assert_int_equal(plan->n_preempted, 1);
    assert_int_equal(plan->n_entries, 1);
    assert_ptr_equal(plan->entries[0].sequence, &f.q[0]);
    assert_ptr_equal(f.scheduler.waiting_first, &f.q[1]);
    assert_ptr_equal(f.scheduler.waiting_last, &f.q[2]);
    assert_int_equal(f.q[1].n_tokens, 5);
    assert_int_equal(f.q[1].n_computed, 0);
    phi_scheduler_commit(&f.scheduler);
    phi_scheduler_end(&f.scheduler, &f.q[0]);
    plan = phi_scheduler_plan(&f.scheduler);
    assert_ptr_equal(plan->entries[0].sequence, &f.q[1]);
    assert_int_equal(plan->entries[0].n_rows, 5);
    tear_down(&f);
}

/* By priority, the largest number gives way and waits behind those with smaller ones; among equals
 * arrival decides. */
static void test_priorities(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, (struct phi_scheduler_limits){3, 16, 3, 4, 0, PHI_PRIORITY}, 4);
    f.q[0].priority = 5;
    f.q[1].priority = -1;
    f.q[2].priority = 7;
    f.q[3].priority = 5;
    add(&f, 0, 4);
    phi_scheduler_plan(&f.scheduler);
    phi_scheduler_commit(&f.scheduler);
    f.q[0].n_tokens++;
    add(&f, 1, 4); /* later, but before the others in everything */
    const struct phi_plan *plan = phi_scheduler_plan(&f.scheduler);
    assert_ptr_equal(plan->entries[1].sequence, &f.q[1]);
    phi_scheduler_commit(&f.scheduler);
    assert_ptr_equal(f.scheduler.running[0], &f.q[1]);
    add(&f, 2, 4);
    add(&f, 3, 12);
    assert_ptr_equal(f.scheduler.waiting_first, &f.q[3]);
    f.q[1].n_tokens = 13; /* all four blocks */
    plan = phi_scheduler_plan(&f.scheduler);
    assert_int_equal(plan->n_preempted, 1);
    assert_int_equal(plan->n_entries, 1);
    assert_ptr_equal(plan->entries[0].sequence, &f.q[1]);
    const struct phi_sequence *order[] = {&f.q[0], &f.q[3], &f.q[2]}, *q = f.scheduler.waiting_first;
    for (int i = 0; i < 3; i++, q = q->next)
        assert_ptr_equal(q, order[i]);
    assert_null(q);
    tear_down(&f);
}

/* However many small ones come after it, and from then on at every step, a large one gets its turn;
 * under fcfs nobody's priority changes that. */
static void test_no_starvation(void **state)
{
    (void)state;
    enum { N_SMALL = 40, N_OUTPUT = 3 };
    struct fixture f;
    struct phi_sequence small[N_SMALL] = {0};
    uint32_t blocks[N_SMALL][2];
    set_up(&f, (struct phi_scheduler_limits){8, 16, 8, 4, 0, PHI_FCFS}, 8);
    int step = 0;
    for (; f.q[0].state != PHI_SEQUENCE_RUNNING && step < N_SMALL; step++) {
        struct phi_sequence *q = &small[step];
        q->n_prompt = q->n_tokens = 4;
        q->priority = -1;
        q->blocks = blocks[step];
        phi_scheduler_add(&f.scheduler, q);
        if (step == 4)
            add(&f, 0, 31);
        const struct phi_plan *plan = phi_scheduler_plan(&f.scheduler);
        phi_scheduler_commit(&f.scheduler);
        for (uint32_t i = 0; i < plan->n_entries; i++) {
            q = plan->entries[i].sequence;
            q->n_tokens += plan->entries[i].samples;
            if (q != &f.q[0] && q->n_tokens > 4 + N_OUTPUT)
                phi_scheduler_end(&f.scheduler, q);
        }
    }
    assert_true(step <= 4 + N_OUTPUT + 3);
    tear_down(&f);
}

/* The second answer waits for the prompt, shares its full block and copies the last one. */
static void test_shared_prompt(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, (struct phi_scheduler_limits){2, 6, 2, 4, 0, PHI_FCFS}, 8);
    f.q[0].group = f.q[1].group = &f;
    add(&f, 0, 7);
    add(&f, 1, 7);
    const struct phi_plan *plan = phi_scheduler_plan(&f.scheduler);
    assert_int_equal(plan->n_entries, 1);
    assert_int_equal(plan->n_rows, 6);
    phi_scheduler_commit(&f.scheduler);
    plan = phi_scheduler_plan(&f.scheduler);
    assert_int_equal(plan->n_entries, 2);
    assert_int_equal(plan->entries[1].first_position, 6);
    assert_int_equal(plan->entries[1].n_rows, 1);
    assert_int_equal(f.q[1].blocks[0], f.q[0].blocks[0]);
    assert_int_equal(plan->entries[1].copy_from, f.q[0].blocks[1]);
    assert_int_equal(plan->entries[1].copy_to, f.q[1].blocks[1]);
    assert_int_equal(f.pool.references[f.q[0].blocks[0]], 2);
    assert_int_equal(f.pool.n_free, 5);
    tear_down(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decodes_beside_chunks),
        cmocka_unit_test(test_long_prompts_make_room),
        cmocka_unit_test(test_long_prompts_alone),
        cmocka_unit_test(test_crossing),
        cmocka_unit_test(test_preemption),
        cmocka_unit_test(test_priorities),
        cmocka_unit_test(test_no_starvation),
        cmocka_unit_test(test_shared_prompt),
        cmocka_unit_test(test_simulation),
    };
    return cmocka_run_group_tests_name("engine/scheduler", tests, NULL, NULL);
}
