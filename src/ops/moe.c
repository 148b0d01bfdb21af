#include "ops/moe.h"

#include <stddef.h>

#include "kernels/cpu/moe.h"
#include "ops/moe_mlp_cuda.h"
#include "ops/value.h"
#include "ops/weight_view.h"

_Static_assert((int)MOE_SIGMOID == (int)OP_MOE_SIGMOID && (int)MOE_SOFTMAX_AFTER == (int)OP_MOE_SOFTMAX_AFTER,
               "one order of scores");

/* Rows that the buffer of v has room for. */
static int32_t rows_of(const struct program *program, const struct op_value *v)
{
    size_t floats = program->buffers[v->buffer].bytes / sizeof(float),
           head = (size_t)v->offset + (size_t)v->cols;
    return floats < head ? 0 : (int32_t)ROSE_MIN((floats - head) / (size_t)v->stride + 1, (size_t)INT32_MAX);
}

static enum rose_status check_experts(const char *op, int32_t experts, int32_t top_k, program_buffer_id ids,
                                      program_buffer_id weights, struct rose_error *err)
{
    if (experts < 1 || experts > MOE_MAX_EXPERTS || top_k < 1 || top_k > MOE_MAX_TOP_K || top_k > experts)
        return status_set(err, ROSE_UNSUPPORTED, "%s: %d of %d experts; at most %d of %d are possible", op,
                          top_k, experts, MOE_MAX_TOP_K, MOE_MAX_EXPERTS);
    if (!ids || !weights)
        return status_set(err, ROSE_INTERNAL, "%s: no buffer for the chosen experts and their weights", op);
    return ROSE_OK;
}

static enum rose_status check_route(const struct program *program, const struct op_moe_route *op, struct rose_error *err)
{
    const struct op_value *x = &op->logits;
    ROSE_TRY(check_experts("moe_route", op->experts, op->top_k, op->ids, op->weights, err));
    /* F32 on every device, unlike other values. */
    if (!x->buffer || x->buffer >= program->buffers_count || x->dtype != DTYPE_F32 || x->cols != op->experts || x->stride < x->cols ||
        x->offset < 0 || (unsigned)x->rows >= EXTENT_COUNT)
        return status_set(err, ROSE_INVALID, "moe_route: the router's logits are not F32 rows of %d columns", op->experts);
    if (op->score != OP_MOE_SOFTMAX && op->score != OP_MOE_SIGMOID && op->score != OP_MOE_SOFTMAX_AFTER)
        return status_set(err, ROSE_INVALID, "moe_route: unknown kind of score %d", (int)op->score);
    if (op->groups > 1 && (op->experts % op->groups || op->top_groups < 1 || op->top_groups > op->groups ||
                           (int64_t)op->experts / op->groups * op->top_groups < op->top_k))
        return status_set(err, ROSE_INVALID,
                          "moe_route: %d of %d groups of %d experts do not give %d experts", op->top_groups,
                          op->groups, op->experts, op->top_k);
    return ROSE_OK;
}

enum rose_status op_moe_route(struct program *program, const struct op_moe_route *op, struct rose_error *err)
{
    ROSE_TRY(check_route(program, op, err));
    if (program->device->info.kind == DEVICE_CUDA) return moe_mlp_cuda_route(program, op, err);
    struct moe_route_params p = {.bias = op->selection_bias,
                                 .stride = op->logits.stride,
                                 .experts = op->experts,
                                 .top_k = op->top_k,
                                 .groups = op->groups,
                                 .top_groups = op->top_groups,
                                 .rows_extent = (int32_t)op->logits.rows,
                                 .max_rows = rows_of(program, &op->logits),
                                 .score = (enum moe_score)op->score,
                                 .scale = op->scale != 0 ? op->scale : 1.0f,
                                 .normalize = op->normalize};
    struct program_launch l = {.name = "moe_route",
                               .layer = op->layer,
                               .params = &p,
                               .params_bytes = sizeof p,
                               .cpu = moe_route_run};
    value_use(&l, &op->logits, PROGRAM_READ, offsetof(struct moe_route_params, logits));
    program_use(&l, op->ids, PROGRAM_WRITE, offsetof(struct moe_route_params, ids));
    program_use(&l, op->weights, PROGRAM_WRITE, offsetof(struct moe_route_params, weights));
    size_t bytes = (size_t)workers_count(program->device->workers) * 2 * (size_t)op->experts * sizeof(float);
    program_use(&l, program_buffer(program, "moe_route.work", bytes), PROGRAM_WRITE,
                offsetof(struct moe_route_params, work));
    l.cost.bytes_per[op->logits.rows] = 4.0 * op->experts + 8.0 * op->top_k;
    l.cost.ops_per[op->logits.rows] = (double)op->experts * (op->top_k + 4);
    program_add(program, &l);
    return ROSE_OK;
}

/* The experts' views, in the program's arena; all experts of one projection must have one shape. */
static enum rose_status views(struct program *program, const char *what, const struct op_weight *weights,
                              int32_t experts, int32_t n, int32_t k, const struct cpu_weight **out,
                              double *bytes, struct rose_error *err)
{
    struct cpu_weight *v = ARENA_ARRAY(&program->arena, struct cpu_weight, (size_t)experts);
    if (!v) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    for (int32_t e = 0; e < experts; e++) {
        if (!weights || !weight_view(&weights[e], &v[e]))
            return status_set(err, ROSE_INTERNAL, "moe_mlp: %s %d is not packed for the CPU", what, e);
        if (v[e].n != n || v[e].k != k)
            return status_set(err, ROSE_INTERNAL, "moe_mlp: %s %d is [%d, %d], expected [%d, %d]", what, e,
                              v[e].n, v[e].k, n, k);
        *bytes += weights[e].bytes_read / experts;
    }
    *out = v;
    return ROSE_OK;
}

enum rose_status op_moe_mlp(struct program *program, const struct op_moe_mlp *op, struct rose_error *err)
{
    ROSE_TRY(check_experts("moe_mlp", op->experts, op->top_k, op->ids, op->weights, err));
    ROSE_TRY(value_check(program, "moe_mlp", "x", &op->x, op->x.cols, op->x.rows, err));
    ROSE_TRY(value_check(program, "moe_mlp", "y", &op->y, op->y.cols, op->x.rows, err));
    if (op->x.buffer == op->y.buffer)
        return status_set(err, ROSE_INTERNAL, "moe_mlp: x and y are one buffer");
    if (!op->gate) return status_set(err, ROSE_INTERNAL, "moe_mlp: no gate weights");
    bool cuda = program->device->info.kind == DEVICE_CUDA;
    if (op->route) ROSE_TRY(check_route(program, op->route, err));
    if (op->route && !(cuda && moe_mlp_cuda_chooses(program, op))) {
        struct op_moe_route route = *op->route;
        if (cuda) route.pad = moe_mlp_cuda_pad(program, op);
        ROSE_TRY(op_moe_route(program, &route, err));
    }
    if (cuda) return moe_mlp_cuda(program, op, err);
    struct moe_mlp_params p = {.gate_bias = op->gate_bias,
                               .up_bias = op->up_bias,
                               .down_bias = op->down_bias,
                               .x_stride = op->x.stride,
                               .y_stride = op->y.stride,
                               .experts = op->experts,
                               .top_k = op->top_k,
                               .rows_extent = (int32_t)op->x.rows,
                               .max_rows = ROSE_MIN(rows_of(program, &op->x), rows_of(program, &op->y)),
                               .activation = (enum matmul_activation)op->activation,
                               .alpha = op->alpha != 0 ? op->alpha : 1.0f,
                               .accumulate = op->accumulate,
                               .deterministic = op->deterministic};
    int32_t ffn = op->gate[0].n;
    double bytes = 0; /* of one expert */
    ROSE_TRY(views(program, "gate", op->gate, op->experts, ffn, op->x.cols, &p.gate, &bytes, err));
    ROSE_TRY(views(program, "up", op->up, op->experts, ffn, op->x.cols, &p.up, &bytes, err));
    ROSE_TRY(views(program, "down", op->down, op->experts, op->y.cols, ffn, &p.down, &bytes, err));
    struct program_launch l = {
        .name = "moe_mlp", .layer = op->layer, .params = &p, .params_bytes = sizeof p, .cpu = moe_mlp_run};
    program_use(&l, op->ids, PROGRAM_READ, offsetof(struct moe_mlp_params, ids));
    program_use(&l, op->weights, PROGRAM_READ, offsetof(struct moe_mlp_params, weights));
    value_use(&l, &op->x, PROGRAM_READ, offsetof(struct moe_mlp_params, x));
    value_use(&l, &op->y, op->accumulate ? PROGRAM_UPDATE : PROGRAM_WRITE,
              offsetof(struct moe_mlp_params, y));
    size_t work = moe_mlp_plan(&p, workers_count(program->device->workers));
    program_use(&l, program_buffer(program, "moe_mlp.work", work), PROGRAM_WRITE,
                offsetof(struct moe_mlp_params, work));
    /* At least top_k experts are read; each further row may bring others, which this linear form cannot say.
     */
    l.cost.bytes = bytes * op->top_k;
    l.cost.bytes_per[op->x.rows] = 4.0 * (op->x.cols + op->y.cols * (1 + op->accumulate));
    l.cost.ops_per[op->x.rows] = op->top_k * (4.0 * ffn * op->x.cols + 2.0 * ffn * op->y.cols);
    program_add(program, &l);
    return ROSE_OK;
}
