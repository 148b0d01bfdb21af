/* The quantiser of weights on CUDA (kernels/cuda/quant_blocks.cu): bf16 to e4m3 with a scale for each 128 x 128. */
#ifndef ROSE_OPS_QUANT_CUDA_H
#define ROSE_OPS_QUANT_CUDA_H

#include "kernels/params/quant_blocks.h"
#include "ops/plan.h"

enum rose_status quant_cuda_blocks_plan(int64_t rows, int64_t cols, const struct device_info *device, struct plan *out, struct rose_error *err);

#endif
