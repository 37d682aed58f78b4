/* test_elementary.c: elementary.h against the C library in double precision, and the 16-bit
 * floats against their definition, exhaustively, for the scalar functions and for every table. */
#include "kernels/elementary.h"
#include "kernels/kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

/* The distance between float32 neighbours at x. */
static double ulp_f32(double x)
{
    int e;
    frexp(x, &e);
    return ldexp(1.0, (e < -125 ? -125 : e) - 24);
}

/* ---------------------------------------------------------------- float32 functions */

static void exp_is_within_one_ulp(void **state)
{
    (void)state;
    double worst = 0.0;
    for (double x = -87.0; x <= 88.0; x += 1.0 / 4096 + 1e-6) {
        double want = exp((double)(float)x), got = (double)phi_expf((float)x);
        worst = fmax(worst, fabs(got - want) / ulp_f32(want));
    }
    print_message("# exp: at most %.3f ulp\n", worst);
    assert_true(worst < 1.01);
}

static void exp_has_exact_and_clamped_ends(void **state)
{
    (void)state;
    assert_true(phi_expf(0.0f) == 1.0f && phi_expf(-0.0f) == 1.0f);
    assert_true(phi_expf(-88.0f) == phi_expf(-87.0f) && phi_expf(-INFINITY) == phi_expf(-87.0f));
    assert_true(phi_expf(89.0f) == phi_expf(88.0f) && phi_expf(INFINITY) == phi_expf(88.0f));
    assert_true(isnan(phi_expf(NAN)));
}

static double silu(double x)
{
    return x / (1.0 + exp(-x));
}

static double gelu_new(double x)
{
    return 0.5 * x * (1.0 + tanh(0.79788456080286536 * (x + 0.044715 * x * x * x)));
}

/* Far below zero both functions are a tiny share of x: the error is counted in ulps of x. */
static void check_activation(const char *name, float (*f)(float), double (*exact)(double),
                             double limit)
{
    double worst = 0.0;
    for (double x = -30.0; x <= 30.0; x += 1.0 / 8192 + 1e-6) {
        double error = fabs((double)f((float)x) - exact((double)(float)x));
        worst = fmax(worst, error / ulp_f32(x));
    }
    print_message("# %s: at most %.3f ulp of x\n", name, worst);
    assert_true(worst < limit);
}

static void activations_are_accurate(void **state)
{
    (void)state;
    check_activation("silu", phi_siluf, silu, 2.0);
    check_activation("gelu_new", phi_gelu_newf, gelu_new, 2.0);
}

/* ---------------------------------------------------------------- double functions */

static void doubles_are_accurate(void **state)
{
    (void)state;
    double worst_exp = 0.0, worst_log = 0.0, worst_pow = 0.0, worst_sin = 0.0;
    for (double x = -700.0; x <= 700.0; x += 0.0371)
        worst_exp = fmax(worst_exp, fabs(phi_exp(x) / exp(x) - 1.0));
    for (double x = 1e-30; x < 1e30; x *= 1.00371)
        worst_log = fmax(worst_log, fabs(phi_log(x) - log(x)) / fmax(fabs(log(x)), 1.0));
    for (double y = 0.0; y <= 1.0; y += 1.0 / 128)
        worst_pow = fmax(worst_pow, fabs(phi_pow(10000.0, y) / pow(10000.0, y) - 1.0));
    for (double x = -131072.0; x <= 131072.0; x += 0.771) {
        double s, c;
        phi_sincos(x, &s, &c);
        worst_sin = fmax(worst_sin, fmax(fabs(s - sin(x)), fabs(c - cos(x))));
    }
    print_message("# exp %.2g, log %.2g, pow %.2g relative; sin and cos %.2g absolute\n", worst_exp,
                  worst_log, worst_pow, worst_sin);
    assert_true(worst_exp < 1e-15 && worst_log < 1e-15 && worst_pow < 4e-15 && worst_sin < 1e-14);
}

/* ---------------------------------------------------------------- 16-bit floats */

enum { N_HALVES = 65536, F16_INFINITY = 0x7C00, BF16_INFINITY = 0x7F80 };

/* The value by the format's definition, for a finite float16. */
static double f16_value(uint16_t h)
{
    int exponent = h >> 10 & 31, mantissa = h & 1023;
    double magnitude = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    return h & 0x8000 ? -magnitude : magnitude;
}

static void f16_widens_exactly(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < N_HALVES; h++) {
        float x = phi_f16_to_f32((uint16_t)h);
        uint32_t magnitude = h & 0x7FFF;
        if (magnitude > F16_INFINITY) {
            assert_true(isnan(x));
            continue;
        }
        assert_true(magnitude == F16_INFINITY ? isinf(x) : (double)x == f16_value((uint16_t)h));
        assert_true(!signbit(x) == !(h & 0x8000));
        assert_int_equal(phi_f32_to_f16(x), h);
    }
}

static void bf16_widens_exactly(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < N_HALVES; h++) {
        bool denormal = (h & BF16_INFINITY) == 0, nan = (h & 0x7FFF) > BF16_INFINITY;
        assert_int_equal(phi_f32_bits(phi_bf16_to_f32((uint16_t)h)), h << 16);
        uint16_t back = phi_f32_to_bf16(phi_bf16_to_f32((uint16_t)h));
        assert_int_equal(back, denormal ? h & 0x8000 : nan ? h | 0x40 : h);
    }
}

/* Between any two neighbours, the middle goes to the even one and its own neighbours to the
 * nearer. */
static void check_rounding(uint16_t (*narrow)(float), float (*widen)(uint16_t), uint32_t first,
                           uint32_t infinity)
{
    for (uint32_t h = first; h + 1 < infinity; h++)
        for (uint32_t sign = 0; sign <= 0x8000; sign += 0x8000) {
            double low = (double)widen((uint16_t)h), high = (double)widen((uint16_t)(h + 1));
            float middle = (float)((low + high) / 2);
            uint32_t bits = phi_f32_bits(middle) | sign << 16;
            assert_int_equal(narrow(phi_f32_from_bits(bits)), sign | (h & 1 ? h + 1 : h));
            assert_int_equal(narrow(phi_f32_from_bits(bits - 1)), sign | h);
            assert_int_equal(narrow(phi_f32_from_bits(bits + 1)), sign | (h + 1));
        }
}

static void narrowing_rounds_to_nearest_even(void **state)
{
    (void)state;
    check_rounding(phi_f32_to_f16, phi_f16_to_f32, 0, F16_INFINITY);
    check_rounding(phi_f32_to_bf16, phi_bf16_to_f32, 0x80, BF16_INFINITY);
    assert_int_equal(phi_f32_to_f16(65519.996f), 0x7BFF); /* the last below the middle */
    assert_int_equal(phi_f32_to_f16(65520.0f), F16_INFINITY);
    assert_int_equal(phi_f32_to_f16(-1e30f), 0x8000 | F16_INFINITY);
    assert_int_equal(phi_f32_to_bf16(3.4028235e38f), BF16_INFINITY);
    assert_int_equal(phi_f32_to_bf16(-1e-40f), 0x8000);
    assert_int_equal(phi_f32_to_f16(-1e-40f), 0x8000);
}

/* ---------------------------------------------------------------- the same of every table */

static void check_table(const struct phi_kernels *t)
{
    static uint16_t halves[N_HALVES], narrow[3 * N_HALVES];
    static float wide[3 * N_HALVES];
    for (uint32_t h = 0; h < N_HALVES; h++)
        halves[h] = (uint16_t)h;
    t->from_f16(wide, halves, N_HALVES);
    for (uint32_t h = 0; h < N_HALVES; h++)
        assert_int_equal(phi_f32_bits(wide[h]), phi_f32_bits(phi_f16_to_f32((uint16_t)h)));
    t->from_bf16(wide, halves, N_HALVES);
    for (uint32_t h = 0; h < N_HALVES; h++)
        assert_int_equal(phi_f32_bits(wide[h]), h << 16);
    /* Every upper half with what lies around the middle. */
    static const uint32_t lower[] = {0x7FFF, 0x8000, 0x8001};
    for (size_t i = 0; i < 3 * N_HALVES; i++)
        wide[i] = phi_f32_from_bits((uint32_t)(i / 3) << 16 | lower[i % 3]);
    t->to_bf16(narrow, wide, 3 * N_HALVES);
    for (size_t i = 0; i < 3 * N_HALVES; i++)
        assert_int_equal(narrow[i], phi_f32_to_bf16(wide[i]));
    /* Of float16 the middle is bit 12 for normal values; denormals differ in theirs. */
    for (uint32_t shift = 12; shift < 23; shift++) {
        for (size_t i = 0; i < 3 * N_HALVES; i++)
            wide[i] =
                phi_f32_from_bits(((uint32_t)(i / 3) << 16 | 1u << shift) + (uint32_t)(i % 3) - 1);
        t->to_f16(narrow, wide, 3 * N_HALVES);
        for (size_t i = 0; i < 3 * N_HALVES; i++)
            assert_int_equal(narrow[i], phi_f32_to_f16(wide[i]));
    }
}

static void tables_convert_alike(void **state)
{
    (void)state;
    phi_fp_env_set();
    for (const struct phi_kernels *const *t = phi_kernels_all(); *t; t++)
        if (((*t)->features & ~phi_cpu_features()) == 0)
            check_table(*t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_is_within_one_ulp),
        cmocka_unit_test(exp_has_exact_and_clamped_ends),
        cmocka_unit_test(activations_are_accurate),
        cmocka_unit_test(doubles_are_accurate),
        cmocka_unit_test(f16_widens_exactly),
        cmocka_unit_test(bf16_widens_exactly),
        cmocka_unit_test(narrowing_rounds_to_nearest_even),
        cmocka_unit_test(tables_convert_alike),
    };
    return cmocka_run_group_tests_name("elementary", tests, NULL, NULL);
}
