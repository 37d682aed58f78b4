/* test_json.c: parsing is strict and says where; field readers say what they expected. */
#include "formats/json.h"
#include "base/alloc.h"

#include "../temp_folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <cmocka.h>

#include "faults.h"

static void assert_contains(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" does not contain \"%s\"", text, part);
}

static json_t *parse(struct phi_str text)
{
    json_t *root;
    struct phi_error err;
    if (phi_json_parse(text, "test.json", &root, &err) != PHI_OK)
        fail_msg("%s", err.text);
    return root;
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        struct phi_str text;
        const char *where;
    } rows[] = {
        {{"", 0}, "line 1"},
        {{NULL, 0}, "line 1"},
        {PHI_STR("{"), "line 1 column 1"},
        {PHI_STR("{}\n}"), "line 2 column 1 (byte 4)"},
        {PHI_STR("{} {}"), "line 1 column 4 (byte 4)"},
        {PHI_STR("{\"a\": 1,\n \"b\": }"), "line 2 column 7 (byte 16)"},
        {PHI_STR("{\"a\": 1, \"a\": 2}"), "duplicate"},
        {PHI_STR("[1, 2,]"), "line 1"},
        {PHI_STR("{'a': 1}"), "line 1"},
        {PHI_STR("[NaN]"), "line 1"},
        {PHI_STR("[Infinity]"), "line 1"},
        {PHI_STR("[1e999]"), "overflow"},
        {PHI_STR("[9223372036854775808]"), "too big"},
        {PHI_STR("[01]"), "line 1"},
        {PHI_STR("[\"\xFF\"]"), "unable to decode byte"},
        {PHI_STR("[\"\xED\xA0\x80\"]"), "unable to decode byte"},
        {PHI_STR("[\"\\ud800\"]"), "invalid Unicode"},
        {PHI_STR("[\"a\nb\"]"), "unexpected newline"},
        {PHI_STR("{\"a\\u0000b\": 1}"), "NUL"},
        {PHI_STR("[1]\0"), "line 1"},
        {PHI_STR("\xEF\xBB\xBF{}"), "line 1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *root = (json_t *)&root;
        struct phi_error err = {0};
        assert_int_equal(phi_json_parse(rows[i].text, "dir/test.json", &root, &err),
                         PHI_ERR_FORMAT);
        assert_null(root);
        assert_contains(err.text, "dir/test.json: not valid JSON: ");
        assert_contains(err.text, rows[i].where);
    }
}

static void test_deep_nesting(void **state)
{
    (void)state;
    enum { DEPTH = 100000 };
    char *text = malloc(2 * DEPTH);
    json_t *root;
    memset(text, '[', DEPTH);
    memset(text + DEPTH, ']', DEPTH);
    struct phi_error err;
    assert_int_equal(phi_json_parse((struct phi_str){text, 2 * DEPTH}, "deep", &root, &err),
                     PHI_ERR_FORMAT);
    assert_contains(err.text, "depth");
    free(text);
}

static void test_accepted(void **state)
{
    (void)state;
    json_t *root =
        parse(PHI_STR(" {\"s\": \"a\\u0000b\xC3\xA9\", \"big\": 9223372036854775807} \n"));
    struct phi_str s = {0};
    assert_int_equal(phi_json_get_str(root, "n", "s", &s, NULL), PHI_OK);
    assert_int_equal(s.n, 5);
    assert_memory_equal(s.data, "a\0b\xC3\xA9", 5);
    int64_t big = 0;
    assert_int_equal(phi_json_get_int(root, "n", "big", INT64_MIN, INT64_MAX, &big, NULL), PHI_OK);
    assert_true(big == INT64_MAX);
    json_decref(root);
    root = parse(PHI_STR("\"a bare value\""));
    assert_true(json_is_string(root));
    json_decref(root);
}

static void test_file(void **state)
{
    (void)state;
    struct temp_folder folder;
    struct phi_error err;
    json_t *root;
    temp_folder_open(&folder);
    temp_write(&folder, "a.json", "{\"a\": 1}", 8);
    temp_write(&folder, "b.json", "{\"a\": 1}}", 9);
    assert_int_equal(phi_json_parse_file(temp_path(&folder, "a.json"), 8, &root, NULL), PHI_OK);
    json_decref(root);
    assert_int_equal(phi_json_parse_file(temp_path(&folder, "a.json"), 7, &root, &err),
                     PHI_ERR_TOO_LONG);
    assert_int_equal(phi_json_parse_file(temp_path(&folder, "b.json"), 99, &root, &err),
                     PHI_ERR_FORMAT);
    assert_contains(err.text, "/b.json: not valid JSON: line 1 column 9 (byte 9)");
    assert_int_equal(phi_json_parse_file(temp_path(&folder, "c.json"), 99, &root, &err),
                     PHI_ERR_IO);
    assert_null(root);
    temp_folder_close(&folder);
}

/* --- field readers --- */

static const char fields[] = "{\"i\": -7, \"r\": 1.5, \"t\": true, \"f\": false, \"s\": \"x\", "
                             "\"n\": null, \"a\": [], \"o\": {}}";

static void test_values(void **state)
{
    (void)state;
    json_t *root = parse(phi_str_from(fields));
    int64_t i = 0;
    double r = 0;
    bool b = false;
    struct phi_str s = {0};
    assert_int_equal(phi_json_get_int(root, "f", "i", -7, -7, &i, NULL), PHI_OK);
    assert_int_equal(i, -7);
    assert_int_equal(phi_json_get_number(root, "f", "r", &r, NULL), PHI_OK);
    assert_true(r == 1.5);
    assert_int_equal(phi_json_get_number(root, "f", "i", &r, NULL), PHI_OK);
    assert_true(r == -7); /* an integer is a number */
    assert_int_equal(phi_json_get_bool(root, "f", "t", &b, NULL), PHI_OK);
    assert_true(b);
    assert_int_equal(phi_json_get_bool(root, "f", "f", &b, NULL), PHI_OK);
    assert_false(b);
    assert_int_equal(phi_json_get_str(root, "f", "s", &s, NULL), PHI_OK);
    assert_true(phi_str_eq_c(s, "x"));
    assert_non_null(phi_json_field(root, "a"));
    assert_null(phi_json_field(root, "n"));
    assert_null(phi_json_field(root, "missing"));
    assert_null(phi_json_field(NULL, "a"));
    json_decref(root);
}

/* A missing or null field leaves the caller's default in place. */
static void test_absent(void **state)
{
    (void)state;
    json_t *root = parse(phi_str_from(fields));
    static const char *const absent[] = {"n", "missing"};
    for (size_t k = 0; k < 2; k++) {
        int64_t i = 11;
        double r = 2.5;
        bool b = true;
        struct phi_str s = PHI_STR("default");
        assert_int_equal(phi_json_get_int(root, "f", absent[k], 0, 1, &i, NULL), PHI_OK);
        assert_int_equal(phi_json_get_number(root, "f", absent[k], &r, NULL), PHI_OK);
        assert_int_equal(phi_json_get_bool(root, "f", absent[k], &b, NULL), PHI_OK);
        assert_int_equal(phi_json_get_str(root, "f", absent[k], &s, NULL), PHI_OK);
        assert_int_equal(i, 11);
        assert_true(r == 2.5 && b);
        assert_true(phi_str_eq_c(s, "default"));
    }
    json_decref(root);
}

static void test_wrong_types(void **state)
{
    (void)state;
    static const struct {
        char reader; /* i, r, b or s */
        const char *field, *text;
    } rows[] = {
        {'i', "r", "file: r: expected an integer, found a number with a fraction"},
        {'i', "s", "file: s: expected an integer, found a string"},
        {'i', "t", "file: t: expected an integer, found a boolean"},
        {'i', "i", "file: i: -7 is not between 0 and 10"},
        {'r', "f", "file: f: expected a number, found a boolean"},
        {'r', "a", "file: a: expected a number, found an array"},
        {'b', "i", "file: i: expected true or false, found an integer"},
        {'b', "o", "file: o: expected true or false, found an object"},
        {'s', "i", "file: i: expected a string, found an integer"},
    };
    json_t *root = parse(phi_str_from(fields));
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        int64_t i = 1;
        double r = 1;
        bool b = true;
        struct phi_str s = {0};
        struct phi_error err = {0};
        enum phi_status status =
            rows[k].reader == 'i'   ? phi_json_get_int(root, "file", rows[k].field, 0, 10, &i, &err)
            : rows[k].reader == 'r' ? phi_json_get_number(root, "file", rows[k].field, &r, &err)
            : rows[k].reader == 'b' ? phi_json_get_bool(root, "file", rows[k].field, &b, &err)
                                    : phi_json_get_str(root, "file", rows[k].field, &s, &err);
        assert_int_equal(status, PHI_ERR_FORMAT);
        assert_string_equal(err.text, rows[k].text);
        assert_true(i == 1 && r == 1 && b && s.n == 0); /* outputs stay as they were */
    }
    json_decref(root);
}

static enum phi_status parse_sample(void *context, struct phi_error *err)
{
    json_t *root;
    enum phi_status status = phi_json_parse(*(struct phi_str *)context, "sample", &root, err);
    json_decref(root);
    return status;
}

static void test_out_of_memory(void **state)
{
    (void)state;
    struct phi_str text = PHI_STR(
        "{\"a\": [1, 2.5, \"a longer string than the parser's first buffer holds\", null,"
        " true], \"b\": {\"c\": {\"d\": 1, \"e\": 2, \"f\": 3, \"g\": 4, \"h\": 5, \"i\": 6,"
        " \"j\": 7, \"k\": 8, \"l\": 9, \"m\": 10, \"n\": 11}}}");
    assert_true(for_each_failing_allocation(parse_sample, &text) > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),     cmocka_unit_test(test_deep_nesting),
        cmocka_unit_test(test_accepted),    cmocka_unit_test(test_file),
        cmocka_unit_test(test_values),      cmocka_unit_test(test_absent),
        cmocka_unit_test(test_wrong_types), cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
