/* Text out of the engine, with the bundled models: pieces that join to the whole, stop strings at
 * every place, bad words, ends of text and chats. What the models say is not fixed here: each test
 * first asks, then changes one parameter. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "engine_fixture.h"

struct opened {
    struct phi_model *m;
    struct phi_engine *e;
    int32_t *ids;
    size_t n_ids;
};

static struct opened open_with_prompt(const char *name, const char *prompt)
{
    struct opened o;
    struct phi_error err;
    struct phi_engine_options options;
    phi_engine_options_init(&options);
    options.max_num_seqs = 4;
    o.m = open_model(model_dir(name), PHI_AUTO, 1);
    o.e = create_engine(o.m, &options);
    struct phi_text text = {prompt, strlen(prompt)};
    if (phi_tokenize(o.m, text, true, &o.ids, &o.n_ids, &err) != PHI_OK)
        fail_msg("%s", err.text);
    return o;
}

static void close_all(struct opened *o)
{
    phi_mem_free(o->ids);
    phi_engine_destroy(o->e);
    phi_model_close(o->m);
}

static void assert_text(const struct answer *a, const char *text, size_t n)
{
    if (a->n_text != n || memcmp(a->text, text, n) != 0)
        fail_msg("text is \"%.*s\" instead of \"%.*s\"", (int)a->n_text, a->text, (int)n, text);
}

/* Bytes of the text of the first n tokens. */
static size_t text_length(const struct opened *o, const struct answer *a, size_t n)
{
    char *text;
    size_t n_text;
    assert_int_equal(phi_detokenize(o->m, a->tokens, n, true, &text, &n_text, NULL), PHI_OK);
    phi_mem_free(text);
    return n_text;
}

static const struct {
    const char *model, *prompt;
} prompts[] = {
    {"phi-tiny-code", "def fibonacci(n):\n"},
    {"phi-tiny-code", "class Reader:\n    def read(self, size=-1):\n        \"\"\"Read"},
    {"phi3-tiny-chat",
     "<|user|>Tom has 3 apples and buys 4 more. How many apples does he have?<|end|><|assistant|>"},
};
enum { N_PROMPTS = sizeof prompts / sizeof *prompts };

static void test_pieces(void **state)
{
    (void)state;
    struct answer *a = malloc(sizeof *a);
    for (int i = 0; i < N_PROMPTS; i++) {
        struct opened o = open_with_prompt(prompts[i].model, prompts[i].prompt);
        for (int seed = 0; seed < 4; seed++) {
            struct phi_sampling s = greedy(80);
            s.temperature = 2.0 * seed; /* rare tokens, cut characters */
            s.has_seed = true;
            s.seed = seed;
            run(o.e, o.ids, o.n_ids, &s, a);
            char *text;
            size_t n;
            assert_int_equal(phi_detokenize(o.m, a->tokens, a->n_tokens, true, &text, &n, NULL),
                             PHI_OK);
            assert_text(a, text, n);
            phi_mem_free(text);
        }
        close_all(&o);
    }
    free(a);
}

/* Where the text first holds `stop` with an end beyond `from`; SIZE_MAX when nowhere. */
static size_t find(const struct answer *a, const char *stop, size_t n, size_t from)
{
    for (size_t at = 0; at + n <= a->n_text; at++)
        if (at + n > from && memcmp(a->text + at, stop, n) == 0)
            return at;
    return SIZE_MAX;
}

static void check_stop(const struct opened *o, const struct answer *whole, size_t begin, size_t n,
                       bool include, int min_tokens, struct answer *a)
{
    char stop[64];
    memcpy(stop, whole->text + begin, n);
    stop[n] = '\0';
    struct phi_text list[2] = {{"never said \x01", 12}, {stop, n}};
    struct phi_sampling s = greedy((int)whole->n_tokens);
    s.stop = list;
    s.n_stop = 2;
    s.include_stop_str_in_output = include;
    s.min_tokens = min_tokens;
    run(o->e, o->ids, o->n_ids, &s, a);
    size_t at = find(whole, stop, n, text_length(o, whole, (size_t)min_tokens));
    if (at == SIZE_MAX) {
        assert_int_equal(a->finish, PHI_FINISH_LENGTH);
        assert_text(a, whole->text, whole->n_text);
        return;
    }
    assert_int_equal(a->finish, PHI_FINISH_STOP);
    assert_string_equal(a->stop_string, stop);
    assert_int_equal(a->stop_token, -1);
    assert_text(a, whole->text, include ? at + n : at);
    /* It ended with the token that completed the string. */
    assert_true(text_length(o, whole, a->n_tokens) >= at + n);
    assert_true(text_length(o, whole, a->n_tokens - 1) < at + n);
}

/* Every short piece of the text as a stop string. */
static void test_stop_strings(void **state)
{
    (void)state;
    struct answer *whole = malloc(2 * sizeof *whole), *a = whole + 1;
    int n_checked = 0;
    for (int i = 0; i < N_PROMPTS; i++) {
        struct opened o = open_with_prompt(prompts[i].model, prompts[i].prompt);
        struct phi_sampling s = greedy(40);
        run(o.e, o.ids, o.n_ids, &s, whole);
        for (size_t begin = 0; begin < whole->n_text && begin < 60; begin += 3)
            for (size_t n = 1; n <= 13 && begin + n <= whole->n_text; n += 4) {
                check_stop(&o, whole, begin, n, begin % 2, 0, a);
                check_stop(&o, whole, begin, n, false, 5, a);
                n_checked++;
            }
        close_all(&o);
    }
    assert_true(n_checked > 100);
    assert_int_equal(phi_alloc_violations(), 0);
    free(whole);
}

static bool says(const struct answer *a, const int32_t *word, size_t n)
{
    for (size_t i = 0; i + n <= a->n_tokens; i++)
        if (memcmp(a->tokens + i, word, n * sizeof *word) == 0)
            return true;
    return false;
}

/* A word of the text, as it stands there, is not said again. */
static void test_bad_words(void **state)
{
    (void)state;
    struct answer *whole = malloc(2 * sizeof *whole), *a = whole + 1;
    struct opened o = open_with_prompt("phi-tiny-code", "def fibonacci(n):\n");
    struct phi_sampling s = greedy(40);
    run(o.e, o.ids, o.n_ids, &s, whole);
    int n_said = 0;
    for (size_t n = 1; n <= 3; n++)
        for (size_t first = 0; first + n <= whole->n_tokens; first += 2) {
            char *text;
            size_t n_text;
            assert_int_equal(
                phi_detokenize(o.m, whole->tokens + first, n, true, &text, &n_text, NULL), PHI_OK);
            size_t start = strspn(text, " \t\r\n\v\f");
            struct phi_text word = {text + start, n_text - start};
            int32_t *ids;
            size_t n_ids;
            if (word.n == 0) {
                phi_mem_free(text);
                continue;
            }
            struct phi_sampling t = greedy(40);
            t.bad_words = &word;
            t.n_bad_words = 1;
            assert_int_equal(phi_tokenize(o.m, word, false, &ids, &n_ids, NULL), PHI_OK);
            run(o.e, o.ids, o.n_ids, &t, a);
            n_said += says(whole, ids, n_ids);
            assert_false(says(a, ids, n_ids));
            phi_mem_free(ids);
            phi_mem_free(text);
        }
    assert_true(n_said > 10);
    struct phi_text empty = {"", 0};
    struct phi_request *r;
    struct phi_error err;
    s.bad_words = &empty;
    s.n_bad_words = 1;
    assert_int_equal(phi_request_submit(o.e, o.ids, o.n_ids, &s, NULL, &r, &err), PHI_ERR_INVALID);
    assert_string_equal(err.text, "bad_words cannot contain an empty string.");
    s = greedy(4);
    s.stop = &empty;
    s.n_stop = 1;
    assert_int_equal(phi_request_submit(o.e, o.ids, o.n_ids, &s, NULL, &r, &err), PHI_ERR_INVALID);
    assert_string_equal(err.text, "stop cannot contain an empty string.");
    close_all(&o);
    free(whole);
}

static bool is_stop_id(const struct phi_model_info *info, int32_t id)
{
    for (int i = 0; i < info->n_stop_ids; i++)
        if (info->stop_ids[i] == id)
            return true;
    return false;
}

/* A chat answer ends by an id of the checkpoint: the primary end of text gives no reason, another
 * one its id; its text is not printed; min_tokens and ignore_eos go past it. */
static void test_chat_end(void **state)
{
    (void)state;
    struct answer *a = malloc(2 * sizeof *a), *b = a + 1;
    struct opened o = open_with_prompt("phi3-tiny-chat", "");
    struct phi_model_info info;
    phi_model_get_info(o.m, &info);
    static const char messages[] = "[{\"role\": \"user\", \"content\": \"Tom has 3 apples and buys "
                                   "4 more. How many apples does he have?\"}]";
    char *prompt;
    size_t n_prompt, n_ids;
    int32_t *ids;
    assert_int_equal(phi_render_chat(o.m, (struct phi_text){messages, sizeof messages - 1},
                                     (struct phi_text){NULL, 0}, &prompt, &n_prompt, NULL),
                     PHI_OK);
    assert_int_equal(
        phi_tokenize(o.m, (struct phi_text){prompt, n_prompt}, false, &ids, &n_ids, NULL), PHI_OK);
    struct phi_sampling s = greedy(200);
    s.ignore_eos = false;
    run(o.e, ids, n_ids, &s, a);
    assert_int_equal(a->finish, PHI_FINISH_STOP);
    int32_t last = a->tokens[a->n_tokens - 1];
    assert_true(is_stop_id(&info, last));
    assert_int_equal(a->stop_token, last == info.eos_id ? -1 : last);
    char *text;
    size_t n_text;
    assert_int_equal(phi_detokenize(o.m, a->tokens, a->n_tokens - 1, false, &text, &n_text, NULL),
                     PHI_OK);
    assert_text(a, text, n_text);
    phi_mem_free(text);

    s.skip_special_tokens = false;
    s.include_stop_str_in_output = true;
    run(o.e, ids, n_ids, &s, b);
    assert_int_equal(phi_detokenize(o.m, a->tokens, a->n_tokens, false, &text, &n_text, NULL),
                     PHI_OK);
    assert_text(b, text, n_text);
    assert_true(n_text > a->n_text);
    phi_mem_free(text);

    s = greedy((int)a->n_tokens + 3);
    run(o.e, ids, n_ids, &s, b);
    assert_int_equal(b->finish, PHI_FINISH_LENGTH);
    s.ignore_eos = false;
    s.min_tokens = (int)a->n_tokens + 2;
    run(o.e, ids, n_ids, &s, b);
    assert_int_not_equal(b->tokens[a->n_tokens - 1], last);
    s.min_tokens = 0;
    s.stop_token_ids = &last; /* the request's own id is never ignored */
    s.n_stop_token_ids = 1;
    s.ignore_eos = true;
    run(o.e, ids, n_ids, &s, b);
    assert_int_equal(b->stop_token, last);
    assert_int_equal(b->n_tokens, a->n_tokens);
    phi_mem_free(prompt);
    phi_mem_free(ids);
    close_all(&o);
    free(a);
}

static void test_chat_errors(void **state)
{
    (void)state;
    static const struct {
        const char *messages, *options, *text;
    } cases[] = {
        {"{}", "", "the messages must be an array"},
        {"[]", "[]", "the chat options must be an object"},
        {"[]", "{\"tools\": {}}", "tools must be an array"},
        {"[]", "{\"chat_template_kwargs\": 1}", "chat_template_kwargs must be an object"},
        {"[]", "{\"chat_template\": 1}", "chat_template must be a string"},
    };
    struct opened o = open_with_prompt("phi3-tiny-chat", "");
    struct phi_error err;
    char *text;
    size_t n;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct phi_text messages = {cases[i].messages, strlen(cases[i].messages)};
        struct phi_text options = {cases[i].options, strlen(cases[i].options)};
        assert_int_equal(phi_render_chat(o.m, messages, options, &text, &n, &err), PHI_ERR_INVALID);
        assert_string_equal(err.text, cases[i].text);
        assert_null(text);
    }
    assert_int_not_equal(phi_render_chat(o.m, (struct phi_text){"[", 1}, (struct phi_text){NULL, 0},
                                         &text, &n, &err),
                         PHI_OK);
    close_all(&o);
    o = open_with_prompt("phi-tiny-code", "x");
    assert_int_equal(phi_render_chat(o.m, (struct phi_text){"[]", 2}, (struct phi_text){NULL, 0},
                                     &text, &n, &err),
                     PHI_ERR_INVALID);
    assert_non_null(strstr(err.text, "has no chat template"));
    close_all(&o);
}

static void assert_renders(const struct phi_model *m, const char *options, const char *expected)
{
    static const char messages[] = "[{\"role\": \"user\", \"content\": \"hi\"}]";
    struct phi_error err;
    char *text;
    size_t n;
    if (phi_render_chat(m, (struct phi_text){messages, sizeof messages - 1},
                        (struct phi_text){options, strlen(options)}, &text, &n, &err) != PHI_OK)
        fail_msg("%s", err.text);
    assert_int_equal(n, strlen(expected));
    assert_memory_equal(text, expected, n);
    phi_mem_free(text);
}

/* A template of the request's own, with the checkpoint's special tokens, also where the checkpoint
 * has no template; the checkpoint's is used again afterwards. */
static void test_template_of_a_request(void **state)
{
    (void)state;
    static const char own[] = "{\"chat_template\": \"{{ eos_token }}{{ messages[0].content }}!\"}",
                      bad[] = "{\"chat_template\": \"{{ eos_token\"}",
                      hi[] = "[{\"role\": \"user\", \"content\": \"hi\"}]";
    struct opened o = open_with_prompt("phi3-tiny-chat", "");
    struct phi_error err;
    char *text, *usual;
    size_t n;
    struct phi_text messages = {hi, sizeof hi - 1};
    assert_int_equal(
        phi_render_chat(o.m, messages, (struct phi_text){"", 0}, &usual, &n, &err), PHI_OK);
    assert_renders(o.m, own, "<|endoftext|>hi!");
    assert_int_equal(phi_render_chat(o.m, messages, (struct phi_text){bad, sizeof bad - 1}, &text,
                                     &n, &err),
                     PHI_ERR_INVALID);
    assert_non_null(strstr(err.text, "chat_template"));
    assert_renders(o.m, "", usual);
    phi_mem_free(usual);
    close_all(&o);
    o = open_with_prompt("phi-tiny-code", "x");
    assert_renders(o.m, own, "<|endoftext|>hi!");
    close_all(&o);
}

/* The vocabulary's own writing, not the text it stands for. */
static void test_token_spelling(void **state)
{
    (void)state;
    struct opened o = open_with_prompt("phi-tiny-code", " def");
    char *text;
    size_t n;
    assert_int_equal(phi_token_spelling(o.m, o.ids[0], &text, &n, NULL), PHI_OK);
    assert_true(n > 2 && memcmp(text, "\xC4\xA0", 2) == 0); /* the mark for a space */
    phi_mem_free(text);
    static const int32_t none[] = {-1, INT32_MAX};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(phi_token_spelling(o.m, none[i], &text, &n, NULL), PHI_OK);
        assert_int_equal(n, 0);
        phi_mem_free(text);
    }
    close_all(&o);
}

/* The bytes of all tokens, one after the other, are the text. */
static void test_token_bytes(void **state)
{
    (void)state;
    const char *prompt = "def f(x):  # h\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80";
    struct opened o = open_with_prompt("phi-tiny-code", prompt);
    char joined[256];
    size_t n_joined = 0;
    for (size_t i = 0; i < o.n_ids; i++) {
        char *bytes;
        size_t n;
        assert_int_equal(phi_token_bytes(o.m, o.ids[i], &bytes, &n, NULL), PHI_OK);
        assert_true(n > 0 && n_joined + n <= sizeof joined);
        memcpy(joined + n_joined, bytes, n);
        n_joined += n;
        phi_mem_free(bytes);
    }
    assert_int_equal(n_joined, strlen(prompt));
    assert_memory_equal(joined, prompt, n_joined);
    char *bytes;
    size_t n = 1;
    assert_int_equal(phi_token_bytes(o.m, 1 << 20, &bytes, &n, NULL), PHI_OK);
    assert_int_equal(n, 0);
    phi_mem_free(bytes);
    close_all(&o);
}

/* A template given as text, a tokenizer from another folder, and a folder without weights. */
static void test_model_options(void **state)
{
    (void)state;
    struct phi_model_options o;
    struct phi_model *m;
    struct phi_error err;
    char *text;
    size_t n;
    char tokenizer[1024];
    snprintf(tokenizer, sizeof tokenizer, "%s", model_dir("phi3-tiny-chat"));
    phi_model_options_init(&o);
    o.path = golden_dir("phi3-gqa");
    o.tokenizer = tokenizer;
    o.chat_template = "{% for m in messages %}[{{ m.content }}]{% endfor %}";
    o.no_weights = true;
    assert_int_equal(phi_model_open(&o, &m, &err), PHI_OK);
    static const char messages[] =
        "[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"user\", \"content\": null}]";
    assert_int_equal(phi_render_chat(m, (struct phi_text){messages, sizeof messages - 1},
                                     (struct phi_text){NULL, 0}, &text, &n, &err),
                     PHI_OK);
    assert_string_equal(text, "[a][]");
    phi_mem_free(text);
    struct phi_engine_info info;
    struct phi_engine_options eo;
    phi_engine_options_init(&eo);
    assert_int_equal(phi_engine_plan(m, &eo, &info, &err), PHI_ERR_INVALID);
    assert_string_equal(err.text, "the model was opened without weights");
    int32_t negative = -1;
    assert_int_equal(phi_detokenize(m, &negative, 1, true, &text, &n, &err), PHI_ERR_INVALID);
    phi_model_close(m);

    o.chat_template = "/no/such/file.jinja";
    assert_int_equal(phi_model_open(&o, &m, &err), PHI_ERR_IO);
    assert_null(m);
    phi_model_options_init(&o);
    assert_int_equal(phi_model_open(&o, &m, &err), PHI_ERR_INVALID);
    o.path = "/no/such/folder";
    assert_int_equal(phi_model_open(&o, &m, &err), PHI_ERR_IO);
    assert_string_equal(err.text, "/no/such/folder: not a folder with a checkpoint");
    o.path = o.tokenizer = golden_dir("phi3-gqa"); /* which has none */
    assert_int_equal(phi_model_open(&o, &m, &err), PHI_ERR_IO);
    o.path = tokenizer;
    o.n_threads = -1;
    assert_int_equal(phi_model_open(&o, &m, &err), PHI_ERR_INVALID);
}

/* Submitting with stop strings and bad words, and reading the text, each allocation failing in
 * turn. */
static void test_failing_allocations(void **state)
{
    (void)state;
    struct answer *a = malloc(sizeof *a);
    struct opened o = open_with_prompt("phi-tiny-code", "def f(x):\n");
    struct phi_text stop = {"never said \x01", 12}, word = {"fibonacci", 9};
    struct phi_sampling s = greedy(10);
    s.stop = &stop;
    s.bad_words = &word;
    s.n_stop = s.n_bad_words = 1;
    int n_failures = 0;
    for (long nth = 1;; nth++) {
        struct phi_request *r;
        struct phi_error err;
        phi_alloc_fail_nth(nth);
        enum phi_status status = phi_request_submit(o.e, o.ids, o.n_ids, &s, NULL, &r, &err);
        if (status == PHI_OK) {
            collect(r, a, 1);
            status = a->status == PHI_ERR_CANCELLED ? PHI_ERR_MEMORY : a->status;
        }
        bool reached = phi_alloc_count() >= nth;
        phi_alloc_fail_nth(0);
        if (!reached)
            break;
        if (status != PHI_OK) /* a failure may be harmless: room for an empty list */
            assert_int_equal(status, PHI_ERR_MEMORY);
        n_failures += status != PHI_OK;
    }
    assert_true(n_failures > 10);
    assert_int_equal(a->n_tokens, 10);
    close_all(&o);
    free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_stop_strings),
        cmocka_unit_test(test_bad_words),
        cmocka_unit_test(test_chat_end),
        cmocka_unit_test(test_chat_errors),
        cmocka_unit_test(test_template_of_a_request),
        cmocka_unit_test(test_token_spelling),
        cmocka_unit_test(test_token_bytes),
        cmocka_unit_test(test_model_options),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests_name("engine/text", tests, NULL, NULL);
}
