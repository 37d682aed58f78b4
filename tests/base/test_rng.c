/* Philox4x32-10 against the known answers published with Random123 (kat_vectors). */
#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static void test_known_answers(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], expected[4];
    } cases[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t out[4];
        phi_philox4x32(cases[i].counter, cases[i].key, out);
        for (int j = 0; j < 4; j++)
            assert_int_equal(out[j], cases[i].expected[j]);
    }
}

/* Every bit of every argument matters. */
static void test_arguments(void **state)
{
    (void)state;
    uint64_t base = phi_random_u64(1, 2, 3);
    for (int bit = 0; bit < 64; bit++) {
        assert_true(phi_random_u64(1 ^ 1ull << bit, 2, 3) != base);
        assert_true(phi_random_u64(1, 2 ^ 1ull << bit, 3) != base);
        assert_true(phi_random_u64(1, 2, 3 ^ 1ull << bit) != base);
    }
}

static void test_unit_interval(void **state)
{
    (void)state;
    assert_true(phi_random_unit(0) > 0);
    assert_true(phi_random_unit(UINT64_MAX) < 1);
    double mean = 0;
    for (uint64_t i = 0; i < 10000; i++)
        mean += phi_random_unit(phi_random_u64(7, 0, i)) / 10000;
    assert_true(mean > 0.49 && mean < 0.51);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_answers),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_unit_interval),
    };
    return cmocka_run_group_tests_name("base/rng", tests, NULL, NULL);
}
