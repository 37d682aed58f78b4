/* test_values.c: the small value helpers: checked sizes, counted strings, dtype names, the clock.
 */
#include "base/clock.h"
#include "base/dtype.h"
#include "base/size.h"
#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void test_add(void **state)
{
    (void)state;
    size_t out = 99;
    assert_true(phi_size_add(2, 3, &out));
    assert_int_equal(out, 5);
    assert_true(phi_size_add(SIZE_MAX, 0, &out));
    assert_true(out == SIZE_MAX);
    out = 99;
    assert_false(phi_size_add(SIZE_MAX, 1, &out));
    assert_false(phi_size_add(SIZE_MAX / 2 + 1, SIZE_MAX / 2 + 1, &out));
    assert_int_equal(out, 99);
}

static void test_mul(void **state)
{
    (void)state;
    static const struct {
        size_t a, b;
        bool fits;
    } rows[] = {
        {0, SIZE_MAX, true},     {SIZE_MAX, 0, true},          {SIZE_MAX, 1, true},
        {1, SIZE_MAX, true},     {SIZE_MAX, 2, false},         {2, SIZE_MAX, false},
        {SIZE_MAX / 3, 3, true}, {SIZE_MAX / 3 + 1, 3, false}, {SIZE_MAX, SIZE_MAX, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t out = 99;
        assert_int_equal(phi_size_mul(rows[i].a, rows[i].b, &out), rows[i].fits);
        assert_true(out == (rows[i].fits ? rows[i].a * rows[i].b : 99));
    }
}

static void test_rounding(void **state)
{
    (void)state;
    assert_int_equal(phi_size_ceil_div(0, 8), 0);
    assert_int_equal(phi_size_ceil_div(1, 8), 1);
    assert_int_equal(phi_size_ceil_div(8, 8), 1);
    assert_int_equal(phi_size_ceil_div(9, 8), 2);
    assert_true(phi_size_ceil_div(SIZE_MAX, 2) == SIZE_MAX / 2 + 1); /* no overflow on the way */
    assert_int_equal(phi_size_min(3, 7), 3);
    assert_int_equal(phi_size_max(3, 7), 7);
}

static void test_str(void **state)
{
    (void)state;
    struct phi_str nul = {"a\0b", 3}, none = {NULL, 0};
    assert_false(phi_str_eq(nul, PHI_STR("a")));
    assert_true(phi_str_eq(nul, (struct phi_str){"a\0b", 3}));
    assert_false(phi_str_eq_c(nul, "a"));
    assert_true(phi_str_eq(none, PHI_STR("")));
    assert_true(phi_str_eq_c(none, ""));
    assert_true(phi_str_starts_with(PHI_STR("abc"), PHI_STR("ab")));
    assert_false(phi_str_starts_with(PHI_STR("a"), PHI_STR("ab")));
    assert_true(phi_str_starts_with(none, none));
    assert_true(phi_str_ends_with(PHI_STR("abc"), PHI_STR("bc")));
    assert_false(phi_str_ends_with(PHI_STR("c"), PHI_STR("bc")));
    assert_true(phi_str_ends_with(none, none));
}

static void test_dtype(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum phi_dtype dtype;
        size_t n_bytes;
    } rows[] = {
        {"auto", PHI_AUTO, 0},       {"float32", PHI_FLOAT32, 4}, {"bfloat16", PHI_BFLOAT16, 2},
        {"float16", PHI_FLOAT16, 2}, {"float", PHI_FLOAT32, 4},   {"half", PHI_FLOAT16, 2},
        {"bf16", PHI_BFLOAT16, 2},   {"fp16", PHI_FLOAT16, 2},    {"fp32", PHI_FLOAT32, 4},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        enum phi_dtype t = PHI_AUTO;
        assert_true(phi_dtype_parse(rows[i].name, &t));
        assert_int_equal(t, rows[i].dtype);
        assert_int_equal(phi_dtype_bytes(t), rows[i].n_bytes);
        if (i < 4)
            assert_string_equal(phi_dtype_name(t), rows[i].name);
    }
    enum phi_dtype t = PHI_FLOAT16;
    static const char *const wrong[] = {"", "float64", "Float32", "bfloat", "float32 ", "int8"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(phi_dtype_parse(wrong[i], &t));
    assert_int_equal(t, PHI_FLOAT16);
}

static void test_clock(void **state)
{
    (void)state;
    double a = phi_clock_s();
    struct timespec pause = {.tv_nsec = 2000000};
    nanosleep(&pause, NULL);
    double b = phi_clock_s();
    assert_true(b - a >= 0.002 && b - a < 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_add), cmocka_unit_test(test_mul),   cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_str), cmocka_unit_test(test_dtype), cmocka_unit_test(test_clock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
