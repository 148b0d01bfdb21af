/* Products with weights of e4m3 and scales against float64: both kinds of scales, bf16 and e4m3 activations, every epilogue, ragged rows,
 * columns and k. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "op_cases_internal.h"
#include "ops/matmul_fp8.h"

struct fp8_case {
    const char *name;
    struct matmul_fp8_shape f;
    float alpha;
    int pad; /* elements between rows of x and y */
};
#define SHAPE(r, kk, count, ...) .rows = r, .k = kk, .parts = count, .n = {__VA_ARGS__}
#define MANY .rows16 = true, .tma = true
#define RING(i) .pairs = true, MANY, .tile = 31 + (i) /* gemv_fp8_ring: 64 or 128 weight rows; from 2 on e4m3 */
#define TURN(i) .pairs = true, MANY, .tile = 12 + (i) /* a variant of gemm_fp8_wgmma */
static const struct fp8_case cases[] = {
    {"fp8 1x72x208 channels", {{SHAPE(1, 208, 1, 72), .pairs = true}, FP8_CHANNELS, false, false, false}, 1, 0},
    {"fp8 5x(300+40+9)x400 blocks, bias, f32", {{SHAPE(5, 400, 3, 300, 40, 9), .bias = true, .out_f32 = true}, FP8_BLOCKS, false, false, false}, 0.5f, 8},
    {"fp8 16x136x720 blocks SwiGLU, bias", {{SHAPE(16, 720, 2, 136, 136), .gated = true, .act = OP_ACT_SILU, .bias = true}, FP8_BLOCKS, false, false, false}, 1, 0},
    {"fp8 3x104x1040 channels GeGLU, residual", {{SHAPE(3, 1040, 2, 104, 104), .gated = true, .accumulate = true, .act = OP_ACT_GELU_TANH}, FP8_CHANNELS, false, false, false}, 1, 2},
    {"fp8 9x2000x528 blocks, splits, residual", {{SHAPE(9, 528, 1, 2000), .splits = 3, .accumulate = true, .pairs = true}, FP8_BLOCKS, false, false, false}, 2, 0},
    {"fp8 4x40x1296 channels, splits, 2 warps", {{SHAPE(4, 1296, 1, 40), .splits = 2, .warps = 2, .depth = 2, .out_f32 = true}, FP8_CHANNELS, false, false, false}, 1, 0},
    {"fp8 19x(200+72)x272 blocks, tiles", {{SHAPE(19, 272, 2, 200, 72), .pairs = true}, FP8_BLOCKS, false, false, false}, 1, 8},
    {"fp8 66x70x144 channels GeGLU, bias, residual, deterministic",
     {{SHAPE(66, 144, 2, 70, 70), .gated = true, .bias = true, .accumulate = true, .act = OP_ACT_GELU_TANH, .pairs = true, .deterministic = true}, FP8_CHANNELS, true, false, false}, 1, 2},
    {"fp8 12x40x256 blocks, 16x64 tiles, bias", {{SHAPE(12, 256, 1, 40), .bias = true, .tile = 1}, FP8_BLOCKS, false, false, false}, 1, 0},
    {"fp8 130x140x400 blocks SwiGLU, 64x128 tiles", {{SHAPE(130, 400, 2, 140, 140), .gated = true, .act = OP_ACT_SILU, .tile = 3, .pairs = true}, FP8_BLOCKS, false, false, false}, 1, 0},
    {"fp8 140x136x144 channels, 128x128 tiles, f32", {{SHAPE(140, 144, 1, 136), .tile = 4, .out_f32 = true, .pairs = true}, FP8_CHANNELS, false, false, false}, 1, 8},
    {"fp8 e4m3 70x(200+72)x384 blocks, 64x64 tiles", {{SHAPE(70, 384, 2, 200, 72), .tile = 2, .pairs = true}, FP8_BLOCKS, true, true, false}, 1, 0},
    {"fp8 e4m3 130x140x256 blocks SwiGLU, 64x128 tiles", {{SHAPE(130, 256, 2, 140, 140), .gated = true, .act = OP_ACT_SILU, .tile = 3}, FP8_BLOCKS, true, true, false}, 1, 2},
    {"fp8 e4m3 140x136x304 channels, 128x128 tiles, bias, residual",
     {{SHAPE(140, 304, 1, 136), .tile = 4, .bias = true, .accumulate = true, .pairs = true}, FP8_CHANNELS, true, true, false}, 0.5f, 8},
    {"fp8 e4m3 200x(264+40+8)x384 blocks, wgmma, bias, residual",
     {{SHAPE(200, 384, 3, 264, 40, 8), .bias = true, .accumulate = true, .pairs = true, MANY}, FP8_BLOCKS, true, true, false}, 0.5f, 8},
    {"fp8 e4m3 270x200x1024 blocks SwiGLU, wgmma", {{SHAPE(270, 1024, 2, 200, 200), .gated = true, .act = OP_ACT_SILU, .pairs = true, MANY}, FP8_BLOCKS, true, true, false}, 1, 0},
    {"fp8 e4m3 130x136x272 channels, wgmma, f32", {{SHAPE(130, 272, 1, 136), .out_f32 = true, .pairs = true, MANY}, FP8_CHANNELS, true, true, false}, 1, 8},
    {"fp8 e4m3 140x72x528 channels GeGLU, wgmma, bias",
     {{SHAPE(140, 528, 2, 72, 72), .gated = true, .act = OP_ACT_GELU_TANH, .bias = true, .pairs = true, MANY}, FP8_CHANNELS, true, true, false}, 1, 0},
    {"fp8 e4m3 300x(264+40)x640 blocks, wgmma of 256 rows, bias, residual",
     {{SHAPE(300, 640, 2, 264, 40), .bias = true, .accumulate = true, TURN(1)}, FP8_BLOCKS, true, true, false}, 0.5f, 8},
    {"fp8 e4m3 390x72x384 blocks SwiGLU, wgmma of 256 rows, no turns", {{SHAPE(390, 384, 2, 72, 72), .gated = true, .act = OP_ACT_SILU, TURN(2)}, FP8_BLOCKS, true, true, false}, 1, 0},
    {"fp8 e4m3 260x136x272 channels, wgmma of 256 rows, f32", {{SHAPE(260, 272, 1, 136), .out_f32 = true, TURN(1)}, FP8_CHANNELS, true, true, false}, 1, 8},
    {"fp8 e4m3 200x136x1280 blocks, wgmma in pairs", {{SHAPE(200, 1280, 1, 136), TURN(3)}, FP8_BLOCKS, true, true, false}, 1, 0},
    {"fp8 e4m3 600x136x256 blocks, wgmma of 256 rows in pairs", {{SHAPE(600, 256, 1, 136), TURN(4)}, FP8_BLOCKS, true, true, false}, 1, 0},
    {"fp8 e4m3 200x136x128 blocks, wgmma, two sets", {{SHAPE(200, 128, 1, 136), TURN(0)}, FP8_BLOCKS, true, true, false}, 1, 0},
    {"fp8 e4m3 270x(264+40)x384 blocks, wgmma of 256 rows in pairs and turns, residual", {{SHAPE(270, 384, 2, 264, 40), .accumulate = true, TURN(5)}, FP8_BLOCKS, true, true, false}, 1, 0},
    {"fp8 e4m3 200x136x1152 blocks, wgmma, two sets", {{SHAPE(200, 1152, 1, 136), TURN(0)}, FP8_BLOCKS, true, true, false}, 1, 0},
    {"fp8 ring 1x392x720 blocks, 64 rows", {{SHAPE(1, 720, 1, 392), RING(0)}, FP8_BLOCKS, false, false, true}, 1, 0},
    {"fp8 ring 7x(300+40+9)x400 blocks, bias, residual", {{SHAPE(7, 400, 3, 300, 40, 9), .bias = true, .accumulate = true, RING(1)}, FP8_BLOCKS, false, false, true}, 0.5f, 8},
    {"fp8 ring 16x136x1040 channels GeGLU, f32", {{SHAPE(16, 1040, 2, 136, 136), .gated = true, .act = OP_ACT_GELU_TANH, .out_f32 = true, RING(1)}, FP8_CHANNELS, false, false, true}, 1, 8},
    {"fp8 ring 21x200x528 blocks SwiGLU", {{SHAPE(21, 528, 2, 200, 200), .gated = true, .act = OP_ACT_SILU, RING(0)}, FP8_BLOCKS, false, false, true}, 1, 0},
    {"fp8 ring 70x136x272 channels, f32", {{SHAPE(70, 272, 1, 136), .out_f32 = true, RING(1)}, FP8_CHANNELS, false, false, true}, 1, 8},
    {"fp8 ring e4m3 5x392x640 blocks, 64 rows", {{SHAPE(5, 640, 1, 392), RING(2)}, FP8_BLOCKS, true, false, true}, 1, 0},
    {"fp8 ring e4m3 33x(264+40+8)x768 blocks, bias, residual", {{SHAPE(33, 768, 3, 264, 40, 8), .bias = true, .accumulate = true, RING(3)}, FP8_BLOCKS, true, false, true}, 0.5f, 8},
    {"fp8 ring e4m3 70x136x4352 blocks SwiGLU", {{SHAPE(70, 4352, 2, 136, 136), .gated = true, .act = OP_ACT_SILU, RING(3)}, FP8_BLOCKS, true, false, true}, 1, 0},
    {"fp8 ring e4m3 18x136x272 channels, f32", {{SHAPE(18, 272, 1, 136), .out_f32 = true, RING(2)}, FP8_CHANNELS, true, false, true}, 1, 8},
};

struct data {
    const struct fp8_case *c;
    struct matmul_shape s;
    bool a8;
    double exact; /* what a sum may be off by, of its terms' sizes: wgmma keeps 13 bits of FP8's sums (simt_fp8_dot) */
    size_t x_stride, y_stride, blocks, x_scales_stride;
    uint16_t *x;    /* bf16, or codes */
    uint8_t *w[GEMM_PARTS];
    float *value[GEMM_PARTS]; /* what w's codes mean, without scales */
    double *row;              /* what the row of x that is checked means */
    float *w_scales[GEMM_PARTS], *x_scales, *bias[GEMM_PARTS];
    void *old, *got;
};

/* What row r of x means. */
static void read_row(const struct data *d, size_t r)
{
    size_t count = (size_t)d->s.k, each = d->c->f.scales == FP8_BLOCKS ? FP8_BLOCK : count;
    for (size_t k = 0; k < count; k++) {
        float v = d->a8 ? 0 : bf16_to_f32(d->x[r * d->x_stride + k]);
        if (d->a8) dtype_decode(DTYPE_F8_E4M3, (const uint8_t *)d->x + r * d->x_stride + k, &v, 1);
        d->row[k] = (double)v * (d->a8 ? (double)d->x_scales[k / each * d->x_scales_stride + r] : 1);
    }
}

/* Of the row that was read. */
static double dot(const struct data *d, int part, size_t col, double *size)
{
    double sum = 0, part_size;
    size_t count = (size_t)d->s.k, each = d->c->f.scales == FP8_BLOCKS ? FP8_BLOCK : count;
    *size = 0;
    for (size_t k = 0; k < count; k += each) {
        size_t at = d->c->f.scales == FP8_BLOCKS ? col / FP8_BLOCK * d->blocks + k / FP8_BLOCK : col;
        double scale = (double)d->w_scales[part][at];
        sum += op_dot(d->row + k, d->value[part] + col * count + k, ROSE_MIN(each, count - k), &part_size) * scale;
        *size += part_size * scale;
    }
    return d->s.bias ? sum + (double)d->bias[part][col] : sum;
}

/* Where y's element [r, c] of a part lies. */
static size_t place(const struct data *d, int part, size_t r, size_t c) { return ((size_t)part * (size_t)d->s.rows + r) * d->y_stride + c; }

static int check_one(const struct data *d, int part, size_t r, size_t c)
{
    double size, up_size, v = op_activate(d->s.act, dot(d, part, c, &size)), slack = size, alpha = (double)d->c->alpha;
    size_t at = place(d, part, r, c);
    if (d->s.gated) {
        double up = dot(d, 1, c, &up_size);
        slack = size * fabs(up) + up_size * fabs(v), v *= up;
    }
    v *= alpha, slack = d->exact * slack + 1e-5;
    if (!d->s.out_f32) {
        if (d->s.accumulate) v += (double)bf16_to_f32(((const uint16_t *)d->old)[at]);
        return op_check(d->c->name, at, ((const uint16_t *)d->got)[at], v, slack);
    }
    float g = ((const float *)d->got)[at];
    if (d->s.accumulate) v += (double)((const float *)d->old)[at];
    if (fabs((double)g - v) <= slack) return 0;
    fprintf(stderr, "%s: part %d row %zu column %zu is %.9g, expected %.9g\n", d->c->name, part, r, c, (double)g, v);
    return 1;
}

static int check(const struct data *d)
{
    int wrong = 0;
    size_t element = d->s.out_f32 ? 4 : 2;
    for (int p = 0; p < (d->s.gated ? 1 : d->s.parts); p++)
        for (size_t r = 0; r < (size_t)d->s.rows; r++) {
            read_row(d, r);
            for (size_t c = 0; c < (size_t)d->s.n[p]; c++) wrong += check_one(d, p, r, c);
            size_t from = place(d, p, r, (size_t)d->s.n[p]) * element, bytes = (d->y_stride - (size_t)d->s.n[p]) * element;
            wrong += memcmp((char *)d->got + from, (char *)d->old + from, bytes) != 0; /* between the rows: untouched */
        }
    return wrong;
}

static bool launch(const struct op_io *io, struct data *d, const struct matmul_fp8_plan *plan)
{
    struct gemm_params g = {.x_stride = (int64_t)d->x_stride, .rows = (uint32_t)d->s.rows, .k = (uint32_t)d->s.k, .alpha = d->c->alpha};
    struct gemm_fp8_scales s = {.x_stride = (int64_t)d->x_scales_stride, .k_blocks = (uint32_t)d->blocks};
    int parts = d->s.gated ? 1 : d->s.parts;
    size_t rows = (size_t)d->s.rows, element = d->s.out_f32 ? 4 : 2, each = rows * d->y_stride * element;
    bool by_block = d->c->f.scales == FP8_BLOCKS;
    g.x = io->buffer(io->context, "x", rows * d->x_stride * (d->a8 ? 1 : 2), d->x, false);
    if (d->a8) s.x = io->buffer(io->context, "x scales", (by_block ? d->blocks : 1) * d->x_scales_stride * 4, d->x_scales, false);
    char *y = io->buffer(io->context, "y", each * (size_t)parts, d->old, false);
    for (int i = 0; i < d->s.parts; i++) {
        size_t n = (size_t)d->s.n[i];
        g.part[i] = (struct gemm_part){.n = d->s.n[i], .y_stride = (int64_t)d->y_stride, .y = i < parts ? y + (size_t)i * each : NULL};
        g.part[i].w = d->s.gated && i ? (const char *)g.part[0].w + n * (size_t)d->s.k : io->buffer(io->context, "w", n * (size_t)d->s.k * (1 + d->s.gated), d->w[i], true);
        s.w[i] = io->buffer(io->context, "w scales", (by_block ? (n + FP8_BLOCK - 1) / FP8_BLOCK * d->blocks : n) * 4, d->w_scales[i], true);
        if (d->s.bias) g.part[i].bias = io->buffer(io->context, "bias", n * 4, d->bias[i], true);
    }
    matmul_plan_params(&plan->m, &g);
    size_t groups = plan->m.work_bytes ? (size_t)((d->s.rows + plan->m.group - 1) / plan->m.group) : 0;
    void *zero = calloc(groups + 1, plan->m.counter_bytes + 1);
    if (groups) g.work = io->buffer(io->context, "work", groups * plan->m.work_bytes, NULL, false);
    if (groups) g.counters = io->buffer(io->context, "counters", groups * plan->m.counter_bytes, zero, false);
    free(zero);
    bool ran;
    if (plan->m.box) {
        _Alignas(64) struct gemm_fp8_wgmma_params t = {.t = {.g = g}, .s = s};
        struct layout_tma box;
        for (int i = -1; i < d->s.parts; i++) {
            const void *base = matmul_fp8_box(plan, &g, i, d->s.rows, &box);
            io->map(io->context, i < 0 ? &t.t.x : &t.t.w[i], base, &box);
        }
        ran = io->run(io->context, &plan->m.plan, &t, sizeof t);
    } else {
        struct gemm_fp8_params t = {g, s};
        ran = io->run(io->context, &plan->m.plan, &t, sizeof t);
    }
    if (ran) io->read(io->context, d->got, y, each * (size_t)parts);
    return ran;
}

/* Codes of a normal distribution around 32, none of them NaN; scales that differ everywhere. */
static void fill_codes(uint8_t *out, size_t n, uint32_t seed)
{
    struct rose_error err;
    for (size_t i = 0; i < n; i++) {
        float v = 32 * op_normal(&seed);
        dtype_encode(DTYPE_F8_E4M3, &v, out + i, 1, &err);
    }
}
static float *scales(size_t n, float around, uint32_t seed)
{
    float *out = malloc(n * sizeof *out);
    for (size_t i = 0; i < n; i++) out[i] = around * (0.5f + (float)(op_random(&seed) % 1024) / 1024);
    return out;
}

static void fill(struct data *d)
{
    size_t rows = (size_t)d->s.rows, k = (size_t)d->s.k, xs = rows * d->x_stride, ys = rows * d->y_stride * (size_t)(d->s.gated ? 1 : d->s.parts);
    uint32_t seed = 12;
    d->x = malloc(xs * 2), d->old = malloc(ys * 4), d->got = malloc(ys * 4), d->row = malloc(k * sizeof *d->row);
    if (d->a8) fill_codes((uint8_t *)d->x, xs, 11);
    else op_fill(d->x, xs, 1, 11);
    d->x_scales = scales(d->blocks * d->x_scales_stride, 1.0f / 32, 13);
    if (d->s.out_f32)
        for (size_t i = 0; i < ys; i++) ((float *)d->old)[i] = op_normal(&seed);
    else
        op_fill(d->old, ys, 1, 12);
    for (int i = 0; i < d->s.parts; i++) {
        size_t n = (size_t)d->s.n[i];
        d->w[i] = d->s.gated && i ? d->w[0] + n * k : malloc(n * k * (1 + d->s.gated)), d->bias[i] = malloc(n * 4);
        fill_codes(d->w[i], n * k, 20 + (uint32_t)i);
        d->value[i] = malloc(n * k * 4);
        dtype_decode(DTYPE_F8_E4M3, d->w[i], d->value[i], n * k);
        d->w_scales[i] = scales(n * d->blocks, 1 / (32 * sqrtf((float)k)), 30 + (uint32_t)i);
        for (size_t c = 0; c < n; c++) d->bias[i][c] = op_normal(&seed);
    }
}

static int run(const struct fp8_case *c, const struct op_io *io)
{
    struct data d = {.c = c, .s = c->f.s};
    struct matmul_fp8_shape f = c->f;
    struct rose_error err = {0};
    struct matmul_fp8_plan plan;
    if (io->rows) f.s.rows = d.s.rows = io->rows;
    if (matmul_fp8_plan(&f, io->device, &plan, &err)) return fprintf(stderr, "%s: %s\n", c->name, err.message), 1;
    int32_t widest = 0;
    for (int i = 0; i < d.s.parts; i++) widest = d.s.n[i] > widest ? d.s.n[i] : widest;
    d.a8 = plan.a8, d.exact = d.a8 && plan.m.box ? 0x1.8p-13 : 1e-5;
    d.x_stride = (size_t)d.s.k + (size_t)(c->pad + 15) / 16 * 16, d.y_stride = (size_t)widest + (size_t)c->pad;
    d.blocks = ((size_t)d.s.k + FP8_BLOCK - 1) / FP8_BLOCK, d.x_scales_stride = (size_t)(d.s.rows + 3) / 4 * 4;
    fill(&d);
    int wrong = launch(io, &d, &plan) ? check(&d) : 1;
    io->reset(io->context);
    for (int i = 0; i < d.s.parts; i++) free(d.s.gated && i ? NULL : d.w[i]), free(d.value[i]), free(d.w_scales[i]), free(d.bias[i]);
    free(d.x), free(d.x_scales), free(d.old), free(d.got), free(d.row);
    return wrong;
}

const char *op_cases_fp8_name(int i) { return i < (int)(sizeof cases / sizeof *cases) ? cases[i].name : NULL; }
int op_cases_fp8_run(int i, const struct op_io *io) { return run(&cases[i], io); }
bool op_cases_fp8_plan(int i, const struct device_info *device, int rows, struct plan *out)
{
    struct matmul_fp8_shape f = cases[i].f;
    struct matmul_fp8_plan plan;
    if (rows) f.s.rows = rows;
    if (matmul_fp8_plan(&f, device, &plan, NULL) != ROSE_OK) return false;
    *out = plan.m.plan;
    return true;
}
