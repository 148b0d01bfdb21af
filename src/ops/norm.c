#include "ops/norm.h"

#include <stddef.h>

#include "kernels/cpu/norm.h"
#include "ops/norm_cuda.h"
#include "ops/value.h"

_Static_assert((int)OP_NORM_RMS == (int)NORM_RMS && (int)OP_NORM_LAYER == (int)NORM_LAYER, "one numbering");

enum rose_status op_norm(struct program *program, const struct op_norm *op, struct rose_error *err)
{
    ROSE_TRY(value_check(program, "norm", "x", &op->x, op->x.cols, op->x.rows, err));
    ROSE_TRY(value_check(program, "norm", "y", &op->y, op->x.cols, op->x.rows, err));
    if (op->add.buffer) ROSE_TRY(value_check(program, "norm", "add", &op->add, op->x.cols, op->x.rows, err));
    if (op->kind != OP_NORM_RMS && op->kind != OP_NORM_LAYER)
        return status_set(err, ROSE_INVALID, "norm: unknown kind %d", (int)op->kind);
    if (!(op->eps >= 0))
        return status_set(err, ROSE_INVALID, "norm: eps is %g and must not be negative", (double)op->eps);

    if (program->device->info.kind == DEVICE_CUDA) return norm_cuda(program, op, err);

    struct norm_params p = {.weight = op->weight,
                            .bias = op->bias,
                            .x_stride = op->x.stride,
                            .add_stride = op->add.stride,
                            .y_stride = op->y.stride,
                            .cols = op->x.cols,
                            .kind = (int32_t)op->kind,
                            .accumulate = op->accumulate,
                            .rows_extent = (int32_t)op->x.rows,
                            .eps = op->eps,
                            .weight_offset = op->weight_offset,
                            .alpha = op->alpha != 0 ? op->alpha : 1.0f};
    struct program_launch l = {
        .name = "norm", .layer = op->layer, .params = &p, .params_bytes = sizeof p, .cpu = norm_cpu()};
    bool add = op->add.buffer != 0;
    value_use(&l, &op->x, add ? PROGRAM_UPDATE : PROGRAM_READ, offsetof(struct norm_params, x));
    if (add) value_use(&l, &op->add, PROGRAM_READ, offsetof(struct norm_params, add));
    value_use(&l, &op->y, op->accumulate ? PROGRAM_UPDATE : PROGRAM_WRITE, offsetof(struct norm_params, y));
    l.cost.bytes_per[op->x.rows] = 4.0 * op->x.cols * (2 + 2 * add + op->accumulate);
    l.cost.ops_per[op->x.rows] = (op->kind == OP_NORM_RMS ? 4.0 : 6.0) * op->x.cols;
    program_add(program, &l);
    return ROSE_OK;
}
