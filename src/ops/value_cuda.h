/* The plan of the small element-wise ops on CUDA (kernels/cuda/value_rows.cu), and those ops, their arguments
 * checked. */
#ifndef ROSE_OPS_VALUE_CUDA_H
#define ROSE_OPS_VALUE_CUDA_H

#include "kernels/params/value_rows.h"
#include "ops/elementwise.h"
#include "ops/embed.h"
#include "ops/plan.h"

struct value_shape {
    int64_t rows; /* to plan for; any number runs */
    int32_t cols;
    int op; /* VALUE_* */
    float scale, cap;
    bool accumulate, f32; /* gather adds; soft cap: logits are f32, row gate: the gate is */
    bool f16;             /* rows of two bytes are f16, else bf16 */
};
enum rose_status value_cuda_plan(const struct value_shape *shape, const struct device_info *device,
                                 struct plan *out, struct rose_error *err);

/* op_embed on CUDA: a gather from the table. */
enum rose_status embed_cuda(struct program *program, const struct op_embed *op, struct rose_error *err);

/* op: VALUE_*; x, y as the op has them; index for gather, else 0. */
enum rose_status value_cuda(struct program *program, const char *name, int layer, int op,
                            const struct op_value *x, const struct op_value *y, program_buffer_id index,
                            float scale, float cap, struct rose_error *err);

#endif
