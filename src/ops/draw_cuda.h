/* The plan of the CUDA kernel that draws tokens (kernels/cuda/draw_rows.cu): greedy or by temperature, with a
 * token mask and the drawn token's log-probability. Rows that ask for top-k, top-p, min-p, penalties, edits
 * or alternatives need the sampler of op_sample. */
#ifndef ROSE_OPS_DRAW_CUDA_H
#define ROSE_OPS_DRAW_CUDA_H

#include "ops/plan.h"

struct draw_shape {
    int64_t rows;
    int32_t vocabulary;
    int slices, per; /* measured choices; 0: the plan's own */
};
/* *slices: params.slices, blocks a row. */
enum rose_status draw_cuda_plan(const struct draw_shape *shape, const struct device_info *device,
                                struct plan *out, int *slices, struct rose_error *err);

#endif
