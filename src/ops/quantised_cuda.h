/* Norms and activations whose rows leave quantised, recorded alone: no op does that (products of FP8 weights quantise in their own way).
 * CUDA only. */
#ifndef ROSE_OPS_QUANTISED_CUDA_H
#define ROSE_OPS_QUANTISED_CUDA_H

#include "device/program.h"
#include "ops/act_cuda.h"
#include "ops/norm_cuda.h"

/* Rows without gaps: x and add (the second operand: what a norm adds, what a gate multiplies) bf16 [rows, cols], y [rows, cols] of
 * the shape's out, scale as kernels/params/act_rows.h has it, quantised_cuda_scale_bytes of it. */
struct quantised_rows {
    program_buffer_id x, add, y, scale;
    const float *weight, *bias; /* norms: [cols] */
    const float *global;        /* [1] */
};

size_t quantised_cuda_scale_bytes(int64_t rows, int32_t cols, int out);
enum rose_status quantised_cuda_norm(struct program *program, const struct norm_shape *shape, const struct quantised_rows *m, struct rose_error *err);
enum rose_status quantised_cuda_act(struct program *program, const struct act_shape *shape, const struct quantised_rows *m, struct rose_error *err);

#endif
