/* machine_limits.h: what this machine can do at most, measured now, on a pool of threads that share the
 * work as a model's do: the read bandwidth and the arithmetic peaks that benchmarks compare with.
 */
#ifndef PHI_BENCH_MACHINE_LIMITS_H
#define PHI_BENCH_MACHINE_LIMITS_H

#include "base/status.h"

enum phi_limit {
    PHI_LIMIT_READ, /* bytes from memory */
    PHI_LIMIT_FMA,  /* float32 operations, a multiply-add being two */
    PHI_LIMIT_BF16, /* the same by bfloat16 dot products */
    PHI_LIMIT_INT8, /* the same by products of bytes */
    PHI_LIMIT_INT4  /* the same by products of bytes and four bits */
};

struct phi_limits;

/* For the instruction set that a model opened now would run on. */
enum phi_status phi_limits_create(int n_threads, struct phi_limits **out, struct phi_error *err);
void phi_limits_destroy(struct phi_limits *l); /* NULL is fine */

/* Bytes or operations a second of all threads together, measured for some 0.1 s; 0 where the
 * instruction set has nothing of the kind. */
double phi_limits_measure(struct phi_limits *l, enum phi_limit which);

/* Whether bfloat16 dot products are there. */
bool phi_limits_have_bf16(const struct phi_limits *l);

/* ---------------------------------------------------------------- for kernel_bench.c */

struct phi_compute;
struct phi_kernels;

/* For a given table of kernels. On one thread processor time is counted, which other load on the
 * machine disturbs less. */
enum phi_status phi_limits_create_for(const struct phi_kernels *table, int n_threads,
                                      size_t scratch_bytes, struct phi_limits **out,
                                      struct phi_error *err);

/* Its table and threads, to run kernels on. */
struct phi_compute *phi_limits_compute(struct phi_limits *l);

/* Median seconds of one call of fn(context), on the same clock as the limits. */
double phi_limits_time(struct phi_limits *l, void (*fn)(void *context), void *context);

#endif
