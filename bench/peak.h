/* peak.h: what this machine can do at most, measured: the limits that benchmarks compare
 * with. */
#ifndef PHI_BENCH_PEAK_H
#define PHI_BENCH_PEAK_H

#include <stddef.h>

/* Runs a chain of independent multiply-adds of the widest kind that the table's features
 * (PHI_CPU_*) allow, for some milliseconds. Returns the number of floating-point operations;
 * the caller times. */
double phi_peak_fma(unsigned features);
/* The same with bfloat16 dot products; 0 where there is no such instruction. */
double phi_peak_bf16_dot(unsigned features);
/* The same with products of bytes: VPDPBUSD, or the three instructions that stand in for it. */
double phi_peak_int8_dot(unsigned features);
/* The same where one of the factors has four bits, which saves some of the three. */
double phi_peak_int4_dot(unsigned features);

/* Memory is read from several places in turn, as a matrix by rows, which keeps more of the
 * hardware's prefetchers busy; what stands further on is named to the second-level cache (0 =
 * nothing is). */
struct phi_read_pattern {
    int n_streams;
    size_t ahead_bytes;
};

/* Reads n bytes, a multiple of 64 * n_streams and aligned to 64, once. Names what stands beyond the
 * end, too. The sum is returned so that the reads happen. */
unsigned long long phi_peak_read(const void *p, size_t n, struct phi_read_pattern pattern);

#endif
