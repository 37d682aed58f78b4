/* clock.h: monotonic time. */
#ifndef PHI_BASE_CLOCK_H
#define PHI_BASE_CLOCK_H

#include <time.h>

/* Seconds since an arbitrary start; never goes back. */
static inline double phi_clock_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#endif
