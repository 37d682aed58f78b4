/* http.h: HTTP itself: connections in, exchanges out. The only file pair that knows libmicrohttpd.
 *
 * The library's threads read requests and send answers; what an exchange does between the two is up to
 * the callbacks and the job they leave behind (exchange.h). */
#ifndef PHI_SERVER_HTTP_HTTP_H
#define PHI_SERVER_HTTP_HTTP_H

#include "server/exchange.h"
#include "server/server.h"

struct phi_http;

/* Called on HTTP threads. */
struct phi_http_callbacks {
    /* The header is there: is the body worth keeping? If not it is read and dropped. */
    bool (*wants_body)(const struct phi_exchange *x);
    /* The whole request is there: answer, or leave a job. */
    void (*handle)(struct phi_exchange *x);
    /* The answer is being begun: the place for header lines that every answer gets. */
    void (*before_answer)(struct phi_exchange *x);
    /* The answer is complete, and its last bytes go to the client after this call: who has an answer
     * finds it counted. Once for each answer that was begun; for one that is broken off, at its end. */
    void (*answered)(struct phi_exchange *x, int http_status, double seconds);
    /* The exchange is over. http_status 0: the client left before it had an answer; else `whole`
     * tells whether it took all of it. */
    void (*ended)(struct phi_exchange *x, int http_status, bool whole);
};

/* Takes over listen_fd. `o` must outlive it. */
enum phi_status phi_http_start(const struct phi_server_options *o, struct phi_server *server,
                               const struct phi_http_callbacks *callbacks, int listen_fd,
                               struct phi_http **out, struct phi_error *err);

/* Exchanges whose request has arrived and whose answer is not all sent. */
size_t phi_http_n_active(const struct phi_http *h);

/* Closes the listening socket. Connections stay, and are told to close after their next answer. */
void phi_http_quiesce(struct phi_http *h);

/* Cancels the jobs of all exchanges. */
void phi_http_cancel_all(struct phi_http *h);

/* When no job is left; closes all connections. */
void phi_http_stop(struct phi_http *h);

#endif
