/* file.h: whole files, read into memory or mapped read-only. */
#ifndef PHI_BASE_FILE_H
#define PHI_BASE_FILE_H

#include "base/buf.h"

/* Appends all of `path` (or of standard input when path is "-") to *out. Pipes and devices are read
 * to their end. PHI_ERR_IO when it cannot be read or is a folder, PHI_ERR_TOO_LONG when *out would
 * exceed max_bytes. */
enum phi_status phi_file_read(const char *path, size_t max_bytes, struct phi_buf *out,
                              struct phi_error *err);

/* Makes the file, or replaces what it held. */
enum phi_status phi_file_write(const char *path, struct phi_str text, struct phi_error *err);

/* A read-only private mapping of a regular file. The file must not shrink while mapped: reading
 * beyond its new end raises SIGBUS. */
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
