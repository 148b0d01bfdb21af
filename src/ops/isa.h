/* Which instruction set the CPU kernels use, for those above ops/. */
#ifndef ROSE_OPS_ISA_H
#define ROSE_OPS_ISA_H

#include "base/status.h"

/* "auto" (NULL), "portable", "avx2", "avx512", "amx"; before any program is recorded. */
enum rose_status op_isa_select(const char *name, struct rose_error *err);
const char *op_isa_name(void);

#endif
