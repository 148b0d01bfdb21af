/* CPU kernel of op_qk. */
#ifndef ROSE_KERNELS_CPU_QK_H
#define ROSE_KERNELS_CPU_QK_H

#include "base/worker.h"
#include "kernels/params/attention.h"
#include "tensor/extent.h"

typedef void qk_kernel(const void *params, const struct extents *extents, struct worker *w);

/* The kernel for the instruction set in use (isa.h). */
qk_kernel *qk_cpu(void);
/* Bytes of scratch a worker needs. */
size_t qk_scratch(const struct qk_params *p);

qk_kernel qk_rows_portable;
#if defined(__x86_64__)
qk_kernel qk_rows_avx2, qk_rows_avx512;
#endif

#endif
