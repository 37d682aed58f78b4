/* file.c: see file.h. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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
    void *p = mmap(NULL, (size_t)st->st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED)
        return phi_fail(err, PHI_ERR_IO, "%s: cannot map %lld bytes: %s", path,
                        (long long)st->st_size, strerror(errno));
    *out = (struct phi_map){p, (size_t)st->st_size};
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
    close(fd);
    return status;
}

void phi_map_close(struct phi_map *m)
{
    if (m->data)
        munmap((void *)(uintptr_t)m->data, m->n_bytes);
    *m = (struct phi_map){0};
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
