/* test_utf8.c: decoding against the Unicode Standard's table 3-7, every scalar value, and the
 * replacement practice of its section 3.9 ("maximal subparts", tables 3-8 to 3-11). */
#include "base/utf8.h"
#include "base/alloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void test_decode_table(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        int length; /* as phi_utf8_decode returns it */
        uint32_t cp;
    } rows[] = {
        {"\0", 1, 1, 0},
        {"A", 1, 1, 'A'},
        {"\x7F", 1, 1, 0x7F},
        {"\xC2\x80", 2, 2, 0x80},
        {"\xDF\xBF", 2, 2, 0x7FF},
        {"\xE0\xA0\x80", 3, 3, 0x800},
        {"\xEC\xBF\xBF", 3, 3, 0xCFFF},
        {"\xED\x9F\xBF", 3, 3, 0xD7FF},
        {"\xEE\x80\x80", 3, 3, 0xE000},
        {"\xEF\xBF\xBF", 3, 3, 0xFFFF},
        {"\xF0\x90\x80\x80", 4, 4, 0x10000},
        {"\xF3\xBF\xBF\xBF", 4, 4, 0xFFFFF},
        {"\xF4\x8F\xBF\xBF", 4, 4, 0x10FFFF},
        {"\xE2\x82\xACxyz", 6, 3, 0x20AC},
        /* not lead bytes */
        {"\x80", 1, -1, 0},
        {"\xBF\xBF", 2, -1, 0},
        {"\xC0\x80", 2, -1, 0},
        {"\xC1\xBF", 2, -1, 0},
        {"\xF5\x80\x80\x80", 4, -1, 0},
        {"\xFF", 1, -1, 0},
        /* second byte out of range */
        {"\xC2\x41", 2, -1, 0},
        {"\xC2\xC2", 2, -1, 0},
        {"\xE0\x9F\xBF", 3, -1, 0},
        {"\xED\xA0\x80", 3, -1, 0},
        {"\xF0\x8F\xBF\xBF", 4, -1, 0},
        {"\xF4\x90\x80\x80", 4, -1, 0},
        /* later bytes */
        {"\xE1\x80\x41", 3, -2, 0},
        {"\xE1\x80\xC2", 3, -2, 0},
        {"\xF1\x80\x41\x80", 4, -2, 0},
        {"\xF1\x80\x80\x41", 4, -3, 0},
        {"\xF1\x80\x80\xFF", 4, -3, 0},
        /* cut short, but could still become valid */
        {"\xC2", 1, 0, 0},
        {"\xE2\x82", 2, 0, 0},
        {"\xE0", 1, 0, 0},
        {"\xF0\x9F\x98", 3, 0, 0},
        {"\xF4\x8F", 2, 0, 0},
        /* cut short, and cannot */
        {"\xE0\x80", 2, -1, 0},
        {"\xF4\x90", 2, -1, 0},
        {"\xED\xBF", 2, -1, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint32_t cp = 0;
        assert_int_equal(phi_utf8_decode(rows[i].bytes, rows[i].n, &cp), rows[i].length);
        assert_int_equal(cp, rows[i].cp);
    }
}

static void test_every_scalar_value(void **state)
{
    (void)state;
    for (uint32_t cp = 0; cp <= 0x10FFFF; cp++) {
        if (cp >= 0xD800 && cp <= 0xDFFF)
            continue;
        char bytes[4];
        uint32_t back = UINT32_MAX;
        int n = phi_utf8_encode(cp, bytes);
        assert_int_equal(n, cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4);
        assert_int_equal(phi_utf8_decode(bytes, (size_t)n, &back), n);
        assert_int_equal(back, cp);
        for (int cut = 1; cut < n; cut++)
            assert_int_equal(phi_utf8_decode(bytes, (size_t)cut, &back), 0);
    }
}

/* All pairs and triples of bytes: accepted exactly when they are what some scalar value encodes to.
 */
static void test_no_other_sequence_is_valid(void **state)
{
    (void)state;
    size_t n_pairs = 0, n_triples = 0;
    for (unsigned a = 0x80; a < 0x100; a++)
        for (unsigned b = 0; b < 0x100; b++) {
            char s[3] = {(char)a, (char)b, 0};
            uint32_t cp;
            n_pairs += phi_utf8_decode(s, 2, &cp) == 2;
            for (unsigned c = 0; c < 0x100; c++) {
                s[2] = (char)c;
                n_triples += phi_utf8_decode(s, 3, &cp) == 3;
            }
        }
    assert_int_equal(n_pairs, 0x800 - 0x80);
    assert_int_equal(n_triples, 0x10000 - 0x800 - 0x800);
}

static void test_valid_prefix(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n, prefix;
    } rows[] = {
        {"", 0, 0},          {"abc", 3, 3},        {"a\0b", 3, 3},    {"a\xE2\x82\xAC", 4, 4},
        {"a\xE2\x82", 3, 1}, {"a\xE2\x82z", 4, 1}, {"\xFFxyz", 4, 0}, {"caf\xC3\xA9\xC3", 6, 5},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct phi_str s = {rows[i].bytes, rows[i].n};
        assert_int_equal(phi_utf8_valid_prefix(s), rows[i].prefix);
        assert_int_equal(phi_utf8_valid(s), rows[i].prefix == rows[i].n);
    }
    assert_true(phi_utf8_valid((struct phi_str){NULL, 0}));
}

#define R "\xEF\xBF\xBD"

static void test_lossy(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *text;
    } rows[] = {
        {"", ""},
        {"plain", "plain"},
        /* the Standard's own examples */
        {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", R R R R R R R R "A"},
        {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", R R R R R R R R "A"},
        {"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", R R R R R "A" R R "B"},
        {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", R R R R "A"},
        /* cut at the end: one replacement for the piece */
        {"a\xF0\x9F\x98", "a" R},
        {"a\xE2", "a" R},
        {"\xF0\x9F\x98\xF0\x9F\x98\x80", R "\xF0\x9F\x98\x80"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct phi_buf out = {0};
        phi_buf_append_c(&out, ">");
        phi_utf8_append_lossy(&out, phi_str_from(rows[i].bytes));
        assert_string_equal(out.data + 1, rows[i].text);
        phi_buf_deinit(&out);
    }
}

static void test_lossy_out_of_memory(void **state)
{
    (void)state;
    struct phi_buf out = {0};
    phi_alloc_fail_nth(1);
    phi_utf8_append_lossy(&out, PHI_STR("a\xFF"));
    phi_alloc_fail_nth(0);
    assert_true(out.failed);
    phi_buf_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode_table),
        cmocka_unit_test(test_every_scalar_value),
        cmocka_unit_test(test_no_other_sequence_is_valid),
        cmocka_unit_test(test_valid_prefix),
        cmocka_unit_test(test_lossy),
        cmocka_unit_test(test_lossy_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
