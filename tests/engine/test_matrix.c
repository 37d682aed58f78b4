/* test_matrix.c: every bit of an answer is the request's own: whatever came before it, runs beside
 * it or pushes it out, whether its prompt was cached, how many threads compute it with which
 * instructions. The answers of one set of requests, each run alone, have a hash that is committed
 * here; in every company each answer has the hash it has alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "engine_fixture.h"
#include "kernels/kernels.h"

/* Hashes are of all requests' answers: they change when the requests below change. */
static const struct {
    const char *checkpoint;
    enum phi_dtype dtype;
    uint64_t hash;
} goldens[] = {
    {"phi-head64", PHI_FLOAT32, 0x6947189F1DE32062},
    {"phi-head64", PHI_BFLOAT16, 0xEC17E5C2E46E5204},
    {"phi3-gqa", PHI_FLOAT32, 0xF19B54B9A08C1F6B},
    {"phi3-swa", PHI_FLOAT16, 0x6F648BAA4CC9AF58},
    {"phi3-longrope", PHI_FLOAT32, 0xEA8BE10CAB2BB6B2},
    {"phi3-longrope", PHI_BFLOAT16, 0xCF922D17861A22AB},
};

enum { N_REQUESTS = 10, MAX_N = 3, N_LONGEST = 64, MAX_OUTPUT_TOKENS = 24 };

/* Four families of prompts, whose members begin alike; request 9 repeats request 1. */
static size_t make_prompt(int i, int32_t *ids)
{
    static const struct {
        int family;
        size_t n, n_common;
    } prompts[N_REQUESTS] = {{0, 48, 48}, {1, 64, 64}, {3, 49, 32}, {2, 5, 5},  {1, 57, 40},
                             {0, 64, 48}, {3, 17, 17}, {1, 33, 33}, {2, 21, 5}, {1, 64, 64}};
    for (size_t p = 0; p < prompts[i].n; p++)
        ids[p] = (int32_t)((p * 37 + p * p * 3 + (size_t)prompts[i].family * 71 +
                            (p >= prompts[i].n_common ? (size_t)i * 11 : 0)) %
                           61);
    return prompts[i].n;
}

static struct phi_sampling sampling_of(int i)
{
    struct phi_sampling s = greedy(MAX_OUTPUT_TOKENS - i);
    s.has_seed = true;
    s.seed = i;
    s.logprobs = 2;
    if (i % 3 == 0)
        return s;
    s.temperature = 0.8;
    s.top_p = i % 2 ? 0.9 : 1;
    s.n = i % 3 == 1 ? MAX_N : 1;
    s.prompt_logprobs = i == 5 ? 1 : -1;
    s.presence_penalty = i == 8 ? 0.5 : 0;
    return s;
}

static uint64_t hash_more(uint64_t h, const void *data, size_t n_bytes)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < n_bytes; i++)
        h = (h ^ bytes[i]) * 0x100000001B3u;
    return h;
}

/* Of tokens, logprobs and ends; prompt logprobs are in the first answer's. */
static void hash_answers(struct phi_request *r, uint64_t hashes[MAX_N])
{
    uint64_t tokens[MAX_N], logprobs[MAX_N];
    struct phi_event ev;
    size_t n_prompt_logprobs;
    for (int k = 0; k < MAX_N; k++)
        hashes[k] = tokens[k] = logprobs[k] = 0xCBF29CE484222325u;
    do {
        assert_int_equal(phi_request_next(r, &ev, -1), 1);
        int k = ev.index;
        tokens[k] = hash_more(tokens[k], ev.tokens, ev.n_tokens * sizeof *ev.tokens);
        logprobs[k] =
            hash_more(logprobs[k], ev.logprobs, ev.n_tokens * ev.n_logprobs * sizeof *ev.logprobs);
        assert_int_not_equal(ev.finish, PHI_FINISH_ERROR);
    } while (!ev.last);
    struct phi_request_stats stats;
    phi_request_get_stats(r, &stats);
    const struct phi_logprob *p = phi_request_prompt_logprobs(r, &n_prompt_logprobs);
    if (p)
        logprobs[0] =
            hash_more(logprobs[0], p, stats.n_prompt_tokens * n_prompt_logprobs * sizeof *p);
    for (int k = 0; k < MAX_N; k++)
        hashes[k] = hash_more(hash_more(hashes[k], &tokens[k], sizeof tokens[k]), &logprobs[k],
                              sizeof logprobs[k]);
    phi_request_release(r);
}

static struct phi_request *submit_request(struct phi_engine *e, int i,
                                          const struct phi_request_options *o)
{
    int32_t ids[N_LONGEST];
    size_t n = make_prompt(i, ids);
    struct phi_sampling s = sampling_of(i);
    struct phi_request *r;
    struct phi_error err;
    if (phi_request_submit(e, ids, n, &s, o, &r, &err) != PHI_OK)
        fail_msg("%s", err.text);
    return r;
}

static void run_alone(struct phi_model *m, uint64_t hashes[N_REQUESTS][MAX_N])
{
    for (int i = 0; i < N_REQUESTS; i++) {
        struct phi_engine_options o;
        phi_engine_options_init(&o);
        o.max_num_seqs = 1; /* not even its own siblings */
        o.enable_prefix_caching = false;
        struct phi_engine *e = create_engine(m, &o);
        hash_answers(submit_request(e, i, NULL), hashes[i]);
        phi_engine_destroy(e);
    }
}

/* ---------------------------------------------------------------- companies */

struct company {
    const char *what;
    int step; /* request j is number j * step of the set, which makes an order of arrival */
    bool caching;
    enum phi_policy policy;
    int max_num_seqs, max_num_batched_tokens, block_size;
    size_t pool_tokens; /* 0 = enough */
};

static const struct company companies[] = {
    {"all at once", 1, false, PHI_FCFS, 32, 512, 32, 0},
    {"all at once, backwards, cached", 9, true, PHI_FCFS, 32, 512, 16, 0},
    {"chunks of 7, shuffled", 3, false, PHI_FCFS, 5, 7, 32, 0},
    {"chunks of 7, shuffled, cached", 3, true, PHI_FCFS, 5, 7, 32, 0},
    {"preempted", 7, false, PHI_FCFS, 32, 64, 16, 112},
    {"preempted, cached", 7, true, PHI_FCFS, 32, 64, 16, 160},
    {"preempted by priority, cached", 1, true, PHI_PRIORITY, 32, 48, 16, 160},
    {"preempted by priority, backwards", 9, false, PHI_PRIORITY, 16, 33, 16, 144},
    {"one by one, cached", 1, true, PHI_PRIORITY, 1, 512, 16, 0},
};

/* The whole set twice, so that the second round finds what the first one left. */
static void check_company(struct phi_model *m, const struct company *c,
                          uint64_t alone[N_REQUESTS][MAX_N])
{
    struct phi_engine_options o;
    struct phi_engine_info plan;
    struct phi_engine_stats stats;
    struct phi_request *requests[N_REQUESTS];
    struct held held;
    phi_engine_options_init(&o);
    o.max_model_len = N_LONGEST + MAX_OUTPUT_TOKENS;
    o.enable_prefix_caching = c->caching;
    o.scheduling_policy = c->policy;
    o.max_num_seqs = c->max_num_seqs;
    o.max_num_batched_tokens = c->max_num_batched_tokens;
    o.block_size = c->block_size;
    assert_int_equal(phi_engine_plan(m, &o, &plan, NULL), PHI_OK);
    o.kv_bytes = c->pool_tokens * plan.kv_bytes_per_token;
    struct phi_engine *e = create_engine(m, &o);
    for (int round = 0; round < 2; round++) {
        hold_engine(&held, e);
        for (int j = 0; j < N_REQUESTS; j++) {
            int i = j * c->step % N_REQUESTS;
            struct phi_request_options ro = {.priority = i * 3 % 5};
            if (i == 4 || i == 8)
                ro.cache_salt = (struct phi_text){"pepper", 6};
            requests[i] = submit_request(e, i, &ro);
        }
        let_engine_go(&held);
        for (int i = 0; i < N_REQUESTS; i++) {
            uint64_t hashes[MAX_N];
            hash_answers(requests[i], hashes);
            for (int k = 0; k < MAX_N; k++)
                if (hashes[k] != alone[i][k])
                    fail_msg("%s, round %d: answer %d of request %d is another", c->what, round, k,
                             i);
        }
    }
    phi_engine_get_stats(e, &stats);
    assert_true(stats.kv_usage == 0 && stats.n_running + stats.n_waiting == 0);
    assert_int_equal(stats.n_preemptions > 0, c->pool_tokens > 0);
    if (c->caching)
        assert_true(stats.n_cached_prompt_tokens >= 64);
    else
        assert_int_equal(stats.n_cached_prompt_tokens, 0);
    phi_engine_destroy(e);
}

static void test_every_company(void **state)
{
    (void)state;
    for (size_t g = 0; g < sizeof goldens / sizeof *goldens; g++) {
        uint64_t alone[N_REQUESTS][MAX_N];
        struct phi_model *m =
            open_model(golden_dir(goldens[g].checkpoint), goldens[g].dtype, 1 + (int)g % 2);
        run_alone(m, alone);
        for (size_t c = 0; c < sizeof companies / sizeof *companies; c++)
            check_company(m, &companies[c], alone);
        phi_model_close(m);
    }
    assert_int_equal(phi_alloc_violations(), 0);
}

static void check_golden(size_t g, const char *instructions)
{
    uint64_t alone[N_REQUESTS][MAX_N];
    if (instructions)
        setenv("PHI_ISA", instructions, 1);
    struct phi_model *m = open_model(golden_dir(goldens[g].checkpoint), goldens[g].dtype, 1);
    run_alone(m, alone);
    phi_model_close(m);
    uint64_t hash = hash_more(0xCBF29CE484222325u, alone, sizeof alone);
    if (hash != goldens[g].hash)
        fail_msg("%s, dtype %d, %s: the hash is 0x%016" PRIX64, goldens[g].checkpoint,
                 (int)goldens[g].dtype, instructions ? instructions : "given", hash);
}

/* On any machine; two of them with every instruction set that it has. */
static void test_golden_hashes(void **state)
{
    (void)state;
    static const char *const sets[] = {"ref", "avx2", "avx512", "avx512_bf16"};
    const char *given = getenv("PHI_ISA");
    char *before = given ? strdup(given) : NULL;
    for (size_t g = 0; g < sizeof goldens / sizeof *goldens; g++)
        check_golden(g, NULL);
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        const struct phi_kernels *kernels;
        if (phi_kernels_select(sets[i], &kernels, NULL) != PHI_OK)
            continue; /* not this machine's */
        check_golden(2, sets[i]);
        check_golden(5, sets[i]);
    }
    if (before)
        setenv("PHI_ISA", before, 1);
    else
        unsetenv("PHI_ISA");
    free(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_hashes),
        cmocka_unit_test(test_every_company),
    };
    return cmocka_run_group_tests_name("engine/matrix", tests, NULL, NULL);
}
