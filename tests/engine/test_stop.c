/* Stop strings: known cases, and random texts cut at random places against a search of the whole
 * text. */
#include "engine/stop.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

static struct phi_stop_set make_set(const char *const *strings, size_t n)
{
    struct phi_text texts[8];
    struct phi_stop_set set;
    for (size_t i = 0; i < n; i++)
        texts[i] = (struct phi_text){strings[i], strlen(strings[i])};
    assert_int_equal(phi_stop_set_init(&set, texts, n, NULL), PHI_OK);
    return set;
}

/* Feeds pieces; "|" stands between what comes out after each. */
static int feed(const struct phi_stop_set *set, bool include, const char *const *pieces,
                struct phi_buf *out)
{
    struct phi_stop_matcher m;
    int match = -1;
    assert_int_equal(phi_stop_matcher_init(&m, set, include, NULL), PHI_OK);
    for (; *pieces && match < 0; pieces++) {
        bool armed = **pieces != '~'; /* a piece before min_tokens */
        match = phi_stop_matcher_push(&m, phi_str_from(*pieces + !armed), armed, out);
        phi_buf_append_char(out, '|');
    }
    if (match < 0)
        phi_stop_matcher_finish(&m, out);
    phi_stop_matcher_deinit(&m);
    return match;
}

static void test_cases(void **state)
{
    (void)state;
    static const struct {
        const char *stops[4], *pieces[6], *out;
        bool include;
        int match;
    } cases[] = {
        {{"stop"}, {"a st", "op b"}, "a ||", false, 0},
        {{"stop"}, {"a st", "op b"}, "a st|op|", true, 0},
        {{"stop"}, {"a st", "ay"}, "a |stay|", false, -1},
        {{"stop"}, {"a sto"}, "a |sto", false, -1},
        {{"aab"}, {"aaa", "ab"}, "a|a|", false, 0},
        {{"b", "ab"}, {"xab"}, "x|", false, 1},    /* the longest of those that end together */
        {{"abc", "b"}, {"xabc"}, "xa|", false, 1}, /* the first that is complete */
        {{"abc", "bd"}, {"ab", "d"}, "|a|", false, 1},
        {{"\n\n"}, {"x\n", "y\n", "\nz"}, "x|\ny||", false, 0},
        {{"ab"}, {"~ab", "ab"}, "ab||", false, 0},
        {{"ab"}, {"~a", "b"}, "||", false, 0}, /* begun before min_tokens, complete after */
        {{"aa"}, {"~aa", "a"}, "a||", false, 0},
        {{"\xc3\xa9"}, {"caf", "\xc3\xa9"}, "caf||", false, 0},
        {{"x"}, {"", "", "x"}, "|||", false, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n = 0;
        while (n < 4 && cases[i].stops[n])
            n++;
        struct phi_stop_set set = make_set(cases[i].stops, n);
        struct phi_buf out = {0};
        assert_int_equal(feed(&set, cases[i].include, cases[i].pieces, &out), cases[i].match);
        assert_string_equal(out.data, cases[i].out);
        phi_buf_deinit(&out);
        phi_stop_set_deinit(&set);
    }
}

static void test_invalid(void **state)
{
    (void)state;
    struct phi_stop_set set;
    struct phi_error err;
    struct phi_text bad[] = {{"ok", 2}, {"", 0}};
    assert_int_equal(phi_stop_set_init(&set, bad, 2, &err), PHI_ERR_INVALID);
    assert_string_equal(err.text, "stop cannot contain an empty string.");
    bad[1] = (struct phi_text){"\xff", 1};
    assert_int_equal(phi_stop_set_init(&set, bad, 2, &err), PHI_ERR_INVALID);
    assert_string_equal(err.text, "stop[1] is not valid UTF-8.");
}

/* The earliest end, then the longest: by looking at every place of the whole text. */
static int search(const struct phi_stop_set *set, struct phi_str text, size_t armed_from,
                  bool include, size_t *end_of_text)
{
    for (size_t end = armed_from + 1; end <= text.n; end++) {
        int best = -1;
        for (size_t i = 0; i < set->n_strings; i++) {
            struct phi_str s = {set->strings[i].text, set->strings[i].n};
            bool longer = best < 0 || s.n > set->strings[best].n;
            if (longer && phi_str_ends_with((struct phi_str){text.data, end}, s))
                best = (int)i;
        }
        if (best >= 0) {
            *end_of_text = include ? end : end - set->strings[best].n;
            return best;
        }
    }
    *end_of_text = text.n;
    return -1;
}

static void test_random_cuts(void **state)
{
    (void)state;
    srand(1);
    int n_matches = 0;
    for (int trial = 0; trial < 20000; trial++) {
        char stops[3][8] = {{0}}, text[64];
        const char *list[3];
        size_t n_stops = 1 + (size_t)rand() % 3, n_text = (size_t)rand() % 40,
               from = (size_t)rand() % 6;
        for (size_t i = 0; i < n_stops; i++) {
            for (int j = 1 + rand() % 5; j > 0; j--)
                stops[i][j - 1] = (char)('a' + rand() % 2);
            list[i] = stops[i];
        }
        for (size_t i = 0; i < n_text; i++)
            text[i] = (char)('a' + rand() % 3);
        bool include = rand() % 2;
        struct phi_stop_set set = make_set(list, n_stops);
        size_t end, at = 0;
        from = from < n_text ? from : n_text;
        int expected = search(&set, (struct phi_str){text, n_text}, from, include, &end);

        struct phi_stop_matcher m;
        struct phi_buf out = {0};
        int match = -1;
        assert_int_equal(phi_stop_matcher_init(&m, &set, include, NULL), PHI_OK);
        while (at < n_text && match < 0) {
            size_t n = 1 + (size_t)rand() % 4, left = (at < from ? from : n_text) - at;
            n = n < left ? n : left;
            match = phi_stop_matcher_push(&m, (struct phi_str){text + at, n}, at >= from, &out);
            at += n;
            assert_true(out.n <= end);
        }
        if (match < 0)
            phi_stop_matcher_finish(&m, &out);
        assert_int_equal(match, expected);
        assert_int_equal(out.n, end);
        if (out.n)
            assert_memory_equal(out.data, text, end);
        n_matches += match >= 0;
        phi_buf_deinit(&out);
        phi_stop_matcher_deinit(&m);
        phi_stop_set_deinit(&set);
    }
    assert_true(n_matches > 5000 && n_matches < 19000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_invalid),
        cmocka_unit_test(test_random_cuts),
    };
    return cmocka_run_group_tests_name("engine/stop", tests, NULL, NULL);
}
