/* Quantisers on CUDA beside those of rows (ops/act_cuda.h): weights with a scale for each 128 x 128 (kernels/cuda/quant_blocks.cu), and the
 * scale of a tensor that has one for all of it (kernels/cuda/scale_tensor.cu), which rows are then quantised with. */
#ifndef ROSE_OPS_QUANT_CUDA_H
#define ROSE_OPS_QUANT_CUDA_H

#include "kernels/params/quant_blocks.h"
#include "kernels/params/scale_tensor.h"
#include "ops/op.h"
#include "ops/plan.h"

enum rose_status quant_cuda_blocks_plan(int64_t rows, int64_t cols, const struct device_info *device, struct plan *out, struct rose_error *err);

struct scale_tensor_shape {
    int64_t rows; /* to plan for; any number runs */
    int32_t cols;
    int kind; /* SCALE_TENSOR_* */
    bool f16; /* x is f16, else bf16 */
};
enum rose_status quant_cuda_tensor_plan(const struct scale_tensor_shape *shape, const struct device_info *device, struct plan *out, struct rose_error *err);

/* Recorded into a program. y: e4m3 [rows of x, cols] without gaps; scale: f32, scale_stride from row to row of blocks. */
enum rose_status quant_cuda_blocks(struct program *program, const struct op_value *x, program_buffer_id y, program_buffer_id scale, int64_t scale_stride, struct rose_error *err);
/* scale: f32 [1] */
enum rose_status quant_cuda_tensor(struct program *program, int kind, const struct op_value *x, program_buffer_id scale, struct rose_error *err);

#endif
