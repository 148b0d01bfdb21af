/* Norms and activations that quantise what they store: kernels that no op records alone (products of FP8 weights do, in their own way). */
#include "api/bench_op.h"

#include <stddef.h>

#include "kernels/params/act_rows.h"
#include "kernels/params/norm_rows.h"
#include "ops/act_cuda.h"
#include "ops/norm_cuda.h"

static enum rose_status check(const struct bench_case *c, int32_t out, struct rose_error *err)
{
    if (c->device->info.kind == DEVICE_CUDA) return ROSE_OK;
    return status_set(err, ROSE_UNSUPPORTED, "out=%d: quantised results are a GPU's; the CPU stores float32", out);
}

/* `bytes` of the case's memory as a buffer that the launch uses at `param`. */
static enum rose_status use(struct bench_case *c, struct program_launch *l, const char *name, size_t bytes, enum program_mode mode, size_t param, struct rose_error *err)
{
    void *p = bench_op_noise(c, bytes, err);
    if (!p) return ROSE_NO_MEMORY;
    program_use(l, program_external(c->program, name, p, bytes), mode, param);
    return ROSE_OK;
}

static size_t scale_bytes(int64_t rows, int32_t cols, int32_t out)
{
    int group = act_cuda_group(out);
    return (size_t)rows * (size_t)(group ? cols / group + 4 : 1) * 4 + 256;
}

enum rose_status bench_op_norm_quantised(struct bench_case *c, int32_t cols, bool add, bool layer, int32_t out, struct rose_error *err)
{
    int64_t rows = c->value[0], group = act_cuda_group(out);
    struct norm_shape s = {.rows = rows, .cols = cols, .kind = layer ? OP_NORM_LAYER : OP_NORM_RMS, .weight = 4, .bias = layer ? 4 : 0, .add = add, .eps = 1e-6f, .out = out};
    struct norm_rows_params p = {.x_stride = cols, .add_stride = cols, .y_stride = cols, .scale_row_stride = group ? cols / group : 1, .scale_group_stride = 1};
    struct program_launch l = {.name = "norm", .layer = -1, .params = &p, .params_bytes = sizeof p};
    struct plan plan;
    ROSE_TRY(check(c, out, err));
    ROSE_TRY(norm_cuda_plan(&s, &c->device->info, &plan, err));
    if (!(p.weight = bench_op_vector(c, cols, err)) || (layer && !(p.bias = bench_op_vector(c, cols, err))) || !(p.global = bench_op_vector(c, 1, err))) return ROSE_NO_MEMORY;
    ROSE_TRY(plan_record(&plan, c->program, EXTENT_ROWS, offsetof(struct norm_rows_params, rows), &l, err));
    size_t bytes = (size_t)rows * (size_t)cols * 2;
    ROSE_TRY(use(c, &l, "x", bytes, add ? PROGRAM_UPDATE : PROGRAM_READ, offsetof(struct norm_rows_params, x), err));
    if (add) ROSE_TRY(use(c, &l, "add", bytes, PROGRAM_READ, offsetof(struct norm_rows_params, add), err));
    ROSE_TRY(use(c, &l, "y", bytes, PROGRAM_WRITE, offsetof(struct norm_rows_params, y), err));
    ROSE_TRY(use(c, &l, "scale", scale_bytes(rows, cols, out), PROGRAM_WRITE, offsetof(struct norm_rows_params, scale), err));
    program_add(c->program, &l);
    return ROSE_OK;
}

enum rose_status bench_op_act_quantised(struct bench_case *c, int32_t cols, bool gated, enum op_activation activation, int32_t out, struct rose_error *err)
{
    int64_t rows = c->value[0], group = act_cuda_group(out);
    struct act_shape s = {.rows = rows, .cols = cols, .act = activation, .gated = gated, .out = out};
    struct act_rows_params p = {.x_stride = cols, .up_stride = cols, .y_stride = cols, .scale_row_stride = group ? cols / group : 1, .scale_group_stride = 1};
    struct program_launch l = {.name = "act", .layer = -1, .params = &p, .params_bytes = sizeof p};
    struct plan plan;
    ROSE_TRY(check(c, out, err));
    ROSE_TRY(act_cuda_plan(&s, &c->device->info, &plan, err));
    if (!(p.global = bench_op_vector(c, 1, err))) return ROSE_NO_MEMORY;
    ROSE_TRY(plan_record(&plan, c->program, EXTENT_ROWS, offsetof(struct act_rows_params, rows), &l, err));
    size_t bytes = (size_t)rows * (size_t)cols * 2;
    ROSE_TRY(use(c, &l, "x", bytes, PROGRAM_READ, offsetof(struct act_rows_params, x), err));
    if (gated) ROSE_TRY(use(c, &l, "up", bytes, PROGRAM_READ, offsetof(struct act_rows_params, up), err));
    ROSE_TRY(use(c, &l, "y", bytes, PROGRAM_WRITE, offsetof(struct act_rows_params, y), err));
    ROSE_TRY(use(c, &l, "scale", scale_bytes(rows, cols, out), PROGRAM_WRITE, offsetof(struct act_rows_params, scale), err));
    program_add(c->program, &l);
    return ROSE_OK;
}
