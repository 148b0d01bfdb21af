/* Dispatch and combine of a mixture of experts on one GPU, without the experts. */
#include "api/bench_op.h"

#include "ops/act_cuda.h"
#include "ops/dispatch_cuda.h"

enum rose_status bench_op_dispatch(struct bench_case *c, struct rose_error *err)
{
    struct moe_cuda_shape s = {.tokens = c->value[0], .hidden = c->value[1], .experts = c->value[2], .top_k = c->value[3], .out = c->value[4], .normalize = true};
    struct dispatch_buffers b = {0};
    if (c->device->info.kind != DEVICE_CUDA) return status_set(err, ROSE_UNSUPPORTED, "dispatch is a kernel of GPUs; a CPU's experts read the tokens where they are");
    struct moe_cuda_dispatch plan;
    ROSE_TRY(moe_cuda_plan_dispatch(&s, &c->device->info, &plan, err)); /* before memory is taken for what cannot be */
    size_t picks = (size_t)s.tokens * (size_t)s.top_k * 4, places = (size_t)moe_cuda_rows(&s);
    ROSE_TRY(bench_op_value_f32(c, "logits", EXTENT_ROWS, s.tokens, s.experts, &b.logits, err));
    ROSE_TRY(bench_op_value(c, "x", EXTENT_ROWS, s.tokens, s.hidden, &b.x, err));
    ROSE_TRY(bench_op_lend(c, "ids", picks, &b.ids, err));
    ROSE_TRY(bench_op_lend(c, "weights", picks, &b.weights, err));
    ROSE_TRY(bench_op_lend(c, "position", picks, &b.position, err));
    ROSE_TRY(bench_op_lend(c, "counts", (size_t)s.experts * 4, &b.counts, err));
    ROSE_TRY(bench_op_lend(c, "offsets", (size_t)s.experts * 4 + 4, &b.offsets, err));
    ROSE_TRY(bench_op_lend(c, "rows", places * (size_t)(moe_cuda_row_bytes(&s) + 1), &b.rows, err));
    if (s.out) ROSE_TRY(bench_op_lend(c, "scales", places * (size_t)moe_cuda_row_scales(&s) * 4, &b.scales, err));
    ROSE_TRY(dispatch_cuda(c->program, &s, &b, err));
    if (!c->value[5]) return ROSE_OK;
    struct op_value y;
    program_buffer_id results = b.rows;
    if (s.out) ROSE_TRY(bench_op_lend(c, "results", places * (size_t)s.hidden * 2, &results, err));
    ROSE_TRY(bench_op_value(c, "y", EXTENT_ROWS, s.tokens, s.hidden, &y, err));
    return dispatch_cuda_combine(c->program, -1, &s, results, b.position, b.weights, &y, err);
}
