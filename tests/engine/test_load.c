/* test_load.c: many at once, and none hurts another. Several threads, hundreds of requests, a KV
 * pool so small that answers push each other out all the time, callers that change their mind,
 * memory that fails: every answer that is read to its end is the one that the same request has
 * alone, and nothing is left behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "engine_fixture.h"

enum {
    N_KINDS = 14,
    MAX_N = 2,
    N_LONGEST = 30,
    MAX_TOKENS = 50,
    N_THREADS = 5,
    N_ROUNDS = 7,
    N_OPEN = 6
};

static uint32_t random_below(uint64_t *state, uint32_t n)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)((*state >> 32) % n);
}

/* A golden checkpoint with the bundled tokenizer, so that tokens have text. */
static struct phi_model *open_with_text(const char *checkpoint)
{
    struct phi_model_options o;
    struct phi_model *m;
    struct phi_error err;
    char tokenizer[1024];
    const char *models = getenv("PHI_MODELS");
    snprintf(tokenizer, sizeof tokenizer, "%s/phi-tiny-code", models ? models : "models");
    phi_model_options_init(&o);
    o.path = golden_dir(checkpoint);
    o.tokenizer = tokenizer;
    o.dtype = PHI_FLOAT32;
    o.n_threads = 1;
    if (phi_model_open(&o, &m, &err) != PHI_OK)
        fail_msg("%s", err.text);
    return m;
}

/* ---------------------------------------------------------------- kinds of requests */

static const struct phi_text stop = {"#", 1};

static size_t make_prompt(int kind, int32_t *ids)
{
    size_t n = 1 + (size_t)(kind * 17) % N_LONGEST;
    for (size_t p = 0; p < n; p++) /* some begin alike */
        ids[p] = (int32_t)((p * 29 + p * p + (p < 16 ? 0 : (size_t)kind) + (size_t)kind % 3) % 199);
    return n;
}

static struct phi_sampling sampling_of(int kind)
{
    struct phi_sampling s = greedy(1 + kind * 23 % MAX_TOKENS);
    s.has_seed = true;
    s.seed = kind;
    s.temperature = kind % 2 ? 1 : 0;
    s.n = kind % 4 == 1 ? MAX_N : 1;
    s.logprobs = kind % 5 == 0 ? 1 : -1;
    s.prompt_logprobs = kind == 6 ? 0 : -1;
    if (kind % 3 == 0) {
        s.stop = &stop;
        s.n_stop = 1;
    }
    return s;
}

/* What an answer says, event by event. */
struct said {
    int32_t tokens[MAX_TOKENS];
    char text[8 * MAX_TOKENS];
    size_t n_tokens, n_text;
    enum phi_finish finish;
};

static void hear(struct said answers[MAX_N], const struct phi_event *ev)
{
    struct said *a = &answers[ev->index];
    assert_true(a->n_tokens + ev->n_tokens <= MAX_TOKENS &&
                a->n_text + ev->text.n <= sizeof a->text);
    memcpy(a->tokens + a->n_tokens, ev->tokens, ev->n_tokens * sizeof *ev->tokens);
    memcpy(a->text + a->n_text, ev->text.data, ev->text.n);
    a->n_tokens += ev->n_tokens;
    a->n_text += ev->text.n;
    a->finish = ev->finish;
}

static bool same(const struct said *a, const struct said *b)
{
    return a->n_tokens == b->n_tokens && a->n_text == b->n_text && a->finish == b->finish &&
           memcmp(a->tokens, b->tokens, a->n_tokens * sizeof *a->tokens) == 0 &&
           memcmp(a->text, b->text, a->n_text) == 0;
}

static struct said alone[N_KINDS][MAX_N];

static void run_alone(struct phi_model *m)
{
    struct phi_engine_options o;
    phi_engine_options_init(&o);
    o.max_num_seqs = 1;
    o.enable_prefix_caching = false;
    struct phi_engine *e = create_engine(m, &o);
    memset(alone, 0, sizeof alone);
    for (int kind = 0; kind < N_KINDS; kind++) {
        int32_t ids[N_LONGEST];
        size_t n = make_prompt(kind, ids);
        struct phi_sampling s = sampling_of(kind);
        struct phi_event ev;
        struct phi_request *r = submit(e, ids, n, &s);
        do {
            assert_int_equal(phi_request_next(r, &ev, -1), 1);
            hear(alone[kind], &ev);
        } while (!ev.last);
        phi_request_release(r);
    }
    phi_engine_destroy(e);
}

static void assert_engine_is_empty(const struct phi_engine *e)
{
    struct phi_engine_stats stats;
    phi_engine_get_stats(e, &stats);
    assert_int_equal(stats.n_running, 0);
    assert_int_equal(stats.n_waiting, 0);
    assert_true(stats.kv_usage == 0);
}

/* ---------------------------------------------------------------- load */

/* What a worker knows of one request. Failures are counted, as cmocka's asserts belong to the
 * main thread. */
struct open_request {
    struct phi_request *request;
    int kind;
    int n_events_wanted; /* then the caller leaves; -1 = reads it all */
    bool reads_on;       /* after leaving: to the last event */
    struct said said[MAX_N];
};

struct load {
    struct phi_engine *engine;
    atomic_int n_told_ends, n_submitted, n_busy, n_left, n_complete, n_wrong;
};

struct worker {
    struct load *load;
    pthread_t thread;
    uint64_t random;
};

static void tell(void *context, bool ended)
{
    if (ended)
        atomic_fetch_add((atomic_int *)context, 1);
}

static void open_one(struct worker *w, struct open_request *o)
{
    static const char *const salts[] = {"", "", "a", "b"};
    const char *salt = salts[random_below(&w->random, 4)];
    struct phi_request_options options = {
        .priority = (int64_t)random_below(&w->random, 3),
        .cache_salt = {salt, strlen(salt)},
        .notify = tell,
        .notify_context = &w->load->n_told_ends,
    };
    int32_t ids[N_LONGEST];
    *o = (struct open_request){.kind = (int)random_below(&w->random, N_KINDS),
                               .n_events_wanted = -1};
    size_t n = make_prompt(o->kind, ids);
    struct phi_sampling s = sampling_of(o->kind);
    if (random_below(&w->random, 5) < 2) { /* some are faster than this */
        o->n_events_wanted = (int)random_below(&w->random, 5);
        o->reads_on = random_below(&w->random, 2);
    }
    while (phi_request_submit(w->load->engine, ids, n, &s, &options, &o->request, NULL) ==
           PHI_ERR_BUSY) {
        atomic_fetch_add(&w->load->n_busy, 1);
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    atomic_fetch_add(&w->load->n_submitted, 1);
}

/* True when the request was read to its end and not left before. */
static bool read_one(struct open_request *o)
{
    struct phi_event ev = {0};
    int n_events = 0;
    while (n_events != o->n_events_wanted && phi_request_next(o->request, &ev, -1) == 1) {
        hear(o->said, &ev);
        n_events++;
    }
    bool complete = ev.last;
    if (!complete && o->reads_on) {
        phi_request_cancel(o->request);
        while (phi_request_next(o->request, &ev, -1) == 1)
            ;
    }
    phi_request_release(o->request);
    return complete;
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct load *load = w->load;
    struct open_request *open = calloc(N_OPEN, sizeof *open);
    for (int round = 0; round < N_ROUNDS; round++) {
        for (int i = 0; i < N_OPEN; i++)
            open_one(w, &open[i]);
        for (int i = 0, at = (int)random_below(&w->random, N_OPEN); i < N_OPEN; i++) {
            struct open_request *o = &open[(at + i * 5) % N_OPEN];
            if (!read_one(o)) {
                atomic_fetch_add(&load->n_left, 1);
                continue;
            }
            atomic_fetch_add(&load->n_complete, 1);
            for (int k = 0; k < sampling_of(o->kind).n; k++)
                if (!same(&o->said[k], &alone[o->kind][k]))
                    atomic_fetch_add(&load->n_wrong, 1);
        }
    }
    free(open);
    return NULL;
}

static void check_load(struct phi_model *m, enum phi_policy policy, bool caching)
{
    enum { N = N_THREADS * N_ROUNDS * N_OPEN, POOL_TOKENS = 96, MAX_WAITING = 12 };
    struct phi_engine_options o;
    struct phi_engine_info plan;
    struct phi_engine_stats stats;
    struct worker workers[N_THREADS];
    phi_engine_options_init(&o);
    o.max_model_len = N_LONGEST + MAX_TOKENS;
    o.block_size = 16;
    o.max_num_seqs = 12;
    o.max_num_batched_tokens = 40;
    o.enable_prefix_caching = caching;
    o.scheduling_policy = policy;
    o.max_waiting = MAX_WAITING;
    assert_int_equal(phi_engine_plan(m, &o, &plan, NULL), PHI_OK);
    o.kv_bytes = POOL_TOKENS * plan.kv_bytes_per_token;
    struct load load = {.engine = create_engine(m, &o)};
    for (int i = 0; i < N_THREADS; i++) {
        workers[i] = (struct worker){.load = &load, .random = 1000 + (uint64_t)i};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    while (atomic_load(&load.n_told_ends) < N) /* those that were left unread end soon */
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    phi_engine_get_stats(load.engine, &stats);
    printf("# %d answers complete, %d left, %d times busy, %d preemptions\n", load.n_complete,
           load.n_left, load.n_busy, (int)stats.n_preemptions);
    assert_int_equal(load.n_wrong, 0);
    assert_int_equal(load.n_submitted, N);
    assert_int_equal(load.n_complete + load.n_left, N);
    assert_true(load.n_left > N / 10 && load.n_complete > N / 2 && load.n_busy > 0);
    assert_true(stats.n_preemptions > N / 20);
    assert_engine_is_empty(load.engine);
    phi_engine_destroy(load.engine);
    assert_int_equal(load.n_told_ends, N);
}

static void test_load(void **state)
{
    (void)state;
    static const struct {
        const char *checkpoint;
        enum phi_policy policy;
        bool caching;
    } loads[] = {{"phi3-longrope", PHI_FCFS, true}, {"phi-qkln", PHI_PRIORITY, false}};
    for (int i = 0; i < 2; i++) {
        struct phi_model *m = open_with_text(loads[i].checkpoint);
        run_alone(m);
        check_load(m, loads[i].policy, loads[i].caching);
        phi_model_close(m);
    }
    assert_int_equal(phi_alloc_violations(), 0);
}

/* ---------------------------------------------------------------- failing memory */

static void hear_all(struct phi_request *r, struct said answers[MAX_N], struct phi_event *last)
{
    memset(answers, 0, MAX_N * sizeof *answers);
    do {
        assert_int_equal(phi_request_next(r, last, -1), 1);
        hear(answers, last);
    } while (!last->last);
}

/* While two requests run, each allocation of a third one's life fails in turn: it is refused or
 * ends with an error, and the two do not notice. The engine itself allocates nothing. */
static void test_failing_allocations_beside_others(void **state)
{
    (void)state;
    enum { VICTIM = 9, FIRST = 10, SECOND = 13 };
    struct phi_model *m = open_with_text("phi3-gqa");
    struct phi_sampling s[N_KINDS];
    int32_t ids[N_KINDS][N_LONGEST];
    size_t n[N_KINDS];
    struct said *said = malloc(MAX_N * sizeof *said);
    struct phi_event last;
    int n_refused = 0, n_broken = 0;
    atomic_int n_ends = 0;
    run_alone(m);
    struct phi_engine *e = create_engine(m, NULL);
    for (int kind = 0; kind < N_KINDS; kind++) {
        n[kind] = make_prompt(kind, ids[kind]);
        s[kind] = sampling_of(kind);
    }
    const struct phi_request_options o = {
        .cache_salt = {"a", 1}, .notify = tell, .notify_context = &n_ends};
    bool reached = true;
    for (long nth = 1; reached; nth++) {
        struct phi_request *first = submit(e, ids[FIRST], n[FIRST], &s[FIRST]), *victim,
                           *second = submit(e, ids[SECOND], n[SECOND], &s[SECOND]);
        phi_alloc_fail_nth(nth);
        enum phi_status status =
            phi_request_submit(e, ids[VICTIM], n[VICTIM], &s[VICTIM], &o, &victim, NULL);
        if (status == PHI_OK) {
            hear_all(victim, said, &last);
            phi_request_release(victim);
        }
        reached = phi_alloc_count() >= nth;
        phi_alloc_fail_nth(0);
        assert_true(status == PHI_OK || status == PHI_ERR_MEMORY);
        if (status != PHI_OK) {
            assert_null(victim);
            n_refused++;
        }
        for (int k = 0; status == PHI_OK && k < MAX_N; k++) {
            bool sound = same(&said[k], &alone[VICTIM][k]);
            if (!sound)
                assert_true(said[k].finish == PHI_FINISH_ERROR ||
                            said[k].finish == PHI_FINISH_ABORT);
            n_broken += !sound;
        }
        hear_all(first, said, &last);
        assert_true(same(&said[0], &alone[FIRST][0]));
        hear_all(second, said, &last);
        for (int k = 0; k < MAX_N; k++)
            assert_true(same(&said[k], &alone[SECOND][k]));
        phi_request_release(first);
        phi_request_release(second);
    }
    printf("# %d times refused, %d answers broken off\n", n_refused, n_broken);
    assert_true(n_refused > 15 && n_broken > 0);
    phi_engine_destroy(e);
    phi_model_close(m);
    free(said);
    assert_int_equal(phi_alloc_violations(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load),
        cmocka_unit_test(test_failing_allocations_beside_others),
    };
    return cmocka_run_group_tests_name("engine/load", tests, NULL, NULL);
}
