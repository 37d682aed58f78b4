/* lex.h: template text to tokens, after Jinja's lexer as transformers sets it up: trim_blocks
 * and lstrip_blocks are on, one newline at the end of the source is dropped, all newlines are "\n".
 */
#ifndef PHI_FORMATS_JINJA_LEX_H
#define PHI_FORMATS_JINJA_LEX_H

#include "base/arena.h"
#include "base/status.h"

#include <stdint.h>

enum phi_jinja_token_kind {
    TOKEN_EOF,
    TOKEN_DATA, /* text between tags, trimmed as the tags ask */
    TOKEN_BLOCK_BEGIN,
    TOKEN_BLOCK_END,
    TOKEN_VARIABLE_BEGIN,
    TOKEN_VARIABLE_END,
    TOKEN_NAME,
    TOKEN_STRING, /* unescaped */
    TOKEN_INTEGER,
    TOKEN_FLOAT,
    TOKEN_ADD,
    TOKEN_ASSIGN,
    TOKEN_COLON,
    TOKEN_COMMA,
    TOKEN_DIV,
    TOKEN_DOT,
    TOKEN_EQ,
    TOKEN_FLOORDIV,
    TOKEN_GT,
    TOKEN_GTEQ,
    TOKEN_LBRACE,
    TOKEN_LBRACKET,
    TOKEN_LPAREN,
    TOKEN_LT,
    TOKEN_LTEQ,
    TOKEN_MOD,
    TOKEN_MUL,
    TOKEN_NE,
    TOKEN_PIPE,
    TOKEN_POW,
    TOKEN_RBRACE,
    TOKEN_RBRACKET,
    TOKEN_RPAREN,
    TOKEN_SEMICOLON,
    TOKEN_SUB,
    TOKEN_TILDE
};

struct phi_jinja_token {
    enum phi_jinja_token_kind kind;
    int line;
    struct phi_str text; /* data, name, unescaped string, or the operator as written */
    int64_t i;
    double f;
};

struct phi_jinja_tokens {
    struct phi_jinja_token *items; /* ends with TOKEN_EOF */
    size_t n, capacity;
};

/* The tokens of `source`, made in the arena. Errors carry "name:line: ". */
enum phi_status phi_jinja_lex(struct phi_arena *arena, struct phi_str source, const char *name,
                              struct phi_jinja_tokens *out, struct phi_error *err);

/* "'endif'", "end of print statement", ...: for error messages; static or in the token. */
struct phi_str phi_jinja_token_shown(const struct phi_jinja_token *token);

#endif
