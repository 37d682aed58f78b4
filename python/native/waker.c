/* waker.c: see waker.h. */
#include "waker.h"
#include "base/alloc.h"
#include "base/status.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* One request, from its submission until its end has been taken. */
struct entry {
    struct phi_waker *waker;
    struct entry *next; /* in the list */
    int64_t id;
    bool each_event;
    bool listed, ended; /* under the lock */
};

struct phi_waker {
    int fd;
    pthread_mutex_t lock; /* held for a few instructions only: the engine's thread takes it */
    struct entry *first, *last;
    size_t n_live;
};

enum phi_status phi_waker_create(struct phi_waker **out, struct phi_error *err)
{
    *out = NULL;
    struct phi_waker *w = phi_calloc(1, sizeof *w);
    if (!w)
        return phi_fail_memory(err, "a waker", sizeof *w);
    w->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->fd < 0) {
        phi_free(w);
        return phi_fail(err, PHI_ERR_IO, "eventfd: %s", strerror(errno));
    }
    pthread_mutex_init(&w->lock, NULL);
    *out = w;
    return PHI_OK;
}

static struct entry *pop(struct phi_waker *w)
{
    struct entry *e = w->first;
    if (!e)
        return NULL;
    w->first = e->next;
    if (!w->first)
        w->last = NULL;
    e->listed = false;
    return e;
}

void phi_waker_destroy(struct phi_waker *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock); /* the last notification may be about to unlock it */
    for (struct entry *e; (e = pop(w));)
        phi_free(e);
    pthread_mutex_unlock(&w->lock);
    pthread_mutex_destroy(&w->lock);
    close(w->fd);
    phi_free(w);
}

int phi_waker_fd(const struct phi_waker *w)
{
    return w->fd;
}

/* The counter cannot overflow: it is written to once for each time that the list stops being empty,
 * and set back when it is taken. */
static void signal_reader(struct phi_waker *w)
{
    const uint64_t one = 1;
    ssize_t n = write(w->fd, &one, sizeof one);
    (void)n;
}

/* Under the lock. */
static void list(struct phi_waker *w, struct entry *e)
{
    if (e->listed)
        return;
    e->listed = true;
    e->next = NULL;
    if (!w->first)
        signal_reader(w);
    *(w->last ? &w->last->next : &w->first) = e;
    w->last = e;
}

/* The engine's thread. */
static void notify(void *context, bool ended)
{
    struct entry *e = context;
    struct phi_waker *w = e->waker;
    if (!ended && !e->each_event)
        return;
    pthread_mutex_lock(&w->lock);
    e->ended = ended;
    if (ended)
        w->n_live--;
    list(w, e);
    pthread_mutex_unlock(&w->lock);
}

static void add_live(struct phi_waker *w, int change)
{
    pthread_mutex_lock(&w->lock);
    w->n_live += (size_t)change;
    pthread_mutex_unlock(&w->lock);
}

enum phi_status phi_waker_submit(struct phi_waker *w, int64_t id, bool each_event,
                                 struct phi_engine *e, const int32_t *prompt_ids, size_t n_prompt,
                                 const struct phi_sampling *s, const struct phi_request_options *o,
                                 struct phi_request **out, struct phi_error *err)
{
    *out = NULL;
    struct entry *entry = phi_calloc(1, sizeof *entry);
    if (!entry)
        return phi_fail_memory(err, "a waker's request", sizeof *entry);
    entry->waker = w;
    entry->id = id;
    entry->each_event = each_event;
    struct phi_request_options options = *o;
    options.notify = notify;
    options.notify_context = entry;
    add_live(w, 1);
    enum phi_status status = phi_request_submit(e, prompt_ids, n_prompt, s, &options, out, err);
    if (status != PHI_OK) {
        add_live(w, -1);
        phi_free(entry);
    }
    return status;
}

size_t phi_waker_take(struct phi_waker *w, struct phi_news *news, size_t max_news)
{
    uint64_t count;
    size_t n = 0;
    pthread_mutex_lock(&w->lock);
    ssize_t ignored = read(w->fd, &count, sizeof count); /* fails when it is 0 already */
    (void)ignored;
    while (n < max_news && w->first) {
        struct entry *e = pop(w);
        news[n++] = (struct phi_news){.id = e->id, .ended = e->ended};
        if (e->ended)
            phi_free(e);
    }
    if (w->first)
        signal_reader(w);
    pthread_mutex_unlock(&w->lock);
    return n;
}

size_t phi_waker_n_live(struct phi_waker *w)
{
    pthread_mutex_lock(&w->lock);
    size_t n = w->n_live;
    pthread_mutex_unlock(&w->lock);
    return n;
}

/* ---------------------------------------------------------------- log */

static void print_line(void *context, int level, const char *line)
{
    static const char *const prefixes[] = {"debug: ", "", "warning: ", "error: "};
    if (level >= *(const int *)context)
        dprintf(STDERR_FILENO, "phidelity: %s%s\n", prefixes[level & 3], line);
}

void phi_python_log(int least_level)
{
    static int least;
    least = least_level;
    phi_set_log(print_line, &least);
}
