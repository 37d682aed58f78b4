/* watch.c: see watch.h. */
#include "server/http/watch.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/status.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SCAN_MS = 250, N_EVENTS = 64 };

/* For the library to find the rest of what a client sent before it ended its side. */
static const double after_end_s = 0.5;

struct phi_connection {
    struct phi_connection *next, *previous; /* `next` alone among the removed */
    int fd;
    double deadline_s;
    void *exchange;
    bool ended;   /* the client sends nothing more */
    bool awaited; /* it is its turn to send */
    bool removed;
    char peer[64];
};

struct phi_watch {
    phi_watch_left_fn left;
    int epoll_fd, stop_fd;
    pthread_t thread;

    pthread_mutex_t lock;
    struct phi_connection *connections;
    size_t n_connections;
    struct phi_connection *removed; /* an event of the present batch may still point to them */
};

/* ---------------------------------------------------------------- the thread */

static void tell_left(struct phi_watch *w, struct phi_connection *c)
{
    void *exchange = c->exchange;
    c->exchange = NULL;
    if (exchange)
        w->left(exchange);
}

static void shorten_for_ended(struct phi_connection *c)
{
    if (c->ended && c->awaited)
        c->deadline_s = fmin(c->deadline_s, phi_clock_s() + after_end_s);
}

static void notice_end(struct phi_watch *w, struct phi_connection *c)
{
    c->ended = true;
    shorten_for_ended(c);
    tell_left(w, c);
}

static void shut_late_ones(struct phi_watch *w, double now_s)
{
    for (struct phi_connection *c = w->connections; c; c = c->next)
        if (now_s > c->deadline_s) {
            c->deadline_s = INFINITY;
            shutdown(c->fd, SHUT_RDWR);
        }
}

/* A removed connection's descriptor left the epoll set before: no later batch can name it. */
static void free_removed(struct phi_watch *w)
{
    while (w->removed) {
        struct phi_connection *c = w->removed;
        w->removed = c->next;
        phi_free(c);
    }
}

static void *watch_main(void *arg)
{
    struct phi_watch *w = arg;
    struct epoll_event events[N_EVENTS];
    double scanned_s = phi_clock_s();
    for (;;) {
        int n = epoll_wait(w->epoll_fd, events, N_EVENTS, SCAN_MS);
        double now_s = phi_clock_s();
        bool stop = false;
        pthread_mutex_lock(&w->lock);
        for (int i = 0; i < n; i++) {
            struct phi_connection *c = events[i].data.ptr;
            if (!c)
                stop = true;
            else if (!c->removed)
                notice_end(w, c);
        }
        if (now_s - scanned_s >= SCAN_MS / 1000.0) {
            shut_late_ones(w, now_s);
            scanned_s = now_s;
        }
        free_removed(w);
        pthread_mutex_unlock(&w->lock);
        if (stop)
            return NULL;
    }
}

/* ---------------------------------------------------------------- creating and destroying */

static enum phi_status start(struct phi_watch *w, struct phi_error *err)
{
    struct epoll_event event = {.events = EPOLLIN};
    sigset_t all, old;
    if (w->epoll_fd < 0 || w->stop_fd < 0 ||
        epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, w->stop_fd, &event) != 0)
        return phi_fail(err, PHI_ERR_IO, "cannot watch connections: no descriptors are left");
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int failed = pthread_create(&w->thread, NULL, watch_main, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (failed)
        return phi_fail(err, PHI_ERR_MEMORY, "cannot start the thread that watches connections");
    return PHI_OK;
}

static void watch_free(struct phi_watch *w)
{
    free_removed(w);
    if (w->epoll_fd >= 0)
        close(w->epoll_fd);
    if (w->stop_fd >= 0)
        close(w->stop_fd);
    pthread_mutex_destroy(&w->lock);
    phi_free(w);
}

enum phi_status phi_watch_create(phi_watch_left_fn left, struct phi_watch **out,
                                 struct phi_error *err)
{
    *out = NULL;
    struct phi_watch *w = phi_calloc(1, sizeof *w);
    if (!w)
        return phi_fail_memory(err, "the table of connections", sizeof *w);
    w->left = left;
    w->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    w->stop_fd = eventfd(0, EFD_CLOEXEC);
    pthread_mutex_init(&w->lock, NULL);
    enum phi_status status = start(w, err);
    if (status != PHI_OK) {
        watch_free(w);
        return status;
    }
    *out = w;
    return PHI_OK;
}

void phi_watch_destroy(struct phi_watch *w)
{
    if (!w)
        return;
    eventfd_write(w->stop_fd, 1);
    pthread_join(w->thread, NULL);
    watch_free(w);
}

/* ---------------------------------------------------------------- connections */

/* One shot: a socket whose client ended its side would be reported again and again. When it cannot be
 * watched, the end is seen when the answer is sent. */
static void watch_for_end(struct phi_watch *w, struct phi_connection *c, int how)
{
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.ptr = c};
    epoll_ctl(w->epoll_fd, how, c->fd, &event);
}

struct phi_connection *phi_watch_add(struct phi_watch *w, int fd, const char *peer,
                                     double timeout_s)
{
    struct phi_connection *c = phi_calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->fd = fd;
    c->deadline_s = phi_clock_s() + timeout_s;
    c->awaited = true;
    snprintf(c->peer, sizeof c->peer, "%s", peer);
    pthread_mutex_lock(&w->lock);
    c->next = w->connections;
    if (c->next)
        c->next->previous = c;
    w->connections = c;
    w->n_connections++;
    watch_for_end(w, c, EPOLL_CTL_ADD);
    pthread_mutex_unlock(&w->lock);
    return c;
}

void phi_watch_remove(struct phi_watch *w, struct phi_connection *c)
{
    pthread_mutex_lock(&w->lock);
    *(c->previous ? &c->previous->next : &w->connections) = c->next;
    if (c->next)
        c->next->previous = c->previous;
    w->n_connections--;
    epoll_ctl(w->epoll_fd, EPOLL_CTL_DEL, c->fd, NULL);
    c->removed = true;
    c->next = w->removed;
    w->removed = c;
    pthread_mutex_unlock(&w->lock);
}

const char *phi_connection_peer(const struct phi_connection *c)
{
    return c->peer;
}

static void set_deadline(struct phi_watch *w, struct phi_connection *c, double timeout_s,
                         bool awaited)
{
    pthread_mutex_lock(&w->lock);
    c->deadline_s = phi_clock_s() + timeout_s;
    c->awaited = awaited;
    shorten_for_ended(c);
    pthread_mutex_unlock(&w->lock);
}

void phi_watch_allow(struct phi_watch *w, struct phi_connection *c, double timeout_s)
{
    set_deadline(w, c, timeout_s, false);
}

void phi_watch_await(struct phi_watch *w, struct phi_connection *c, double timeout_s)
{
    set_deadline(w, c, timeout_s, true);
}

void phi_watch_attend(struct phi_watch *w, struct phi_connection *c, void *exchange)
{
    pthread_mutex_lock(&w->lock);
    c->exchange = exchange;
    if (exchange)
        watch_for_end(w, c, EPOLL_CTL_MOD); /* once more: it may have ended before */
    pthread_mutex_unlock(&w->lock);
}

void phi_watch_cancel_all(struct phi_watch *w)
{
    pthread_mutex_lock(&w->lock);
    for (struct phi_connection *c = w->connections; c; c = c->next)
        tell_left(w, c);
    pthread_mutex_unlock(&w->lock);
}

size_t phi_watch_n_connections(struct phi_watch *w)
{
    pthread_mutex_lock(&w->lock);
    size_t n = w->n_connections;
    pthread_mutex_unlock(&w->lock);
    return n;
}
