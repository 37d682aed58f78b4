/* show.c: options shown again: the values that were given, and those that have no effect (declared
 * in options.h). */
#include "base/log.h"
#include "cli/options.h"
#include "formats/json.h"

#include <inttypes.h>

static void append_texts(struct phi_buf *out, const struct cli_texts *texts)
{
    for (size_t i = 0; i < texts->n; i++)
        phi_buf_printf(out, "%s%s", i ? " " : "", texts->data[i]);
}

static void append_ids(struct phi_buf *out, const struct phi_ids *ids)
{
    for (size_t i = 0; i < ids->n; i++)
        phi_buf_printf(out, "%s%" PRId32, i ? " " : "", ids->data[i]);
}

static void append_json(struct phi_buf *out, const json_t *json)
{
    if (json)
        phi_json_dump(json, JSON_COMPACT, out);
    else
        phi_buf_append_c(out, "{}");
}

static const char *choice_name(const struct cli_option *o, int value)
{
    for (const struct cli_name *c = o->names; c->name; c++)
        if (c->value == value)
            return c->name;
    return "?";
}

void cli_format_value(struct phi_buf *out, const struct cli_found *f, void *flags)
{
    const void *value = cli_value_of(f, flags);
    const char *const *text = value;
    if (f->option->secret) {
        phi_buf_append_c(out, "***");
        return;
    }
    switch (f->option->kind) {
    case CLI_BOOL:
        phi_buf_append_c(out, *(const bool *)value ? "true" : "false");
        break;
    case CLI_INT:
        phi_buf_printf(out, "%d", *(const int *)value);
        break;
    case CLI_INT64:
        phi_buf_printf(out, "%" PRId64, *(const int64_t *)value);
        break;
    case CLI_REAL:
        phi_buf_printf(out, "%g", *(const double *)value);
        break;
    case CLI_TEXT:
        phi_buf_append_c(out, *text ? *text : "");
        break;
    case CLI_TEXTS:
    case CLI_WORDS:
    case CLI_COMMAS:
    case CLI_JSON_LIST:
        append_texts(out, value);
        break;
    case CLI_JSON:
        append_json(out, *(json_t *const *)value);
        break;
    case CLI_IDS:
        append_ids(out, value);
        break;
    case CLI_CHOICE:
        phi_buf_append_c(out, choice_name(f->option, *(const int *)value));
        break;
    }
}

void cli_log_ignored(const struct cli_args *args)
{
    struct cli_found f;
    for (struct cli_cursor c = {0}; cli_next_option(args->command, &c, &f);)
        if (f.option->ignored && cli_is_given(args, &f))
            phi_log(PHI_LOG_INFO, "--%s has no effect here: %s", f.option->name, f.option->ignored);
}
