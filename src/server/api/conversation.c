/* conversation.c: see conversation.h. */
#include "server/api/conversation.h"
#include "formats/json.h"

#include <stdio.h>

/* ---------------------------------------------------------------- messages */

static enum phi_status expect(const char *where, const char *field, const char *what,
                              struct phi_refusal *r)
{
    return phi_refuse(r, PHI_REFUSED_SHAPE, NULL, "%s%s: expected %s", where, field, what);
}

/* A text part in any of its spellings; what else there is needs a model that sees or hears. */
static enum phi_status check_part(const json_t *part, const char *where, struct phi_refusal *r)
{
    static const char *const text_types[] = {"text", "input_text", "output_text", "refusal"};
    if (json_is_string(part))
        return PHI_OK;
    if (!json_is_object(part))
        return expect(where, "", "a string or an object", r);
    const json_t *type = phi_json_field(part, "type");
    if (!json_is_string(type))
        return expect(where, ".type", "a string", r);
    for (size_t i = 0; i < sizeof text_types / sizeof *text_types; i++) {
        if (!phi_str_eq_c(phi_json_str(type), text_types[i]))
            continue;
        const char *field = i == 3 ? "refusal" : "text";
        if (!json_is_string(phi_json_field(part, field)))
            return phi_refuse(r, PHI_REFUSED_SHAPE, NULL, "%s.%s: expected a string", where, field);
        return PHI_OK;
    }
    return phi_refuse(r, PHI_REFUSED_VALUE, NULL,
                      "%s: parts of type '%.40s' are not supported: the model reads text only.",
                      where, json_string_value(type));
}

static enum phi_status check_content(const json_t *content, const char *where,
                                     struct phi_refusal *r)
{
    char place[80];
    if (!content || json_is_string(content))
        return PHI_OK;
    if (!json_is_array(content))
        return expect(where, ".content", "a string or an array of parts", r);
    for (size_t i = 0; i < json_array_size(content); i++) {
        snprintf(place, sizeof place, "%s.content[%zu]", where, i);
        PHI_TRY(check_part(json_array_get(content, i), place, r));
    }
    return PHI_OK;
}

static enum phi_status check_calls(const json_t *calls, const char *where, struct phi_refusal *r)
{
    char place[80];
    if (!calls)
        return PHI_OK;
    if (!json_is_array(calls))
        return expect(where, ".tool_calls", "an array", r);
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *call = json_array_get(calls, i);
        snprintf(place, sizeof place, "%s.tool_calls[%zu]", where, i);
        if (!json_is_object(call))
            return expect(place, "", "an object", r);
        const json_t *function = phi_json_field(call, "function");
        if (!json_is_object(function))
            return expect(place, ".function", "an object", r);
        if (!json_is_string(phi_json_field(function, "name")))
            return expect(place, ".function.name", "a string", r);
    }
    return PHI_OK;
}

static enum phi_status check_messages(const json_t *messages, struct phi_refusal *r)
{
    char where[40];
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i);
        snprintf(where, sizeof where, "messages[%zu]", i);
        const json_t *role = phi_json_field(message, "role");
        if (!role)
            return phi_refuse(r, PHI_REFUSED_SHAPE, NULL, "%s.role: Field required", where);
        if (!json_is_string(role))
            return expect(where, ".role", "a string", r);
        PHI_TRY(check_content(phi_json_field(message, "content"), where, r));
        PHI_TRY(check_calls(phi_json_field(message, "tool_calls"), where, r));
    }
    return PHI_OK;
}

/* ---------------------------------------------------------------- tools */

/* The name of a tool's function; data NULL when there is none. */
static struct phi_str function_name(const json_t *tool)
{
    const json_t *function = phi_json_field(tool, "function");
    const json_t *name = json_is_object(function) ? phi_json_field(function, "name") : NULL;
    return json_is_string(name) ? phi_json_str(name) : (struct phi_str){NULL, 0};
}

static enum phi_status check_tools(const json_t *tools, struct phi_refusal *r)
{
    if (tools && json_array_size(tools) == 0)
        return phi_refuse(r, PHI_REFUSED_SHAPE, NULL, "tools: expected at least one tool");
    for (size_t i = 0; i < json_array_size(tools); i++)
        if (!function_name(json_array_get(tools, i)).data)
            return phi_refuse(r, PHI_REFUSED_SHAPE, NULL,
                              "tools[%zu].function.name: expected a string", i);
    return PHI_OK;
}

static bool has_tool(const json_t *tools, struct phi_str name)
{
    for (size_t i = 0; i < json_array_size(tools); i++)
        if (phi_str_eq(function_name(json_array_get(tools, i)), name))
            return true;
    return false;
}

/* With tools, "none" shows them to the model and leaves it at that; the other choices, of which
 * "auto" is the default, need what is not there yet. */
static enum phi_status check_tool_choice(const struct phi_fields *f, struct phi_refusal *r)
{
    const json_t *choice = f->tool_choice;
    struct phi_str word = json_is_string(choice) ? phi_json_str(choice) : PHI_STR("auto");
    bool is_none = phi_str_eq_c(word, "none"), is_named = json_is_object(choice);
    if (is_none || (!choice && !f->tools))
        return PHI_OK;
    if (choice && !is_named &&
        !(json_is_string(choice) && (phi_str_eq_c(word, "auto") || phi_str_eq_c(word, "required"))))
        return phi_refuse(r, PHI_REFUSED_SHAPE, NULL,
                          "tool_choice: expected 'none', 'auto', 'required' or an object that "
                          "names a function");
    if (is_named && !function_name(choice).data)
        return phi_refuse(r, PHI_REFUSED_SHAPE, NULL,
                          "tool_choice.function.name: expected a string");
    if (!f->tools)
        return phi_refuse(r, PHI_REFUSED_SHAPE, NULL,
                          "When using `tool_choice`, `tools` must be set.");
    if (is_named && !has_tool(f->tools, function_name(choice)))
        return phi_refuse(r, PHI_REFUSED_SHAPE, NULL,
                          "The tool specified in `tool_choice` does not match any of the "
                          "specified `tools`");
    return phi_refuse(r, PHI_REFUSED_VALUE, NULL,
                      "%s tool choice is not supported by this server yet; with tool_choice "
                      "\"none\" the tools are shown to the model.",
                      is_named              ? "a named"
                      : word.data[0] == 'a' ? "\"auto\""
                                            : "\"required\"");
}

enum phi_status phi_conversation_check(const struct phi_fields *f, struct phi_refusal *r)
{
    PHI_TRY(check_messages(f->messages, r));
    if (f->continue_final_message && f->add_generation_prompt)
        return phi_refuse(r, PHI_REFUSED_SHAPE, NULL,
                          "Cannot set both `continue_final_message` and `add_generation_prompt` to "
                          "True.");
    PHI_TRY(check_tools(f->tools, r));
    return check_tool_choice(f, r);
}

/* ---------------------------------------------------------------- the prompt */

/* The server's variables of the template, then the request's; a name that comes twice is the
 * request's. */
static enum phi_status write_kwargs(const struct phi_server *s, const struct phi_fields *f,
                                    struct phi_out *o, struct phi_refusal *r)
{
    json_t *merged = NULL;
    struct phi_text defaults = s->options->chat_template_kwargs;
    if (defaults.n > 0 &&
        phi_json_parse((struct phi_str){defaults.data, defaults.n},
                       "--default-chat-template-kwargs", &merged, &r->error) != PHI_OK)
        return phi_refuse_status(r, NULL);
    if (!merged)
        merged = json_object();
    bool ok = merged != NULL;
    if (ok && f->reasoning_effort.data)
        ok =
            json_object_set_new(merged, "reasoning_effort",
                                json_stringn(f->reasoning_effort.data, f->reasoning_effort.n)) == 0;
    if (ok && f->chat_template_kwargs)
        ok = json_object_update(merged, (json_t *)f->chat_template_kwargs) == 0;
    if (ok)
        phi_out_value(o, "chat_template_kwargs", merged);
    json_decref(merged);
    return ok ? PHI_OK : phi_refuse_memory(r);
}

static enum phi_status write_options(const struct phi_server *s, const struct phi_fields *f,
                                     struct phi_buf *options, struct phi_refusal *r)
{
    struct phi_out o = {.buf = options};
    phi_out_open(&o, NULL, '{');
    phi_out_bool(&o, "add_generation_prompt", f->add_generation_prompt);
    phi_out_bool(&o, "continue_final_message", f->continue_final_message);
    if (f->tools)
        phi_out_value(&o, "tools", f->tools);
    if (f->documents)
        phi_out_value(&o, "documents", f->documents);
    if (f->chat_template.data)
        phi_out_text(&o, "chat_template", f->chat_template);
    PHI_TRY(write_kwargs(s, f, &o, r));
    phi_out_close(&o, '}');
    return options->failed ? phi_refuse_memory(r) : PHI_OK;
}

static enum phi_status check_trust(const struct phi_server *s, const struct phi_fields *f,
                                   struct phi_refusal *r)
{
    bool has_template =
        f->chat_template.data ||
        (f->chat_template_kwargs && phi_json_field(f->chat_template_kwargs, "chat_template"));
    if (!has_template || s->options->trust_request_chat_template)
        return PHI_OK;
    return phi_refuse(r, PHI_REFUSED_VALUE, NULL,
                      "Chat template is passed with request, but "
                      "--trust-request-chat-template is not set. Refused request with untrusted "
                      "chat template.");
}

enum phi_status phi_conversation_render(const struct phi_server *s, const struct phi_fields *f,
                                        char **text, size_t *n_text, struct phi_refusal *r)
{
    struct phi_buf messages = {0}, options = {0};
    struct phi_out o = {.buf = &messages};
    PHI_TRY(check_trust(s, f, r));
    if (json_array_size(f->messages) == 0)
        return phi_refuse(r, PHI_REFUSED_VALUE, NULL, "messages must not be empty");
    phi_out_value(&o, NULL, f->messages);
    enum phi_status status = messages.failed ? phi_refuse_memory(r) : PHI_OK;
    if (status == PHI_OK)
        status = write_options(s, f, &options, r);
    if (status == PHI_OK) {
        status =
            phi_render_chat(s->model, (struct phi_text){messages.data, messages.n},
                            (struct phi_text){options.data, options.n}, text, n_text, &r->error);
        if (status != PHI_OK)
            phi_refuse_status(r, NULL);
    }
    phi_buf_deinit(&messages);
    phi_buf_deinit(&options);
    return status;
}
