/* test_chat_template.c: where templates come from, what requests are made into, and the reported
 * cases of public threads (their ids in the names of the rows). What templates render is in
 * test_jinja.c and, against the reference library, in tests/oracle/test_template_oracle.py. */
#include "base/alloc.h"
#include "base/log.h"
#include "formats/chat_template.h"
#include "formats/json.h"

#include "../temp_folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

/* Templates that stand for those of the models (facts: what each renders per role). */
#define PHI35                                                                                      \
    "{% for m in messages %}{% if m['role'] == 'system' and m['content'] %}{{ '<|system|>\\n' + "  \
    "m['content'] + '<|end|>\\n' }}{% elif m['role'] in ['user', 'assistant'] %}{{ '<|' + "        \
    "m['role'] + '|>\\n' + m['content'] + '<|end|>\\n' }}{% endif %}{% endfor %}"                  \
    "{{ '<|assistant|>\\n' if add_generation_prompt else eos_token }}"
#define PHI3_FIRST                                                                                 \
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '<|user|>\\n' + m.content " \
    "+ "                                                                                           \
    "'<|end|>\\n<|assistant|>\\n' }}{% elif m.role == 'assistant' %}{{ m.content + '<|end|>\\n' "  \
    "}}"                                                                                           \
    "{% endif %}{% endfor %}"
#define PHI4_MINI                                                                                  \
    "{% for m in messages %}{% if m['role'] == 'system' and 'tools' in m and m['tools'] is not "   \
    "none %}{{ '<|system|>' + m['content'] + '<|tool|>' + m['tools'] + '<|/tool|><|end|>' }}"      \
    "{% else %}{{ '<|' + m['role'] + '|>' + m['content'] + '<|end|>' }}{% endif %}{% endfor %}"    \
    "{{ '<|assistant|>' if add_generation_prompt else eos_token }}"

static json_t *json(const char *text)
{
    json_t *value;
    struct phi_error err;
    if (!text)
        return NULL;
    if (phi_json_parse(phi_str_from(text), "test", &value, &err) != PHI_OK)
        fail_msg("%s", err.text);
    return value;
}

static void write_text(struct temp_folder *folder, const char *name, const char *text)
{
    temp_write(folder, name, text, strlen(text));
}

/* Renders with `t`; the result or the error's text is in *out. */
static enum phi_status render(const struct phi_chat_template *t, const char *messages,
                              const char *tools, bool prompt, bool continue_final,
                              struct phi_buf *out)
{
    struct phi_error err = {0};
    json_t *m = json(messages), *u = json(tools);
    struct phi_chat_options options = {
        .add_generation_prompt = prompt, .continue_final_message = continue_final, .tools = u};
    enum phi_status status = phi_chat_template_render(t, m, &options, out, &err);
    if (status != PHI_OK)
        phi_buf_append_c(out, err.text);
    json_decref(m);
    json_decref(u);
    return status;
}

static struct phi_chat_template *parse(const char *source, const char *dir)
{
    struct phi_chat_template *t;
    struct phi_error err;
    if (phi_chat_template_parse(phi_str_from(source), "t", dir, &t, &err) != PHI_OK)
        fail_msg("%s", err.text);
    return t;
}

/* ---- what is rendered ---- */

static const struct row {
    const char *name, *source, *messages, *tools;
    bool prompt, continue_final;
    enum phi_status status;
    const char *want; /* the text, or a part of the error */
} rows[] = {
    {"phi-3.5", PHI35,
     "[{\"role\":\"system\",\"content\":\"S\",\"tools\":\"[]\"},{\"role\":\"user\",\"content\":"
     "\"U\"},"
     "{\"role\":\"assistant\",\"content\":\"A\"},{\"role\":\"user\",\"content\":\"U2\"}]",
     NULL, true, false, PHI_OK,
     "<|system|>\nS<|end|>\n<|user|>\nU<|end|>\n<|assistant|>\nA<|end|>\n<|user|>\nU2<|end|>\n"
     "<|assistant|>\n"},
    {"phi-3, first", PHI3_FIRST,
     "[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"U\"},"
     "{\"role\":\"assistant\",\"content\":\"A\"},{\"role\":\"user\",\"content\":\"U2\"}]",
     NULL, true, false, PHI_OK,
     "<|user|>\nU<|end|>\n<|assistant|>\nA<|end|>\n<|user|>\nU2<|end|>\n<|assistant|>\n"},
    {"phi-4-mini", PHI4_MINI,
     "[{\"role\":\"system\",\"content\":\"S\",\"tools\":\"[]\"},{\"role\":\"user\",\"content\":"
     "\"U\"},"
     "{\"role\":\"assistant\",\"content\":\"A\"},{\"role\":\"user\",\"content\":\"U2\"}]",
     NULL, true, false, PHI_OK,
     "<|system|>S<|tool|>[]<|/tool|><|end|><|user|>U<|end|><|assistant|>A<|end|><|user|>U2<|end|>"
     "<|assistant|>"},
    {"tools go into the system message", PHI4_MINI,
     "[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"U\"}]",
     "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"a\":[1,2.0]}}}]", true,
     false, PHI_OK,
     "<|system|>S<|tool|>[{\"name\": \"f\", \"parameters\": {\"a\": [1, 2.0]}}]<|/tool|><|end|>"
     "<|user|>U<|end|><|assistant|>"},
    {"tools make a system message", PHI4_MINI, "[{\"role\":\"user\",\"content\":\"U\"}]",
     "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]", false, false, PHI_OK,
     "<|system|><|tool|>[{\"name\": \"f\"}]<|/tool|><|end|><|user|>U<|end|>"},
    {"tools given by the message stay", PHI4_MINI,
     "[{\"role\":\"system\",\"content\":\"S\",\"tools\":\"mine\"},{\"role\":\"user\",\"content\":"
     "\"U\"}]",
     "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]", false, false, PHI_OK,
     "<|system|>S<|tool|>mine<|/tool|><|end|><|user|>U<|end|>"},
    {"no tools", PHI4_MINI, "[{\"role\":\"user\",\"content\":\"U\"}]", "[]", false, false, PHI_OK,
     "<|user|>U<|end|>"},
    {"tools as a variable", "{{ tools|tojson }}{{ messages[0].tools is defined }}",
     "[{\"role\":\"user\",\"content\":\"U\"}]", "[{\"a\":1}]", false, false, PHI_OK,
     "[{\"a\": 1}]False"},
    {"a developer is a system", PHI35, "[{\"role\":\"developer\",\"content\":\"D\"}]", NULL, false,
     false, PHI_OK, "<|system|>\nD<|end|>\n"},
    {"a developer where there is one", "{{ messages[0].role }}{{ 'developer' }}",
     "[{\"role\":\"developer\",\"content\":\"D\"}]", NULL, false, false, PHI_OK,
     "developerdeveloper"},
    {"H20: an empty assistant", PHI35,
     "[{\"role\":\"user\",\"content\":\"U\"},{\"role\":\"assistant\",\"content\":\"\"},"
     "{\"role\":\"user\",\"content\":\"V\"}]",
     NULL, true, false, PHI_OK,
     "<|user|>\nU<|end|>\n<|assistant|>\n<|end|>\n<|user|>\nV<|end|>\n<|assistant|>\n"},
    {"H21: content null", PHI35,
     "[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[]},{\"role\":\"tool\",\"content\":"
     "\"r\"}]",
     NULL, false, false, PHI_OK, "<|assistant|>\n<|end|>\n"},
    {"H21: content missing", PHI35,
     "[{\"role\":\"assistant\",\"tool_calls\":[]},{\"role\":\"tool\",\"content\":\"r\"}]", NULL,
     false, false, PHI_OK, "<|assistant|>\n<|end|>\n"},
    {"H21: content []", PHI35,
     "[{\"role\":\"assistant\",\"content\":[],\"tool_calls\":[]},{\"role\":\"tool\",\"content\":"
     "\"r\"}]",
     NULL, false, false, PHI_OK, "<|assistant|>\n<|end|>\n"},
    {"text parts", PHI35,
     "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},\"b\",{\"type\":\"text\","
     "\"text\":\"\"}]}]",
     NULL, false, false, PHI_OK, "<|user|>\na\nb\n<|end|>\n"},
    {"other parts", PHI35,
     "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"image_url\"}]"
     "}]",
     NULL, false, false, PHI_ERR_INVALID, "messages[0].content[1]: only text parts"},
    {"H24: tojson", "{{ tools | tojson }}", "[{\"role\":\"user\",\"content\":\"U\"}]",
     "[{\"description\":\"caf\\u00e9 <b>'x' & y\",\"default\":1e-7}]", false, false, PHI_OK,
     "[{\"description\": \"caf\xc3\xa9 <b>'x' & y\", \"default\": 1e-07}]"},
    {"H26: generation", "{% generation %}x{% endgeneration %}",
     "[{\"role\":\"user\",\"content\":\"\"}]", NULL, false, false, PHI_OK, "x"},
    {"H26: break and continue",
     "{% for i in range(9) %}{% if i==2 %}{% continue %}{% endif %}{% if i==4 %}{% break %}{% "
     "endif %}"
     "{{i}}{% endfor %}",
     "[{\"role\":\"user\",\"content\":\"\"}]", NULL, false, false, PHI_OK, "013"},
    {"H26: loop filter",
     "{% for i in range(5) if i is odd %}{{loop.index0}}:{{i}}{% if not loop.last %},{% endif %}"
     "{% endfor %}",
     "[{\"role\":\"user\",\"content\":\"\"}]", NULL, false, false, PHI_OK, "0:1,1:3"},
    {"H28: the template refuses",
     "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif "
     "%}"
     "{% endfor %}",
     "[{\"role\":\"system\",\"content\":\"S\"}]", NULL, false, false, PHI_ERR_INVALID,
     "t:1: no system"},
    {"H102: arguments as a string", "{{ messages[0].tool_calls[0].function.arguments | tojson }}",
     "[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"arguments\":\"{\\\"a\\\": "
     "3}\"}}]}]",
     NULL, false, false, PHI_OK, "{\"a\": 3}"},
    {"H102: arguments as an object", "{{ messages[0].tool_calls[0].function.arguments | tojson }}",
     "[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"arguments\":{\"a\": 3}}}]}]", NULL,
     false, false, PHI_OK, "{\"a\": 3}"},
    {"H102: arguments empty", "{{ messages[0].tool_calls[0].function.arguments | tojson }}",
     "[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"arguments\":\"\"}}]}]", NULL, false,
     false, PHI_OK, "{}"},
    {"H102: arguments null", "{{ messages[0].tool_calls[0].function.arguments | tojson }}",
     "[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"arguments\":null}}]}]", NULL, false,
     false, PHI_OK, "{}"},
    {"H102: arguments malformed", "{{ messages[0].tool_calls[0].function.arguments | tojson }}",
     "[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"arguments\":\"not json\"}}]}]",
     NULL, false, false, PHI_OK, "\"not json\""},
    {"H18: continue and prompt", PHI35, "[{\"role\":\"user\",\"content\":\"U\"}]", NULL, true, true,
     PHI_ERR_INVALID, "continue_final_message and add_generation_prompt"},
    {"H18: continue a user", PHI35, "[{\"role\":\"user\",\"content\":\"U \"}]", NULL, false, true,
     PHI_OK, "<|user|>\nU "},
    {"continue where the template trims", "{{ '<' + messages[-1].content|trim + '>' }}",
     "[{\"role\":\"user\",\"content\":\"U \"}]", NULL, false, true, PHI_OK, "<U"},
    {"continue what is not shown", "{{ 'content' }}", "[{\"role\":\"user\",\"content\":\"U\"}]",
     NULL, false, true, PHI_ERR_INVALID, "does not appear"},
    {"continue without content", "{{ messages[0].role }}",
     "[{\"role\":\"user\",\"content\":\"U\"}]", NULL, false, true, PHI_ERR_INVALID,
     "not an accepted field"},
    {"reasoning has three names", "{{ messages[0].thinking }}{{ messages[0].reasoning_content }}",
     "[{\"role\":\"assistant\",\"content\":\"\",\"reasoning\":\"r\"}]", NULL, false, false, PHI_OK,
     "rr"},
    {"null is missing", "{{ messages[0].name is defined }}",
     "[{\"role\":\"user\",\"content\":\"U\",\"name\":null}]", NULL, false, false, PHI_OK, "False"},
    {"no messages", PHI35, "[]", NULL, false, false, PHI_ERR_INVALID, "at least one message"},
    {"messages of another kind", PHI35, "{}", NULL, false, false, PHI_ERR_INVALID,
     "expected a list"},
    {"a message of another kind", PHI35, "[5]", NULL, false, false, PHI_ERR_INVALID,
     "messages[0]: expected an object"},
    {"tools of another kind", PHI35, "[{\"role\":\"user\"}]", "[5]", false, false, PHI_ERR_INVALID,
     "tools[0]: expected an object"},
    {"NUL", PHI35, "[{\"role\":\"user\",\"content\":\"a\\u0000\"}]", NULL, false, false, PHI_OK,
     NULL},
};

static void requests_are_rendered(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct row *row = &rows[i];
        struct phi_chat_template *t = parse(row->source, NULL);
        struct phi_buf out = {0};
        enum phi_status status =
            render(t, row->messages, row->tools, row->prompt, row->continue_final, &out);
        struct phi_str want =
            row->want ? phi_str_from(row->want) : PHI_STR("<|user|>\na\0<|end|>\n");
        bool holds =
            status == row->status && (status == PHI_OK ? phi_str_eq(phi_buf_str(&out), want)
                                                       : strstr(out.data, want.data) != NULL);
        if (!holds)
            fail_msg("%s: %s", row->name, out.data ? out.data : "");
        phi_buf_deinit(&out);
        phi_chat_template_close(t);
    }
}

/* ---- where templates come from ---- */

static const char one_user[] = "[{\"role\":\"user\",\"content\":\"U\"}]";

/* What the folder's template renders for one user turn, with or without tools. */
static void expect_from(const char *dir, const char *tools, const char *want)
{
    struct phi_chat_template *t;
    struct phi_error err = {0};
    struct phi_buf out = {0};
    assert_int_equal(phi_chat_template_open(dir, &t, &err), PHI_OK);
    if (!want) {
        assert_null(t);
        return;
    }
    assert_non_null(t);
    render(t, one_user, tools, false, false, &out);
    assert_string_equal(out.data, want);
    phi_buf_deinit(&out);
    phi_chat_template_close(t);
}

static void templates_are_found(void **state)
{
    (void)state;
    struct temp_folder folder;
    static const char tools[] = "[{\"a\":1}]";
    temp_folder_open(&folder);
    expect_from(folder.path, NULL, NULL); /* H111: no template is no error */
    write_text(&folder, "chat_template.json", "{\"chat_template\": \"old\"}");
    expect_from(folder.path, NULL, "old");
    write_text(&folder, "tokenizer_config.json",
               "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"for tools\"},"
               " {\"name\": \"default\", \"template\": \"by default\"},"
               " {\"name\": \"rag\", \"template\": \"{% other %}\"}]}");
    expect_from(folder.path, NULL, "by default"); /* H23 */
    expect_from(folder.path, tools, "for tools");
    write_text(
        &folder, "tokenizer_config.json",
        "{\"chat_template\": \"{{ bos_token }}{{ eos_token }}{{ pad_token }}"
        "{{ image_token }}\", \"bos_token\": \"<s>\", \"eos_token\": {\"content\": \"</s>\"},"
        " \"pad_token\": null, \"extra_special_tokens\": {\"image_token\": \"<i>\"}}");
    expect_from(folder.path, NULL, "<s></s><i>");
    write_text(&folder, "special_tokens_map.json", "{\"eos_token\": \"<e>\"}");
    expect_from(folder.path, NULL, "<s><e><i>");
    write_text(&folder, "tokenizer_config.json",
               "{\"chat_template\": \"{{ eos_token }}\", \"eos_token\": \"</s>\","
               " \"added_tokens_decoder\": {}}");
    expect_from(folder.path, NULL, "</s>"); /* then special_tokens_map.json is not read */
    write_text(&folder, "chat_template.jinja", "file\n");
    expect_from(folder.path, NULL, "file"); /* H22 */
    temp_folder_close(&folder);
}

static void broken_files_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *file, *content, *text;
        enum phi_status status;
    } cases[] = {
        {"tokenizer_config.json", "{", "tokenizer_config.json: not valid JSON", PHI_ERR_FORMAT},
        {"tokenizer_config.json", "[]", "expected an object", PHI_ERR_FORMAT},
        {"tokenizer_config.json", "{\"chat_template\": 5}", "expected a string or a list",
         PHI_ERR_FORMAT},
        {"tokenizer_config.json", "{\"chat_template\": [5]}", "chat_template[0]", PHI_ERR_FORMAT},
        {"tokenizer_config.json", "{\"chat_template\": [{\"name\": \"default\"}]}",
         "chat_template[0].template is missing", PHI_ERR_FORMAT},
        {"tokenizer_config.json", "{\"chat_template\": \"a\\n{% bad %}\"}",
         "tokenizer_config.json:2: Encountered unknown tag 'bad'", PHI_ERR_FORMAT},
        {"chat_template.jinja", "{{ 1", "chat_template.jinja:1: ", PHI_ERR_FORMAT},
        {"chat_template.jinja", "{% include 'x' %}", "'include' is not supported",
         PHI_ERR_UNSUPPORTED},
        {"chat_template.jinja", "\xff", "not valid UTF-8", PHI_ERR_FORMAT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct temp_folder folder;
        struct phi_chat_template *t;
        struct phi_error err = {0};
        temp_folder_open(&folder);
        write_text(&folder, cases[i].file, cases[i].content);
        assert_int_equal(phi_chat_template_open(folder.path, &t, &err), cases[i].status);
        assert_null(t);
        if (!strstr(err.text, cases[i].text))
            fail_msg("%s, wanted %s", err.text, cases[i].text);
        temp_folder_close(&folder);
    }
}

static void source_is_kept(void **state)
{
    (void)state;
    struct phi_chat_template *t = parse("a{# b #}", NULL);
    assert_true(phi_str_eq(phi_chat_template_source(t), PHI_STR("a{# b #}")));
    phi_chat_template_close(t);
}

/* ---- H27: a role that the template drops ---- */

static int n_warnings;

static void count_warning(void *context, int level, const char *line)
{
    (void)context;
    if (level == PHI_LOG_WARNING && strstr(line, "ignores messages of the role 'system'"))
        n_warnings++;
}

static void dropped_role_is_warned_of_once(void **state)
{
    (void)state;
    static const char messages[] =
        "[{\"role\":\"system\",\"content\":\" S \"},{\"role\":\"user\",\"content\":\"U\"}]";
    struct phi_buf out = {0};
    phi_log_set_sink(count_warning, NULL);
    struct phi_chat_template *t = parse(PHI3_FIRST, NULL);
    n_warnings = 0;
    assert_int_equal(render(t, one_user, NULL, true, false, &out), PHI_OK);
    assert_int_equal(n_warnings, 0);
    assert_int_equal(render(t, messages, NULL, true, false, &out), PHI_OK);
    assert_int_equal(render(t, messages, NULL, true, false, &out), PHI_OK);
    assert_int_equal(n_warnings, 1);
    phi_chat_template_close(t);
    t = parse(PHI35, NULL);
    assert_int_equal(render(t, messages, NULL, true, false, &out), PHI_OK);
    assert_int_equal(n_warnings, 1);
    phi_chat_template_close(t);
    phi_log_set_sink(NULL, NULL);
    phi_buf_deinit(&out);
}

/* ---- failing memory ---- */

static enum phi_status open_and_render(const char *dir, const json_t *messages, const json_t *tools)
{
    struct phi_chat_template *t;
    struct phi_buf out = {0};
    struct phi_error err = {0};
    struct phi_chat_options options = {.continue_final_message = true, .tools = tools};
    enum phi_status status = phi_chat_template_open(dir, &t, &err);
    if (status == PHI_OK)
        status = phi_chat_template_render(t, messages, &options, &out, &err);
    if (status == PHI_OK)
        assert_true(out.n > 0);
    phi_chat_template_close(t);
    phi_buf_deinit(&out);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct temp_folder folder;
    json_t *messages =
        json("[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"U\"}]},"
             "{\"role\":\"assistant\",\"reasoning\":\"r\",\"content\":\"A\",\"tool_calls\":"
             "[{\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}}]}]");
    json_t *tools = json("[{\"function\":{\"name\":\"f\"}}]");
    enum phi_status status = PHI_ERR_MEMORY;
    long n = 0;
    temp_folder_open(&folder);
    write_text(&folder, "chat_template.jinja", PHI4_MINI);
    write_text(&folder, "tokenizer_config.json", "{\"eos_token\": \"<e>\"}");
    write_text(&folder, "special_tokens_map.json", "{\"bos_token\": \"<b>\"}");
    while (status != PHI_OK && n < 10000) {
        phi_alloc_fail_nth(++n);
        status = open_and_render(folder.path, messages, tools);
        phi_alloc_fail_nth(0);
        assert_true(status == PHI_OK || status == PHI_ERR_MEMORY);
    }
    assert_int_equal(status, PHI_OK);
    assert_true(n > 20);
    temp_folder_close(&folder);
    json_decref(messages);
    json_decref(tools);
}

/* ---- the real files ---- */

static void real_checkpoints(void **state)
{
    (void)state;
    static const struct {
        const char *name, *want;
    } cases[] = {
        {"phi-1", NULL},
        {"Phi-3.5-mini-instruct", "<|system|>\nS<|end|>\n<|user|>\nU<|end|>\n<|assistant|>\n"},
        {"phi-4", "<|im_start|>system<|im_sep|>S<|im_end|><|im_start|>user<|im_sep|>U<|im_end|>"
                  "<|im_start|>assistant<|im_sep|>"},
        {"Phi-4-mini-instruct", "<|system|>S<|end|><|user|>U<|end|><|assistant|>"},
    };
    const char *parent = getenv("PHI_CHECKPOINTS");
    if (!parent) {
        print_message("# PHI_CHECKPOINTS is not set: the real templates are not tested\n");
        return; /* not skip(): older cmocka reports that as a failure in TAP */
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char dir[4096];
        struct phi_chat_template *t;
        struct phi_error err = {0};
        struct phi_buf out = {0};
        snprintf(dir, sizeof dir, "%s/%s", parent, cases[i].name);
        assert_int_equal(phi_chat_template_open(dir, &t, &err), PHI_OK);
        assert_true((t != NULL) == (cases[i].want != NULL));
        if (!t)
            continue;
        assert_int_equal(render(t,
                                "[{\"role\":\"system\",\"content\":\"S\"},"
                                "{\"role\":\"user\",\"content\":\"U\"}]",
                                NULL, true, false, &out),
                         PHI_OK);
        assert_string_equal(out.data, cases[i].want);
        phi_buf_deinit(&out);
        phi_chat_template_close(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_are_rendered),
        cmocka_unit_test(templates_are_found),
        cmocka_unit_test(broken_files_are_named),
        cmocka_unit_test(source_is_kept),
        cmocka_unit_test(dropped_role_is_warned_of_once),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(real_checkpoints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
