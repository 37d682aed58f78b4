/* huge_files.h: mapped files on huge pages. A file that the system holds in its page cache in small pages
 * stays so for whoever maps it, and reads a third slower (huge_pages.h): a download leaves them, and
 * copying does. This exchanges them: piece by piece, what is held in small pages is dropped and read
 * again, into pages as large as the mapping asks for. The bytes are the same before and after, readers may
 * go on meanwhile (at worst they wait for the disk for one piece), and what the cache holds then is
 * good for every process that maps the file later.
 *
 * All of it is advice to the kernel. Where a call is missing or refused, where the pages stay small all
 * the same (an old kernel, another process that has them mapped), where reading again would cost more
 * than it brings (a slow disk, a file system over a network) or memory is short, it ends. */
#ifndef PHI_BASE_HUGE_FILES_H
#define PHI_BASE_HUGE_FILES_H

#include "base/file.h"

#include <stdatomic.h>
#include <stdint.h>

struct phi_huge_files {
    const struct phi_map *maps; /* [n_maps] */
    size_t n_maps;
    bool read_all;           /* also what is not in the page cache yet, else that is left alone */
    bool rests;              /* most of the time, so that readers go on nearly as fast */
    const atomic_bool *stop; /* ends it after the piece at hand; NULL = never */
    void (*progress)(void *context, uint64_t done, uint64_t total); /* NULL = none */
    void *context;
};

/* On the calling thread. Returns how many bytes of the maps are on huge pages at its end. */
uint64_t phi_huge_files_make(const struct phi_huge_files *f);

/* Bytes of the maps that could be: all but the odd ends of files. */
uint64_t phi_huge_files_total(const struct phi_map *maps, size_t n_maps);

/* The same on a thread of its own and of low priority, once most of the files is in the page cache and
 * nothing has been added to it for `delay_ms`. It ends with one line in the log. NULL when there is no
 * thread to be had. The maps must live until it is stopped. */
struct phi_huge_thread;
struct phi_huge_thread *phi_huge_thread_start(const struct phi_map *maps, size_t n_maps,
                                              int delay_ms);
/* Waits for the piece at hand, some milliseconds, and the rest after it. NULL is fine. */
void phi_huge_thread_stop(struct phi_huge_thread *t);

/* For tests (process-wide): these calls are refused from now on; 0 = none. */
enum phi_huge_call {
    PHI_HUGE_RESIDENT = 1, /* mincore: what the page cache holds */
    PHI_HUGE_POPULATE = 2,
    PHI_HUGE_SCAN = 4, /* which pages are huge */
    PHI_HUGE_COLLAPSE = 8,
    PHI_HUGE_FILE_SYSTEM = 16, /* it is one that can */
    PHI_HUGE_UNMAP = 32,
    PHI_HUGE_DROP = 64,
    PHI_HUGE_ALL_CALLS = 127
};
void phi_huge_refuse(unsigned calls);

#endif
