/* page.c: see page.h. */
#include "cli/page.h"
#include "base/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

/* ---------------------------------------------------------------- text */

void page_text(struct phi_buf *out, struct phi_str text)
{
    static const struct phi_str replacement = {"\xef\xbf\xbd", 3};
    while (text.n > 0) {
        uint32_t cp = 0;
        int n = phi_utf8_decode(text.data, text.n, &cp);
        size_t taken = n > 0 ? (size_t)n : n < 0 ? (size_t)-n : text.n;
        if (n <= 0 || cp == 127 || (cp < 32 && cp != '\n' && cp != '\t'))
            phi_buf_append_str(out, replacement);
        else if (cp == '\n')
            phi_buf_append_c(out, "\xe2\x86\xb5 ");
        else if (cp == '<' || cp == '>' || cp == '&' || cp == '"' || cp == '\'')
            phi_buf_printf(out, "&#%u;", (unsigned)cp);
        else
            phi_buf_append(out, text.data, taken);
        text.data += taken;
        text.n -= taken;
    }
}

static const char style[] =
    ":root{color-scheme:light dark;--ink:#1c2024;--soft:#667;--line:#d5d9df;--paper:#fff;"
    "--good:#157f3c;--bad:#c0262d;--bar:#3b6fb6}\n"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6e8eb;--soft:#9aa3ad;--line:#3a4048;"
    "--paper:#16181b;--good:#4cc38a;--bad:#ff6369;--bar:#7aa7e6}}\n"
    "body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);"
    "max-width:66rem;margin:2rem auto;padding:0 1rem}\n"
    "h1{font-size:1.4rem;margin:0}h2{font-size:1.1rem;margin:2rem 0 .5rem}\n"
    ".verdict{font-size:1.15rem;font-weight:600;margin:1rem 0;padding:.7rem 1rem;"
    "border-left:.4rem solid var(--good)}.verdict.fail{border-color:var(--bad)}\n"
    ".good,.verdict b{color:var(--good)}.bad,.verdict.fail b{color:var(--bad)}\n"
    ".wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;"
    "min-width:100%}\n"
    "th,td{text-align:right;padding:.2rem .6rem;border-bottom:1px solid var(--line);"
    "vertical-align:top;white-space:nowrap}\n"
    "th{font-weight:600;color:var(--soft);vertical-align:bottom}\n"
    "th.text{text-align:left;vertical-align:top}td.text{text-align:left;white-space:pre-wrap;"
    "overflow-wrap:anywhere;min-width:14rem;width:100%}\n"
    "details{margin:.5rem 0}summary{cursor:pointer;padding:.2rem 0}\n"
    "svg{width:100%;min-width:40rem;height:auto;font:11px system-ui,sans-serif}\n"
    "svg .grid{stroke:var(--line)}svg text{fill:var(--soft)}svg .limit{stroke:var(--bad);"
    "stroke-dasharray:6 4}svg rect{fill:var(--bar)}svg rect.bad{fill:var(--bad)}\n"
    "svg rect:hover{opacity:.6}mark{background:none;color:var(--bad);font-weight:600}\n"
    ".note,footer{color:var(--soft)}footer{margin-top:2rem;font-size:.85rem}\n";

void page_begin(struct phi_buf *out, const char *title, bool good, const char *verdict)
{
    phi_buf_append_c(out, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                          "<meta name=\"viewport\" content=\"width=device-width\">\n<title>");
    page_text(out, phi_str_from(title));
    phi_buf_printf(out, "</title>\n<style>\n%s</style></head><body>\n<h1>", style);
    page_text(out, phi_str_from(title));
    phi_buf_printf(out, "</h1>\n<p class=\"verdict%s\"><b>%s</b> ", good ? "" : " fail",
                   good ? "PASS" : "FAIL");
    page_text(out, phi_str_from(verdict));
    phi_buf_append_c(out, "</p>\n");
}

void page_end(struct phi_buf *out)
{
    phi_buf_printf(out, "<footer>phidelity %s</footer>\n</body></html>\n", phi_version());
}

/* ---------------------------------------------------------------- plots */

/* The drawing's frame, in its own units: bars between LEFT and RIGHT, TOP and BOTTOM, the baseline
 * of groups' names, and the width of a letter of them. */
enum {
    WIDTH = 1000,
    HEIGHT = 244,
    LEFT = 52,
    RIGHT = 992,
    TOP = 10,
    BOTTOM = 220,
    NAMES = 236,
    LETTER = 7,
};

struct axis {
    int lowest, highest; /* decades */
};

static double y_of(const struct axis *a, double value)
{
    double share = (log10(value) - a->lowest) / (a->highest - a->lowest);
    share = share < 0 ? 0 : share > 1 ? 1 : share;
    return BOTTOM - share * (BOTTOM - TOP);
}

/* Whole decades around all values and the limit, at most 18 of them. */
static struct axis axis_of(const struct page_plot *p)
{
    double low = p->limit > 0 ? p->limit : (double)INFINITY, high = p->limit;
    for (size_t i = 0; i < p->n; i++) {
        double value = p->value(p->context, i);
        if (value > 0 && value < low)
            low = value;
        high = value > high ? value : high;
    }
    if (!(high > 0))
        return (struct axis){-9, 0};
    struct axis a = {(int)floor(log10(low)), (int)ceil(log10(high))};
    if (a.highest <= a.lowest)
        a.highest = a.lowest + 1;
    if (a.highest - a.lowest > 18)
        a.lowest = a.highest - 18;
    return a;
}

static void append_grid_line(struct phi_buf *out, const struct axis *a, int digit, int decade)
{
    double y = y_of(a, digit * pow(10, decade));
    phi_buf_printf(out,
                   "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
                   "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%de%d</text>\n",
                   LEFT, RIGHT, y, y, LEFT - 6, y + 4, digit, decade);
}

/* Decades, or every few of them; one or two are divided. */
static void append_grid(struct phi_buf *out, const struct axis *a)
{
    int step = (a->highest - a->lowest + 8) / 9;
    for (int decade = a->highest; decade >= a->lowest; decade -= step)
        append_grid_line(out, a, 1, decade);
    for (int decade = a->lowest; a->highest - a->lowest <= 2 && decade < a->highest; decade++) {
        append_grid_line(out, a, 2, decade);
        append_grid_line(out, a, 5, decade);
    }
}

/* Marks where a group of bars begins, and names it unless the last name would be written over. */
static void append_group(struct phi_buf *out, const struct page_plot *p, size_t i, double x,
                         double *named_to)
{
    struct phi_buf name = {0};
    if (p->starts_group(p->context, i, &name)) {
        if (i > 0)
            phi_buf_printf(out,
                           "<line class=\"grid\" x1=\"%.2f\" x2=\"%.2f\" y1=\"%d\" y2=\"%d\"/>\n",
                           x, x, TOP, NAMES);
        if (x >= *named_to) {
            phi_buf_printf(out, "<text x=\"%.2f\" y=\"%d\">", x + 4, NAMES);
            page_text(out, phi_buf_str(&name));
            phi_buf_append_c(out, "</text>\n");
            *named_to = x + 4 + LETTER * (double)(name.n + 1);
        }
    }
    phi_buf_deinit(&name);
}

static void append_bar(struct phi_buf *out, const struct page_plot *p, const struct axis *a,
                       size_t i, double x, double step)
{
    double value = p->value(p->context, i), y = value > 0 ? y_of(a, value) : BOTTOM;
    phi_buf_printf(out, "<rect%s x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\"><title>",
                   p->is_bad(p->context, i) ? " class=\"bad\"" : "", x, y - 1,
                   step > 2 ? step - 1 : step, BOTTOM - y + 1);
    p->tell(p->context, i, out);
    phi_buf_append_c(out, "</title></rect>\n");
}

void page_append_plot(struct phi_buf *out, const struct page_plot *p)
{
    struct axis a = axis_of(p);
    double step = (double)(RIGHT - LEFT) / (double)p->n, named_to = LEFT;
    phi_buf_append_c(out, "<h2>");
    page_text(out, phi_str_from(p->title));
    phi_buf_append_c(out, "</h2>\n<div class=\"wide\"><svg role=\"img\" aria-label=\"");
    page_text(out, phi_str_from(p->title));
    phi_buf_printf(out, "\" viewBox=\"0 0 %d %d\">\n", WIDTH, HEIGHT);
    append_grid(out, &a);
    for (size_t i = 0; i < p->n; i++) {
        double x = LEFT + (double)i * step;
        append_group(out, p, i, x, &named_to);
        append_bar(out, p, &a, i, x, step);
    }
    if (p->limit > 0)
        phi_buf_printf(out, "<line class=\"limit\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>\n",
                       LEFT, RIGHT, y_of(&a, p->limit), y_of(&a, p->limit));
    phi_buf_append_c(out, "</svg></div>\n<p class=\"note\">");
    page_text(out, phi_str_from(p->note));
    phi_buf_append_c(out, "</p>\n");
}

/* ---------------------------------------------------------------- the file */

enum phi_status page_write(const char *path, const struct phi_buf *page, struct phi_error *err)
{
    if (page->failed)
        return phi_fail_memory(err, "the report", page->n);
    FILE *file = fopen(path, "wb");
    if (!file)
        return phi_fail(err, PHI_ERR_IO, "%s: cannot create: %s", path, strerror(errno));
    bool ok = fwrite(page->data, 1, page->n, file) == page->n;
    int why = errno;
    if (fclose(file) != 0 && ok) {
        ok = false;
        why = errno;
    }
    return ok ? PHI_OK : phi_fail(err, PHI_ERR_IO, "%s: cannot write: %s", path, strerror(why));
}
