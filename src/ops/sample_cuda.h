/* The plan of the CUDA sampling kernel (kernels/cuda/sample.cu). */
#ifndef ROSE_OPS_SAMPLE_CUDA_H
#define ROSE_OPS_SAMPLE_CUDA_H

#include "kernels/params/sample.h"
#include "ops/plan.h"

struct sample_shape {
    int64_t rows; /* to plan for; any number runs */
    int32_t vocabulary;
    bool bf16;   /* logits; else f32. Rows are 16-byte aligned */
    bool modify; /* rows may have edits, penalties or masks */
    int threads; /* measured choice: threads a block; 0: the plan's own */
};
/* *blocks: params.blocks; the grid is rows * blocks. */
enum rose_status sample_cuda_plan(const struct sample_shape *shape, const struct device_info *device,
                                  struct plan *out, int32_t *blocks, struct rose_error *err);
/* Floats of params.work a row needs (work_stride, a multiple of 4). */
int64_t sample_cuda_work(const struct sample_shape *shape);

#endif
