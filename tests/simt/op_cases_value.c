/* Gather, soft cap, add and row gate, against float64. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "op_cases_internal.h"
#include "ops/value_cuda.h"

struct value_case {
    const char *name;
    struct value_shape s;
    int pad;
};
static const struct value_case cases[] = {
    {"gather 5x264, scaled", {.rows = 5, .cols = 264, .op = VALUE_GATHER, .scale = 45.25f}, 8},
    {"soft cap 3x1000", {.rows = 3, .cols = 1000, .op = VALUE_SOFTCAP, .scale = 0.5f, .cap = 3}, 0},
    {"scale 3x96", {.rows = 3, .cols = 96, .op = VALUE_SOFTCAP, .scale = 0.22f}, 32},
    {"add 5x2048", {.rows = 5, .cols = 2048, .op = VALUE_ADD, .scale = 0.25f}, 0},
    {"row gate 7x520", {.rows = 7, .cols = 520, .op = VALUE_ROW_GATE}, 8},
    {"gather 5x264, added", {.rows = 5, .cols = 264, .op = VALUE_GATHER, .scale = 0.5f, .accumulate = true}, 8},
    {"row gate 7x520, gate f32", {.rows = 7, .cols = 520, .op = VALUE_ROW_GATE, .f32 = true}, 8},
    {"soft cap 3x1004 f32", {.rows = 3, .cols = 1004, .op = VALUE_SOFTCAP, .cap = 30, .f32 = true}, 4},
    {"gather f16 5x264, scaled", {.rows = 5, .cols = 264, .op = VALUE_GATHER, .scale = 45.25f, .f16 = true}, 8},
    {"add f16 5x2048, beyond the range", {.rows = 5, .cols = 2048, .op = VALUE_ADD, .scale = 6e4f, .f16 = true}, 0},
    {"row gate f16 7x520, gate f32", {.rows = 7, .cols = 520, .op = VALUE_ROW_GATE, .f32 = true, .f16 = true}, 8},
};

const char *op_cases_value_name(int i)
{
    return i < (int)(sizeof cases / sizeof *cases) ? cases[i].name : NULL;
}
bool op_cases_value_plan(int i, const struct device_info *device, int rows, struct plan *out)
{
    struct value_shape s = cases[i].s;
    if (rows) s.rows = rows;
    return value_cuda_plan(&s, device, out, NULL) == ROSE_OK;
}

static double want(const struct value_shape *s, double x, double y, double gate)
{
    double scale = s->scale != 0 ? (double)s->scale : 1, cap = (double)s->cap;
    if (s->op == VALUE_SOFTCAP && cap > 0) return cap * tanh(scale * x / cap);
    if (s->op == VALUE_ADD || s->accumulate) return y + scale * x;
    if (s->op == VALUE_ROW_GATE) return y / (1 + exp(-gate));
    return scale * x;
}

/* Soft cap of f32 rows: no rounding to 16 bits hides anything. */
static int run_f32(const struct value_case *k, const struct value_shape *s, const struct plan *plan,
                   const struct op_io *io)
{
    size_t rows = (size_t)s->rows, n = (size_t)s->cols, stride = n + (size_t)k->pad, all = rows * stride;
    float *x = malloc(all * 4), *got = malloc(all * 4);
    for (size_t e = 0; e < all; e++) x[e] = 80 * sinf((float)e * 0.37f);
    struct value_rows_params p = {.x_stride = (int64_t)stride, .y_stride = (int64_t)stride, .rows = (uint32_t)rows};
    p.x = io->buffer(io->context, "x", all * 4, x, false);
    p.y = io->buffer(io->context, "y", all * 4, x, false);
    int wrong = !io->run(io->context, plan, &p, sizeof p);
    io->read(io->context, got, p.y, all * 4);
    for (size_t e = 0; e < all && !wrong; e++) {
        double w = e % stride < n ? want(s, (double)x[e], 0, 0) : (double)x[e];
        if (!(fabs((double)got[e] - w) <= 2e-5 * (1 + fabs(w)))) wrong++, fprintf(stderr, "%s: %zu: %g, not %g\n", k->name, e, (double)got[e], w);
    }
    io->reset(io->context);
    free(x), free(got);
    return wrong;
}

int op_cases_value_run(int i, const struct op_io *io)
{
    const struct value_case *k = &cases[i];
    struct value_shape s = k->s;
    struct plan plan;
    struct rose_error err = {0};
    if (io->rows) s.rows = io->rows;
    op_f16 = s.f16;
    if (value_cuda_plan(&s, io->device, &plan, &err))
        return fprintf(stderr, "%s: %s\n", k->name, err.message), 1;
    if (s.f32 && s.op == VALUE_SOFTCAP) return run_f32(k, &s, &plan, io);
    bool gate = s.op == VALUE_ROW_GATE, gather = s.op == VALUE_GATHER, update = gate || s.op == VALUE_ADD || s.accumulate;
    size_t rows = (size_t)s.rows, x_rows = gather ? 11 : rows, n = (size_t)s.cols,
           stride = n + (size_t)k->pad, x_stride = gate ? 1 : stride;
    uint16_t *x = malloc(x_rows * x_stride * 2), *y = malloc(rows * stride * 2),
             *got = malloc(rows * stride * 2);
    int32_t *index = malloc(rows * 4);
    op_fill(x, x_rows * x_stride, 2, 51), op_fill(y, rows * stride, 2, 52);
    int32_t shift = s.accumulate ? 4 : 0; /* index_offset */
    for (size_t r = 0; r < rows; r++) index[r] = (r == 2 ? 11 : r == 3 ? -1 : (int32_t)(r * 7 % 11)) - shift;
    float *gates = malloc(rows * 4);
    for (size_t r = 0; r < rows; r++) gates[r] = op_value(x[gate ? r : 0]);
    struct value_rows_params p = {.x_stride = (int64_t)x_stride,
                                  .y_stride = (int64_t)stride,
                                  .rows = (uint32_t)rows,
                                  .x_rows = (uint32_t)x_rows,
                                  .index_offset = shift};
    p.x = s.f32 ? io->buffer(io->context, "gate", rows * 4, gates, false)
                : io->buffer(io->context, "x", x_rows * x_stride * 2, x, false);
    p.y = io->buffer(io->context, "y", rows * stride * 2, update ? y : NULL, false);
    if (gather) p.index = io->buffer(io->context, "index", rows * 4, index, false);
    int wrong = !io->run(io->context, &plan, &p, sizeof p);
    io->read(io->context, got, p.y, rows * stride * 2);
    for (size_t r = 0; r < rows && !wrong; r++)
        for (size_t c = 0; c < stride; c++) {
            size_t from = gather ? (size_t)(index[r] + shift) : r;
            if (c >= n)
                wrong += got[r * stride + c] != (update ? y[r * stride + c] : 0xffff);
            else if (from >= x_rows)
                wrong += got[r * stride + c] != (s.accumulate ? y[r * stride + c] : 0);
            else
                wrong += op_check(k->name, r * stride + c, got[r * stride + c],
                                       want(&s, (double)op_value(x[from * x_stride + (gate ? 0 : c)]),
                                            (double)op_value(y[r * stride + c]),
                                            (double)op_value(x[gate ? r : 0])),
                                       3e-6);
        }
    io->reset(io->context);
    free(x), free(y), free(got), free(index), free(gates);
    return wrong;
}
