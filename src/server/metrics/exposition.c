/* exposition.c: see exposition.h. */
#include "server/metrics/exposition.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

void phi_expo_number(double value, char out[32])
{
    if (isnan(value))
        snprintf(out, 32, "NaN");
    else if (isinf(value))
        snprintf(out, 32, value > 0 ? "+Inf" : "-Inf");
    else if (value == floor(value) && fabs(value) < 1e15)
        snprintf(out, 32, "%.1f", value);
    else
        for (int digits = 15; digits <= 17; digits++) {
            snprintf(out, 32, "%.*g", digits, value);
            if (strtod(out, NULL) == value)
                break;
        }
}

void phi_expo_label(struct phi_buf *out, const char *name, struct phi_str value)
{
    phi_buf_printf(out, "%s%s=\"", out->n ? "," : "", name);
    size_t start = out->n;
    phi_utf8_append_lossy(out, value);
    if (out->failed)
        return;
    /* The escapes are made in the buffer's own tail, from its end, so that nothing is copied twice.
     */
    size_t n_escapes = 0;
    for (size_t i = start; i < out->n; i++)
        n_escapes += out->data[i] == '\\' || out->data[i] == '"' || out->data[i] == '\n';
    if (!phi_buf_reserve(out, n_escapes + 1))
        return;
    size_t to = out->n + n_escapes;
    for (size_t from = out->n; from > start;) {
        char c = out->data[--from];
        out->data[--to] = c == '\n' ? 'n' : c;
        if (c == '\\' || c == '"' || c == '\n')
            out->data[--to] = '\\';
    }
    out->n += n_escapes;
    phi_buf_append_char(out, '"');
}

void phi_expo_family(struct phi_buf *out, const char *name, const char *suffix, const char *type,
                     const char *help)
{
    phi_buf_printf(out, "# HELP %s%s %s\n# TYPE %s%s %s\n", name, suffix, help, name, suffix, type);
}

void phi_expo_sample(struct phi_buf *out, const char *name, const char *suffix,
                     struct phi_str labels, struct phi_str more, double value)
{
    phi_buf_append_c(out, name);
    phi_buf_append_c(out, suffix);
    if (labels.n || more.n) {
        phi_buf_append_char(out, '{');
        phi_buf_append_str(out, labels);
        if (labels.n && more.n)
            phi_buf_append_char(out, ',');
        phi_buf_append_str(out, more);
        phi_buf_append_char(out, '}');
    }
    char number[32];
    phi_expo_number(value, number);
    phi_buf_printf(out, " %s\n", number);
}

void phi_expo_histogram(struct phi_buf *out, const char *name, struct phi_str labels,
                        const struct phi_histogram *h, size_t n_bounds)
{
    uint64_t n = 0;
    for (size_t i = 0; i <= h->n; i++) {
        n += h->counts[i];
        if (i >= n_bounds && i < h->n)
            continue;
        char bound[32], le[40];
        phi_expo_number(i < h->n ? h->bounds[i] : INFINITY, bound);
        snprintf(le, sizeof le, "le=\"%s\"", bound);
        phi_expo_sample(out, name, "_bucket", labels, phi_str_from(le), (double)n);
    }
    phi_expo_sample(out, name, "_count", labels, PHI_STR(""), (double)n);
    phi_expo_sample(out, name, "_sum", labels, PHI_STR(""), h->sum);
}
