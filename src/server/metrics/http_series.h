/* http_series.h: counts and durations of HTTP requests by method, route and class of status, under
 * the names and labels of the FastAPI instrumentator that vLLM uses. There is one cell for each
 * usual method and each route of routes.c, and one row and column named "none" for whatever else
 * clients make up, so that no client can add to it. Not locked: the owner does that. */
#ifndef PHI_SERVER_METRICS_HTTP_SERIES_H
#define PHI_SERVER_METRICS_HTTP_SERIES_H

#include "base/buf.h"
#include "phidelity.h"

enum { PHI_N_HTTP_METHODS = 8, PHI_N_HTTP_ROUTES = 24, PHI_N_HTTP_CLASSES = 5 };

struct phi_http_series {
    struct {
        uint64_t n[PHI_N_HTTP_CLASSES]; /* "1xx" to "5xx" */
        struct phi_histogram seconds;
    } cells[PHI_N_HTTP_METHODS][PHI_N_HTTP_ROUTES]; /* the last of each is "none" */
    struct phi_histogram seconds; /* of all, in finer steps */
};

void phi_http_series_init(struct phi_http_series *s);

/* `status` 100 to 599. Routes that vLLM leaves out (/health, /ping, /version, /load, /metrics) are
 * left out here. */
void phi_http_series_add(struct phi_http_series *s, struct phi_str method, struct phi_str route,
                         int status, double seconds);

/* The samples of one family; a series appears with its first request. With created_s, the time at
 * which all series began, the _created samples; with NAN the counts or durations themselves. */
void phi_http_series_write_counts(const struct phi_http_series *s, const char *name,
                                  double created_s, struct phi_buf *out);
void phi_http_series_write_durations(const struct phi_http_series *s, const char *name,
                                     double created_s, struct phi_buf *out);

#endif
