/* test_answers.c: what completions and chat answer: whole and streamed, with log probabilities,
 * echo, several prompts and several answers. What the models say is not fixed here; that the forms
 * of one answer agree with each other is. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "service.h"

static struct service code, chat;

static int setup(void **state)
{
    (void)state;
    service_open(&code, "phi-tiny-code", NULL);
    service_open(&chat, "phi3-tiny-chat", NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    service_close(&code);
    service_close(&chat);
    return 0;
}

static const char COMPLETION[] =
    "{\"prompt\": \"def f(x):\", \"max_tokens\": 6, \"temperature\": 0, \"ignore_eos\": true}";
static const char CHAT[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"What is 2 plus 3?\"}],"
    " \"max_tokens\": 6, \"temperature\": 0, \"ignore_eos\": true}";

/* Asks for `base` with `changes`; the reply must be 200. */
static void complete(const char *changes, struct reply *r)
{
    char *body = with(COMPLETION, changes);
    post(&code.server, "/v1/completions", body, r);
    if (r->status != 200)
        fail_msg("%s: %s", changes, r->body.data);
    free(body);
}

static void converse(const char *changes, struct reply *r)
{
    char *body = with(CHAT, changes);
    post(&chat.server, "/v1/chat/completions", body, r);
    if (r->status != 200)
        fail_msg("%s: %s", changes, r->body.data);
    free(body);
}

/* The strings or texts under `path` of each event's choice `index`, joined. */
static void join(const struct reply *r, int index, const char *path, char out[4096])
{
    size_t n = reply_n_events(r), n_out = 0;
    for (size_t i = 0; i < n; i++) {
        json_t *event = reply_event(r, i);
        const json_t *choice = at(event, "choices[0]");
        if (choice && json_integer_value(at(choice, "index")) == index && at(choice, path))
            n_out += (size_t)snprintf(out + n_out, 4096 - n_out, "%s", text_at(choice, path));
        json_decref(event);
    }
    out[n_out] = '\0';
}

/* ---------------------------------------------------------------- shapes */

static void test_completion_shape(void **state)
{
    (void)state;
    struct reply r;
    complete("{}", &r);
    assert_string_equal(r.content_type, "application/json");
    assert_int_equal(strncmp(text_at(r.json, "id"), "cmpl-", 5), 0);
    expect_text(r.json, "object", "text_completion");
    expect_text(r.json, "model", "m");
    assert_true(json_integer_value(at(r.json, "created")) > 1600000000);
    expect_size(r.json, "choices", 1);
    expect_int(r.json, "choices[0].index", 0);
    text_at(r.json, "choices[0].text");
    expect_null(r.json, "choices[0].logprobs");
    expect_text(r.json, "choices[0].finish_reason", "length");
    expect_null(r.json, "choices[0].stop_reason");
    expect_null(r.json, "choices[0].token_ids");
    expect_null(r.json, "choices[0].prompt_token_ids");
    expect_null(r.json, "choices[0].prompt_logprobs");
    expect_null(r.json, "service_tier");
    text_at(r.json, "system_fingerprint");
    expect_int(r.json, "usage.prompt_tokens", 5);
    expect_int(r.json, "usage.completion_tokens", 6);
    expect_int(r.json, "usage.total_tokens", 11);
    expect_null(r.json, "usage.prompt_tokens_details");
    expect_null(r.json, "kv_transfer_params");
    reply_deinit(&r);
}

static void test_chat_shape(void **state)
{
    (void)state;
    struct reply r;
    converse("{}", &r);
    assert_int_equal(strncmp(text_at(r.json, "id"), "chatcmpl-", 9), 0);
    expect_text(r.json, "object", "chat.completion");
    expect_text(r.json, "choices[0].message.role", "assistant");
    text_at(r.json, "choices[0].message.content");
    static const char *const nulls[] = {
        "choices[0].message.refusal",
        "choices[0].message.annotations",
        "choices[0].message.audio",
        "choices[0].message.function_call",
        "choices[0].message.reasoning",
        "choices[0].logprobs",
        "choices[0].stop_reason",
        "choices[0].token_ids",
        "prompt_logprobs",
        "prompt_token_ids",
        "prompt_text",
        "kv_transfer_params",
        "service_tier",
    };
    for (size_t i = 0; i < sizeof nulls / sizeof *nulls; i++)
        expect_null(r.json, nulls[i]);
    expect_size(r.json, "choices[0].message.tool_calls", 0);
    expect_text(r.json, "choices[0].finish_reason", "length");
    expect_int(r.json, "usage.completion_tokens", 6);
    reply_deinit(&r);
}

static void test_ids(void **state)
{
    (void)state;
    struct reply r;
    complete("{\"request_id\": \"mine\"}", &r);
    expect_text(r.json, "id", "cmpl-mine");
    reply_deinit(&r);
    ask(&code.server,
        &(struct question){.method = "POST",
                           .path = "/v1/completions",
                           .body = "{\"prompt\": \"a\", \"max_tokens\": 1, \"request_id\": \"x\"}",
                           .request_id = "header"},
        &r);
    expect_text(r.json, "id", "cmpl-header");
    reply_deinit(&r);
}

/* ---------------------------------------------------------------- log probabilities */

static void test_completion_logprobs(void **state)
{
    (void)state;
    struct reply r;
    complete("{\"logprobs\": 3, \"return_token_ids\": true}", &r);
    const json_t *lp = at(r.json, "choices[0].logprobs");
    char joined[1024] = "";
    json_int_t offset = 0;
    expect_size(lp, "tokens", 6);
    expect_size(lp, "token_logprobs", 6);
    expect_size(lp, "top_logprobs", 6);
    expect_size(lp, "text_offset", 6);
    expect_size(r.json, "choices[0].token_ids", 6);
    expect_size(r.json, "choices[0].prompt_token_ids", 5);
    for (size_t i = 0; i < 6; i++) {
        const char *token = json_string_value(json_array_get(at(lp, "tokens"), i));
        const json_t *top = json_array_get(at(lp, "top_logprobs"), i);
        double value = json_real_value(json_array_get(at(lp, "token_logprobs"), i));
        assert_int_equal(json_integer_value(json_array_get(at(lp, "text_offset"), i)), offset);
        assert_true(value < 0);
        assert_int_equal(json_object_size(top), 3); /* greedy: the token is one of the three */
        assert_true(json_real_value(json_object_get(top, token)) == value);
        strcat(joined, token);
        offset += (json_int_t)strlen(token);
    }
    expect_text(r.json, "choices[0].text", joined);
    reply_deinit(&r);

    complete("{\"logprobs\": 0}", &r); /* the tokens themselves, nothing beside */
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(
            json_object_size(json_array_get(at(r.json, "choices[0].logprobs.top_logprobs"), i)), 1);
    reply_deinit(&r);

    complete("{\"logprobs\": 0, \"return_tokens_as_token_ids\": true}", &r);
    assert_int_equal(strncmp(text_at(r.json, "choices[0].logprobs.tokens[0]"), "token_id:", 9), 0);
    reply_deinit(&r);

    complete("{\"logprobs\": 1, \"logit_bias\": {\"5\": 100}}", &r); /* k + 1 entries */
    assert_int_equal(json_object_size(at(r.json, "choices[0].logprobs.top_logprobs[0]")), 2);
    reply_deinit(&r);
}

static void test_chat_logprobs(void **state)
{
    (void)state;
    struct reply r;
    converse("{\"logprobs\": true, \"top_logprobs\": 2, \"skip_special_tokens\": false}", &r);
    const json_t *content = at(r.json, "choices[0].logprobs.content");
    char joined[1024] = "";
    assert_int_equal(json_array_size(content), 6);
    for (size_t i = 0; i < 6; i++) {
        const json_t *entry = json_array_get(content, i);
        const char *token = text_at(entry, "token");
        expect_size(entry, "top_logprobs", 2);
        expect_size(entry, "bytes", strlen(token));
        for (size_t j = 0; token[j]; j++)
            assert_int_equal(json_integer_value(json_array_get(at(entry, "bytes"), j)),
                             (unsigned char)token[j]);
        expect_text(entry, "top_logprobs[0].token", token);
        assert_true(json_real_value(at(entry, "top_logprobs[0].logprob")) ==
                    json_real_value(at(entry, "logprob")));
        strcat(joined, token);
    }
    expect_text(r.json, "choices[0].message.content", joined);
    reply_deinit(&r);
    converse("{\"logprobs\": true}", &r);
    expect_size(r.json, "choices[0].logprobs.content", 6);
    expect_size(r.json, "choices[0].logprobs.content[0].top_logprobs", 0);
    reply_deinit(&r);
}

/* A prompt's first token has no row; in the others its own token is there, whatever its rank. */
static void test_prompt_logprobs(void **state)
{
    (void)state;
    struct reply r;
    char id[16];
    complete("{\"prompt_logprobs\": 2, \"return_token_ids\": true}", &r);
    const json_t *rows = at(r.json, "choices[0].prompt_logprobs");
    assert_int_equal(json_array_size(rows), 5);
    assert_true(json_is_null(json_array_get(rows, 0)));
    for (size_t i = 1; i < 5; i++) {
        const json_t *row = json_array_get(rows, i);
        snprintf(
            id, sizeof id, "%d",
            (int)json_integer_value(json_array_get(at(r.json, "choices[0].prompt_token_ids"), i)));
        size_t n = json_object_size(row);
        assert_true(n == 2 || n == 3);
        const json_t *own = json_object_get(row, id);
        assert_true(json_is_real(at(own, "logprob")));
        assert_true(json_integer_value(at(own, "rank")) >= 1);
        text_at(own, "decoded_token");
    }
    reply_deinit(&r);
    converse("{\"prompt_logprobs\": 0}", &r);
    assert_true(json_is_null(at(r.json, "prompt_logprobs[0]")));
    assert_int_equal(json_array_size(at(r.json, "prompt_logprobs")),
                     json_integer_value(at(r.json, "usage.prompt_tokens")));
    reply_deinit(&r);
}

/* A character of several tokens: its text stands with the last of them, and texts join to the
 * whole. */
static void test_split_characters(void **state)
{
    (void)state;
    struct reply r;
    const char *text = "# \xe4\xb8\xad\xe6\x96\x87 \xf0\x9f\x98\x80!";
    char *body = with(COMPLETION, "{\"logprobs\": 1, \"echo\": true, \"max_tokens\": 0}");
    json_t *object = json_loads(body, 0, NULL);
    json_object_set_new(object, "prompt", json_string(text));
    free(body);
    body = json_dumps(object, 0);
    post(&code.server, "/v1/completions", body, &r);
    assert_int_equal(r.status, 200);
    expect_text(r.json, "choices[0].text", text);
    const json_t *tokens = at(r.json, "choices[0].logprobs.tokens");
    char joined[256] = "";
    size_t n_empty = 0;
    for (size_t i = 0; i < json_array_size(tokens); i++) {
        const char *token = json_string_value(json_array_get(tokens, i));
        n_empty += token[0] == '\0';
        strcat(joined, token);
    }
    assert_string_equal(joined, text);
    assert_true(n_empty > 0);
    /* offsets count characters: "!" is the sixth */
    const json_t *offsets = at(r.json, "choices[0].logprobs.text_offset");
    assert_int_equal(json_integer_value(json_array_get(offsets, json_array_size(offsets) - 1)), 6);
    free(body);
    json_decref(object);
    reply_deinit(&r);
}

/* ---------------------------------------------------------------- echo */

/* The forms in which evaluation harnesses score a text (H105). */
static void test_echo(void **state)
{
    (void)state;
    struct reply r;
    complete("{\"echo\": true, \"max_tokens\": 0, \"logprobs\": 1}", &r);
    expect_text(r.json, "choices[0].text", "def f(x):");
    expect_size(r.json, "choices[0].logprobs.tokens", 5);
    expect_null(r.json, "choices[0].logprobs.token_logprobs[0]");
    expect_null(r.json, "choices[0].logprobs.top_logprobs[0]");
    expect_int(r.json, "choices[0].logprobs.text_offset[0]", 0);
    expect_text(r.json, "choices[0].finish_reason", "length");
    expect_int(r.json, "usage.completion_tokens", 0);
    expect_int(r.json, "usage.total_tokens", 5);
    reply_deinit(&r);

    complete("{\"echo\": true, \"max_tokens\": 1, \"logprobs\": 1}", &r);
    expect_size(r.json, "choices[0].logprobs.tokens", 6);
    expect_size(r.json, "choices[0].logprobs.text_offset", 6);
    assert_int_equal(strncmp(text_at(r.json, "choices[0].text"), "def f(x):", 9), 0);
    expect_int(r.json, "usage.completion_tokens", 1);
    reply_deinit(&r);

    complete("{\"echo\": true, \"prompt\": [290, 281, 7]}", &r); /* token ids as their text */
    assert_int_equal(strncmp(text_at(r.json, "choices[0].text"), "def f(", 6), 0);
    reply_deinit(&r);
}

static void test_echo_streamed(void **state)
{
    (void)state;
    struct reply whole, r;
    char text[4096];
    complete("{\"echo\": true, \"logprobs\": 2}", &whole);
    complete("{\"echo\": true, \"logprobs\": 2, \"stream\": true}", &r);
    join(&r, 0, "text", text);
    expect_text(whole.json, "choices[0].text", text);
    json_t *first = reply_event(&r, 0), *offsets = json_array();
    assert_int_equal(strncmp(text_at(first, "choices[0].text"), "def f(x):", 9), 0);
    assert_true(json_array_size(at(first, "choices[0].logprobs.tokens")) >= 6);
    json_decref(first);
    for (size_t i = 0; i < reply_n_events(&r); i++) {
        json_t *event = reply_event(&r, i);
        json_array_extend(offsets, (json_t *)at(event, "choices[0].logprobs.text_offset"));
        json_decref(event);
    }
    assert_true(json_equal(offsets, at(whole.json, "choices[0].logprobs.text_offset")));
    json_decref(offsets);
    reply_deinit(&r);
    complete("{\"echo\": true, \"max_tokens\": 0, \"stream\": true}", &r);
    assert_int_equal(reply_n_events(&r), 1);
    join(&r, 0, "text", text);
    assert_string_equal(text, "def f(x):");
    reply_deinit(&r);
    reply_deinit(&whole);
}

/* Chat's echo repeats the message that the answer goes on with. */
static void test_chat_echo(void **state)
{
    (void)state;
    struct reply r;
    char text[4096];
    const char *changes =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\","
        " \"content\": \"It is \"}], \"echo\": true, \"add_generation_prompt\": false,"
        " \"continue_final_message\": true}";
    converse(changes, &r);
    expect_text(r.json, "choices[0].message.role", "assistant");
    assert_int_equal(strncmp(text_at(r.json, "choices[0].message.content"), "It is ", 6), 0);
    char *streamed = with(changes, "{\"stream\": true}");
    struct reply s;
    converse(streamed, &s);
    join(&s, 0, "delta.content", text);
    expect_text(r.json, "choices[0].message.content", text);
    free(streamed);
    reply_deinit(&r);
    reply_deinit(&s);
}

/* ---------------------------------------------------------------- several at once */

static void test_several(void **state)
{
    (void)state;
    struct reply r, one;
    complete(
        "{\"prompt\": [\"def f(x):\", \"import os\"], \"n\": 2, \"temperature\": 1, \"seed\": 7}",
        &r);
    expect_size(r.json, "choices", 4);
    for (int i = 0; i < 4; i++) {
        char path[40];
        snprintf(path, sizeof path, "choices[%d].index", i);
        expect_int(r.json, path, i);
    }
    json_int_t n_prompt = json_integer_value(at(r.json, "usage.prompt_tokens"));
    expect_int(r.json, "usage.completion_tokens", 24);
    complete("{\"prompt\": \"import os\", \"n\": 2, \"temperature\": 1, \"seed\": 7}", &one);
    expect_text(r.json, "choices[2].text", text_at(one.json, "choices[0].text"));
    expect_text(r.json, "choices[3].text", text_at(one.json, "choices[1].text"));
    assert_int_equal(n_prompt, 5 + json_integer_value(at(one.json, "usage.prompt_tokens")));
    reply_deinit(&r);
    reply_deinit(&one);
}

/* Ids are used as they come, and the text's own ids give the text's answer. */
static void test_token_id_prompts(void **state)
{
    (void)state;
    struct reply text, ids;
    complete("{}", &text);
    complete("{\"prompt\": [[290, 281, 7, 87, 282], [290]]}", &ids);
    expect_text(ids.json, "choices[0].text", text_at(text.json, "choices[0].text"));
    expect_int(ids.json, "usage.prompt_tokens", 6);
    reply_deinit(&text);
    reply_deinit(&ids);
}

static void test_truncation(void **state)
{
    (void)state;
    struct reply r;
    complete("{\"truncate_prompt_tokens\": 2, \"return_token_ids\": true, \"echo\": true}", &r);
    expect_size(r.json, "choices[0].prompt_token_ids", 2);
    expect_int(r.json, "choices[0].prompt_token_ids[0]", 290); /* "right": the first are kept */
    assert_int_equal(strncmp(text_at(r.json, "choices[0].text"), "def f", 5), 0);
    expect_int(r.json, "usage.prompt_tokens", 2);
    reply_deinit(&r);
    complete("{\"truncate_prompt_tokens\": 2, \"truncation_side\": \"left\","
             " \"return_token_ids\": true}",
             &r);
    expect_int(r.json, "choices[0].prompt_token_ids[0]", 87);
    expect_int(r.json, "choices[0].prompt_token_ids[1]", 282);
    reply_deinit(&r);
    converse("{\"truncate_prompt_tokens\": 4, \"return_token_ids\": true}", &r);
    expect_size(r.json, "prompt_token_ids", 4);
    reply_deinit(&r);
}

/* ---------------------------------------------------------------- ends */

static void test_stop_reasons(void **state)
{
    (void)state;
    struct reply r, whole;
    complete("{\"return_token_ids\": true}", &whole);
    char changes[200];
    json_int_t third = json_integer_value(at(whole.json, "choices[0].token_ids[2]"));
    snprintf(changes, sizeof changes, "{\"stop_token_ids\": [%d]}", (int)third);
    complete(changes, &r);
    expect_text(r.json, "choices[0].finish_reason", "stop");
    expect_int(r.json, "choices[0].stop_reason", third);
    reply_deinit(&r);
    const char *text = text_at(whole.json, "choices[0].text");
    json_t *object = json_pack("{s:[s]}", "stop", text + strlen(text) - 2);
    char *stop = json_dumps(object, 0);
    complete(stop, &r);
    expect_text(r.json, "choices[0].finish_reason", "stop");
    expect_text(r.json, "choices[0].stop_reason", text + strlen(text) - 2);
    free(stop);
    json_decref(object);
    reply_deinit(&r);
    reply_deinit(&whole);
    /* The model's own end: the first of its ids has no reason, another one is named. */
    char *body = with(CHAT, "{\"ignore_eos\": false, \"max_tokens\": 200}");
    post(&chat.server, "/v1/chat/completions", body, &r);
    expect_text(r.json, "choices[0].finish_reason", "stop");
    free(body);
    reply_deinit(&r);
}

/* The server's defaults, and its bounds. */
static void test_server_limits(void **state)
{
    (void)state;
    struct reply r;
    chat.options.has_max_tokens_default = true;
    chat.sampling.max_tokens = 9;
    converse("{\"max_tokens\": null}", &r);
    expect_int(r.json, "usage.completion_tokens", 9);
    reply_deinit(&r);
    converse("{\"max_tokens\": 12}", &r);
    expect_int(r.json, "usage.completion_tokens", 12);
    reply_deinit(&r);
    chat.options.max_tokens_cap = 4;
    converse("{}", &r);
    expect_int(r.json, "usage.completion_tokens", 4);
    reply_deinit(&r);
    chat.options.has_max_tokens_default = false;
    converse("{\"max_tokens\": null}", &r);
    expect_int(r.json, "usage.completion_tokens", 4);
    reply_deinit(&r);
    chat.options.max_tokens_cap = 0;
    converse("{\"max_tokens\": null}", &r);
    expect_int(r.json, "usage.total_tokens", 256);
    reply_deinit(&r);
    chat.options.prompt_tokens_details = true;
    converse("{}", &r);
    assert_true(json_is_integer(at(r.json, "usage.prompt_tokens_details.cached_tokens")));
    reply_deinit(&r);
    chat.options.prompt_tokens_details = false;
    complete("{\"max_tokens\": null}", &r);
    expect_int(r.json, "usage.completion_tokens", 16);
    reply_deinit(&r);
}

/* ---------------------------------------------------------------- streams */

static void test_chat_stream(void **state)
{
    (void)state;
    struct reply whole, r;
    char text[4096];
    converse("{}", &whole);
    converse("{\"stream\": true}", &r);
    size_t n = reply_n_events(&r);
    assert_true(n >= 2);
    for (size_t i = 0; i < n; i++) {
        json_t *event = reply_event(&r, i);
        expect_text(event, "object", "chat.completion.chunk");
        expect_text(event, "model", "m");
        expect_size(event, "choices", 1); /* no chunk of usage that nobody asked for */
        expect_int(event, "choices[0].index", 0);
        expect_null(event, "choices[0].logprobs");
        expect_absent(event, "choices[0].delta.tool_calls");
        expect_absent(event, "usage");
        text_at(event, "choices[0].delta.content");
        if (i == 0) {
            expect_text(event, "choices[0].delta.role", "assistant");
            expect_text(event, "choices[0].delta.content", "");
        } else {
            expect_absent(event, "choices[0].delta.role");
        }
        if (i + 1 < n) {
            expect_null(event, "choices[0].finish_reason");
        } else {
            expect_text(event, "choices[0].finish_reason", "length");
            expect_null(event, "choices[0].stop_reason");
        }
        json_decref(event);
    }
    join(&r, 0, "delta.content", text);
    expect_text(whole.json, "choices[0].message.content", text);
    reply_deinit(&r);
    reply_deinit(&whole);
}

static void test_completion_stream(void **state)
{
    (void)state;
    struct reply whole, r;
    char text[4096];
    complete("{}", &whole);
    complete("{\"stream\": true, \"return_token_ids\": true}", &r);
    size_t n = reply_n_events(&r), n_ids = 0;
    for (size_t i = 0; i < n; i++) {
        json_t *event = reply_event(&r, i);
        expect_text(event, "object", "text_completion");
        n_ids += json_array_size(at(event, "choices[0].token_ids"));
        if (i == 0)
            expect_size(event, "choices[0].prompt_token_ids", 5);
        else
            expect_null(event, "choices[0].prompt_token_ids");
        if (i + 1 < n)
            expect_null(event, "choices[0].finish_reason");
        else
            expect_text(event, "choices[0].finish_reason", "length");
        json_decref(event);
    }
    assert_int_equal(n_ids, 6);
    join(&r, 0, "text", text);
    expect_text(whole.json, "choices[0].text", text);
    reply_deinit(&r);
    reply_deinit(&whole);
}

/* Each choice has one end, and the texts are those of the whole answer (H60). */
static void test_stream_of_several(void **state)
{
    (void)state;
    struct reply whole, r;
    char text[4096];
    const char *asked = "{\"prompt\": [\"def f(x):\", \"import\"], \"n\": 2, \"temperature\": 1,"
                        " \"seed\": 7, \"stop\": [\"e\"]}";
    complete(asked, &whole);
    char *streamed = with(asked, "{\"stream\": true}");
    complete(streamed, &r);
    int n_ends[4] = {0};
    for (size_t i = 0; i < reply_n_events(&r); i++) {
        json_t *event = reply_event(&r, i);
        json_int_t index = json_integer_value(at(event, "choices[0].index"));
        assert_true(index >= 0 && index < 4);
        assert_int_equal(n_ends[index], 0); /* nothing follows the end */
        n_ends[index] += !json_is_null(at(event, "choices[0].finish_reason"));
        json_decref(event);
    }
    for (int i = 0; i < 4; i++) {
        char path[40];
        assert_int_equal(n_ends[i], 1);
        join(&r, i, "text", text);
        snprintf(path, sizeof path, "choices[%d].text", i);
        expect_text(whole.json, path, text);
    }
    free(streamed);
    reply_deinit(&whole);
    reply_deinit(&r);
}

static void test_stream_usage(void **state)
{
    (void)state;
    struct reply r;
    converse("{\"stream\": true, \"stream_options\": {\"include_usage\": true}}", &r);
    size_t n = reply_n_events(&r);
    json_t *last = reply_event(&r, n - 1), *first = reply_event(&r, 0);
    expect_size(last, "choices", 0);
    expect_int(last, "usage.completion_tokens", 6);
    text_at(last, "system_fingerprint");
    expect_absent(first, "usage");
    expect_absent(first, "system_fingerprint");
    json_decref(first);
    json_decref(last);
    reply_deinit(&r);
    converse("{\"stream\": true, \"stream_options\": {\"include_usage\": true,"
             " \"continuous_usage_stats\": true}}",
             &r);
    json_int_t before = 0;
    for (size_t i = 0; i < reply_n_events(&r); i++) {
        json_t *event = reply_event(&r, i);
        json_int_t now = json_integer_value(at(event, "usage.completion_tokens"));
        assert_true(json_is_object(at(event, "usage")) && now >= before);
        before = now;
        json_decref(event);
    }
    assert_int_equal(before, 6);
    reply_deinit(&r);
    converse("{\"stream\": true, \"stream_options\": {\"include_usage\": false}}", &r);
    last = reply_event(&r, reply_n_events(&r) - 1);
    expect_size(last, "choices", 1);
    json_decref(last);
    reply_deinit(&r);
    chat.options.force_include_usage = true;
    converse("{\"stream\": true}", &r);
    last = reply_event(&r, reply_n_events(&r) - 1);
    expect_int(last, "usage.completion_tokens", 6);
    json_decref(last);
    reply_deinit(&r);
    chat.options.force_include_usage = false;
}

/* stream_interval: the first token at once, then so many in a chunk. */
static void test_stream_interval(void **state)
{
    (void)state;
    struct reply r;
    code.options.stream_interval = 4;
    complete("{\"stream\": true, \"return_token_ids\": true, \"max_tokens\": 10}", &r);
    size_t n = reply_n_events(&r), n_ids = 0;
    for (size_t i = 0; i < n; i++) {
        json_t *event = reply_event(&r, i);
        size_t k = json_array_size(at(event, "choices[0].token_ids"));
        assert_true(i == 0 || i + 1 == n || k >= 4);
        n_ids += k;
        json_decref(event);
    }
    assert_int_equal(n_ids, 10);
    assert_true(n <= 4);
    code.options.stream_interval = 1;
    reply_deinit(&r);
}

/* Streamed log probabilities are those of the whole answer, whatever the chunks are. */
static void test_stream_logprobs(void **state)
{
    (void)state;
    struct reply whole, r;
    json_t *entries = json_array();
    converse("{\"logprobs\": true, \"top_logprobs\": 3}", &whole);
    converse("{\"logprobs\": true, \"top_logprobs\": 3, \"stream\": true}", &r);
    for (size_t i = 0; i < reply_n_events(&r); i++) {
        json_t *event = reply_event(&r, i);
        if (json_is_object(at(event, "choices[0].logprobs")))
            json_array_extend(entries, (json_t *)at(event, "choices[0].logprobs.content"));
        json_decref(event);
    }
    assert_true(json_equal(entries, at(whole.json, "choices[0].logprobs.content")));
    json_decref(entries);
    reply_deinit(&whole);
    reply_deinit(&r);
}

/* ---------------------------------------------------------------- conversations */

static void expect_same_prompt(const char *a, const char *b)
{
    struct reply one, other;
    char *x = with(a, "{\"return_prompt_text\": true, \"max_tokens\": 1}");
    char *y = with(b, "{\"return_prompt_text\": true, \"max_tokens\": 1}");
    converse(x, &one);
    converse(y, &other);
    expect_text(other.json, "prompt_text", text_at(one.json, "prompt_text"));
    free(x);
    free(y);
    reply_deinit(&one);
    reply_deinit(&other);
}

/* Content that is null, missing or [] is "" (H21); parts join with line ends. */
static void test_contents(void **state)
{
    (void)state;
    const char *empty = "{\"messages\": [{\"role\": \"user\", \"content\": \"U\"}, {\"role\":"
                        " \"assistant\", \"content\": \"\"}, {\"role\": \"user\", \"content\":"
                        " \"V\"}]}";
    expect_same_prompt(empty,
                       "{\"messages\": [{\"role\": \"user\", \"content\": \"U\"}, {\"role\":"
                       " \"assistant\", \"content\": null}, {\"role\": \"user\", \"content\":"
                       " \"V\"}]}");
    expect_same_prompt(empty, "{\"messages\": [{\"role\": \"user\", \"content\": \"U\"}, {\"role\":"
                              " \"assistant\"}, {\"role\": \"user\", \"content\": \"V\"}]}");
    expect_same_prompt(empty, "{\"messages\": [{\"role\": \"user\", \"content\": \"U\"}, {\"role\":"
                              " \"assistant\", \"content\": []}, {\"role\": \"user\", \"content\":"
                              " \"V\"}]}");
    expect_same_prompt("{\"messages\": [{\"role\": \"user\", \"content\": \"a\\nb\"}]}",
                       "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\","
                       " \"text\": \"a\"}, {\"type\": \"text\", \"text\": \"b\"}]}]}");
}

/* The template of a request, where the server trusts it, with its variables. */
static void test_request_template(void **state)
{
    (void)state;
    struct reply r;
    chat.options.trust_request_chat_template = true;
    chat.options.chat_template_kwargs =
        (struct phi_text){"{\"a\": \"x\", \"b\": \"y\"}", strlen("{\"a\": \"x\", \"b\": \"y\"}")};
    converse(
        "{\"chat_template\": \"{{ messages[0].content }}{{ a }}{{ b }}{{ reasoning_effort }}\","
        " \"chat_template_kwargs\": {\"b\": \"z\"}, \"reasoning_effort\": \"low\","
        " \"return_prompt_text\": true}",
        &r);
    expect_text(r.json, "prompt_text", "What is 2 plus 3?xzlow");
    chat.options.chat_template_kwargs = (struct phi_text){NULL, 0};
    chat.options.trust_request_chat_template = false;
    reply_deinit(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_completion_shape),
        cmocka_unit_test(test_chat_shape),
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_completion_logprobs),
        cmocka_unit_test(test_chat_logprobs),
        cmocka_unit_test(test_prompt_logprobs),
        cmocka_unit_test(test_split_characters),
        cmocka_unit_test(test_echo),
        cmocka_unit_test(test_echo_streamed),
        cmocka_unit_test(test_chat_echo),
        cmocka_unit_test(test_several),
        cmocka_unit_test(test_token_id_prompts),
        cmocka_unit_test(test_truncation),
        cmocka_unit_test(test_stop_reasons),
        cmocka_unit_test(test_server_limits),
        cmocka_unit_test(test_chat_stream),
        cmocka_unit_test(test_completion_stream),
        cmocka_unit_test(test_stream_of_several),
        cmocka_unit_test(test_stream_usage),
        cmocka_unit_test(test_stream_interval),
        cmocka_unit_test(test_stream_logprobs),
        cmocka_unit_test(test_contents),
        cmocka_unit_test(test_request_template),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
