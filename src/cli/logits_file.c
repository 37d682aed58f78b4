/* logits_file.c: see logits_file.h. */
#include "cli/logits_file.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

/* The file's numbers are little-endian, whatever the machine's are. */
static bool write_u64(FILE *file, uint64_t x)
{
    unsigned char bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(x >> 8 * i);
    return fwrite(bytes, 1, sizeof bytes, file) == sizeof bytes;
}

static bool write_header(struct logits_file *f, const int32_t *ids)
{
    char header[512];
    uint64_t ids_bytes = (uint64_t)f->n_tokens * 8;
    uint64_t end_bytes = ids_bytes + (uint64_t)f->n_tokens * f->vocab_size * 4;
    int n =
        snprintf(header, sizeof header,
                 "{\"input_ids\":{\"dtype\":\"I64\",\"shape\":[%zu],\"data_offsets\":[0,%" PRIu64
                 "]},\"logits\":{\"dtype\":\"F32\",\"shape\":[%zu,%zu],\"data_offsets\":[%" PRIu64
                 ",%" PRIu64 "]}}",
                 f->n_tokens, ids_bytes, f->n_tokens, f->vocab_size, ids_bytes, end_bytes);
    size_t padded = ((size_t)n + 7) / 8 * 8;
    memset(header + n, ' ', padded - (size_t)n);
    bool ok = write_u64(f->file, padded) && fwrite(header, 1, padded, f->file) == padded;
    for (size_t i = 0; ok && i < f->n_tokens; i++)
        ok = write_u64(f->file, (uint64_t)(int64_t)ids[i]);
    return ok;
}

enum phi_status logits_file_open(struct logits_file *f, const char *path, const int32_t *ids,
                                 size_t n_tokens, size_t vocab_size, struct phi_error *err)
{
    *f = (struct logits_file){.path = path, .n_tokens = n_tokens, .vocab_size = vocab_size};
    f->file = fopen(path, "wb");
    if (!f->file)
        return phi_fail(err, PHI_ERR_IO, "%s: cannot create: %s", path, strerror(errno));
    struct stat st;
    f->is_regular_file = fstat(fileno(f->file), &st) == 0 && S_ISREG(st.st_mode);
    if (write_header(f, ids))
        return PHI_OK;
    return logits_file_close(f, err);
}

bool logits_file_append(struct logits_file *f, const float *logits, size_t n_rows)
{
    size_t n = n_rows * f->vocab_size;
    f->n_rows += n_rows;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    return fwrite(logits, sizeof *logits, n, f->file) == n;
#else
    for (size_t i = 0; i < n; i++) {
        uint32_t x;
        memcpy(&x, &logits[i], sizeof x);
        x = __builtin_bswap32(x);
        if (fwrite(&x, sizeof x, 1, f->file) != 1)
            return false;
    }
    return true;
#endif
}

enum phi_status logits_file_close(struct logits_file *f, struct phi_error *err)
{
    bool failed = ferror(f->file) != 0;
    if (fclose(f->file) != 0)
        failed = true;
    f->file = NULL;
    if (!failed && f->n_rows == f->n_tokens)
        return PHI_OK;
    int why = errno;
    if (f->is_regular_file)
        remove(f->path);
    return failed ? phi_fail(err, PHI_ERR_IO, "%s: cannot write: %s", f->path, strerror(why))
                  : phi_fail(err, PHI_ERR_INTERNAL, "%s: %zu of %zu rows", f->path, f->n_rows,
                             f->n_tokens);
}
