/* json_text.c: see json_text.h. */
#include "cli/json_text.h"
#include "formats/json.h"

void cli_out_json(struct cli_out *out, json_t *value, size_t flags)
{
    struct phi_buf text = {0};
    if (value)
        phi_json_dump(value, flags, &text);
    phi_buf_append_char(&text, '\n');
    if (value && !text.failed)
        cli_out_write(out, phi_buf_str(&text));
    else
        cli_out_out_of_memory(out);
    json_decref(value);
    phi_buf_deinit(&text);
}

enum phi_status cli_render_chat(const struct phi_model *model, const json_t *messages,
                                const json_t *options, char **text, size_t *n,
                                struct phi_error *err)
{
    struct phi_buf m = {0}, o = {0};
    enum phi_status status;
    phi_json_dump(messages, JSON_COMPACT, &m);
    if (options)
        phi_json_dump(options, JSON_COMPACT, &o);
    if (m.failed || o.failed)
        status = phi_fail_memory(err, "messages", m.n + o.n);
    else
        status = phi_render_chat(model, (struct phi_text){m.data, m.n},
                                 (struct phi_text){o.data, o.n}, text, n, err);
    phi_buf_deinit(&m);
    phi_buf_deinit(&o);
    return status;
}
