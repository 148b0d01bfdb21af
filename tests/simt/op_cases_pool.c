/* Pooling of ragged sequences, every kind, against float64. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/params/pool_rows.h"
#include "op_cases_internal.h"
#include "ops/pool_cuda.h"

enum { SEQS = 9, PAD = 16 }; /* columns behind a row; pool_cuda refuses rows that are no whole vectors (32 bytes on sm_100) */
struct pool_case {
    const char *name;
    int32_t cols;
    bool out_f32;
    bool f16;
    int shift; /* sequence s is pooled by kind (s + shift) % OP_POOL_COUNT */
};
static const struct pool_case cases[] = {
    {"pool 384 columns to f32", 384, true, false, 0},         {"pool 384 columns to f32, other kinds", 384, true, false, 2},
    {"pool 200 columns to bf16", 200, false, false, 4},       {"pool 48 columns to f32, other kinds", 48, true, false, 1},
    {"pool 1024 columns to bf16, other kinds", 1024, false, false, 5}, {"pool 72 columns to f32", 72, true, false, 3},
    {"pool f16 200 columns, other kinds", 200, false, true, 4},
};
/* An empty sequence, one of one row, more rows than groups and than groups times rows ahead; prompts, one longer than its text. */
static const int32_t rows_of[SEQS] = {1, 5, 33, 0, 300, 2, 7, 64, 31}, skips[SEQS] = {0, 2, 0, 0, 100, 2, 9, 0, 30};

const char *op_cases_pool_name(int i)
{
    return i < (int)(sizeof cases / sizeof *cases) ? cases[i].name : NULL;
}

static int32_t total(int times)
{
    int32_t n = 0;
    for (int s = 0; s < SEQS * times; s++) n += rows_of[s % SEQS];
    return n;
}

/* io->rows asks for so many sequences instead of nine. */
static struct pool_shape shape(int i, int rows)
{
    int times = rows > SEQS ? rows / SEQS : 1;
    return (struct pool_shape){.rows = total(times), .seqs = SEQS * times, .cols = cases[i].cols, .out_f32 = cases[i].out_f32, .f16 = cases[i].f16};
}

bool op_cases_pool_plan(int i, const struct device_info *device, int rows, struct plan *out)
{
    struct pool_shape s = shape(i, rows);
    return pool_cuda_plan(&s, device, out, NULL) == ROSE_OK;
}

static double want(int kind, const uint16_t *x, size_t stride, int n, int skip, size_t c)
{
    int first = skip < n ? skip : n - 1;
    double sum = 0, weight = 0, top = -INFINITY;
    for (int r = first; r < n; r++) {
        double v = (double)op_value(x[(size_t)r * stride + c]), f = kind == OP_POOL_WEIGHTED_MEAN ? r + 1 : 1;
        sum += f * v, weight += f;
        if (v > top) top = v;
    }
    switch (kind) {
    case OP_POOL_CLS: return (double)op_value(x[(size_t)first * stride + c]);
    case OP_POOL_LAST: return (double)op_value(x[(size_t)(n - 1) * stride + c]);
    case OP_POOL_MAX: return top;
    case OP_POOL_MEAN_SQRT: return sum / sqrt(weight);
    default: return sum / weight;
    }
}

static int check(const struct pool_case *k, size_t at, const void *y, double value, bool padding)
{
    if (!k->out_f32) {
        uint16_t got = ((const uint16_t *)y)[at];
        return padding ? got != 0xffff : op_check(k->name, at, got, value, 4e-6);
    }
    uint32_t bits;
    float got = ((const float *)y)[at];
    memcpy(&bits, &got, 4);
    if (padding ? bits == 0xffffffffu : fabs((double)got - value) <= 4e-6 * (1 + fabs(value))) return 0;
    return fprintf(stderr, "%s: element %zu is %.9g, expected %.9g\n", k->name, at, (double)got, value), 1;
}

int op_cases_pool_run(int i, const struct op_io *io)
{
    const struct pool_case *k = &cases[i];
    struct pool_shape s = shape(i, io->rows);
    op_f16 = s.f16;
    struct rose_error err = {0};
    struct plan plan;
    if (pool_cuda_plan(&s, io->device, &plan, &err)) return fprintf(stderr, "%s: %s\n", k->name, err.message), 1;
    size_t rows = (size_t)s.rows, seqs = (size_t)s.seqs, cols = (size_t)s.cols, stride = cols + PAD, y_bytes = seqs * stride * (s.out_f32 ? 4 : 2);
    uint16_t *x = malloc(rows * stride * 2);
    void *y = malloc(y_bytes);
    int32_t *seq_rows = calloc(seqs + 1, 4), *kind = malloc(seqs * 4), *skip = malloc(seqs * 4);
    op_fill(x, rows * stride, 2, 71);
    for (size_t q = 0; q < seqs; q++) {
        seq_rows[q + 1] = seq_rows[q] + rows_of[q % SEQS];
        kind[q] = (int32_t)((q + (size_t)k->shift) % OP_POOL_COUNT);
        skip[q] = skips[q % SEQS];
    }
    struct pool_rows_params p = {.x_stride = (int64_t)stride, .y_stride = (int64_t)stride, .seqs = (uint32_t)seqs};
    p.x = io->buffer(io->context, "x", rows * stride * 2, x, false);
    p.y = io->buffer(io->context, "y", y_bytes, NULL, false);
    p.seq_rows = io->buffer(io->context, "seq_rows", (seqs + 1) * 4, seq_rows, false);
    p.kind = io->buffer(io->context, "kind", seqs * 4, kind, false);
    p.skip = io->buffer(io->context, "skip", seqs * 4, skip, false);
    int wrong = !io->run(io->context, &plan, &p, sizeof p);
    io->read(io->context, y, p.y, y_bytes);
    for (size_t q = 0; q < seqs && !wrong; q++)
        for (size_t c = 0; c < stride; c++) {
            int n = seq_rows[q + 1] - seq_rows[q];
            double value = n && c < cols ? want(kind[q], x + (size_t)seq_rows[q] * stride, stride, n, skip[q], c) : 0;
            wrong += check(k, q * stride + c, y, value, c >= cols);
        }
    io->reset(io->context);
    free(x), free(y), free(seq_rows), free(kind), free(skip);
    return wrong;
}
