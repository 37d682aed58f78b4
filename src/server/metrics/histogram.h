/* histogram.h: adding to a struct phi_histogram. */
#ifndef PHI_SERVER_METRICS_HISTOGRAM_H
#define PHI_SERVER_METRICS_HISTOGRAM_H

#include "phidelity.h"

/* At most 31 rising bounds, which must outlive the histogram. */
#define PHI_HISTOGRAM(bounds_array)                                                                \
    ((struct phi_histogram){.bounds = (bounds_array), .n = sizeof(bounds_array) / sizeof(double)})

/* A bound belongs to the bucket below it, as in Prometheus. */
static inline void phi_histogram_add(struct phi_histogram *h, double value)
{
    size_t i = 0;
    while (i < h->n && value > h->bounds[i])
        i++;
    h->counts[i]++;
    h->sum += value;
}

#endif
