/* The plan of the CUDA sampling kernel (kernels/cuda/sample.cu). */
#ifndef ROSE_OPS_SAMPLE_CUDA_H
#define ROSE_OPS_SAMPLE_CUDA_H

#include "kernels/params/sample.h"
#include "ops/plan.h"

/* What rows ask for, as far as it changes the time; the plan itself is the same for all. Rows whose candidates are too many to sort (flat
 * ones under top-p) take up to half a millisecond, which no plan knows. */
enum sample_draw { SAMPLE_DRAW_GREEDY, SAMPLE_DRAW_TEMPERATURE, SAMPLE_DRAW_SOME, SAMPLE_DRAW_SHARE }; /* SOME: top-k of few, min-p; SHARE: top-p */

struct sample_shape {
    int64_t rows; /* to plan for; any number runs */
    int32_t vocabulary;
    bool bf16;   /* logits; else f32. Rows are 16-byte aligned */
    bool modify; /* rows may have edits, penalties or masks */
    int threads; /* measured choice: threads a block; 0: the plan's own */
    enum sample_draw draw;
};
/* *blocks: params.blocks; the grid is rows * blocks. */
enum rose_status sample_cuda_plan(const struct sample_shape *shape, const struct device_info *device,
                                  struct plan *out, int32_t *blocks, struct rose_error *err);
/* Floats of params.work a row needs (work_stride, a multiple of 4). */
int64_t sample_cuda_work(const struct sample_shape *shape);

#endif
