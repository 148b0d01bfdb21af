#include "ops/moe_coded_cuda.h"

#include <math.h>
#include <stddef.h>

#include "ops/matmul_blocks.h"
#include "ops/value.h"
#include "ops/weight_view.h"

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

int moe_coded_format(const struct op_weight *w)
{
    enum { NONE = -2 };
    if (w->layout == WEIGHT_LAYOUT_CUDA_ROWS && (w->dtype == DTYPE_BF16 || w->dtype == DTYPE_F16)) return 0;
    if (w->layout == WEIGHT_LAYOUT_CUDA_FP8 && w->dtype == DTYPE_F8_E4M3 && w->scales) return 1 + MOE_FP8;
    return w->layout == WEIGHT_LAYOUT_CUDA_BLOCKS && matmul_blocks_format(w->dtype) >= 0 ? 1 + matmul_blocks_format(w->dtype) : NONE;
}

/* ---- plans ---- */

enum { CODED_ROWS = 64, BF16_LEAST = 16, FEW_TOKENS = 8, FEW_PICKS = 256 };

/* Measured on an H200 (Qwen3-30B-A3B's shape, a layer, T 512 / 2,048 / 8,192, us): Q4_K_M 460 / 828 / 2,409, by panels 652 / 915 / 1,650; Q8_0 442 / 712, Q4_0 368 / 654.
 * MXFP4 457 / 1,117, by panels 522 / 875. Q5_K spills, Q6_K and biases do with tiles of 128 rows. */
enum { DECODED_LEAST = 24, DECODED_MOST = 160, SMALL_EACH = 40 }; /* rows an expert; up to SMALL_EACH tiles have 64 */
static bool decodes(int format) { return format >= 0 && format < BLOCKS_FORMATS && format != BLOCKS_Q5_K; }

bool moe_blocks_wgmma_fits(const struct moe_mlp_shape *s, bool down, const struct device_info *d)
{
    double each = (double)s->tokens * s->top_k / s->experts;
    int format = (down ? s->down_format : s->up_format) - 1;
    bool small = format == BLOCKS_Q6_K || format == BLOCKS_MXFP4 || (down ? s->down_bias : s->gate_bias);
    return plan_arch(d) == 900 && !s->deterministic && decodes(format) && each > DECODED_LEAST && each <= (small ? SMALL_EACH : DECODED_MOST);
}

/* A panel costs its bytes three times and the ramps of its launches; from so many rows an expert on the bf16 products earn that. */
static double most_each(const struct moe_mlp_shape *s, const struct device_info *d)
{
    enum { BLOCKS_EACH = 48 };
    if (s->up_format == 1 + MOE_FP8 || s->down_format == 1 + MOE_FP8) return INFINITY;
    return plan_arch(d) == 900 && decodes(s->up_format - 1) && decodes(s->down_format - 1) ? DECODED_LEAST : BLOCKS_EACH;
}

struct moe_mlp_form moe_coded_form(const struct moe_mlp_shape *s, const struct device_info *d)
{
    double each = (double)s->tokens * s->top_k / s->experts;
    struct moe_mlp_form form = {.kernel = MOE_MLP_GROUP, .tile = each <= 4 ? 8 : each <= 10 ? 16 : each <= 24 ? 32 : CODED_ROWS};
    form.coded = s->deterministic || each <= most_each(s, d);
    /* Measured (H200): more tokens of FP8 and MXFP4 are faster by tiles. */
    int few = s->up_format == 1 + MOE_FP8 ? 1 : s->up_format == 1 + BLOCKS_MXFP4 ? 4 : FEW_TOKENS;
    if (s->route && s->max_tokens <= few && s->max_tokens * s->top_k <= FEW_PICKS && plan_arch(d) >= 900 && !s->deterministic && s->up_format > 0 && s->down_format > 0)
        return (struct moe_mlp_form){.kernel = MOE_MLP_FEW, .tile = 1};
    if (moe_fp8_fits(s, d)) return (struct moe_mlp_form){.kernel = MOE_MLP_WGMMA, .tile = each <= SMALL_EACH ? 64 : 128, .fp8 = true};
    bool bf16 = !s->up_format || !s->down_format || s->up_format == MOE_MIXED;
    if (form.coded) {
        if (bf16) form.tile = form.tile < BF16_LEAST ? BF16_LEAST : form.tile;
        return form;
    }
    if (plan_arch(d) == 900) form.kernel = MOE_MLP_WGMMA;
    form.tile = each <= (plan_arch(d) == 900 ? SMALL_EACH : 64) ? 64 : 128;
    return form;
}

int moe_coded_chunk_bytes(int format)
{
    return format == MOE_FP8 ? 16 * 128 : BLOCKS_CHUNK_BYTES(format);
}

/* Warps along columns and along k: eight together, k divided where there would be too few blocks. */
static void choose_warps(const struct moe_mlp_shape *s, bool down, int step, const struct device_info *d, int32_t rows, int *tiles, int *split)
{
    enum { WARPS = 8 };
    int32_t n = down ? s->hidden : s->ffn, k = down ? s->ffn : s->hidden;
    double active = s->experts * (1 - pow(1 - (double)s->top_k / s->experts, s->tokens)), each = (double)s->tokens * s->top_k / active;
    *split = 1;
    for (;;) {
        *tiles = WARPS / *split / (down ? 1 : 2);
        double blocks = active * ceil(each / rows) * (double)ceil_div(n, 16 * *tiles);
        if (s->deterministic || *tiles == 1 || blocks >= 1.5 * d->units || ceil_div(k, step) < 4 * *split) return;
        *split *= 2;
    }
}

void moe_coded_cost(const struct moe_mlp_shape *s, bool down, const struct device_info *d, struct plan *out)
{
    int format = (down ? s->down_format : s->up_format) - 1;
    double n = down ? s->hidden : s->ffn, k = down ? s->ffn : s->hidden, picks = (double)s->tokens * s->top_k, matrix = n * k * (down ? 1 : 2);
    double active = s->experts * (1 - pow(1 - (double)s->top_k / s->experts, s->tokens));
    out->bytes = active * matrix * moe_coded_chunk_bytes(format) / (16.0 * (format == MOE_FP8 ? 128 : 256)) + 2 * (picks * n + (down ? picks : s->tokens) * k);
    out->ops = 2 * picks * matrix;
    plan_stream(out, d, 2.0);
}

enum rose_status moe_coded_plan(const struct moe_mlp_shape *s, bool down, const struct device_info *d, struct plan *out, struct rose_error *err)
{
    int32_t n = down ? s->hidden : s->ffn, k = down ? s->ffn : s->hidden;
    int format = (down ? s->down_format : s->up_format) - 1, step = format == MOE_FP8 ? 128 : 256, tiles, split, rows = s->tile ? s->tile : moe_coded_form(s, d).tile;
    if (format < 0 || format > MOE_FP8 || rows % 8 || rows > CODED_ROWS) return status_set(err, ROSE_INTERNAL, "moe_mlp: experts in an unknown format");
    if (n % 8 || k % (format == MOE_FP8 ? 16 : BLOCKS_SUPER(format) ? 256 : BLOCKS_UNIT))
        return status_set(err, ROSE_UNSUPPORTED, "moe_mlp: experts of %d by %d; the CUDA kernels take whole blocks and multiples of 8", n, k);
    choose_warps(s, down, step, d, rows, &tiles, &split);
    int warps = tiles * split * (down ? 1 : 2), stage = warps * moe_coded_chunk_bytes(format) + split * step / 64 * rows * 128, fixed = format == MOE_FP8 ? 0 : warps * 1024;
    int unit = d->shared_per_unit ? (int)ROSE_MIN(d->shared_per_unit, (size_t)1 << 20) : 99 << 10, most = d->shared_per_block ? (int)ROSE_MIN(d->shared_per_block, (size_t)1 << 20) : 99 << 10;
    int blocks = rows > 32 ? 1 : 2, stages = (unit / blocks - 1024 - fixed) / stage;
    if (stages < 3) blocks = 1, stages = (most - fixed) / stage;
    while (stages < 2 && tiles > 1) { /* small shared memory: fewer columns */
        tiles /= 2, warps /= 2, stage = warps * moe_coded_chunk_bytes(format) + split * step / 64 * rows * 128, fixed /= 2;
        stages = (most - fixed) / stage;
    }
    if (stages < 2) return status_set(err, ROSE_UNSUPPORTED, "moe_mlp: experts in blocks do not fit the GPU's shared memory");
    stages = ROSE_MIN(stages, 6);
    int64_t grid = moe_mlp_cuda_places(s, d) / rows * ceil_div(n, 16 * tiles);
    if (grid > INT32_MAX) return status_set(err, ROSE_UNSUPPORTED, "moe_mlp: %d tokens of %d experts are more tiles than a grid has", s->max_tokens, s->top_k);
    *out = (struct plan){.kernel = "moe_coded", .rows = s->tokens, .per = s->max_tokens, .times = (int32_t)grid, .tiles = true, .block = (uint32_t)warps * 32};
    plan_int(out, "EXPERTS", s->experts);
    plan_int(out, "TOP_K", s->top_k);
    plan_int(out, "COLUMNS", n);
    plan_int(out, "K", k);
    plan_int(out, "GATED", !down);
    plan_int(out, "GATHER", !down);
    plan_int(out, "ACT", (int)s->activation);
    plan_int(out, "EXPERT_BIAS", down ? s->down_bias : s->gate_bias);
    plan_int(out, "FORMAT", format);
    plan_int(out, "SCALES", down ? s->down_scales : s->up_scales);
    plan_int(out, "N", rows);
    plan_int(out, "TILES", tiles);
    plan_int(out, "SPLIT", split);
    plan_int(out, "STAGES", stages);
    plan_int(out, "OCCUPANCY", blocks);
    plan_element(out, s->f16);
    int end = warps * rows * 64 + rows * (16 * tiles + 8) * 2; /* sums, results */
    out->shared_bytes = (uint32_t)ROSE_MAX(stages * stage + fixed, end);
    moe_coded_cost(s, down, d, out);
    double peak = d->units * 1.2e12; /* codes to operands, not measured */
    out->predicted_us = ROSE_MAX(out->predicted_us, out->ops / peak * 1e6);
    return ROSE_OK;
}

enum rose_status moe_panel_plan(const struct moe_panel_shape *s, const struct device_info *d, struct plan *out, struct rose_error *err)
{
    enum { THREADS = 256 };
    if (s->format < 0 || s->format >= BLOCKS_FORMATS || s->k <= 0 || s->k % (BLOCKS_SUPER(s->format) ? 256 : BLOCKS_UNIT))
        return status_set(err, ROSE_INVALID, "moe_mlp: experts' rows of %d elements are not whole blocks", s->k);
    int64_t each = ceil_div(ceil_div(s->n, BLOCKS_TILE) * (s->k / BLOCKS_UNIT) * 32, THREADS);
    if (each * s->experts > INT32_MAX) return status_set(err, ROSE_UNSUPPORTED, "moe_mlp: a panel of %d experts is too large", s->experts);
    *out = (struct plan){.kernel = "moe_panel", .rows = 1, .times = (int32_t)(each * s->experts), .per = INT32_MAX, .block = THREADS, .tiles = true};
    plan_int(out, "FORMAT", s->format);
    plan_int(out, "COLUMNS", s->n);
    plan_int(out, "K", s->k);
    plan_int(out, "THREADS", THREADS);
    plan_element(out, s->f16);
    double elements = (double)s->n * s->k * s->experts;
    out->bytes = elements * (BLOCKS_UNIT_BYTES(s->format) / (double)(BLOCKS_TILE * BLOCKS_UNIT) + 2);
    out->ops = elements * 4;
    plan_stream(out, d, 0.1);
    return ROSE_OK;
}

/* ---- recording ---- */

/* The weights of a product, and their names. */
static int matrices_of(const struct op_moe_mlp *op, bool down, const struct op_weight *w[2], const char *name[2])
{
    w[0] = down ? op->down : op->gate, w[1] = op->up;
    name[0] = down ? "down" : "gate", name[1] = "up";
    return down ? 1 : 2;
}

/* The matrices of a product, all at one distance from expert to expert. */
static enum rose_status weights_of(const struct program *program, const struct op_moe_mlp *op, const struct moe_mlp_shape *s, bool down, const void *weight[2], const void *scale[2],
                                   int64_t *stride, struct rose_error *err)
{
    const struct op_weight *w[2];
    const char *name[2];
    int matrices = matrices_of(op, down, w, name);
    for (int i = 0; i < matrices; i++) {
        int64_t each;
        ROSE_TRY(moe_mlp_cuda_stride(program, name[i], w[i], s->experts, down ? s->hidden : s->ffn, down ? s->ffn : s->hidden, &each, err));
        if (i && each != *stride) return status_set(err, ROSE_INTERNAL, "moe_mlp: gate and up matrices of the experts lie at different distances");
        weight[i] = w[i]->data, *stride = each;
        if (scale) scale[i] = w[i]->scales;
    }
    return ROSE_OK;
}

enum rose_status moe_coded_record(struct program *program, const struct op_moe_mlp *op, const struct moe_mlp_shape *s, bool down, const struct moe_mlp_places *at,
                                  program_buffer_id x, program_buffer_id y, struct rose_error *err)
{
    struct plan plan;
    struct moe_coded_params p = {.bias = {down ? op->down_bias : op->gate_bias, down ? NULL : op->up_bias}, .x_stride = down ? s->ffn : op->x.stride};
    ROSE_TRY(weights_of(program, op, s, down, p.weight, p.scale, &p.weight_stride, err));
    ROSE_TRY(moe_coded_plan(s, down, &program->device->info, &plan, err));
    struct program_launch l = {.name = down ? "moe_down" : "moe_gate_up", .layer = op->layer, .params = &p, .params_bytes = sizeof p};
    ROSE_TRY(plan_record(&plan, program, op->x.rows, 0, &l, err));
    l.rows_param = 0;
    program_use(&l, x, PROGRAM_READ, offsetof(struct moe_coded_params, x));
    if (!down) {
        l.uses[l.uses_count - 1].byte_offset = (uint32_t)op->x.offset * 2;
        program_use(&l, at->source, PROGRAM_READ, offsetof(struct moe_coded_params, source));
    }
    program_use(&l, at->counts, PROGRAM_READ, offsetof(struct moe_coded_params, counts));
    program_use(&l, at->offsets, PROGRAM_READ, offsetof(struct moe_coded_params, offsets));
    program_use(&l, y, PROGRAM_WRITE, offsetof(struct moe_coded_params, y));
    program_add(program, &l);
    return ROSE_OK;
}

/* What decoding takes: microseconds of an SM for a step, 256 weight rows by 64 of k, by the tile's places. Fitted to the layers above, and to
 * T 1,024 of them (docs/facts.md): Q4_0 1.3 and 1.5, Q4_1 and Q8_0 1.6 and 1.65, MXFP4 1.6, Q4_K 1.6 and 1.85 to 2.2. */
static double blocks_wgmma_us(const struct moe_mlp_shape *s, bool down, int format, const struct device_info *d)
{
    const double small = format == BLOCKS_Q4_0 ? 1.3 : 1.6, large = format == BLOCKS_Q4_0 ? 1.5 : format == BLOCKS_Q4_K ? 1.9 : 1.65;
    double each = (double)s->tokens * s->top_k / s->experts, tiles = each <= s->tile / 2 ? 1 : each / s->tile + 0.5; /* the last of an expert is half full */
    double steps = (double)(down ? ceil_div(s->hidden, 256) * ceil_div(s->ffn, 64) : ceil_div(s->ffn, 128) * ceil_div(s->hidden, 64));
    return s->experts * tiles * steps / d->units * (s->tile == 64 ? small : large);
}

enum rose_status moe_blocks_wgmma_plan(const struct moe_mlp_shape *s, bool down, const struct device_info *d, struct plan *out, struct rose_error *err)
{
    int format = (down ? s->down_format : s->up_format) - 1, rows = s->tile, stage = (256 + rows) * 128, rest = rows * 256 + 8 * (s->experts + 1) + 256,
        room = d->shared_per_block ? (int)ROSE_MIN(d->shared_per_block, (size_t)1 << 20) : 227 << 10;
    if (format < 0 || format >= BLOCKS_FORMATS || (rows != 64 && rows != 128)) return status_set(err, ROSE_INTERNAL, "moe_mlp: experts in an unknown format");
    *out = (struct plan){.kernel = "moe_blocks_wgmma", .rows = s->tokens, .per = s->max_tokens, .times = d->units, .tiles = true, .block = 128 + (uint32_t)rows * 2};
    if (moe_mlp_cuda_places(s, d) / rows * (ROSE_MAX(s->hidden, s->ffn) / 128 + 1) > INT32_MAX)
        return status_set(err, ROSE_UNSUPPORTED, "moe_mlp: %d tokens of %d experts are too many tiles", s->max_tokens, s->top_k);
    plan_int(out, "EXPERTS", s->experts);
    plan_int(out, "TOP_K", s->top_k);
    plan_int(out, "N", down ? s->hidden : s->ffn);
    plan_int(out, "K", down ? s->ffn : s->hidden);
    plan_int(out, "GATED", !down);
    plan_int(out, "GATHER", !down);
    plan_int(out, "ACT", (int)s->activation);
    plan_int(out, "EXPERT_BIAS", down ? s->down_bias : s->gate_bias);
    plan_element(out, s->f16);
    plan_int(out, "FORMAT", format);
    plan_int(out, "ROWS", rows);
    plan_int(out, "STAGES", ROSE_MIN((room - rest) / stage, 6));
    out->shared_bytes = (uint32_t)(plan_get(out, "STAGES") * stage + rest);
    moe_coded_cost(s, down, d, out);
    out->predicted_us = ROSE_MAX(out->predicted_us, blocks_wgmma_us(s, down, format, d));
    return ROSE_OK;
}

enum rose_status moe_blocks_wgmma_record(struct program *program, const struct op_moe_mlp *op, const struct moe_mlp_shape *s, bool down, const struct moe_mlp_places *at,
                                         program_buffer_id x, program_buffer_id y, struct rose_error *err)
{
    struct plan plan;
    struct moe_blocks_wgmma_params p = {.t = {.bias = {down ? op->down_bias : op->gate_bias, down ? NULL : op->up_bias}, .x_stride = down ? s->ffn : op->x.stride}};
    ROSE_TRY(weights_of(program, op, s, down, p.weight, NULL, &p.weight_stride, err));
    ROSE_TRY(moe_blocks_wgmma_plan(s, down, &program->device->info, &plan, err));
    struct program_launch l = {.name = down ? "moe_down" : "moe_gate_up", .layer = op->layer, .params = &p, .params_bytes = sizeof p};
    ROSE_TRY(plan_record(&plan, program, op->x.rows, 0, &l, err));
    l.rows_param = 0;
    program_use(&l, x, PROGRAM_READ, offsetof(struct moe_blocks_wgmma_params, t.x));
    if (!down) {
        l.uses[l.uses_count - 1].byte_offset = (uint32_t)op->x.offset * 2;
        program_use(&l, at->source, PROGRAM_READ, offsetof(struct moe_blocks_wgmma_params, t.source));
    }
    program_use(&l, program_counters(program, "moe_tiles", 8), PROGRAM_UPDATE, offsetof(struct moe_blocks_wgmma_params, t.counter));
    program_use(&l, at->counts, PROGRAM_READ, offsetof(struct moe_blocks_wgmma_params, t.counts));
    program_use(&l, at->offsets, PROGRAM_READ, offsetof(struct moe_blocks_wgmma_params, t.offsets));
    program_use(&l, y, PROGRAM_WRITE, offsetof(struct moe_blocks_wgmma_params, t.y));
    program_add(program, &l);
    return ROSE_OK;
}

/* Experts [first, first + count) of one matrix to their places in the panel, from byte `at` on. */
static enum rose_status decode(struct program *program, const struct op_moe_mlp *op, const struct op_weight *w, int64_t weight_stride, int64_t panel_stride, int32_t first,
                               int32_t count, const struct moe_mlp_places *places, program_buffer_id panel, size_t at, struct rose_error *err)
{
    struct moe_panel_shape s = {.format = matmul_blocks_format(w->dtype), .n = w->n, .k = w->k, .experts = count, .f16 = value_f16(&op->x)};
    struct moe_panel_params p = {.weight = program->draft ? NULL : (const char *)w->data + first * weight_stride, .weight_stride = weight_stride, .y_stride = panel_stride,
                                 .experts = (uint32_t)count};
    struct program_launch l = {.name = "moe_decode", .layer = op->layer, .params = &p, .params_bytes = sizeof p};
    struct plan plan;
    ROSE_TRY(moe_panel_plan(&s, &program->device->info, &plan, err));
    ROSE_TRY(plan_record(&plan, program, EXTENT_ONE, 0, &l, err));
    l.rows_param = 0;
    program_use(&l, places->counts, PROGRAM_READ, offsetof(struct moe_panel_params, counts));
    l.uses[l.uses_count - 1].byte_offset = (uint32_t)first * 4;
    program_use(&l, panel, at ? PROGRAM_UPDATE : PROGRAM_WRITE, offsetof(struct moe_panel_params, y));
    l.uses[l.uses_count - 1].byte_offset = (uint32_t)at;
    program_add(program, &l);
    return ROSE_OK;
}

enum rose_status moe_panel_record(struct program *program, const struct op_moe_mlp *op, const struct moe_mlp_shape *s, bool down, const struct moe_mlp_places *at,
                                  program_buffer_id x, program_buffer_id y, struct rose_error *err)
{
    enum { PANEL_BYTES = 256 << 20 };
    const struct op_weight *w[2];
    const char *name[2];
    int matrices = matrices_of(op, down, w, name);
    int32_t n = down ? s->hidden : s->ffn, k = down ? s->ffn : s->hidden;
    int64_t each = (int64_t)size_round_up((size_t)n * (size_t)k * 2, 256), stride[2] = {0, 0};
    int32_t step = (int32_t)ROSE_MIN(ROSE_MAX(PANEL_BYTES / each / matrices, 1), (int64_t)s->experts);
    for (int i = 0; i < matrices; i++) {
        if (moe_coded_format(w[i]) == 1 + MOE_FP8)
            return status_set(err, ROSE_UNSUPPORTED, "moe_mlp: experts whose gate and up are of different types, one of them FP8, are not supported");
        ROSE_TRY(moe_mlp_cuda_stride(program, name[i], w[i], s->experts, n, k, &stride[i], err));
    }
    for (int32_t first = 0; first < s->experts; first += step) {
        int32_t count = ROSE_MIN(step, s->experts - first);
        program_buffer_id panel = program_buffer(program, "moe_panel", (size_t)(each * matrices) * (size_t)step);
        struct moe_mlp_matrices m = {.bias = {down ? op->down_bias : op->gate_bias, down ? NULL : op->up_bias}, .stride = each / 2, .first = first, .count = count, .panel = panel};
        for (int i = 0; i < matrices; i++) {
            size_t place = (size_t)i * (size_t)each * (size_t)step;
            m.weight[i] = (const char *)(uintptr_t)place;
            if (m.bias[i]) m.bias[i] += (int64_t)first * n;
            if (!moe_coded_format(w[i])) return status_set(err, ROSE_UNSUPPORTED, "moe_mlp: experts whose gate and up are of different types, one of them BF16, are not supported");
            ROSE_TRY(decode(program, op, w[i], stride[i], each, first, count, at, panel, place, err));
        }
        ROSE_TRY(moe_mlp_cuda_product(program, op, s, down, &m, at, x, y, err));
    }
    return ROSE_OK;
}
