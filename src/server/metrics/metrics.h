/* metrics.h: everything that GET /metrics tells, under vLLM's names, labels and buckets.
 *
 * Three sources: the engine counts steps, tokens and the gaps between tokens itself and is asked at
 * the time of a scrape; requests are recorded when they end; so are HTTP exchanges. One table in
 * metrics.c has each metric's name, type, help and source, and docs/SERVING.md repeats it (a test
 * compares the two). Recording locks a mutex for a moment and allocates nothing. */
#ifndef PHI_SERVER_METRICS_METRICS_H
#define PHI_SERVER_METRICS_METRICS_H

#include "base/buf.h"

struct phi_metrics;

/* `model_name` is the first served name; copied. */
enum phi_status phi_metrics_create(const char *model_name, struct phi_metrics **out,
                                   struct phi_error *err);
void phi_metrics_destroy(struct phi_metrics *m); /* NULL is fine */

/* The engine is there, and this is what it is. Before the first request. */
void phi_metrics_open(struct phi_metrics *m, const struct phi_engine_info *info);

/* A request that has produced its last event. */
struct phi_request_record {
    enum phi_finish finish;  /* of a request with n > 1: of the answer that ended last */
    int n;                   /* answers asked for */
    int max_tokens;          /* 0 = as many as the context allows */
    size_t n_longest_tokens; /* tokens of the longest answer; needed only when n > 1 */
    struct phi_request_stats stats;
};

/* Any thread. */
void phi_metrics_request_ended(struct phi_metrics *m, const struct phi_request_record *r);

/* `route` is the route that was matched, or empty; method and route may also be what the client
 * sent: what is not one of the server's own counts as "none", so a client cannot make up series.
 * Any thread. */
void phi_metrics_http_ended(struct phi_metrics *m, struct phi_str method, struct phi_str route,
                            int status, double seconds);

/* Appends the whole text. Without `engine` (NULL: not there yet, or statistics are off) only what
 * is known of HTTP and the process. A failed allocation shows in out->failed. Any thread. */
void phi_metrics_write(struct phi_metrics *m, const struct phi_engine_stats *engine,
                       struct phi_buf *out);

#endif
