/* Matrix products on a GPU, as programs launch them: graph replay, dependent launches, weights that rotate through more than L2
 * holds three times.
 *
 *     gpu_matmul [--sweep] [--only PART] [--rows N,N,...] [--csv FILE] [--layers] [--picks] [--blas [--venv DIR]]
 *
 * --picks: variants of a few shapes in one short run. --blas: cuBLASLt beside each, as programs use it (a gated pair without its activation).
 *
 * Columns: us a product; TB/s of weights, x and y; % of 4.58 TB/s (what an H200 reads at best, facts of bench/results);
 * TFLOP/s; and the largest difference of a few results from the float64 sum, in parts of its size. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda.h"
#include "device/cuda_blas.h"
#include "jit/jit.h"
#include "kernels/params/gemm_wgmma.h"
#include "ops/matmul_plan.h"
#include "tensor/dtype.h"

enum { NODES = 48, PIECE = 64 << 20 };
#define READ_RATE 4.58e12

struct shape {
    const char *name;
    int parts;
    int32_t n[GEMM_PARTS], k;
    bool gated, accumulate, f32;
};
static const struct shape shapes[] = {
    {"4096x4096", 1, {4096}, .k = 4096, .accumulate = true},
    {"28672x4096", 1, {28672}, .k = 4096},
    {"4096x14336", 1, {4096}, .k = 14336, .accumulate = true},
    {"llama qkv 6144x4096", 3, {4096, 1024, 1024}, .k = 4096},
    {"llama gate_up 2x14336x4096", 2, {14336, 14336}, .k = 4096, .gated = true},
    {"llama output 128256x4096", 1, {128256}, .k = 4096, .f32 = true},
    {"qwen30 qkv 5120x2048", 3, {4096, 512, 512}, .k = 2048},
    {"qwen30 o 2048x4096", 1, {2048}, .k = 4096, .accumulate = true},
    {"qwen30 router 128x2048", 1, {128}, .k = 2048, .f32 = true},
    {"qwen30 output 151936x2048", 1, {151936}, .k = 2048, .f32 = true},
    {"qwen06 qkv 4096x1024", 3, {2048, 1024, 1024}, .k = 1024},
    {"qwen06 o 1024x2048", 1, {1024}, .k = 2048, .accumulate = true},
    {"qwen06 gate_up 2x3072x1024", 2, {3072, 3072}, .k = 1024, .gated = true},
    {"qwen06 down 1024x3072", 1, {1024}, .k = 3072, .accumulate = true},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

struct bench {
    struct device *device;
    struct jit *jit;
    uint16_t *host; /* PIECE bytes of random bf16; device memory repeats them */
    char *memory, *x, *y, *work, *counters;
    size_t bytes, x_bytes, y_bytes, work_bytes, counter_bytes;
    FILE *csv;
};
static struct rose_error err_;

static bool ok(enum rose_status s)
{
    if (s != ROSE_OK) printf("%s\n", err_.message);
    return s == ROSE_OK;
}

static bool setup(struct bench *b)
{
    b->bytes = (size_t)4 << 30, b->x_bytes = (size_t)512 << 20, b->y_bytes = (size_t)1 << 30, b->work_bytes = 256 << 20, b->counter_bytes = 8 << 20;
    struct {
        char **p;
        size_t bytes;
    } all[] = {{&b->memory, b->bytes}, {&b->x, b->x_bytes}, {&b->y, b->y_bytes}, {&b->work, b->work_bytes}, {&b->counters, b->counter_bytes}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!(*all[i].p = device_alloc(b->device, all[i].bytes, DEVICE_MEMORY_LOCAL, &err_))) return ok(ROSE_NO_MEMORY);
    b->host = malloc(PIECE);
    uint32_t s = 1;
    for (size_t i = 0; i < PIECE / 2; i++) {
        s = s * 1664525u + 1013904223u;
        b->host[i] = f32_to_bf16((float)(int32_t)s * 0x1p-32f);
    }
    for (size_t at = 0; at < b->bytes; at += PIECE)
        if (!ok(device_copy(b->device, b->memory + at, b->host, PIECE, &err_))) return false;
    for (size_t at = 0; at < b->x_bytes; at += PIECE)
        if (!ok(device_copy(b->device, b->x + at, b->host, PIECE, &err_))) return false;
    return ok(cuda_fill(b->device, b->counters, 0, b->counter_bytes, &err_)) && ok(cuda_fill(b->device, b->y, 0, b->y_bytes, &err_)) &&
           ok(device_wait(b->device, NULL, &err_));
}

static struct matmul_shape shape_of(const struct shape *s, int rows)
{
    struct matmul_shape m = {.rows = rows, .k = s->k, .parts = s->parts, .gated = s->gated, .accumulate = s->accumulate, .out_f32 = s->f32, .pairs = true, .rows16 = true, .tma = true};
    memcpy(m.n, s->n, sizeof m.n);
    if (s->gated) m.act = OP_ACT_SILU;
    return m;
}

static bool tensor_map(struct bench *b, const struct matmul_plan *plan, const struct gemm_params *p, int part, struct tensor_map *out)
{
    struct layout_tma box;
    const void *base = matmul_plan_box(plan, p, part, p->rows, &box);
    return ok(cuda_tensor_map(b->device, &box, 2, (void *)(uintptr_t)base, out, &err_));
}

/* A launch over the weights at `at`. */
static bool launch_of(struct bench *b, const struct matmul_shape *s, size_t at, struct program_launch *l, struct gemm_wgmma_params *t, uint32_t grid[3],
                      struct matmul_plan *plan)
{
    if (!ok(matmul_plan_make(s, &b->device->info, plan, &err_)) || !ok(plan_launch(&plan->plan, b->jit, b->device, EXTENT_ROWS, l, &err_)))
        return false;
    struct gemm_params *p = &t->g;
    *p = (struct gemm_params){.x = b->x, .work = b->work, .counters = b->counters, .x_stride = s->k, .rows = (uint32_t)s->rows, .k = (uint32_t)s->k, .alpha = 1.0f / 64};
    size_t y_at = 0, width = 0;
    for (int i = 0; i < (s->gated ? 1 : s->parts); i++) width += (size_t)s->n[i];
    for (int i = 0; i < s->parts; i++) {
        p->part[i] = (struct gemm_part){.w = b->memory + at, .y = b->y + y_at, .y_stride = (int64_t)width, .n = s->n[i]};
        at += (size_t)s->n[i] * (size_t)s->k * 2;
        y_at += (size_t)s->n[i] * (s->out_f32 ? 4 : 2);
    }
    matmul_plan_params(plan, p);
    size_t groups = plan->group ? ((size_t)s->rows + (size_t)plan->group - 1) / (size_t)plan->group : 0;
    if (groups * plan->work_bytes > b->work_bytes || groups * plan->counter_bytes > b->counter_bytes || (size_t)s->rows * width * 4 > b->y_bytes ||
        (size_t)s->rows * (size_t)s->k * 2 > b->x_bytes)
        return printf("the buffers are too small\n"), false;
    l->name = "matmul", l->params = p, l->params_bytes = sizeof *p, l->dependent = true;
    if (plan->box) {
        l->params = t, l->params_bytes = sizeof *t;
        for (int i = -1; i < (plan->interleaved ? 1 : s->parts); i++)
            if (!tensor_map(b, plan, p, i, i < 0 ? &t->x : &t->w[i])) return false;
    }
    grid[0] = plan_grid(&plan->plan, s->rows), grid[1] = grid[2] = 1;
    return true;
}

static size_t weight_bytes(const struct matmul_shape *s)
{
    size_t n = 0;
    for (int i = 0; i < s->parts; i++) n += (size_t)s->n[i];
    return n * (size_t)s->k * 2;
}

static int by_size(const void *a, const void *b)
{
    return *(const double *)a < *(const double *)b ? -1 : *(const double *)a > *(const double *)b;
}
static int nodes_of(int sets, double expected)
{
    int nodes = sets > NODES ? NODES : sets * (NODES / 2 / sets ? NODES / 2 / sets : 1);
    return expected > 300 && nodes > 6 ? 6 : nodes;
}
static double time_us(struct bench *b, const struct program_launch *l, const uint32_t (*grids)[3], int nodes, double expected)
{
    double t[3];
    int replays = (int)(1500 / (expected * nodes)) + 1;
    for (int i = 0; i < 3; i++)
        if (!ok(cuda_bench_graph_us(b->device, l, grids, nodes, 1, replays, &t[i], &err_))) return -1;
    qsort(t, 3, sizeof *t, by_size);
    return t[1];
}

/* A few results of the last launch against float64; -1: not comparable (an accumulated y). */
static double error_of(struct bench *b, const struct matmul_shape *s, const struct gemm_params *p)
{
    double worst = 0;
    if (s->accumulate) return -1;
    for (int i = 0; i < 24; i++) {
        int part = s->gated ? 0 : i % s->parts;
        size_t row = (size_t)i * 7919 % (size_t)s->rows, col = i == 0 ? (size_t)s->n[part] - 1 : (size_t)i * 104729 % (size_t)s->n[part];
        double sum[2] = {0, 0}, size[2] = {0, 0};
        for (int g = 0; g <= s->gated; g++)
            for (int k = 0; k < s->k; k++) {
                size_t w_at = ((size_t)((const char *)p->part[g ? 1 : part].w - b->memory) / 2 + col * (size_t)s->k + (size_t)k) % (PIECE / 2);
                size_t x_at = (row * (size_t)s->k + (size_t)k) % (PIECE / 2);
                double v = (double)bf16_to_f32(b->host[w_at]) * (double)bf16_to_f32(b->host[x_at]);
                sum[g] += v, size[g] += fabs(v);
            }
        double want = sum[0], scale = size[0];
        if (s->gated) want = sum[0] / (1 + exp(-sum[0])) * sum[1], scale = fabs(sum[0] * size[1]) + fabs(sum[1] * size[0]);
        want *= (double)p->alpha, scale *= (double)p->alpha;
        unsigned char raw[4] = {0};
        size_t element = s->out_f32 ? 4 : 2;
        if (!ok(device_copy(b->device, raw, (char *)p->part[part].y + (row * (size_t)p->part[part].y_stride + col) * element, element, &err_)) ||
            !ok(device_wait(b->device, NULL, &err_)))
            return 1e9;
        float got;
        uint16_t half;
        memcpy(&got, raw, 4), memcpy(&half, raw, 2);
        if (!s->out_f32) got = bf16_to_f32(half);
        double e = fabs((double)got - want) / (scale * 1e-5 + (s->out_f32 ? 0 : fabs(want) * 0x1p-8));
        if (!(e <= worst)) worst = e == e ? e : 1e9;
    }
    return worst;
}

/* Whether x and y of a shape have room. */
static bool fits(const struct bench *b, const struct matmul_shape *s)
{
    size_t width = 0;
    for (int i = 0; i < s->parts; i++) width += (size_t)s->n[i];
    return (size_t)s->rows * width * 4 <= b->y_bytes && (size_t)s->rows * (size_t)s->k * 2 <= b->x_bytes;
}

static int failures_;
static bool quiet_; /* no row a measurement */
static double measure(struct bench *b, const char *name, const struct matmul_shape *s, const char *what)
{
    static struct gemm_wgmma_params params[NODES];
    struct program_launch l[NODES] = {0};
    uint32_t grids[NODES][3];
    struct matmul_plan plan;
    if (!fits(b, s)) return -1;
    size_t set = (weight_bytes(s) + 255) & ~(size_t)255, l2 = b->device->info.l2_bytes, sets = 3 * l2 / set + 2;
    if (sets * set > b->bytes) sets = b->bytes / set;
    if (!ok(matmul_plan_make(s, &b->device->info, &plan, &err_))) return failures_++, -1;
    double expected = plan.plan.bytes / 4e6 + 2 + plan.plan.ops / 6e8;
    int nodes = nodes_of((int)sets, expected);
    for (int i = 0; i < nodes; i++)
        if (!launch_of(b, s, (size_t)i % sets * set, &l[i], &params[i], grids[i], &plan)) {
            printf("%s rows %d %s: failed\n", name, (int)s->rows, what);
            return failures_++, -1;
        }
    double us = time_us(b, l, (const uint32_t(*)[3])grids, nodes, expected), e = error_of(b, s, &params[nodes - 1].g);
    if (us <= 0) return failures_++, -1;
    bool wrong = e > 1;
    failures_ += wrong;
    char how[80];
    if (!strcmp(plan.plan.kernel, "gemv_rows"))
        snprintf(how, sizeof how, "gemv W %lld D %lld B %lld S %d grid %u", (long long)plan_get(&plan.plan, "WARPS"), (long long)plan_get(&plan.plan, "DEPTH"),
                 (long long)plan_get(&plan.plan, "OCCUPANCY") / 2, plan.splits, grids[0][0]);
    else if (!strcmp(plan.plan.kernel, "gemv_wgmma"))
        snprintf(how, sizeof how, "stream N %lld MG %lld KB %lld stages %lld grid %u", (long long)plan_get(&plan.plan, "N"), (long long)plan_get(&plan.plan, "MG"),
                 (long long)plan_get(&plan.plan, "KB"), (long long)plan_get(&plan.plan, "STAGES"), grids[0][0]);
    else if (plan.box)
        snprintf(how, sizeof how, "wgmma 128x%lld cluster %u grid %u", (long long)plan_get(&plan.plan, "BN"), plan.plan.cluster, grids[0][0]);
    else
        snprintf(how, sizeof how, "%s %lldx%lld grid %u", plan.plan.kernel, (long long)plan_get(&plan.plan, "BM"), (long long)plan_get(&plan.plan, "BN"), grids[0][0]);
    if (quiet_ && !wrong) return us;
    printf("%-28s M %-4d %9.2f us %6.2f TB/s %5.1f%% %7.1f TFLOP/s  error %5.2f%s  %-40s %s\n", name, (int)s->rows, us, plan.plan.bytes / us * 1e-6,
           100 * plan.plan.bytes / READ_RATE * 1e6 / us, plan.plan.ops / us * 1e-6, e, wrong ? " WRONG" : "", how, what);
    if (b->csv) fprintf(b->csv, "%s,%d,%.3f,%.0f,%.0f,%.1f,%.1f,%s,%s\n", name, (int)s->rows, us, plan.plan.bytes, plan.plan.ops, 100 * plan.plan.bytes / READ_RATE * 1e6 / us, plan.plan.ops / us * 1e-6, how, what);
    fflush(stdout);
    return us;
}

/* The same product by cuBLASLt. */
static double measure_blas(struct bench *b, const char *name, const struct matmul_shape *s)
{
    static struct cuda_blas_params params[NODES];
    struct program_launch l[NODES] = {0};
    uint32_t grids[NODES][3] = {{0}};
    if (!fits(b, s)) return -1;
    size_t set = (weight_bytes(s) + 255) & ~(size_t)255, sets = 3 * b->device->info.l2_bytes / set + 2;
    if (sets * set > b->bytes) sets = b->bytes / set;
    int n = 0;
    for (int i = 0; i < s->parts; i++) n += s->n[i];
    double bytes = (double)weight_bytes(s) + 2.0 * (double)s->rows * s->k + (double)s->rows * n * (s->out_f32 ? 4 : 2) * (1 + s->accumulate);
    double ops = 2.0 * (double)s->rows * n * s->k, expected = bytes / 4e6 + 2 + ops / 6e8;
    int nodes = nodes_of((int)sets, expected);
    for (int i = 0; i < nodes; i++) {
        params[i] = (struct cuda_blas_params){.blas = b->device->blas, .x = b->x, .w = b->memory + (size_t)i % sets * set, .y = b->y, .workspace = b->work,
                                              .x_stride = s->k, .y_stride = n, .n = n, .k = s->k, .rows = (uint32_t)s->rows, .alpha = 1.0f / 64,
                                              .beta = s->accumulate ? 1 : 0, .out_f32 = s->out_f32};
        l[i] = (struct program_launch){.name = "blas", .params = &params[i], .params_bytes = sizeof params[i], .host = cuda_blas_run};
    }
    double us = time_us(b, l, (const uint32_t(*)[3])grids, nodes, expected);
    if (us <= 0) return failures_++, -1;
    struct gemm_params p = {.alpha = 1.0f / 64};
    struct matmul_shape plain = *s;
    plain.parts = 1, plain.n[0] = n, plain.gated = false;
    p.part[0] = (struct gemm_part){.w = params[nodes - 1].w, .y = b->y, .y_stride = n, .n = n};
    double e = error_of(b, &plain, &p);
    failures_ += e > 1;
    if (quiet_ && e <= 1) return us;
    printf("%-28s M %-4d %9.2f us %6.2f TB/s %5.1f%% %7.1f TFLOP/s  error %5.2f%s  cuBLASLt\n", name, (int)s->rows, us, bytes / us * 1e-6,
           100 * bytes / READ_RATE * 1e6 / us, ops / us * 1e-6, e, e > 1 ? " WRONG" : "");
    if (b->csv) fprintf(b->csv, "%s,%d,%.3f,%.0f,%.0f,%.1f,%.1f,cuBLASLt,\n", name, (int)s->rows, us, bytes, ops, 100 * bytes / READ_RATE * 1e6 / us, ops / us * 1e-6);
    fflush(stdout);
    return us;
}

/* qkv, o, gate_up, down of several layers, one after the other. */
static void layers(struct bench *b, const char *name, const char *const *parts, int rows)
{
    static struct gemm_wgmma_params params[NODES];
    struct program_launch l[NODES] = {0};
    uint32_t grids[NODES][3];
    struct matmul_plan plan;
    double bytes = 0;
    size_t at = 0;
    int n = 0;
    for (int layer = 0; layer < NODES / 4; layer++)
        for (int i = 0; i < 4; i++) {
            const struct shape *s = shapes;
            while (strcmp(s->name, parts[i])) s++;
            struct matmul_shape m = shape_of(s, rows);
            if (at + weight_bytes(&m) > b->bytes) at = 0;
            if (!launch_of(b, &m, at, &l[n], &params[n], grids[n], &plan)) return (void)failures_++;
            at += weight_bytes(&m), bytes += plan.plan.bytes, n++;
        }
    double us = time_us(b, l, (const uint32_t(*)[3])grids, n, bytes / n / 4e6) * 4;
    if (us <= 0) return (void)failures_++;
    printf("%-28s M %-4d %9.2f us a layer (4 products), %5.1f%% of 4.58 TB/s\n", name, rows, us, 100 * bytes / (n / 4) / READ_RATE * 1e6 / us);
    if (b->csv) fprintf(b->csv, "layer of %s,%d,%.3f,%.0f,,%.1f,,,\n", name, rows, us, bytes / (n / 4), 100 * bytes / (n / 4) / READ_RATE * 1e6 / us);
    fflush(stdout);
}

/* Variant i of a shape; false past the last. */
static bool variant(const struct shape *s, int rows, int i, struct matmul_shape *m)
{
    static const int choices[][4] = {{8, 4, 1, 1}, {16, 2, 1, 1}};
    *m = shape_of(s, rows);
    if (i < 2) {
        m->warps = choices[i][0], m->depth = choices[i][1], m->blocks = choices[i][2], m->splits = choices[i][3];
        return true;
    }
    m->tile = i - 1;
    return m->tile < 21 + MATMUL_PLAN_STREAMS;
}
static bool sensible(const struct matmul_shape *m)
{
    int t = m->tile, rows = (int)m->rows;
    if (!t) return rows <= 8;
    return t <= 4 ? rows >= 16 && rows <= 128 && (t == 1 || rows > 16) : t > 20 ? rows <= 128 : t > 10 && t <= 15 && rows >= 64;
}
static void sweep(struct bench *b, const struct shape *s, int rows)
{
    struct matmul_shape m;
    for (int i = 0; variant(s, rows, i, &m); i++)
        if (sensible(&m)) measure(b, s->name, &m, "sweep");
}

/* Lists of variants for one short run: shapes, rows, tiles from .. to. */
static const struct pick {
    const char *shapes[5];
    int rows[6], from, to;
    bool blas;
} picks[] = {
    {{"llama gate_up 2x14336x4096"}, {128, 256, 512, 1024, 4096, 8192}, 11, 17, true},
    {{"4096x4096", "4096x14336", "llama qkv 6144x4096"}, {1024, 4096, 8192}, 11, 12, true},
    {{"qwen30 qkv 5120x2048", "qwen30 o 2048x4096"}, {4096, 8192}, 11, 12, true},
    {{"qwen30 router 128x2048"}, {1024, 4096, 8192}, 13, 15, true},
    {{"28672x4096", "qwen06 qkv 4096x1024"}, {1, 16, 64}, 21, 29, false},
    {{"llama qkv 6144x4096", "4096x4096", "llama gate_up 2x14336x4096", "4096x14336"}, {32, 1}, 21, 30, false},
};
enum { PICKS = sizeof picks / sizeof *picks };
/* Variants in turn, several times: the machine's clock falls and rises by itself, and only the best of each can be compared. */
static void in_turn(struct bench *b, const struct pick *p, const struct shape *s, int rows)
{
    enum { ROUNDS = 5 };
    double best[40], us;
    struct matmul_shape m = shape_of(s, rows);
    double ops = 0;
    for (int i = 0; i < s->parts; i++) ops += 2.0 * rows * s->n[i] * s->k;
    for (int t = 0; t < 40; t++) best[t] = 1e30;
    quiet_ = true;
    for (int round = 0; round < ROUNDS; round++) {
        for (int t = p->from; t <= p->to; t++)
            if (m.tile = t, (us = measure(b, s->name, &m, "")) > 0 && us < best[t]) best[t] = us;
        if (p->blas && b->device->blas && rows >= 16 && (us = measure_blas(b, s->name, &m)) > 0 && us < best[0]) best[0] = us;
    }
    quiet_ = false;
    for (int t = 0; t < 40; t++) {
        if (best[t] > 1e29) continue;
        printf("%-28s M %-4d tile %2d%s %9.2f us %7.1f TFLOP/s\n", s->name, rows, t, t ? "" : " (cuBLASLt)", best[t], ops / best[t] * 1e-6);
        if (b->csv) fprintf(b->csv, "%s,%d,%.3f,,%.0f,,%.1f,tile %d,best of %d\n", s->name, rows, best[t], ops, ops / best[t] * 1e-6, t, ROUNDS);
    }
    fflush(stdout);
}
static void run_picks(struct bench *b, const char *only, bool request)
{
    for (int p = 0; p < PICKS; p++)
        for (int k = 0; k < 5 && picks[p].shapes[k]; k++)
            for (int r = 0; r < 6 && picks[p].rows[r]; r++) {
                const struct shape *s = shapes;
                while (strcmp(s->name, picks[p].shapes[k])) s++;
                if (only && !strstr(s->name, only)) continue;
                if (!request) {
                    in_turn(b, &picks[p], s, picks[p].rows[r]);
                    continue;
                }
                struct matmul_shape m = shape_of(s, picks[p].rows[r]);
                for (int t = picks[p].from; t <= picks[p].to; t++) {
                    struct matmul_plan plan;
                    const struct jit_kernel *kernel;
                    m.tile = t;
                    if (ok(matmul_plan_make(&m, &b->device->info, &plan, &err_))) ok(plan_request(&plan.plan, b->jit, b->device->info.arch, &kernel, &err_));
                }
            }
}

int main(int argc, char **argv)
{
    static const char *const llama[] = {"llama qkv 6144x4096", "4096x4096", "llama gate_up 2x14336x4096", "4096x14336"};
    static const char *const small[] = {"qwen06 qkv 4096x1024", "qwen06 o 1024x2048", "qwen06 gate_up 2x3072x1024", "qwen06 down 1024x3072"};
    struct bench b = {0};
    struct device_options options = {.kind = DEVICE_CUDA};
    bool variants = false, whole = false, blas = false, short_run = false;
    const char *only = NULL, *csv = NULL, *venv = NULL;
    int rows[16] = {1, 4, 8, 16}, rows_count = 4;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--sweep"))
            variants = true;
        else if (!strcmp(argv[i], "--picks"))
            short_run = true;
        else if (!strcmp(argv[i], "--blas"))
            blas = true;
        else if (!strcmp(argv[i], "--layers"))
            whole = true;
        else if (!strcmp(argv[i], "--only") && i + 1 < argc)
            only = argv[++i];
        else if (!strcmp(argv[i], "--venv") && i + 1 < argc)
            venv = argv[++i];
        else if (!strcmp(argv[i], "--csv") && i + 1 < argc)
            csv = argv[++i];
        else if (!strcmp(argv[i], "--rows") && i + 1 < argc) {
            rows_count = 0;
            for (char *t = strtok(argv[++i], ","); t && rows_count < 16; t = strtok(NULL, ",")) rows[rows_count++] = atoi(t);
        } else
            return printf("gpu_matmul [--sweep] [--picks] [--layers] [--only PART] [--rows N,N,...] [--csv FILE] [--blas]\n"), 2;
    }
    if (!ok(device_open(&options, &b.device, &err_)) || !ok(jit_open(&(struct jit_options){0}, &b.jit, &err_)) || !setup(&b)) return 1;
    if (csv && !(b.csv = fopen(csv, "w"))) return printf("cannot write %s\n", csv), 1;
    if (blas && ok(cuda_blas_open(b.device, &(struct cuda_blas_places){.venv = venv}, &b.device->blas, &err_))) {
        struct strbuf line = {0};
        cuda_blas_print(b.device->blas, &line);
        printf("%s\n", line.p);
        strbuf_free(&line);
    }
    /* All plans first: kernels are compiled in parallel. */
    if (short_run) run_picks(&b, only, true);
    for (int i = 0; i < SHAPES; i++)
        for (int r = 0; r < rows_count; r++) {
            struct matmul_shape m = shape_of(&shapes[i], rows[r]);
            struct matmul_plan plan;
            const struct jit_kernel *k;
            if (matmul_plan_make(&m, &b.device->info, &plan, &err_) == ROSE_OK) ok(plan_request(&plan.plan, b.jit, b.device->info.arch, &k, &err_));
            for (int v = 0; variants && (only ? strstr(shapes[i].name, only) != NULL : i < 3) && variant(&shapes[i], rows[r], v, &m); v++)
                if (sensible(&m) && matmul_plan_make(&m, &b.device->info, &plan, &err_) == ROSE_OK)
                    ok(plan_request(&plan.plan, b.jit, b.device->info.arch, &k, &err_));
        }
    if (!ok(jit_compile_all(b.jit, &err_))) return 1;
    for (int r = 0; r < rows_count && whole; r++) layers(&b, "Llama 8B", llama, rows[r]), layers(&b, "Qwen3 0.6B", small, rows[r]);
    if (short_run) run_picks(&b, only, false);
    for (int i = 0; i < SHAPES && !variants && !short_run; i++)
        for (int r = 0; r < rows_count; r++) {
            if (only && !strstr(shapes[i].name, only)) continue;
            struct matmul_shape m = shape_of(&shapes[i], rows[r]);
            measure(&b, shapes[i].name, &m, "");
            if (b.device->blas) measure_blas(&b, shapes[i].name, &m);
        }
    for (int i = 0; i < SHAPES && variants; i++)
        for (int r = 0; r < rows_count; r++)
            if (only ? strstr(shapes[i].name, only) != NULL : i < 3) sweep(&b, &shapes[i], rows[r]);
    printf("%d failed\n", failures_);
    if (b.csv) fclose(b.csv);
    cuda_blas_close(b.device->blas);
    jit_close(b.jit);
    device_close(b.device);
    return failures_ != 0;
}
