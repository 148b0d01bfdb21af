#include "ops/moe_mlp_cuda.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "device/cuda.h"
#include "ops/dispatch_cuda.h"
#include "ops/moe_coded_cuda.h"
#include "ops/value.h"
#include "ops/weight_view.h"

enum { ONE_BLOCK_TOKENS = 8, PLACE_TOKENS = 256, FEW_TOKENS = 8, FEW_PICKS = 256, WGMMA_COLS = 256 };

struct moe_mlp_form moe_mlp_cuda_form(const struct moe_mlp_shape *s, const struct device_info *d)
{
    double each = (double)s->tokens * s->top_k / s->experts;
    if (s->up_format || s->down_format) return moe_coded_form(s, d);
    if (s->route && s->max_tokens <= FEW_TOKENS && s->max_tokens * s->top_k <= FEW_PICKS && plan_arch(d) >= 900 && !s->deterministic)
        return (struct moe_mlp_form){.kernel = MOE_MLP_FEW, .tile = 1};
    /* wgmma adds up in another order: deterministic steps have one kernel for any number of rows. From 12 rows an expert on it is the faster one
     * (Qwen3-30B-A3B, 256 sequences: 13,506 -> 13,659 tok/s in turn). */
    if (plan_arch(d) == 900 && !s->deterministic && each > 12) return (struct moe_mlp_form){.kernel = MOE_MLP_WGMMA, .tile = each <= 40 ? 64 : 128};
    return (struct moe_mlp_form){.kernel = MOE_MLP_GROUP, .tile = each <= 10 ? 16 : each <= 24 ? 32 : each <= 64 ? 64 : 128};
}

int64_t moe_mlp_cuda_places(const struct moe_mlp_shape *s, const struct device_info *d)
{
    int64_t picks = (int64_t)s->max_tokens * s->top_k;
    return picks + ROSE_MIN(picks, (int64_t)(s->panel ? s->panel : s->experts)) * ((s->tile ? s->tile : moe_mlp_cuda_form(s, d).tile) - 1);
}

/* Experts that have tokens, when each token picks evenly. */
static double touched(const struct moe_mlp_shape *s)
{
    return (s->panel ? s->panel : s->experts) * (1 - pow(1 - (double)s->top_k / s->experts, s->tokens));
}

static int shared_of(const struct device_info *d, bool block)
{
    size_t bytes = block ? d->shared_per_block : d->shared_per_unit;
    return bytes ? (int)ROSE_MIN(bytes, (size_t)1 << 20) : 99 << 10;
}

static enum rose_status check_shape(const struct moe_mlp_shape *s, struct rose_error *err)
{
    if (s->hidden < 8 || s->ffn < 8 || s->hidden % 8 || s->ffn % 8)
        return status_set(err, ROSE_UNSUPPORTED, "moe_mlp: experts of %d by %d; the CUDA kernels take multiples of 8", s->ffn, s->hidden);
    if (s->experts < 1 || s->experts > 1024 || s->top_k < 1 || s->top_k > 32 || s->tokens < 1 || s->max_tokens < s->tokens)
        return status_set(err, ROSE_UNSUPPORTED, "moe_mlp: %d of %d experts, %d of %d tokens; the CUDA kernels take at most 32 of 1024 experts", s->top_k,
                          s->experts, s->tokens, s->max_tokens);
    return ROSE_OK;
}

/* Bytes, operations and the time they take: the weights of the touched experts stream, or the tensor cores are busy. */
static void cost(const struct moe_mlp_shape *s, bool down, enum moe_mlp_kernel kernel, const struct device_info *d, struct plan *out)
{
    /* bf16 operations a cycle and SM (white papers of the architectures), and what part of them the kernels reach: 0.37 and 0.65
     * were measured on an H200, the others are guesses. */
    int arch = plan_arch(d);
    double peak = (arch >= 1200 || arch == 890 ? 1024 : arch >= 1000 ? 8192 : arch >= 900 ? 4096 : 2048) * d->units * 1.7e3,
           part = kernel == MOE_MLP_WGMMA ? 0.65 : arch == 1000 ? 0.18 : arch == 900 ? 0.37 : 0.7;
    double n = down ? s->hidden : s->ffn, k = down ? s->ffn : s->hidden, matrix = n * k * (down ? 1 : 2),
           picks = (double)s->tokens * s->top_k * (s->panel ? (double)s->panel / s->experts : 1);
    out->bytes = 2 * (touched(s) * matrix + picks * n + (down ? picks : s->tokens) * k);
    out->ops = 2 * picks * matrix;
    plan_stream(out, d, 2.0);
    out->limit_us = ROSE_MAX(out->limit_us, out->ops / peak);
    out->predicted_us = ROSE_MAX(out->predicted_us, out->ops / (peak * part));
}

/* How experts are chosen: moe_router.cuh. */
static void choice_constants(struct plan *p, const struct moe_cuda_shape *s, int32_t pad)
{
    bool groups = s->groups > 1 && s->top_groups < s->groups;
    plan_int(p, "SCORE", s->score == OP_MOE_SOFTMAX ? 0 : s->score == OP_MOE_SIGMOID ? 1 : 2);
    plan_int(p, "BIAS", s->bias);
    plan_int(p, "GROUPS", groups ? s->groups : 0);
    plan_int(p, "TOP_GROUPS", groups ? s->top_groups : 0);
    plan_int(p, "NORMALIZE", s->normalize);
    plan_f32(p, "SCALE", s->scale != 0 ? s->scale : 1.0f);
    plan_int(p, "PAD", ROSE_MAX(pad, 1));
}
static void router_constants(struct plan *p, const struct moe_cuda_shape *s, int32_t pad)
{
    plan_int(p, "EXPERTS", s->experts);
    plan_int(p, "TOP_K", s->top_k);
    choice_constants(p, s, pad);
}

static void constants(struct plan *out, const struct moe_mlp_shape *s, bool down)
{
    plan_int(out, "EXPERTS", s->panel ? s->panel : s->experts);
    plan_int(out, "TOP_K", s->top_k);
    plan_int(out, "N", down ? s->hidden : s->ffn);
    plan_int(out, "K", down ? s->ffn : s->hidden);
    plan_int(out, "GATED", !down);
    plan_int(out, "ACT", (int)s->activation);
    plan_int(out, "EXPERT_BIAS", down ? s->down_bias : s->gate_bias);
    plan_element(out, s->f16);
}

/* One kernel serves a class of steps: those of one, of at most 4 and of at most 8 tokens. A stage has 16 rows of all k, or of as
 * large a part as lets three fit (the first product, whose units are large: four). */
static void plan_few(const struct moe_mlp_shape *s, bool down, const struct device_info *d, struct plan *out)
{
    int32_t n = down ? s->hidden : s->ffn, k = down ? s->ffn : s->hidden, most = s->max_tokens <= 1 ? 1 : s->max_tokens <= 4 ? 4 : 8, chunk, pieces = 1, stage;
    /* A block of the first takes more than half of an SM, so that each SM has one; the rest is the second's, which fills its
     * stages while the first still runs. A block has 1 KB beside what it asks for. */
    int unit = shared_of(d, false), first = unit * 5 / 8, budget = ROSE_MIN(down ? unit - first : first, shared_of(d, true)) - 1024,
        fixed = (down ? 8 * most * 64 : 2 * 8 * 512) + most * s->top_k * 28 + 9 * s->top_k * 16 + 512, room = budget - fixed, least = down ? 3 : 4;
    do {
        chunk = ((k + pieces - 1) / pieces + 31) / 32 * 32;
        stage = 16 * chunk * 2;
        pieces++;
    } while (stage * least > room && chunk > 128);
    *out = (struct plan){.kernel = "moe_few", .rows = s->tokens, .per = s->max_tokens, .tiles = true};
    constants(out, s, down);
    plan_int(out, "MAX_TOKENS", most);
    plan_int(out, "CHUNK", chunk);
    plan_int(out, "STAGES", ROSE_MAX(2, ROSE_MIN(room / stage, 16)));
    plan_int(out, "ACCUMULATE", down && s->accumulate);
    plan_f32(out, "ALPHA", down && s->alpha != 0 ? s->alpha : 1.0f);
    choice_constants(out, s->route, 1);
    out->times = down ? (n + 15) / 16 : d->units;
    out->block = 9 * 32;
    out->shared_bytes = (uint32_t)(plan_get(out, "STAGES") * stage);
    /* A first that needs less takes it all the same. */
    if (!down && (int)out->shared_bytes < unit / 2) out->shared_bytes = (uint32_t)ROSE_MIN(unit / 2, room);
}

/* The same for weights as their file has them: a stage has a unit's chunks of k, or a piece of them. */
static void plan_few_coded(const struct moe_mlp_shape *s, bool down, const struct device_info *d, struct plan *out)
{
    int32_t n = down ? s->hidden : s->ffn, k = down ? s->ffn : s->hidden, most = s->max_tokens <= 1 ? 1 : s->max_tokens <= 4 ? 4 : 8, pieces = 1;
    int format = (down ? s->down_format : s->up_format) - 1, step = format == MOE_FP8 ? 128 : 256, sets = format == MOE_FP8 || down ? 1 : 2;
    int each = moe_coded_chunk_bytes(format) * sets, chunks = (k + step - 1) / step, piece = chunks, least = down ? 3 : 4;
    int unit = shared_of(d, false), first = unit * 5 / 8, budget = ROSE_MIN(down ? unit - first : first, shared_of(d, true)) - 1024,
        fixed = (down ? 8 * most * 64 : 2 * 8 * sets * 512) + (format == MOE_FP8 ? 128 : 8192) + most * s->top_k * 28 + 9 * s->top_k * 16 + 512, room = budget - fixed;
    while (each * piece * least > room && piece > 1) piece = (chunks + pieces) / (pieces + 1), pieces++;
    *out = (struct plan){.kernel = "moe_few_coded", .rows = s->tokens, .per = s->max_tokens, .tiles = true};
    constants(out, s, down);
    plan_int(out, "MAX_TOKENS", most);
    plan_int(out, "FORMAT", format);
    plan_int(out, "SCALES", down ? s->down_scales : s->up_scales);
    plan_int(out, "PIECE", piece);
    plan_int(out, "STAGES", ROSE_MAX(2, ROSE_MIN(room / (each * piece), 16)));
    plan_int(out, "ACCUMULATE", down && s->accumulate);
    plan_f32(out, "ALPHA", down && s->alpha != 0 ? s->alpha : 1.0f);
    choice_constants(out, s->route, 1);
    out->times = down ? (n + 15) / 16 : d->units;
    out->block = 9 * 32;
    out->shared_bytes = (uint32_t)(plan_get(out, "STAGES") * each * piece);
    if (!down && (int)out->shared_bytes < unit / 2) out->shared_bytes = (uint32_t)ROSE_MIN(unit / 2, room); /* one block an SM, as above */
}

static enum rose_status plan_group(const struct moe_mlp_shape *s, bool down, int32_t rows, const struct device_info *d, struct plan *out,
                                   struct rose_error *err)
{
    int32_t n = down ? s->hidden : s->ffn, cols = 128, columns = down ? cols : cols / 2;
    *out = (struct plan){.kernel = "moe_group", .rows = s->tokens, .per = s->max_tokens, .tiles = true};
    /* Few experts: half as wide, so that every SM has a tile. */
    if (rows == 16 && touched(s) * n / columns < 2.5 * d->units) cols = 64, columns /= 2;
    int warps_rows = rows > 64 ? 2 : 1, stage = (cols + rows) * 128, blocks = cols == 64 ? 4 : 2, stages = shared_of(d, false) / blocks / stage;
    if (stages < 3) stages = shared_of(d, true) / stage, blocks = 1;
    stages = ROSE_MAX(2, ROSE_MIN(stages, 6));
    int64_t tiles = moe_mlp_cuda_places(s, d) / rows * ((n + columns - 1) / columns);
    if (tiles > INT32_MAX)
        return status_set(err, ROSE_UNSUPPORTED, "moe_mlp: %d tokens of %d experts are more tiles than a grid has", s->max_tokens, s->top_k);
    constants(out, s, down);
    plan_int(out, "GATHER", !down);
    plan_int(out, "ROWS", rows);
    plan_int(out, "COLS", cols);
    plan_int(out, "STAGES", stages);
    plan_int(out, "WARPS_C", 4);
    plan_int(out, "WARPS_R", warps_rows);
    plan_int(out, "BLOCKS", blocks);
    out->times = (int32_t)tiles;
    out->block = 128 * (uint32_t)warps_rows;
    out->shared_bytes = (uint32_t)(stages * stage);
    return ROSE_OK;
}

/* One persistent block an SM; shared memory: stages, the warps' results, barriers, offsets and counts. */
static enum rose_status plan_wgmma(const struct moe_mlp_shape *s, bool down, int32_t rows, const struct device_info *d, struct plan *out,
                                   struct rose_error *err)
{
    int stage = (WGMMA_COLS + rows) * 128, rest = rows * 256 + 8 * (s->experts + 1) + 256,
        room = d->shared_per_block ? shared_of(d, true) : 227 << 10, stages = ROSE_MIN((room - rest) / stage, 6);
    if (moe_mlp_cuda_places(s, d) / rows * (ROSE_MAX(s->hidden, s->ffn) / 128 + 1) > INT32_MAX)
        return status_set(err, ROSE_UNSUPPORTED, "moe_mlp: %d tokens of %d experts are too many tiles", s->max_tokens, s->top_k);
    *out = (struct plan){.kernel = "moe_wgmma", .rows = s->tokens, .per = s->max_tokens, .tiles = true};
    constants(out, s, down);
    plan_int(out, "GATHER", !down);
    plan_int(out, "ROWS", rows);
    plan_int(out, "STAGES", stages);
    out->times = d->units;
    out->block = 128 * (uint32_t)(1 + rows / 64);
    out->shared_bytes = (uint32_t)(stages * stage + rest);
    return ROSE_OK;
}

void moe_mlp_cuda_box(const struct moe_mlp_shape *s, bool down, int64_t stride, struct layout_tma *out)
{
    int64_t n = down ? s->hidden : s->ffn, k = down ? s->ffn : s->hidden;
    *out = (struct layout_tma){.rank = 3,
                               .dim = {k, n, s->panel ? s->panel : s->experts},
                               .stride_bytes = {2, k * 2, stride * 2},
                               .box = {64, down ? WGMMA_COLS : WGMMA_COLS / 2, 1},
                               .swizzle_bytes = 128};
}

enum rose_status moe_mlp_cuda_plan(const struct moe_mlp_shape *s, bool down, const struct device_info *d, struct plan *out, struct rose_error *err)
{
    ROSE_TRY(check_shape(s, err));
    struct moe_mlp_form form = moe_mlp_cuda_form(s, d);
    if (form.kernel == MOE_MLP_FEW && s->up_format) {
        plan_few_coded(s, down, d, out);
        moe_coded_cost(s, down, d, out);
        return ROSE_OK;
    }
    switch (form.kernel) {
    case MOE_MLP_FEW: plan_few(s, down, d, out); break;
    case MOE_MLP_GROUP: ROSE_TRY(plan_group(s, down, form.tile, d, out, err)); break;
    case MOE_MLP_WGMMA: ROSE_TRY(plan_wgmma(s, down, form.tile, d, out, err)); break;
    }
    cost(s, down, form.kernel, d, out);
    return ROSE_OK;
}

enum rose_status moe_mlp_cuda_plan_route(const struct moe_cuda_shape *s, const struct device_info *d,
                                         struct moe_mlp_route *out, struct rose_error *err)
{
    enum { PICK_THREADS = 128 };
    struct moe_cuda_shape any = *s;
    struct moe_cuda_dispatch dispatch;
    any.hidden = 8;
    ROSE_TRY(moe_cuda_plan_dispatch(&any, d, &dispatch, err)); /* for its checks */
    bool one = s->tokens <= ONE_BLOCK_TOKENS;
    *out = (struct moe_mlp_route){.launches = one ? 1 : 2};
    if (s->tokens > PLACE_TOKENS) {
        enum { SPREAD_THREADS = 256 };
        any.tokens = ROSE_MAX(s->tokens, MOE_CUDA_BARRIER_TOKENS + 1);
        ROSE_TRY(moe_cuda_plan_dispatch(&any, d, &dispatch, err));
        out->launch[0] = dispatch.launch[0];
        out->block_tokens = dispatch.block_tokens;
        struct plan *spread = &out->launch[1];
        *spread = (struct plan){.kernel = "moe_spread", .rows = s->tokens, .times = s->top_k, .per = SPREAD_THREADS};
        plan_int(spread, "EXPERTS", s->experts);
        plan_int(spread, "TOP_K", s->top_k);
        plan_int(spread, "THREADS", SPREAD_THREADS);
        plan_int(spread, "BLOCK_TOKENS", out->block_tokens);
        spread->block = SPREAD_THREADS;
        spread->bytes = (double)s->tokens * s->top_k * 20.0;
        plan_stream(spread, d, 1.0);
        return ROSE_OK;
    }
    if (!one) {
        struct plan *pick = &out->launch[0];
        *pick = (struct plan){.kernel = "moe_pick", .rows = s->tokens, .times = 1, .per = PICK_THREADS / 32};
        router_constants(pick, s, 1); /* it makes no places */
        plan_int(pick, "THREADS", PICK_THREADS);
        pick->block = PICK_THREADS;
        pick->bytes = (double)s->tokens * (4.0 * s->experts + 8.0 * s->top_k);
        plan_stream(pick, d, 0.7 + 0.045 * s->top_k);
    }
    struct plan *place = &out->launch[out->launches - 1];
    int warps = ROSE_MAX(1, ROSE_MIN(32, 36864 / 4 / s->experts));
    if (one) warps = ROSE_MIN(warps, ROSE_MAX(4, s->tokens));
    *place = (struct plan){.kernel = "moe_place", .rows = s->tokens, .times = 1, .per = INT32_MAX, .tiles = true};
    router_constants(place, s, s->pad);
    plan_int(place, "THREADS", warps * 32);
    plan_int(place, "ROUTE", one);
    place->block = (uint32_t)warps * 32;
    place->bytes = (double)s->tokens * (12.0 * s->top_k + (one ? 4.0 * s->experts + 4.0 * s->top_k : 0)) + 12.0 * s->experts;
    double picks = (double)s->tokens * s->top_k;
    plan_stream(place, d, (one ? (0.7 + 0.045 * s->top_k) * ceil((double)s->tokens / warps) : 0) + 1.5 + picks / warps / 32 * 0.1);
    return ROSE_OK;
}

/* ---- recording ---- */

/* Tokens that a buffer of top_k entries of 4 bytes each holds. */
static int32_t tokens_of(const struct program *program, program_buffer_id ids, int32_t top_k)
{
    return (int32_t)ROSE_MIN(program->buffers[ids].bytes / 4 / (size_t)top_k, (size_t)INT32_MAX);
}

/* What op_moe_mlp needs of the route. */
static struct moe_mlp_places make_places(struct program *program, const struct moe_mlp_shape *s)
{
    size_t experts = (size_t)s->experts, picks = (size_t)s->max_tokens * (size_t)s->top_k;
    return (struct moe_mlp_places){.position = program_buffer(program, "moe_position", picks * 4),
                           .counts = program_buffer(program, "moe_counts", experts * 4),
                           .offsets = program_buffer(program, "moe_offsets", experts * 4 + 4),
                           .source = program_buffer(program, "moe_source", (size_t)moe_mlp_cuda_places(s, &program->device->info) * 4)};
}

static struct moe_cuda_shape route_shape(const struct op_moe_route *op, int32_t tokens, int32_t pad)
{
    return (struct moe_cuda_shape){.tokens = tokens,
                                   .experts = op->experts,
                                   .top_k = op->top_k,
                                   .pad = pad,
                                   .score = op->score,
                                   .normalize = op->normalize,
                                   .bias = op->selection_bias != NULL,
                                   .scale = op->scale,
                                   .groups = op->groups,
                                   .top_groups = op->top_groups};
}

/* moe_route, then moe_spread. */
static enum rose_status record_many(struct program *program, const struct op_moe_route *op, const struct moe_mlp_route *plan,
                                    const struct moe_mlp_shape *s, struct rose_error *err)
{
    struct moe_mlp_places at = make_places(program, s);
    size_t blocks = ((size_t)s->max_tokens + (size_t)plan->block_tokens - 1) / (size_t)plan->block_tokens;
    program_buffer_id base = program_buffer(program, "moe_block_base", blocks * (size_t)s->experts * 4),
                      rank = program_buffer(program, "moe_rank", (size_t)s->max_tokens * (size_t)s->top_k * 4);
    struct moe_dispatch_params r = {.bias = op->selection_bias, .logits_stride = op->logits.stride};
    struct program_launch l = {.name = "moe_route", .layer = op->layer, .params = &r, .params_bytes = sizeof r};
    ROSE_TRY(plan_record(&plan->launch[0], program, op->logits.rows, offsetof(struct moe_dispatch_params, tokens), &l, err));
    value_use(&l, &op->logits, PROGRAM_READ, offsetof(struct moe_dispatch_params, logits));
    program_use(&l, op->ids, PROGRAM_WRITE, offsetof(struct moe_dispatch_params, ids));
    program_use(&l, op->weights, PROGRAM_WRITE, offsetof(struct moe_dispatch_params, weights));
    program_use(&l, rank, PROGRAM_WRITE, offsetof(struct moe_dispatch_params, position));
    program_use(&l, at.counts, PROGRAM_WRITE, offsetof(struct moe_dispatch_params, counts));
    program_use(&l, at.offsets, PROGRAM_WRITE, offsetof(struct moe_dispatch_params, offsets));
    program_use(&l, base, PROGRAM_WRITE, offsetof(struct moe_dispatch_params, block_base));
    program_use(&l, program_counters(program, "moe_done", 8), PROGRAM_UPDATE, offsetof(struct moe_dispatch_params, barrier));
    program_add(program, &l);

    struct moe_place_params p = {0};
    l = (struct program_launch){.name = "moe_place", .layer = op->layer, .params = &p, .params_bytes = sizeof p};
    ROSE_TRY(plan_record(&plan->launch[1], program, op->logits.rows, offsetof(struct moe_place_params, tokens), &l, err));
    program_use(&l, op->ids, PROGRAM_READ, offsetof(struct moe_place_params, ids));
    program_use(&l, rank, PROGRAM_READ, offsetof(struct moe_place_params, rank));
    program_use(&l, at.position, PROGRAM_WRITE, offsetof(struct moe_place_params, position));
    program_use(&l, at.counts, PROGRAM_READ, offsetof(struct moe_place_params, counts));
    program_use(&l, at.offsets, PROGRAM_READ, offsetof(struct moe_place_params, offsets));
    program_use(&l, at.source, PROGRAM_WRITE, offsetof(struct moe_place_params, source));
    program_use(&l, base, PROGRAM_READ, offsetof(struct moe_place_params, block_base));
    program_add(program, &l);
    return ROSE_OK;
}

enum rose_status moe_mlp_cuda_route(struct program *program, const struct op_moe_route *op, struct rose_error *err)
{
    const struct op_value *x = &op->logits;
    int32_t tokens = (int32_t)ROSE_MIN(plan_rows(program, x->rows), (int64_t)INT32_MAX), max = tokens_of(program, op->ids, op->top_k);
    if (tokens > max)
        return status_set(err, ROSE_INVALID, "moe_route: the program expects %d rows and its buffers hold %d", tokens, max);
    struct moe_mlp_shape places = {.tokens = tokens, .max_tokens = max, .experts = op->experts, .top_k = op->top_k, .deterministic = op->deterministic, .tile = op->pad};
    struct moe_cuda_shape s = route_shape(op, tokens, op->pad ? op->pad : moe_mlp_cuda_form(&places, &program->device->info).tile);
    struct moe_mlp_route plan;
    ROSE_TRY(moe_mlp_cuda_plan_route(&s, &program->device->info, &plan, err));
    if (plan.block_tokens) return record_many(program, op, &plan, &places, err);
    if (plan.launches == 2) {
        struct moe_pick_params p = {.bias = op->selection_bias, .logits_stride = x->stride};
        struct program_launch l = {.name = "moe_route", .layer = op->layer, .params = &p, .params_bytes = sizeof p};
        ROSE_TRY(plan_record(&plan.launch[0], program, x->rows, offsetof(struct moe_pick_params, tokens), &l, err));
        value_use(&l, x, PROGRAM_READ, offsetof(struct moe_pick_params, logits));
        program_use(&l, op->ids, PROGRAM_WRITE, offsetof(struct moe_pick_params, ids));
        program_use(&l, op->weights, PROGRAM_WRITE, offsetof(struct moe_pick_params, weights));
        program_add(program, &l);
    }
    bool routes = plan.launches == 1;
    struct moe_mlp_places at = make_places(program, &places);
    struct moe_place_params p = {.bias = op->selection_bias, .logits_stride = x->stride};
    struct program_launch l = {.name = "moe_place", .layer = op->layer, .params = &p, .params_bytes = sizeof p};
    ROSE_TRY(plan_record(&plan.launch[plan.launches - 1], program, x->rows, offsetof(struct moe_place_params, tokens), &l, err));
    if (routes) value_use(&l, x, PROGRAM_READ, offsetof(struct moe_place_params, logits));
    program_use(&l, op->ids, routes ? PROGRAM_WRITE : PROGRAM_READ, offsetof(struct moe_place_params, ids));
    if (routes) program_use(&l, op->weights, PROGRAM_WRITE, offsetof(struct moe_place_params, weights));
    program_use(&l, at.position, PROGRAM_WRITE, offsetof(struct moe_place_params, position));
    program_use(&l, at.counts, PROGRAM_WRITE, offsetof(struct moe_place_params, counts));
    program_use(&l, at.offsets, PROGRAM_WRITE, offsetof(struct moe_place_params, offsets));
    program_use(&l, at.source, PROGRAM_WRITE, offsetof(struct moe_place_params, source));
    program_add(program, &l);
    return ROSE_OK;
}

/* What the route that wrote (or read) these ids keeps at `param` of its moe_place. */
static program_buffer_id place_buffer(const struct program *program, program_buffer_id ids, size_t param)
{
    for (int i = program->count - 1; i >= 0; i--) {
        const struct program_launch *l = &program->entries[i].launch;
        program_buffer_id found = 0;
        bool same = false;
        if (strcmp(l->name, "moe_place")) continue;
        for (int u = 0; u < l->uses_count; u++) {
            same |= l->uses[u].buffer == ids && l->uses[u].param == offsetof(struct moe_place_params, ids);
            if (l->uses[u].param == param) found = l->uses[u].buffer;
        }
        if (same) return found;
    }
    return 0;
}

enum rose_status moe_mlp_cuda_stride(const struct program *program, const char *what, const struct op_weight *w, int32_t experts, int32_t n, int32_t k, int64_t *stride,
                                     struct rose_error *err)
{
    int64_t least = w && w->layout != WEIGHT_LAYOUT_CUDA_ROWS ? (int64_t)w->bytes : (int64_t)n * k * 2, step = experts > 1 && w ? (const char *)w[1].data - (const char *)w[0].data : least;
    for (int32_t e = 0; e < experts; e++) {
        if (!w || moe_coded_format(&w[e]) < 0 || (!w[e].data && !program->draft))
            return status_set(err, ROSE_UNSUPPORTED, "moe_mlp: %s %d is not packed for CUDA", what, e);
        if (w[e].n != n || w[e].k != k || moe_coded_format(&w[e]) != moe_coded_format(w) || w[e].scales_kind != w->scales_kind)
            return status_set(err, ROSE_INTERNAL, "moe_mlp: %s %d is [%d, %d], expected [%d, %d] in the first one's format", what, e, w[e].n, w[e].k, n, k);
        if (program->draft) continue; /* they have no places yet */
        if ((const char *)w[e].data - (const char *)w[0].data != e * step || step < least || step % 16)
            return status_set(err, ROSE_INTERNAL,
                              "moe_mlp: %s %d does not lie at a constant distance behind the experts before it; the loader has to pack all "
                              "experts' %s matrices one behind the other",
                              what, e, what);
    }
    *stride = step;
    return ROSE_OK;
}

static enum rose_status find_matrices(const struct program *program, const struct op_moe_mlp *op, const struct moe_mlp_shape *s, bool down,
                                      struct moe_mlp_matrices *out, struct rose_error *err)
{
    int64_t step = 0, other = 0;
    *out = (struct moe_mlp_matrices){.weight = {op->gate->data, NULL}, .bias = {op->gate_bias, op->up_bias}, .count = s->experts};
    if (down) {
        ROSE_TRY(moe_mlp_cuda_stride(program, "down", op->down, s->experts, s->hidden, s->ffn, &step, err));
        *out = (struct moe_mlp_matrices){.weight = {op->down->data, NULL}, .bias = {op->down_bias, NULL}, .stride = step / 2, .count = s->experts};
        return ROSE_OK;
    }
    ROSE_TRY(moe_mlp_cuda_stride(program, "gate", op->gate, s->experts, s->ffn, s->hidden, &step, err));
    ROSE_TRY(moe_mlp_cuda_stride(program, "up", op->up, s->experts, s->ffn, s->hidden, &other, err));
    if (other != step)
        return status_set(err, ROSE_INTERNAL, "moe_mlp: gate and up matrices of the experts lie at different distances");
    out->weight[1] = op->up->data, out->stride = step / 2;
    return ROSE_OK;
}

static const char *name_of(bool down)
{
    return down ? "moe_down" : "moe_gate_up";
}

/* The pointer to a matrix that lies in a panel. */
static void panel_use(struct program_launch *l, const struct moe_mlp_matrices *m, int i, size_t param)
{
    program_use(l, m->panel, PROGRAM_READ, param);
    l->uses[l->uses_count - 1].byte_offset = (uint32_t)(m->weight[i] - m->weight[0]);
}
/* Counts and offsets of the matrices' experts. */
static void places_use(struct program_launch *l, const struct moe_mlp_places *at, const struct moe_mlp_matrices *m, size_t counts, size_t offsets)
{
    program_use(l, at->counts, PROGRAM_READ, counts);
    l->uses[l->uses_count - 1].byte_offset = (uint32_t)m->first * 4;
    program_use(l, at->offsets, PROGRAM_READ, offsets);
    l->uses[l->uses_count - 1].byte_offset = (uint32_t)m->first * 4;
}

static enum rose_status record_group(struct program *program, const struct op_moe_mlp *op, const struct moe_mlp_shape *s, bool down, const struct moe_mlp_matrices *m,
                                     const struct moe_mlp_places *at, program_buffer_id x, program_buffer_id y, struct rose_error *err)
{
    struct plan plan;
    ROSE_TRY(moe_mlp_cuda_plan(s, down, &program->device->info, &plan, err));
    struct moe_group_params p = {.weight = {m->weight[0], m->weight[1]},
                                 .bias = {m->bias[0], m->bias[1]},
                                 .x_stride = down ? s->ffn : op->x.stride,
                                 .weight_stride = m->stride};
    struct program_launch l = {.name = name_of(down), .layer = op->layer, .params = &p, .params_bytes = sizeof p};
    ROSE_TRY(plan_record(&plan, program, op->x.rows, 0, &l, err));
    l.rows_param = 0;
    program_use(&l, x, PROGRAM_READ, offsetof(struct moe_group_params, x));
    if (!down) {
        l.uses[l.uses_count - 1].byte_offset = (uint32_t)op->x.offset * 2;
        program_use(&l, at->source, PROGRAM_READ, offsetof(struct moe_group_params, source));
    }
    places_use(&l, at, m, offsetof(struct moe_group_params, counts), offsetof(struct moe_group_params, offsets));
    for (int i = 0; i < (down ? 1 : 2) && m->panel; i++) panel_use(&l, m, i, offsetof(struct moe_group_params, weight) + (size_t)i * sizeof(void *));
    program_use(&l, y, m->panel ? PROGRAM_UPDATE : PROGRAM_WRITE, offsetof(struct moe_group_params, y)); /* a panel's is a part */
    program_add(program, &l);
    return ROSE_OK;
}

/* y is the op's own where down, else the experts' inner rows. */
static enum rose_status record_few(struct program *program, const struct op_moe_mlp *op, const struct moe_mlp_shape *s, bool down, program_buffer_id inner,
                                   struct rose_error *err)
{
    struct plan plan;
    struct moe_mlp_matrices m;
    ROSE_TRY(find_matrices(program, op, s, down, &m, err));
    ROSE_TRY(moe_mlp_cuda_plan(s, down, &program->device->info, &plan, err));
    bool coded = s->up_format != 0;
    struct moe_few_coded_params p = {.f = {.route_bias = op->route->selection_bias,
                                           .weight = {m.weight[0], m.weight[1]},
                                           .bias = {m.bias[0], m.bias[1]},
                                           .logits_stride = op->route->logits.stride,
                                           .x_stride = down ? s->ffn : op->x.stride,
                                           .y_stride = down ? op->y.stride : s->ffn,
                                           .weight_stride = coded ? m.stride * 2 : m.stride},
                                     .scale = {down ? op->down->scales : op->gate->scales, op->up->scales}};
    struct program_launch l = {.name = name_of(down), .layer = op->layer, .params = &p, .params_bytes = coded ? sizeof p : sizeof p.f};
    ROSE_TRY(plan_record(&plan, program, op->x.rows, offsetof(struct moe_few_params, tokens), &l, err));
    value_use(&l, &op->route->logits, PROGRAM_READ, offsetof(struct moe_few_params, logits));
    if (down) {
        program_use(&l, inner, PROGRAM_READ, offsetof(struct moe_few_params, x));
        value_use(&l, &op->y, op->accumulate ? PROGRAM_UPDATE : PROGRAM_WRITE, offsetof(struct moe_few_params, y));
    } else {
        program_use(&l, op->ids, PROGRAM_WRITE, offsetof(struct moe_few_params, ids));
        program_use(&l, op->weights, PROGRAM_WRITE, offsetof(struct moe_few_params, chosen));
        value_use(&l, &op->x, PROGRAM_READ, offsetof(struct moe_few_params, x));
        program_use(&l, inner, PROGRAM_WRITE, offsetof(struct moe_few_params, y));
    }
    program_add(program, &l);
    return ROSE_OK;
}

/* Params of moe_wgmma in a program: where a panel lies is known when the program is finished. */
struct wgmma_launch {
    struct moe_wgmma_params p;
    const char *panel; /* from here on behind what the kernel gets */
    struct layout_tma box;
    size_t second; /* the up matrices behind the gates, bytes */
    int maps;
};
static enum rose_status wgmma_ready(struct device *device, void *params, struct rose_error *err)
{
    struct wgmma_launch l;
    memcpy(&l, params, sizeof l); /* an arena does not align to 64 */
    for (int i = 0; i < l.maps; i++) ROSE_TRY(cuda_tensor_map(device, &l.box, 2, (void *)(uintptr_t)(l.panel + (i ? l.second : 0)), &l.p.weight[i], err));
    memcpy(params, &l, sizeof l);
    return ROSE_OK;
}

static enum rose_status record_wgmma(struct program *program, const struct op_moe_mlp *op, const struct moe_mlp_shape *s, bool down, const struct moe_mlp_matrices *m,
                                     const struct moe_mlp_places *at, program_buffer_id x, program_buffer_id y, struct rose_error *err)
{
    struct plan plan;
    struct wgmma_launch w = {.p = {.bias = {m->bias[0], m->bias[1]}, .x_stride = down ? s->ffn : op->x.stride}, .maps = down ? 1 : 2};
    ROSE_TRY(moe_mlp_cuda_plan(s, down, &program->device->info, &plan, err));
    moe_mlp_cuda_box(s, down, m->stride, &w.box);
    if (w.maps > 1) w.second = (size_t)(m->weight[1] - m->weight[0]);
    for (int i = 0; i < w.maps && !program->draft && !m->panel; i++)
        ROSE_TRY(cuda_tensor_map(program->device, &w.box, 2, (void *)(uintptr_t)m->weight[i], &w.p.weight[i], err));
    struct program_launch l = {.name = name_of(down), .layer = op->layer, .params = &w, .params_bytes = m->panel ? sizeof w : sizeof w.p, .ready = m->panel ? wgmma_ready : NULL};
    ROSE_TRY(plan_record(&plan, program, op->x.rows, 0, &l, err));
    l.rows_param = 0;
    program_use(&l, x, PROGRAM_READ, offsetof(struct moe_wgmma_params, x));
    if (!down) {
        l.uses[l.uses_count - 1].byte_offset = (uint32_t)op->x.offset * 2;
        program_use(&l, at->source, PROGRAM_READ, offsetof(struct moe_wgmma_params, source));
    }
    if (m->panel) program_use(&l, m->panel, PROGRAM_READ, offsetof(struct wgmma_launch, panel));
    program_use(&l, program_counters(program, "moe_tiles", 8), PROGRAM_UPDATE, offsetof(struct moe_wgmma_params, counter));
    places_use(&l, at, m, offsetof(struct moe_wgmma_params, counts), offsetof(struct moe_wgmma_params, offsets));
    program_use(&l, y, m->panel ? PROGRAM_UPDATE : PROGRAM_WRITE, offsetof(struct moe_wgmma_params, y));
    program_add(program, &l);
    return ROSE_OK;
}

enum rose_status moe_mlp_cuda_product(struct program *program, const struct op_moe_mlp *op, const struct moe_mlp_shape *s, bool down, const struct moe_mlp_matrices *m,
                                      const struct moe_mlp_places *at, program_buffer_id x, program_buffer_id y, struct rose_error *err)
{
    struct moe_mlp_shape some = *s;
    bool wgmma = moe_mlp_cuda_form(s, &program->device->info).kernel == MOE_MLP_WGMMA;
    if (m->count < s->experts) some.panel = m->count;
    return (wgmma ? record_wgmma : record_group)(program, op, &some, down, m, at, x, y, err);
}

/* One of the two products, by the formats of its weights. */
static enum rose_status record_product(struct program *program, const struct op_moe_mlp *op, const struct moe_mlp_shape *s, bool down, const struct moe_mlp_places *at,
                                       program_buffer_id x, program_buffer_id y, struct rose_error *err)
{
    struct moe_mlp_matrices m;
    int format = down ? s->down_format : s->up_format;
    struct moe_mlp_form form = moe_mlp_cuda_form(s, &program->device->info);
    if (format && format != MOE_MIXED && form.coded) return moe_coded_record(program, op, s, down, at, x, y, err);
    if (format && form.kernel == MOE_MLP_WGMMA && moe_blocks_wgmma_fits(s, down, &program->device->info)) return moe_blocks_wgmma_record(program, op, s, down, at, x, y, err);
    if (format) return moe_panel_record(program, op, s, down, at, x, y, err);
    ROSE_TRY(find_matrices(program, op, s, down, &m, err));
    return moe_mlp_cuda_product(program, op, s, down, &m, at, x, y, err);
}

static enum rose_status record_combine(struct program *program, const struct op_moe_mlp *op, const struct moe_mlp_shape *s,
                                       const struct moe_mlp_places *at, program_buffer_id rows, struct rose_error *err)
{
    struct moe_cuda_shape shape = {.tokens = s->tokens,
                                   .experts = s->experts,
                                   .top_k = s->top_k,
                                   .hidden = s->hidden,
                                   .accumulate = op->accumulate,
                                   .alpha = op->alpha,
                                   .f16 = s->f16};
    return dispatch_cuda_combine(program, op->layer, &shape, rows, at->position, op->weights, &op->y, err);
}

/* route: where the shape's is kept, if op brings one that its own launches can follow. */
static struct moe_mlp_shape mlp_shape(const struct program *program, const struct op_moe_mlp *op, struct moe_cuda_shape *route)
{
    const struct op_moe_route *r = op->route;
    struct moe_mlp_shape s = {.tokens = (int32_t)ROSE_MIN(plan_rows(program, op->x.rows), (int64_t)INT32_MAX),
                              .max_tokens = tokens_of(program, op->ids, op->top_k),
                              .experts = op->experts,
                              .top_k = op->top_k,
                              .hidden = op->x.cols,
                              .ffn = op->gate->n,
                              .activation = op->activation,
                              .gate_bias = op->gate_bias != NULL,
                              .down_bias = op->down_bias != NULL,
                              .accumulate = op->accumulate,
                              .alpha = op->alpha,
                              .f16 = value_f16(&op->x),
                              .deterministic = op->deterministic,
                              .up_format = moe_coded_format(op->gate),
                              .down_format = moe_coded_format(op->down),
                              .up_scales = op->gate->scales_kind,
                              .down_scales = op->down->scales_kind};
    if (moe_coded_format(op->up) != s.up_format || op->up->scales_kind != s.up_scales) s.up_format = MOE_MIXED;
    if (r && r->experts == op->experts && r->top_k == op->top_k && r->experts <= 1024 && r->groups <= 32 && r->ids == op->ids && r->weights == op->weights &&
        r->logits.rows == op->x.rows) {
        *route = route_shape(r, s.tokens, 1);
        s.route = route;
    }
    s.tile = moe_mlp_cuda_form(&s, &program->device->info).tile;
    return s;
}

int32_t moe_mlp_cuda_pad(const struct program *program, const struct op_moe_mlp *op)
{
    struct moe_cuda_shape route;
    return mlp_shape(program, op, &route).tile;
}

bool moe_mlp_cuda_chooses(const struct program *program, const struct op_moe_mlp *op)
{
    struct moe_cuda_shape route;
    struct moe_mlp_shape s = mlp_shape(program, op, &route);
    return moe_mlp_cuda_form(&s, &program->device->info).kernel == MOE_MLP_FEW;
}

enum rose_status moe_mlp_cuda(struct program *program, const struct op_moe_mlp *op, struct rose_error *err)
{
    struct moe_cuda_shape route;
    struct moe_mlp_shape s = mlp_shape(program, op, &route);
    enum moe_mlp_kernel kernel = moe_mlp_cuda_form(&s, &program->device->info).kernel;
    if (op->y.cols != s.hidden || op->x.stride % 8 || op->x.offset % 8 || op->y.stride % 8 || op->y.offset % 8)
        return status_set(err, ROSE_UNSUPPORTED,
                          "moe_mlp: x of %d columns, stride %d and offset %d, y of %d, %d and %d; the CUDA kernels take equal columns and "
                          "multiples of 8",
                          op->x.cols, op->x.stride, op->x.offset, op->y.cols, op->y.stride, op->y.offset);
    ROSE_TRY(value_check_alike("moe_mlp", &op->x, &op->y, err));
    const struct op_weight *const kinds[] = {op->gate, op->up, op->down};
    for (int i = 0; i < 3; i++)
        if (moe_coded_format(kinds[i]) <= 0 ? kinds[i]->dtype != op->x.dtype : s.f16 && kinds[i]->dtype == DTYPE_F8_E4M3)
            return status_set(err, ROSE_UNSUPPORTED, "moe_mlp: experts in %s and activations in %s", dtype_info(kinds[i]->dtype)->name, dtype_info(op->x.dtype)->name);
    if ((op->gate_bias != NULL) != (op->up_bias != NULL))
        return status_set(err, ROSE_UNSUPPORTED, "moe_mlp: a bias for one of gate and up only");
    size_t places = (size_t)moe_mlp_cuda_places(&s, &program->device->info);
    program_buffer_id inner = program_buffer(program, "moe_inner", places * (size_t)s.ffn * 2);
    if (kernel == MOE_MLP_FEW) {
        ROSE_TRY(record_few(program, op, &s, false, inner, err));
        return record_few(program, op, &s, true, inner, err);
    }
    struct moe_mlp_places at = {.counts = place_buffer(program, op->ids, offsetof(struct moe_place_params, counts)),
                        .offsets = place_buffer(program, op->ids, offsetof(struct moe_place_params, offsets)),
                        .source = place_buffer(program, op->ids, offsetof(struct moe_place_params, source)),
                        .position = place_buffer(program, op->ids, offsetof(struct moe_place_params, position))};
    if (!at.counts || !at.offsets || !at.source || !at.position)
        return status_set(err, ROSE_INTERNAL, "moe_mlp: no op_moe_route of this program wrote the experts' ids");
    program_buffer_id rows = program_buffer(program, "moe_rows", places * (size_t)s.hidden * 2);
    if (moe_mlp_cuda_form(&s, &program->device->info).fp8) {
        ROSE_TRY(moe_fp8_record(program, op, &s, &at, rows, err));
    } else {
        ROSE_TRY(record_product(program, op, &s, false, &at, op->x.buffer, inner, err));
        ROSE_TRY(record_product(program, op, &s, true, &at, inner, rows, err));
    }
    return record_combine(program, op, &s, &at, rows, err);
}
