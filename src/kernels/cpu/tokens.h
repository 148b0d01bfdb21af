#ifndef ROSE_KERNELS_CPU_TOKENS_H
#define ROSE_KERNELS_CPU_TOKENS_H

#include "base/worker.h"
#include "tensor/extent.h"

/* params: struct tokens_params. */
void cpu_tokens(const void *params, const struct extents *extents, struct worker *w);

#endif
