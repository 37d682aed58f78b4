/* test_rope.c: rotary frequencies and angles against the published values of real configs (printed
 * by transformers 5.24) and against the C library's double sin and cos. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include <math.h>

#include "model/rope.h"

/* inv_freq at four indices of the two LongRoPE models, short and long. */
static const struct {
    const char *dir;
    int index;
    float short_freq, long_freq;
} cases[] = {
    {"Phi-3.5-mini-instruct", 0, 1.0f, 0.92592591f},
    {"Phi-3.5-mini-instruct", 1, 0.809219778f, 0.743607283f},
    {"Phi-3.5-mini-instruct", 23, 0.00624498958f, 0.000269467913f},
    {"Phi-3.5-mini-instruct", 47, 4.2659427e-05f, 1.86848786e-06f},
    {"Phi-4-mini-instruct", 0, 1.0f, 1.0f},
    {"Phi-4-mini-instruct", 1, 0.825404167f, 0.73807466f},
    {"Phi-4-mini-instruct", 23, 0.0121152773f, 0.000925352564f},
    {"Phi-4-mini-instruct", 47, 0.000121152749f, 2.53616804e-06f},
};

static void test_published_frequencies(void **state)
{
    const char *root = getenv("PHI_CHECKPOINTS");
    (void)state;
    if (!root) {
        print_message("# PHI_CHECKPOINTS is not set: the real configs are not tested\n");
        return; /* not skip(): older cmocka reports that as a failure in TAP */
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        static struct phi_config config;
        struct phi_rope rope;
        struct phi_error err;
        char dir[1024];
        snprintf(dir, sizeof dir, "%s/%s", root, cases[i].dir);
        if (phi_config_read(dir, &config, &err) != PHI_OK)
            fail_msg("%s", err.text);
        phi_rope_init(&config, &rope);
        assert_int_equal(rope.n_pairs, 48);
        assert_true(fabsf(rope.attention_factor - 1.1902380714f) < 1e-7f);
        assert_true(rope.inv_freq[0][cases[i].index] == cases[i].short_freq);
        assert_true(rope.inv_freq[1][cases[i].index] == cases[i].long_freq);
    }
}

static void test_angles_are_correctly_rounded(void **state)
{
    struct phi_rope rope = {.n_pairs = 3, .attention_factor = 1.0f,
                            .inv_freq = {{1.0f, 0.7f, 1e-4f}, {0.5f, 0.35f, 5e-5f}}};
    (void)state;
    for (uint32_t position = 0; position < 131072; position += 7) {
        for (int regime = 0; regime < 2; regime++) {
            float c[3], s[3];
            phi_rope_angles(&rope, regime, position, c, s);
            for (int i = 0; i < 3; i++) {
                double angle = (float)position * rope.inv_freq[regime][i];
                assert_true(c[i] == (float)cos(angle));
                assert_true(s[i] == (float)sin(angle));
            }
        }
    }
}

static void test_rotation_pairs_halves(void **state)
{
    float x[6] = {1, 2, 3, 4, 5, 6};
    const float c[2] = {0.0f, 1.0f}, s[2] = {1.0f, 0.0f};
    const float want[6] = {-3, 2, 1, 4, 5, 6}; /* (1, 3) turned by 90 degrees; the rest as it was */
    (void)state;
    phi_rope_rotate(x, c, s, 2);
    assert_memory_equal(x, want, sizeof want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_frequencies),
        cmocka_unit_test(test_angles_are_correctly_rounded),
        cmocka_unit_test(test_rotation_pairs_halves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
