/* Products with FP8 weights and with weights in block formats on a GPU, as a forward records them: few rows by weights alone, many with the
 * quantiser, or the decoder, before them.
 *
 *     gpu_fp8 [--driver LIBRARY] [--rows N,N,...] [--only PART] [--tile N,N,...] [--alone 1] [--kernels DIR]
 *
 * --alone 1: activations are quantised once, before the products. --kernels: a folder like src/ whose kernels replace those in the program.
 *
 * A program of NODES products over weights that rotate through more than L2 holds, replayed as a graph. Columns: us a product; TB/s of codes,
 * scales, x and y, and % of 4.58; TFLOP/s; what the plans predict; and of 32 results the largest difference from float64, in parts of the sum's size
 * (bf16 activations: rounding of y; quantised ones: that of e4m3). With tests/simt's driver (--driver) it needs no GPU and takes tiny shapes. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device/cuda.h"
#include "jit/jit.h"
#include "kernels/params/gemm_fp8.h"
#include "ops/matmul_cuda.h"
#include "ops/matmul_fp8.h"
#include "ops/weight_view.h"

enum { MOST_NODES = 32, SAMPLES = 32 };

static const struct shape {
    const char *name;
    int32_t n, k;
    int scales;
    bool gated;
    int32_t rows; /* 0: the list's */
    enum dtype blocks; /* not F32: of this type instead, random bytes, and no result is looked at (tests/simt does) */
} shapes[] = {
    {"28672x4096 blocks", 28672, 4096, FP8_BLOCKS, false, 0, DTYPE_F32},
    {"28672x4096 channels", 28672, 4096, FP8_CHANNELS, false, 0, DTYPE_F32},
    {"4096x14336 blocks", 4096, 14336, FP8_BLOCKS, false, 0, DTYPE_F32},
    {"4096x4096 channels", 4096, 4096, FP8_CHANNELS, false, 0, DTYPE_F32},
    {"2x14336x4096 SwiGLU blocks", 14336, 4096, FP8_BLOCKS, true, 0, DTYPE_F32},
    {"7168x16384 blocks", 7168, 16384, FP8_BLOCKS, false, 4096, DTYPE_F32}, /* the issue's */
    {"7168x16384 channels", 7168, 16384, FP8_CHANNELS, false, 4096, DTYPE_F32},
    {"14336x4096 bf16", 14336, 4096, 0, false, 0, DTYPE_BF16},
#define FORMAT(name, type) \
    {"14336x4096 " name, 14336, 4096, 0, false, 0, type}, {"4096x14336 " name, 4096, 14336, 0, false, 0, type}, {"4096x4096 " name, 4096, 4096, 0, false, 0, type}
    FORMAT("q4_k", DTYPE_Q4_K), FORMAT("q6_k", DTYPE_Q6_K), FORMAT("q4_0", DTYPE_Q4_0), FORMAT("q8_0", DTYPE_Q8_0), FORMAT("q5_k", DTYPE_Q5_K),
    FORMAT("q4_1", DTYPE_Q4_1), FORMAT("mxfp4", DTYPE_MXFP4), {"2x14336x4096 SwiGLU q4_k", 14336, 4096, 0, true, 0, DTYPE_Q4_K},
};
static const struct shape tiny[] = {{"tiny 200x256 blocks", 200, 256, FP8_BLOCKS, false, 0, DTYPE_F32}, {"tiny 136x256 SwiGLU channels", 136, 256, FP8_CHANNELS, true, 0, DTYPE_F32}, {"tiny 200x512 q4_k", 200, 512, 0, false, 0, DTYPE_Q4_K}};

struct bench {
    struct device *device;
    struct rose_error err;
    const struct shape *s;
    int32_t rows;
    int tile; /* 0: the plan's */
    bool alone;
    int nodes, sets;         /* products a program, different weights */
    uint8_t *codes;          /* the host's copy of one set: [parts][n][k] */
    float *scales;           /* [parts][count] */
    uint16_t *x;
    struct op_weight weights[MOST_NODES][2];
    struct { char *p; size_t bytes; } memory[3]; /* weights, x, y */
};

static void check(enum rose_status s, const struct rose_error *err)
{
    if (s != ROSE_OK) fprintf(stderr, "%s\n", err->message), exit(1);
}

static uint64_t state_ = 88172645463325252ull;
static uint32_t noise(void)
{
    state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
    return (uint32_t)(state_ >> 20);
}

static void take(struct bench *b, int which, size_t bytes)
{
    b->memory[which].bytes = bytes;
    b->memory[which].p = device_alloc(b->device, bytes, DEVICE_MEMORY_LOCAL, &b->err);
    if (!b->memory[which].p) check(ROSE_NO_MEMORY, &b->err);
}

/* Random bytes in every set. */
static void make_blocks(struct bench *b)
{
    const struct shape *s = b->s;
    struct tensor t = {.dtype = s->blocks, .ndim = 2, .shape = {s->n, s->k}};
    size_t bytes = matmul_cuda_weight_bytes(&t, false), each = size_round_up(bytes, 256);
    const int parts = 1 + s->gated;
    b->sets = (int)ROSE_MIN((size_t)b->nodes, (size_t)200e6 / (each * (size_t)parts) + 1);
    take(b, 0, each * (size_t)parts * (size_t)b->sets);
    b->codes = malloc(bytes);
    for (size_t i = 0; i < bytes; i++) b->codes[i] = (uint8_t)(noise() & 0xbf); /* no f16 that is none */
    for (int i = 0; i < b->sets * parts; i++) {
        check(matmul_cuda_weight(&t, false, b->memory[0].p + each * (size_t)i, &b->weights[i / parts][i % parts], &b->err), &b->err);
        check(device_copy(b->device, b->memory[0].p + each * (size_t)i, b->codes, bytes, &b->err), &b->err);
    }
}

/* Random codes and scales, the same in every set. */
static void make_weights(struct bench *b)
{
    const struct shape *s = b->s;
    int parts = 1 + s->gated;
    struct tensor_scales scales = {.rows = s->n, .cols = 1, .block_rows = 1, .block_cols = s->k, .name = "w"};
    if (s->scales == FP8_BLOCKS) scales = (struct tensor_scales){NULL, (s->n + 127) / 128, (s->k + 127) / 128, 128, 128, "w"};
    size_t codes = (size_t)s->n * (size_t)s->k, count = (size_t)scales.rows * (size_t)scales.cols;
    b->codes = malloc(codes * (size_t)parts), b->scales = malloc(count * (size_t)parts * sizeof(float));
    for (size_t i = 0; i < codes * (size_t)parts; i++) b->codes[i] = (uint8_t)(noise() % 120 | (noise() & 0x80)); /* up to 240 */
    for (size_t i = 0; i < count * (size_t)parts; i++) b->scales[i] = (0.5f + (float)(noise() % 1024) / 1024) / (32 * sqrtf((float)s->k));
    struct tensor t = {.dtype = DTYPE_F8_E4M3, .ndim = 2, .shape = {s->n, s->k}, .scales = &scales};
    size_t each = size_round_up(matmul_fp8_bytes(&t), 256);
    b->sets = (int)ROSE_MIN((size_t)b->nodes, (size_t)200e6 / (each * (size_t)parts) + 1);
    take(b, 0, each * (size_t)parts * (size_t)b->sets);
    for (int i = 0; i < b->sets * parts; i++) {
        scales.value = b->scales + count * (size_t)(i % parts);
        t.data = b->codes + codes * (size_t)(i % parts);
        struct op_weight *w = &b->weights[i / parts][i % parts];
        *w = matmul_fp8_weight(&t, b->memory[0].p + each * (size_t)i);
        check(device_copy(b->device, (void *)(uintptr_t)w->data, t.data, codes, &b->err), &b->err);
        check(matmul_fp8_copy_scales(b->device, &t, w, &b->err), &b->err);
    }
}

static void make_x(struct bench *b)
{
    size_t n = (size_t)b->rows * (size_t)b->s->k;
    b->x = malloc(n * 2);
    for (size_t i = 0; i < n; i++) b->x[i] = f32_to_bf16((float)((int)(noise() % 2001) - 1000) / 500);
    take(b, 1, n * 2), take(b, 2, (size_t)b->rows * (size_t)b->s->n * 2);
    check(device_copy(b->device, b->memory[1].p, b->x, n * 2, &b->err), &b->err);
    check(device_wait(b->device, NULL, &b->err), &b->err);
}

static struct program *record(struct bench *b, double *predicted)
{
    struct program *p;
    check(program_open(b->device, &p, &b->err), &b->err);
    p->eager = true;
    p->expect = (struct extents){.n = {1, b->rows, b->rows, b->rows}};
    program_buffer_id x = program_external(p, "x", b->memory[1].p, b->memory[1].bytes), y = program_external(p, "y", b->memory[2].p, b->memory[2].bytes);
    for (int i = 0; i < b->nodes; i++) {
        struct op_matmul op = {.name = "product", .parts_count = 1 + b->s->gated, .gated = b->s->gated, .activation = b->s->gated ? OP_ACT_SILU : OP_ACT_NONE, .tile = b->tile};
        op.x = (struct op_value){x, DTYPE_BF16, EXTENT_ROWS, b->s->k, b->s->k, 0};
        for (int part = 0; part <= b->s->gated; part++) op.parts[part].weight = &b->weights[i % b->sets][part];
        op.parts[0].y = (struct op_value){y, DTYPE_BF16, EXTENT_ROWS, b->s->n, b->s->n, 0};
        check(op_matmul(p, &op, &b->err), &b->err);
    }
    *predicted = 0;
    if (b->alone) {
        int kept = 0, seen = 0;
        for (int i = 0; i < p->count; i++)
            if (strcmp(p->entries[i].launch.name, "quantise") || seen++ == 0) p->entries[kept++] = p->entries[i];
        p->count = kept;
    }
    for (int i = 0; i < p->count; i++)
        if (p->entries[i].launch.plan) *predicted += ((const struct planned *)p->entries[i].launch.plan)->plan.predicted_us / b->nodes;
    check(program_finish(p, NULL, 0, &b->err), &b->err);
    return p;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static double dot(const struct bench *b, int part, int32_t row, int32_t col, double *size)
{
    const struct shape *s = b->s;
    int64_t blocks = s->scales == FP8_BLOCKS ? (s->k + 127) / 128 : 1, count = s->scales == FP8_BLOCKS ? (s->n + 127) / 128 * blocks : s->n;
    double sum = 0;
    for (int32_t k = 0; k < s->k; k++) {
        float code;
        dtype_decode(DTYPE_F8_E4M3, b->codes + ((size_t)part * (size_t)s->n + (size_t)col) * (size_t)s->k + k, &code, 1);
        int64_t at = s->scales == FP8_BLOCKS ? col / 128 * blocks + k / 128 : col;
        double v = (double)bf16_to_f32(b->x[(size_t)row * (size_t)s->k + (size_t)k]) * (double)code * (double)b->scales[part * count + at];
        sum += v, *size += fabs(v);
    }
    return sum;
}

/* Largest difference, in parts of the sum of magnitudes. */
static double error_of(struct bench *b)
{
    double worst = 0;
    uint16_t *y = malloc(b->memory[2].bytes);
    check(device_copy(b->device, y, b->memory[2].p, b->memory[2].bytes, &b->err), &b->err);
    check(device_wait(b->device, NULL, &b->err), &b->err);
    for (int i = 0; i < SAMPLES; i++) {
        int32_t row = (int32_t)(noise() % (uint32_t)b->rows), col = (int32_t)(noise() % (uint32_t)b->s->n);
        double size = 0, up_size = 0, v = dot(b, 0, row, col, &size);
        if (b->s->gated) {
            double up = dot(b, 1, row, col, &up_size);
            v = v / (1 + exp(-v)), size = size * fabs(up) + up_size * fabs(v), v *= up;
        }
        worst = fmax(worst, fabs((double)bf16_to_f32(y[(size_t)row * (size_t)b->s->n + (size_t)col]) - v) / size);
    }
    free(y);
    return worst;
}

static void measure(struct device *device, const struct shape *s, int32_t rows, int tile, bool alone, int nodes, int replays)
{
    struct bench b = {.device = device, .s = s, .rows = rows, .tile = tile, .alone = alone, .nodes = nodes};
    double predicted, best = 1e30, n = (double)s->n * (1 + s->gated);
    struct extents e = {.n = {1, rows, rows, rows}};
    if (s->blocks == DTYPE_F32) make_weights(&b);
    else make_blocks(&b);
    make_x(&b);
    struct program *p = record(&b, &predicted);
    check(device_prepare(device, p, &e, &b.err), &b.err);
    for (int round = 0; round < 4; round++) { /* the first warms up */
        double from = now();
        for (int i = 0; i < replays; i++) check(device_submit(device, p, &e, &b.err), &b.err);
        check(device_wait(device, NULL, &b.err), &b.err);
        double us = (now() - from) / replays / nodes;
        if (round && us < best) best = us;
    }
    double bytes = b.weights[0][0].bytes_read * (1 + s->gated) + (double)rows * (2.0 * s->k + 2.0 * s->n);
    printf("%-28s %5d rows tile %2d %9.1f us  %5.2f TB/s %5.1f %%  %7.1f TFLOP/s  predicted %8.1f us  error %.1e\n", s->name, rows, tile, best, bytes / best * 1e-6, bytes / best * 1e-6 / 4.58 * 100,
           2 * n * s->k * rows / best * 1e-6, predicted, s->blocks == DTYPE_F32 ? error_of(&b) : NAN);
    fflush(stdout);
    program_close(p);
    for (int i = 0; i < 3; i++) device_free(device, b.memory[i].p, b.memory[i].bytes, DEVICE_MEMORY_LOCAL);
    free(b.codes), free(b.scales), free(b.x);
}

/* The next of a list; 0 for what is no number. */
static int next_number(const char **at)
{
    char *end;
    long n = strtol(*at, &end, 10);
    *at = end + (*end && end == *at); /* past what is none */
    if (**at == ',') (*at)++;
    return (int)n;
}

int main(int argc, char **argv)
{
    const char *driver = NULL, *only = NULL, *rows = NULL, *tiles = "0", *kernels = NULL;
    bool alone = false;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--driver")) driver = argv[i + 1];
        if (!strcmp(argv[i], "--only")) only = argv[i + 1];
        if (!strcmp(argv[i], "--rows")) rows = argv[i + 1];
        if (!strcmp(argv[i], "--tile")) tiles = argv[i + 1];
        if (!strcmp(argv[i], "--alone")) alone = atoi(argv[i + 1]) != 0;
        if (!strcmp(argv[i], "--kernels")) kernels = argv[i + 1];
    }
    struct device *device;
    struct jit *jit;
    struct rose_error err = {0};
    if (!rows) rows = driver ? "3,70" : "1,4,8,16,32,64,128,1024,4096";
    check(device_open(&(struct device_options){.kind = DEVICE_CUDA, .driver = driver}, &device, &err), &err);
    check(jit_open(&(struct jit_options){.nvrtc_path = driver, .override_dir = kernels}, &jit, &err), &err);
    device->jit = jit;
    device->keeps_plans = true;
    const struct shape *list = driver ? tiny : shapes;
    int count = driver ? (int)ROSE_COUNT(tiny) : (int)ROSE_COUNT(shapes);
    for (int i = 0; i < count; i++) {
        if (only && !strstr(list[i].name, only)) continue;
        char own[16];
        snprintf(own, sizeof own, "%d", list[i].rows);
        for (const char *r = list[i].rows ? own : rows; *r;) {
            int32_t m = next_number(&r);
            for (const char *t = tiles; m > 0 && *t;) measure(device, &list[i], m, next_number(&t), alone, driver ? 2 : list[i].rows ? 4 : m > 256 ? 8 : MOST_NODES, driver ? 1 : list[i].rows ? 5 : 10);
        }
    }
    jit_close(jit);
    device_close(device);
    return 0;
}
