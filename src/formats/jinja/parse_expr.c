/* parse_expr.c: expressions, by Jinja's precedence, loosest first: ternary, or, and, not,
 * comparisons, + -, ~, * / // %, **, unary with postfix, filters and tests. */
#include "formats/jinja/builtins.h"
#include "formats/jinja/parse.h"

typedef enum phi_status (*parse_fn)(struct phi_jinja_parser *p, struct phi_jinja_node **out);

static enum phi_status parse_unary(struct phi_jinja_parser *p, bool with_filters,
                                   struct phi_jinja_node **out);

static enum phi_status binary_node(struct phi_jinja_parser *p, enum phi_jinja_node_kind kind,
                                   int line, struct phi_jinja_node *a, struct phi_jinja_node *b,
                                   struct phi_jinja_node **out)
{
    PHI_TRY(phi_jinja_new_node(p, kind, line, out));
    (*out)->a = a;
    (*out)->b = b;
    return PHI_OK;
}

/* operand (op operand)*, grouping from the left */
static enum phi_status parse_left(struct phi_jinja_parser *p, parse_fn operand,
                                  const enum phi_jinja_token_kind *ops, size_t n_ops,
                                  struct phi_jinja_node **out)
{
    int line = p->at->line;
    PHI_TRY(operand(p, out));
    for (;;) {
        size_t i = 0;
        while (i < n_ops && !phi_jinja_at(p, ops[i]))
            i++;
        if (i == n_ops)
            return PHI_OK;
        struct phi_jinja_node *right, *left = *out;
        phi_jinja_next_token(p);
        PHI_TRY(operand(p, &right));
        PHI_TRY(binary_node(p, NODE_BINARY, line, left, right, out));
        (*out)->op = ops[i];
        line = p->at->line;
    }
}

static enum phi_status parse_filtered_unary(struct phi_jinja_parser *p, struct phi_jinja_node **out)
{
    return parse_unary(p, true, out);
}

static enum phi_status parse_power(struct phi_jinja_parser *p, struct phi_jinja_node **out)
{
    static const enum phi_jinja_token_kind ops[] = {TOKEN_POW};
    return parse_left(p, parse_filtered_unary, ops, 1, out);
}

static enum phi_status parse_product(struct phi_jinja_parser *p, struct phi_jinja_node **out)
{
    static const enum phi_jinja_token_kind ops[] = {TOKEN_MUL, TOKEN_DIV, TOKEN_FLOORDIV,
                                                    TOKEN_MOD};
    return parse_left(p, parse_power, ops, 4, out);
}

static enum phi_status parse_concat(struct phi_jinja_parser *p, struct phi_jinja_node **out)
{
    struct phi_jinja_node_list parts = {0};
    struct phi_jinja_node *part;
    int line = p->at->line;
    PHI_TRY(parse_product(p, &part));
    if (!phi_jinja_at(p, TOKEN_TILDE)) {
        *out = part;
        return PHI_OK;
    }
    phi_jinja_append_node(&parts, part);
    while (phi_jinja_skip(p, TOKEN_TILDE)) {
        PHI_TRY(parse_product(p, &part));
        phi_jinja_append_node(&parts, part);
    }
    PHI_TRY(phi_jinja_new_node(p, NODE_CONCAT, line, out));
    (*out)->items = parts.first;
    return PHI_OK;
}

static enum phi_status parse_sum(struct phi_jinja_parser *p, struct phi_jinja_node **out)
{
    static const enum phi_jinja_token_kind ops[] = {TOKEN_ADD, TOKEN_SUB};
    return parse_left(p, parse_concat, ops, 2, out);
}

/* The comparison at the cursor, taken; TOKEN_EOF when there is none. */
static enum phi_jinja_token_kind take_comparison(struct phi_jinja_parser *p, bool *negated)
{
    enum phi_jinja_token_kind kind = p->at->kind;
    *negated = false;
    switch (kind) {
    case TOKEN_EQ:
    case TOKEN_NE:
    case TOKEN_LT:
    case TOKEN_LTEQ:
    case TOKEN_GT:
    case TOKEN_GTEQ:
        phi_jinja_next_token(p);
        return kind;
    default:
        break;
    }
    if (phi_jinja_skip_name(p, "in"))
        return TOKEN_NAME;
    if (phi_jinja_at_name(p, "not") && p->at[1].kind == TOKEN_NAME &&
        phi_str_eq_c(p->at[1].text, "in")) {
        phi_jinja_next_token(p);
        phi_jinja_next_token(p);
        *negated = true;
        return TOKEN_NAME;
    }
    return TOKEN_EOF;
}

static enum phi_status parse_comparison(struct phi_jinja_parser *p, struct phi_jinja_node **out)
{
    struct phi_jinja_node_list operands = {0};
    struct phi_jinja_node *left;
    int line = p->at->line;
    PHI_TRY(parse_sum(p, &left));
    for (;;) {
        bool negated;
        struct phi_jinja_node *right, *operand;
        int operand_line = p->at->line;
        enum phi_jinja_token_kind op = take_comparison(p, &negated);
        if (op == TOKEN_EOF)
            break;
        PHI_TRY(parse_sum(p, &right));
        PHI_TRY(binary_node(p, NODE_OPERAND, operand_line, right, NULL, &operand));
        operand->op = op;
        operand->negated = negated;
        phi_jinja_append_node(&operands, operand);
    }
    *out = left;
    if (!operands.first)
        return PHI_OK;
    PHI_TRY(binary_node(p, NODE_COMPARE, line, left, NULL, out));
    (*out)->items = operands.first;
    return PHI_OK;
}

static enum phi_status parse_not(struct phi_jinja_parser *p, struct phi_jinja_node **out)
{
    int line = p->at->line;
    if (!phi_jinja_skip_name(p, "not"))
        return parse_comparison(p, out);
    struct phi_jinja_node *operand;
    PHI_TRY(phi_jinja_parse_enter(p));
    PHI_TRY(parse_not(p, &operand));
    phi_jinja_parse_leave(p);
    return binary_node(p, NODE_NOT, line, operand, NULL, out);
}

static enum phi_status parse_and(struct phi_jinja_parser *p, struct phi_jinja_node **out)
{
    int line = p->at->line;
    PHI_TRY(parse_not(p, out));
    while (phi_jinja_skip_name(p, "and")) {
        struct phi_jinja_node *right;
        PHI_TRY(parse_not(p, &right));
        PHI_TRY(binary_node(p, NODE_AND, line, *out, right, out));
    }
    return PHI_OK;
}

static enum phi_status parse_or(struct phi_jinja_parser *p, struct phi_jinja_node **out)
{
    int line = p->at->line;
    PHI_TRY(parse_and(p, out));
    while (phi_jinja_skip_name(p, "or")) {
        struct phi_jinja_node *right;
        PHI_TRY(parse_and(p, &right));
        PHI_TRY(binary_node(p, NODE_OR, line, *out, right, out));
    }
    return PHI_OK;
}

/* a if b else c; "else" may be missing. */
static enum phi_status parse_conditional(struct phi_jinja_parser *p, struct phi_jinja_node **out)
{
    int line = p->at->line;
    PHI_TRY(phi_jinja_parse_enter(p));
    PHI_TRY(parse_or(p, out));
    while (phi_jinja_skip_name(p, "if")) {
        struct phi_jinja_node *test, *otherwise = NULL;
        PHI_TRY(parse_or(p, &test));
        if (phi_jinja_skip_name(p, "else"))
            PHI_TRY(parse_conditional(p, &otherwise));
        PHI_TRY(binary_node(p, NODE_COND, line, *out, test, out));
        (*out)->c = otherwise;
    }
    phi_jinja_parse_leave(p);
    return PHI_OK;
}

enum phi_status phi_jinja_parse_expression(struct phi_jinja_parser *p, struct phi_jinja_node **out)
{
    return parse_conditional(p, out);
}

/* ---- calls and subscripts ---- */

static enum phi_status parse_argument(struct phi_jinja_parser *p, struct phi_jinja_node *call,
                                      int line, struct phi_jinja_node_list *args,
                                      struct phi_jinja_node_list *kwargs)
{
    struct phi_jinja_node *value;
    bool bad = call->c != NULL; /* nothing may follow **kwargs */
    if (phi_jinja_skip(p, TOKEN_MUL)) {
        bad |= call->b != NULL;
        PHI_TRY(phi_jinja_parse_expression(p, &value));
        call->b = value;
    } else if (phi_jinja_skip(p, TOKEN_POW)) {
        PHI_TRY(phi_jinja_parse_expression(p, &value));
        call->c = value;
    } else if (phi_jinja_at(p, TOKEN_NAME) && p->at[1].kind == TOKEN_ASSIGN) {
        struct phi_jinja_node *keyword;
        PHI_TRY(phi_jinja_new_node(p, NODE_KEYWORD, p->at->line, &keyword));
        PHI_TRY(phi_jinja_take_name(p, &keyword->name));
        phi_jinja_next_token(p);
        PHI_TRY(phi_jinja_parse_expression(p, &value));
        keyword->a = value;
        for (struct phi_jinja_node *k = kwargs->first; k; k = (struct phi_jinja_node *)k->next)
            if (phi_str_eq(k->name, keyword->name))
                return phi_jinja_parse_fail(p, line, "keyword argument '%.*s' is given twice",
                                            JINJA_SHOWN(k->name));
        phi_jinja_append_node(kwargs, keyword);
    } else {
        bad |= call->b != NULL || kwargs->first != NULL;
        PHI_TRY(phi_jinja_parse_expression(p, &value));
        phi_jinja_append_node(args, value);
    }
    return bad ? phi_jinja_parse_fail(p, line, "invalid syntax for function call expression")
               : PHI_OK;
}

/* "(...)" into call->items, more, b and c */
static enum phi_status parse_arguments(struct phi_jinja_parser *p, struct phi_jinja_node *call)
{
    struct phi_jinja_node_list args = {0}, kwargs = {0};
    int line = p->at->line;
    PHI_TRY(phi_jinja_expect(p, TOKEN_LPAREN, "("));
    for (bool first = true; !phi_jinja_at(p, TOKEN_RPAREN); first = false) {
        if (!first) {
            PHI_TRY(phi_jinja_expect(p, TOKEN_COMMA, ","));
            if (phi_jinja_at(p, TOKEN_RPAREN))
                break;
        }
        PHI_TRY(parse_argument(p, call, line, &args, &kwargs));
    }
    call->items = args.first;
    call->more = kwargs.first;
    return phi_jinja_expect(p, TOKEN_RPAREN, ")");
}

static enum phi_status parse_call(struct phi_jinja_parser *p, struct phi_jinja_node *callee,
                                  struct phi_jinja_node **out)
{
    PHI_TRY(binary_node(p, NODE_CALL, p->at->line, callee, NULL, out));
    return parse_arguments(p, *out);
}

/* What stands between "[" and "]" or ",": an expression or a slice. */
static enum phi_status parse_subscribed(struct phi_jinja_parser *p, struct phi_jinja_node **out)
{
    struct phi_jinja_node *parts[3] = {NULL, NULL, NULL};
    int line = p->at->line;
    if (!phi_jinja_at(p, TOKEN_COLON)) {
        PHI_TRY(phi_jinja_parse_expression(p, &parts[0]));
        if (!phi_jinja_at(p, TOKEN_COLON)) {
            *out = parts[0];
            return PHI_OK;
        }
    }
    for (int i = 1; i < 3 && phi_jinja_skip(p, TOKEN_COLON); i++)
        if (!phi_jinja_at(p, TOKEN_COLON) && !phi_jinja_at(p, TOKEN_RBRACKET) &&
            !phi_jinja_at(p, TOKEN_COMMA))
            PHI_TRY(phi_jinja_parse_expression(p, &parts[i]));
    PHI_TRY(binary_node(p, NODE_SLICE, line, parts[0], parts[1], out));
    (*out)->c = parts[2];
    return PHI_OK;
}

static enum phi_status parse_item(struct phi_jinja_parser *p, struct phi_jinja_node *object,
                                  struct phi_jinja_node **out)
{
    struct phi_jinja_node_list parts = {0};
    struct phi_jinja_node *part = NULL, *key;
    int line = p->at->line;
    phi_jinja_next_token(p);
    while (!phi_jinja_at(p, TOKEN_RBRACKET)) {
        if (parts.first)
            PHI_TRY(phi_jinja_expect(p, TOKEN_COMMA, ","));
        PHI_TRY(parse_subscribed(p, &part));
        phi_jinja_append_node(&parts, part);
        if (part->kind == NODE_SLICE && parts.first != part)
            return phi_jinja_parse_fail(p, line,
                                        "slices in a tuple of subscripts are not supported");
    }
    phi_jinja_next_token(p);
    key = parts.first;
    if (!parts.first || parts.first != parts.last) {
        if (key && key->kind == NODE_SLICE)
            return phi_jinja_parse_fail(p, line,
                                        "slices in a tuple of subscripts are not supported");
        PHI_TRY(phi_jinja_new_node(p, NODE_TUPLE, line, &key));
        key->items = parts.first;
    }
    return binary_node(p, NODE_ITEM, line, object, key, out);
}

static enum phi_status parse_dot(struct phi_jinja_parser *p, struct phi_jinja_node *object,
                                 struct phi_jinja_node **out)
{
    int line = p->at->line;
    phi_jinja_next_token(p);
    if (phi_jinja_at(p, TOKEN_NAME)) {
        PHI_TRY(binary_node(p, NODE_ATTR, line, object, NULL, out));
        return phi_jinja_take_name(p, &(*out)->name);
    }
    if (!phi_jinja_at(p, TOKEN_INTEGER))
        return phi_jinja_parse_fail(p, p->at->line, "expected name or number behind '.'");
    struct phi_jinja_node *index;
    PHI_TRY(phi_jinja_new_node(p, NODE_CONST, line, &index));
    index->value = phi_jinja_int(p->at->i);
    phi_jinja_next_token(p);
    return binary_node(p, NODE_ITEM, line, object, index, out);
}

static enum phi_status parse_postfix(struct phi_jinja_parser *p, struct phi_jinja_node **node)
{
    for (;;) {
        if (phi_jinja_at(p, TOKEN_DOT))
            PHI_TRY(parse_dot(p, *node, node));
        else if (phi_jinja_at(p, TOKEN_LBRACKET))
            PHI_TRY(parse_item(p, *node, node));
        else if (phi_jinja_at(p, TOKEN_LPAREN))
            PHI_TRY(parse_call(p, *node, node));
        else
            return PHI_OK;
    }
}

/* ---- filters and tests ---- */

/* A name with dots, as extensions may have. */
static enum phi_status take_dotted_name(struct phi_jinja_parser *p, struct phi_str *out)
{
    const struct phi_jinja_token *first = p->at, *last = p->at;
    PHI_TRY(phi_jinja_take_name(p, out));
    while (phi_jinja_skip(p, TOKEN_DOT)) {
        struct phi_str part;
        last = p->at;
        PHI_TRY(phi_jinja_take_name(p, &part));
    }
    if (last != first)
        return phi_jinja_parse_fail(p, first->line, "no filter or test has a dot in its name");
    return PHI_OK;
}

enum phi_status phi_jinja_parse_filters(struct phi_jinja_parser *p, struct phi_jinja_node *input,
                                        bool start_inline, struct phi_jinja_node **out)
{
    *out = input;
    while (start_inline || phi_jinja_at(p, TOKEN_PIPE)) {
        if (!start_inline)
            phi_jinja_next_token(p);
        start_inline = false;
        PHI_TRY(binary_node(p, NODE_FILTER, p->at->line, *out, NULL, out));
        PHI_TRY(take_dotted_name(p, &(*out)->name));
        (*out)->builtin = phi_jinja_find_filter((*out)->name);
        if (phi_jinja_at(p, TOKEN_LPAREN))
            PHI_TRY(parse_arguments(p, *out));
    }
    return PHI_OK;
}

static enum phi_status parse_primary(struct phi_jinja_parser *p, bool namespace_ref,
                                     struct phi_jinja_node **out);

/* Whether what follows a test's name is its one argument, without parentheses. */
static bool at_test_argument(const struct phi_jinja_parser *p)
{
    switch (p->at->kind) {
    case TOKEN_NAME:
        return !phi_jinja_at_name(p, "else") && !phi_jinja_at_name(p, "or") &&
               !phi_jinja_at_name(p, "and");
    case TOKEN_STRING:
    case TOKEN_INTEGER:
    case TOKEN_FLOAT:
    case TOKEN_LBRACKET:
    case TOKEN_LBRACE:
        return true;
    default:
        return false;
    }
}

static enum phi_status parse_test(struct phi_jinja_parser *p, struct phi_jinja_node *value,
                                  struct phi_jinja_node **out)
{
    int line = p->at->line;
    phi_jinja_next_token(p);
    bool negated = phi_jinja_skip_name(p, "not");
    struct phi_jinja_node *test;
    PHI_TRY(binary_node(p, NODE_TEST, line, value, NULL, &test));
    PHI_TRY(take_dotted_name(p, &test->name));
    test->builtin = phi_jinja_find_test(test->name);
    if (phi_jinja_at(p, TOKEN_LPAREN)) {
        PHI_TRY(parse_arguments(p, test));
    } else if (at_test_argument(p)) {
        struct phi_jinja_node *argument;
        if (phi_jinja_at_name(p, "is"))
            return phi_jinja_parse_fail(p, p->at->line, "You cannot chain multiple tests with is");
        PHI_TRY(parse_primary(p, false, &argument));
        PHI_TRY(parse_postfix(p, &argument));
        test->items = argument;
    }
    *out = test;
    return negated ? binary_node(p, NODE_NOT, line, test, NULL, out) : PHI_OK;
}

static enum phi_status parse_filters_and_tests(struct phi_jinja_parser *p,
                                               struct phi_jinja_node **node)
{
    for (;;) {
        if (phi_jinja_at(p, TOKEN_PIPE))
            PHI_TRY(phi_jinja_parse_filters(p, *node, false, node));
        else if (phi_jinja_at_name(p, "is"))
            PHI_TRY(parse_test(p, *node, node));
        else if (phi_jinja_at(p, TOKEN_LPAREN))
            PHI_TRY(parse_call(p, *node, node));
        else
            return PHI_OK;
    }
}

static enum phi_status parse_unary(struct phi_jinja_parser *p, bool with_filters,
                                   struct phi_jinja_node **out)
{
    int line = p->at->line;
    PHI_TRY(phi_jinja_parse_enter(p));
    if (phi_jinja_at(p, TOKEN_SUB) || phi_jinja_at(p, TOKEN_ADD)) {
        enum phi_jinja_node_kind kind = phi_jinja_at(p, TOKEN_SUB) ? NODE_NEG : NODE_POS;
        struct phi_jinja_node *operand;
        phi_jinja_next_token(p);
        PHI_TRY(parse_unary(p, false, &operand));
        PHI_TRY(binary_node(p, kind, line, operand, NULL, out));
    } else {
        PHI_TRY(parse_primary(p, false, out));
    }
    PHI_TRY(parse_postfix(p, out));
    if (with_filters)
        PHI_TRY(parse_filters_and_tests(p, out));
    phi_jinja_parse_leave(p);
    return PHI_OK;
}

/* ---- literals and names ---- */

static enum phi_status const_node(struct phi_jinja_parser *p, struct phi_jinja_value v,
                                  struct phi_jinja_node **out)
{
    PHI_TRY(phi_jinja_new_node(p, NODE_CONST, p->at->line, out));
    (*out)->value = v;
    phi_jinja_next_token(p);
    return PHI_OK;
}

/* 'a' "b" is one string. */
static enum phi_status parse_strings(struct phi_jinja_parser *p, struct phi_jinja_node **out)
{
    struct phi_str whole = p->at->text;
    PHI_TRY(const_node(p, phi_jinja_str(whole), out));
    if (!phi_jinja_at(p, TOKEN_STRING))
        return PHI_OK;
    size_t n = whole.n;
    for (const struct phi_jinja_token *t = p->at; t->kind == TOKEN_STRING; t++)
        n += t->text.n;
    char *joined = phi_arena_alloc(p->arena, n, 1);
    if (!joined)
        return phi_fail_memory(p->err, p->name, n);
    memcpy(joined, whole.data, whole.n);
    n = whole.n;
    for (; phi_jinja_at(p, TOKEN_STRING); phi_jinja_next_token(p)) {
        memcpy(joined + n, p->at->text.data, p->at->text.n);
        n += p->at->text.n;
    }
    (*out)->value = phi_jinja_str((struct phi_str){joined, n});
    return PHI_OK;
}

static enum phi_status parse_name(struct phi_jinja_parser *p, bool namespace_ref,
                                  struct phi_jinja_node **out)
{
    if (phi_jinja_at_name(p, "true") || phi_jinja_at_name(p, "True"))
        return const_node(p, phi_jinja_bool(true), out);
    if (phi_jinja_at_name(p, "false") || phi_jinja_at_name(p, "False"))
        return const_node(p, phi_jinja_bool(false), out);
    if (phi_jinja_at_name(p, "none") || phi_jinja_at_name(p, "None"))
        return const_node(p, phi_jinja_none(), out);
    PHI_TRY(phi_jinja_new_node(p, NODE_NAME, p->at->line, out));
    PHI_TRY(phi_jinja_take_name(p, &(*out)->name));
    p->used.caller |= phi_str_eq_c((*out)->name, "caller");
    p->used.kwargs |= phi_str_eq_c((*out)->name, "kwargs");
    p->used.varargs |= phi_str_eq_c((*out)->name, "varargs");
    if (!namespace_ref || !phi_jinja_skip(p, TOKEN_DOT))
        return PHI_OK;
    (*out)->kind = NODE_NAMESPACE_REF;
    return phi_jinja_take_name(p, &(*out)->attribute);
}

static enum phi_status parse_list(struct phi_jinja_parser *p, struct phi_jinja_node **out)
{
    struct phi_jinja_node_list items = {0};
    struct phi_jinja_node *item;
    PHI_TRY(phi_jinja_new_node(p, NODE_LIST, p->at->line, out));
    phi_jinja_next_token(p);
    while (!phi_jinja_at(p, TOKEN_RBRACKET)) {
        if (items.first)
            PHI_TRY(phi_jinja_expect(p, TOKEN_COMMA, ","));
        if (phi_jinja_at(p, TOKEN_RBRACKET))
            break;
        PHI_TRY(phi_jinja_parse_expression(p, &item));
        phi_jinja_append_node(&items, item);
    }
    phi_jinja_next_token(p);
    (*out)->items = items.first;
    return PHI_OK;
}

static enum phi_status parse_dict(struct phi_jinja_parser *p, struct phi_jinja_node **out)
{
    struct phi_jinja_node_list items = {0};
    PHI_TRY(phi_jinja_new_node(p, NODE_DICT, p->at->line, out));
    phi_jinja_next_token(p);
    while (!phi_jinja_at(p, TOKEN_RBRACE)) {
        struct phi_jinja_node *key, *value, *pair;
        if (items.first)
            PHI_TRY(phi_jinja_expect(p, TOKEN_COMMA, ","));
        if (phi_jinja_at(p, TOKEN_RBRACE))
            break;
        PHI_TRY(phi_jinja_parse_expression(p, &key));
        PHI_TRY(phi_jinja_expect(p, TOKEN_COLON, ":"));
        PHI_TRY(phi_jinja_parse_expression(p, &value));
        PHI_TRY(binary_node(p, NODE_PAIR, key->line, key, value, &pair));
        phi_jinja_append_node(&items, pair);
    }
    phi_jinja_next_token(p);
    (*out)->items = items.first;
    return PHI_OK;
}

static enum phi_status parse_primary(struct phi_jinja_parser *p, bool namespace_ref,
                                     struct phi_jinja_node **out)
{
    const struct phi_jinja_token *token = p->at;
    switch (token->kind) {
    case TOKEN_NAME:
        return parse_name(p, namespace_ref, out);
    case TOKEN_STRING:
        return parse_strings(p, out);
    case TOKEN_INTEGER:
        return const_node(p, phi_jinja_int(token->i), out);
    case TOKEN_FLOAT:
        return const_node(p, phi_jinja_float(token->f), out);
    case TOKEN_LPAREN:
        phi_jinja_next_token(p);
        PHI_TRY(
            phi_jinja_parse_tuple(p, (struct phi_jinja_tuple_options){.parentheses = true}, out));
        return phi_jinja_expect(p, TOKEN_RPAREN, ")");
    case TOKEN_LBRACKET:
        return parse_list(p, out);
    case TOKEN_LBRACE:
        return parse_dict(p, out);
    default: {
        struct phi_str shown = phi_jinja_token_shown(token);
        return phi_jinja_parse_fail(p, token->line, "unexpected '%.*s'", JINJA_SHOWN(shown));
    }
    }
}

static bool at_tuple_end(const struct phi_jinja_parser *p, const char *end)
{
    return phi_jinja_at(p, TOKEN_VARIABLE_END) || phi_jinja_at(p, TOKEN_BLOCK_END) ||
           phi_jinja_at(p, TOKEN_RPAREN) || (end && phi_jinja_at_name(p, end));
}

static enum phi_status parse_tuple_item(struct phi_jinja_parser *p,
                                        struct phi_jinja_tuple_options options,
                                        struct phi_jinja_node **out)
{
    if (options.targets) {
        struct phi_jinja_special_names used = p->used; /* a target is not a use */
        PHI_TRY(parse_primary(p, options.namespace_ref, out));
        p->used = used;
        return PHI_OK;
    }
    if (!options.no_condition)
        return parse_conditional(p, out);
    PHI_TRY(phi_jinja_parse_enter(p));
    PHI_TRY(parse_or(p, out));
    phi_jinja_parse_leave(p);
    return PHI_OK;
}

enum phi_status phi_jinja_parse_tuple(struct phi_jinja_parser *p,
                                      struct phi_jinja_tuple_options options,
                                      struct phi_jinja_node **out)
{
    struct phi_jinja_node_list items = {0};
    struct phi_jinja_node *item = NULL;
    bool is_tuple = false;
    int line = p->at->line;
    PHI_TRY(phi_jinja_parse_enter(p));
    for (;;) {
        if (items.first)
            PHI_TRY(phi_jinja_expect(p, TOKEN_COMMA, ","));
        if (at_tuple_end(p, options.end))
            break;
        PHI_TRY(parse_tuple_item(p, options, &item));
        phi_jinja_append_node(&items, item);
        if (!phi_jinja_at(p, TOKEN_COMMA))
            break;
        is_tuple = true;
    }
    phi_jinja_parse_leave(p);
    *out = items.first;
    if (!is_tuple && items.first)
        return PHI_OK;
    if (!is_tuple && !options.parentheses) {
        struct phi_str shown = phi_jinja_token_shown(p->at);
        return phi_jinja_parse_fail(p, p->at->line, "Expected an expression, got '%.*s'",
                                    JINJA_SHOWN(shown));
    }
    PHI_TRY(phi_jinja_new_node(p, NODE_TUPLE, line, out));
    (*out)->items = items.first;
    return PHI_OK;
}
