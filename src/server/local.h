/* local.h: the API without a socket: requests of a program in the same process, answered by the
 * same handlers as over HTTP. Many can be in work at once; one thread asks and takes the answers,
 * whose order is that of their ends. */
#ifndef PHI_SERVER_LOCAL_H
#define PHI_SERVER_LOCAL_H

#include "base/buf.h"
#include "server/server.h"

struct phi_local;

/* Everything is the caller's and must outlive it. Of the options those are used that say what
 * requests may ask for, the names, and what is logged. */
enum phi_status phi_local_open(const struct phi_server_options *o, struct phi_model *m,
                               struct phi_engine *e, const struct phi_sampling *sampling,
                               struct phi_local **out, struct phi_error *err);
void phi_local_close(struct phi_local *l); /* cancels what still runs; NULL is fine */

/* Begins "POST path" with a copy of the body. `tag` comes back with the answer. */
enum phi_status phi_local_post(struct phi_local *l, const char *path, struct phi_str body,
                               void *tag, struct phi_error *err);

struct phi_local_answer {
    void *tag;
    int status;          /* of HTTP */
    struct phi_buf body; /* the caller's; `failed`: there was no memory for it */
};

/* Waits at most timeout_ms for the next answer. False on timeout, and at once when nothing is in
 * work. */
bool phi_local_next(struct phi_local *l, struct phi_local_answer *out, int timeout_ms);

#endif
