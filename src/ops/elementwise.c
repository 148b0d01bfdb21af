#include "ops/elementwise.h"

#include <stddef.h>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/row_gate.h"
#include "ops/act_cuda.h"
#include "ops/embed.h"
#include "ops/value.h"
#include "ops/value_cuda.h"

_Static_assert((int)OP_ACT_NONE == ELEMENTWISE_NONE && (int)OP_ACT_SILU == ELEMENTWISE_SILU &&
                   (int)OP_ACT_GELU_TANH == ELEMENTWISE_GELU_TANH &&
                   (int)OP_ACT_GELU_ERF == ELEMENTWISE_GELU_ERF && (int)OP_ACT_RELU == ELEMENTWISE_RELU &&
                   (int)OP_ACT_RELU2 == ELEMENTWISE_RELU2,
               "one numbering");

enum { X = offsetof(struct elementwise_params, x), UP = offsetof(struct elementwise_params, up) };
enum { Y = offsetof(struct elementwise_params, y), INDEX = offsetof(struct elementwise_params, index) };

static struct elementwise_params params_of(const struct op_value *x, const struct op_value *y)
{
    return (struct elementwise_params){
        .x_stride = x->stride, .y_stride = y->stride, .cols = y->cols, .rows_extent = (int32_t)y->rows};
}

static struct program_launch launch_of(const char *name, int layer, struct elementwise_params *p,
                                       program_cpu_fn *cpu)
{
    return (struct program_launch){
        .name = name, .layer = layer, .params = p, .params_bytes = sizeof *p, .cpu = cpu};
}

enum rose_status op_act(struct program *program, const struct op_act *op, struct rose_error *err)
{
    int32_t cols = op->gate.cols;
    ROSE_TRY(value_check(program, "act", "gate", &op->gate, cols, op->gate.rows, err));
    ROSE_TRY(value_check(program, "act", "y", &op->y, cols, op->gate.rows, err));
    bool up = op->up.buffer != 0;
    if (up) ROSE_TRY(value_check(program, "act", "up", &op->up, cols, op->gate.rows, err));
    if ((unsigned)op->activation > OP_ACT_RELU2)
        return status_set(err, ROSE_INVALID, "act: unknown activation %d", (int)op->activation);

    if (program->device->info.kind == DEVICE_CUDA) return act_cuda(program, op, err);

    struct elementwise_params p = params_of(&op->gate, &op->y);
    p.up_stride = op->up.stride;
    p.activation = (int32_t)op->activation;
    struct program_launch l = launch_of("act", op->layer, &p, elementwise_cpu()->act);
    value_use(&l, &op->gate, PROGRAM_READ, X);
    if (up) value_use(&l, &op->up, PROGRAM_READ, UP);
    value_use(&l, &op->y, PROGRAM_WRITE, Y);
    l.cost.bytes_per[op->y.rows] = 4.0 * cols * (2 + up);
    l.cost.ops_per[op->y.rows] = (double)cols * 10;
    program_add(program, &l);
    return ROSE_OK;
}

enum rose_status op_softcap(struct program *program, const struct op_softcap *op, struct rose_error *err)
{
    int32_t cols = op->x.cols;
    /* Logits are float32 on every device. */
    bool f32 = op->x.dtype == DTYPE_F32;
    ROSE_TRY((f32 ? value_check_f32 : value_check)(program, "softcap", "x", &op->x, cols, op->x.rows, err));
    ROSE_TRY((f32 ? value_check_f32 : value_check)(program, "softcap", "y", &op->y, cols, op->x.rows, err));
    if (!(op->cap >= 0))
        return status_set(err, ROSE_INVALID, "softcap: cap is %g and must not be negative", (double)op->cap);

    if (program->device->info.kind == DEVICE_CUDA)
        return value_cuda(program, "softcap", -1, VALUE_SOFTCAP, &op->x, &op->y, 0, op->scale, op->cap, err);

    struct elementwise_params p = params_of(&op->x, &op->y);
    p.scale = op->scale != 0 ? op->scale : 1.0f;
    p.cap = op->cap;
    struct program_launch l = launch_of("softcap", -1, &p, elementwise_cpu()->softcap);
    value_use(&l, &op->x, PROGRAM_READ, X);
    value_use(&l, &op->y, PROGRAM_WRITE, Y);
    l.cost.bytes_per[op->y.rows] = 8.0 * cols;
    l.cost.ops_per[op->y.rows] = (double)cols * (op->cap != 0 ? 20 : 1);
    program_add(program, &l);
    return ROSE_OK;
}

enum rose_status op_add(struct program *program, const struct op_add *op, struct rose_error *err)
{
    int32_t cols = op->x.cols;
    ROSE_TRY(value_check(program, "add", "x", &op->x, cols, op->x.rows, err));
    ROSE_TRY(value_check(program, "add", "y", &op->y, cols, op->x.rows, err));

    if (program->device->info.kind == DEVICE_CUDA)
        return value_cuda(program, "add", op->layer, VALUE_ADD, &op->x, &op->y, 0, op->alpha, 0, err);

    struct elementwise_params p = params_of(&op->x, &op->y);
    p.scale = op->alpha != 0 ? op->alpha : 1.0f;
    struct program_launch l = launch_of("add", op->layer, &p, elementwise_cpu()->add);
    value_use(&l, &op->x, PROGRAM_READ, X);
    value_use(&l, &op->y, PROGRAM_UPDATE, Y);
    l.cost.bytes_per[op->y.rows] = 12.0 * cols;
    l.cost.ops_per[op->y.rows] = 2.0 * cols;
    program_add(program, &l);
    return ROSE_OK;
}

enum rose_status op_gather(struct program *program, const struct op_gather *op, struct rose_error *err)
{
    int32_t cols = op->y.cols;
    ROSE_TRY(value_check(program, "gather", "x", &op->x, cols, op->x.rows, err));
    ROSE_TRY(value_check(program, "gather", "y", &op->y, cols, op->y.rows, err));
    if (!op->index || op->index >= program->buffers_count)
        return status_set(err, ROSE_INVALID, "gather: index is missing");

    if (program->device->info.kind == DEVICE_CUDA)
        return value_cuda(program, "gather", -1, VALUE_GATHER, &op->x, &op->y, op->index, 0, 0, err);

    struct elementwise_params p = params_of(&op->x, &op->y);
    struct program_launch l = launch_of("gather", -1, &p, elementwise_cpu()->gather);
    value_use(&l, &op->x, PROGRAM_READ, X);
    program_use(&l, op->index, PROGRAM_READ, INDEX);
    value_use(&l, &op->y, PROGRAM_WRITE, Y);
    l.cost.bytes_per[op->y.rows] = 8.0 * cols + 4;
    program_add(program, &l);
    return ROSE_OK;
}

enum rose_status op_row_gate(struct program *program, const struct op_row_gate *op, struct rose_error *err)
{
    ROSE_TRY((op->gate.dtype == DTYPE_F32 ? value_check_f32 : value_check)(program, "row_gate", "gate", &op->gate, 1,
                                                                           op->y.rows, err));
    ROSE_TRY(value_check(program, "row_gate", "y", &op->y, op->y.cols, op->y.rows, err));

    if (program->device->info.kind == DEVICE_CUDA)
        return value_cuda(program, "row_gate", op->layer, VALUE_ROW_GATE, &op->gate, &op->y, 0, 0, 0, err);

    struct elementwise_params p = params_of(&op->gate, &op->y);
    struct program_launch l = launch_of("row_gate", op->layer, &p, cpu_row_gate);
    value_use(&l, &op->gate, PROGRAM_READ, X);
    value_use(&l, &op->y, PROGRAM_UPDATE, Y);
    l.cost.bytes_per[op->y.rows] = 8.0 * op->y.cols + 4;
    l.cost.ops_per[op->y.rows] = op->y.cols;
    program_add(program, &l);
    return ROSE_OK;
}
