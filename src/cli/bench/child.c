/* child.c: see child.h. */
#include "cli/bench/child.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { SAMPLE_MS = 5 };

/* --------------------------------------------------------------- memory */

static uint64_t status_bytes(const char *status, const char *name)
{
    const char *line = strstr(status, name);
    return line ? strtoull(line + strlen(name), NULL, 10) * 1024 : 0;
}

/* A process that has ended has no such lines. */
static void sample(pid_t pid, struct bench_child *c)
{
    char path[64], text[4096];
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return;
    text[n] = '\0';
    uint64_t file = status_bytes(text, "\nRssFile:");
    uint64_t other = status_bytes(text, "\nRssAnon:") + status_bytes(text, "\nRssShmem:");
    c->file_bytes = file > c->file_bytes ? file : c->file_bytes;
    c->other_bytes = other > c->other_bytes ? other : c->other_bytes;
}

/* --------------------------------------------------------------- a run */

static enum phi_status spawn(char **argv, pid_t *pid, int *out_fd, struct phi_error *err)
{
    int ends[2];
    posix_spawn_file_actions_t actions;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return phi_fail(err, PHI_ERR_IO, "pipe: %s", strerror(errno));
    int reason = posix_spawn_file_actions_init(&actions);
    if (reason == 0) {
        posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
        posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
        reason = posix_spawn(pid, "/proc/self/exe", &actions, NULL, argv, environ);
        posix_spawn_file_actions_destroy(&actions);
    }
    close(ends[1]);
    if (reason == 0) {
        *out_fd = ends[0];
        return PHI_OK;
    }
    close(ends[0]);
    return phi_fail(err, PHI_ERR_IO, "this program cannot be run again: %s", strerror(reason));
}

/* Reads to the end of what it prints. */
static void follow(pid_t pid, int fd, double start_s, struct bench_child *c)
{
    char bytes[4096];
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int ready = poll(&p, 1, SAMPLE_MS);
        double now_s = phi_clock_s();
        sample(pid, c);
        if (ready < 0 && errno != EINTR)
            return;
        if (ready <= 0)
            continue;
        ssize_t n = read(fd, bytes, sizeof bytes);
        if (n <= 0)
            return;
        if (c->first_byte_s == 0)
            c->first_byte_s = now_s - start_s;
    }
}

enum phi_status bench_child_run(char **argv, struct bench_child *out, struct phi_error *err)
{
    pid_t pid;
    int fd = -1, status;
    struct rusage usage;
    *out = (struct bench_child){0};
    double start_s = phi_clock_s();
    PHI_TRY(spawn(argv, &pid, &fd, err));
    follow(pid, fd, start_s, out);
    close(fd);
    while (wait4(pid, &status, 0, &usage) < 0)
        if (errno != EINTR)
            return phi_fail(err, PHI_ERR_IO, "waiting for the process: %s", strerror(errno));
    out->peak_bytes = (uint64_t)usage.ru_maxrss * 1024;
    if (WIFSIGNALED(status))
        return phi_fail(err, PHI_ERR_IO, "the process ended by signal %d", WTERMSIG(status));
    if (WEXITSTATUS(status) != 0)
        return phi_fail(err, PHI_ERR_IO, "the process ended with code %d", WEXITSTATUS(status));
    return out->first_byte_s > 0 ? PHI_OK : phi_fail(err, PHI_ERR_IO, "the process said nothing");
}

/* --------------------------------------------------------------- the page cache */

/* Pages of a file that are in memory. */
static uint64_t resident_pages(int fd, size_t n_bytes, size_t page)
{
    size_t n_pages = (n_bytes + page - 1) / page;
    unsigned char *there = phi_alloc(n_pages, 1);
    void *p = mmap(NULL, n_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    uint64_t n = 0;
    if (there && p != MAP_FAILED && mincore(p, n_bytes, there) == 0)
        for (size_t i = 0; i < n_pages; i++)
            n += there[i] & 1;
    else
        n = n_pages; /* not known: as bad as all */
    if (p != MAP_FAILED)
        munmap(p, n_bytes);
    phi_free(there);
    return n;
}

struct eviction {
    uint64_t n_pages, n_resident;
};

static void evict_file(const char *path, struct eviction *e)
{
    struct stat s;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &s) == 0 && S_ISREG(s.st_mode) && s.st_size > 0) {
        fdatasync(fd); /* a page that is not yet on disk stays */
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        e->n_pages += ((size_t)s.st_size + page - 1) / page;
        e->n_resident += resident_pages(fd, (size_t)s.st_size, page);
    }
    if (fd >= 0)
        close(fd);
}

enum phi_status bench_evict(const char *folder, double *left, struct phi_error *err)
{
    struct eviction e = {0};
    struct phi_buf path = {0};
    DIR *dir = opendir(folder);
    if (!dir)
        return phi_fail(err, PHI_ERR_IO, "%s: %s", folder, strerror(errno));
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir))
        if (phi_path_join(&path, folder, entry->d_name))
            evict_file(path.data, &e);
    closedir(dir);
    phi_buf_deinit(&path);
    *left = e.n_pages ? (double)e.n_resident / (double)e.n_pages : 0;
    return PHI_OK;
}
