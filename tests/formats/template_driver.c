/* template_driver.c: renders templates for tests/oracle/test_template_oracle.py. Reads one JSON
 * object per line from standard input and answers each with one line {"text": ...} or {"error":
 * ...}:
 *   {"template": source, "vars": {...}}                       the bare interpreter
 *   {"template": source | "dir": path, "messages": [...], "tools", "documents", "kwargs",
 *    "add_generation_prompt", "continue_final_message", "now_s"}   a chat template */
#include "base/buf.h"
#include "formats/chat_template.h"
#include "formats/jinja/jinja.h"
#include "formats/json.h"

#include <stdio.h>
#include <stdlib.h>

static enum phi_status render_bare(struct phi_str source, const json_t *vars, struct phi_buf *out,
                                   struct phi_error *err)
{
    struct phi_jinja *t;
    struct phi_jinja_run r;
    struct phi_jinja_value values;
    PHI_TRY(phi_jinja_open(source, "template", &t, err));
    phi_jinja_run_init(&r, t, -1, err);
    enum phi_status status = phi_jinja_from_json(&r, vars, false, &values);
    if (status == PHI_OK) {
        r.variables = values.dict;
        status = phi_jinja_render(t, &r, out);
    }
    phi_jinja_run_deinit(&r);
    phi_jinja_close(t);
    return status;
}

static enum phi_status render_chat(const json_t *request, struct phi_buf *out,
                                   struct phi_error *err)
{
    struct phi_chat_template *t = NULL;
    const json_t *source = phi_json_field(request, "template");
    const char *dir = json_string_value(phi_json_field(request, "dir"));
    struct phi_chat_options options = {
        .add_generation_prompt = json_is_true(json_object_get(request, "add_generation_prompt")),
        .continue_final_message = json_is_true(json_object_get(request, "continue_final_message")),
        .tools = phi_json_field(request, "tools"),
        .documents = phi_json_field(request, "documents"),
        .kwargs = phi_json_field(request, "kwargs"),
        .now_s = -1,
    };
    PHI_TRY(phi_json_get_int(request, "request", "now_s", -1, INT64_MAX, &options.now_s, err));
    if (source)
        PHI_TRY(phi_chat_template_parse(phi_json_str(source), "template", dir, &t, err));
    else
        PHI_TRY(phi_chat_template_open(dir, &t, err));
    enum phi_status status = PHI_ERR_INVALID;
    if (t)
        status =
            phi_chat_template_render(t, json_object_get(request, "messages"), &options, out, err);
    else
        phi_fail(err, PHI_ERR_INVALID, "no chat template");
    phi_chat_template_close(t);
    return status;
}

int main(void)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t n;
    while ((n = getline(&line, &capacity, stdin)) > 0) {
        json_t *request;
        struct phi_error err = {0};
        struct phi_buf out = {0};
        if (phi_json_parse((struct phi_str){line, (size_t)n}, "request", &request, &err) !=
            PHI_OK) {
            fprintf(stderr, "%s\n", err.text);
            return 1;
        }
        const json_t *vars = phi_json_field(request, "vars");
        enum phi_status status =
            vars ? render_bare(phi_json_str(json_object_get(request, "template")), vars, &out, &err)
                 : render_chat(request, &out, &err);
        json_t *answer = status == PHI_OK
                             ? json_pack("{s:s%}", "text", phi_buf_str(&out).data, out.n)
                             : json_pack("{s:s, s:i}", "error", err.text, "code", (int)status);
        json_dumpf(answer, stdout, JSON_COMPACT);
        putchar('\n');
        fflush(stdout);
        json_decref(answer);
        json_decref(request);
        phi_buf_deinit(&out);
    }
    free(line);
    return 0;
}
