/* The plan of kernels/cuda/logprob_rows.cu: log-softmax of rows of logits, gathered at some tokens. */
#ifndef ROSE_OPS_LOGPROB_CUDA_H
#define ROSE_OPS_LOGPROB_CUDA_H

#include "kernels/params/logprob_rows.h"
#include "ops/plan.h"

struct logprob_shape {
    int64_t rows; /* to plan for; any number runs */
    int32_t vocabulary, want; /* want: tokens a row, 1 to 4096 */
    bool bf16; /* logits; else f32 */
};
/* *blocks: params.blocks; the grid is rows * blocks. */
enum rose_status logprob_cuda_plan(const struct logprob_shape *shape, const struct device_info *device, struct plan *out, int32_t *blocks,
                                   struct rose_error *err);

#endif
