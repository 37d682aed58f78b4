/* test_fields.c: every field of completions and chat: a good value, each kind of bad one, and the
 * HTTP status, "type" and "param" that come back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "service.h"

static struct service code, chat; /* phi-tiny-code has no chat template */

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
    "{\"prompt\": \"def f(x):\", \"max_tokens\": 2, \"temperature\": 0}";
static const char CHAT[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"What is 2 plus 3?\"}],"
    " \"max_tokens\": 2, \"temperature\": 0}";

static const char *const SHAPE = "Bad Request", *const VALUE = "BadRequestError";

/* One request: the fields over the basic ones, and what comes back; type NULL means 200. */
struct row {
    const char *fields;
    const char *type, *param;
};

#define GOOD NULL, NULL

/* Of both endpoints. */
static const struct row both[] = {
    {"{\"model\": null}", GOOD},
    {"{\"model\": \"\"}", GOOD},
    {"{\"model\": \"m\"}", GOOD},
    {"{\"model\": \"other\"}", GOOD},
    {"{\"model\": 5}", SHAPE, NULL},

    {"{\"max_tokens\": 1}", GOOD},
    {"{\"max_tokens\": 3.0}", GOOD},
    {"{\"max_tokens\": null}", GOOD},
    {"{\"max_tokens\": 0}", VALUE, "max_tokens"},
    {"{\"max_tokens\": -1}", VALUE, "max_tokens"},
    {"{\"max_tokens\": 257}", VALUE, "max_tokens"},
    {"{\"max_tokens\": 9000000000000000000}", VALUE, "max_tokens"},
    {"{\"max_tokens\": 256}", VALUE, "input_tokens"},
    {"{\"max_tokens\": 1.5}", SHAPE, NULL},
    {"{\"max_tokens\": \"ten\"}", SHAPE, NULL},

    {"{\"temperature\": 0}", GOOD},
    {"{\"temperature\": 0.001}", GOOD},
    {"{\"temperature\": 2}", GOOD},
    {"{\"temperature\": null}", GOOD},
    {"{\"temperature\": -0.1}", VALUE, "temperature"},
    {"{\"temperature\": 2.1}", VALUE, "temperature"},
    {"{\"temperature\": \"hot\"}", SHAPE, NULL},
    {"{\"temperature\": []}", SHAPE, NULL},

    {"{\"top_p\": 1}", GOOD},
    {"{\"top_p\": 1e-9}", GOOD},
    {"{\"top_p\": 0}", VALUE, "top_p"},
    {"{\"top_p\": 1.0000001}", VALUE, "top_p"},
    {"{\"top_p\": -1}", VALUE, "top_p"},
    {"{\"top_p\": {}}", SHAPE, NULL},

    {"{\"top_k\": -1}", GOOD},
    {"{\"top_k\": 0}", GOOD},
    {"{\"top_k\": 5}", GOOD},
    {"{\"top_k\": -2}", VALUE, NULL},
    {"{\"top_k\": 0.5}", SHAPE, NULL},

    {"{\"min_p\": 0}", GOOD},
    {"{\"min_p\": 1}", GOOD},
    {"{\"min_p\": -0.5}", VALUE, NULL},
    {"{\"min_p\": 1.5}", VALUE, NULL},
    {"{\"min_p\": true}", SHAPE, NULL},

    {"{\"repetition_penalty\": 1.2}", GOOD},
    {"{\"repetition_penalty\": 0}", VALUE, NULL},
    {"{\"repetition_penalty\": -1}", VALUE, NULL},
    {"{\"repetition_penalty\": \"1\"}", SHAPE, NULL},

    {"{\"presence_penalty\": 2, \"frequency_penalty\": -2}", GOOD},
    {"{\"presence_penalty\": 2.5}", VALUE, NULL},
    {"{\"presence_penalty\": \"x\"}", SHAPE, NULL},
    {"{\"frequency_penalty\": -2.5}", VALUE, NULL},
    {"{\"frequency_penalty\": false}", SHAPE, NULL},

    {"{\"n\": 1}", GOOD},
    {"{\"n\": 2, \"temperature\": 1}", GOOD},
    {"{\"n\": 2}", VALUE, NULL}, /* greedy */
    {"{\"n\": 0}", VALUE, NULL},
    {"{\"n\": 16385, \"temperature\": 1}", VALUE, NULL},
    {"{\"n\": \"2\"}", SHAPE, NULL},
    {"{\"best_of\": 3}", GOOD}, /* not a field any more */

    {"{\"seed\": 0}", GOOD},
    {"{\"seed\": -1}", GOOD},
    {"{\"seed\": -9223372036854775808}", GOOD},
    {"{\"seed\": 1.5}", SHAPE, NULL},
    {"{\"seed\": \"x\"}", SHAPE, NULL},

    {"{\"stop\": \"\\n\"}", GOOD},
    {"{\"stop\": [\"a\", \"b\"]}", GOOD},
    {"{\"stop\": []}", GOOD},
    {"{\"stop\": null}", GOOD},
    {"{\"stop\": \"\"}", VALUE, NULL},
    {"{\"stop\": [\"\"]}", VALUE, NULL},
    {"{\"stop\": [1]}", SHAPE, NULL},
    {"{\"stop\": 5}", SHAPE, NULL},

    {"{\"stop_token_ids\": [1, 2]}", GOOD},
    {"{\"stop_token_ids\": []}", GOOD},
    {"{\"stop_token_ids\": [\"1\"]}", SHAPE, NULL},
    {"{\"stop_token_ids\": 1}", SHAPE, NULL},
    {"{\"stop_token_ids\": [99999999999]}", VALUE, NULL},

    {"{\"include_stop_str_in_output\": true}", GOOD},
    {"{\"include_stop_str_in_output\": \"yes\"}", SHAPE, NULL},
    {"{\"ignore_eos\": true}", GOOD},
    {"{\"ignore_eos\": 1}", SHAPE, NULL},
    {"{\"skip_special_tokens\": false}", GOOD},
    {"{\"skip_special_tokens\": \"x\"}", SHAPE, NULL},
    {"{\"spaces_between_special_tokens\": false}", GOOD},
    {"{\"spaces_between_special_tokens\": 3}", SHAPE, NULL},

    {"{\"min_tokens\": 2}", GOOD},
    {"{\"min_tokens\": 3}", VALUE, NULL}, /* max_tokens is 2 */
    {"{\"min_tokens\": -1}", VALUE, NULL},
    {"{\"min_tokens\": []}", SHAPE, NULL},

    {"{\"logit_bias\": {\"5\": -100}}", GOOD},
    {"{\"logit_bias\": {}}", GOOD},
    {"{\"logit_bias\": {\"5\": 1e9}}", GOOD}, /* clamped */
    {"{\"logit_bias\": {\"999999\": 1}}", VALUE, NULL},
    {"{\"logit_bias\": {\"-1\": 1}}", VALUE, NULL},
    {"{\"logit_bias\": {\"x\": 1}}", VALUE, NULL},
    {"{\"logit_bias\": {\"99999999999999999999\": 1}}", VALUE, NULL},
    {"{\"logit_bias\": {\"5\": null}}", SHAPE, NULL},
    {"{\"logit_bias\": [1]}", SHAPE, NULL},

    {"{\"allowed_token_ids\": [5, 6]}", GOOD},
    {"{\"allowed_token_ids\": []}", VALUE, NULL},
    {"{\"allowed_token_ids\": [999999]}", VALUE, NULL},
    {"{\"allowed_token_ids\": [-1]}", VALUE, NULL},
    {"{\"allowed_token_ids\": [0.5]}", SHAPE, NULL},

    {"{\"bad_words\": [\"the\"]}", GOOD},
    {"{\"bad_words\": [\"\"]}", VALUE, NULL},
    {"{\"bad_words\": \"the\"}", SHAPE, NULL},

    {"{\"truncate_prompt_tokens\": 3}", GOOD},
    {"{\"truncate_prompt_tokens\": -1}", GOOD},
    {"{\"truncate_prompt_tokens\": -2}", SHAPE, NULL},
    {"{\"truncate_prompt_tokens\": 255}", VALUE, "truncate_prompt_tokens"},
    {"{\"truncate_prompt_tokens\": 0}", VALUE, NULL}, /* nothing is left of the prompt */
    {"{\"truncation_side\": \"left\"}", GOOD},
    {"{\"truncation_side\": \"top\"}", SHAPE, NULL},

    {"{\"prompt_logprobs\": 0}", GOOD},
    {"{\"prompt_logprobs\": 20}", GOOD},
    {"{\"prompt_logprobs\": 21}", VALUE, "prompt_logprobs"},
    {"{\"prompt_logprobs\": -1}", VALUE, "prompt_logprobs"}, /* the vocabulary is more than 20 */
    {"{\"prompt_logprobs\": -2}", SHAPE, "prompt_logprobs"},
    {"{\"prompt_logprobs\": 1, \"stream\": true}", SHAPE, "prompt_logprobs"},
    {"{\"prompt_logprobs\": \"1\"}", SHAPE, NULL},

    {"{\"response_format\": null}", GOOD},
    {"{\"response_format\": {\"type\": \"text\"}}", GOOD},
    {"{\"response_format\": {\"type\": \"json_object\"}}", VALUE, "response_format"},
    {"{\"response_format\": {\"type\": \"structural_tag\"}}", VALUE, "response_format"},
    {"{\"response_format\": {\"type\": \"json_schema\"}}", SHAPE, "response_format"},
    {"{\"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"name\": \"a\"}}}",
     VALUE, "response_format"},
    {"{\"response_format\": {\"type\": \"poem\"}}", SHAPE, NULL},
    {"{\"response_format\": {}}", SHAPE, NULL},
    {"{\"response_format\": \"text\"}", SHAPE, NULL},
    {"{\"structured_outputs\": {\"choice\": [\"a\"]}}", VALUE, "structured_outputs"},
    {"{\"structured_outputs\": null}", GOOD},
    {"{\"guided_choice\": [\"a\"]}", VALUE, "guided_choice"},
    {"{\"guided_json\": {}}", VALUE, "guided_json"},
    {"{\"use_beam_search\": false, \"length_penalty\": 1.0}", GOOD},
    {"{\"use_beam_search\": true}", VALUE, NULL},
    {"{\"repetition_detection\": {}}", VALUE, "repetition_detection"},
    {"{\"thinking_token_budget\": 5}", VALUE, "thinking_token_budget"},
    {"{\"kv_transfer_params\": {}}", VALUE, "kv_transfer_params"},
    {"{\"vllm_xargs\": {\"a\": 1}}", VALUE, "vllm_xargs"},

    {"{\"stream\": 1}", SHAPE, NULL},
    {"{\"stream_options\": null}", GOOD},
    {"{\"stream_options\": {}}", SHAPE, "stream_options"}, /* without stream */
    {"{\"stream_options\": {\"include_usage\": 1}, \"stream\": true}", SHAPE, NULL},
    {"{\"stream_options\": true, \"stream\": true}", SHAPE, NULL},

    {"{\"priority\": -5}", GOOD},
    {"{\"priority\": \"high\"}", SHAPE, NULL},
    {"{\"request_id\": \"abc\"}", GOOD},
    {"{\"request_id\": 7}", SHAPE, NULL},
    {"{\"cache_salt\": \"s\"}", GOOD},
    {"{\"cache_salt\": \"\"}", SHAPE, "cache_salt"},
    {"{\"cache_salt\": 1}", SHAPE, NULL},
    {"{\"return_token_ids\": true}", GOOD},
    {"{\"return_token_ids\": \"x\"}", SHAPE, NULL},
    {"{\"return_tokens_as_token_ids\": true}", GOOD},
    {"{\"return_tokens_as_token_ids\": []}", SHAPE, NULL},
    {"{\"user\": \"me\"}", GOOD},
    {"{\"user\": 1}", SHAPE, NULL},
    {"{\"no_such_field\": {\"a\": [1, 2]}}", GOOD},
    {"{\"echo\": true}", GOOD},
    {"{\"echo\": \"x\"}", SHAPE, NULL},
    {"{\"add_special_tokens\": false}", GOOD},
    {"{\"add_special_tokens\": 0}", SHAPE, NULL},
};

static const struct row completions[] = {
    {"{\"prompt\": \"a\"}", GOOD},
    {"{\"prompt\": [\"a\", \"b\"]}", GOOD},
    {"{\"prompt\": [1, 2, 3]}", GOOD},
    {"{\"prompt\": [[1, 2], [3]]}", GOOD},
    {"{\"prompt\": \"\"}", SHAPE, NULL},
    {"{\"prompt\": null}", SHAPE, NULL},
    {"{\"prompt\": \"-\"}", SHAPE, NULL}, /* absent */
    {"{\"prompt\": 5}", SHAPE, NULL},
    {"{\"prompt\": [\"a\", 1]}", SHAPE, NULL},
    {"{\"prompt\": [[1], \"a\"]}", SHAPE, NULL},
    {"{\"prompt\": [-1]}", SHAPE, NULL},
    {"{\"prompt\": []}", VALUE, NULL},
    {"{\"prompt\": [[]]}", VALUE, NULL},
    {"{\"prompt\": [\"\"]}", VALUE, NULL},
    {"{\"prompt\": [[1], []]}", VALUE, NULL},
    {"{\"prompt\": [999999]}", VALUE, NULL},
    {"{\"prompt\": [99999999999]}", VALUE, NULL},
    {"{\"prompt\": [[1, 2], [999999]]}", VALUE, NULL},

    {"{\"logprobs\": 0}", GOOD},
    {"{\"logprobs\": 20}", GOOD},
    {"{\"logprobs\": 21}", VALUE, "logprobs"},
    {"{\"logprobs\": -1}", SHAPE, "logprobs"},
    {"{\"logprobs\": true}", SHAPE, NULL},
    {"{\"max_tokens\": 0, \"echo\": true}", GOOD},
    {"{\"suffix\": \"end\"}", VALUE, NULL},
    {"{\"suffix\": \"\"}", VALUE, NULL},
    {"{\"suffix\": null}", GOOD},
    {"{\"prompt_embeds\": \"AAAA\"}", VALUE, NULL},
    {"{\"stream_options\": {\"include_usage\": true}, \"suffix\": \"x\"}", SHAPE, "stream_options"},
};

#define TOOL "{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}"
#define MESSAGES(list) "{\"messages\": [" list "]}"

static const struct row chats[] = {
    {"{\"messages\": null}", SHAPE, NULL},
    {"{\"messages\": \"-\"}", SHAPE, NULL}, /* absent */
    {"{\"messages\": \"hi\"}", SHAPE, NULL},
    {"{\"messages\": [\"hi\"]}", SHAPE, NULL},
    {"{\"messages\": []}", VALUE, NULL},
    {MESSAGES("{\"content\": \"a\"}"), SHAPE, NULL},
    {MESSAGES("{\"role\": 5, \"content\": \"a\"}"), SHAPE, NULL},
    {MESSAGES("{\"role\": \"user\", \"content\": 5}"), SHAPE, NULL},
    {MESSAGES("{\"role\": \"user\", \"content\": {}}"), SHAPE, NULL},
    {MESSAGES("{\"role\": \"user\", \"content\": [5]}"), SHAPE, NULL},
    {MESSAGES("{\"role\": \"user\", \"content\": [{\"text\": \"a\"}]}"), SHAPE, NULL},
    {MESSAGES("{\"role\": \"user\", \"content\": [{\"type\": \"text\"}]}"), SHAPE, NULL},
    {MESSAGES("{\"role\": \"user\", \"content\": [{\"type\": \"image_url\", \"image_url\": {}}]}"),
     VALUE, NULL},
    {MESSAGES("{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, \"b\"]}"),
     GOOD},
    {MESSAGES("{\"role\": \"user\", \"content\": null}"), GOOD},
    {MESSAGES("{\"role\": \"user\"}"), GOOD},
    {MESSAGES("{\"role\": \"user\", \"content\": []}"), GOOD},
    {MESSAGES("{\"role\": \"assistant\", \"tool_calls\": 5}"), SHAPE, NULL},
    {MESSAGES("{\"role\": \"assistant\", \"tool_calls\": [{}]}"), SHAPE, NULL},

    {"{\"max_completion_tokens\": 1}", GOOD},
    {"{\"max_completion_tokens\": 5, \"max_tokens\": 500}", GOOD}, /* wins */
    {"{\"max_completion_tokens\": 0}", VALUE, "max_completion_tokens"},
    {"{\"max_completion_tokens\": 257}", VALUE, "max_completion_tokens"},
    {"{\"max_completion_tokens\": \"1\"}", SHAPE, NULL},

    {"{\"logprobs\": true}", GOOD},
    {"{\"logprobs\": true, \"top_logprobs\": 20}", GOOD},
    {"{\"logprobs\": 1}", SHAPE, NULL},
    {"{\"top_logprobs\": 0}", GOOD},
    {"{\"top_logprobs\": 2}", SHAPE, "top_logprobs"},
    {"{\"top_logprobs\": 2, \"logprobs\": false}", SHAPE, "top_logprobs"},
    {"{\"top_logprobs\": -2, \"logprobs\": true}", SHAPE, "top_logprobs"},
    {"{\"top_logprobs\": 21, \"logprobs\": true}", VALUE, "logprobs"},
    {"{\"top_logprobs\": -1, \"logprobs\": true}", VALUE, "logprobs"},

    {"{\"tools\": null}", GOOD},
    {"{\"tools\": []}", SHAPE, NULL},
    {"{\"tools\": 5}", SHAPE, NULL},
    {"{\"tools\": [{}]}", SHAPE, NULL},
    {"{\"tools\": [" TOOL "]}", VALUE, NULL}, /* auto */
    {"{\"tools\": [" TOOL "], \"tool_choice\": \"none\"}", GOOD},
    {"{\"tools\": [" TOOL "], \"tool_choice\": \"auto\"}", VALUE, NULL},
    {"{\"tools\": [" TOOL "], \"tool_choice\": \"required\"}", VALUE, NULL},
    {"{\"tools\": [" TOOL "], \"tool_choice\": \"maybe\"}", SHAPE, NULL},
    {"{\"tools\": [" TOOL "], \"tool_choice\": 1}", SHAPE, NULL},
    {"{\"tools\": [" TOOL "], \"tool_choice\": {\"function\": {\"name\": \"f\"}}}", VALUE, NULL},
    {"{\"tools\": [" TOOL "], \"tool_choice\": {\"function\": {\"name\": \"g\"}}}", SHAPE, NULL},
    {"{\"tools\": [" TOOL "], \"tool_choice\": {\"type\": \"function\"}}", SHAPE, NULL},
    {"{\"tool_choice\": \"none\"}", GOOD},
    {"{\"tool_choice\": null}", GOOD},
    {"{\"tool_choice\": \"auto\"}", SHAPE, NULL},
    {"{\"tool_choice\": \"required\"}", SHAPE, NULL},
    {"{\"tool_choice\": {\"function\": {\"name\": \"f\"}}}", SHAPE, NULL},
    {"{\"parallel_tool_calls\": false}", GOOD},

    {"{\"add_generation_prompt\": false}", GOOD},
    {"{\"add_generation_prompt\": 0}", SHAPE, NULL},
    {"{\"continue_final_message\": true}", SHAPE, NULL}, /* both are true */
    {"{\"continue_final_message\": true, \"add_generation_prompt\": false}", GOOD},
    {"{\"chat_template\": \"{{ messages[0].content }}\"}", VALUE, NULL},
    {"{\"chat_template_kwargs\": {\"chat_template\": \"x\"}}", VALUE, NULL},
    {"{\"chat_template\": 5}", SHAPE, NULL},
    {"{\"chat_template_kwargs\": {\"a\": 1}}", GOOD},
    {"{\"chat_template_kwargs\": []}", SHAPE, NULL},
    {"{\"documents\": [{\"title\": \"t\", \"text\": \"x\"}]}", GOOD},
    {"{\"documents\": [\"x\"]}", SHAPE, NULL},
    {"{\"reasoning_effort\": \"low\"}", GOOD},
    {"{\"reasoning_effort\": 1}", SHAPE, NULL},
    {"{\"include_reasoning\": false}", GOOD},
    {"{\"return_prompt_text\": true}", GOOD},
    {"{\"return_prompt_text\": 1}", SHAPE, NULL},
    {"{\"mm_processor_kwargs\": {}}", VALUE, NULL},
};

static void try_rows(struct service *s, const char *path, const char *base, const struct row *rows,
                     size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct reply r;
        char *body = with(base, rows[i].fields);
        post(&s->server, path, body, &r);
        if (rows[i].type) {
            if (r.status != 400)
                print_error("%s: %s\n", path, rows[i].fields);
            expect_error(&r, 400, rows[i].type, rows[i].param);
        } else if (r.status != 200) {
            fail_msg("%s: %s: status %d: %s", path, rows[i].fields, r.status, r.body.data);
        }
        free(body);
        reply_deinit(&r);
    }
}

#define N(array) (sizeof(array) / sizeof *(array))

static void test_fields_of_both(void **state)
{
    (void)state;
    try_rows(&code, "/v1/completions", COMPLETION, both, N(both));
    try_rows(&chat, "/v1/chat/completions", CHAT, both, N(both));
}

static void test_fields_of_completions(void **state)
{
    (void)state;
    try_rows(&code, "/v1/completions", COMPLETION, completions, N(completions));
}

static void test_fields_of_chat(void **state)
{
    (void)state;
    try_rows(&chat, "/v1/chat/completions", CHAT, chats, N(chats));
}

/* Clients send every field with an empty value (H78); the answer is that of the short request. */
static void test_null_is_absent(void **state)
{
    (void)state;
    struct reply plain, full;
    char *body = with(
        CHAT,
        "{\"stop\": null, \"logit_bias\": {}, \"user\": \"\", \"n\": 1, \"presence_penalty\": 0.0,"
        " \"seed\": null, \"tools\": null, \"tool_choice\": null, \"response_format\": null,"
        " \"stream_options\": null, \"metadata\": {}, \"store\": false, \"top_logprobs\": null,"
        " \"logprobs\": false, \"frequency_penalty\": null, \"stream\": null, \"top_p\": null,"
        " \"max_completion_tokens\": null, \"parallel_tool_calls\": null, \"functions\": null}");
    post(&chat.server, "/v1/chat/completions", CHAT, &plain);
    post(&chat.server, "/v1/chat/completions", body, &full);
    assert_int_equal(full.status, 200);
    assert_true(json_equal(at(plain.json, "choices"), at(full.json, "choices")));
    free(body);
    reply_deinit(&plain);
    reply_deinit(&full);
}

/* Bodies that are no request at all. */
static void test_bodies(void **state)
{
    (void)state;
    static const char *const bodies[] = {
        "",
        "{",
        "null",
        "[]",
        "\"x\"",
        "{\"prompt\": \"a\"} x",
        "{\"prompt\": \"a\", \"prompt\": \"b\"}",
        "{\"prompt\": \"a\", \"seed\": 9223372036854775808}",
        "{\"prompt\": \"a\", \"temperature\": 1e999}",
        "{\"prompt\": \"a\", \"temperature\": NaN}",
        "{\"prompt\": \"\\ud83d\"}",
        "{\"prompt\": \"a\\udc00b\"}",
        "{\"prompt\": \"\xff\"}",
        "{\"prompt\": \"\xed\xa0\x80\"}",
        "{\"a\\u0000b\": 1, \"prompt\": \"a\"}",
    };
    struct reply r;
    for (size_t i = 0; i < N(bodies); i++) {
        post(&code.server, "/v1/completions", bodies[i], &r);
        expect_error(&r, 400, SHAPE, NULL);
        reply_deinit(&r);
    }
    static char deep[200001];
    memset(deep, '[', 200000);
    post(&code.server, "/v1/completions", deep, &r);
    expect_error(&r, 400, SHAPE, NULL);
    reply_deinit(&r);
}

static void test_content_types(void **state)
{
    (void)state;
    static const struct {
        const char *type;
        bool good;
    } types[] = {
        {"application/json", true},
        {"application/json; charset=utf-8", true},
        {"APPLICATION/JSON", true},
        {"", false},
        {"text/plain", false},
        {"application/jsonp", false},
        {"application/x-www-form-urlencoded", false},
    };
    for (size_t i = 0; i < N(types); i++) {
        struct reply r;
        ask(&code.server,
            &(struct question){.method = "POST",
                               .path = "/v1/completions",
                               .body = COMPLETION,
                               .content_type = types[i].type},
            &r);
        if (types[i].good)
            assert_int_equal(r.status, 200);
        else
            expect_error(&r, 400, SHAPE, NULL);
        reply_deinit(&r);
    }
}

/* Errors of the order in which vLLM looks: shape, then the model's name, then values. */
static void test_order(void **state)
{
    (void)state;
    static const struct {
        const char *fields;
        int status;
        const char *type, *param;
    } rows[] = {
        {"{\"model\": \"gpt\"}", 404, "NotFoundError", "model"},
        {"{\"model\": \"gpt\", \"temperature\": -1}", 404, "NotFoundError", "model"},
        {"{\"model\": \"gpt\", \"temperature\": \"x\"}", 400, "Bad Request", NULL},
        {"{\"model\": \"gpt\", \"stream\": true}", 404, "NotFoundError", "model"},
        {"{\"temperature\": -1, \"stream\": true}", 400, "BadRequestError", "temperature"},
        {"{\"max_tokens\": 255, \"stream\": true}", 400, "BadRequestError", "input_tokens"},
    };
    for (size_t i = 0; i < N(rows); i++) {
        struct reply r;
        char *body = with(COMPLETION, rows[i].fields);
        post(&code.server, "/v1/completions", body, &r);
        expect_error(&r, rows[i].status, rows[i].type, rows[i].param);
        free(body);
        body = with(CHAT, rows[i].fields);
        reply_deinit(&r);
        post(&chat.server, "/v1/chat/completions", body, &r);
        expect_error(&r, rows[i].status, rows[i].type, rows[i].param);
        free(body);
        reply_deinit(&r);
    }
}

/* A text that cannot fit whatever its tokens are is refused for its length; blanks do not count. */
static void test_long_texts(void **state)
{
    (void)state;
    static char text[100001];
    struct reply r;
    json_t *body = json_pack("{s:s, s:i}", "prompt", "", "max_tokens", 2);
    static const char *const params[] = {"input_text", "input_tokens"};
    for (int i = 0; i < 2; i++) {
        memset(text, i == 0 ? 'a' : ' ', sizeof text - 1);
        json_object_set_new(body, "prompt", json_string(text));
        char *dumped = json_dumps(body, 0);
        post(&code.server, "/v1/completions", dumped, &r);
        expect_error(&r, 400, VALUE, params[i]);
        free(dumped);
        reply_deinit(&r);
    }
    json_object_set_new(body, "truncate_prompt_tokens", json_integer(-1));
    char *dumped = json_dumps(body, 0);
    post(&code.server, "/v1/completions", dumped, &r);
    assert_int_equal(r.status, 200);
    expect_int(r.json, "usage.prompt_tokens", 254);
    free(dumped);
    json_decref(body);
    reply_deinit(&r);
}

/* The place of an error in a message, and a model that has no template. */
static void test_chat_errors(void **state)
{
    (void)state;
    struct reply r;
    char *body =
        with(CHAT, MESSAGES("{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"user\", "
                            "\"content\": [{\"type\": \"text\", \"text\": 5}]}"));
    post(&chat.server, "/v1/chat/completions", body, &r);
    expect_error(&r, 400, SHAPE, NULL);
    assert_non_null(strstr(text_at(r.json, "error.message"), "messages[1].content[0].text"));
    free(body);
    reply_deinit(&r);
    post(&code.server, "/v1/chat/completions", CHAT, &r);
    expect_error(&r, 400, VALUE, NULL);
    assert_non_null(strstr(text_at(r.json, "error.message"), "chat template"));
    reply_deinit(&r);
    chat.options.trust_request_chat_template = true;
    body = with(CHAT, "{\"chat_template\": \"{{ raise_exception('no such role') }}\"}");
    post(&chat.server, "/v1/chat/completions", body, &r);
    expect_error(&r, 400, VALUE, NULL);
    assert_non_null(strstr(text_at(r.json, "error.message"), "no such role"));
    free(body);
    reply_deinit(&r);
    body = with(CHAT, "{\"chat_template\": \"\"}"); /* renders to nothing */
    post(&chat.server, "/v1/chat/completions", body, &r);
    assert_int_equal(r.status, 400);
    free(body);
    reply_deinit(&r);
    chat.options.trust_request_chat_template = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields_of_both), cmocka_unit_test(test_fields_of_completions),
        cmocka_unit_test(test_fields_of_chat), cmocka_unit_test(test_null_is_absent),
        cmocka_unit_test(test_bodies),         cmocka_unit_test(test_content_types),
        cmocka_unit_test(test_order),          cmocka_unit_test(test_long_texts),
        cmocka_unit_test(test_chat_errors),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
