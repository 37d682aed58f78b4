/* page.h: reports for people: one HTML file that needs nothing beside itself, with a verdict on
 * top, tables, and plots as inline SVG. */
#ifndef PHI_CLI_PAGE_H
#define PHI_CLI_PAGE_H

#include "base/buf.h"

/* Appends text with what HTML would take for markup escaped; control characters and bytes that are
 * not UTF-8 become U+FFFD, line ends are shown as a sign. */
void page_text(struct phi_buf *out, struct phi_str text);

/* Everything up to the report's first section. `verdict` is one line. */
void page_begin(struct phi_buf *out, const char *title, bool good, const char *verdict);
void page_end(struct phi_buf *out);

/* A plot of n values over their index on a logarithmic axis: a bar each, the `bad` ones in red. */
struct page_plot {
    const char *title, *note; /* above and below */
    size_t n;
    void *context;
    double (*value)(const void *context, size_t i); /* >= 0; 0 has no bar */
    bool (*is_bad)(const void *context, size_t i);
    /* Appends what the pointer shows over bar i, escaped. */
    void (*tell)(const void *context, size_t i, struct phi_buf *out);
    /* Whether a group begins with bar i: then a line stands before it, with the name below. */
    bool (*starts_group)(const void *context, size_t i, struct phi_buf *name);
    double limit; /* a line across; 0 = none */
};
void page_append_plot(struct phi_buf *out, const struct page_plot *plot);

/* Writes the page to a file. */
enum phi_status page_write(const char *path, const struct phi_buf *page, struct phi_error *err);

#endif
