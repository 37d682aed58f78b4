/* huge_files.c: see huge_files.h. */
#include "base/huge_files.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/huge_pages.h"
#include "base/log.h"
#include "base/size.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

enum {
    PIECE = 2 * PHI_HUGE_PAGE, /* small enough that nobody waits for it long */
    ATTEMPTS = 4,              /* at a piece that another thread touched in between */
    MAX_FAILURES = 3,          /* pieces in a row that stay small */
    TIMED_PIECES = 8,          /* of which the fastest tells what the disk can do */
    LEAST_MB_S = 300,
    LEAST_FREE_PART = 16, /* of the memory must be available: one in so many bytes */
    NICENESS = 10,
    REST_TIMES = 4, /* what an exchange took: readers wait for it a fifth of the time at most */
    MAX_REST_MS = 50,
    MAX_WAIT_MS = 10000, /* between looks at a file that is read, or is not yet */
    MINCORE_PAGES = PIECE / 4096
};

/* ---------------------------------------------------------------- calls */

static atomic_uint refused;

void phi_huge_refuse(unsigned calls)
{
    atomic_store(&refused, calls);
}

static bool may(enum phi_huge_call call)
{
    return (atomic_load_explicit(&refused, memory_order_relaxed) & call) == 0;
}

/* linux/fs.h of kernels since 6.7; older headers do not have it. */
struct scan_region {
    uint64_t start, end, categories;
};
struct scan_arguments {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
    uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
#define SCAN_PAGES _IOWR('f', 16, struct scan_arguments)
enum { SCAN_IS_HUGE = 1 << 6, ADVICE_POPULATE_READ = 22, ADVICE_COLLAPSE = 25 };

/* Bytes of the range, a piece at most, that are mapped by huge pages; < 0 when the kernel does not
 * say. */
static int scan_huge(int pagemap, const unsigned char *p, size_t n_bytes)
{
    struct scan_region regions[PIECE / PHI_HUGE_PAGE];
    struct scan_arguments a = {
        .size = sizeof a,
        .start = (uintptr_t)p,
        .end = (uintptr_t)p + n_bytes,
        .vec = (uintptr_t)regions,
        .vec_len = PIECE / PHI_HUGE_PAGE,
        .category_mask = SCAN_IS_HUGE,
        .return_mask = SCAN_IS_HUGE,
    };
    uint64_t found = 0;
    int n = may(PHI_HUGE_SCAN) ? ioctl(pagemap, SCAN_PAGES, &a) : -1;
    for (int i = 0; i < n; i++)
        found += regions[i].end - regions[i].start;
    return n < 0 ? n : (int)found;
}

/* False also when it cannot be known. */
static bool is_absent(const unsigned char *p, size_t n_bytes)
{
    unsigned char pages[MINCORE_PAGES];
    const size_t n = phi_size_ceil_div(n_bytes, (size_t)sysconf(_SC_PAGESIZE));
    if (!may(PHI_HUGE_RESIDENT) || n > MINCORE_PAGES ||
        mincore((void *)(uintptr_t)p, n_bytes, pages) != 0)
        return false;
    for (size_t i = 0; i < n; i++)
        if (pages[i] & 1)
            return false;
    return true;
}

static bool advise(enum phi_huge_call call, const unsigned char *p, size_t n_bytes, int advice)
{
    return may(call) && madvise((void *)(uintptr_t)p, n_bytes, advice) == 0;
}

/* Local disks whose file systems have large folios, in newer kernels. */
static bool can_have_huge(int fd)
{
    static const unsigned long magics[] = {0xEF53 /* ext4 */, 0x58465342 /* xfs */,
                                           0x9123683E /* btrfs */};
    struct statfs s;
    if (!may(PHI_HUGE_FILE_SYSTEM) || fstatfs(fd, &s) != 0)
        return false;
    for (size_t i = 0; i < sizeof magics / sizeof magics[0]; i++)
        if ((unsigned long)s.f_type == magics[i])
            return true;
    return false;
}

static bool memory_is_short(void)
{
    uint64_t all = phi_file_number("/proc/meminfo", "MemTotal:");
    uint64_t available = phi_file_number("/proc/meminfo", "MemAvailable:");
    return available < all / LEAST_FREE_PART;
}

/* ---------------------------------------------------------------- pieces */

struct work {
    const struct phi_huge_files *f;
    int pagemap;
    bool exchanging; /* small pages for huge ones; else only reading */
    const char *why; /* it ended; NULL = done */
    int n_failures;  /* in a row */
    int n_timed;
    double fastest_s; /* of exchanged pieces */
    double tired_s;   /* spent on them since the last rest */
    uint64_t huge_bytes, done_bytes, total_bytes;
};

static void end_exchange(struct work *w, const char *why)
{
    w->exchanging = false;
    w->why = why;
}

/* In place where the kernel can; else out of the page cache, to be read again. */
static bool drop_small(struct work *w, const struct phi_map *m, size_t at, size_t n)
{
    if (advise(PHI_HUGE_COLLAPSE, m->data + at, n, ADVICE_COLLAPSE))
        return true;
    if (!can_have_huge(m->fd))
        end_exchange(w, "another file system");
    else if (!advise(PHI_HUGE_UNMAP, m->data + at, n, MADV_DONTNEED) || !may(PHI_HUGE_DROP) ||
             posix_fadvise(m->fd, (off_t)at, (off_t)n, POSIX_FADV_DONTNEED) != 0)
        end_exchange(w, "refused");
    return w->exchanging;
}

/* Threads that compute slow this one down: the fastest piece is nearest to the disk's own speed. */
static void judge_speed(struct work *w, double seconds, size_t n)
{
    const double least_s = (double)n / (LEAST_MB_S * 1e6);
    w->tired_s += seconds;
    if (w->n_timed++ == 0 || seconds < w->fastest_s)
        w->fastest_s = seconds;
    if (w->n_timed == TIMED_PIECES && w->fastest_s > least_s)
        end_exchange(w, "a slow disk");
}

/* Returns how many of the n bytes are on huge pages. */
static size_t exchange(struct work *w, const struct phi_map *m, size_t at, size_t n)
{
    for (int attempt = 0;; attempt++) {
        double start = phi_clock_s();
        if (attempt > 0 && !drop_small(w, m, at, n))
            return 0;
        if (!advise(PHI_HUGE_POPULATE, m->data + at, n, ADVICE_POPULATE_READ)) {
            end_exchange(w, "refused");
            return 0;
        }
        if (attempt > 0)
            judge_speed(w, phi_clock_s() - start, n);
        int huge = scan_huge(w->pagemap, m->data + at, n);
        if (huge < 0) {
            end_exchange(w, "the kernel does not tell which are small");
            return 0;
        }
        if ((size_t)huge == n || attempt == ATTEMPTS || !w->exchanging)
            return (size_t)huge;
    }
}

static void do_piece(struct work *w, const struct phi_map *m, size_t at, size_t n)
{
    if (!w->exchanging) {
        advise(PHI_HUGE_POPULATE, m->data + at, n, ADVICE_POPULATE_READ);
        int huge = scan_huge(w->pagemap, m->data + at, n);
        w->huge_bytes += huge > 0 ? (uint64_t)huge : 0;
        return;
    }
    if (!w->f->read_all && is_absent(m->data + at, n))
        return;
    if (memory_is_short()) {
        end_exchange(w, "little memory");
        return;
    }
    size_t huge = exchange(w, m, at, n);
    w->huge_bytes += huge;
    w->n_failures = huge == n ? 0 : w->n_failures + 1;
    if (w->n_failures == MAX_FAILURES)
        end_exchange(w, "pages stay small");
}

static size_t whole_pages(const struct phi_map *m)
{
    return m->n_bytes - m->n_bytes % PHI_HUGE_PAGE;
}

static void rest(struct work *w)
{
    const double wanted_s = REST_TIMES * w->tired_s, most_s = MAX_REST_MS / 1e3;
    const double s = wanted_s < most_s ? wanted_s : most_s;
    if (s > 0)
        nanosleep(&(struct timespec){0, (long)(s * 1e9)}, NULL);
    w->tired_s = 0;
}

static bool goes_on(const struct work *w)
{
    return (w->exchanging || w->f->read_all) && !(w->f->stop && atomic_load(w->f->stop));
}

static void do_file(struct work *w, const struct phi_map *m)
{
    const size_t end = whole_pages(m);
    for (size_t at = 0; at < end && goes_on(w); at += PIECE) {
        size_t n = phi_size_min(PIECE, end - at);
        do_piece(w, m, at, n);
        w->done_bytes += n;
        if (w->f->progress)
            w->f->progress(w->f->context, w->done_bytes, w->total_bytes);
        if (w->f->rests)
            rest(w);
    }
}

uint64_t phi_huge_files_total(const struct phi_map *maps, size_t n_maps)
{
    uint64_t total = 0;
    for (size_t i = 0; i < n_maps; i++)
        total += whole_pages(&maps[i]);
    return total;
}

uint64_t phi_huge_files_make(const struct phi_huge_files *f)
{
    struct work w = {
        .f = f,
        .pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC),
        .exchanging = true,
        .total_bytes = phi_huge_files_total(f->maps, f->n_maps),
    };
    for (size_t i = 0; i < f->n_maps; i++)
        do_file(&w, &f->maps[i]);
    if (w.pagemap >= 0)
        close(w.pagemap);
    if (w.why)
        phi_log(PHI_LOG_DEBUG, "small pages of weights stay as they are: %s", w.why);
    return w.huge_bytes;
}

/* ---------------------------------------------------------------- the thread */

struct phi_huge_thread {
    struct phi_huge_files files;
    atomic_bool stop;
    int delay_ms;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
};

/* False when it is stopped meanwhile. */
static bool wait_some(struct phi_huge_thread *t, int wait_ms)
{
    const double end_s = phi_clock_s() + wait_ms / 1e3;
    const time_t whole_s = (time_t)end_s;
    const struct timespec end = {whole_s, (long)((end_s - (double)whole_s) * 1e9)};
    pthread_mutex_lock(&t->lock);
    while (!atomic_load(&t->stop) && phi_clock_s() < end_s)
        pthread_cond_timedwait(&t->wake, &t->lock, &end);
    pthread_mutex_unlock(&t->lock);
    return !atomic_load(&t->stop);
}

static uint64_t absent_bytes(const struct phi_huge_files *f)
{
    uint64_t absent = 0;
    for (size_t i = 0; i < f->n_maps; i++) {
        const struct phi_map *m = &f->maps[i];
        for (size_t at = 0; at < whole_pages(m); at += PIECE) {
            size_t n = phi_size_min(PIECE, whole_pages(m) - at);
            absent += is_absent(m->data + at, n) ? n : 0;
        }
    }
    return absent;
}

/* Until nobody reads the files from the disk any more, and has most of them: whoever does wants the
 * disk for himself. False when it is stopped before. */
static bool wait_for_start(struct phi_huge_thread *t)
{
    uint64_t before, absent = UINT64_MAX;
    int wait_ms = t->delay_ms;
    do {
        if (!wait_some(t, wait_ms))
            return false;
        if (absent != UINT64_MAX)
            wait_ms = 2 * wait_ms < MAX_WAIT_MS ? 2 * wait_ms : MAX_WAIT_MS;
        before = absent;
        absent = absent_bytes(&t->files);
    } while (absent != before || absent > phi_huge_files_total(t->files.maps, t->files.n_maps) / 2);
    return true;
}

static void *thread_main(void *arg)
{
    struct phi_huge_thread *t = arg;
    const double gib = 1024.0 * 1024.0 * 1024.0;
    if (!wait_for_start(t))
        return NULL;
    setpriority(PRIO_PROCESS, 0, NICENESS); /* of this thread alone, on Linux */
    uint64_t huge = phi_huge_files_make(&t->files);
    uint64_t total = phi_huge_files_total(t->files.maps, t->files.n_maps);
    if (!atomic_load(&t->stop))
        phi_log(PHI_LOG_INFO, "weights are on huge pages: %.1f of %.1f GiB", (double)huge / gib,
                (double)total / gib);
    return NULL;
}

struct phi_huge_thread *phi_huge_thread_start(const struct phi_map *maps, size_t n_maps,
                                              int delay_ms)
{
    sigset_t all, old;
    pthread_condattr_t attributes;
    struct phi_huge_thread *t = phi_calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->files =
        (struct phi_huge_files){.maps = maps, .n_maps = n_maps, .rests = true, .stop = &t->stop};
    t->delay_ms = delay_ms;
    pthread_mutex_init(&t->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&t->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    sigfillset(&all); /* signals are for threads that know what to do with them */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int failed = pthread_create(&t->thread, NULL, thread_main, t);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!failed)
        return t;
    phi_free(t);
    return NULL;
}

void phi_huge_thread_stop(struct phi_huge_thread *t)
{
    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    atomic_store(&t->stop, true);
    pthread_cond_signal(&t->wake);
    pthread_mutex_unlock(&t->lock);
    pthread_join(t->thread, NULL);
    pthread_cond_destroy(&t->wake);
    pthread_mutex_destroy(&t->lock);
    phi_free(t);
}
