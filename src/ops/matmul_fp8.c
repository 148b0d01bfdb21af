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

enum { STEP = 128, RASTER = 8, FEW_ROWS = 16, FEW_X_BYTES = 256, MANY_ROWS = 65, TILE_WGMMA = 11, TILE_RING = 31, RING_SURE = 32 /* rows: 28672x4096 by tiles of 128 51 us, H200 */ };

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
    matmul_plan_in_tiles(s, "gemm_fp8", t->bm, t->bn, t->wm, t->wn, stages, m);
    plan_int(out, "A8", p->a8);
    matmul_plan_epilogue(s, out);
    out->shared_bytes = (uint32_t)(stage * stages);
    finish(f, d, out, p->a8, 1.0);
    /* An SM's tiles one after the other, by mma.sync with sums kept apart, at 1.5 TFLOP/s (H200, rows of bf16, 64 of them: 28672x4096 112 us,
     * 4096x14336 150, 4096x4096 37); rows of e4m3 are taken for twice as fast and were not measured. */
    double turns = (double)ceil_div(m->tiles * ceil_div(s->rows, t->bm), d->units), us = turns * 2 * t->bm * t->bn * s->k / (p->a8 ? 3.0e6 : 1.5e6);
    if (us > out->predicted_us) out->predicted_us = us;
}

/* Rows a tile / 128, sets of sums, whether consumers take turns, stages, blocks a cluster. */
static const struct variant {
    int waves, sets, order, stages, cluster;
} variants[] = {{1, 2, 0, 6, 1}, {2, 1, 1, 4, 1}, {2, 1, 0, 4, 1}, {1, 2, 0, 6, 2}, {2, 1, 0, 4, 2}, {2, 1, 1, 4, 2}};

/* Few rows by tiles of 128: a block streams the weights of its tiles, 38 bytes a ns (H200). */
static double wgmma_alone_us(const struct matmul_fp8_shape *f, const struct device_info *d)
{
    int64_t tiles = matmul_plan_tiles(&f->s, FP8_BLOCK / (1 + f->s.gated));
    return 2.5 + (double)ceil_div(tiles, d->units) * FP8_BLOCK * f->s.k / 38e3;
}

/* Measured (H200, docs/facts.md): tiles of 256 rows take 1.8 times as long as those of 128; pairs of blocks that share weights pay where many rows
 * give all of them pairs. */
static int choose_variant(const struct matmul_fp8_shape *f, const struct device_info *d)
{
    enum { PAIRS_FROM = 2048 };
    const struct matmul_shape *s = &f->s;
    int64_t tiles = matmul_plan_tiles(s, FP8_BLOCK / (1 + s->gated));
    if (s->rows >= PAIRS_FROM) return f->scales == FP8_BLOCKS ? 5 : 3;
    if (s->gated && s->bias) return 0; /* 256 rows would spill a few registers */
    double one = (double)ceil_div(ceil_div(s->rows, 128) * tiles, d->units), two = 1.8 * (double)ceil_div(ceil_div(s->rows, 256) * tiles, d->units);
    return two < one ? 2 : 0;
}

static void by_wgmma(const struct matmul_fp8_shape *f, const struct device_info *d, struct matmul_fp8_plan *p)
{
    enum { BN = 128 };
    const struct matmul_shape *s = &f->s;
    struct matmul_plan *m = &p->m;
    struct plan *out = &m->plan;
    int which = s->tile > TILE_WGMMA && s->tile < TILE_WGMMA + 1 + (int)ROSE_COUNT(variants) ? s->tile - TILE_WGMMA - 1 : choose_variant(f, d);
    const struct variant *v = &variants[which];
    int rows = 128 * v->waves;
    m->columns = BN / (1 + s->gated);
    m->tiles = matmul_plan_tiles(s, m->columns);
    m->splits = 1;
    m->box = BN / 2, m->box_x = 128;
    int64_t clusters = ROSE_MIN(ceil_div(s->rows, rows * v->cluster) * m->tiles, d->units / v->cluster);
    *out = (struct plan){.kernel = "gemm_fp8_wgmma", .rows = s->rows, .tiles = true, .per = INT32_MAX, .times = (int32_t)clusters * v->cluster};
    plan_int(out, "BN", BN);
    plan_int(out, "STAGES", v->stages);
    plan_int(out, "CLUSTER", v->cluster);
    plan_int(out, "RASTER", 2 * RASTER / v->waves / v->cluster);
    plan_int(out, "WAVES", v->waves);
    plan_int(out, "SETS", v->sets);
    plan_int(out, "ORDER", v->order);
    plan_int(out, "PARTS", s->gated ? 1 : s->parts);
    matmul_plan_epilogue(s, out);
    out->block = 384;
    out->cluster = (uint32_t)(v->cluster > 1 ? v->cluster : 0);
    out->shared_bytes = (uint32_t)(((rows + BN) * STEP + 4 * rows + 16) * v->stages + (s->out_f32 ? 0 : 128 * 64 * 2)); /* results of bf16 on their way out */
    finish(f, d, out, true, 2.0);
    /* An H200: 1,235 and 1,309 TFLOP/s with long k, a tile's end about 14 steps of 128; few tiles: an SM streams 38 bytes a ns of weights. */
    double us = out->ops / (d->units * (f->scales == FP8_BLOCKS ? 9.4e12 : 9.9e12)) * 1e6 * (1 + 6.0 * STEP / s->k), alone = wgmma_alone_us(f, d);
    if (s->rows <= 256 && alone > us) us = alone;
    if (us > out->predicted_us) out->predicted_us = us;
}

/* Rows of x as columns of wgmma or mma.sync: few kernels serve all numbers. */
static int ring_columns(int64_t rows)
{
    int n = 8;
    while (n < rows && n < MANY_ROWS - 1) n *= 2;
    return n;
}

static double weights_of(const struct matmul_shape *s)
{
    double n = 0;
    for (int i = 0; i < s->parts; i++) n += s->n[i];
    return n * s->k;
}

/* Fitted to an H200: a unit of 128 weight rows and 128 of k. */
static double ring_us(const struct matmul_fp8_shape *f, const struct device_info *d, bool a8)
{
    int64_t units = matmul_plan_tiles(&f->s, 128 / (1 + f->s.gated)) * ceil_div(f->s.k, STEP);
    int n = ring_columns(f->s.rows);
    double one = a8 ? n <= 16 ? 0.52 : n <= 32 ? 0.63 : 0.74 : n <= 8 ? 0.56 : n <= 16 ? 0.63 : n <= 32 ? 0.75 : 1.08;
    return 4 + (double)units / d->units * one * (double)ceil_div(f->s.rows, n);
}

static bool ring_fits(const struct matmul_fp8_shape *f, const struct device_info *d)
{
    return plan_arch(d) == 900 && f->s.tma && f->ring && !f->s.deterministic && (!f->s.gated || f->s.n[0] % 8 == 0);
}

static void by_ring(const struct matmul_fp8_shape *f, const struct device_info *d, struct matmul_fp8_plan *p)
{
    const struct matmul_shape *s = &f->s;
    struct matmul_plan *m = &p->m;
    struct plan *out = &m->plan;
    /* Weights of few tiles in tiles of 64 rows (H200, 4096x4096: 16 rows 9.7 and 10.2 us, 64 rows 11.0 and 12.8; 28672x4096 the other way round, 37.2 and 34.5). */
    const double small = 32 << 20;
    int n = ring_columns(s->rows), mg = s->tile >= TILE_RING ? 1 + (s->tile - TILE_RING) % 2 : weights_of(s) < small ? 1 : 2, kb = 3 - mg, rows = 64 * mg;
    int stage = kb * (rows * STEP + n * STEP * (p->a8 ? 1 : 2)) + (p->a8 && f->scales == FP8_BLOCKS ? 1024 : 0), stages = (int)(matmul_plan_shared(d) - 512) / stage;
    m->columns = rows / (1 + s->gated);
    m->tiles = matmul_plan_tiles(s, m->columns);
    m->splits = 1;
    m->group = n;
    m->box = rows, m->box_x = n, m->interleaved = s->gated;
    int64_t blocks = ROSE_MIN(d->units, ceil_div(m->tiles * ceil_div(s->k, STEP * kb), 2));
    *out = (struct plan){.kernel = "gemv_fp8_ring", .rows = s->rows, .tiles = true, .per = n, .times = (int32_t)blocks};
    plan_int(out, "N", n);
    plan_int(out, "MG", mg);
    plan_int(out, "KB", kb);
    plan_int(out, "STAGES", stages);
    plan_int(out, "PARTS", s->gated ? 1 : s->parts);
    plan_int(out, "A8", p->a8);
    matmul_plan_epilogue(s, out);
    out->block = (uint32_t)(128 * mg + 32);
    out->shared_bytes = matmul_plan_alone(d, (uint32_t)(stages * (stage + 16) + 16));
    m->work_bytes = (size_t)blocks * 2 * (size_t)(n / 2) * (size_t)(128 * mg) * 4;
    m->counter_bytes = (size_t)m->tiles * 4;
    finish(f, d, out, p->a8, 0.5);
    double us = ring_us(f, d, p->a8);
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
    bool many = s->rows >= MANY_ROWS || f->quantised, hopper = ring_fits(f, d), can = f->can_quantise && !s->deterministic && arch >= 890;
    out->a8 = can && (many || (hopper && (s->tile ? s->tile >= TILE_RING + 2 : s->rows > FEW_ROWS)));
    bool fits = out->a8 && arch == 900 && s->rows16 && s->tma;
    for (int i = 0; i < s->parts; i++) fits = fits && s->n[i] % 8 == 0;
    bool ring = s->tile ? hopper && s->tile >= TILE_RING : hopper && s->rows < MANY_ROWS && (out->a8 ? !fits || s->rows <= RING_SURE || ring_us(f, d, true) < wgmma_alone_us(f, d) : s->rows <= FEW_ROWS);
    if (s->rows <= FEW_ROWS && !s->deterministic && !s->tile && !out->a8) {
        struct matmul_shape units = *s;
        units.k = s->k / 2;
        /* A row or two of small weights: registers are ahead of the ring (H200, 4096x4096: 8.9 and 9.5 us, four rows 10.9 and 9.5; 28672x4096 44.7 and 34.5). */
        const double small = 24 << 20;
        bool few = matmul_plan_few(&units, d, "gemv_fp8", FEW_X_BYTES, &out->m);
        if (few && (!ring || (s->rows <= 2 && out->m.splits == 1 && weights_of(s) < small))) {
            finish(f, d, &out->m.plan, false, 1.0);
            double us = 3 + out->m.plan.bytes / (d->bandwidth > 0 ? d->bandwidth * 0.55 : 1e12) * 1e6; /* of memory's rate (H200) */
            if (us > out->m.plan.predicted_us) out->m.plan.predicted_us = us;
            return ROSE_OK;
        }
        out->m = (struct matmul_plan){0};
    }
    if (ring) {
        by_ring(f, d, out);
        return ROSE_OK;
    }
    if (fits && (!s->tile || s->tile >= TILE_WGMMA)) by_wgmma(f, d, out);
    else in_tiles(f, d, out);
    return ROSE_OK;
}

const void *matmul_fp8_box(const struct matmul_fp8_plan *plan, const struct gemm_params *params, int part, int64_t rows, struct layout_tma *out)
{
    struct gemm_params units = *params;
    if (part >= 0 || plan->a8) units.k /= 2, units.x_stride /= 2;
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

enum rose_status matmul_fp8_quantise(struct program *program, const struct op_value *x, int layer, int out, const struct fp8_rows *to, struct rose_error *err)
{
    struct act_shape s = {.rows = plan_rows(program, x->rows), .cols = x->cols, .out = out};
    struct plan plan;
    struct act_rows_params p = {.x_stride = x->stride, .y_stride = x->cols, .scale_row_stride = to->row_stride, .scale_group_stride = to->group_stride};
    struct program_launch l = {.name = "quantise", .layer = layer, .params = &p, .params_bytes = sizeof p};
    ROSE_TRY(act_cuda_plan(&s, &program->device->info, &plan, err));
    ROSE_TRY(plan_record(&plan, program, x->rows, offsetof(struct act_rows_params, rows), &l, err));
    value_use(&l, x, PROGRAM_READ, offsetof(struct act_rows_params, x));
    program_use(&l, to->codes, PROGRAM_WRITE, offsetof(struct act_rows_params, y));
    program_use(&l, to->scales, PROGRAM_WRITE, offsetof(struct act_rows_params, scale));
    program_add(program, &l);
    return ROSE_OK;
}

/* x as e4m3 and its scales, in buffers of their own: those of all rows for one 128 of k after the other. */
static enum rose_status quantise(struct program *program, const struct op_matmul *op, int scales, struct fp8_rows *q, struct rose_error *err)
{
    int64_t k = op->x.cols, rows = value_max_rows(program, &op->x);
    *q = (struct fp8_rows){.row_stride = 1, .group_stride = (rows + 3) / 4 * 4};
    q->codes = program_buffer(program, "matmul.codes", (size_t)(rows * k));
    q->scales = program_buffer(program, "matmul.scales", (size_t)(q->group_stride * ceil_div(k, FP8_BLOCK) * 4));
    return matmul_fp8_quantise(program, &op->x, op->layer, scales == FP8_BLOCKS ? ACT_OUT_E4M3_128 : ACT_OUT_E4M3_TOKEN, q, err);
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
                                       .deterministic = op->deterministic,
                                       .tile = op->tile},
                                 .scales = parts[0].weight->scales_kind};
    int vec = plan_vector(&program->device->info, (int64_t)op->x.cols * 2) / 2; /* what act_rows takes at once */
    f.can_quantise = vec && op->x.stride % vec == 0 && op->x.offset % vec == 0 && (f.scales == FP8_CHANNELS ? op->x.cols <= 8 * 1024 * vec : op->x.cols % FP8_BLOCK == 0);
    f.ring = value_aligned16(&op->x) && (!op->gated || (const char *)parts[1].weight->data > (const char *)parts[0].weight->data);
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
                    const struct matmul_fp8_plan *plan, size_t g, const struct fp8_rows *q, size_t x_scale)
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
    struct fp8_rows q = {0};
    ROSE_TRY(matmul_fp8_plan(&f, &program->device->info, &plan, err));
    if (plan.a8) ROSE_TRY(quantise(program, op, f.scales, &q, err));
    struct gemm_params g = {.x_stride = plan.a8 ? op->x.cols : op->x.stride, .k = (uint32_t)op->x.cols, .alpha = op->alpha != 0 ? op->alpha : 1.0f};
    struct gemm_fp8_scales s = {.x_stride = q.group_stride, .k_blocks = (uint32_t)ceil_div(op->x.cols, FP8_BLOCK)};
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
