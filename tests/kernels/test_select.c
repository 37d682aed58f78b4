/* test_select.c: which table runs, that tables are whole, and the floating-point environment. */
#include "base/status.h"
#include "base/threads.h"
#include "kernels/kernels.h"

#include <float.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void best_table_is_the_last_that_runs(void **state)
{
    (void)state;
    const struct phi_kernels *best = NULL, *got;
    for (const struct phi_kernels *const *t = phi_kernels_all(); *t; t++)
        if (((*t)->features & ~phi_cpu_features()) == 0)
            best = *t;
    assert_int_equal(phi_kernels_select(NULL, &got, NULL), PHI_OK);
    assert_ptr_equal(got, best);
    assert_ptr_equal(phi_kernels_all()[0], &phi_kernels_ref);
}

static void every_table_can_be_forced_where_it_runs(void **state)
{
    (void)state;
    for (const struct phi_kernels *const *t = phi_kernels_all(); *t; t++) {
        const struct phi_kernels *got;
        struct phi_error err = {0};
        enum phi_status status = phi_kernels_select((*t)->name, &got, &err);
        if ((*t)->features & ~phi_cpu_features()) {
            assert_int_equal(status, PHI_ERR_UNSUPPORTED);
            assert_non_null(strstr(err.text, (*t)->name));
            assert_null(got);
        } else {
            assert_int_equal(status, PHI_OK);
            assert_ptr_equal(got, *t);
        }
    }
}

static void unknown_names_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"", "AVX2", "avx2 ", "avx", "sse", "neon"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct phi_kernels *got;
        struct phi_error err = {0};
        assert_int_equal(phi_kernels_select(names[i], &got, &err), PHI_ERR_INVALID);
        assert_null(got);
        assert_non_null(strstr(err.text, "PHI_ISA"));
    }
}

/* A better table needs all that the one before it needs, and no entry is missing. */
static void tables_are_whole(void **state)
{
    (void)state;
    unsigned features = 0;
    for (const struct phi_kernels *const *t = phi_kernels_all(); *t; t++) {
        const struct phi_kernels *k = *t;
        assert_int_equal(k->features & features, features);
        features = k->features;
        assert_non_null(k->name);
        assert_true(k->matmul_f32 && k->matmul_bf16 && k->matmul_f16 && k->matmul_bf16_pairs);
        assert_true(k->quantize_row && k->gelu_quantize && k->silu_mul_quantize);
        assert_true(k->matmul_w8 && k->matmul_w4 && k->fit_w8 && k->fit_w4);
        assert_true(k->to_bf16 && k->to_f16 && k->from_bf16 && k->from_f16);
        assert_true(k->rms_norm && k->layer_norm && k->gelu_new && k->silu_mul && k->softmax_step);
        assert_true(k->weighted_sum_f32 && k->weighted_sum_bf16 && k->weighted_sum_f16 &&
                    k->sum_exp);
    }
}

/* ---------------------------------------------------------------- floating-point environment */

struct denormals {
    bool kept_on_input, kept_on_output;
};

static struct denormals try_denormals(void)
{
    volatile float least = FLT_MIN, half = 0.5f, denormal = FLT_MIN / 4, large = 0x1p100f;
    return (struct denormals){denormal * large != 0.0f, least * half != 0.0f};
}

enum { N_THREADS = 3 };
static pthread_barrier_t all_there;

/* Every thread gets one item, since each waits for the others in its own. */
static void on_thread(void *context, size_t item, int thread)
{
    struct denormals *seen = context;
    (void)item;
    pthread_barrier_wait(&all_there);
    seen[thread] = try_denormals();
}

/* The constant FLT_MIN / 4 is the compiler's: the test itself computes no denormal. */
static void denormals_are_zero_on_every_thread(void **state)
{
    (void)state;
#if defined(__x86_64__) || defined(__aarch64__)
    struct denormals before = try_denormals(), seen[N_THREADS];
    assert_true(before.kept_on_input && before.kept_on_output);
    struct phi_pool *pool;
    assert_int_equal(phi_pool_create(N_THREADS, phi_fp_env_set, &pool, NULL), PHI_OK);
    pthread_barrier_init(&all_there, NULL, N_THREADS);
    phi_pool_run(pool, N_THREADS, on_thread, seen);
    pthread_barrier_destroy(&all_there);
    phi_pool_destroy(pool);
    for (int i = 0; i < N_THREADS; i++)
        assert_true(!seen[i].kept_on_input && !seen[i].kept_on_output);
    volatile float one = 1.0f, tiny = 0x1.8p-24f; /* three quarters of the step above one */
    assert_true(one + tiny == 1.0f + 0x1p-23f);
#else
    return; /* not skip(): older cmocka reports that as a failure in TAP */
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(best_table_is_the_last_that_runs),
        cmocka_unit_test(every_table_can_be_forced_where_it_runs),
        cmocka_unit_test(unknown_names_are_refused),
        cmocka_unit_test(tables_are_whole),
        cmocka_unit_test(denormals_are_zero_on_every_thread),
    };
    return cmocka_run_group_tests_name("select", tests, NULL, NULL);
}
