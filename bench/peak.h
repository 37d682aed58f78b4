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

/* Reads n bytes (a multiple of 64) once, naming to the second-level cache what stands `ahead` bytes
 * further on, also beyond the end; 0 = names nothing. The sum is returned so that the reads happen. */
unsigned long long phi_peak_read(const void *p, size_t n, size_t ahead);

#endif
