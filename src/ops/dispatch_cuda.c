#include "ops/dispatch_cuda.h"

#include <stddef.h>

#include "ops/value.h"

static enum rose_status check(const struct program *program, const struct moe_cuda_shape *s, const struct dispatch_buffers *b, struct rose_error *err)
{
    if (program->device->info.kind != DEVICE_CUDA) return status_set(err, ROSE_UNSUPPORTED, "dispatch: kernels of CUDA devices");
    ROSE_TRY(value_check_f32(program, "dispatch", "logits", &b->logits, s->experts, EXTENT_ROWS, err));
    ROSE_TRY(value_check(program, "dispatch", "x", &b->x, s->hidden, EXTENT_ROWS, err));
    if (value_f16(&b->x)) return status_set(err, ROSE_UNSUPPORTED, "dispatch: rows are BF16");
    if (!value_aligned16(&b->x)) return status_set(err, ROSE_UNSUPPORTED, "dispatch: rows of stride %d from %d are no whole 16 bytes", b->x.stride, b->x.offset);
    if (!b->ids || !b->weights || !b->position || !b->counts || !b->offsets || !b->rows || (s->out && !b->scales) || (s->bias && !b->bias))
        return status_set(err, ROSE_INVALID, "dispatch: a buffer of its results, or the bias, is missing");
    return ROSE_OK;
}

enum rose_status dispatch_cuda(struct program *program, const struct moe_cuda_shape *s, const struct dispatch_buffers *b, struct rose_error *err)
{
    struct moe_cuda_dispatch d;
    ROSE_TRY(check(program, s, b, err));
    ROSE_TRY(moe_cuda_plan_dispatch(s, &program->device->info, &d, err));
    struct moe_dispatch_params p = {.bias = b->bias, .logits_stride = b->logits.stride, .x_stride = b->x.stride, .scale_stride = moe_cuda_row_scales(s), .slices = d.slices};
    size_t blocks = d.block_tokens ? (size_t)((s->tokens + d.block_tokens - 1) / d.block_tokens) : 0;
    program_buffer_id base = blocks ? program_buffer(program, "dispatch blocks", blocks * (size_t)s->experts * 4) : 0, barrier = program_counters(program, "dispatch barrier", 8);
    for (int i = 0; i < d.launches; i++) {
        struct program_launch l = {.name = i ? "copy" : "dispatch", .layer = -1, .params = &p, .params_bytes = sizeof p};
        const bool later = i > 0; /* it finishes what the first has begun */
        ROSE_TRY(plan_record(&d.launch[i], program, EXTENT_ROWS, offsetof(struct moe_dispatch_params, tokens), &l, err));
        l.dependent = !d.launch[i].cooperative;
        value_use(&l, &b->logits, PROGRAM_READ, offsetof(struct moe_dispatch_params, logits));
        value_use(&l, &b->x, PROGRAM_READ, offsetof(struct moe_dispatch_params, x));
        program_use(&l, b->ids, later ? PROGRAM_READ : PROGRAM_WRITE, offsetof(struct moe_dispatch_params, ids));
        program_use(&l, b->weights, later ? PROGRAM_READ : PROGRAM_WRITE, offsetof(struct moe_dispatch_params, weights));
        program_use(&l, b->position, later ? PROGRAM_UPDATE : PROGRAM_WRITE, offsetof(struct moe_dispatch_params, position));
        program_use(&l, b->counts, later ? PROGRAM_READ : PROGRAM_WRITE, offsetof(struct moe_dispatch_params, counts));
        program_use(&l, b->offsets, later ? PROGRAM_READ : PROGRAM_WRITE, offsetof(struct moe_dispatch_params, offsets));
        program_use(&l, b->rows, PROGRAM_WRITE, offsetof(struct moe_dispatch_params, rows));
        if (s->out) program_use(&l, b->scales, PROGRAM_WRITE, offsetof(struct moe_dispatch_params, scales));
        program_use(&l, base, later ? PROGRAM_READ : PROGRAM_WRITE, offsetof(struct moe_dispatch_params, block_base));
        program_use(&l, barrier, PROGRAM_UPDATE, offsetof(struct moe_dispatch_params, barrier));
        program_add(program, &l);
    }
    return ROSE_OK;
}

enum rose_status dispatch_cuda_combine(struct program *program, int layer, const struct moe_cuda_shape *s, program_buffer_id rows, program_buffer_id position,
                                       program_buffer_id weights, const struct op_value *y, struct rose_error *err)
{
    struct moe_combine_params p = {.y_stride = y->stride};
    struct plan plan;
    ROSE_TRY(moe_cuda_plan_combine(s, &program->device->info, &plan, &p.slices, err));
    struct program_launch l = {.name = "moe_combine", .layer = layer, .params = &p, .params_bytes = sizeof p};
    ROSE_TRY(plan_record(&plan, program, y->rows, offsetof(struct moe_combine_params, tokens), &l, err));
    program_use(&l, rows, PROGRAM_READ, offsetof(struct moe_combine_params, rows));
    program_use(&l, position, PROGRAM_READ, offsetof(struct moe_combine_params, position));
    program_use(&l, weights, PROGRAM_READ, offsetof(struct moe_combine_params, weights));
    value_use(&l, y, s->accumulate ? PROGRAM_UPDATE : PROGRAM_WRITE, offsetof(struct moe_combine_params, y));
    program_add(program, &l);
    return ROSE_OK;
}
