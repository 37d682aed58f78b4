/* safetensors_write.c: writing, see safetensors.h.
 *
 * The file is written under a temporary name beside its place and renamed when complete, so a full
 * disk or a crash never leaves half a file under the name that was asked for. It is written in
 * pieces of whole huge pages at multiples of their size: file systems that can keep what was
 * written in such pages do so then, and whoever maps the file next reads it at full speed
 * (base/huge_pages.h). */
#include "base/alloc.h"
#include "base/file.h"
#include "base/huge_pages.h"
#include "base/size.h"
#include "base/utf8.h"
#include "formats/json.h"
#include "formats/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE_BYTES = 4 * PHI_HUGE_PAGE };

static enum phi_status check_tensor(const struct phi_tensor *t, const char *path,
                                    struct phi_error *err)
{
    size_t n_bytes = phi_st_dtype_bytes(t->dtype);
    bool fits = t->n_dims >= 0 && t->n_dims <= PHI_TENSOR_MAX_DIMS;
    for (int i = 0; fits && i < t->n_dims; i++)
        fits = phi_size_mul(n_bytes, t->shape[i], &n_bytes);
    if (!fits || n_bytes != t->n_bytes)
        return phi_fail(err, PHI_ERR_INVALID,
                        "%s: tensor %.*s: n_bytes does not match shape and dtype", path,
                        (int)phi_size_min(t->name.n, 200), t->name.data);
    if (t->name.n == 0 || memchr(t->name.data, '\0', t->name.n) || !phi_utf8_valid(t->name))
        return phi_fail(err, PHI_ERR_INVALID,
                        "%s: a tensor name is empty, holds a NUL or is not UTF-8", path);
    return PHI_OK;
}

/* One header entry. The caller owns the result; NULL when out of memory. */
static json_t *make_entry(const struct phi_tensor *t, size_t begin)
{
    json_t *shape = json_array();
    for (int i = 0; i < t->n_dims; i++)
        if (json_array_append_new(shape, json_integer((json_int_t)t->shape[i])) != 0) {
            json_decref(shape);
            return NULL;
        }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", phi_st_dtype_name(t->dtype), "shape", shape,
                     "data_offsets", (json_int_t)begin, (json_int_t)(begin + t->n_bytes));
}

static enum phi_status fill_header(json_t *root, const struct phi_tensor *tensors, size_t n,
                                   const char *path, struct phi_error *err)
{
    struct phi_buf name = {0};
    enum phi_status status = PHI_OK;
    size_t begin = 0, end = 0;
    for (size_t i = 0; i < n && status == PHI_OK; i++) {
        const struct phi_tensor *t = &tensors[i];
        status = check_tensor(t, path, err);
        if (status != PHI_OK)
            break;
        phi_buf_clear(&name);
        phi_buf_append_str(&name, t->name);
        if (!phi_size_add(begin, t->n_bytes, &end) || end > INT64_MAX)
            status = phi_fail(err, PHI_ERR_INVALID, "%s: the total size overflows", path);
        else if (name.failed)
            status = phi_fail_memory(err, "a tensor name", t->name.n);
        else if (json_object_get(root, name.data))
            status =
                phi_fail(err, PHI_ERR_INVALID, "%s: tensor %.200s is given twice", path, name.data);
        else if (json_object_set_new(root, name.data, make_entry(t, begin)) != 0)
            status = phi_fail_memory(err, "a safetensors header", t->name.n);
        begin = end;
    }
    phi_buf_deinit(&name);
    return status;
}

/* The length prefix and the JSON text, padded with spaces so that the data begins at a multiple
 * of 8. */
static enum phi_status build_header(const struct phi_tensor *tensors, size_t n, const char *path,
                                    struct phi_buf *out, struct phi_error *err)
{
    json_t *root = json_object();
    if (!root)
        return phi_fail_memory(err, "a safetensors header", n);
    enum phi_status status = fill_header(root, tensors, n, path, err);
    phi_buf_append(out, "\0\0\0\0\0\0\0", 8);
    if (status == PHI_OK)
        phi_json_dump(root, JSON_COMPACT, out);
    json_decref(root);
    while (out->n % 8 != 0 && !out->failed)
        phi_buf_append_char(out, ' ');
    if (status == PHI_OK && out->failed)
        status = phi_fail_memory(err, "a safetensors header", out->n);
    if (status == PHI_OK)
        for (int i = 0; i < 8; i++)
            out->data[i] = (char)((uint64_t)(out->n - 8) >> (8 * i) & 0xFF);
    return status;
}

struct writer {
    int fd;
    const char *path;
    char *piece; /* [PIECE_BYTES] */
    size_t n;    /* bytes in it */
};

static enum phi_status write_piece(struct writer *w, struct phi_error *err)
{
    for (size_t done = 0; done < w->n;) {
        ssize_t written = write(w->fd, w->piece + done, w->n - done);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return phi_fail(err, PHI_ERR_IO, "%s: cannot write: %s", w->path,
                            written < 0 ? strerror(errno) : "nothing was written");
        done += (size_t)written;
    }
    w->n = 0;
    return PHI_OK;
}

static enum phi_status write_bytes(struct writer *w, const void *data, size_t n,
                                   struct phi_error *err)
{
    for (const char *p = data; n > 0;) {
        size_t part = phi_size_min(n, PIECE_BYTES - w->n);
        memcpy(w->piece + w->n, p, part);
        w->n += part;
        p += part;
        n -= part;
        if (w->n == PIECE_BYTES)
            PHI_TRY(write_piece(w, err));
    }
    return PHI_OK;
}

static enum phi_status write_all(struct writer *w, const struct phi_buf *header,
                                 const struct phi_tensor *tensors, size_t n, struct phi_error *err)
{
    if (!w->piece)
        return phi_fail_memory(err, w->path, PIECE_BYTES);
    PHI_TRY(write_bytes(w, header->data, header->n, err));
    for (size_t i = 0; i < n; i++)
        PHI_TRY(write_bytes(w, tensors[i].data, tensors[i].n_bytes, err));
    return write_piece(w, err);
}

static enum phi_status write_to_fd(int fd, const char *path, const struct phi_buf *header,
                                   const struct phi_tensor *tensors, size_t n,
                                   struct phi_error *err)
{
    struct writer w = {fd, path, phi_pages_alloc(PIECE_BYTES), 0};
    enum phi_status status = write_all(&w, header, tensors, n, err);
    phi_pages_free(w.piece, PIECE_BYTES);
    /* Network file systems report a full disk only here. */
    if (close(fd) != 0 && status == PHI_OK)
        status = phi_fail(err, PHI_ERR_IO, "%s: cannot write: %s", path, strerror(errno));
    return status;
}

/* A pipe or a device is written in place: renaming would replace it by a file. */
static bool is_special(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && !S_ISREG(st.st_mode);
}

static enum phi_status write_file(const char *path, struct phi_buf *temporary,
                                  const struct phi_buf *header, const struct phi_tensor *tensors,
                                  size_t n, struct phi_error *err)
{
    const bool in_place = is_special(path);
    if (in_place)
        phi_buf_append_c(temporary, path);
    else
        phi_buf_printf(temporary, "%s.tmp%ld", path, (long)getpid());
    if (temporary->failed)
        return phi_fail_memory(err, "a path", strlen(path));
    int fd = open(temporary->data, O_WRONLY | O_CLOEXEC | (in_place ? 0 : O_CREAT | O_TRUNC), 0666);
    if (fd < 0)
        return phi_fail(err, PHI_ERR_IO, "%s: cannot create: %s", path, strerror(errno));
    enum phi_status status = write_to_fd(fd, path, header, tensors, n, err);
    if (in_place)
        return status;
    if (status == PHI_OK && rename(temporary->data, path) != 0)
        status = phi_fail(err, PHI_ERR_IO, "%s: cannot create: %s", path, strerror(errno));
    if (status != PHI_OK)
        unlink(temporary->data);
    return status;
}

enum phi_status phi_safetensors_write(const char *path, const struct phi_tensor *tensors, size_t n,
                                      struct phi_error *err)
{
    struct phi_buf header = {0}, temporary = {0};
    enum phi_status status = build_header(tensors, n, path, &header, err);
    if (status == PHI_OK)
        status = write_file(path, &temporary, &header, tensors, n, err);
    phi_buf_deinit(&temporary);
    phi_buf_deinit(&header);
    return status;
}
