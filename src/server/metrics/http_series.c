/* http_series.c: see http_series.h. */
#include "server/metrics/http_series.h"
#include "server/metrics/exposition.h"
#include "server/metrics/histogram.h"
#include "server/api/routes.h"

#include <math.h>
#include <stdio.h>

static const char *const methods[PHI_N_HTTP_METHODS] = {
    "GET", "POST", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE", "none",
};

static const char *const routes_left_out[] = {
    "/metrics", "/health", "/load", "/ping", "/version",
};

static const char *const classes[PHI_N_HTTP_CLASSES] = {"1xx", "2xx", "3xx", "4xx", "5xx"};

static const double bounds[] = {0.1, 0.5, 1};
static const double fine_bounds[] = {
    0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1,  1.5, 2,
    2.5,  3,     3.5,  4,     4.5, 5,    7.5, 10,   30, 60,
};

void phi_http_series_init(struct phi_http_series *s)
{
    *s = (struct phi_http_series){.seconds = PHI_HISTOGRAM(fine_bounds)};
    for (int m = 0; m < PHI_N_HTTP_METHODS; m++)
        for (int r = 0; r < PHI_N_HTTP_ROUTES; r++)
            s->cells[m][r].seconds = PHI_HISTOGRAM(bounds);
}

static int method_index(struct phi_str method)
{
    int i = 0;
    while (i < PHI_N_HTTP_METHODS - 1 && !phi_str_eq_c(method, methods[i]))
        i++;
    return i;
}

/* Index of the first row of phi_routes with this path. */
static int route_index(struct phi_str path)
{
    for (int i = 0; i < PHI_N_HTTP_ROUTES - 1 && phi_routes[i].path; i++)
        if (phi_str_eq_c(path, phi_routes[i].path))
            return i;
    return PHI_N_HTTP_ROUTES - 1;
}

static const char *route_name(int index)
{
    return index < PHI_N_HTTP_ROUTES - 1 ? phi_routes[index].path : "none";
}

void phi_http_series_add(struct phi_http_series *s, struct phi_str method, struct phi_str route,
                         int status, double seconds)
{
    if (status < 100 || status > 599)
        return;
    for (size_t i = 0; i < sizeof routes_left_out / sizeof *routes_left_out; i++)
        if (phi_str_eq_c(route, routes_left_out[i]))
            return;
    int m = method_index(method);
    int r = route_index(route);
    s->cells[m][r].n[status / 100 - 1]++;
    phi_histogram_add(&s->cells[m][r].seconds, seconds);
    phi_histogram_add(&s->seconds, seconds);
}

void phi_http_series_write_counts(const struct phi_http_series *s, const char *name,
                                  double created_s, struct phi_buf *out)
{
    bool created = !isnan(created_s);
    for (int m = 0; m < PHI_N_HTTP_METHODS; m++)
        for (int r = 0; r < PHI_N_HTTP_ROUTES; r++)
            for (int c = 0; c < PHI_N_HTTP_CLASSES; c++) {
                uint64_t n = s->cells[m][r].n[c];
                if (n == 0)
                    continue;
                char labels[128];
                snprintf(labels, sizeof labels, "handler=\"%s\",method=\"%s\",status=\"%s\"",
                         route_name(r), methods[m], classes[c]);
                phi_expo_sample(out, name, created ? "_created" : "_total", phi_str_from(labels),
                                PHI_STR(""), created ? created_s : (double)n);
            }
}

void phi_http_series_write_durations(const struct phi_http_series *s, const char *name,
                                     double created_s, struct phi_buf *out)
{
    for (int m = 0; m < PHI_N_HTTP_METHODS; m++)
        for (int r = 0; r < PHI_N_HTTP_ROUTES; r++) {
            const struct phi_histogram *h = &s->cells[m][r].seconds;
            uint64_t n = 0;
            for (size_t i = 0; i <= h->n; i++)
                n += h->counts[i];
            if (n == 0)
                continue;
            char labels[128];
            snprintf(labels, sizeof labels, "handler=\"%s\",method=\"%s\"", route_name(r),
                     methods[m]);
            if (isnan(created_s))
                phi_expo_histogram(out, name, phi_str_from(labels), h, h->n);
            else
                phi_expo_sample(out, name, "_created", phi_str_from(labels), PHI_STR(""),
                                created_s);
        }
}
