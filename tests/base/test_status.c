/* test_status.c: error texts, and the log lines that share their rules. */
#include "base/log.h"
#include "base/status.h"
#include "base/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static void test_fail_fills(void **state)
{
    (void)state;
    struct phi_error err = {0};
    assert_int_equal(phi_fail(&err, PHI_ERR_IO, "%s: byte %d", "file", 7), PHI_ERR_IO);
    assert_int_equal(err.code, PHI_ERR_IO);
    assert_string_equal(err.text, "file: byte 7");
    assert_int_equal(phi_fail(NULL, PHI_ERR_FORMAT, "unseen"), PHI_ERR_FORMAT);
}

static void test_memory(void **state)
{
    (void)state;
    struct phi_error err = {0};
    assert_int_equal(phi_fail_memory(&err, "the table", 123), PHI_ERR_MEMORY);
    assert_string_equal(err.text, "out of memory: 123 bytes for the table");
}

static void test_prefix(void **state)
{
    (void)state;
    struct phi_error err = {0};
    phi_fail(&err, PHI_ERR_FORMAT, "bad byte");
    assert_int_equal(phi_fail_prefix(&err, PHI_ERR_IO, "shard %d", 2), PHI_ERR_FORMAT);
    assert_string_equal(err.text, "shard 2: bad byte");
    assert_int_equal(phi_fail_prefix(NULL, PHI_ERR_IO, "x"), PHI_ERR_IO);
}

/* The old text may be an argument of the new one. */
static void test_own_text_as_argument(void **state)
{
    (void)state;
    struct phi_error err = {0};
    phi_fail(&err, PHI_ERR_IO, "inner");
    phi_fail(&err, PHI_ERR_IO, "outer: %s", err.text);
    assert_string_equal(err.text, "outer: inner");
}

/* Whatever a hostile file holds, the text is one line of valid UTF-8. */
static void test_text_is_one_line(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } rows[] = {
        {"a\nb\r\tc\x1b[31m\x7f", "a?b??c?[31m?"},
        {"caf\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80", "caf\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80"},
        {"\xFF\xC3", "??"},
        {"x\xE2\x82", "x??"},
        {"\xED\xA0\x80", "???"},
        {"\xC2\x85|\xC2\x9B|\xC2\xA0", "??|??|\xC2\xA0"}, /* C1 controls move the cursor too */
    };
    struct phi_error err;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        phi_fail(&err, PHI_ERR_IO, "%s", rows[i].in);
        assert_string_equal(err.text, rows[i].out);
    }
}

/* A text that is cut to fit is not cut inside a character. */
static void test_long_text_is_cut(void **state)
{
    (void)state;
    char text[3000];
    struct phi_error err;
    for (size_t shift = 0; shift < 3; shift++) {
        memset(text, 'a', shift);
        for (size_t i = shift; i + 3 < sizeof text; i += 3)
            memcpy(text + i, "\xE2\x82\xAC", 4);
        phi_fail(&err, PHI_ERR_IO, "%s", text);
        size_t n = strlen(err.text);
        assert_in_range(n, sizeof err.text - 4, sizeof err.text - 1);
        assert_true(phi_utf8_valid(phi_str_from(err.text)));
        assert_null(strchr(err.text, '?'));
    }
}

static enum phi_status chain(int depth, struct phi_error *err)
{
    if (depth == 0)
        return phi_fail(err, PHI_ERR_NAN, "deep");
    PHI_TRY(chain(depth - 1, err));
    return PHI_OK;
}

static void test_try_passes_on(void **state)
{
    (void)state;
    struct phi_error err;
    assert_int_equal(chain(5, &err), PHI_ERR_NAN);
    assert_string_equal(err.text, "deep");
}

static void test_names_differ(void **state)
{
    (void)state;
    for (int a = PHI_OK; a >= PHI_ERR_BUSY; a--)
        for (int b = PHI_OK; b > a; b--)
            assert_string_not_equal(phi_status_name((enum phi_status)a),
                                    phi_status_name((enum phi_status)b));
    assert_string_equal(phi_status_name((enum phi_status) - 1000), "unknown");
}

static char last_line[4096];
static enum phi_log_level last_level;

static void remember(void *context, int level, const char *line)
{
    assert_ptr_equal(context, &last_level);
    last_level = level;
    snprintf(last_line, sizeof last_line, "%s", line);
}

static void test_log(void **state)
{
    (void)state;
    phi_log(PHI_LOG_ERROR, "nobody listens");
    phi_log_set_sink(remember, &last_level);
    phi_log(PHI_LOG_WARNING, "%s: %d", "file\nname", 3);
    assert_int_equal(last_level, PHI_LOG_WARNING);
    assert_string_equal(last_line, "file?name: 3");
    phi_log_set_sink(NULL, NULL);
    phi_log(PHI_LOG_ERROR, "nobody listens");
    assert_string_equal(last_line, "file?name: 3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fail_fills),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_prefix),
        cmocka_unit_test(test_own_text_as_argument),
        cmocka_unit_test(test_text_is_one_line),
        cmocka_unit_test(test_long_text_is_cut),
        cmocka_unit_test(test_try_passes_on),
        cmocka_unit_test(test_names_differ),
        cmocka_unit_test(test_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
