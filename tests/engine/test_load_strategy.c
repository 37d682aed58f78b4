/* test_load_strategy.c: however weights come into memory, the answers are the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/huge_files.h"
#include "engine_fixture.h"

enum { N_IDS = 24 };

struct steps {
    char stage[32];
    uint64_t done, total;
};

static void note_progress(void *context, const char *stage, uint64_t done, uint64_t total)
{
    struct steps *s = context;
    snprintf(s->stage, sizeof s->stage, "%s", stage);
    assert_true(done > s->done && done <= total);
    s->done = done;
    s->total = total;
}

static struct phi_model *open_by(enum phi_load_strategy strategy, struct steps *steps)
{
    struct phi_model_options o;
    struct phi_model *m;
    struct phi_error err;
    phi_model_options_init(&o);
    *steps = (struct steps){0};
    o.path = model_dir("phi-tiny-code");
    o.load_strategy = strategy;
    o.n_threads = 2;
    o.progress = note_progress;
    o.progress_context = steps;
    if (phi_model_open(&o, &m, &err) != PHI_OK)
        fail_msg("%s", err.text);
    return m;
}

static void answer_of(struct phi_model *m, struct answer *out)
{
    int32_t ids[N_IDS];
    for (int i = 0; i < N_IDS; i++)
        ids[i] = i * 31 + 3;
    struct phi_sampling s = greedy(40);
    s.logprobs = 5;
    struct phi_engine *e = create_engine(m, NULL);
    run(e, ids, N_IDS, &s, out);
    phi_engine_destroy(e);
}

static void test_same_answers(void **state)
{
    (void)state;
    static struct answer expected, got;
    static const enum phi_load_strategy strategies[] = {PHI_LOAD_AUTO, PHI_LOAD_LAZY,
                                                        PHI_LOAD_PREFETCH, PHI_LOAD_EAGER};
    struct phi_model_info info;
    struct steps steps;
    for (int i = 0; i < 4; i++) {
        struct phi_model *m = open_by(strategies[i], &steps);
        answer_of(m, i == 0 ? &expected : &got);
        if (i > 0) {
            assert_int_equal(got.n_tokens, expected.n_tokens);
            assert_memory_equal(got.tokens, expected.tokens,
                                expected.n_tokens * sizeof *expected.tokens);
            assert_int_equal(got.n_logprobs, expected.n_logprobs);
            for (size_t k = 0; k < expected.n_tokens * expected.n_logprobs; k++)
                assert_true(got.logprobs[k].logprob == expected.logprobs[k].logprob);
        }
        phi_model_get_info(m, &info);
        bool eager = strategies[i] == PHI_LOAD_EAGER;
        assert_true(eager ? info.weight_bytes == 0 : info.weight_bytes > 10 << 20);
        assert_true(eager ? info.converted_bytes > 10 << 20 : info.converted_bytes == 0);
        assert_int_equal(steps.done, steps.total);
        assert_string_equal(steps.stage, eager                                ? "reading"
                                         : strategies[i] == PHI_LOAD_PREFETCH ? "prefetching"
                                                                              : "");
        phi_model_close(m);
    }
}

/* The cache is of no use then, but the model is. */
static void test_prefetch_that_is_refused(void **state)
{
    (void)state;
    static struct answer expected, got;
    struct steps steps;
    struct phi_model *m = open_by(PHI_LOAD_LAZY, &steps);
    answer_of(m, &expected);
    phi_model_close(m);
    phi_huge_refuse(PHI_HUGE_ALL_CALLS);
    m = open_by(PHI_LOAD_PREFETCH, &steps);
    phi_huge_refuse(0);
    answer_of(m, &got);
    assert_memory_equal(got.tokens, expected.tokens, expected.n_tokens * sizeof *expected.tokens);
    phi_model_close(m);
}

static void test_no_strategy(void **state)
{
    (void)state;
    struct phi_model_options o;
    struct phi_model *m;
    struct phi_error err;
    phi_model_options_init(&o);
    assert_int_equal(o.load_strategy, PHI_LOAD_AUTO);
    o.path = model_dir("phi-tiny-code");
    o.load_strategy = (enum phi_load_strategy)9;
    assert_int_equal(phi_model_open(&o, &m, &err), PHI_ERR_INVALID);
    assert_non_null(strstr(err.text, "load_strategy: 9"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_answers),
        cmocka_unit_test(test_prefetch_that_is_refused),
        cmocka_unit_test(test_no_strategy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
