/* chat_template.h: from chat messages to the prompt text that the checkpoint's template produces,
 * equal to transformers' apply_chat_template(tokenize=False). */
#ifndef PHI_FORMATS_CHAT_TEMPLATE_H
#define PHI_FORMATS_CHAT_TEMPLATE_H

#include "base/buf.h"

#include <jansson.h>

struct phi_chat_template;

/* Looks for the template in the order of transformers: dir/chat_template.jinja,
 * tokenizer_config.json's chat_template (a string, or a list of named ones),
 * dir/chat_template.json; beside them, dir/additional_chat_templates/tool_use.jinja serves requests
 * with tools. *out is NULL and the status PHI_OK when the checkpoint has none. Special
 * tokens (bos_token, eos_token, ...) come from tokenizer_config.json and special_tokens_map.json.
 */
enum phi_status phi_chat_template_open(const char *dir, struct phi_chat_template **out,
                                       struct phi_error *err);

/* From a template text; special tokens from `dir` when it is not NULL. */
enum phi_status phi_chat_template_parse(struct phi_str source, const char *name, const char *dir,
                                        struct phi_chat_template **out, struct phi_error *err);
void phi_chat_template_close(struct phi_chat_template *t); /* NULL is fine */

/* The source text of the default template. */
struct phi_str phi_chat_template_source(const struct phi_chat_template *t);

struct phi_chat_options {
    bool add_generation_prompt;
    bool continue_final_message;
    const json_t *tools;     /* array or NULL */
    const json_t *documents; /* array or NULL */
    const json_t *kwargs;    /* object of further template variables, or NULL */
    struct phi_str source;   /* a template for this rendering only; data NULL: the opened one */
    int64_t now_s;           /* Unix time for strftime_now; < 0 = the clock */
};

/* Renders `messages` (an array of objects as in the OpenAI API; `content` null, missing or [] reads
 * as ""; text parts are joined with a newline; the role `developer` becomes `system` unless the
 * template names it; tools are also placed as a JSON string of the function objects in the first
 * system message's `tools` key when the template only reads them there). Appends to *out. A refusal
 * by the template (raise_exception) is PHI_ERR_INVALID with its text. Steps, memory and output are
 * bounded. */
enum phi_status phi_chat_template_render(const struct phi_chat_template *t, const json_t *messages,
                                         const struct phi_chat_options *options,
                                         struct phi_buf *out, struct phi_error *err);

#endif
