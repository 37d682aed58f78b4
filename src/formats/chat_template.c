/* chat_template.c: see chat_template.h. The idea: messages become template values first and are put
 * in order there, in the rendering's own memory, so the caller's JSON is never changed. */
#include "formats/chat_template.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "formats/jinja/jinja.h"
#include "formats/jinja/text.h"
#include "formats/jinja/unicode.h"
#include "formats/json.h"

#include <stdatomic.h>
#include <stdio.h>

enum { MAX_FILE_BYTES = 64 * 1024 * 1024, N_ROLES_WATCHED = 5 };

static const char CONTINUE_TAG[] = "CONTINUE_FINAL_MESSAGE_TAG "; /* transformers' own marker */

/* A template and what it is made for. */
struct variant {
    struct phi_buf source;
    struct phi_jinja *jinja; /* NULL: there is none */
    bool tools_in_message;   /* looks for tools in a message, and nowhere else */
    bool knows_developer;    /* has a role of this name */
};

struct phi_chat_template {
    struct variant main;
    struct variant tool_use; /* used instead when tools are given */
    json_t *tokens;          /* {"bos_token": "<s>", ...} */
    atomic_uint warned;      /* bit i: roles_watched[i] was reported as dropped */
};

static const char *const roles_watched[N_ROLES_WATCHED] = {"system", "developer", "user",
                                                           "assistant", "tool"};

/* ---- opening ---- */

static enum phi_status set_variant(struct variant *v, struct phi_str source, const char *name,
                                   struct phi_error *err)
{
    phi_buf_clear(&v->source);
    phi_buf_append_str(&v->source, source);
    if (v->source.failed)
        return phi_fail_memory(err, name, source.n);
    phi_jinja_close(v->jinja);
    PHI_TRY(phi_jinja_open(source, name, &v->jinja, err));
    v->tools_in_message =
        phi_jinja_reads_member(v->jinja, "tools") && !phi_jinja_reads_variable(v->jinja, "tools");
    v->knows_developer = phi_jinja_has_literal(v->jinja, "developer");
    return PHI_OK;
}

static void deinit_variant(struct variant *v)
{
    phi_jinja_close(v->jinja);
    phi_buf_deinit(&v->source);
}

/* A string, or a list of {"name", "template"}. */
static enum phi_status set_from_json(struct phi_chat_template *t, const json_t *field,
                                     const char *file, struct phi_error *err)
{
    if (json_is_string(field))
        return set_variant(&t->main, phi_json_str(field), file, err);
    if (!json_is_array(field))
        return phi_fail(err, PHI_ERR_FORMAT, "%s: chat_template: expected a string or a list",
                        file);
    for (size_t i = 0; i < json_array_size(field); i++) {
        const json_t *entry = json_array_get(field, i);
        struct phi_str name = {"", 0}, source = {NULL, 0};
        if (!json_is_object(entry))
            return phi_fail(err, PHI_ERR_FORMAT, "%s: chat_template[%zu]: expected an object", file,
                            i);
        PHI_TRY(phi_json_get_str(entry, file, "name", &name, err));
        PHI_TRY(phi_json_get_str(entry, file, "template", &source, err));
        if (!source.data)
            return phi_fail(err, PHI_ERR_FORMAT, "%s: chat_template[%zu].template is missing", file,
                            i);
        if (phi_str_eq_c(name, "default"))
            PHI_TRY(set_variant(&t->main, source, file, err));
        else if (phi_str_eq_c(name, "tool_use"))
            PHI_TRY(set_variant(&t->tool_use, source, file, err));
    }
    return PHI_OK;
}

static enum phi_status set_from_file(struct variant *v, const char *path, struct phi_error *err)
{
    struct phi_buf text = {0};
    enum phi_status status = phi_file_read(path, MAX_FILE_BYTES, &text, err);
    if (status == PHI_OK)
        status = set_variant(v, phi_buf_str(&text), path, err);
    phi_buf_deinit(&text);
    return status;
}

/* dir/name when it is a file; path.n is 0 otherwise. */
static enum phi_status find_file(struct phi_buf *path, const char *dir, const char *name,
                                 struct phi_error *err)
{
    if (!phi_path_join(path, dir, name))
        return phi_fail_memory(err, name, strlen(dir));
    if (!phi_file_exists(path->data))
        phi_buf_clear(path);
    return PHI_OK;
}

/* The object in dir/name; *out is NULL when there is no such file. */
static enum phi_status read_object(const char *dir, const char *name, json_t **out,
                                   struct phi_error *err)
{
    struct phi_buf path = {0};
    *out = NULL;
    enum phi_status status = find_file(&path, dir, name, err);
    if (status == PHI_OK && path.n)
        status = phi_json_parse_file(path.data, MAX_FILE_BYTES, out, err);
    if (status == PHI_OK && *out && !json_is_object(*out)) {
        status = phi_fail(err, PHI_ERR_FORMAT, "%s: expected an object", path.data);
        json_decref(*out);
        *out = NULL;
    }
    phi_buf_deinit(&path);
    return status;
}

/* A token is written as its text or as {"content": text, ...}. */
static enum phi_status add_token(json_t *tokens, const char *name, const json_t *value,
                                 struct phi_error *err)
{
    if (json_is_object(value))
        value = json_object_get(value, "content");
    if (!json_is_string(value))
        return PHI_OK;
    struct phi_str text = phi_json_str(value);
    if (json_object_set_new(tokens, name, json_stringn_nocheck(text.data, text.n)) != 0)
        return phi_fail_memory(err, "special tokens", text.n);
    return PHI_OK;
}

static enum phi_status add_tokens(json_t *tokens, const json_t *object, bool all,
                                  struct phi_error *err)
{
    json_t *from = (json_t *)object; /* jansson's iterators take no const */
    for (void *it = json_object_iter(from); it; it = json_object_iter_next(from, it)) {
        struct phi_str key = phi_str_from(json_object_iter_key(it));
        if (all || phi_str_ends_with(key, PHI_STR("_token")))
            PHI_TRY(add_token(tokens, key.data, json_object_iter_value(it), err));
    }
    return PHI_OK;
}

/* As transformers: special_tokens_map.json is read only where tokenizer_config.json has no
 * added_tokens_decoder, and then it wins. */
static enum phi_status read_tokens(struct phi_chat_template *t, const char *dir,
                                   const json_t *config, struct phi_error *err)
{
    json_t *map = NULL;
    if (config) {
        const json_t *extra = json_object_get(config, "extra_special_tokens");
        PHI_TRY(add_tokens(t->tokens, config, false, err));
        if (json_is_object(extra))
            PHI_TRY(add_tokens(t->tokens, extra, true, err));
        if (json_object_get(config, "added_tokens_decoder"))
            return PHI_OK;
    }
    PHI_TRY(read_object(dir, "special_tokens_map.json", &map, err));
    enum phi_status status = map ? add_tokens(t->tokens, map, false, err) : PHI_OK;
    json_decref(map);
    return status;
}

static enum phi_status create(struct phi_chat_template **out, struct phi_error *err)
{
    struct phi_chat_template *t = phi_calloc(1, sizeof *t);
    *out = NULL;
    if (!t)
        return phi_fail_memory(err, "a chat template", sizeof *t);
    t->tokens = json_object();
    if (!t->tokens) {
        phi_free(t);
        return phi_fail_memory(err, "special tokens", 0);
    }
    *out = t;
    return PHI_OK;
}

void phi_chat_template_close(struct phi_chat_template *t)
{
    if (!t)
        return;
    deinit_variant(&t->main);
    deinit_variant(&t->tool_use);
    json_decref(t->tokens);
    phi_free(t);
}

/* The files with templates of their own win over tokenizer_config.json, that over the old
 * chat_template.json. */
static enum phi_status find_templates(struct phi_chat_template *t, const char *dir,
                                      const json_t *config, struct phi_error *err)
{
    struct phi_buf path = {0};
    json_t *old = NULL;
    enum phi_status status = find_file(&path, dir, "chat_template.jinja", err);
    if (status == PHI_OK && path.n)
        status = set_from_file(&t->main, path.data, err);
    if (status == PHI_OK)
        status = find_file(&path, dir, "additional_chat_templates/tool_use.jinja", err);
    if (status == PHI_OK && path.n)
        status = set_from_file(&t->tool_use, path.data, err);
    if (status == PHI_OK && !t->main.jinja && !t->tool_use.jinja && config &&
        phi_json_field(config, "chat_template")) {
        status = find_file(&path, dir, "tokenizer_config.json", err);
        if (status == PHI_OK)
            status = set_from_json(t, phi_json_field(config, "chat_template"),
                                   path.n ? path.data : "tokenizer_config.json", err);
    } else if (status == PHI_OK && !t->main.jinja && !t->tool_use.jinja) {
        status = read_object(dir, "chat_template.json", &old, err);
        if (status == PHI_OK && old && phi_json_field(old, "chat_template"))
            status =
                set_from_json(t, phi_json_field(old, "chat_template"), "chat_template.json", err);
        json_decref(old);
    }
    phi_buf_deinit(&path);
    return status;
}

enum phi_status phi_chat_template_open(const char *dir, struct phi_chat_template **out,
                                       struct phi_error *err)
{
    json_t *config = NULL;
    *out = NULL;
    struct phi_chat_template *t;
    PHI_TRY(create(&t, err));
    enum phi_status status = read_object(dir, "tokenizer_config.json", &config, err);
    if (status == PHI_OK)
        status = find_templates(t, dir, config, err);
    if (status == PHI_OK)
        status = read_tokens(t, dir, config, err);
    json_decref(config);
    if (status == PHI_OK && (t->main.jinja || t->tool_use.jinja)) {
        *out = t;
        return PHI_OK;
    }
    phi_chat_template_close(t);
    return status;
}

enum phi_status phi_chat_template_parse(struct phi_str source, const char *name, const char *dir,
                                        struct phi_chat_template **out, struct phi_error *err)
{
    json_t *config = NULL;
    struct phi_chat_template *t;
    *out = NULL;
    PHI_TRY(create(&t, err));
    enum phi_status status = set_variant(&t->main, source, name, err);
    if (status == PHI_OK && dir)
        status = read_object(dir, "tokenizer_config.json", &config, err);
    if (status == PHI_OK && dir)
        status = read_tokens(t, dir, config, err);
    json_decref(config);
    if (status != PHI_OK) {
        phi_chat_template_close(t);
        return status;
    }
    *out = t;
    return PHI_OK;
}

struct phi_str phi_chat_template_source(const struct phi_chat_template *t)
{
    return phi_buf_str(&t->main.source);
}

/* ---- messages ---- */

static struct phi_jinja_value *get(struct phi_jinja_value dict, const char *key)
{
    return phi_jinja_dict_get(dict.dict, phi_str_from(key));
}

static enum phi_status set(struct phi_jinja_run *r, struct phi_jinja_value dict, const char *key,
                           struct phi_jinja_value value)
{
    return phi_jinja_dict_set(r, dict.dict, phi_jinja_str(phi_str_from(key)), value);
}

/* A copy without the keys whose value is null: to a template, null and missing are the same. */
static enum phi_status without_nulls(struct phi_jinja_run *r, struct phi_jinja_value message,
                                     struct phi_jinja_value *out)
{
    PHI_TRY(phi_jinja_dict_make(r, JINJA_DICT, out));
    for (size_t i = 0; i < message.dict->n; i++) {
        const struct phi_jinja_entry *e = &message.dict->entries[i];
        if (e->value.type != JINJA_NONE)
            PHI_TRY(phi_jinja_dict_set(r, out->dict, e->key, e->value));
    }
    return PHI_OK;
}

/* Text parts joined with a newline. */
static enum phi_status join_parts(struct phi_jinja_run *r, struct phi_jinja_value parts,
                                  size_t i_message, struct phi_jinja_value *out)
{
    struct phi_buf text = {0};
    enum phi_status status = PHI_OK;
    for (size_t i = 0; i < parts.list->n && status == PHI_OK; i++) {
        struct phi_jinja_value part = parts.list->items[i];
        const struct phi_jinja_value *s = &part;
        if (part.type == JINJA_DICT)
            s = get(part, "text") ? get(part, "text") : get(part, "refusal");
        if (i)
            phi_buf_append_char(&text, '\n');
        if (s && s->type == JINJA_STR)
            phi_buf_append_str(&text, s->s);
        else
            status =
                phi_fail(r->err, PHI_ERR_INVALID,
                         "messages[%zu].content[%zu]: only text parts are supported", i_message, i);
    }
    if (status == PHI_OK)
        status = phi_jinja_str_from_buf(r, &text, out);
    phi_buf_deinit(&text);
    return status;
}

static enum phi_status normalize_content(struct phi_jinja_run *r, struct phi_jinja_value message,
                                         size_t i_message)
{
    struct phi_jinja_value *content = get(message, "content"), joined = phi_jinja_str(PHI_STR(""));
    if (content && content->type != JINJA_LIST)
        return PHI_OK;
    if (content)
        PHI_TRY(join_parts(r, *content, i_message, &joined));
    return set(r, message, "content", joined);
}

/* Reasoning goes by several names; as transformers, the standard one and gpt-oss's are filled in.
 */
static enum phi_status alias_reasoning(struct phi_jinja_run *r, struct phi_jinja_value *message)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    struct phi_jinja_value *reasoning = NULL, aliased;
    for (int i = 0; i < 3 && !reasoning; i++)
        reasoning = get(*message, names[i]);
    if (!reasoning)
        return PHI_OK;
    PHI_TRY(phi_jinja_dict_make(r, JINJA_DICT, &aliased));
    PHI_TRY(set(r, aliased, "thinking", *reasoning));
    for (size_t i = 0; i < message->dict->n; i++)
        PHI_TRY(phi_jinja_dict_set(r, aliased.dict, message->dict->entries[i].key,
                                   message->dict->entries[i].value));
    PHI_TRY(set(r, aliased, "reasoning_content", *reasoning));
    *message = aliased;
    return PHI_OK;
}

/* Arguments travel as a JSON string; templates expect the object. What is not an object stays text.
 */
static enum phi_status parse_arguments(struct phi_jinja_run *r, struct phi_jinja_value *arguments)
{
    json_t *parsed = NULL;
    struct phi_error ignored;
    if (arguments->type == JINJA_NONE || (arguments->type == JINJA_STR && arguments->s.n == 0))
        return phi_jinja_dict_make(r, JINJA_DICT, arguments);
    if (arguments->type != JINJA_STR)
        return PHI_OK;
    enum phi_status status = phi_json_parse(arguments->s, "arguments", &parsed, &ignored);
    if (status == PHI_ERR_MEMORY)
        return phi_jinja_no_memory(r);
    status = PHI_OK;
    if (json_is_object(parsed))
        status = phi_jinja_from_json(r, parsed, true, arguments);
    json_decref(parsed);
    return status;
}

static enum phi_status normalize_tool_calls(struct phi_jinja_run *r, struct phi_jinja_value message)
{
    struct phi_jinja_value *calls = get(message, "tool_calls");
    if (!calls || calls->type != JINJA_LIST)
        return PHI_OK;
    for (size_t i = 0; i < calls->list->n; i++) {
        struct phi_jinja_value call = calls->list->items[i];
        struct phi_jinja_value *function = call.type == JINJA_DICT ? get(call, "function") : NULL;
        struct phi_jinja_value *arguments =
            function && function->type == JINJA_DICT ? get(*function, "arguments") : NULL;
        if (arguments)
            PHI_TRY(parse_arguments(r, arguments));
    }
    return PHI_OK;
}

static enum phi_status normalize_message(struct phi_jinja_run *r, const struct variant *v,
                                         struct phi_jinja_value *message, size_t i)
{
    if (message->type != JINJA_DICT)
        return phi_fail(r->err, PHI_ERR_INVALID, "messages[%zu]: expected an object", i);
    PHI_TRY(without_nulls(r, *message, message));
    struct phi_jinja_value *role = get(*message, "role");
    if (role && role->type == JINJA_STR && phi_str_eq_c(role->s, "developer") &&
        !v->knows_developer)
        *role = phi_jinja_str(PHI_STR("system"));
    PHI_TRY(normalize_content(r, *message, i));
    PHI_TRY(normalize_tool_calls(r, *message));
    return alias_reasoning(r, message);
}

static bool has_role(struct phi_jinja_value message, const char *name)
{
    const struct phi_jinja_value *role = get(message, "role");
    return role && role->type == JINJA_STR && phi_str_eq_c(role->s, name);
}

/* The function objects of OpenAI's tools as JSON text: what a template that reads message['tools']
 * was trained with. */
static enum phi_status tools_as_text(struct phi_jinja_run *r, struct phi_jinja_value tools,
                                     struct phi_jinja_value *out)
{
    const struct phi_jinja_json_options options = {.item_separator = PHI_STR(", "),
                                                   .key_separator = PHI_STR(": ")};
    struct phi_buf text = {0};
    struct phi_jinja_value functions;
    PHI_TRY(phi_jinja_list_make(r, JINJA_LIST, tools.list->n, &functions));
    for (size_t i = 0; i < tools.list->n; i++) {
        struct phi_jinja_value tool = tools.list->items[i];
        const struct phi_jinja_value *function = get(tool, "function");
        PHI_TRY(phi_jinja_list_append(r, functions.list, function ? *function : tool));
    }
    enum phi_status status = phi_jinja_append_json(r, &text, functions, &options);
    if (status == PHI_OK)
        status = phi_jinja_str_from_buf(r, &text, out);
    phi_buf_deinit(&text);
    return status;
}

/* Into the first system message, which is made (empty) when there is none. */
static enum phi_status place_tools(struct phi_jinja_run *r, struct phi_jinja_value tools,
                                   struct phi_jinja_value *messages)
{
    struct phi_jinja_value text, system, all;
    PHI_TRY(tools_as_text(r, tools, &text));
    for (size_t i = 0; i < messages->list->n; i++) {
        if (!has_role(messages->list->items[i], "system"))
            continue;
        if (get(messages->list->items[i], "tools"))
            return PHI_OK;
        return set(r, messages->list->items[i], "tools", text);
    }
    PHI_TRY(phi_jinja_dict_make(r, JINJA_DICT, &system));
    PHI_TRY(set(r, system, "role", phi_jinja_str(PHI_STR("system"))));
    PHI_TRY(set(r, system, "content", phi_jinja_str(PHI_STR(""))));
    PHI_TRY(set(r, system, "tools", text));
    PHI_TRY(phi_jinja_list_make(r, JINJA_LIST, messages->list->n + 1, &all));
    PHI_TRY(phi_jinja_list_append(r, all.list, system));
    for (size_t i = 0; i < messages->list->n; i++)
        PHI_TRY(phi_jinja_list_append(r, all.list, messages->list->items[i]));
    *messages = all;
    return PHI_OK;
}

/* ---- rendering ---- */

/* A list of objects, or none. */
static enum phi_status read_list(struct phi_jinja_run *r, const json_t *json, const char *what,
                                 struct phi_jinja_value *out)
{
    *out = phi_jinja_none();
    if (!json || json_is_null(json))
        return PHI_OK;
    if (!json_is_array(json))
        return phi_fail(r->err, PHI_ERR_INVALID, "%s: expected a list", what);
    for (size_t i = 0; i < json_array_size(json); i++)
        if (!json_is_object(json_array_get(json, i)))
            return phi_fail(r->err, PHI_ERR_INVALID, "%s[%zu]: expected an object", what, i);
    return phi_jinja_from_json(r, json, false, out);
}

static enum phi_status add_kwargs(struct phi_jinja_run *r, struct phi_jinja_value variables,
                                  const json_t *kwargs)
{
    static const char *const own[] = {"messages", "tools", "documents", "add_generation_prompt"};
    struct phi_jinja_value all;
    if (!kwargs || json_is_null(kwargs))
        return PHI_OK;
    if (!json_is_object(kwargs))
        return phi_fail(r->err, PHI_ERR_INVALID, "template variables: expected an object");
    PHI_TRY(phi_jinja_from_json(r, kwargs, false, &all));
    for (size_t i = 0; i < all.dict->n; i++) {
        const struct phi_jinja_entry *e = &all.dict->entries[i];
        for (size_t k = 0; k < sizeof own / sizeof own[0]; k++)
            if (phi_str_eq_c(e->key.s, own[k]))
                return phi_fail(r->err, PHI_ERR_INVALID, "template variables: '%s' is not free",
                                own[k]);
        PHI_TRY(phi_jinja_dict_set(r, variables.dict, e->key, e->value));
    }
    return PHI_OK;
}

static struct phi_str strip(struct phi_str s, bool left)
{
    size_t begin = s.n, end = 0;
    for (size_t i = 0; i < s.n;) {
        size_t at = i;
        if (phi_jinja_char_is_space(phi_jinja_next_char(s, &i)))
            continue;
        begin = at < begin ? at : begin;
        end = i;
    }
    if (!left || end == 0)
        begin = 0;
    return (struct phi_str){s.data + begin, end - begin};
}

/* Puts the marker behind the last message's text; *text is that text without it. */
static enum phi_status mark_final(struct phi_jinja_run *r, const struct variant *v,
                                  struct phi_jinja_value messages, struct phi_str *text)
{
    struct phi_jinja_value last = messages.list->items[messages.list->n - 1], marked;
    struct phi_jinja_value *content = get(last, "content");
    struct phi_buf b = {0};
    if (!memmem(v->source.data, v->source.n, "content", 7))
        return phi_fail(r->err, PHI_ERR_INVALID,
                        "continue_final_message is set to \"content\" but this "
                        "is not an accepted field in the chat template");
    if (content->type != JINJA_STR)
        return phi_fail(r->err, PHI_ERR_INVALID, "continue_final_message needs text to continue");
    *text = content->s;
    phi_buf_append_str(&b, content->s);
    phi_buf_append_c(&b, CONTINUE_TAG);
    enum phi_status status = phi_jinja_str_from_buf(r, &b, &marked);
    phi_buf_deinit(&b);
    return status == PHI_OK ? set(r, last, "content", marked) : status;
}

/* Cuts the rendered text at the last marker. A template that trims takes the marker's space too,
 * and then what stands before it is trimmed. */
static enum phi_status cut_at_marker(struct phi_buf *text, struct phi_str final,
                                     struct phi_error *err)
{
    struct phi_str tag = PHI_STR(CONTINUE_TAG), wanted = strip(final, true), s = phi_buf_str(text);
    tag.n--; /* without its space */
    bool shown = wanted.n == 0 || memmem(s.data, s.n, wanted.data, wanted.n);
    size_t at = s.n >= tag.n ? s.n - tag.n + 1 : 0;
    while (at > 0 && memcmp(s.data + at - 1, tag.data, tag.n) != 0)
        at--;
    if (!shown || at == 0)
        return phi_fail(
            err, PHI_ERR_INVALID,
            "continue_final_message is set but the final message does not appear in the "
            "chat after applying the chat template");
    at--;
    bool keeps_space = at + tag.n < s.n && s.data[at + tag.n] == ' ';
    text->n = keeps_space ? at : strip((struct phi_str){s.data, at}, false).n;
    text->data[text->n] = '\0';
    return PHI_OK;
}

/* A role is dropped when no message that has it shows in the prompt; looked for by the beginning
 * and the end of its text. */
static void warn_dropped_roles(const struct phi_chat_template *t, struct phi_jinja_value messages,
                               struct phi_str text)
{
    enum { PROBE_BYTES = 64, MAX_PROBES = 8 };
    atomic_uint *warned = (atomic_uint *)&t->warned;
    for (unsigned k = 0; k < N_ROLES_WATCHED; k++) {
        int n_probed = 0;
        bool shown = false;
        for (size_t i = 0; i < messages.list->n && !shown && n_probed < MAX_PROBES; i++) {
            const struct phi_jinja_value *content = get(messages.list->items[i], "content");
            if (!has_role(messages.list->items[i], roles_watched[k]) || content->type != JINJA_STR)
                continue;
            struct phi_str s = strip(content->s, true);
            size_t n = s.n < PROBE_BYTES ? s.n : PROBE_BYTES;
            n_probed += n > 0;
            shown = n > 0 && (memmem(text.data, text.n, s.data, n) ||
                              memmem(text.data, text.n, s.data + s.n - n, n));
        }
        if (n_probed && !shown && !(atomic_fetch_or(warned, 1u << k) & 1u << k))
            phi_log(PHI_LOG_WARNING, "the chat template ignores messages of the role '%s'",
                    roles_watched[k]);
    }
}

/* Messages, tools and all other variables in place; *final is the text to continue. */
static enum phi_status prepare(const struct phi_chat_template *t, const struct variant *v,
                               struct phi_jinja_run *r, const json_t *json,
                               const struct phi_chat_options *options,
                               struct phi_jinja_value *messages, struct phi_str *final)
{
    struct phi_jinja_value variables, tools, documents;
    PHI_TRY(phi_jinja_from_json(r, t->tokens, false, &variables));
    PHI_TRY(phi_jinja_from_json(r, json, false, messages));
    PHI_TRY(read_list(r, options->tools, "tools", &tools));
    PHI_TRY(read_list(r, options->documents, "documents", &documents));
    for (size_t i = 0; i < messages->list->n; i++)
        PHI_TRY(normalize_message(r, v, &messages->list->items[i], i));
    if (options->continue_final_message)
        PHI_TRY(mark_final(r, v, *messages, final));
    if (tools.type == JINJA_LIST && tools.list->n && v->tools_in_message)
        PHI_TRY(place_tools(r, tools, messages));
    PHI_TRY(add_kwargs(r, variables, options->kwargs));
    PHI_TRY(set(r, variables, "messages", *messages));
    PHI_TRY(set(r, variables, "tools", tools));
    PHI_TRY(set(r, variables, "documents", documents));
    PHI_TRY(
        set(r, variables, "add_generation_prompt", phi_jinja_bool(options->add_generation_prompt)));
    r->variables = variables.dict;
    return PHI_OK;
}

static enum phi_status check_request(const struct phi_chat_options *options, const json_t *messages,
                                     const struct variant *v, struct phi_error *err)
{
    if (!v->jinja)
        return phi_fail(err, PHI_ERR_INVALID,
                        "the model has several chat templates and none of them is "
                        "the default");
    if (!json_is_array(messages))
        return phi_fail(err, PHI_ERR_INVALID, "messages: expected a list");
    if (json_array_size(messages) == 0)
        return phi_fail(err, PHI_ERR_INVALID, "messages: at least one message is needed");
    if (options->continue_final_message && options->add_generation_prompt)
        return phi_fail(err, PHI_ERR_INVALID,
                        "continue_final_message and add_generation_prompt cannot "
                        "both be set");
    return PHI_OK;
}

static enum phi_status render(const struct phi_chat_template *t, const struct variant *v,
                              const json_t *messages, const struct phi_chat_options *options,
                              struct phi_buf *out, struct phi_error *err)
{
    struct phi_buf text = {0};
    struct phi_jinja_run r;
    struct phi_jinja_value values;
    struct phi_str final = {"", 0};
    PHI_TRY(check_request(options, messages, v, err));
    phi_jinja_run_init(&r, v->jinja, options->now_s, err);
    enum phi_status status = prepare(t, v, &r, messages, options, &values, &final);
    if (status == PHI_OK)
        status = phi_jinja_render(v->jinja, &r, &text);
    if (status == PHI_OK && options->continue_final_message)
        status = cut_at_marker(&text, final, err);
    if (status == PHI_OK) {
        warn_dropped_roles(t, values, phi_buf_str(&text));
        phi_buf_append_str(out, phi_buf_str(&text));
        if (out->failed)
            status = phi_fail_memory(err, "the rendered prompt", text.n);
    }
    phi_jinja_run_deinit(&r);
    phi_buf_deinit(&text);
    return status;
}

enum phi_status phi_chat_template_render(const struct phi_chat_template *t, const json_t *messages,
                                         const struct phi_chat_options *options,
                                         struct phi_buf *out, struct phi_error *err)
{
    bool has_tools = options->tools && !json_is_null(options->tools);
    if (!options->source.data)
        return render(t, has_tools && t->tool_use.jinja ? &t->tool_use : &t->main, messages,
                      options, out, err);
    struct variant given = {0};
    struct phi_error why;
    enum phi_status status = set_variant(&given, options->source, "chat_template", &why);
    if (status != PHI_OK) /* a request's fault, not a file's */
        status = phi_fail(err, status == PHI_ERR_MEMORY ? status : PHI_ERR_INVALID, "%s", why.text);
    else
        status = render(t, &given, messages, options, out, err);
    deinit_variant(&given);
    return status;
}
