/* test_json_out.c: the JSON writer, and the forms of log probabilities, on rows that no model gives
 * on demand: -infinity, padding, different tokens of one text. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "server/api/logprobs_out.h"
#include "service.h"

static void expect_written(struct phi_buf *b, const char *text)
{
    assert_false(b->failed);
    assert_string_equal(b->data, text);
    phi_buf_deinit(b);
}

static void test_nesting(void **state)
{
    (void)state;
    struct phi_buf b = {0};
    struct phi_out o = {.buf = &b};
    phi_out_open(&o, NULL, '{');
    phi_out_int(&o, "a", INT64_MIN);
    phi_out_open(&o, "b", '[');
    phi_out_bool(&o, NULL, true);
    phi_out_null(&o, NULL);
    phi_out_open(&o, NULL, '{');
    phi_out_close(&o, '}');
    phi_out_ids(&o, NULL, (const int32_t[]){-1, 2}, 2);
    phi_out_ids(&o, NULL, NULL, 0);
    phi_out_close(&o, ']');
    phi_out_c(&o, "c", NULL);
    phi_out_key(&o, PHI_STR("d\"\0e"));
    phi_out_c(&o, NULL, "x");
    phi_out_raw(&o, "f", "[1]");
    json_t *value = json_pack("{s:[i,s]}", "k", 1, "\xc3\xa9");
    phi_out_value(&o, "g", value);
    phi_out_close(&o, '}');
    json_decref(value);
    expect_written(&b, "{\"a\":-9223372036854775808,\"b\":[true,null,{},[-1,2],[]],\"c\":null,"
                       "\"d\\\"\\u0000e\":\"x\",\"f\":[1],\"g\":{\"k\":[1,\"\xc3\xa9\"]}}");
}

/* Every byte of a text comes back. */
static void test_texts(void **state)
{
    (void)state;
    struct phi_buf b = {0};
    struct phi_out o = {.buf = &b};
    char text[128];
    for (int i = 0; i < 128; i++)
        text[i] = (char)i;
    phi_out_text(&o, NULL, (struct phi_str){text, sizeof text});
    json_t *read = json_loadb(b.data, b.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    assert_non_null(read);
    assert_int_equal(json_string_length(read), sizeof text);
    assert_memory_equal(json_string_value(read), text, sizeof text);
    json_decref(read);
    phi_buf_clear(&b);
    o.comma = false;
    phi_out_text(&o, NULL, PHI_STR("\b\f\n\r\t\"\\/\x01\xf0\x9f\x98\x80"));
    expect_written(&b, "\"\\b\\f\\n\\r\\t\\\"\\\\/\\u0001\xf0\x9f\x98\x80\"");
}

static void test_reals(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } rows[] = {
        {0, "0.0"},       {-1, "-1.0"},       {0.1f, "0.1"}, {1.0f / 3, "0.33333334"},
        {1e-30, "1e-30"}, {-9999, "-9999.0"}, {NAN, "null"}, {-INFINITY, "null"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct phi_buf b = {0};
        struct phi_out o = {.buf = &b};
        phi_out_real(&o, NULL, rows[i].value);
        expect_written(&b, rows[i].text);
    }
    /* and any float32 comes back as it was */
    uint32_t bits = 1;
    for (int i = 0; i < 2000; i++) {
        float f;
        struct phi_buf b = {0};
        struct phi_out o = {.buf = &b};
        bits = bits * 1664525u + 1013904223u;
        memcpy(&f, &bits, sizeof f);
        if (!isfinite(f))
            continue;
        phi_out_real(&o, NULL, (double)f);
        assert_true(strtof(b.data, NULL) == f);
        phi_buf_deinit(&b);
    }
}

/* Memory that runs out shows once, at the end. */
static void test_failing_memory(void **state)
{
    (void)state;
    struct phi_buf b = {0};
    struct phi_out o = {.buf = &b};
    phi_out_open(&o, NULL, '[');
    phi_alloc_fail_nth(1);
    for (int i = 0; i < 1000; i++)
        phi_out_int(&o, NULL, i);
    phi_alloc_fail_nth(0);
    phi_out_close(&o, ']');
    assert_true(b.failed);
    phi_buf_deinit(&b);
}

/* ---------------------------------------------------------------- log probabilities */

static struct service code;

static int setup(void **state)
{
    (void)state;
    service_open(&code, "phi-tiny-code", NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    service_close(&code);
    return 0;
}

static json_t *parsed(struct phi_buf *b)
{
    json_error_t error;
    assert_false(b->failed);
    json_t *value = json_loadb(b->data, b->n, JSON_REJECT_DUPLICATES, &error);
    if (!value)
        fail_msg("%s: %s", error.text, b->data);
    phi_buf_deinit(b);
    return value;
}

/* The ids of a text. */
static int32_t *ids_of(const char *text, size_t *n)
{
    int32_t *ids;
    assert_int_equal(phi_tokenize(code.server.model, (struct phi_text){text, strlen(text)}, false,
                                  &ids, n, NULL),
                     PHI_OK);
    return ids;
}

static void test_odd_rows(void **state)
{
    (void)state;
    size_t n;
    int32_t *a = ids_of("def", &n);
    int32_t *cut = ids_of("\xe4\xb8\xad", &n); /* tokens of parts of a character */
    assert_true(n >= 2);
    const struct phi_logprob rows[] = {
        {-1, 0, 0},           {-1, 0, 0},
        {-1, 0, 0},           {-1, 0, 0}, /* a prompt's first token */
        {a[0], 9, -INFINITY}, {cut[0], 1, -0.5f},
        {cut[1], 2, -0.75f},  {a[0], 9, -INFINITY},
    };
    const int32_t tokens[] = {a[0], a[0]};
    const struct phi_scored scored = {tokens, 2, rows, 4};
    struct phi_spelling spelling = {.model = code.server.model};
    struct phi_buf b = {0};
    struct phi_out o = {.buf = &b};
    phi_logprobs_write_lists(&o, NULL, &spelling, &scored, 1, false);
    json_t *lists = parsed(&b);
    expect_null(lists, "token_logprobs[0]");
    expect_null(lists, "top_logprobs[0]");
    assert_true(json_real_value(at(lists, "token_logprobs[1]")) == -9999);
    expect_text(lists, "tokens[1]", "def");
    expect_int(lists, "text_offset[1]", 3);
    const json_t *top = at(lists, "top_logprobs[1]");
    assert_true(json_real_value(json_object_get(top, "def")) == -9999);
    /* both parts of a character are shown as U+FFFD: the likelier one stays */
    assert_int_equal(json_object_size(top), 2);
    assert_true(json_real_value(json_object_get(top, "\xef\xbf\xbd")) == -0.5);
    json_decref(lists);
    phi_spelling_deinit(&spelling);

    o = (struct phi_out){.buf = &b};
    phi_logprobs_write_prompt(&o, NULL, code.server.model, &scored);
    json_t *prompt = parsed(&b);
    expect_null(prompt, "[0]");
    assert_int_equal(json_object_size(json_array_get(prompt, 1)), 3);
    json_decref(prompt);
    phi_mem_free(a);
    phi_mem_free(cut);
}

/* Chat: the bytes are the token's own, the text comes with the character's last token. */
static void test_bytes_of_parts(void **state)
{
    (void)state;
    const char *text = "\xe4\xb8\xad";
    size_t n, n_bytes = 0;
    int32_t *ids = ids_of(text, &n);
    struct phi_logprob rows[8];
    assert_true(n >= 2 && n <= 8);
    for (size_t i = 0; i < n; i++)
        rows[i] = (struct phi_logprob){ids[i], 1, -1};
    const struct phi_scored scored = {ids, n, rows, 1};
    struct phi_spelling spelling = {.model = code.server.model};
    struct phi_buf b = {0};
    struct phi_out o = {.buf = &b};
    phi_logprobs_write_content(&o, NULL, &spelling, &scored, 5, false);
    json_t *value = parsed(&b);
    const json_t *content = at(value, "content");
    for (size_t i = 0; i < n; i++) {
        const json_t *entry = json_array_get(content, i), *bytes = at(entry, "bytes");
        expect_text(entry, "token", i + 1 < n ? "" : text);
        for (size_t j = 0; j < json_array_size(bytes); j++)
            assert_int_equal(json_integer_value(json_array_get(bytes, j)),
                             (unsigned char)text[n_bytes++]);
        expect_size(entry, "top_logprobs", 1);
    }
    assert_int_equal(n_bytes, 3);
    json_decref(value);
    phi_spelling_deinit(&spelling);
    phi_mem_free(ids);
}

/* Most of the vocabulary as alternatives (jansson reads no key with a NUL, so not the first
 * tokens): no key twice, and no time without end. */
static void test_all_alternatives(void **state)
{
    (void)state;
    enum { FIRST = 300 };
    size_t n = (size_t)code.model.vocab_size - FIRST;
    struct phi_logprob *rows = calloc(n, sizeof *rows);
    for (size_t i = 0; i < n; i++)
        rows[i] =
            (struct phi_logprob){i == 0 ? 290 : (int32_t)i + FIRST, (int32_t)i + 1, -(float)i};
    const int32_t token = 290;
    const struct phi_scored scored = {&token, 1, rows, n};
    struct phi_spelling spelling = {.model = code.server.model};
    struct phi_buf b = {0};
    struct phi_out o = {.buf = &b};
    phi_logprobs_write_lists(&o, NULL, &spelling, &scored, 1, false);
    json_t *lists = parsed(&b);
    assert_true(json_object_size(at(lists, "top_logprobs[0]")) > n / 2);
    json_decref(lists);
    free(rows);
    phi_spelling_deinit(&spelling);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nesting),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_reals),
        cmocka_unit_test(test_failing_memory),
        cmocka_unit_test(test_odd_rows),
        cmocka_unit_test(test_bytes_of_parts),
        cmocka_unit_test(test_all_alternatives),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
