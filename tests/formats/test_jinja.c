/* test_jinja.c: the template language. Most of it is a table made by the reference
 * (jinja_cases.jsonl, written by gen_jinja_cases.py); here are also the errors' lines, the bounds,
 * and failing memory. */
#include "base/alloc.h"
#include "base/file.h"
#include "formats/jinja/jinja.h"
#include "formats/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

static enum phi_status render(struct phi_str source, const json_t *vars, struct phi_buf *out,
                              struct phi_error *err)
{
    struct phi_jinja *t;
    struct phi_jinja_run r;
    struct phi_jinja_value values;
    PHI_TRY(phi_jinja_open(source, "t", &t, err));
    phi_jinja_run_init(&r, t, 0, err);
    enum phi_status status = PHI_OK;
    if (vars) {
        status = phi_jinja_from_json(&r, vars, false, &values);
        r.variables = values.dict;
    }
    if (status == PHI_OK)
        status = phi_jinja_render(t, &r, out);
    phi_jinja_run_deinit(&r);
    phi_jinja_close(t);
    return status;
}

/* ---- the reference's table ---- */

/* Whether the case comes out as the reference says; prints it when not. */
static bool case_holds(const json_t *c, const json_t *vars)
{
    struct phi_buf out = {0};
    struct phi_error err = {0};
    const json_t *text = json_object_get(c, "text");
    struct phi_str source = phi_json_str(json_object_get(c, "template"));
    enum phi_status status = render(source, vars, &out, &err);
    bool holds;
    if (text) {
        holds = status == PHI_OK && phi_str_eq(phi_buf_str(&out), phi_json_str(text));
    } else {
        const char *message = json_string_value(json_object_get(c, "error"));
        holds = status != PHI_OK && status != PHI_ERR_INTERNAL;
        if (json_is_true(json_object_get(c, "same")))
            holds &= strstr(err.text, message) != NULL;
    }
    if (!holds)
        print_error("%.*s\n    gives %s\n", (int)source.n, source.data,
                    status == PHI_OK ? out.data ? out.data : "" : err.text);
    phi_buf_deinit(&out);
    return holds;
}

static void cases_of_the_reference(void **state)
{
    (void)state;
    char path[4096], *rest;
    struct phi_buf file = {0};
    struct phi_error err = {0};
    json_t *vars = NULL;
    int n = 0, n_bad = 0;
    snprintf(path, sizeof path, "%s/formats/jinja_cases.jsonl", getenv("PHI_TESTS"));
    assert_int_equal(phi_file_read(path, 1 << 24, &file, &err), PHI_OK);
    for (char *line = strtok_r(file.data, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        json_t *c;
        assert_int_equal(phi_json_parse(phi_str_from(line), path, &c, &err), PHI_OK);
        if (!vars) {
            vars = json_incref(json_object_get(c, "vars"));
        } else {
            n++;
            n_bad += !case_holds(c, vars);
        }
        json_decref(c);
    }
    assert_true(n > 1000);
    assert_int_equal(n_bad, 0);
    json_decref(vars);
    phi_buf_deinit(&file);
}

/* ---- errors say where ---- */

static void errors_name_the_line(void **state)
{
    (void)state;
    static const struct {
        const char *source;
        enum phi_status status;
        const char *text;
    } cases[] = {
        {"a\n{{ x.y }}", PHI_ERR_INVALID, "t:2: 'x' is undefined"},
        {"\n\n{% for i in [1] %}\n{{ 1 + 'a' }}{% endfor %}", PHI_ERR_INVALID, "t:4: "},
        {"{{ 1\n+\n'a' }}", PHI_ERR_INVALID, "t:1: "},
        {"{#\n\n#}{{ raise_exception('No!') }}", PHI_ERR_INVALID, "t:3: No!"},
        {"{% raw %}\n\n{% endraw %}{{ none.x.y }}", PHI_ERR_INVALID,
         "t:3: 'None' has no attribute 'x'"},
        {"{{ 'a\n' }}{{ [] < 1 }}", PHI_ERR_INVALID, "t:2: '<' not supported"},
        {"\n{% if %}", PHI_ERR_FORMAT, "t:2: Expected an expression"},
        {"\n{% nosuch %}", PHI_ERR_FORMAT, "t:2: Encountered unknown tag 'nosuch'"},
        {"\n\n{% include 'x' %}", PHI_ERR_UNSUPPORTED, "t:3: the statement 'include'"},
        {"\n{% import 'x' as y %}", PHI_ERR_UNSUPPORTED, "'import'"},
        {"\n{% extends 'x' %}", PHI_ERR_UNSUPPORTED, "'extends'"},
        {"{% if true %}\n", PHI_ERR_FORMAT, "'elif' is missing"},
        {"\n{{ 1|nosuch }}", PHI_ERR_FORMAT, "t:2: No filter named 'nosuch'"},
        {"\n{{ 1 is nosuch }}", PHI_ERR_FORMAT, "t:2: No test named 'nosuch'"},
        {"{% if true %}\n{{ 1|nosuch }}{% endif %}", PHI_ERR_INVALID,
         "t:2: No filter named 'nosuch'"},
        {"\n{{ 'a'|wordwrap }}", PHI_ERR_UNSUPPORTED, "t:2: 'wordwrap'"},
        {"\n{{ 'a'.casefold() }}", PHI_ERR_UNSUPPORTED, "t:2: 'casefold'"},
        {"\n{{ lipsum() }}", PHI_ERR_UNSUPPORTED, "t:2: 'lipsum'"},
        {"\n{% break %}", PHI_ERR_FORMAT, "t:2: break"},
        {"\n{{ 'abc }}", PHI_ERR_FORMAT, "t:2: a string without its closing quote"},
        {"\n{# abc", PHI_ERR_FORMAT, "t:2: Missing end of comment tag"},
        {"\n{{ (1] }}", PHI_ERR_FORMAT, "t:2: unexpected ']'"},
        {"\n{{ 1 ? 2 }}", PHI_ERR_FORMAT, "t:2: unexpected character '?'"},
        {"\n{{ 99999999999999999999 }}", PHI_ERR_FORMAT, "t:2: an integer beyond 64 bits"},
        {"\n{{ 9223372036854775807 + 1 }}", PHI_ERR_INVALID, "t:2: an integer beyond 64 bits"},
        {"{% macro m(a) %}\n{{ a.b }}{% endmacro %}\n{{ m() }}", PHI_ERR_INVALID,
         "t:2: parameter 'a' was not provided"},
        {"\n{{ '\\ud800' }}", PHI_ERR_FORMAT, "t:2: a string escape names no Unicode character"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct phi_buf out = {0};
        struct phi_error err = {0};
        enum phi_status status = render(phi_str_from(cases[i].source), NULL, &out, &err);
        if (status != cases[i].status || !strstr(err.text, cases[i].text))
            fail_msg("%s: %s, wanted %s", cases[i].source, err.text, cases[i].text);
        phi_buf_deinit(&out);
    }
}

/* ---- bounds ---- */

/* `unit` n times between begin and end. */
static struct phi_buf repeated(const char *begin, const char *unit, int n, const char *end)
{
    struct phi_buf b = {0};
    phi_buf_append_c(&b, begin);
    for (int i = 0; i < n; i++)
        phi_buf_append_c(&b, unit);
    phi_buf_append_c(&b, end);
    return b;
}

static void expect_refusal(struct phi_str source, const char *text)
{
    struct phi_buf out = {0};
    struct phi_error err = {0};
    enum phi_status status = render(source, NULL, &out, &err);
    if (status == PHI_OK || !strstr(err.text, text))
        fail_msg("%.*s...: %s, wanted %s", (int)(source.n < 60 ? source.n : 60), source.data,
                 err.text, text);
    phi_buf_deinit(&out);
}

static void nothing_runs_without_bound(void **state)
{
    (void)state;
    static const struct {
        const char *source, *text;
    } cases[] = {
        {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "steps"},
        {"{{ range(100001) }}", "Range too big"},
        {"{{ 'x' * 1000000000000 }}", "no memory for the text"},
        {"{{ '' * 9223372036854775807 }}{{ [1] * 9223372036854775807 }}", "memory"},
        {"{{ 'x'.center(1000000000000) }}", "no memory for the text"},
        {"{{ '%999999999d' % 1 }}", "width"},
        {"{{ '{:999999999}'.format(1) }}", "width"},
        {"{{ 'x'|indent(1000000000000) }}", "no memory for the text"},
        {"{{ [1]|tojson(indent=1000000000000) }}", "no memory for the text"},
        {"{{ [1]|batch(1000000000000, 'x')|list }}", "memory"},
        {"{% set n = namespace(s='x') %}{% for i in range(99) %}{% set n.s = n.s + n.s %}{% endfor "
         "%}",
         "no memory for the text"},
        {"{% set n = namespace(s='x') %}{% for i in range(99) %}{% set n.s = n.s ~ n.s %}{% endfor "
         "%}",
         "no memory for the text"},
        {"{% set n = namespace(s=[1]) %}{% for i in range(99) %}{% set n.s = n.s + n.s %}{% endfor "
         "%}",
         "memory"},
        {"{% set n = namespace(s=[1]) %}{% for i in range(99) %}{% set n.s = [n.s, n.s] %}{% "
         "endfor %}"
         "{{ n.s }}",
         ""},
        {"{% set n = namespace(s=[]) %}{% for i in range(9999) %}{% set n.s = [n.s] %}{% endfor %}"
         "{{ n.s }}",
         "levels deep"},
        {"{% set n = namespace(s=[]) %}{% for i in range(9999) %}{% set n.s = [n.s] %}{% endfor %}"
         "{{ n.s|tojson }}",
         "levels deep"},
        {"{% set n = namespace(s=[], q=[]) %}{% for i in range(9999) %}{% set n.s = [n.s] %}"
         "{% set n.q = [n.q] %}{% endfor %}{{ n.s == n.q }}",
         "levels deep"},
        {"{% set n = namespace(s=[], q=[]) %}{% for i in range(9999) %}{% set n.s = [n.s] %}"
         "{% set n.q = [n.q] %}{% endfor %}{{ n.s < n.q }}",
         "levels deep"},
        {"{% set n = namespace(s=()) %}{% for i in range(9999) %}{% set n.s = (n.s,) %}{% endfor %}"
         "{{ {n.s: 1} }}",
         "unhashable"},
        {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "levels deep"},
        {"{% macro f(x) %}{{ f(f) }}{% endmacro %}{{ f() }}", "levels deep"},
        {"{% macro f() %}{% call f() %}{% endcall %}{{ caller }}{% endmacro %}{{ f() }}",
         "levels deep"},
        {"{% for i in range(99999) %}{{ 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' * 20 "
         "}}"
         "{% endfor %}",
         "no memory for the text"},
        {"{% set n = namespace() %}{% for i in range(99999) %}{% set n.s = 'x' * 10000 %}{% endfor "
         "%}",
         "MB of memory"},
        {"{% set s = 'a' * 9999999 %}{% set p = 'a' * 999999 ~ 'b' %}{{ s.rfind(p) }}", "steps"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_refusal(phi_str_from(cases[i].source), cases[i].text);
}

/* Deep or long sources are refused, or run; they never overflow the stack. */
static void no_source_is_too_deep(void **state)
{
    (void)state;
    static const struct {
        const char *begin, *unit, *end;
    } cases[] = {
        {"{{ ", "(", "1"},
        {"{{ ", "[", "1"},
        {"{{ ", "{1:", "1"},
        {"{{ ", "-", "1 }}"},
        {"{{ ", "not ", "1 }}"},
        {"{{ 1", "+1", " }}"},
        {"{{ 1", "~1", " }}"},
        {"{{ 1", " and 1", " }}"},
        {"{{ 1", " if 1", " }}"},
        {"{{ 1", " if 1 else 1", " }}"},
        {"{{ 1", "|string", " }}"},
        {"{{ 1", " is defined", " }}"},
        {"{{ x", ".a", " }}"},
        {"{{ x", "[0]", " }}"},
        {"{{ x", "()", " }}"},
        {"{{ 1", " == 1", " }}"},
        {"{{ 1", " ** 1", " }}"},
        {"{{ x(", "x(", ""},
        {"", "{% if 1 %}", ""},
        {"", "{% for x in y %}", ""},
        {"", "{% macro m() %}", ""},
        {"", "{% set x %}", ""},
        {"", "{% filter upper %}", ""},
        {"{% if 0 %}", "{% elif 0 %}", "{% endif %}"},
        {"{{ \"", "\\\\", "\" }}"},
        {"", "{{ 1 }}", ""},
        {"{% set a", ",a", " = 1 %}"},
        {"{% set ", "(a,", "b) = 1 %}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct phi_buf source = repeated(cases[i].begin, cases[i].unit, 50000, cases[i].end);
        struct phi_buf out = {0};
        struct phi_error err = {0};
        enum phi_status status = render(phi_buf_str(&source), NULL, &out, &err);
        assert_true(status <= PHI_OK && status != PHI_ERR_INTERNAL);
        phi_buf_deinit(&out);
        phi_buf_deinit(&source);
    }
}

/* Real prompts are far from the bounds: a million characters over 2,000 messages. */
static void large_prompts_pass(void **state)
{
    (void)state;
    struct phi_buf out = {0};
    struct phi_error err = {0};
    json_t *messages = json_array(), *vars = json_pack("{s:o}", "messages", messages);
    struct phi_buf content = repeated("", "0123456789", 100, "");
    for (int i = 0; i < 2000; i++)
        json_array_append_new(
            messages,
            json_pack("{s:s, s:s}", "role", i % 2 ? "assistant" : "user", "content", content.data));
    struct phi_str source = PHI_STR("{% for m in messages %}{% set c = m.content|trim %}"
                                    "{{ '<|' + m['role'] + '|>' + c + '<|end|>' }}{% endfor %}");
    assert_int_equal(render(source, vars, &out, &err), PHI_OK);
    assert_int_equal(out.n, 2000 * (1000 + 11) + 1000 * (4 + 9));
    phi_buf_deinit(&out);
    phi_buf_deinit(&content);
    json_decref(vars);
}

static void text_is_counted(void **state)
{
    (void)state;
    struct phi_buf out = {0};
    struct phi_error err = {0};
    json_t *vars = json_pack("{s:s%}", "s", "a\0b", (size_t)3);
    struct phi_str source = PHI_STR("\0{{ s }}{{ s|length }}{{ s|tojson }}{{ '\0' }}\0");
    assert_int_equal(render(source, vars, &out, &err), PHI_OK);
    assert_true(phi_str_eq(phi_buf_str(&out), PHI_STR("\0a\0b3\"a\\u0000b\"\0\0")));
    json_decref(vars);
    phi_buf_deinit(&out);
    assert_int_equal(render(PHI_STR("a\xff"), NULL, &out, &err), PHI_ERR_FORMAT);
    assert_non_null(strstr(err.text, "byte 1 is not valid UTF-8"));
}

/* ---- failing memory ---- */

static void every_allocation_may_fail(void **state)
{
    (void)state;
    static const char source[] =
        "{# c #}{% set ns = namespace(a=1, s='') %}{% set x, y = 1, [2] %}"
        "{% macro m(a, b=2) %}{{ a }}{{ b }}{{ caller() if caller }}{{ kwargs }}{{ varargs }}{% "
        "endmacro %}"
        "{% call m(1, 2, 3, z=4) %}body{% endcall %}"
        "{% for k, v in {'a': 1, 'b': [1, 2.5, none]}.items() if v %}{{ loop.index }}{{ "
        "loop.length }}"
        "{{ k ~ v }}{% set ns.s = ns.s + k %}{% else %}none{% endfor %}"
        "{% set t | upper %}text{% endset %}{% filter replace('e', 'E') %}{{ t }}{% endfilter %}"
        "{{ [3, 1, 2]|sort|map('string')|join(', ') }}{{ [1, 2]|select('odd')|list }}"
        "{{ 'a,b c'.split(',') }}{{ 'x'.center(9) }}{{ '%05.1f|%s' % (1.5, 'q') }}{{ "
        "'{:>5}'.format('a') }}"
        "{{ {'a': [1, {'b': 'é'}], 'c': 1e-7}|tojson(indent=2, sort_keys=true) }}"
        "{{ [{'a': 1}, {'a': 2}]|groupby('a') }}{{ range(3)|list }}{{ 'abc'[::-1] }}{{ (1,) + (2,) "
        "}}"
        "{{ 'é'|upper|lower|title|capitalize|urlencode }}{{ '<'|e }}{{ dict(a=1)|dictsort }}"
        "{{ cycler(1, 2).next() }}{{ joiner()() }}{{ strftime_now('%Y') }}{{ [1, 2, "
        "3]|batch(2)|list }}"
        "{% for x in [[1], 2] recursive %}{{ loop(x) if x is iterable else x }}{% endfor %}"
        "{% generation %}g{% endgeneration %}{% with q = 1 %}{{ q }}{% endwith %}{% raw %}{{{% "
        "endraw %}";
    long n = 0;
    enum phi_status status;
    do {
        struct phi_buf out = {0};
        struct phi_error err = {0};
        phi_alloc_fail_nth(++n);
        status = render(PHI_STR(source), NULL, &out, &err);
        phi_alloc_fail_nth(0);
        if (status != PHI_OK)
            assert_int_equal(status, PHI_ERR_MEMORY);
        else
            assert_non_null(out.data);
        phi_buf_deinit(&out);
    } while (status != PHI_OK && n < 100000);
    assert_int_equal(status, PHI_OK);
    assert_true(n > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cases_of_the_reference),     cmocka_unit_test(errors_name_the_line),
        cmocka_unit_test(nothing_runs_without_bound), cmocka_unit_test(no_source_is_too_deep),
        cmocka_unit_test(large_prompts_pass),         cmocka_unit_test(text_is_counted),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
