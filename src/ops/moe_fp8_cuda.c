/* Experts in FP8 with many tokens on Hopper: activations become e4m3, a scale for 128 of a row, and both products multiply codes
 * (kernels/cuda/moe_fp8_wgmma.cu); the first one's result leaves it quantised. */
#include <stddef.h>

#include "device/cuda.h"
#include "ops/act_cuda.h"
#include "ops/matmul_fp8.h"
#include "ops/moe_coded_cuda.h"
#include "ops/value.h"

enum { COLS = 256 };

bool moe_fp8_fits(const struct moe_mlp_shape *s, const struct device_info *d)
{
    enum { EACH = 20 };
    return plan_arch(d) == 900 && !s->deterministic && s->up_format == 1 + MOE_FP8 && s->down_format == 1 + MOE_FP8 && s->hidden % FP8_BLOCK == 0 && s->ffn % FP8_BLOCK == 0 &&
           (double)s->tokens * s->top_k / s->experts > EACH;
}

/* One persistent block an SM; shared memory: stages, the warps' results, rows' largest values, barriers, offsets and counts. */
enum rose_status moe_fp8_plan(const struct moe_mlp_shape *s, bool down, const struct device_info *d, struct plan *out, struct rose_error *err)
{
    int32_t n = down ? s->hidden : s->ffn, k = down ? s->ffn : s->hidden, rows = s->tile;
    int stage = (COLS + rows) * 128, rest = 8 * 16 * (down ? 256 : 64) + 16 * rows + 8 * (s->experts + 1) + 256,
        room = d->shared_per_block ? (int)ROSE_MIN(d->shared_per_block, (size_t)1 << 20) : 227 << 10, stages = ROSE_MIN((room - rest) / stage, 6);
    if ((rows != 64 && rows != 128) || stages < 3) return status_set(err, ROSE_UNSUPPORTED, "moe_mlp: %d experts in FP8 do not fit the GPU's shared memory", s->experts);
    if (moe_mlp_cuda_places(s, d) / rows * (ROSE_MAX(s->hidden, s->ffn) / 128 + 1) > INT32_MAX)
        return status_set(err, ROSE_UNSUPPORTED, "moe_mlp: %d tokens of %d experts are too many tiles", s->max_tokens, s->top_k);
    *out = (struct plan){.kernel = "moe_fp8_wgmma", .rows = s->tokens, .per = s->max_tokens, .times = d->units, .tiles = true, .block = 384};
    plan_int(out, "EXPERTS", s->experts);
    plan_int(out, "TOP_K", s->top_k);
    plan_int(out, "N", n);
    plan_int(out, "K", k);
    plan_int(out, "GATED", !down);
    plan_int(out, "GATHER", !down);
    plan_int(out, "ACT", (int)s->activation);
    plan_int(out, "EXPERT_BIAS", down ? s->down_bias : s->gate_bias);
    plan_int(out, "ROWS", rows);
    plan_int(out, "STAGES", stages);
    plan_int(out, "SCALES", down ? s->down_scales : s->up_scales);
    out->shared_bytes = (uint32_t)(stages * stage + rest);
    double picks = (double)s->tokens * s->top_k, matrix = (double)n * k * (down ? 1 : 2);
    out->bytes = s->experts * matrix + picks * n * (down ? 2 : 1) + (down ? picks : s->tokens) * k;
    out->ops = 2 * picks * matrix;
    plan_stream(out, d, 2.0);
    out->predicted_us = ROSE_MAX(out->predicted_us, out->ops / (d->units * (down ? 6.0e12 : 6.8e12)) * 1e6); /* H200, T 8,192 of Qwen3-30B: 790 and 899 TFLOP/s */
    return ROSE_OK;
}

void moe_fp8_box(const struct moe_mlp_shape *s, bool down, int64_t stride, struct layout_tma *out)
{
    int64_t n = down ? s->hidden : s->ffn, k = down ? s->ffn : s->hidden;
    *out = (struct layout_tma){.rank = 3, .dim = {k / 2, n, s->experts}, .stride_bytes = {2, k, stride}, .box = {64, 64, 1}, .swizzle_bytes = 128};
}

/* Rows of e4m3 whose scales lie together, row by row. */
static struct fp8_rows quantised(struct program *program, const char *codes, const char *scales, size_t rows, int32_t columns)
{
    struct fp8_rows q = {.row_stride = (columns / FP8_BLOCK + 3) / 4 * 4, .group_stride = 1};
    q.codes = program_buffer(program, codes, rows * (size_t)columns);
    q.scales = program_buffer(program, scales, rows * (size_t)q.row_stride * 4);
    return q;
}

/* y: of the first product codes too, of the second bf16 rows. */
static enum rose_status product(struct program *program, const struct op_moe_mlp *op, const struct moe_mlp_shape *s, bool down, const struct moe_mlp_places *at,
                                const struct fp8_rows *x, const struct fp8_rows *y, struct rose_error *err)
{
    const struct op_weight *w[2] = {down ? op->down : op->gate, op->up};
    int32_t n = down ? s->hidden : s->ffn, k = down ? s->ffn : s->hidden;
    int64_t stride[2] = {0, 0};
    struct plan plan;
    struct moe_fp8_wgmma_params p = {.t = {.bias = {down ? op->down_bias : op->gate_bias, down ? NULL : op->up_bias}, .x_stride = k}, .x_scale_stride = x->row_stride, .y_scale_stride = y->row_stride};
    ROSE_TRY(moe_fp8_plan(s, down, &program->device->info, &plan, err));
    for (int i = 0; i < (down ? 1 : 2); i++) {
        struct layout_tma box;
        ROSE_TRY(moe_mlp_cuda_stride(program, down ? "down" : i ? "up" : "gate", w[i], s->experts, n, k, &stride[i], err));
        if (i && stride[1] != stride[0]) return status_set(err, ROSE_INTERNAL, "moe_mlp: gate and up matrices of the experts lie at different distances");
        p.w_scale[i] = w[i]->scales, p.w_scale_stride = stride[i];
        moe_fp8_box(s, down, stride[i], &box);
        if (!program->draft) ROSE_TRY(cuda_tensor_map(program->device, &box, 2, (void *)(uintptr_t)w[i]->data, &p.t.weight[i], err));
    }
    struct program_launch l = {.name = down ? "moe_down" : "moe_gate_up", .layer = op->layer, .params = &p, .params_bytes = sizeof p};
    ROSE_TRY(plan_record(&plan, program, op->x.rows, 0, &l, err));
    l.rows_param = 0;
    program_use(&l, x->codes, PROGRAM_READ, offsetof(struct moe_fp8_wgmma_params, t.x));
    program_use(&l, x->scales, PROGRAM_READ, offsetof(struct moe_fp8_wgmma_params, x_scale));
    if (!down) program_use(&l, at->source, PROGRAM_READ, offsetof(struct moe_fp8_wgmma_params, t.source));
    program_use(&l, program_counters(program, "moe_tiles", 8), PROGRAM_UPDATE, offsetof(struct moe_fp8_wgmma_params, t.counter));
    program_use(&l, at->counts, PROGRAM_READ, offsetof(struct moe_fp8_wgmma_params, t.counts));
    program_use(&l, at->offsets, PROGRAM_READ, offsetof(struct moe_fp8_wgmma_params, t.offsets));
    program_use(&l, y->codes, PROGRAM_WRITE, offsetof(struct moe_fp8_wgmma_params, t.y));
    if (!down) program_use(&l, y->scales, PROGRAM_WRITE, offsetof(struct moe_fp8_wgmma_params, y_scale));
    program_add(program, &l);
    return ROSE_OK;
}

enum rose_status moe_fp8_record(struct program *program, const struct op_moe_mlp *op, const struct moe_mlp_shape *s, const struct moe_mlp_places *at, program_buffer_id rows,
                                struct rose_error *err)
{
    struct fp8_rows x = quantised(program, "moe_codes", "moe_code_scales", (size_t)s->max_tokens, s->hidden), out = {.codes = rows};
    ROSE_TRY(matmul_fp8_quantise(program, &op->x, op->layer, ACT_OUT_E4M3_128, &x, err));
    struct fp8_rows inner = quantised(program, "moe_inner_codes", "moe_inner_scales", (size_t)moe_mlp_cuda_places(s, &program->device->info), s->ffn);
    ROSE_TRY(product(program, op, s, false, at, &x, &inner, err));
    return product(program, op, s, true, at, &inner, &out, err);
}
