/* test_fit.c: the integers and scales chosen for weights: never worse than the largest value's
 * scale alone, exact where they can be, and the same on every machine and for every table. */
#include "kernels/elementary.h"
#include "kernels/kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

enum { MAX_N = 1000 };

static const struct phi_kernels *table;
static uint32_t state32 = 1;

static float random_weight(void)
{
    float sum = 0; /* about normal, deviation 0.02 */
    for (int i = 0; i < 6; i++) {
        state32 = state32 * 1664525u + 1013904223u;
        sum += (float)(state32 >> 8) * 0x1p-24f - 0.5f;
    }
    return sum * 0.0283f;
}

static double error_w8(const float *x, size_t n, const int8_t *q, float scale)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += ((double)x[i] - (double)q[i] * (double)scale) *
               ((double)x[i] - (double)q[i] * (double)scale);
    return sum;
}

static float largest(const float *x, size_t n)
{
    float a = 0;
    for (size_t i = 0; i < n; i++)
        a = fabsf(x[i]) > a ? fabsf(x[i]) : a;
    return a;
}

static void w8_is_no_worse_than_the_largest_values_scale(void **state)
{
    table = *state;
    for (size_t n = 1; n <= 300; n++) {
        float x[MAX_N];
        int8_t q[MAX_N], plain[MAX_N];
        for (size_t i = 0; i < n; i++)
            x[i] = random_weight() * (i % 97 == 5 ? 4.0f : 1.0f);
        float scale = table->fit_w8(q, x, n), plain_scale = largest(x, n) / 127.0f;
        for (size_t i = 0; i < n; i++)
            plain[i] = (int8_t)lrintf(x[i] / plain_scale);
        assert_true(error_w8(x, n, q, scale) <= error_w8(x, n, plain, plain_scale) * 1.000001);
        for (size_t i = 0; i < n; i++)
            assert_true(q[i] >= -127);
    }
}

static double error_w4(const float *x, size_t n, const uint8_t *nibbles, const uint16_t *scales,
                       size_t group)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        int q = (nibbles[i / 2] >> (i % 2 * 4) & 15) - 8;
        double e = (double)x[i] - q * (double)phi_bf16_to_f32(scales[i / group]);
        sum += e * e;
    }
    return sum;
}

/* Against the scale that puts the largest value at 7. */
static void w4_is_better_than_the_largest_values_scale(void **state)
{
    static const size_t groups[] = {32, 64, 128};
    table = *state;
    for (size_t g = 0; g < 3; g++) {
        const size_t group = groups[g], n = group * 5;
        float x[MAX_N];
        uint8_t nibbles[MAX_N / 2];
        uint16_t scales[MAX_N / 32];
        double plain = 0;
        for (size_t i = 0; i < n; i++)
            x[i] = random_weight();
        table->fit_w4(nibbles, scales, x, n, group);
        for (size_t b = 0; b < n; b += group) {
            float scale = largest(x + b, group) / 7.0f;
            for (size_t i = b; i < b + group; i++)
                plain += pow((double)x[i] - (double)(rintf(x[i] / scale) * scale), 2);
        }
        assert_true(error_w4(x, n, nibbles, scales, group) < plain);
    }
}

static void what_fits_exactly_stays_exact(void **state)
{
    float x[64];
    int8_t q[64];
    uint8_t nibbles[32];
    uint16_t scales[2];
    table = *state;
    for (int i = 0; i < 64; i++)
        x[i] = (float)(i % 15 - 7) * 0.25f;
    table->fit_w4(nibbles, scales, x, 64, 32);
    assert_true(error_w4(x, 64, nibbles, scales, 32) == 0);
    for (int i = 0; i < 64; i++)
        x[i] = (float)(i * 4 - 127) * 0.5f;
    float scale = table->fit_w8(q, x, 64);
    assert_true(scale == 0.5f && error_w8(x, 64, q, scale) == 0);
}

static void zeros_and_what_is_not_finite(void **state)
{
    float x[40] = {0};
    int8_t q[40];
    uint8_t nibbles[20];
    uint16_t scales[1];
    table = *state;
    assert_true(table->fit_w8(q, x, 40) == 1.0f && q[3] == 0);
    table->fit_w4(nibbles, scales, x, 40, 40);
    assert_true(scales[0] == 0x3F80 && nibbles[7] == 0x88);
    for (int k = 0; k < 2; k++) {
        x[17] = k ? NAN : INFINITY;
        float scale = table->fit_w8(q, x, 40);
        assert_true(scale != scale && q[17] == 0);
        table->fit_w4(nibbles, scales, x, 40, 40);
        assert_true(phi_bf16_to_f32(scales[0]) != phi_bf16_to_f32(scales[0]));
    }
}

/* FNV-1a over integers and scales of random rows. It changes only with docs/NUMERICS.md. */
static void the_same_on_every_machine(void **state)
{
    uint64_t h = 0xCBF29CE484222325u;
    table = *state;
    state32 = 1;
    for (size_t n = 32; n <= 960; n += 32) {
        float x[MAX_N], scale;
        unsigned char out[2 * MAX_N] = {0};
        for (size_t i = 0; i < n; i++)
            x[i] = random_weight();
        scale = table->fit_w8((int8_t *)out, x, n);
        memcpy(out + n, &scale, sizeof scale);
        for (size_t i = 0; i < n + 4; i++)
            h = (h ^ out[i]) * 0x100000001B3u;
        table->fit_w4(out, (uint16_t *)(void *)(out + MAX_N), x, n, 32);
        for (size_t i = 0; i < sizeof out; i++)
            h = (h ^ out[i]) * 0x100000001B3u;
    }
    print_message("# hash 0x%016llX\n", (unsigned long long)h);
    assert_true(h == 0x6F087307EF08C22B);
}

int main(void)
{
    static const struct {
        const char *name;
        CMUnitTestFunction run;
    } checks[] = {
        {"w8 is no worse than the largest value's scale",
         w8_is_no_worse_than_the_largest_values_scale},
        {"w4 is better than the largest value's scale", w4_is_better_than_the_largest_values_scale},
        {"what fits exactly stays exact", what_fits_exactly_stays_exact},
        {"zeros and what is not finite", zeros_and_what_is_not_finite},
        {"the same on every machine", the_same_on_every_machine},
    };
    enum { N_CHECKS = sizeof checks / sizeof checks[0], MAX_TESTS = 8 * N_CHECKS };
    static struct CMUnitTest tests[MAX_TESTS];
    static char names[MAX_TESTS][96];
    size_t n = 0;
    phi_fp_env_set();
    for (const struct phi_kernels *const *t = phi_kernels_all(); *t; t++)
        for (size_t i = 0; i < N_CHECKS && ((*t)->features & ~phi_cpu_features()) == 0; i++, n++) {
            snprintf(names[n], sizeof names[n], "%s: %s", (*t)->name, checks[i].name);
            tests[n] = (struct CMUnitTest){names[n], checks[i].run, NULL, NULL, (void *)*t};
        }
    return _cmocka_run_group_tests("fit", tests, n, NULL, NULL);
}
