#ifndef ROSE_KERNELS_CPU_ROW_GATE_H
#define ROSE_KERNELS_CPU_ROW_GATE_H

#include "base/worker.h"
#include "tensor/extent.h"

/* y[r] *= sigmoid(x[r]), x [rows, 1]; params: struct elementwise_params. */
void cpu_row_gate(const void *params, const struct extents *extents, struct worker *w);

#endif
