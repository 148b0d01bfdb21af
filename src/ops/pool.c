#include "ops/pool.h"

#include <stddef.h>

#include "kernels/cpu/pool.h"
#include "ops/pool_cuda.h"
#include "ops/value.h"

_Static_assert((int)OP_POOL_CLS == POOL_CLS && (int)OP_POOL_LAST == POOL_LAST && (int)OP_POOL_MAX == POOL_MAX &&
                   (int)OP_POOL_MEAN_SQRT == POOL_MEAN_SQRT,
               "one numbering");

enum rose_status op_pool(struct program *program, const struct op_pool *op, struct rose_error *err)
{
    ROSE_TRY(value_check(program, "pool", "x", &op->x, op->x.cols, EXTENT_ROWS, err));
    ROSE_TRY((op->y.dtype == DTYPE_F32 ? value_check_f32 : value_check)(program, "pool", "y", &op->y, op->x.cols, EXTENT_SEQS, err));
    if (!op->seq_rows || !op->kind || !op->skip) return status_set(err, ROSE_INVALID, "pool: the step has no seq_rows, kinds or skips");
    if (program->device->info.kind == DEVICE_CUDA) return pool_cuda(program, op, err);
    struct pool_params p = {.x_stride = op->x.stride, .y_stride = op->y.stride, .cols = op->x.cols};
    struct program_launch l = {.name = "pool", .layer = -1, .params = &p, .params_bytes = sizeof p, .cpu = cpu_pool};
    value_use(&l, &op->x, PROGRAM_READ, offsetof(struct pool_params, x));
    value_use(&l, &op->y, PROGRAM_WRITE, offsetof(struct pool_params, y));
    program_use(&l, op->seq_rows, PROGRAM_READ, offsetof(struct pool_params, seq_rows));
    program_use(&l, op->kind, PROGRAM_READ, offsetof(struct pool_params, kind));
    program_use(&l, op->skip, PROGRAM_READ, offsetof(struct pool_params, skip));
    l.cost.bytes_per[EXTENT_ROWS] = 4.0 * op->x.cols;
    l.cost.bytes_per[EXTENT_SEQS] = 4.0 * op->x.cols;
    l.cost.ops_per[EXTENT_ROWS] = 2.0 * op->x.cols;
    program_add(program, &l);
    return ROSE_OK;
}
