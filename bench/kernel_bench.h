/* kernel_bench.h: how close each kernel comes to this machine's limits. Times the cases of
 * tests/kernels/kernel_cases.c that are marked for it, on every table that the processor runs, and
 * prints each one's share of the read bandwidth and of the arithmetic peak, both measured in the
 * same run. */
#ifndef PHI_BENCH_KERNEL_BENCH_H
#define PHI_BENCH_KERNEL_BENCH_H

#include "base/status.h"

/* filter (NULL = none): part of a line, such as "avx2 matmul_f32 512x"; only a filter that begins
 * with "ref" times the reference, which is not made for speed. n_threads 0: on one thread, then on
 * all cores. Lines go to standard output as they come. */
enum phi_status phi_bench_kernels(const char *filter, int n_threads, struct phi_error *err);

#endif
