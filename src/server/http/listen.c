/* listen.c: see listen.h. */
#include "server/http/listen.h"
#include "base/status.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 4096 }; /* the system cuts it to net.core.somaxconn */

/* A listening socket, or -1 with errno. */
static int listen_at(const struct sockaddr *address, socklen_t n, bool dual_stack)
{
    int on = 1, off = 0;
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (address->sa_family != AF_UNIX)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address->sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, dual_stack ? &off : &on, sizeof on);
    if (bind(fd, address, n) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

static int listen_everywhere(int port)
{
    struct sockaddr_in6 six = {
        .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = in6addr_any};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = listen_at((struct sockaddr *)&six, sizeof six, true);
    if (fd < 0 && errno != EADDRINUSE && errno != EACCES) /* a system without IPv6 */
        fd = listen_at((struct sockaddr *)&four, sizeof four, false);
    return fd;
}

static int listen_at_name(const char *host, int port, const char **why)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found;
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    int failed = getaddrinfo(host, service, &hints, &found);
    if (failed) {
        *why = gai_strerror(failed);
        return -1;
    }
    int fd = -1;
    for (const struct addrinfo *a = found; a && fd < 0; a = a->ai_next)
        fd = listen_at(a->ai_addr, a->ai_addrlen, false);
    *why = strerror(errno);
    freeaddrinfo(found);
    return fd;
}

static int port_of(int fd)
{
    struct sockaddr_storage address;
    socklen_t n = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &n) != 0)
        return 0;
    if (address.ss_family == AF_INET6)
        return ntohs(((struct sockaddr_in6 *)&address)->sin6_port);
    return ntohs(((struct sockaddr_in *)&address)->sin_port);
}

enum phi_status phi_listen_tcp(const char *host, int port, int *fd, int *bound_port,
                               struct phi_error *err)
{
    const char *why = NULL;
    bool everywhere = !host || !host[0];
    if (port < 0 || port > 65535)
        return phi_fail(err, PHI_ERR_INVALID, "port %d is not between 0 and 65535", port);
    *fd = everywhere ? listen_everywhere(port) : listen_at_name(host, port, &why);
    if (*fd < 0)
        return phi_fail(err, PHI_ERR_IO, "cannot listen on %s port %d: %s",
                        everywhere ? "any address," : host, port, why ? why : strerror(errno));
    *bound_port = port_of(*fd);
    return PHI_OK;
}

/* Whether the path is a socket that refuses connections: what an earlier server left behind. */
static bool is_stale(const struct sockaddr_un *address)
{
    struct stat s;
    if (lstat(address->sun_path, &s) != 0 || !S_ISSOCK(s.st_mode))
        return false;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool stale = fd >= 0 &&
                 connect(fd, (const struct sockaddr *)address, sizeof *address) != 0 &&
                 errno == ECONNREFUSED;
    if (fd >= 0)
        close(fd);
    return stale;
}

enum phi_status phi_listen_unix(const char *path, int *fd, struct phi_error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof address.sun_path)
        return phi_fail(err, PHI_ERR_INVALID,
                        "a Unix socket's path has 1 to %zu bytes, this one %zu: %s",
                        sizeof address.sun_path - 1, n, path);
    memcpy(address.sun_path, path, n);
    if (is_stale(&address))
        unlink(path);
    *fd = listen_at((struct sockaddr *)&address, sizeof address, false);
    if (*fd < 0)
        return phi_fail(err, PHI_ERR_IO, "cannot listen on %s: %s", path, strerror(errno));
    return PHI_OK;
}
