#include "ops/quantised_cuda.h"

#include <stddef.h>

#include "kernels/params/act_rows.h"
#include "kernels/params/norm_rows.h"

size_t quantised_cuda_scale_bytes(int64_t rows, int32_t cols, int out)
{
    int group = act_cuda_group(out);
    return (size_t)rows * (size_t)(group ? cols / group + 4 : 1) * 4 + 256;
}

enum rose_status quantised_cuda_norm(struct program *program, const struct norm_shape *shape, const struct quantised_rows *m, struct rose_error *err)
{
    int64_t cols = shape->cols, group = act_cuda_group(shape->out);
    struct norm_rows_params p = {.weight = m->weight, .bias = m->bias, .global = m->global, .x_stride = cols, .add_stride = cols, .y_stride = cols,
                                 .scale_row_stride = group ? cols / group : 1, .scale_group_stride = 1};
    struct program_launch l = {.name = "norm", .layer = -1, .params = &p, .params_bytes = sizeof p};
    struct plan plan;
    ROSE_TRY(norm_cuda_plan(shape, &program->device->info, &plan, err));
    ROSE_TRY(plan_record(&plan, program, EXTENT_ROWS, offsetof(struct norm_rows_params, rows), &l, err));
    program_use(&l, m->x, shape->add ? PROGRAM_UPDATE : PROGRAM_READ, offsetof(struct norm_rows_params, x));
    if (shape->add) program_use(&l, m->add, PROGRAM_READ, offsetof(struct norm_rows_params, add));
    program_use(&l, m->y, PROGRAM_WRITE, offsetof(struct norm_rows_params, y));
    program_use(&l, m->scale, PROGRAM_WRITE, offsetof(struct norm_rows_params, scale));
    program_add(program, &l);
    return ROSE_OK;
}

enum rose_status quantised_cuda_act(struct program *program, const struct act_shape *shape, const struct quantised_rows *m, struct rose_error *err)
{
    int64_t cols = shape->cols, group = act_cuda_group(shape->out);
    struct act_rows_params p = {.global = m->global, .x_stride = cols, .up_stride = cols, .y_stride = cols,
                                .scale_row_stride = group ? cols / group : 1, .scale_group_stride = 1};
    struct program_launch l = {.name = "act", .layer = -1, .params = &p, .params_bytes = sizeof p};
    struct plan plan;
    ROSE_TRY(act_cuda_plan(shape, &program->device->info, &plan, err));
    ROSE_TRY(plan_record(&plan, program, EXTENT_ROWS, offsetof(struct act_rows_params, rows), &l, err));
    program_use(&l, m->x, PROGRAM_READ, offsetof(struct act_rows_params, x));
    if (shape->gated) program_use(&l, m->add, PROGRAM_READ, offsetof(struct act_rows_params, up));
    program_use(&l, m->y, PROGRAM_WRITE, offsetof(struct act_rows_params, y));
    program_use(&l, m->scale, PROGRAM_WRITE, offsetof(struct act_rows_params, scale));
    program_add(program, &l);
    return ROSE_OK;
}
