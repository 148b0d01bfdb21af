/* The plan of op_pool's CUDA kernel (kernels/cuda/pool_rows.cu), and the op, its arguments checked. */
#ifndef ROSE_OPS_POOL_CUDA_H
#define ROSE_OPS_POOL_CUDA_H

#include "ops/plan.h"
#include "ops/pool.h"

struct pool_shape {
    int64_t rows, seqs; /* to plan for; any numbers run */
    int32_t cols;
    bool out_f32, f16; /* y is F32, else as x: f16 or bf16 */
};
/* The same constants for all numbers of rows: a text's bits do not depend on its batch. */
enum rose_status pool_cuda_plan(const struct pool_shape *shape, const struct device_info *device, struct plan *out,
                                struct rose_error *err);
enum rose_status pool_cuda(struct program *program, const struct op_pool *op, struct rose_error *err);

#endif
