/* listen.h: the listening socket, made here and not by the HTTP library so that an address that
 * cannot be had is an error with its reason, before anything is loaded. */
#ifndef PHI_SERVER_HTTP_LISTEN_H
#define PHI_SERVER_HTTP_LISTEN_H

#include "phidelity.h"

/* TCP. host NULL or "" = every interface, IPv6 and IPv4 where the system has both; a name means the first of its
 * addresses that can be bound. port 0 = a free one. The socket is the caller's; *bound_port tells which. */
enum phi_status phi_listen_tcp(const char *host, int port, int *fd, int *bound_port,
                               struct phi_error *err);

/* A Unix socket; a socket file that nobody listens on any more is replaced. */
enum phi_status phi_listen_unix(const char *path, int *fd, struct phi_error *err);

#endif
