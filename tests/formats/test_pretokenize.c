/* test_pretokenize.c: the scanners give the matches of the regular expressions. The expected words
 * are those of the reference library; a row's text is its words put together. */
#include "base/clock.h"
#include "formats/pretokenize.h"
#include "formats/unicode_tables.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

enum { MAX_WORDS = 8 };

/* clang-format off */
static const struct {
    enum phi_split_pattern pattern;
    const char *words[MAX_WORDS];
} rows[] = {
    {PHI_SPLIT_GPT2, {"!", "\n", "/", "\n", "//", "x"}},
    {PHI_SPLIT_GPT2, {"Hello", " world"}},
    {PHI_SPLIT_GPT2, {"a", " ", " b"}},
    {PHI_SPLIT_GPT2, {"a", " \n", " b"}},
    {PHI_SPLIT_GPT2, {"  "}},
    {PHI_SPLIT_GPT2, {"x", "\n\n"}},
    {PHI_SPLIT_GPT2, {"\r\n\r", "\n", "x"}},
    {PHI_SPLIT_GPT2, {"don", "'t", " DON", "'", "T", " we", "'", "LL"}},
    {PHI_SPLIT_GPT2, {"'", "ſx", " '", "ſ"}},
    {PHI_SPLIT_GPT2, {"1234567"}},
    {PHI_SPLIT_GPT2, {"a", "1", "b", "22"}},
    {PHI_SPLIT_GPT2, {"٣٤٥٦", " ⅷ²"}},
    {PHI_SPLIT_GPT2, {"!!!", " ??", "a"}},
    {PHI_SPLIT_GPT2, {" ", " !", "a"}},
    {PHI_SPLIT_GPT2, {"a", "\xC2\xA0", "b"}},
    {PHI_SPLIT_GPT2, {"\xE3\x80\x80", "\xE3\x80\x80", "x"}},
    {PHI_SPLIT_GPT2, {"\xC2\x85", "y"}},
    {PHI_SPLIT_GPT2, {"it", "'s", "'d"}},
    {PHI_SPLIT_GPT2, {"HelloWorld", " HTTPServer"}},
    {PHI_SPLIT_GPT2, {"ABCdef", " ǅx"}},
    {PHI_SPLIT_GPT2, {"ΣΊΣΥΦΟΣ", "'", "S"}},
    {PHI_SPLIT_GPT2, {"ह", "\xE0\xA4\xBF", "न", "\xE0\xA5\x8D", "द", "\xE0\xA5\x80"}},
    {PHI_SPLIT_GPT2, {"e", "\xCC\x81", "A", "\xCC\x81"}},
    {PHI_SPLIT_GPT2, {"\xCC\x81\xCC\x81", "ABC"}},
    {PHI_SPLIT_GPT2, {"\xCC\x81!\xCC\x81", " \xCC\x81"}},
    {PHI_SPLIT_GPT2, {"日本語テキスト"}},
    {PHI_SPLIT_GPT2, {"ʰABʰCD"}},
    {PHI_SPLIT_GPT2, {"(", "foo", ")/", "bar", "\n", "/"}},
    {PHI_SPLIT_GPT2, {"a", "/", "\r", "\n", "b"}},
    {PHI_SPLIT_GPT2, {"\t", "\t", "x", "\t", "y"}},
    {PHI_SPLIT_GPT2, {"\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA9", " x"}},
    {PHI_SPLIT_GPT2, {"'"}},
    {PHI_SPLIT_GPT2, {"''", "s"}},
    {PHI_SPLIT_GPT2, {" '", "s"}},
    {PHI_SPLIT_GPT2, {"x", "'"}},
    {PHI_SPLIT_GPT2, {"\xE2\x80\xA8", "a", "\xE2\x80\x8B", "b"}},
    {PHI_SPLIT_CL100K, {"!\n", "/\n", "//", "x"}},
    {PHI_SPLIT_CL100K, {"Hello", " world"}},
    {PHI_SPLIT_CL100K, {"a", " ", " b"}},
    {PHI_SPLIT_CL100K, {"a", " \n", " b"}},
    {PHI_SPLIT_CL100K, {"  "}},
    {PHI_SPLIT_CL100K, {"x", "\n\n"}},
    {PHI_SPLIT_CL100K, {"\r\n\r\n", "x"}},
    {PHI_SPLIT_CL100K, {"don", "'t", " DON", "'T", " we", "'LL"}},
    {PHI_SPLIT_CL100K, {"'ſ", "x", " '", "ſ"}},
    {PHI_SPLIT_CL100K, {"123", "456", "7"}},
    {PHI_SPLIT_CL100K, {"a", "1", "b", "22"}},
    {PHI_SPLIT_CL100K, {"٣٤٥", "٦", " ", "ⅷ²"}},
    {PHI_SPLIT_CL100K, {"!!!", " ??", "a"}},
    {PHI_SPLIT_CL100K, {" ", " !", "a"}},
    {PHI_SPLIT_CL100K, {"a", "\xC2\xA0" "b"}},
    {PHI_SPLIT_CL100K, {"\xE3\x80\x80", "\xE3\x80\x80x"}},
    {PHI_SPLIT_CL100K, {"\xC2\x85y"}},
    {PHI_SPLIT_CL100K, {"it", "'s", "'d"}},
    {PHI_SPLIT_CL100K, {"HelloWorld", " HTTPServer"}},
    {PHI_SPLIT_CL100K, {"ABCdef", " ǅx"}},
    {PHI_SPLIT_CL100K, {"ΣΊΣΥΦΟΣ", "'S"}},
    {PHI_SPLIT_CL100K, {"ह", "\xE0\xA4\xBF\xE0\xA4\xA8", "\xE0\xA5\x8D\xE0\xA4\xA6", "\xE0\xA5\x80"}},
    {PHI_SPLIT_CL100K, {"e", "\xCC\x81" "A", "\xCC\x81"}},
    {PHI_SPLIT_CL100K, {"\xCC\x81\xCC\x81", "ABC"}},
    {PHI_SPLIT_CL100K, {"\xCC\x81!\xCC\x81", " \xCC\x81"}},
    {PHI_SPLIT_CL100K, {"日本語テキスト"}},
    {PHI_SPLIT_CL100K, {"ʰABʰCD"}},
    {PHI_SPLIT_CL100K, {"(foo", ")/", "bar", "\n", "/"}},
    {PHI_SPLIT_CL100K, {"a", "/\r\n", "b"}},
    {PHI_SPLIT_CL100K, {"\t", "\tx", "\ty"}},
    {PHI_SPLIT_CL100K, {"\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA9", " x"}},
    {PHI_SPLIT_CL100K, {"'"}},
    {PHI_SPLIT_CL100K, {"''", "s"}},
    {PHI_SPLIT_CL100K, {" '", "s"}},
    {PHI_SPLIT_CL100K, {"x", "'"}},
    {PHI_SPLIT_CL100K, {"\xE2\x80\xA8" "a", "\xE2\x80\x8B" "b"}},
    {PHI_SPLIT_O200K, {"!\n/\n//", "x"}},
    {PHI_SPLIT_O200K, {"Hello", " world"}},
    {PHI_SPLIT_O200K, {"a", " ", " b"}},
    {PHI_SPLIT_O200K, {"a", " \n", " b"}},
    {PHI_SPLIT_O200K, {"  "}},
    {PHI_SPLIT_O200K, {"x", "\n\n"}},
    {PHI_SPLIT_O200K, {"\r\n\r\n", "x"}},
    {PHI_SPLIT_O200K, {"don't", " DON'T", " we'LL"}},
    {PHI_SPLIT_O200K, {"'ſx", " '", "ſ"}},
    {PHI_SPLIT_O200K, {"123", "456", "7"}},
    {PHI_SPLIT_O200K, {"a", "1", "b", "22"}},
    {PHI_SPLIT_O200K, {"٣٤٥", "٦", " ", "ⅷ²"}},
    {PHI_SPLIT_O200K, {"!!!", " ??", "a"}},
    {PHI_SPLIT_O200K, {" ", " !", "a"}},
    {PHI_SPLIT_O200K, {"a", "\xC2\xA0" "b"}},
    {PHI_SPLIT_O200K, {"\xE3\x80\x80", "\xE3\x80\x80x"}},
    {PHI_SPLIT_O200K, {"\xC2\x85y"}},
    {PHI_SPLIT_O200K, {"it's", "'d"}},
    {PHI_SPLIT_O200K, {"Hello", "World", " HTTPServer"}},
    {PHI_SPLIT_O200K, {"ABCdef", " ǅx"}},
    {PHI_SPLIT_O200K, {"ΣΊΣΥΦΟΣ'S"}},
    {PHI_SPLIT_O200K, {"\xE0\xA4\xB9\xE0\xA4\xBF\xE0\xA4\xA8\xE0\xA5\x8D\xE0\xA4\xA6\xE0\xA5\x80"}},
    {PHI_SPLIT_O200K, {"e\xCC\x81", "A\xCC\x81"}},
    {PHI_SPLIT_O200K, {"\xCC\x81\xCC\x81", "ABC"}},
    {PHI_SPLIT_O200K, {"\xCC\x81", "!\xCC\x81", " \xCC\x81"}},
    {PHI_SPLIT_O200K, {"日本語テキスト"}},
    {PHI_SPLIT_O200K, {"ʰABʰ", "CD"}},
    {PHI_SPLIT_O200K, {"(foo", ")/", "bar", "\n", "/"}},
    {PHI_SPLIT_O200K, {"a", "/\r\n", "b"}},
    {PHI_SPLIT_O200K, {"\t", "\tx", "\ty"}},
    {PHI_SPLIT_O200K, {"\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA9", " x"}},
    {PHI_SPLIT_O200K, {"'"}},
    {PHI_SPLIT_O200K, {"''", "s"}},
    {PHI_SPLIT_O200K, {" '", "s"}},
    {PHI_SPLIT_O200K, {"x", "'"}},
    {PHI_SPLIT_O200K, {"\xE2\x80\xA8" "a", "\xE2\x80\x8B" "b"}},
};
/* clang-format on */

static void test_words(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[256] = "";
        for (int w = 0; w < MAX_WORDS && rows[i].words[w]; w++)
            strcat(text, rows[i].words[w]);
        struct phi_str left = phi_str_from(text);
        for (int w = 0; w < MAX_WORDS && rows[i].words[w]; w++) {
            size_t n = phi_pretokenize_next(rows[i].pattern, left);
            if (!phi_str_eq_c((struct phi_str){left.data, n}, rows[i].words[w]))
                fail_msg("row %zu: word %d is \"%.*s\", expected \"%s\"", i, w, (int)n, left.data,
                         rows[i].words[w]);
            left.data += n;
            left.n -= n;
        }
        assert_int_equal(left.n, 0);
    }
}

static void test_none(void **state)
{
    (void)state;
    assert_int_equal(phi_pretokenize_next(PHI_SPLIT_NONE, PHI_STR("a b c")), 5);
}

static void test_recognize(void **state)
{
    (void)state;
    enum phi_split_pattern p = PHI_SPLIT_NONE;
    struct phi_str gpt2 = PHI_STR("'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+"
                                  "| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+");
    assert_true(phi_pretokenize_recognize(gpt2, &p));
    assert_int_equal(p, PHI_SPLIT_GPT2);
    assert_false(phi_pretokenize_recognize((struct phi_str){gpt2.data, gpt2.n - 1}, &p));
    assert_false(phi_pretokenize_recognize(PHI_STR("\\p{L}+"), &p));
    assert_false(phi_pretokenize_recognize(PHI_STR(""), &p));
}

/* How many characters Unicode 16.0 has of each class, and some that are new in it. */
static void test_tables(void **state)
{
    (void)state;
    static const int expected[] = {1889, 2258, 136881, 2501, 1911, 25, 144667};
    int n[7] = {0};
    for (uint32_t cp = 0; cp <= 0x10FFFF; cp++)
        for (int bit = 0; bit < 7; bit++)
            n[bit] += phi_unicode_class(cp) >> bit & 1;
    for (int bit = 0; bit < 7; bit++)
        assert_int_equal(n[bit], expected[bit]);
    assert_int_equal(phi_unicode_class('a'), PHI_CHAR_LOWER | PHI_CHAR_WORD);
    assert_int_equal(phi_unicode_class(0x0301), PHI_CHAR_MARK | PHI_CHAR_WORD);
    assert_int_equal(phi_unicode_class(0x1C89), PHI_CHAR_UPPER | PHI_CHAR_WORD);
    assert_int_equal(phi_unicode_class(0x10D40), PHI_CHAR_NUMBER | PHI_CHAR_WORD);
    assert_int_equal(phi_unicode_class(0x10FFFF), 0);
}

/* How long it takes to cut up `n` repetitions of a unit. */
static double seconds_for(enum phi_split_pattern pattern, const char *unit, size_t n)
{
    size_t unit_bytes = strlen(unit);
    char *text = malloc(n * unit_bytes);
    assert_non_null(text);
    for (size_t i = 0; i < n; i++)
        memcpy(text + i * unit_bytes, unit, unit_bytes);
    struct phi_str left = {text, n * unit_bytes};
    double start = phi_clock_s();
    while (left.n) {
        size_t n_word = phi_pretokenize_next(pattern, left);
        left.data += n_word;
        left.n -= n_word;
    }
    double seconds = phi_clock_s() - start;
    free(text);
    return seconds;
}

/* A million characters in one run, of every kind that a pattern may run over: a quadratic scanner
 * would not come to an end. The ratio of the times is printed. */
static void test_long_runs(void **state)
{
    (void)state;
    static const char *units[] = {"a",  "A",   "1",      "!",      " ",        "\n",     "'",
                                  "'s", " \n", "\u65e5", "\u0301", "A\u0301!", "\u0301A"};
    for (int p = PHI_SPLIT_GPT2; p <= PHI_SPLIT_O200K; p++)
        for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
            double half = seconds_for((enum phi_split_pattern)p, units[i], 500000);
            double full = seconds_for((enum phi_split_pattern)p, units[i], 1000000);
            if (i == 0)
                print_message("# pattern %d: a million letters take %.1f ms, %.2f times half of "
                              "them\n",
                              p, full * 1e3, full / half);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),     cmocka_unit_test(test_none),
        cmocka_unit_test(test_recognize), cmocka_unit_test(test_tables),
        cmocka_unit_test(test_long_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
