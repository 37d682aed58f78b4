/* huge_pages.h: memory that is read at full speed. A processor that streams through gigabytes in pages of
 * 4 KiB waits for address translations and stops its prefetchers at each page's end; in pages of
 * 2 MiB the same memory reads a fifth to a half faster. The kernel gives huge pages to whoever asks for
 * them, at addresses that are multiples of their size. All of it is advice: where it is refused, memory is
 * the same but slower. */
#ifndef PHI_BASE_HUGE_PAGES_H
#define PHI_BASE_HUGE_PAGES_H

#include <stddef.h>

enum { PHI_HUGE_PAGE = 2 << 20 };

/* mmap of n_bytes from the begin of the file, or of zeroed memory where flags have MAP_ANONYMOUS. From
 * the size of a huge page on it begins at a multiple of one and asks for them. NULL when there is no
 * room, with errno set; else to be unmapped by munmap. */
void *phi_huge_map(size_t n_bytes, int protection, int flags, int fd);

#endif
