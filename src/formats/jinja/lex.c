/* lex.c: see lex.h. */
#include "formats/jinja/lex.h"
#include "base/size.h"
#include "base/utf8.h"
#include "formats/jinja/unicode.h"

#include <stdlib.h>

enum { MAX_BRACKETS = 1000 };

struct lexer {
    struct phi_arena *arena;
    struct phi_str source; /* newlines normalised */
    const char *name;
    struct phi_error *err;
    struct phi_jinja_tokens *tokens;
    size_t at;
    int line;
    bool line_starting;          /* what was read last ended with a newline */
    char brackets[MAX_BRACKETS]; /* the closing ones expected, innermost last */
    size_t n_brackets;
};

static enum phi_status fail(struct lexer *x, const char *what)
{
    return phi_fail(x->err, PHI_ERR_FORMAT, "%s:%d: %s", x->name, x->line, what);
}

static enum phi_status no_memory(struct lexer *x)
{
    return phi_fail(x->err, PHI_ERR_MEMORY, "%s:%d: out of memory", x->name, x->line);
}

static bool starts(const struct lexer *x, size_t at, const char *text)
{
    size_t n = strlen(text);
    return x->source.n - at >= n && memcmp(x->source.data + at, text, n) == 0;
}

static char char_at(const struct lexer *x, size_t at)
{
    return at < x->source.n ? x->source.data[at] : '\0';
}

static size_t skip_space(const struct lexer *x, size_t at)
{
    while (at < x->source.n) {
        size_t next = at;
        if (!phi_jinja_char_is_space(phi_jinja_next_char(x->source, &next)))
            break;
        at = next;
    }
    return at;
}

/* Moves to `to`, counting lines. */
static void advance(struct lexer *x, size_t to)
{
    for (size_t i = x->at; i < to; i++)
        x->line += x->source.data[i] == '\n';
    x->line_starting = to > x->at && x->source.data[to - 1] == '\n';
    x->at = to;
}

static enum phi_status add(struct lexer *x, struct phi_jinja_token token)
{
    struct phi_jinja_tokens *t = x->tokens;
    if (t->n == t->capacity) {
        size_t capacity = t->capacity ? t->capacity * 2 : 256;
        struct phi_jinja_token *items = phi_arena_alloc(x->arena, capacity, sizeof *items);
        if (!items)
            return no_memory(x);
        if (t->n)
            memcpy(items, t->items, t->n * sizeof *items);
        t->items = items;
        t->capacity = capacity;
    }
    token.line = x->line;
    t->items[t->n++] = token;
    return PHI_OK;
}

static enum phi_status add_plain(struct lexer *x, enum phi_jinja_token_kind kind, size_t end)
{
    struct phi_str text = {x->source.data + x->at, end - x->at};
    PHI_TRY(add(x, (struct phi_jinja_token){.kind = kind, .text = text}));
    advance(x, end);
    return PHI_OK;
}

/* One "\n" for "\r\n" and "\r"; without the last newline of the source. */
static enum phi_status normalize(struct lexer *x, struct phi_str source)
{
    size_t bad = phi_utf8_valid_prefix(source);
    if (bad != source.n)
        return phi_fail(x->err, PHI_ERR_FORMAT, "%s: byte %zu is not valid UTF-8", x->name, bad);
    char *text = phi_arena_alloc(x->arena, source.n + 1, 1);
    if (!text)
        return no_memory(x);
    size_t n = 0;
    for (size_t i = 0; i < source.n; i++) {
        char c = source.data[i];
        if (c == '\r') {
            c = '\n';
            if (i + 1 < source.n && source.data[i + 1] == '\n')
                i++;
        }
        text[n++] = c;
    }
    if (n && text[n - 1] == '\n')
        n--;
    x->source = (struct phi_str){text, n};
    return PHI_OK;
}

/* ---- strings and numbers ---- */

/* Exactly `n` hex digits at s[i]. */
static bool read_hex(struct phi_str s, size_t i, size_t n, uint32_t *out)
{
    *out = 0;
    for (size_t k = 0; k < n; k++) {
        char c = i + k < s.n ? s.data[i + k] : '\0';
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return false;
        *out = *out * 16 + (uint32_t)digit;
    }
    return true;
}

/* Python's "unicode-escape". `*i` stands behind the backslash. Returns the bytes written to
 * out[12]; an escape that Python refuses is an error. */
static enum phi_status unescape_one(struct lexer *x, struct phi_str s, size_t *i, char *out,
                                    size_t *n)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    char c = s.data[*i];
    uint32_t cp = 0;
    const char *simple = c ? strchr(from, c) : NULL;
    *n = 0;
    if (c == '\n') {
        *i += 1;
    } else if (simple) {
        out[(*n)++] = to[simple - from];
        *i += 1;
    } else if (c >= '0' && c <= '7') {
        for (int k = 0; k < 3 && *i < s.n && s.data[*i] >= '0' && s.data[*i] <= '7'; k++, (*i)++)
            cp = cp * 8 + (uint32_t)(s.data[*i] - '0');
        *n = (size_t)phi_utf8_encode(cp, out);
    } else if (c == 'x' || c == 'u' || c == 'U') {
        size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        if (!read_hex(s, *i + 1, digits, &cp))
            return fail(x, "truncated \\x, \\u or \\U escape in a string");
        if (cp > 0x10ffff || (cp >= 0xd800 && cp <= 0xdfff))
            return fail(x, "a string escape names no Unicode character");
        *n = (size_t)phi_utf8_encode(cp, out);
        *i += 1 + digits;
    } else if (c == 'N') {
        return phi_fail(x->err, PHI_ERR_UNSUPPORTED, "%s:%d: \\N escapes are not supported",
                        x->name, x->line);
    } else {
        out[(*n)++] = '\\'; /* an unknown escape stays as it is */
    }
    return PHI_OK;
}

/* Python escapes characters beyond ASCII before it unescapes, so a backslash in front of one comes
 * out as a backslash and the letters of that escape. */
static size_t escape_as_text(struct phi_str s, size_t *i, char out[12])
{
    uint32_t cp = phi_jinja_next_char(s, i);
    const char *digits = "0123456789abcdef";
    size_t n_digits = cp <= 0xff ? 2 : cp <= 0xffff ? 4 : 8, n = 0;
    out[n++] = '\\';
    out[n++] = cp <= 0xff ? 'x' : cp <= 0xffff ? 'u' : 'U';
    for (size_t k = n_digits; k-- > 0;)
        out[n++] = digits[cp >> (4 * k) & 15];
    return n;
}

/* The string whose opening quote is at x->at. */
static enum phi_status lex_string(struct lexer *x)
{
    char quote = x->source.data[x->at];
    size_t end = x->at + 1;
    while (end < x->source.n && x->source.data[end] != quote)
        end += x->source.data[end] == '\\' ? 2 : 1;
    if (end >= x->source.n)
        return fail(x, "a string without its closing quote");
    struct phi_str raw = {x->source.data + x->at + 1, end - x->at - 1};
    /* the longest growth: "\" and a two-byte character to "\xe9" */
    size_t capacity;
    char *text =
        phi_size_mul(raw.n, 2, &capacity) ? phi_arena_alloc(x->arena, capacity + 16, 1) : NULL;
    if (!text)
        return no_memory(x);
    size_t n = 0;
    for (size_t i = 0; i < raw.n;) {
        size_t written;
        if (raw.data[i] != '\\') {
            text[n++] = raw.data[i++];
            continue;
        }
        i++;
        if ((unsigned char)raw.data[i] >= 0x80)
            written = escape_as_text(raw, &i, text + n);
        else
            PHI_TRY(unescape_one(x, raw, &i, text + n, &written));
        n += written;
    }
    struct phi_jinja_token token = {.kind = TOKEN_STRING, .text = {text, n}};
    PHI_TRY(add(x, token));
    advance(x, end + 1);
    return PHI_OK;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The end of digits with single underscores between them; `at` when there are none. */
static size_t skip_digits(const struct lexer *x, size_t at, const char *allowed)
{
    size_t end = at;
    for (;;) {
        size_t next = end + (end > at && char_at(x, end) == '_');
        if (!char_at(x, next) || !strchr(allowed, char_at(x, next)))
            return end;
        end = next + 1;
    }
}

static const char DECIMAL[] = "0123456789";

/* Whether a float starts here, and where it ends. */
static bool float_end(const struct lexer *x, size_t *end)
{
    size_t whole = skip_digits(x, x->at, DECIMAL), at = whole;
    bool fraction = false, exponent = false;
    if (x->at > 0 && x->source.data[x->at - 1] == '.')
        return false; /* a.1.2: the names of items */
    if (char_at(x, at) == '.' && is_digit(char_at(x, at + 1))) {
        at = skip_digits(x, at + 1, DECIMAL);
        fraction = true;
    }
    if (char_at(x, at) == 'e' || char_at(x, at) == 'E') {
        size_t e = at + 1 + (char_at(x, at + 1) == '+' || char_at(x, at + 1) == '-');
        if (is_digit(char_at(x, e))) {
            at = skip_digits(x, e, DECIMAL);
            exponent = true;
        }
    }
    *end = at;
    return fraction || exponent;
}

static enum phi_status lex_number(struct lexer *x)
{
    char digits[512];
    size_t n = 0, end, start = x->at;
    int base = 10;
    bool is_float = float_end(x, &end);
    if (!is_float) {
        char second = char_at(x, x->at + 1) | 0x20;
        const char *allowed = NULL;
        if (x->source.data[x->at] == '0') {
            base = second == 'b' ? 2 : second == 'o' ? 8 : second == 'x' ? 16 : 10;
            allowed = base == 2    ? "01"
                      : base == 8  ? "01234567"
                      : base == 16 ? "0123456789abcdefABCDEF"
                                   : "0";
        } else {
            allowed = DECIMAL;
        }
        size_t first = base == 10 ? x->at : x->at + 2 + (char_at(x, x->at + 2) == '_');
        end = skip_digits(x, first, allowed);
        if (base != 10 && end == first) { /* "0x" alone: a zero and a name */
            base = 10;
            first = x->at;
            end = x->at + 1;
        }
        start = first;
    }
    for (size_t i = start; i < end; i++) {
        if (x->source.data[i] == '_')
            continue;
        if (n + 1 >= sizeof digits)
            return fail(x, "a number with too many digits");
        digits[n++] = x->source.data[i];
    }
    digits[n] = '\0';
    struct phi_jinja_token token = {.kind = is_float ? TOKEN_FLOAT : TOKEN_INTEGER,
                                    .text = {x->source.data + x->at, end - x->at}};
    if (is_float) {
        token.f = strtod(digits, NULL);
    } else {
        for (size_t i = 0; i < n; i++) {
            char c = digits[i];
            int digit = is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10;
            if (__builtin_mul_overflow(token.i, (int64_t)base, &token.i) ||
                __builtin_add_overflow(token.i, (int64_t)digit, &token.i))
                return fail(x, "an integer beyond 64 bits");
        }
    }
    PHI_TRY(add(x, token));
    advance(x, end);
    return PHI_OK;
}

/* ---- inside a tag ---- */

static const struct {
    char text[3];
    enum phi_jinja_token_kind kind;
} operators[] = {
    /* two characters before their first one */
    {"//", TOKEN_FLOORDIV}, {"**", TOKEN_POW},      {"==", TOKEN_EQ},    {"!=", TOKEN_NE},
    {">=", TOKEN_GTEQ},     {"<=", TOKEN_LTEQ},     {"+", TOKEN_ADD},    {"-", TOKEN_SUB},
    {"/", TOKEN_DIV},       {"*", TOKEN_MUL},       {"%", TOKEN_MOD},    {"~", TOKEN_TILDE},
    {"[", TOKEN_LBRACKET},  {"]", TOKEN_RBRACKET},  {"(", TOKEN_LPAREN}, {")", TOKEN_RPAREN},
    {"{", TOKEN_LBRACE},    {"}", TOKEN_RBRACE},    {">", TOKEN_GT},     {"<", TOKEN_LT},
    {"=", TOKEN_ASSIGN},    {".", TOKEN_DOT},       {":", TOKEN_COLON},  {"|", TOKEN_PIPE},
    {",", TOKEN_COMMA},     {";", TOKEN_SEMICOLON},
};

static enum phi_status balance(struct lexer *x, enum phi_jinja_token_kind kind, char c)
{
    if (kind == TOKEN_LBRACE || kind == TOKEN_LBRACKET || kind == TOKEN_LPAREN) {
        if (x->n_brackets == MAX_BRACKETS)
            return fail(x, "brackets nested too deeply");
        x->brackets[x->n_brackets++] = c == '{' ? '}' : c == '[' ? ']' : ')';
    } else if (kind == TOKEN_RBRACE || kind == TOKEN_RBRACKET || kind == TOKEN_RPAREN) {
        char text[] = "unexpected ' '";
        text[sizeof "unexpected '" - 1] = c;
        if (x->n_brackets == 0 || x->brackets[--x->n_brackets] != c)
            return fail(x, text);
    }
    return PHI_OK;
}

static enum phi_status lex_operator(struct lexer *x)
{
    for (size_t i = 0; i < sizeof operators / sizeof operators[0]; i++) {
        if (!starts(x, x->at, operators[i].text))
            continue;
        PHI_TRY(balance(x, operators[i].kind, operators[i].text[0]));
        return add_plain(x, operators[i].kind, x->at + strlen(operators[i].text));
    }
    size_t next = x->at;
    phi_jinja_next_char(x->source, &next);
    return phi_fail(x->err, PHI_ERR_FORMAT, "%s:%d: unexpected character '%.*s' in a tag", x->name,
                    x->line, (int)(next - x->at), x->source.data + x->at);
}

static enum phi_status lex_name(struct lexer *x)
{
    size_t end = x->at;
    while (end < x->source.n) {
        size_t next = end;
        if (!phi_jinja_char_is_word(phi_jinja_next_char(x->source, &next)))
            break;
        end = next;
    }
    return add_plain(x, TOKEN_NAME, end);
}

/* The end of the tag when it stands here: "-%}" and "-}}" take all white space behind them, "%}"
 * one newline, "+%}" none. Zero when it does not. */
static size_t tag_end(const struct lexer *x, size_t at, const char *close, bool trim, bool plus)
{
    if (char_at(x, at) == '-' && starts(x, at + 1, close))
        return skip_space(x, at + 3);
    if (plus && char_at(x, at) == '+' && starts(x, at + 1, close))
        return at + 3;
    if (starts(x, at, close))
        return at + 2 + (trim && char_at(x, at + 2) == '\n');
    return 0;
}

static enum phi_status lex_tag(struct lexer *x, bool is_block)
{
    for (;;) {
        size_t end =
            x->n_brackets ? 0 : tag_end(x, x->at, is_block ? "%}" : "}}", is_block, is_block);
        if (end)
            return add_plain(x, is_block ? TOKEN_BLOCK_END : TOKEN_VARIABLE_END, end);
        if (x->at == x->source.n)
            return PHI_OK; /* the parser knows what is missing */
        size_t next = x->at;
        uint32_t c = phi_jinja_next_char(x->source, &next);
        if (phi_jinja_char_is_space(c))
            advance(x, skip_space(x, x->at));
        else if (c < 0x80 && is_digit((char)c))
            PHI_TRY(lex_number(x));
        else if (c == '\'' || c == '"')
            PHI_TRY(lex_string(x));
        else if (c == '_' || phi_jinja_char_is(c, JINJA_ALPHA))
            PHI_TRY(lex_name(x));
        else
            PHI_TRY(lex_operator(x));
    }
}

/* ---- between tags ---- */

/* The text up to the tag at `end`, without what the tag's sign or lstrip_blocks takes from it. */
static enum phi_status add_data(struct lexer *x, size_t end, char sign, bool lstrip)
{
    size_t keep = end;
    if (sign == '-') {
        size_t last = x->at; /* behind the last character that is no space */
        for (size_t i = x->at; i < end;)
            if (!phi_jinja_char_is_space(phi_jinja_next_char(x->source, &i)))
                last = i;
        keep = last;
    } else if (sign != '+' && lstrip) {
        size_t line = end;
        while (line > x->at && x->source.data[line - 1] != '\n')
            line--;
        if ((line > x->at || x->line_starting) && skip_space(x, line) >= end)
            keep = line;
    }
    if (keep > x->at) {
        struct phi_str text = {x->source.data + x->at, keep - x->at};
        PHI_TRY(add(x, (struct phi_jinja_token){.kind = TOKEN_DATA, .text = text}));
    }
    advance(x, end);
    return PHI_OK;
}

/* "{% raw %}" at `at`: where its text begins; zero when it is another tag. */
static size_t raw_begin(const struct lexer *x, size_t at)
{
    at += 2;
    at += char_at(x, at) == '-' || char_at(x, at) == '+';
    at = skip_space(x, at);
    if (!starts(x, at, "raw"))
        return 0;
    return tag_end(x, skip_space(x, at + 3), "%}", false, false);
}

static enum phi_status lex_raw(struct lexer *x)
{
    for (size_t at = x->at; at < x->source.n; at++) {
        if (!starts(x, at, "{%"))
            continue;
        char sign = char_at(x, at + 2);
        size_t name = skip_space(x, at + 2 + (sign == '-' || sign == '+'));
        if (!starts(x, name, "endraw"))
            continue;
        size_t end = tag_end(x, skip_space(x, name + 6), "%}", true, true);
        if (!end)
            continue;
        PHI_TRY(add_data(x, at, sign, true));
        advance(x, end);
        return PHI_OK;
    }
    return fail(x, "Missing end of raw directive");
}

static enum phi_status lex_comment(struct lexer *x)
{
    for (size_t at = x->at; at < x->source.n; at++) {
        size_t end = tag_end(x, at, "#}", true, true);
        if (end) {
            advance(x, end);
            return PHI_OK;
        }
    }
    return fail(x, "Missing end of comment tag");
}

static enum phi_status lex_root(struct lexer *x)
{
    size_t at = x->at;
    while (at < x->source.n && !starts(x, at, "{{") && !starts(x, at, "{%") && !starts(x, at, "{#"))
        at++;
    if (at == x->source.n)
        return add_data(x, at, '+', false);
    char kind = x->source.data[at + 1], sign = char_at(x, at + 2);
    size_t inside = at + 2 + (sign == '-' || sign == '+');
    size_t raw = kind == '%' ? raw_begin(x, at) : 0;
    PHI_TRY(add_data(x, at, sign, kind != '{'));
    if (raw) {
        advance(x, raw);
        return lex_raw(x);
    }
    if (kind == '#') {
        advance(x, inside);
        return lex_comment(x);
    }
    PHI_TRY(add_plain(x, kind == '%' ? TOKEN_BLOCK_BEGIN : TOKEN_VARIABLE_BEGIN, inside));
    return lex_tag(x, kind == '%');
}

enum phi_status phi_jinja_lex(struct phi_arena *arena, struct phi_str source, const char *name,
                              struct phi_jinja_tokens *out, struct phi_error *err)
{
    struct lexer *x = phi_arena_alloc(arena, 1, sizeof *x);
    if (!x)
        return phi_fail(err, PHI_ERR_MEMORY, "%s: out of memory", name);
    *out = (struct phi_jinja_tokens){0};
    *x = (struct lexer){
        .arena = arena, .name = name, .err = err, .tokens = out, .line = 1, .line_starting = true};
    PHI_TRY(normalize(x, source));
    while (x->at < x->source.n)
        PHI_TRY(lex_root(x));
    return add(x, (struct phi_jinja_token){.kind = TOKEN_EOF});
}

struct phi_str phi_jinja_token_shown(const struct phi_jinja_token *token)
{
    switch (token->kind) {
    case TOKEN_EOF:
        return PHI_STR("end of template");
    case TOKEN_DATA:
        return PHI_STR("template text");
    case TOKEN_BLOCK_BEGIN:
        return PHI_STR("begin of statement block");
    case TOKEN_BLOCK_END:
        return PHI_STR("end of statement block");
    case TOKEN_VARIABLE_BEGIN:
        return PHI_STR("begin of print statement");
    case TOKEN_VARIABLE_END:
        return PHI_STR("end of print statement");
    case TOKEN_STRING:
        return PHI_STR("a string");
    default:
        return token->text;
    }
}
