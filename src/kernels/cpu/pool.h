/* Pooling of a sequence's rows on the CPU. */
#ifndef ROSE_KERNELS_CPU_POOL_H
#define ROSE_KERNELS_CPU_POOL_H

#include "base/worker.h"
#include "kernels/params/pool.h"
#include "tensor/extent.h"

void cpu_pool(const void *params, const struct extents *extents, struct worker *w);

#endif
