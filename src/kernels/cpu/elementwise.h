/* CPU kernels of the element-wise ops. */
#ifndef ROSE_KERNELS_CPU_ELEMENTWISE_H
#define ROSE_KERNELS_CPU_ELEMENTWISE_H

#include "base/worker.h"
#include "kernels/params/elementwise.h"
#include "tensor/extent.h"

typedef void elementwise_kernel(const void *params, const struct extents *extents, struct worker *w);

struct elementwise_kernels {
    elementwise_kernel *act, *softcap, *add, *gather;
};

/* The kernels for the instruction set in use (isa.h). */
const struct elementwise_kernels *elementwise_cpu(void);

extern const struct elementwise_kernels elementwise_kernels_portable;
#if defined(__x86_64__)
extern const struct elementwise_kernels elementwise_kernels_avx2, elementwise_kernels_avx512;
#endif

#endif
