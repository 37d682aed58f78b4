/* routes.h: which path does what: one table behind dispatch, /openapi.json and docs/SERVING.md. */
#ifndef PHI_SERVER_API_ROUTES_H
#define PHI_SERVER_API_ROUTES_H

#include "server/exchange.h"

enum phi_route_flags {
    PHI_ROUTE_ALWAYS = 1,    /* works before the model is there, and while the server drains */
    PHI_ROUTE_UNTIL_END = 2, /* works while the server drains */
    PHI_ROUTE_PREFIX = 4     /* the path goes on after its last '/' */
};

struct phi_field_set;

struct phi_route {
    const char *method; /* "GET"; HEAD is served as GET */
    const char *path;
    void (*handle)(struct phi_exchange *x);
    unsigned flags;
    const char *summary;
    const struct phi_field_set *body;       /* NULL: none */
    const struct phi_field_set *other_body; /* or this one */
};

extern const struct phi_route phi_routes[]; /* ends with a row without a path */

/* The route's path in the table, or empty where there is none: a name that clients cannot invent.
 */
struct phi_str phi_route_name(struct phi_str path);

/* A complete request: answers it, or leaves a job. */
void phi_route(struct phi_exchange *x);

#endif
