/* file.c: see file.h. */
#include "base/file.h"
#include "base/alloc.h"
#include "base/huge_pages.h"
#include "base/size.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_PIECE = 4 << 20 };

static enum phi_status read_fd(int fd, const char *path, size_t max_bytes, struct phi_buf *out,
                               struct phi_error *err)
{
    for (;;) {
        if (!phi_buf_reserve(out, 65536))
            return phi_fail_memory(err, path, out->n + 65536);
        ssize_t n = read(fd, out->data + out->n, out->capacity - out->n - 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return phi_fail(err, PHI_ERR_IO, "%s: cannot read: %s", path, strerror(errno));
        if (n == 0)
            break;
        out->n += (size_t)n;
        if (out->n > max_bytes)
            return phi_fail(err, PHI_ERR_TOO_LONG, "%s: larger than the limit of %zu bytes", path,
                            max_bytes);
    }
    out->data[out->n] = '\0';
    return PHI_OK;
}

static enum phi_status open_for_reading(const char *path, int flags, int *fd, struct stat *st,
                                        struct phi_error *err)
{
    *fd = open(path, O_RDONLY | O_CLOEXEC | flags);
    if (*fd < 0)
        return phi_fail(err, PHI_ERR_IO, "%s: cannot open: %s", path, strerror(errno));
    if (fstat(*fd, st) == 0)
        return PHI_OK;
    close(*fd);
    return phi_fail(err, PHI_ERR_IO, "%s: cannot examine: %s", path, strerror(errno));
}

enum phi_status phi_file_read(const char *path, size_t max_bytes, struct phi_buf *out,
                              struct phi_error *err)
{
    if (strcmp(path, "-") == 0)
        return read_fd(STDIN_FILENO, "standard input", max_bytes, out, err);
    int fd;
    struct stat st;
    PHI_TRY(open_for_reading(path, 0, &fd, &st, err));
    enum phi_status status = S_ISDIR(st.st_mode)
                                 ? phi_fail(err, PHI_ERR_IO, "%s: is a folder, not a file", path)
                                 : read_fd(fd, path, max_bytes, out, err);
    close(fd);
    return status;
}

enum phi_status phi_file_write(const char *path, struct phi_str text, struct phi_error *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return phi_fail(err, PHI_ERR_IO, "%s: cannot create: %s", path, strerror(errno));
    bool ok = true;
    while (text.n > 0 && ok) {
        ssize_t n = write(fd, text.data, text.n);
        ok = n > 0 || (n < 0 && errno == EINTR);
        if (n > 0)
            text = (struct phi_str){text.data + n, text.n - (size_t)n};
    }
    int reason = errno;
    if (close(fd) != 0 && ok) { /* network file systems report a full disk only here */
        reason = errno;
        ok = false;
    }
    if (ok)
        return PHI_OK;
    return phi_fail(err, PHI_ERR_IO, "%s: cannot write: %s", path, strerror(reason));
}

static enum phi_status map_fd(int fd, const char *path, const struct stat *st, struct phi_map *out,
                              struct phi_error *err)
{
    if (!S_ISREG(st->st_mode))
        return phi_fail(err, PHI_ERR_IO, "%s: is not a regular file", path);
    if ((uintmax_t)st->st_size > SIZE_MAX)
        return phi_fail(err, PHI_ERR_TOO_LONG, "%s: does not fit the address space", path);
    if (st->st_size == 0)
        return PHI_OK;
    void *p = phi_huge_map((size_t)st->st_size, PROT_READ, MAP_PRIVATE, fd);
    if (!p)
        return phi_fail(err, PHI_ERR_IO, "%s: cannot map %lld bytes: %s", path,
                        (long long)st->st_size, strerror(errno));
    *out = (struct phi_map){p, (size_t)st->st_size, fd};
    return PHI_OK;
}

enum phi_status phi_map_open(const char *path, struct phi_map *out, struct phi_error *err)
{
    int fd;
    struct stat st;
    *out = (struct phi_map){0};
    /* O_NONBLOCK: opening a named pipe must not wait for a writer before it is refused. */
    PHI_TRY(open_for_reading(path, O_NONBLOCK, &fd, &st, err));
    enum phi_status status = map_fd(fd, path, &st, out, err);
    if (!out->data)
        close(fd);
    return status;
}

void phi_map_close(struct phi_map *m)
{
    if (m->data) {
        munmap((void *)(uintptr_t)m->data, m->n_bytes);
        close(m->fd);
    }
    *m = (struct phi_map){0};
}

static enum phi_status read_piece(const struct phi_map *map, const char *path, unsigned char *to,
                                  size_t at, size_t n, struct phi_error *err)
{
    while (n > 0) {
        ssize_t got = pread(map->fd, to + at, n, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return phi_fail(err, PHI_ERR_IO, "%s: cannot read: %s", path,
                            got < 0 ? strerror(errno) : "it was cut short meanwhile");
        at += (size_t)got;
        n -= (size_t)got;
    }
    return PHI_OK;
}

enum phi_status phi_map_read_in(const struct phi_map *map, const char *path,
                                void (*progress)(void *context, uint64_t n_bytes), void *context,
                                struct phi_error *err)
{
    if (!map->data)
        return PHI_OK;
    unsigned char *p = phi_pages_alloc(map->n_bytes);
    if (!p)
        return phi_fail_memory(err, path, map->n_bytes);
    enum phi_status status = PHI_OK;
    for (size_t at = 0; at < map->n_bytes && status == PHI_OK; at += READ_PIECE) {
        size_t n = phi_size_min(READ_PIECE, map->n_bytes - at);
        status = read_piece(map, path, p, at, n, err);
        if (status == PHI_OK && progress)
            progress(context, n);
    }
    if (status == PHI_OK && (mprotect(p, map->n_bytes, PROT_READ) != 0 ||
                             mremap(p, map->n_bytes, map->n_bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
                                    (void *)(uintptr_t)map->data) == MAP_FAILED))
        status = phi_fail(err, PHI_ERR_IO, "%s: cannot be replaced by memory: %s", path,
                          strerror(errno));
    if (status != PHI_OK)
        phi_pages_free(p, map->n_bytes);
    return status;
}

uint64_t phi_file_number(const char *path, const char *name)
{
    char line[128];
    size_t n = strlen(name);
    uint64_t number = 0;
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    while (fgets(line, sizeof line, f))
        if (strncmp(line, name, n) == 0) {
            number = strtoull(line + n, NULL, 10);
            break;
        }
    fclose(f);
    return number;
}

bool phi_file_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

bool phi_file_is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool phi_path_join(struct phi_buf *out, const char *dir, const char *name)
{
    phi_buf_clear(out);
    phi_buf_append_c(out, dir);
    if (out->n && out->data[out->n - 1] != '/')
        phi_buf_append_char(out, '/');
    phi_buf_append_c(out, name);
    return !out->failed;
}
