/* ops.c: arithmetic as Python's: true division, floor division and modulo that round down,
 * text and lists that add and repeat. Integers beyond 64 bits are an error. */
#include "formats/jinja/eval.h"
#include "formats/jinja/text.h"

#include <math.h>

static bool is_int(struct phi_jinja_value v)
{
    return v.type == JINJA_INT || v.type == JINJA_BOOL;
}

static bool is_number(struct phi_jinja_value v)
{
    return is_int(v) || v.type == JINJA_FLOAT;
}

static int64_t as_int(struct phi_jinja_value v)
{
    return v.type == JINJA_BOOL ? v.b : v.i;
}

static double as_float(struct phi_jinja_value v)
{
    return v.type == JINJA_FLOAT ? v.f : (double)as_int(v);
}

static enum phi_status overflow(struct phi_jinja_run *r)
{
    return phi_jinja_error(r, "an integer beyond 64 bits");
}

static enum phi_status zero_division(struct phi_jinja_run *r)
{
    return phi_jinja_error(r, "division by zero");
}

static enum phi_status int_power(struct phi_jinja_run *r, int64_t base, int64_t exponent,
                                 struct phi_jinja_value *out)
{
    int64_t result = 1;
    if (exponent < 0) {
        if (base == 0)
            return phi_jinja_error(r, "0.0 cannot be raised to a negative power");
        *out = phi_jinja_float(pow((double)base, (double)exponent));
        return PHI_OK;
    }
    while (exponent > 0) {
        if (exponent & 1 && __builtin_mul_overflow(result, base, &result))
            return overflow(r);
        exponent >>= 1;
        if (exponent && __builtin_mul_overflow(base, base, &base))
            return overflow(r);
    }
    *out = phi_jinja_int(result);
    return PHI_OK;
}

static enum phi_status int_operation(struct phi_jinja_run *r, enum phi_jinja_token_kind op,
                                     int64_t a, int64_t b, struct phi_jinja_value *out)
{
    int64_t result = 0;
    bool too_big = false;
    switch (op) {
    case TOKEN_ADD:
        too_big = __builtin_add_overflow(a, b, &result);
        break;
    case TOKEN_SUB:
        too_big = __builtin_sub_overflow(a, b, &result);
        break;
    case TOKEN_MUL:
        too_big = __builtin_mul_overflow(a, b, &result);
        break;
    case TOKEN_DIV:
        if (b == 0)
            return zero_division(r);
        *out = phi_jinja_float((double)((long double)a / (long double)b));
        return PHI_OK;
    case TOKEN_FLOORDIV:
        if (b == 0)
            return zero_division(r);
        too_big = a == INT64_MIN && b == -1;
        if (!too_big)
            result = a / b - (a % b != 0 && (a < 0) != (b < 0));
        break;
    case TOKEN_MOD:
        if (b == 0)
            return zero_division(r);
        result = b == -1 ? 0 : a % b;
        if (result != 0 && (result < 0) != (b < 0))
            result += b;
        break;
    default:
        return int_power(r, a, b, out);
    }
    *out = phi_jinja_int(result);
    return too_big ? overflow(r) : PHI_OK;
}

/* CPython's float_divmod: the remainder has the sign of the divisor. */
static void float_divmod(double a, double b, double *quotient, double *remainder)
{
    double mod = fmod(a, b), div = (a - mod) / b;
    if (mod != 0) {
        if ((b < 0) != (mod < 0)) {
            mod += b;
            div -= 1.0;
        }
    } else {
        mod = copysign(0.0, b);
    }
    *remainder = mod;
    if (div != 0) {
        *quotient = floor(div);
        if (div - *quotient > 0.5)
            *quotient += 1.0;
    } else {
        *quotient = copysign(0.0, a / b);
    }
}

static enum phi_status float_operation(struct phi_jinja_run *r, enum phi_jinja_token_kind op,
                                       double a, double b, struct phi_jinja_value *out)
{
    double quotient, remainder;
    switch (op) {
    case TOKEN_ADD:
        *out = phi_jinja_float(a + b);
        return PHI_OK;
    case TOKEN_SUB:
        *out = phi_jinja_float(a - b);
        return PHI_OK;
    case TOKEN_MUL:
        *out = phi_jinja_float(a * b);
        return PHI_OK;
    case TOKEN_DIV:
        if (b == 0)
            return zero_division(r);
        *out = phi_jinja_float(a / b);
        return PHI_OK;
    case TOKEN_FLOORDIV:
    case TOKEN_MOD:
        if (b == 0)
            return zero_division(r);
        float_divmod(a, b, &quotient, &remainder);
        *out = phi_jinja_float(op == TOKEN_MOD ? remainder : quotient);
        return PHI_OK;
    default:
        if (a == 0 && b < 0)
            return phi_jinja_error(r, "0.0 cannot be raised to a negative power");
        if (a < 0 && isfinite(a) && isfinite(b) && b != floor(b))
            return phi_jinja_fail(r, PHI_ERR_UNSUPPORTED, "complex numbers are not supported");
        *out = phi_jinja_float(pow(a, b));
        if (isinf(out->f) && isfinite(a) && isfinite(b))
            return phi_jinja_error(r, "the result of ** is too large");
        return PHI_OK;
    }
}

static enum phi_status join_lists(struct phi_jinja_run *r, struct phi_jinja_value a,
                                  struct phi_jinja_value b, struct phi_jinja_value *out)
{
    size_t n = a.list->n + b.list->n;
    PHI_TRY(phi_jinja_charge(r, n));
    PHI_TRY(phi_jinja_list_make(r, a.type, n, out));
    for (size_t i = 0; i < n; i++)
        out->list->items[i] = i < a.list->n ? a.list->items[i] : b.list->items[i - a.list->n];
    out->list->n = n;
    return PHI_OK;
}

/* Markup escapes what is added to it, on either side. */
static enum phi_status join_strings(struct phi_jinja_run *r, struct phi_jinja_value a,
                                    struct phi_jinja_value b, struct phi_jinja_value *out)
{
    struct phi_buf text = {.limit = JINJA_MAX_OUTPUT_BYTES};
    bool markup = a.markup || b.markup;
    phi_buf_reserve(&text, a.s.n + b.s.n);
    for (int i = 0; i < 2; i++) {
        const struct phi_jinja_value *v = i ? &b : &a;
        if (markup && !v->markup)
            phi_jinja_append_escaped(&text, v->s);
        else
            phi_buf_append_str(&text, v->s);
    }
    return phi_jinja_return_text(r, PHI_OK, &text, markup, out);
}

static enum phi_status repeat(struct phi_jinja_run *r, struct phi_jinja_value v, int64_t times,
                              struct phi_jinja_value *out)
{
    if (times < 0)
        times = 0;
    if (v.type == JINJA_STR) {
        struct phi_buf text = {.limit = JINJA_MAX_OUTPUT_BYTES};
        for (int64_t i = 0; i < times && v.s.n && !text.failed; i++)
            phi_buf_append_str(&text, v.s);
        return phi_jinja_return_text(r, PHI_OK, &text, v.markup, out);
    }
    PHI_TRY(phi_jinja_list_make(r, v.type, 0, out));
    for (int64_t i = 0; i < times && v.list->n; i++) {
        PHI_TRY(phi_jinja_charge(r, v.list->n));
        for (size_t k = 0; k < v.list->n; k++)
            PHI_TRY(phi_jinja_list_append(r, out->list, v.list->items[k]));
    }
    return PHI_OK;
}

static bool can_repeat(struct phi_jinja_value v)
{
    return v.type == JINJA_STR || phi_jinja_is_sequence(v);
}

static enum phi_status percent(struct phi_jinja_run *r, struct phi_jinja_value format,
                               struct phi_jinja_value args, struct phi_jinja_value *out)
{
    struct phi_buf text = {.limit = JINJA_MAX_OUTPUT_BYTES};
    enum phi_status status = phi_jinja_format_percent(r, format.s, args, &text);
    return phi_jinja_return_text(r, status, &text, format.markup, out);
}

static enum phi_status unsupported(struct phi_jinja_run *r, enum phi_jinja_token_kind op,
                                   struct phi_jinja_value a, struct phi_jinja_value b)
{
    const char *sign = op == TOKEN_ADD        ? "+"
                       : op == TOKEN_SUB      ? "-"
                       : op == TOKEN_MUL      ? "*"
                       : op == TOKEN_DIV      ? "/"
                       : op == TOKEN_FLOORDIV ? "//"
                       : op == TOKEN_MOD      ? "%"
                                              : "**";
    if (op == TOKEN_ADD && a.type == JINJA_STR)
        return phi_jinja_error(r, "can only concatenate str (not \"%s\") to str",
                               phi_jinja_type_name(b));
    return phi_jinja_error(r, "unsupported operand type(s) for %s: '%s' and '%s'", sign,
                           phi_jinja_type_name(a), phi_jinja_type_name(b));
}

enum phi_status phi_jinja_binary(struct phi_jinja_run *r, enum phi_jinja_token_kind op,
                                 struct phi_jinja_value a, struct phi_jinja_value b,
                                 struct phi_jinja_value *out)
{
    if (op == TOKEN_MOD && a.type == JINJA_STR)
        return percent(r, a, b, out);
    if (a.type == JINJA_UNDEFINED || b.type == JINJA_UNDEFINED)
        return phi_jinja_undefined_error(r, a.type == JINJA_UNDEFINED ? a : b);
    if (is_int(a) && is_int(b))
        return int_operation(r, op, as_int(a), as_int(b), out);
    if (is_number(a) && is_number(b))
        return float_operation(r, op, as_float(a), as_float(b), out);
    if (op == TOKEN_ADD && a.type == JINJA_STR && b.type == JINJA_STR)
        return join_strings(r, a, b, out);
    if (op == TOKEN_ADD && phi_jinja_is_sequence(a) && a.type == b.type)
        return join_lists(r, a, b, out);
    if (op == TOKEN_MUL && can_repeat(a) && is_int(b))
        return repeat(r, a, as_int(b), out);
    if (op == TOKEN_MUL && is_int(a) && can_repeat(b))
        return repeat(r, b, as_int(a), out);
    return unsupported(r, op, a, b);
}

enum phi_status phi_jinja_negate(struct phi_jinja_run *r, struct phi_jinja_value v, bool minus,
                                 struct phi_jinja_value *out)
{
    if (v.type == JINJA_UNDEFINED)
        return phi_jinja_undefined_error(r, v);
    if (v.type == JINJA_FLOAT) {
        *out = phi_jinja_float(minus ? -v.f : v.f);
        return PHI_OK;
    }
    if (!is_int(v))
        return phi_jinja_error(r, "bad operand type for unary %c: '%s'", minus ? '-' : '+',
                               phi_jinja_type_name(v));
    if (minus && as_int(v) == INT64_MIN)
        return overflow(r);
    *out = phi_jinja_int(minus ? -as_int(v) : as_int(v));
    return PHI_OK;
}
