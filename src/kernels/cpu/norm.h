/* CPU kernels of op_norm. */
#ifndef ROSE_KERNELS_CPU_NORM_H
#define ROSE_KERNELS_CPU_NORM_H

#include "base/worker.h"
#include "kernels/params/norm.h"
#include "tensor/extent.h"

typedef void norm_kernel(const void *params, const struct extents *extents, struct worker *w);

/* The kernel for the instruction set in use (isa.h). */
norm_kernel *norm_cpu(void);

norm_kernel norm_rows_portable;
#if defined(__x86_64__)
norm_kernel norm_rows_avx2, norm_rows_avx512;
#endif

#endif
