/* kernel_bench.h: how close each kernel comes to this machine's limits. Times cases of
 * tests/kernels/kernel_cases.c that are marked for it, and prints each one's share of the read
 * bandwidth and of the arithmetic peak, both measured in the same run. */
#ifndef PHI_BENCH_KERNEL_BENCH_H
#define PHI_BENCH_KERNEL_BENCH_H

#include "base/status.h"

#include <stdbool.h>

/* In about a minute: the table that the program would use, each kernel on the shapes that say most,
 * matrices on all cores. Everything instead, which takes ten and more: all tables that the processor
 * runs, all shapes, matrices on one thread too. Lines go to standard output as they come. */
struct phi_kernel_bench {
    const char *filter; /* of everything, lines that hold this, as "avx2 matmul_f32 512x"; one that begins
                         * with "ref" times the reference too, which is not made for speed. NULL = none */
    bool all;           /* everything */
    int n_threads;      /* that share a matrix; 0 = as above */
};
enum phi_status phi_bench_kernels(const struct phi_kernel_bench *o, struct phi_error *err);

#endif
