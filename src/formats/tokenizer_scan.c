/* tokenizer_scan.c: see tokenizer_scan.h. */
#include "formats/tokenizer_scan.h"
#include "base/utf8.h"

/* --- The pull scanner ----------------------------------------------------------------------- */

void phi_scan_init(struct phi_scan *s, struct phi_str text, const char *name)
{
    *s = (struct phi_scan){text.data, text.data + text.n, text.data, name, {0}};
}

void phi_scan_deinit(struct phi_scan *s)
{
    phi_buf_deinit(&s->string);
}

enum phi_status phi_scan_fail(const struct phi_scan *s, struct phi_error *err, const char *what)
{
    return phi_fail(err, PHI_ERR_FORMAT, "%s: byte %td: %s", s->name, s->at - s->begin, what);
}

static void skip_blanks(struct phi_scan *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\n' || *s->at == '\t' || *s->at == '\r'))
        s->at++;
}

bool phi_scan_accept(struct phi_scan *s, char c)
{
    skip_blanks(s);
    if (s->at == s->end || *s->at != c)
        return false;
    s->at++;
    return true;
}

enum phi_status phi_scan_expect(struct phi_scan *s, char c, struct phi_error *err)
{
    if (phi_scan_accept(s, c))
        return PHI_OK;
    char what[] = "expected '?'";
    what[10] = c;
    return phi_scan_fail(s, err, what);
}

enum phi_status phi_scan_next(struct phi_scan *s, char close, bool *more, struct phi_error *err)
{
    *more = phi_scan_accept(s, ',');
    return *more ? PHI_OK : phi_scan_expect(s, close, err);
}

/* Four hexadecimal digits at s->at; -1 when they are not there. */
static int32_t hex4(struct phi_scan *s)
{
    int32_t value = 0;
    if (s->end - s->at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        char c = *s->at++;
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        value = value << 4 | digit;
    }
    return value;
}

/* After \u: a character, or two escapes that are a surrogate pair. */
static enum phi_status unicode_escape(struct phi_scan *s, struct phi_error *err)
{
    int32_t cp = hex4(s);
    if (cp >= 0xD800 && cp <= 0xDBFF && s->end - s->at >= 2 && s->at[0] == '\\' &&
        s->at[1] == 'u') {
        s->at += 2;
        int32_t low = hex4(s);
        cp = low >= 0xDC00 && low <= 0xDFFF ? 0x10000 + ((cp - 0xD800) << 10) + (low - 0xDC00) : -1;
    }
    if (cp < 0 || (cp >= 0xD800 && cp <= 0xDFFF))
        return phi_scan_fail(s, err, "not a valid \\u escape");
    char c[4];
    phi_buf_append(&s->string, c, (size_t)phi_utf8_encode((uint32_t)cp, c));
    return PHI_OK;
}

/* s->at is behind the backslash. */
static enum phi_status escape(struct phi_scan *s, struct phi_error *err)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char c = s->at < s->end ? *s->at++ : '\0';
    if (c == 'u')
        return unicode_escape(s, err);
    const char *found = c ? strchr(from, c) : NULL;
    if (!found)
        return phi_scan_fail(s, err, "not a valid escape");
    phi_buf_append_char(&s->string, to[found - from]);
    return PHI_OK;
}

/* Moves over bytes that stand for themselves. */
static struct phi_str plain_run(struct phi_scan *s)
{
    const char *begin = s->at;
    while (s->at < s->end && *s->at != '"' && *s->at != '\\' && (unsigned char)*s->at >= 0x20)
        s->at++;
    return (struct phi_str){begin, (size_t)(s->at - begin)};
}

enum phi_status phi_scan_string(struct phi_scan *s, struct phi_str *out, struct phi_error *err)
{
    PHI_TRY(phi_scan_expect(s, '"', err));
    struct phi_str run = plain_run(s);
    if (s->at < s->end && *s->at == '"') {
        s->at++;
        *out = run;
        return PHI_OK;
    }
    phi_buf_clear(&s->string);
    phi_buf_append_str(&s->string, run);
    while (s->at < s->end && *s->at == '\\') {
        s->at++;
        PHI_TRY(escape(s, err));
        phi_buf_append_str(&s->string, plain_run(s));
    }
    if (s->at == s->end || *s->at != '"')
        return phi_scan_fail(s, err, "the string does not end, or holds a control character");
    s->at++;
    if (s->string.failed)
        return phi_fail_memory(err, s->name, s->string.n);
    *out = phi_buf_str(&s->string);
    return PHI_OK;
}

enum phi_status phi_scan_integer(struct phi_scan *s, int32_t hi, int32_t *out,
                                 struct phi_error *err)
{
    skip_blanks(s);
    const char *begin = s->at;
    int64_t value = 0;
    while (s->at < s->end && *s->at >= '0' && *s->at <= '9' && value <= hi)
        value = value * 10 + (*s->at++ - '0');
    bool has_leading_zero = s->at - begin > 1 && *begin == '0';
    bool goes_on = s->at < s->end && (*s->at == '.' || *s->at == 'e' || *s->at == 'E');
    if (s->at == begin || has_leading_zero || goes_on)
        return phi_scan_fail(s, err, "expected a non-negative integer");
    if (value > hi)
        return phi_fail(err, PHI_ERR_FORMAT, "%s: byte %td: the id is greater than %d", s->name,
                        begin - s->begin, hi);
    *out = (int32_t)value;
    return PHI_OK;
}

enum phi_status phi_scan_end(struct phi_scan *s, struct phi_error *err)
{
    skip_blanks(s);
    return s->at == s->end ? PHI_OK : phi_scan_fail(s, err, "more text than expected");
}

/* --- Cutting out the two members -------------------------------------------------------------- */

/* Moves behind the string at s->at, which is a quote; its raw content goes to *raw. */
static bool skip_string(struct phi_scan *s, struct phi_str *raw)
{
    const char *begin = ++s->at;
    while (s->at < s->end && *s->at != '"')
        s->at += *s->at == '\\' && s->end - s->at > 1 ? 2 : 1;
    *raw = (struct phi_str){begin, (size_t)(s->at - begin)};
    return s->at < s->end && *s->at++ == '"';
}

/* Moves behind one value. Only strings and the depth of brackets matter: whether it is JSON is
 * checked later by those who read it. */
static bool skip_value(struct phi_scan *s)
{
    size_t depth = 0;
    skip_blanks(s);
    while (s->at < s->end) {
        struct phi_str raw;
        char c = *s->at;
        if (depth == 0 && (c == ',' || c == '}' || c == ']'))
            return true;
        if (c == '"') {
            if (!skip_string(s, &raw))
                return false;
            continue;
        }
        if (c == '{' || c == '[')
            depth++;
        else if ((c == '}' || c == ']') && --depth == 0) {
            s->at++;
            return true;
        }
        s->at++;
    }
    return depth == 0;
}

/* Moves to the value of the next member of an object; false at its end or where it is malformed. */
static bool next_member(struct phi_scan *s, struct phi_str *key)
{
    phi_scan_accept(s, ',');
    skip_blanks(s);
    if (s->at == s->end || *s->at != '"' || !skip_string(s, key) || !phi_scan_accept(s, ':'))
        return false;
    skip_blanks(s);
    return true;
}

/* Finds the two values within the object at s->at, which is "model". */
static void find_in_model(struct phi_scan *s, struct phi_tokenizer_json *out)
{
    struct phi_str key;
    if (!phi_scan_accept(s, '{'))
        return;
    while (next_member(s, &key)) {
        const char *begin = s->at;
        if (!skip_value(s))
            return;
        struct phi_str value = {begin, (size_t)(s->at - begin)};
        if (phi_str_eq_c(key, "vocab") && !out->vocab.data && *begin == '{')
            out->vocab = value;
        else if (phi_str_eq_c(key, "merges") && !out->merges.data && *begin == '[')
            out->merges = value;
    }
}

static void find_values(struct phi_str text, struct phi_tokenizer_json *out)
{
    struct phi_scan s;
    struct phi_str key;
    phi_scan_init(&s, text, "");
    if (!phi_scan_accept(&s, '{'))
        return;
    while (next_member(&s, &key)) {
        if (phi_str_eq_c(key, "model")) {
            find_in_model(&s, out);
            return;
        }
        if (!skip_value(&s))
            return;
    }
}

/* Appends text[*done..value) and a 0 in place of the value. */
static void append_without(struct phi_buf *out, struct phi_str text, size_t *done,
                           struct phi_str value)
{
    if (!value.data)
        return;
    size_t begin = (size_t)(value.data - text.data);
    phi_buf_append(out, text.data + *done, begin - *done);
    phi_buf_append_char(out, '0');
    *done = begin + value.n;
}

enum phi_status phi_tokenizer_json_open(struct phi_str text, const char *name,
                                        struct phi_tokenizer_json *out, struct phi_error *err)
{
    *out = (struct phi_tokenizer_json){0};
    struct phi_buf rest = {0};
    size_t done = 0;
    find_values(text, out);
    bool merges_first = out->merges.data && out->vocab.data && out->merges.data < out->vocab.data;
    append_without(&rest, text, &done, merges_first ? out->merges : out->vocab);
    append_without(&rest, text, &done, merges_first ? out->vocab : out->merges);
    phi_buf_append(&rest, text.data + done, text.n - done);
    enum phi_status status = rest.failed
                                 ? phi_fail_memory(err, name, text.n)
                                 : phi_json_parse(phi_buf_str(&rest), name, &out->root, err);
    if (status == PHI_ERR_FORMAT) {
        /* The whole text fails at the same place, and its line and byte are the true ones. */
        status = phi_json_parse(text, name, &out->root, err);
        if (status == PHI_OK)
            status = phi_fail(err, PHI_ERR_FORMAT, "%s: cannot find model.vocab", name);
    }
    phi_buf_deinit(&rest);
    if (status != PHI_OK)
        phi_tokenizer_json_close(out);
    return status;
}

void phi_tokenizer_json_close(struct phi_tokenizer_json *j)
{
    json_decref(j->root);
    *j = (struct phi_tokenizer_json){0};
}
