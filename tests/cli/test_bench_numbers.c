/* Percentiles, means and deviations against numpy's values for the same numbers. */
#include "base/alloc.h"
#include "cli/bench/numbers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

static void assert_near(double value, double expected)
{
    if (fabs(value - expected) > 1e-12 * (1 + fabs(expected)))
        fail_msg("%.17g, expected %.17g", value, expected);
}

static struct bench_numbers make(const double *values, size_t n)
{
    struct bench_numbers x = {0};
    for (size_t i = 0; i < n; i++)
        bench_numbers_append(&x, values[i]);
    assert_int_equal(x.n, n);
    return x;
}

static void test_known_values(void **state)
{
    (void)state;
    static const struct {
        double values[8];
        size_t n;
        double mean, std, p10, p25, p50, p75, p99;
    } cases[] = {
        {{0}, 0, 0, 0, 0, 0, 0, 0, 0},
        {{3.5}, 1, 3.5, 0, 3.5, 3.5, 3.5, 3.5, 3.5},
        {{2, 1}, 2, 1.5, 0.5, 1.1, 1.25, 1.5, 1.75, 1.99},
        {{4, 1, 3, 2}, 4, 2.5, 1.118033988749895, 1.3, 1.75, 2.5, 3.25, 3.97},
        {{7, 7, 7}, 3, 7, 0, 7, 7, 7, 7, 7},
        {{10, -1, 0.5, 100, 3}, 5, 22.5, 38.93327625566592, -0.4, 0.5, 3, 10, 96.4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct bench_numbers x = make(cases[i].values, cases[i].n);
        assert_near(bench_mean(&x), cases[i].mean);
        assert_near(bench_std(&x), cases[i].std);
        assert_near(bench_percentile(&x, 10), cases[i].p10);
        assert_near(bench_percentile(&x, 25), cases[i].p25);
        assert_near(bench_median(&x), cases[i].p50);
        assert_near(bench_percentile(&x, 75), cases[i].p75);
        assert_near(bench_percentile(&x, 99), cases[i].p99);
        bench_numbers_deinit(&x);
    }
}

static void test_ends(void **state)
{
    (void)state;
    struct bench_numbers x = {0};
    for (int i = 1000; i >= 1; i--)
        bench_numbers_append(&x, i);
    assert_near(bench_percentile(&x, 0), 1);
    assert_near(bench_percentile(&x, 100), 1000);
    assert_near(bench_percentile(&x, 99.9), 999.001);
    bench_numbers_deinit(&x);
}

static void test_json_keeps_the_order(void **state)
{
    (void)state;
    struct bench_numbers x = make((const double[]){3, 1, 2}, 3);
    json_t *percentiles = bench_percentiles_json(&x), *list = bench_numbers_json(&x);
    assert_near(json_real_value(json_object_get(percentiles, "50")), 2);
    assert_near(json_real_value(json_object_get(percentiles, "90")), 2.8);
    assert_int_equal(json_object_size(percentiles), BENCH_N_PERCENTILES);
    assert_near(json_real_value(json_array_get(list, 0)), 3);
    assert_near(json_real_value(json_array_get(list, 2)), 2);
    json_decref(percentiles);
    json_decref(list);
    bench_numbers_deinit(&x);
}

static void test_no_memory(void **state)
{
    (void)state;
    struct bench_numbers x = {0};
    phi_alloc_fail_nth(1);
    bench_numbers_append(&x, 1);
    phi_alloc_fail_nth(0);
    assert_true(x.failed);
    bench_numbers_append(&x, 2);
    assert_int_equal(x.n, 0);
    assert_null(bench_numbers_json(&x));
    bench_numbers_deinit(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_values),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_json_keeps_the_order),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
