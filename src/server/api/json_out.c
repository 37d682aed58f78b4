/* json_out.c: see json_out.h. */
#include "server/api/json_out.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void append_quoted(struct phi_buf *b, struct phi_str text)
{
    static const char short_forms[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    size_t begin = 0;
    phi_buf_append_char(b, '"');
    for (size_t i = 0; i < text.n; i++) {
        unsigned char c = (unsigned char)text.data[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        phi_buf_append(b, text.data + begin, i - begin);
        begin = i + 1;
        const char *form = short_forms;
        while (*form && (unsigned char)*form != c)
            form += 2;
        if (*form)
            phi_buf_append(b, (char[]){'\\', form[1]}, 2);
        else
            phi_buf_printf(b, "\\u%04x", c);
    }
    phi_buf_append(b, text.data + begin, text.n - begin);
    phi_buf_append_char(b, '"');
}

void phi_out_key(struct phi_out *o, struct phi_str key)
{
    if (o->comma)
        phi_buf_append_char(o->buf, ',');
    append_quoted(o->buf, key);
    phi_buf_append_char(o->buf, ':');
    o->comma = false;
}

/* What stands before a value. */
static void begin(struct phi_out *o, const char *key)
{
    if (key)
        phi_out_key(o, phi_str_from(key));
    else if (o->comma)
        phi_buf_append_char(o->buf, ',');
    o->comma = true;
}

void phi_out_open(struct phi_out *o, const char *key, char bracket)
{
    begin(o, key);
    phi_buf_append_char(o->buf, bracket);
    o->comma = false;
}

void phi_out_close(struct phi_out *o, char bracket)
{
    phi_buf_append_char(o->buf, bracket);
    o->comma = true;
}

void phi_out_text(struct phi_out *o, const char *key, struct phi_str text)
{
    begin(o, key);
    append_quoted(o->buf, text);
}

void phi_out_c(struct phi_out *o, const char *key, const char *text)
{
    if (text)
        phi_out_text(o, key, phi_str_from(text));
    else
        phi_out_null(o, key);
}

void phi_out_int(struct phi_out *o, const char *key, int64_t value)
{
    begin(o, key);
    phi_buf_printf(o->buf, "%" PRId64, value);
}

void phi_out_bool(struct phi_out *o, const char *key, bool value)
{
    begin(o, key);
    phi_buf_append_c(o->buf, value ? "true" : "false");
}

void phi_out_null(struct phi_out *o, const char *key)
{
    begin(o, key);
    phi_buf_append_c(o->buf, "null");
}

void phi_out_real(struct phi_out *o, const char *key, double value)
{
    char text[40];
    if (!isfinite(value)) {
        phi_out_null(o, key);
        return;
    }
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtof(text, NULL) == (float)value)
            break;
    }
    begin(o, key);
    phi_buf_append_c(o->buf, text);
    if (!strpbrk(text, ".e"))
        phi_buf_append_c(o->buf, ".0");
}

void phi_out_raw(struct phi_out *o, const char *key, const char *json)
{
    begin(o, key);
    phi_buf_append_c(o->buf, json);
}

static int append_dumped(const char *text, size_t n, void *context)
{
    phi_buf_append(context, text, n);
    return 0;
}

void phi_out_value(struct phi_out *o, const char *key, const json_t *value)
{
    begin(o, key);
    if (json_dump_callback(value, append_dumped, o->buf, JSON_COMPACT | JSON_ENCODE_ANY) != 0)
        o->buf->failed = true;
}

void phi_out_ids(struct phi_out *o, const char *key, const int32_t *ids, size_t n)
{
    phi_out_open(o, key, '[');
    for (size_t i = 0; i < n; i++)
        phi_out_int(o, NULL, ids[i]);
    phi_out_close(o, ']');
}
