/* watch.h: who is connected, what each connection may take how long, and the thread that sees to it.
 *
 * libmicrohttpd sleeps on a suspended connection without looking at its socket, and its own timeout starts anew
 * with every byte. So one thread of ours watches the sockets of requests at work for a client that left
 * (EPOLLRDHUP), and shuts down connections that are late. The library also overlooks an end that comes
 * together with data: who has nothing more to send is late soon. The thread never closes a descriptor: that
 * is the library's, which notices the shutdown.
 *
 *   IDLE --first line--> RECEIVING --whole request--> WORKING --answer--> SENDING --all sent--> IDLE
 *   idle_timeout         request_timeout              no limit            write_timeout, anew each time
 *                                                                         the client takes something
 */
#ifndef PHI_SERVER_HTTP_WATCH_H
#define PHI_SERVER_HTTP_WATCH_H

#include "phidelity.h"

struct phi_watch;
struct phi_connection; /* of one TCP or Unix connection */

/* Called from the watching thread, or from phi_watch_cancel_all. */
typedef void (*phi_watch_left_fn)(void *exchange);

enum phi_status phi_watch_create(phi_watch_left_fn left, struct phi_watch **out,
                                 struct phi_error *err);
void phi_watch_destroy(struct phi_watch *w); /* after the last connection is gone; NULL is fine */

/* The descriptor must stay open until phi_watch_remove. `peer` is copied. NULL when out of memory. */
struct phi_connection *phi_watch_add(struct phi_watch *w, int fd, const char *peer,
                                     double timeout_s);
void phi_watch_remove(struct phi_watch *w, struct phi_connection *c);
const char *phi_connection_peer(const struct phi_connection *c);

/* The connection is shut down unless one of these is called again within timeout_s (INFINITY: never).
 * await: it is the client's turn to send, for which one that has ended its side gets a moment only. */
void phi_watch_allow(struct phi_watch *w, struct phi_connection *c, double timeout_s);
void phi_watch_await(struct phi_watch *w, struct phi_connection *c, double timeout_s);

/* From now on `left` is called, once, with the exchange when the client leaves. NULL ends that, and
 * on return no call is under way. */
void phi_watch_attend(struct phi_watch *w, struct phi_connection *c, void *exchange);

/* As if all clients with an exchange had left. */
void phi_watch_cancel_all(struct phi_watch *w);

size_t phi_watch_n_connections(struct phi_watch *w);

#endif
