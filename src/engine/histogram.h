/* Counting durations into the buckets of rose_histogram. */
#ifndef ROSE_ENGINE_HISTOGRAM_H
#define ROSE_ENGINE_HISTOGRAM_H

#include <math.h>

#include "base/status.h"

static inline void histogram_observe(struct rose_histogram *h, double seconds)
{
    int i = 0;
    while (i < ROSE_HISTOGRAM_BUCKETS - 1 && seconds > ldexp(1, i - 12)) i++;
    h->count[i]++;
    h->total++;
    h->sum += seconds;
}

#endif
