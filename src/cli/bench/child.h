/* child.h: this program run again as a process of its own, from its start to the first byte that it
 * prints, and the memory that it takes; and the page cache that it finds. */
#ifndef PHI_CLI_BENCH_CHILD_H
#define PHI_CLI_BENCH_CHILD_H

#include "base/status.h"

struct bench_child {
    double first_byte_s; /* since before the process was made */
    /* The most that was resident: of files (mapped weights and the program itself), and all else.
     */
    uint64_t file_bytes, other_bytes;
    uint64_t peak_bytes; /* as the system counts it, both together */
};

/* argv[0] is replaced by this program. The process runs to its end; when it fails, or prints
 * nothing, that is PHI_ERR_IO. Its errors go to our standard error. */
enum phi_status bench_child_run(char **argv, struct bench_child *out, struct phi_error *err);

/* Drops the files of a folder from the page cache. *left is the share of their bytes that is there
 * afterwards, which is not 0 while others use them or where the system does not let us. */
enum phi_status bench_evict(const char *folder, double *left, struct phi_error *err);

#endif
