/* huge_pages.c: see huge_pages.h. */
#include "base/huge_pages.h"
#include "base/size.h"

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

/* More than is needed is reserved, mapped at the right place, and the rest of it given back. */
static void *map_aligned(size_t n_bytes, int protection, int flags, int fd)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE),
                 used = phi_size_ceil_div(n_bytes, page) * page;
    size_t room;
    if (!phi_size_add(n_bytes, PHI_HUGE_PAGE + page, &room)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    room -= room % page;
    char *reserved =
        mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED)
        return MAP_FAILED;
    const size_t before = -(uintptr_t)reserved % PHI_HUGE_PAGE, after = room - before - used;
    char *p = mmap(reserved + before, n_bytes, protection, flags | MAP_FIXED, fd, 0);
    if (p == MAP_FAILED) {
        int reason = errno;
        munmap(reserved, room);
        errno = reason;
        return MAP_FAILED;
    }
    if (before > 0)
        munmap(reserved, before);
    if (after > 0)
        munmap(p + used, after);
    return p;
}

void *phi_huge_map(size_t n_bytes, int protection, int flags, int fd)
{
    const bool large = n_bytes >= PHI_HUGE_PAGE;
    void *p = large ? map_aligned(n_bytes, protection, flags, fd)
                    : mmap(NULL, n_bytes, protection, flags, fd, 0);
    if (p == MAP_FAILED)
        return NULL;
    if (large)
        madvise(p, n_bytes, MADV_HUGEPAGE);
    return p;
}
