/* The engine over golden checkpoints: greedy generation equal to transformers', and the same tokens
 * and bits whatever runs beside a request and however its rows are cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "engine_fixture.h"
#include "formats/safetensors.h"

static const char *const checkpoints[] = {
    "phi-head64", "phi-qkln", "phi-linear",    "phi-yarn",  "phi-dynamic",
    "phi3-gqa",   "phi3-swa", "phi3-longrope", "phi3-bias", "phi3-unfused",
};
enum { N_CHECKPOINTS = sizeof checkpoints / sizeof *checkpoints };

static void check_no_allocation(void)
{
    assert_int_equal(phi_alloc_violations(), 0);
}

/* ---------------------------------------------------------------- goldens */

static const struct phi_tensor *golden(const struct phi_safetensors *st, int k, const char *name)
{
    char text[64];
    snprintf(text, sizeof text, "%d.%s", k, name);
    return phi_safetensors_find(st, phi_str_from(text));
}

static struct phi_safetensors *open_golden(const char *dir)
{
    char path[1200];
    struct phi_safetensors *st;
    struct phi_error err;
    snprintf(path, sizeof path, "%s/golden.safetensors", golden_dir(dir));
    if (phi_safetensors_open_file(path, &st, &err) != PHI_OK)
        fail_msg("%s", err.text);
    return st;
}

static void read_ids(const struct phi_tensor *t, int32_t *ids, size_t *n)
{
    *n = t->shape[0];
    memcpy(ids, t->data, t->n_bytes);
}

/* Also those across LongRoPE's original length of 32. */
static void test_greedy(void **state)
{
    (void)state;
    struct answer *a = malloc(sizeof *a);
    int n_compared = 0;
    for (size_t c = 0; c < N_CHECKPOINTS; c++) {
        struct phi_safetensors *st = open_golden(checkpoints[c]);
        struct phi_model *m = open_model(golden_dir(checkpoints[c]), PHI_FLOAT32, 1);
        struct phi_engine *e = create_engine(m, NULL);
        struct phi_model_info info;
        phi_model_get_info(m, &info);
        for (int k = 0; golden(st, k, "input_ids"); k++) {
            int32_t ids[64], expected[64];
            size_t n, n_expected;
            read_ids(golden(st, k, "input_ids"), ids, &n);
            read_ids(golden(st, k, "greedy"), expected, &n_expected);
            if (n + n_expected > (size_t)info.max_position_embeddings)
                continue;
            struct phi_sampling s = greedy((int)n_expected);
            run(e, ids, n, &s, a);
            assert_int_equal(a->finish, PHI_FINISH_LENGTH);
            assert_int_equal(a->n_tokens, n_expected);
            for (size_t i = 0; i < n_expected; i++)
                if (a->tokens[i] != expected[i])
                    fail_msg("%s prompt %d: token %zu is %d instead of %d", checkpoints[c], k, i,
                             a->tokens[i], expected[i]);
            n_compared++;
        }
        phi_engine_destroy(e);
        phi_model_close(m);
        phi_safetensors_close(st);
    }
    printf("# %d greedy answers compared\n", n_compared);
    assert_true(n_compared >= 25);
    check_no_allocation();
    free(a);
}

/* ---------------------------------------------------------------- one request, many companies */

enum { N_PROMPTS = 8 };

static size_t make_prompt(int i, int32_t *ids, int vocab_size)
{
    size_t n = 1 + (size_t)(i * 11) % 45;
    for (size_t p = 0; p < n; p++)
        ids[p] = (int32_t)((p * 131 + (size_t)i * 977 + p * p * 7) % (size_t)vocab_size);
    return n;
}

static struct phi_sampling sampling_for(int i)
{
    struct phi_sampling s = greedy(24);
    s.temperature = i % 2 ? 0.9 : 0;
    s.top_p = i % 4 == 1 ? 0.9 : 1;
    s.has_seed = true;
    s.seed = 100 + i;
    s.repetition_penalty = i % 3 == 2 ? 1.2 : 1;
    s.logprobs = i % 2 ? 2 : -1;
    return s;
}

static void run_alone(struct phi_model *m, int vocab_size, struct answer *out)
{
    struct phi_engine_options o;
    phi_engine_options_init(&o);
    o.max_num_seqs = 1;
    struct phi_engine *e = create_engine(m, &o);
    for (int i = 0; i < N_PROMPTS; i++) {
        int32_t ids[64];
        size_t n = make_prompt(i, ids, vocab_size);
        struct phi_sampling s = sampling_for(i);
        run(e, ids, n, &s, &out[i]);
    }
    phi_engine_destroy(e);
}

static void check_same(const struct answer *a, const struct answer *b, const char *what)
{
    if (a->n_tokens != b->n_tokens ||
        memcmp(a->tokens, b->tokens, a->n_tokens * sizeof *a->tokens) != 0)
        fail_msg("%s: other tokens", what);
    assert_int_equal(a->n_logprobs, b->n_logprobs);
    if (a->n_logprobs > 0)
        assert_memory_equal(a->logprobs, b->logprobs,
                            a->n_tokens * a->n_logprobs * sizeof *a->logprobs);
}

/* Together, in chunks, over a pool that holds two of them, with other block sizes: every token and
 * every log-probability is the same, to the bit. */
static void test_company(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        int max_num_seqs, max_num_batched_tokens, block_size;
        uint64_t pool_tokens; /* 0 = enough */
    } ways[] = {
        {"eight together", 8, 512, 32, 0},         {"chunks of 8", 8, 8, 32, 0},
        {"chunks of 7, three seats", 3, 7, 16, 0}, {"preempted", 8, 64, 16, 128},
        {"one row a step", 1, 1, 48, 0},
    };
    static const char *const dirs[] = {"phi-qkln", "phi3-longrope", "phi3-swa"};
    struct answer *alone = malloc(N_PROMPTS * sizeof *alone), *a = malloc(sizeof *a);
    for (size_t d = 0; d < 3; d++) {
        struct phi_model *m = open_model(golden_dir(dirs[d]), PHI_BFLOAT16, 1);
        struct phi_model_info info;
        phi_model_get_info(m, &info);
        run_alone(m, info.vocab_size, alone);
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            struct phi_engine_options o;
            struct phi_engine_info plan;
            phi_engine_options_init(&o);
            o.max_num_seqs = ways[w].max_num_seqs;
            o.max_num_batched_tokens = ways[w].max_num_batched_tokens;
            o.block_size = ways[w].block_size;
            assert_int_equal(phi_engine_plan(m, &o, &plan, NULL), PHI_OK);
            if (ways[w].pool_tokens > 0) {
                o.max_model_len = 80;
                o.kv_bytes = ways[w].pool_tokens * plan.kv_bytes_per_token;
            }
            struct phi_engine *e = create_engine(m, &o);
            struct phi_request *requests[N_PROMPTS];
            for (int i = 0; i < N_PROMPTS; i++) {
                int32_t ids[64];
                size_t n = make_prompt(i, ids, info.vocab_size);
                struct phi_sampling s = sampling_for(i);
                requests[i] = submit(e, ids, n, &s);
            }
            for (int i = 0; i < N_PROMPTS; i++) {
                collect(requests[i], a, 1);
                check_same(a, &alone[i], ways[w].what);
            }
            struct phi_engine_stats done;
            phi_engine_get_stats(e, &done);
            assert_int_equal(done.n_preemptions > 0, ways[w].pool_tokens > 0);
            assert_int_equal(done.n_crossings > 0, d == 1); /* phi3-longrope */
            phi_engine_destroy(e);
        }
        phi_model_close(m);
    }
    check_no_allocation();
    free(alone);
    free(a);
}

/* n answers share the prompt's blocks; answer k is what a request with seed + k says. */
static void test_n_answers(void **state)
{
    (void)state;
    enum { N = 5 };
    struct answer *all = malloc(N * sizeof *all), *one = malloc(sizeof *one);
    struct phi_model *m = open_model(golden_dir("phi3-longrope"), PHI_FLOAT32, 1);
    struct phi_engine_options o;
    phi_engine_options_init(&o);
    o.max_num_seqs = 3; /* fewer seats than answers */
    o.max_num_batched_tokens = 16;
    struct phi_engine *e = create_engine(m, &o);
    int32_t ids[64];
    for (size_t n = 15; n <= 33;
         n += 3) { /* around a block's end, and across the original length */
        for (size_t p = 0; p < n; p++)
            ids[p] = (int32_t)(p * 5 + n) % 90;
        struct phi_sampling s = greedy(12);
        s.temperature = 1;
        s.has_seed = true;
        s.seed = 7;
        s.n = N;
        collect(submit(e, ids, n, &s), all, N);
        int n_different = 0;
        for (int k = 0; k < N; k++) {
            struct phi_sampling single = s;
            single.n = 1;
            single.seed = s.seed + k;
            run(e, ids, n, &single, one);
            check_same(one, &all[k], "answer k against seed + k");
            n_different += memcmp(all[k].tokens, all[0].tokens, 12 * sizeof(int32_t)) != 0;
        }
        assert_int_equal(n_different, N - 1);
    }
    phi_engine_destroy(e);
    phi_model_close(m);
    check_no_allocation();
    free(all);
    free(one);
}

/* Without a seed each request differs, and a new engine of the same seed repeats them in order. */
static void test_seeds(void **state)
{
    (void)state;
    struct answer *a = calloc(6, sizeof *a);
    struct phi_model *m = open_model(golden_dir("phi3-gqa"), PHI_FLOAT32, 1);
    const int32_t ids[] = {1, 2, 3};
    struct phi_sampling s = greedy(20);
    s.temperature = 1.5;
    for (int run_number = 0; run_number < 2; run_number++) {
        struct phi_engine_options o;
        phi_engine_options_init(&o);
        o.seed = 5;
        struct phi_engine *e = create_engine(m, &o);
        s.has_seed = run_number == 1;
        s.seed = -1; /* means none */
        run(e, ids, 3, &s, &a[run_number * 2]);
        run(e, ids, 3, &s, &a[run_number * 2 + 1]);
        s.has_seed = true;
        s.seed = 0;
        run(e, ids, 3, &s, &a[4 + run_number]);
        phi_engine_destroy(e);
    }
    check_same(&a[0], &a[2], "the same engine seed");
    check_same(&a[1], &a[3], "the same engine seed");
    check_same(&a[4], &a[5], "seed 0");
    assert_memory_not_equal(a[0].tokens, a[1].tokens, 20 * sizeof(int32_t));
    assert_memory_not_equal(a[0].tokens, a[4].tokens, 20 * sizeof(int32_t));
    phi_model_close(m);
    free(a);
}

/* ---------------------------------------------------------------- logits, logprobs */

struct all_rows {
    float *logits; /* [n, vocab] */
    size_t vocab, n_rows, stop_after;
};

static int keep_rows(void *context, size_t first_row, size_t n_rows, const float *logits)
{
    struct all_rows *all = context;
    assert_int_equal(first_row, all->n_rows);
    memcpy(all->logits + first_row * all->vocab, logits, n_rows * all->vocab * sizeof *logits);
    all->n_rows += n_rows;
    return all->stop_after && all->n_rows >= all->stop_after;
}

static void test_logits(void **state)
{
    (void)state;
    struct phi_safetensors *st = open_golden("phi3-longrope");
    struct phi_model *m = open_model(golden_dir("phi3-longrope"), PHI_FLOAT32, 1);
    struct phi_model_info info;
    struct phi_error err;
    phi_model_get_info(m, &info);
    struct all_rows all = {.vocab = (size_t)info.vocab_size}, again = all;
    all.logits = malloc(128 * all.vocab * sizeof(float));
    again.logits = malloc(128 * all.vocab * sizeof(float));
    struct phi_engine_options o;
    phi_engine_options_init(&o);
    struct phi_engine *e = create_engine(m, &o);
    o.max_num_seqs = 1;
    o.max_num_batched_tokens = 7;
    struct phi_engine *chunked = create_engine(m, &o);
    for (int k = 0; golden(st, k, "input_ids"); k++) {
        int32_t ids[64];
        size_t n;
        read_ids(golden(st, k, "input_ids"), ids, &n);
        all.n_rows = again.n_rows = 0;
        assert_int_equal(phi_engine_logits(e, ids, n, keep_rows, &all, &err), PHI_OK);
        assert_int_equal(phi_engine_logits(chunked, ids, n, keep_rows, &again, &err), PHI_OK);
        assert_int_equal(all.n_rows, n);
        assert_memory_equal(all.logits, again.logits, n * all.vocab * sizeof(float));
        const float *expected = golden(st, k, "logits")->data;
        for (size_t i = 0; i < n * all.vocab; i++)
            assert_true(fabsf(all.logits[i] - expected[i]) < 1e-4f);
    }
    int32_t ids[200] = {0};
    all.n_rows = 0;
    all.stop_after = 7;
    assert_int_equal(phi_engine_logits(chunked, ids, 30, keep_rows, &all, &err), PHI_ERR_CANCELLED);
    assert_int_equal(all.n_rows, 7);
    all.stop_after = all.n_rows = 0;
    assert_int_equal(phi_engine_logits(e, ids, 128, keep_rows, &all, &err),
                     PHI_OK); /* the whole context */
    assert_int_equal(phi_engine_logits(e, ids, 129, keep_rows, &all, &err), PHI_ERR_TOO_LONG);
    phi_engine_destroy(e);
    phi_engine_destroy(chunked);
    phi_model_close(m);
    phi_safetensors_close(st);
    free(all.logits);
    free(again.logits);
    check_no_allocation();
}

static double log_softmax(const float *row, size_t n, int32_t token)
{
    double max = row[0], sum = 0;
    for (size_t i = 0; i < n; i++)
        max = row[i] > max ? row[i] : max;
    for (size_t i = 0; i < n; i++)
        sum += exp(row[i] - max);
    return row[token] - max - log(sum);
}

/* Prompt and output logprobs against the logits of prompt + output in one pass. */
static void test_logprobs(void **state)
{
    (void)state;
    enum { N = 20, K = 3, OUT = 10 };
    struct phi_model *m = open_model(golden_dir("phi3-gqa"), PHI_FLOAT32, 1);
    struct phi_model_info info;
    phi_model_get_info(m, &info);
    struct phi_engine_options o;
    phi_engine_options_init(&o);
    o.max_num_seqs = 2;
    o.max_num_batched_tokens = 9;
    struct phi_engine *e = create_engine(m, &o);
    struct answer *a = malloc(sizeof *a);
    int32_t ids[64];
    make_prompt(3, ids, info.vocab_size);
    struct phi_sampling s = greedy(OUT);
    s.temperature = 1;
    s.logprobs = K;
    s.prompt_logprobs = K;
    struct phi_logit_bias bias = {5, 3};
    s.logit_bias = &bias; /* changes the choice, not the logprobs */
    s.n_logit_bias = 1;
    struct phi_request *r = submit(e, ids, N, &s);
    struct phi_event ev;
    size_t n_prompt_logprobs, n_out = 0;
    struct phi_logprob output[OUT * (K + 1)];
    do {
        assert_int_equal(phi_request_next(r, &ev, -1), 1);
        assert_int_equal(ev.n_logprobs, K + 1);
        memcpy(output + n_out * (K + 1), ev.logprobs, ev.n_tokens * (K + 1) * sizeof *output);
        memcpy(ids + N + n_out, ev.tokens, ev.n_tokens * sizeof *ids);
        n_out += ev.n_tokens;
    } while (!ev.last);
    assert_int_equal(n_out, OUT);
    const struct phi_logprob *prompt = phi_request_prompt_logprobs(r, &n_prompt_logprobs);
    assert_int_equal(n_prompt_logprobs, K + 1);
    for (int j = 0; j <= K; j++)
        assert_int_equal(prompt[j].token, -1);
    struct all_rows all = {.vocab = (size_t)info.vocab_size};
    all.logits = malloc((N + OUT) * all.vocab * sizeof(float));
    assert_int_equal(phi_engine_logits(e, ids, N + OUT, keep_rows, &all, NULL), PHI_OK);
    for (size_t p = 1; p < N + OUT; p++) {
        const float *row = all.logits + (p - 1) * all.vocab;
        const struct phi_logprob *l = p < N ? prompt + p * (K + 1) : output + (p - N) * (K + 1);
        assert_int_equal(l[0].token, ids[p]);
        for (int j = 0; j <= K; j++)
            assert_true(fabs(l[j].logprob - log_softmax(row, all.vocab, l[j].token)) < 1e-5);
        for (int j = 1; j <= K; j++) {
            assert_int_equal(l[j].rank, j);
            assert_true(j == 1 || l[j].logprob <= l[j - 1].logprob);
            if (l[0].token == l[j].token)
                assert_int_equal(l[0].rank, j);
        }
        int32_t n_better = 0;
        for (size_t i = 0; i < all.vocab; i++)
            n_better += row[i] > row[ids[p]];
        assert_int_equal(l[0].rank, n_better + 1);
    }
    phi_request_release(r);
    phi_engine_destroy(e);
    phi_model_close(m);
    free(all.logits);
    free(a);
    check_no_allocation();
}

/* ---------------------------------------------------------------- ends */

static void test_ends(void **state)
{
    (void)state;
    struct phi_model *m = open_model(golden_dir("phi3-gqa"), PHI_FLOAT32, 1);
    struct phi_model_info info;
    phi_model_get_info(m, &info);
    struct phi_engine_options o;
    phi_engine_options_init(&o);
    o.max_model_len = 40;
    struct phi_engine *e = create_engine(m, &o);
    struct answer *a = malloc(2 * sizeof *a), *b = a + 1;
    const int32_t ids[] = {4, 5, 6, 7};
    struct phi_sampling s = greedy(0);
    run(e, ids, 4, &s, a);
    assert_int_equal(a->n_tokens, 36); /* to the end of the context */
    assert_int_equal(a->finish, PHI_FINISH_LENGTH);
    assert_int_equal(a->stop_token, -1);

    int32_t stop = a->tokens[8]; /* not said before? the first place counts */
    size_t at = 0;
    while (a->tokens[at] != stop)
        at++;
    s.stop_token_ids = &stop;
    s.n_stop_token_ids = 1;
    run(e, ids, 4, &s, b);
    assert_int_equal(b->finish, PHI_FINISH_STOP);
    assert_int_equal(b->stop_token, stop);
    assert_int_equal(b->n_tokens, at + 1);

    s.min_tokens = 15; /* masked until then */
    run(e, ids, 4, &s, b);
    for (int i = 0; i < 15; i++)
        assert_int_not_equal(b->tokens[i], stop);
    assert_true(b->n_tokens >= 15);
    phi_engine_destroy(e);
    phi_model_close(m);
    free(a);
    check_no_allocation();
}

static void test_cancel(void **state)
{
    (void)state;
    struct phi_model *m = open_model(golden_dir("phi3-longrope"), PHI_FLOAT32, 1);
    struct phi_engine_options o;
    phi_engine_options_init(&o);
    o.max_num_seqs = 2;
    struct phi_engine *e = create_engine(m, &o);
    struct answer *a = malloc(4 * sizeof *a);
    const int32_t ids[] = {1, 2, 3, 4};
    struct phi_sampling s = greedy(100), many = s;
    many.n = 4;
    many.temperature = 1;
    struct phi_event ev;
    int n_aborted = 0; /* a fast machine may end a request before it is cancelled */
    for (int trial = 0; trial < 50; trial++) {
        struct phi_request *first = submit(e, ids, 4, &s), *second = submit(e, ids, 4, &many);
        ev.last = false;
        for (int i = 0; i < trial % 5 && !ev.last; i++)
            assert_int_equal(phi_request_next(first, &ev, -1), 1);
        phi_request_cancel(first);
        phi_request_cancel(second);
        collect(second, a, 4);
        for (int k = 0; k < 4; k++)
            n_aborted += a[k].finish == PHI_FINISH_ABORT;
        while (!ev.last)
            assert_int_equal(phi_request_next(first, &ev, -1), 1);
        n_aborted += ev.finish == PHI_FINISH_ABORT;
        phi_request_release(first);
    }
    assert_true(n_aborted > 200);
    /* Released without being read; and an engine that ends under its requests. */
    phi_request_release(submit(e, ids, 4, &many));
    run(e, ids, 4, &s, a);
    assert_int_equal(a->finish, PHI_FINISH_LENGTH);
    struct phi_request *left = submit(e, ids, 4, &many);
    phi_engine_destroy(e);
    collect(left, a, 4);
    for (int k = 0; k < 4; k++)
        assert_true(a[k].finish == PHI_FINISH_ABORT || a[k].finish == PHI_FINISH_LENGTH);
    phi_model_close(m);
    free(a);
    check_no_allocation();
}

static void test_timeout(void **state)
{
    (void)state;
    struct phi_model *m = open_model(golden_dir("phi3-gqa"), PHI_FLOAT32, 1);
    struct phi_engine_options o;
    phi_engine_options_init(&o);
    o.max_num_seqs = 1;
    struct phi_engine *e = create_engine(m, &o);
    const int32_t ids[] = {1};
    struct phi_sampling s = greedy(120);
    struct phi_request *r[8];
    struct phi_event ev;
    int n = 0;
    for (int i = 0; i < 8; i++)
        r[i] = submit(e, ids, 1, &s);
    assert_int_equal(phi_request_next(r[7], &ev, 0), 0); /* seven stand before it */
    while ((n = phi_request_next(r[7], &ev, 10000)) == 1 && !ev.last)
        ;
    assert_int_equal(n, 1);
    struct phi_request_stats stats;
    phi_request_get_stats(r[7], &stats);
    assert_int_equal(stats.n_prompt_tokens, 1);
    assert_int_equal(stats.n_output_tokens, 120);
    assert_true(0 < stats.queue_s && stats.queue_s < stats.first_token_s &&
                stats.first_token_s < stats.end_s);
    for (int i = 0; i < 8; i++)
        phi_request_release(r[i]);
    phi_engine_destroy(e);
    phi_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy),    cmocka_unit_test(test_company),
        cmocka_unit_test(test_n_answers), cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_logits),    cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_ends),      cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_timeout),
    };
    return cmocka_run_group_tests_name("engine/engine", tests, NULL, NULL);
}
