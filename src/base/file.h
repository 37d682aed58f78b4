/* file.h: whole files, read into memory or mapped read-only. */
#ifndef PHI_BASE_FILE_H
#define PHI_BASE_FILE_H

#include "base/buf.h"

#include <stdint.h>

/* Appends all of `path` (or of standard input when path is "-") to *out. Pipes and devices are read
 * to their end. PHI_ERR_IO when it cannot be read or is a folder, PHI_ERR_TOO_LONG when *out would
 * exceed max_bytes. */
enum phi_status phi_file_read(const char *path, size_t max_bytes, struct phi_buf *out,
                              struct phi_error *err);

/* Makes the file, or replaces what it held. */
enum phi_status phi_file_write(const char *path, struct phi_str text, struct phi_error *err);

/* A read-only private mapping of a regular file, for huge pages where it is large (huge_pages.h). The
 * file must not shrink while mapped: reading beyond its new end raises SIGBUS. */
struct phi_map {
    const unsigned char *data; /* page-aligned; NULL for an empty file */
    size_t n_bytes;
    int fd; /* of the file, unless data is NULL; for those who look after its pages */
};

enum phi_status phi_map_open(const char *path, struct phi_map *out, struct phi_error *err);
void phi_map_close(struct phi_map *m);

/* Puts memory of the process in the place of the mapping, at the same address: the file is read now
 * and not needed any more. PHI_ERR_IO leaves the map as it was. */
enum phi_status phi_map_read_in(const struct phi_map *map, const char *path,
                                void (*progress)(void *context, uint64_t n_bytes), void *context,
                                struct phi_error *err);

/* The number in the line of a file that begins with `name`, as in /proc/meminfo; 0 when there is none. */
uint64_t phi_file_number(const char *path, const char *name);

bool phi_file_exists(const char *path);
bool phi_file_is_dir(const char *path);

/* "dir/name" into out (grown as needed, replaced). False when out of memory. */
bool phi_path_join(struct phi_buf *out, const char *dir, const char *name);

#endif
