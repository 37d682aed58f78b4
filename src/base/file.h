/* file.h: whole files, read into memory or mapped read-only. */
#ifndef PHI_BASE_FILE_H
#define PHI_BASE_FILE_H

#include "base/buf.h"

/* Reads all of `path` (or standard input when path is "-") into *out (initialised by the caller).
 * PHI_ERR_IO when it cannot be read or is not a regular file, PHI_ERR_TOO_LONG over max_bytes. */
enum phi_status phi_file_read(const char *path, size_t max_bytes, struct phi_buf *out,
                              struct phi_error *err);

/* A read-only private mapping. The file must not shrink while mapped. */
struct phi_map {
    const unsigned char *data; /* page-aligned; NULL for an empty file */
    size_t n_bytes;
};

enum phi_status phi_map_open(const char *path, struct phi_map *out, struct phi_error *err);
void phi_map_close(struct phi_map *m);

bool phi_file_exists(const char *path);
bool phi_file_is_dir(const char *path);

/* "dir/name" into out (grown as needed, replaced). False when out of memory. */
bool phi_path_join(struct phi_buf *out, const char *dir, const char *name);

#endif
