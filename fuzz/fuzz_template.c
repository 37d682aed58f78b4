/* fuzz_template.c: a template source of any bytes, parsed and rendered with a fixed conversation.
 * Whatever the source says, the run ends within its bounds with a text or an error. */
#include "formats/chat_template.h"
#include "formats/json.h"

#include <stdint.h>

static const char messages_text[] =
    "[{\"role\": \"system\", \"content\": \"S <b>\\u00e9\\u65e5\"},"
    " {\"role\": \"user\", \"content\": \" U\\n\"},"
    " {\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \"1\", \"type\": "
    "\"function\", \"function\": {\"name\": \"f\", \"arguments\": \"{\\\"a\\\": [1, 2.5, "
    "null]}\"}}]},"
    " {\"role\": \"tool\", \"content\": \"20\"}, {\"role\": \"user\", \"content\": \"a\\u0000b, "
    "c\"}]";
static const char tools_text[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": "
    "\"object\","
    " \"properties\": {\"a\": {\"type\": \"string\", \"enum\": [\"x\", \"y\"]}},"
    " \"required\": [\"a\"]}}}]";

static void render(const struct phi_chat_template *t, const json_t *messages, const json_t *tools,
                   bool continue_final)
{
    struct phi_buf out = {0};
    struct phi_error err;
    struct phi_chat_options options = {.add_generation_prompt = !continue_final,
                                       .continue_final_message = continue_final,
                                       .tools = tools};
    phi_chat_template_render(t, messages, &options, &out, &err);
    phi_buf_deinit(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct phi_chat_template *t;
    struct phi_error err;
    json_t *messages = NULL, *tools = NULL;
    struct phi_str source = {(const char *)data, n};
    if (phi_chat_template_parse(source, "fuzz", NULL, &t, &err) != PHI_OK)
        return 0;
    if (phi_json_parse(phi_str_from(messages_text), "messages", &messages, &err) == PHI_OK &&
        phi_json_parse(phi_str_from(tools_text), "tools", &tools, &err) == PHI_OK) {
        render(t, messages, tools, false);
        render(t, messages, NULL, true);
    }
    json_decref(messages);
    json_decref(tools);
    phi_chat_template_close(t);
    return 0;
}
