#include "ops/matmul_fp8.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda.h"
#include "kernels/cpu/weight_fp8.h"
#include "kernels/params/act_rows.h"
#include "ops/act_cuda.h"
#include "ops/value.h"
#include "ops/weight_view.h"

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* ---- plan ---- */

enum { STEP = 128, RASTER = 8, FEW_ROWS = 16, FEW_X_BYTES = 256, MANY_ROWS = 65, TILE_WGMMA = 11 };

/* Rows x weight rows (matmul_plan_tile), warps along each, steps in flight: of bf16 rows of x, of e4m3 rows. */
static const struct tile {
    int bm, bn, wm, wn, stages, stages_a8;
} tiles[] = {{16, 64, 1, 4, 5, 5}, {64, 64, 2, 2, 3, 4}, {64, 128, 2, 4, 3, 4}, {128, 128, 2, 4, 2, 3}};
enum { TILES = sizeof tiles / sizeof *tiles };

/* Shared memory a block may have. */
static int64_t most_shared(const struct device_info *d)
{
    int arch = plan_arch(d);
    return arch == 800 ? 163 << 10 : arch >= 900 && arch < 1200 ? 227 << 10 : 99 << 10;
}

/* What all of them state: codes and scales are read once. */
static void finish(const struct matmul_fp8_shape *f, const struct device_info *d, struct plan *out, bool a8, double extra_us)
{
    const struct matmul_shape *s = &f->s;
    double n = 0, results = 0, rows = (double)s->rows;
    for (int i = 0; i < s->parts; i++) n += s->n[i], results += s->gated && i ? 0 : s->n[i];
    out->ops = 2 * n * s->k * rows;
    out->bytes = n * s->k * (f->scales == FP8_BLOCKS ? 1 + 4.0 / (FP8_BLOCK * FP8_BLOCK) : 1) + (f->scales == FP8_BLOCKS ? 0 : 4 * n) +
                 rows * (s->k * (a8 ? 1.0 : 2.0) + results * (s->out_f32 ? 4 : 2) * (1 + s->accumulate));
    plan_int(out, "SCALES", f->scales);
    plan_stream(out, d, extra_us);
}

static void in_tiles(const struct matmul_fp8_shape *f, const struct device_info *d, struct matmul_fp8_plan *p)
{
    const struct matmul_shape *s = &f->s;
    struct matmul_plan *m = &p->m;
    struct plan *out = &m->plan;
    int i = s->tile >= 1 && s->tile <= TILES ? s->tile - 1 : matmul_plan_tile(s, d), stages = p->a8 ? tiles[i].stages_a8 : tiles[i].stages;
    const struct tile *t = &tiles[i];
    int64_t stage = (int64_t)t->bm * STEP * (p->a8 ? 1 : 2) + (int64_t)t->bn * STEP;
    while (stages > 2 && stage * stages > most_shared(d)) stages--;
    m->columns = t->bn / (1 + s->gated);
    m->tiles = matmul_plan_tiles(s, m->columns);
    m->splits = 1;
    *out = (struct plan){.kernel = "gemm_fp8", .rows = s->rows, .tiles = true, .per = t->bm, .times = m->tiles};
    plan_int(out, "BM", t->bm);
    plan_int(out, "BN", t->bn);
    plan_int(out, "WM", t->wm);
    plan_int(out, "WN", t->wn);
    plan_int(out, "STAGES", stages);
    plan_int(out, "RASTER", RASTER);
    plan_int(out, "A8", p->a8);
    matmul_plan_epilogue(s, out);
    out->block = (uint32_t)(32 * t->wm * t->wn);
    out->shared_bytes = (uint32_t)(stage * stages);
    finish(f, d, out, p->a8, 1.0);
    double peak = d->units * (p->a8 ? 5.0e12 : 2.5e12); /* mma.sync with sums kept apart: a guess, not measured */
    if (out->ops / peak * 1e6 > out->predicted_us) out->predicted_us = out->ops / peak * 1e6;
}

static void by_wgmma(const struct matmul_fp8_shape *f, const struct device_info *d, struct matmul_fp8_plan *p)
{
    enum { BN = 128, STAGES = 6 };
    const struct matmul_shape *s = &f->s;
    struct matmul_plan *m = &p->m;
    struct plan *out = &m->plan;
    m->columns = BN / (1 + s->gated);
    m->tiles = matmul_plan_tiles(s, m->columns);
    m->splits = 1;
    m->box = BN / 2, m->box_x = 128;
    *out = (struct plan){.kernel = "gemm_fp8_wgmma", .rows = s->rows, .tiles = true, .per = INT32_MAX, .times = (int32_t)ROSE_MIN(ceil_div(s->rows, 128) * m->tiles, d->units)};
    plan_int(out, "BN", BN);
    plan_int(out, "STAGES", STAGES);
    plan_int(out, "CLUSTER", 1);
    plan_int(out, "RASTER", 2 * RASTER);
    plan_int(out, "PARTS", s->gated ? 1 : s->parts);
    matmul_plan_epilogue(s, out);
    out->block = 384;
    out->shared_bytes = (128 + BN) * STEP * STAGES + 16 * STAGES;
    finish(f, d, out, true, 2.0);
    double us = out->ops / (d->units * 10.0e12) * 1e6; /* 1,320 TFLOP/s of an H200: predicted (docs/facts.md) */
    if (us > out->predicted_us) out->predicted_us = us;
}

static enum rose_status check_shape(const struct matmul_shape *s, struct rose_error *err)
{
    if (s->parts < 1 || s->parts > GEMM_PARTS || (s->gated && (s->parts != 2 || s->n[0] != s->n[1])))
        return status_set(err, ROSE_INVALID, "a product of %d weights; 1 to %d are possible, a gate has 2 alike", s->parts, GEMM_PARTS);
    if (s->k <= 0 || s->k % 16) return status_set(err, ROSE_UNSUPPORTED, "a product of FP8 weights over %d elements; CUDA kernels take multiples of 16", s->k);
    return ROSE_OK;
}

enum rose_status matmul_fp8_plan(const struct matmul_fp8_shape *f, const struct device_info *d, struct matmul_fp8_plan *out, struct rose_error *err)
{
    const struct matmul_shape *s = &f->s;
    int arch = plan_arch(d);
    *out = (struct matmul_fp8_plan){0};
    ROSE_TRY(check_shape(s, err));
    bool many = s->rows >= MANY_ROWS || f->quantised;
    out->a8 = many && f->can_quantise && !s->deterministic && arch >= 890;
    if (s->rows <= FEW_ROWS && !s->deterministic && !s->tile && !out->a8) {
        struct matmul_shape units = *s;
        units.k = s->k / 2;
        if (matmul_plan_few(&units, d, "gemv_fp8", FEW_X_BYTES, &out->m)) {
            finish(f, d, &out->m.plan, false, 1.0);
            return ROSE_OK;
        }
        out->m = (struct matmul_plan){0};
    }
    bool fits = out->a8 && arch == 900 && s->rows16 && s->tma;
    for (int i = 0; i < s->parts; i++) fits = fits && s->n[i] % 8 == 0;
    if (fits && (!s->tile || s->tile == TILE_WGMMA)) by_wgmma(f, d, out);
    else in_tiles(f, d, out);
    return ROSE_OK;
}

const void *matmul_fp8_box(const struct matmul_fp8_plan *plan, const struct gemm_params *params, int part, int64_t rows, struct layout_tma *out)
{
    struct gemm_params units = *params;
    units.k /= 2, units.x_stride /= 2;
    return matmul_plan_box(&plan->m, &units, part, rows, out);
}

/* ---- weights ---- */

/* The device's kind of scales; -1: the kernels do not read this weight. */
static int kind_of(const struct tensor *t)
{
    const struct tensor_scales *s = t->scales;
    int64_t n = tensor_rows(t), k = tensor_cols(t);
    if (t->dtype != DTYPE_F8_E4M3 || !s || n < 1 || k < 16 || k % 16 || n > INT32_MAX || k > INT32_MAX) return -1;
    if (s->block_cols >= k) return FP8_CHANNELS;
    return s->block_rows == FP8_BLOCK && s->block_cols == FP8_BLOCK && t->scales_row % FP8_BLOCK == 0 ? FP8_BLOCKS : -1;
}

static size_t codes_bytes(const struct tensor *t) { return size_round_up((size_t)tensor_rows(t) * (size_t)tensor_cols(t), 256); }

size_t matmul_fp8_scales_count(const struct tensor *t)
{
    int64_t n = tensor_rows(t), k = tensor_cols(t);
    return (size_t)(kind_of(t) == FP8_BLOCKS ? ceil_div(n, FP8_BLOCK) * ceil_div(k, FP8_BLOCK) : n);
}

size_t matmul_fp8_bytes(const struct tensor *t)
{
    return kind_of(t) < 0 ? 0 : codes_bytes(t) + matmul_fp8_scales_count(t) * 4;
}

void matmul_fp8_scales(const struct tensor *t, float *out)
{
    int64_t step_n = kind_of(t) == FP8_BLOCKS ? FP8_BLOCK : 1, step_k = kind_of(t) == FP8_BLOCKS ? FP8_BLOCK : tensor_cols(t);
    for (int64_t r = 0; r < tensor_rows(t); r += step_n)
        for (int64_t c = 0; c < tensor_cols(t); c += step_k) *out++ = tensor_scale(t, r, c);
}

struct op_weight matmul_fp8_weight(const struct tensor *t, void *memory)
{
    return (struct op_weight){.dtype = DTYPE_F8_E4M3,
                              .n = (int32_t)tensor_rows(t),
                              .k = (int32_t)tensor_cols(t),
                              .data = memory,
                              .layout = WEIGHT_LAYOUT_CUDA_FP8,
                              .bytes = matmul_fp8_bytes(t),
                              .bytes_read = (double)matmul_fp8_bytes(t),
                              .scales = (const float *)(const void *)((const char *)memory + codes_bytes(t)),
                              .scales_kind = kind_of(t)};
}

enum rose_status matmul_fp8_copy_scales(struct device *device, const struct tensor *t, const struct op_weight *w, struct rose_error *err)
{
    size_t n = matmul_fp8_scales_count(t);
    float *scales = malloc(n * sizeof *scales);
    if (!scales) return status_set(err, ROSE_NO_MEMORY, "out of memory for the scales of a weight");
    matmul_fp8_scales(t, scales);
    enum rose_status s = device_copy(device, (void *)(uintptr_t)w->scales, scales, n * sizeof *scales, err);
    if (s == ROSE_OK) s = device_wait(device, NULL, err);
    free(scales);
    return s;
}

bool matmul_fp8_good(const void *codes, size_t n) { return !weight_fp8_has_nan(codes, n); }

/* ---- op_matmul ---- */

/* What the kernel gets is the first part; the maps are known when the program is finished. */
struct fp8_launch {
    struct gemm_fp8_wgmma_params p;
    struct matmul_fp8_plan plan;
    int64_t most_rows;
};

static enum rose_status tensor_map(struct device *device, const struct matmul_fp8_plan *plan, const struct gemm_params *g, int part, int64_t rows, void *out,
                                   struct rose_error *err)
{
    struct layout_tma box;
    struct tensor_map aligned;
    const void *base = matmul_fp8_box(plan, g, part, rows, &box);
    ROSE_TRY(cuda_tensor_map(device, &box, 2, (void *)(uintptr_t)base, &aligned, err));
    memcpy(out, &aligned, sizeof aligned);
    return ROSE_OK;
}

static enum rose_status fp8_ready(struct device *device, void *params, struct rose_error *err)
{
    char *at = params; /* an arena does not align to 64 */
    struct fp8_launch l;
    memcpy(&l, at, sizeof l);
    return tensor_map(device, &l.plan, &l.p.t.g, -1, l.most_rows, at + offsetof(struct fp8_launch, p.t.x), err);
}

/* x as e4m3 and its scales, in buffers of their own. */
struct quantised {
    program_buffer_id codes, scales;
    int64_t stride; /* of scales, from one 128 of k to the next */
};

static enum rose_status quantise(struct program *program, const struct op_matmul *op, int scales, struct quantised *q, struct rose_error *err)
{
    int32_t k = op->x.cols;
    int64_t rows = value_max_rows(program, &op->x);
    struct act_shape s = {.rows = plan_rows(program, op->x.rows), .cols = k, .out = scales == FP8_BLOCKS ? ACT_OUT_E4M3_128 : ACT_OUT_E4M3_TOKEN};
    struct plan plan;
    q->stride = (rows + 3) / 4 * 4;
    q->codes = program_buffer(program, "matmul.codes", (size_t)rows * (size_t)k);
    q->scales = program_buffer(program, "matmul.scales", (size_t)q->stride * (size_t)ceil_div(k, FP8_BLOCK) * 4);
    struct act_rows_params p = {.x_stride = op->x.stride, .y_stride = k, .scale_row_stride = 1, .scale_group_stride = q->stride};
    struct program_launch l = {.name = "quantise", .layer = op->layer, .params = &p, .params_bytes = sizeof p};
    ROSE_TRY(act_cuda_plan(&s, &program->device->info, &plan, err));
    ROSE_TRY(plan_record(&plan, program, op->x.rows, offsetof(struct act_rows_params, rows), &l, err));
    value_use(&l, &op->x, PROGRAM_READ, offsetof(struct act_rows_params, x));
    program_use(&l, q->codes, PROGRAM_WRITE, offsetof(struct act_rows_params, y));
    program_use(&l, q->scales, PROGRAM_WRITE, offsetof(struct act_rows_params, scale));
    program_add(program, &l);
    return ROSE_OK;
}

static struct matmul_fp8_shape shape_of(const struct program *program, const struct op_matmul *op, const struct op_matmul_part *parts, int count)
{
    struct matmul_fp8_shape f = {.s = {.rows = plan_rows(program, op->x.rows),
                                       .k = op->x.cols,
                                       .parts = count,
                                       .act = op->activation,
                                       .gated = op->gated,
                                       .accumulate = op->accumulate,
                                       .out_f32 = parts[0].y.dtype == DTYPE_F32,
                                       .pairs = true,
                                       .rows16 = true,
                                       .tma = true,
                                       .deterministic = op->deterministic},
                                 .scales = parts[0].weight->scales_kind};
    int vec = plan_vector(&program->device->info, (int64_t)op->x.cols * 2) / 2; /* what act_rows takes at once */
    f.can_quantise = vec && op->x.stride % vec == 0 && op->x.offset % vec == 0 && (f.scales == FP8_CHANNELS ? op->x.cols <= 8 * 1024 * vec : op->x.cols % FP8_BLOCK == 0);
    for (int i = 0; i < count; i++) {
        const struct op_value *y = &parts[i].y;
        f.s.n[i] = parts[i].weight->n;
        f.s.bias |= parts[i].bias != NULL;
        if (op->gated && i) continue;
        f.s.pairs &= y->stride % 2 == 0 && y->offset % 2 == 0;
        f.s.rows16 &= value_aligned16(y);
    }
    return f;
}

/* Offsets of the launch's parts: with TMA in the larger struct. */
static void use_all(struct program *program, struct program_launch *l, const struct op_matmul *op, const struct op_matmul_part *parts, int count,
                    const struct matmul_fp8_plan *plan, size_t g, const struct quantised *q, size_t x_scale)
{
    bool f32 = parts[0].y.dtype == DTYPE_F32;
    if (plan->a8) {
        program_use(l, q->codes, PROGRAM_READ, g + offsetof(struct gemm_params, x));
        program_use(l, q->scales, PROGRAM_READ, x_scale);
    } else
        value_use(l, &op->x, PROGRAM_READ, g + offsetof(struct gemm_params, x));
    l->cost = (struct program_cost){0};
    l->cost.bytes_per[op->x.rows] = (plan->a8 ? 1.0 : 2.0) * op->x.cols;
    for (int i = 0; i < count; i++) {
        const struct op_weight *w = parts[i].weight;
        l->cost.bytes += w->bytes_read;
        l->cost.ops_per[op->x.rows] += 2.0 * w->n * w->k;
        if (op->gated && i) continue;
        value_use(l, &parts[i].y, op->accumulate ? PROGRAM_UPDATE : PROGRAM_WRITE,
                  g + offsetof(struct gemm_params, part) + (size_t)i * sizeof(struct gemm_part) + offsetof(struct gemm_part, y));
        l->cost.bytes_per[op->x.rows] += (f32 ? 4.0 : 2.0) * (1 + op->accumulate) * w->n;
    }
    if (plan->m.work_bytes) {
        size_t groups = (size_t)ceil_div(value_max_rows(program, &op->x), plan->m.group);
        program_use(l, program_buffer(program, "matmul.work", groups * plan->m.work_bytes), PROGRAM_WRITE, g + offsetof(struct gemm_params, work));
        program_use(l, program_counters(program, "matmul.counters", groups * plan->m.counter_bytes), PROGRAM_UPDATE, g + offsetof(struct gemm_params, counters));
    }
}

enum rose_status matmul_fp8_record(struct program *program, const struct op_matmul *op, int begin, int count, struct rose_error *err)
{
    const struct op_matmul_part *parts = op->parts + begin;
    struct matmul_fp8_shape f = shape_of(program, op, parts, count);
    struct matmul_fp8_plan plan;
    struct quantised q = {0};
    ROSE_TRY(matmul_fp8_plan(&f, &program->device->info, &plan, err));
    if (plan.a8) ROSE_TRY(quantise(program, op, f.scales, &q, err));
    struct gemm_params g = {.x_stride = plan.a8 ? op->x.cols : op->x.stride, .k = (uint32_t)op->x.cols, .alpha = op->alpha != 0 ? op->alpha : 1.0f};
    struct gemm_fp8_scales s = {.x_stride = q.stride, .k_blocks = (uint32_t)ceil_div(op->x.cols, FP8_BLOCK)};
    for (int i = 0; i < count; i++) {
        g.part[i] = (struct gemm_part){.w = parts[i].weight->data, .bias = parts[i].bias, .n = parts[i].weight->n, .y_stride = parts[i].y.stride};
        s.w[i] = parts[i].weight->scales;
    }
    matmul_plan_params(&plan.m, &g);
    struct gemm_fp8_params small = {g, s};
    struct fp8_launch large = {.p = {.t = {.g = g}, .s = s}, .plan = plan, .most_rows = value_max_rows(program, &op->x)};
    bool tma = plan.m.box > 0;
    struct program_launch l = {.name = op->name, .layer = op->layer, .params = tma ? (const void *)&large : &small, .params_bytes = tma ? sizeof large : sizeof small};
    size_t g_at = tma ? offsetof(struct fp8_launch, p.t.g) : 0, x_scale = tma ? offsetof(struct fp8_launch, p.s.x) : offsetof(struct gemm_fp8_params, s.x);
    if (tma) {
        l.ready = fp8_ready;
        for (int i = 0; i < count && !program->draft; i++) ROSE_TRY(tensor_map(program->device, &plan, &g, i, 0, &large.p.t.w[i], err));
    }
    ROSE_TRY(plan_record(&plan.m.plan, program, op->x.rows, g_at + offsetof(struct gemm_params, rows), &l, err));
    use_all(program, &l, op, parts, count, &plan, g_at, &q, x_scale);
    program_add(program, &l);
    return ROSE_OK;
}
