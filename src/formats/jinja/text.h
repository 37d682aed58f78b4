/* text.h: values as text: Python's str(), repr() and json.dumps(), and characters of strings,
 * which Python counts in code points. */
#ifndef PHI_FORMATS_JINJA_TEXT_H
#define PHI_FORMATS_JINJA_TEXT_H

#include "formats/jinja/value.h"

/* Bytes of the UTF-8 character that starts with this byte (of valid text). */
static inline size_t phi_jinja_char_bytes(char first)
{
    unsigned char c = (unsigned char)first;
    return c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

/* Code points in s. */
size_t phi_jinja_n_chars(struct phi_str s);

/* Byte offset of the i-th code point; s.n when there are fewer. */
size_t phi_jinja_char_offset(struct phi_str s, size_t i);

/* Appends str(v) or repr(v); fails only by nesting and steps (a full buffer is noticed by whoever
 * takes its text). */
enum phi_status phi_jinja_append_str(struct phi_jinja_run *r, struct phi_buf *out,
                                     struct phi_jinja_value v);
enum phi_status phi_jinja_append_repr(struct phi_jinja_run *r, struct phi_buf *out,
                                      struct phi_jinja_value v);

/* str(v); a string is not copied. */
enum phi_status phi_jinja_to_str(struct phi_jinja_run *r, struct phi_jinja_value v,
                                 struct phi_str *out);

/* repr(float): the shortest digits that read back as the same number. */
void phi_jinja_append_float(struct phi_buf *out, double f);

struct phi_jinja_json_options {
    bool ensure_ascii;
    bool has_indent;
    struct phi_str indent; /* one level */
    struct phi_str item_separator, key_separator;
    bool sort_keys;
};

/* json.dumps(v); what JSON cannot hold is an error. */
enum phi_status phi_jinja_append_json(struct phi_jinja_run *r, struct phi_buf *out,
                                      struct phi_jinja_value v,
                                      const struct phi_jinja_json_options *options);

#endif
