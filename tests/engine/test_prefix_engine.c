/* test_prefix_engine.c: answers that take over cached KV blocks have the same tokens and the same
 * log-probabilities, to the bit, as answers that compute everything; and the counters say so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "engine_fixture.h"

static const char *const checkpoints[] = {"phi-head64", "phi3-gqa", "phi3-swa", "phi3-longrope"};

enum { N_PROMPTS = 5, N_OUTPUT = 20, N_LONGEST = 90 };

/* Prompts that begin alike and part at different places; the last one equals the first. */
static size_t make_prompt(int i, int32_t *ids)
{
    static const size_t lengths[N_PROMPTS] = {64, 65, 50, 90, 64}, parts_at[N_PROMPTS] = {64, 64, 33, 64, 64};
    for (size_t p = 0; p < lengths[i]; p++)
        ids[p] = (int32_t)((p * 37 + p * p * 3 + (p >= parts_at[i] ? 11 : 0)) % 61);
    return lengths[i];
}

static struct phi_engine *engine_with(struct phi_model *m, bool caching, int block_size,
                                      uint64_t kv_bytes)
{
    struct phi_engine_options o;
    phi_engine_options_init(&o);
    o.max_model_len = N_LONGEST + N_OUTPUT;
    o.max_num_seqs = 4;
    o.block_size = block_size;
    o.enable_prefix_caching = caching;
    o.kv_bytes = kv_bytes;
    return create_engine(m, &o);
}

static struct phi_sampling sampling(void)
{
    struct phi_sampling s = greedy(N_OUTPUT);
    s.logprobs = 2;
    return s;
}

static void assert_same_answers(const struct answer *a, const struct answer *b)
{
    assert_int_equal(a->n_tokens, b->n_tokens);
    assert_memory_equal(a->tokens, b->tokens, a->n_tokens * sizeof *a->tokens);
    assert_int_equal(a->n_logprobs, b->n_logprobs);
    for (size_t i = 0; i < a->n_tokens * a->n_logprobs; i++) {
        assert_int_equal(a->logprobs[i].token, b->logprobs[i].token);
        assert_memory_equal(&a->logprobs[i].logprob, &b->logprobs[i].logprob, sizeof(float));
    }
}

static void test_hits_have_the_bits_of_misses(void **state)
{
    struct answer *cold = malloc(2 * sizeof *cold), *warm = cold + 1;
    int32_t ids[N_LONGEST];
    struct phi_sampling s = sampling();
    (void)state;
    for (size_t c = 0; c < sizeof checkpoints / sizeof checkpoints[0]; c++) {
        struct phi_model *m = open_model(golden_dir(checkpoints[c]), PHI_BFLOAT16, 1);
        struct phi_engine *without = engine_with(m, false, 32, 0), *with = engine_with(m, true, 32, 0);
        struct phi_engine_stats stats;
        for (int i = 0; i < N_PROMPTS; i++) {
            size_t n = make_prompt(i, ids);
            run(without, ids, n, &s, cold);
            run(with, ids, n, &s, warm);
            assert_same_answers(cold, warm);
        }
        phi_engine_get_stats(without, &stats);
        assert_int_equal(stats.n_prefix_hits, 0);
        phi_engine_get_stats(with, &stats);
        /* 64 of 65, 32 of 50, 64 of 90, 63 of 64; across LongRoPE's limit of 32 only the long keys. */
        assert_true(stats.n_prefix_hits >= 64 + 32 + 64 + 63);
        phi_engine_destroy(with);
        phi_engine_destroy(without);
        phi_model_close(m);
    }
    assert_int_equal(phi_alloc_violations(), 0);
    free(cold);
}

/* A conversation: each prompt is the last one with its answer and something more. */
static void test_answers_are_cached_too(void **state)
{
    struct answer *a = malloc(sizeof *a);
    int32_t ids[N_LONGEST + N_OUTPUT];
    struct phi_sampling s = sampling();
    struct phi_model *m = open_model(golden_dir("phi3-gqa"), PHI_FLOAT32, 1);
    struct phi_engine *e = engine_with(m, true, 16, 0);
    struct phi_engine_stats stats;
    (void)state;
    make_prompt(0, ids);
    run(e, ids, 20, &s, a);
    memcpy(ids + 20, a->tokens, N_OUTPUT * sizeof *ids);
    run(e, ids, 20 + N_OUTPUT + 1, &s, a);
    phi_engine_get_stats(e, &stats);
    assert_int_equal(stats.n_prefix_hits, 32); /* two full blocks: 12 of the 20 tokens said before */
    phi_engine_destroy(e);
    phi_model_close(m);
    free(a);
}

/* Reads a request to its end; what it found in the cache. */
static size_t cached_tokens(struct phi_engine *e, const int32_t *ids, size_t n,
                            const struct phi_sampling *s, const char *salt, struct answer *a)
{
    struct phi_request_options o = {.cache_salt = {salt, strlen(salt)}};
    struct phi_request_stats stats;
    struct phi_request *r;
    struct phi_event ev;
    memset(a, 0, sizeof *a);
    assert_int_equal(phi_request_submit(e, ids, n, s, &o, &r, NULL), PHI_OK);
    do {
        assert_int_equal(phi_request_next(r, &ev, -1), 1);
        memcpy(a->tokens + a->n_tokens, ev.tokens, ev.n_tokens * sizeof *ev.tokens);
        a->n_tokens += ev.n_tokens;
    } while (!ev.last);
    phi_request_get_stats(r, &stats);
    phi_request_release(r);
    return stats.n_cached_tokens;
}

/* The second time, a prompt computes one token only, also when it fills its last block; but not for
 * another salt, nor when the logprobs of its tokens are asked for. The answer is the same. */
static void test_what_a_repeated_prompt_computes(void **state)
{
    static const struct {
        size_t n; /* tokens of the prompt */
        const char *salt, *again;
        int prompt_logprobs;
        size_t n_cached;
    } cases[] = {
        {64, "", "", -1, 63},       {65, "", "", -1, 64},      {63, "", "", -1, 48},
        {15, "", "", -1, 0},        {16, "", "", -1, 15},      {64, "", "pepper", -1, 0},
        {64, "pepper", "", -1, 0},  {64, "salt", "pepper", -1, 0},
        {64, "salt", "salt", -1, 63}, {64, "", "", 0, 0},
    };
    struct answer *a = malloc(2 * sizeof *a), *b = a + 1;
    struct phi_model *m = open_model(golden_dir("phi3-gqa"), PHI_FLOAT32, 1);
    int32_t ids[N_LONGEST];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct phi_engine *e = engine_with(m, true, 16, 0);
        struct phi_sampling s = greedy(1), more;
        make_prompt(3, ids);
        more = s;
        more.prompt_logprobs = cases[i].prompt_logprobs;
        assert_int_equal(cached_tokens(e, ids, cases[i].n, &s, cases[i].salt, a), 0);
        assert_int_equal(cached_tokens(e, ids, cases[i].n, &more, cases[i].again, b),
                         cases[i].n_cached);
        assert_int_equal(a->tokens[0], b->tokens[0]);
        phi_engine_destroy(e);
    }
    phi_model_close(m);
    free(a);
}

/* Many requests over a pool that holds little more than one: constant preemption and eviction. */
static void test_under_pressure(void **state)
{
    enum { N = 12 };
    struct answer *alone = malloc((N_PROMPTS + 1) * sizeof *alone), *a = alone + N_PROMPTS;
    int32_t ids[N_LONGEST];
    struct phi_sampling s = sampling();
    struct phi_model *m = open_model(golden_dir("phi3-longrope"), PHI_FLOAT32, 1);
    struct phi_engine *roomy = engine_with(m, false, 16, 0);
    struct phi_engine_info info;
    struct phi_request *requests[N];
    (void)state;
    for (int i = 0; i < N_PROMPTS; i++)
        run(roomy, ids, make_prompt(i, ids), &s, &alone[i]);
    phi_engine_get_info(roomy, &info);
    struct phi_engine *tight = engine_with(m, true, 16, info.kv_bytes_per_token * 16 * 9);
    for (int i = 0; i < N; i++)
        requests[i] = submit(tight, ids, make_prompt(i % N_PROMPTS, ids), &s);
    for (int i = 0; i < N; i++) {
        collect(requests[i], a, 1);
        assert_same_answers(&alone[i % N_PROMPTS], a);
    }
    phi_engine_destroy(tight);
    phi_engine_destroy(roomy);
    phi_model_close(m);
    free(alone);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hits_have_the_bits_of_misses),
        cmocka_unit_test(test_answers_are_cached_too),
        cmocka_unit_test(test_what_a_repeated_prompt_computes),
        cmocka_unit_test(test_under_pressure),
    };
    return cmocka_run_group_tests_name("engine/prefix_engine", tests, NULL, NULL);
}
