#include "ops/act_cuda.h"

#include <stddef.h>

#include "ops/value.h"

_Static_assert((int)OP_ACT_SILU == ACT_SILU && (int)OP_ACT_RELU2 == ACT_RELU2 &&
                   (int)OP_ACT_GELU_ERF == ACT_GELU_ERF,
               "one numbering");

int act_cuda_group(int out)
{
    return out == ACT_OUT_E4M3_128                        ? 128
           : out == ACT_OUT_MXFP8 || out == ACT_OUT_MXFP4 ? 32
           : out == ACT_OUT_NVFP4                         ? 16
                                                          : 0;
}

double act_cuda_row_bytes(int out, int64_t n)
{
    static const double bits[] = {16, 8, 8, 8, 8, 4, 4, 8}, scale[] = {0, 0, 4, 4, 1, 1, 1, 4};
    int group = act_cuda_group(out);
    return (double)n * bits[out] / 8 + scale[out] * (group ? (double)n / group : 1);
}

static bool token(int out)
{
    return out == ACT_OUT_E4M3_TOKEN || out == ACT_OUT_INT8_TOKEN;
}

static enum rose_status check(const struct act_shape *s, int vec, struct rose_error *err)
{
    int group = act_cuda_group(s->out);
    if (s->cols <= 0 || !vec)
        return status_set(err, ROSE_UNSUPPORTED,
                          "act: rows of %d columns; the CUDA kernel takes multiples of 8", s->cols);
    if (s->out < ACT_OUT_BF16 || s->out > ACT_OUT_INT8_TOKEN || (unsigned)s->act > OP_ACT_RELU2)
        return status_set(err, ROSE_INVALID, "act: unknown output %d or activation %d", s->out, (int)s->act);
    if (group && s->cols % group)
        return status_set(err, ROSE_UNSUPPORTED, "act: rows of %d columns are no whole groups of %d", s->cols,
                          group);
    if (s->tiled && group != 32 && group != 16)
        return status_set(err, ROSE_INVALID, "act: only scales of 32 or 16 elements come in tiles");
    if (!(s->clamp >= 0))
        return status_set(err, ROSE_INVALID, "act: clamp is %g and must not be negative", (double)s->clamp);
    return ROSE_OK;
}

/* Threads a piece of a row, and vectors a thread. */
static void split(const struct act_shape *s, const struct device_info *d, int vectors, int *threads, int *per)
{
    int64_t filled = (int64_t)d->units * d->max_threads_per_unit;
    if (token(s->out)) { /* a piece is the row */
        *threads = 1;
        while (*threads < vectors && *threads < 1024) *threads *= 2;
        int want = s->rows * *threads >= filled * 2 ? 4 : s->rows * *threads >= filled ? 2 : 1;
        while (want > 1 && *threads > 32) *threads /= 2, want /= 2;
        *per = (vectors + *threads - 1) / *threads;
        return;
    }
    *threads = 16;
    while (*threads < 256 && vectors % (*threads * 2) == 0) *threads *= 2;
    while (*threads < 64 && vectors > 8 * *threads)
        *threads *= 2; /* no power of two fits: a ragged last piece of a long row */
    /* Two vectors a thread where the threads fill the SMs twice: more loads in flight, and half of the
     * address arithmetic; four where scales are of groups, whose reduction and division serve four at once (four-bit
     * results would take 126 registers for it). */
    *per = s->rows * vectors >= filled * 2 && vectors >= *threads * 2 && !s->gated ? 2 : 1;
    if (*per == 2 && (s->out == ACT_OUT_E4M3_128 || s->out == ACT_OUT_MXFP8) && *threads >= 64 && vectors % (*threads * 2) == 0) *threads /= 2, *per = 4;
}

/* Four-bit results are bound by instructions: where there are many, stores of 16 bytes and a unit ahead on a grid that stays (4096 x 4096 on an H200, mxfp4 /
 * nvfp4: 15.9 / 16.2 us without, 14.1 / 14.5 so). */
static bool keeps_ahead(const struct act_shape *s, const struct device_info *d)
{
    double each = (double)s->rows * s->cols / ((double)d->units * d->max_threads_per_unit); /* elements a thread of a full GPU */
    return plan_arch(d) == 900 && !s->act && !s->gated && !s->vec && !s->ahead && s->cols % 16 == 0 && each >= 32;
}

enum rose_status act_cuda_plan(const struct act_shape *s, const struct device_info *d, struct plan *out,
                               struct rose_error *err)
{
    int vec = plan_vector(d, (int64_t)s->cols * 2), threads, per, ahead = s->ahead;
    bool four = s->out == ACT_OUT_MXFP4 || s->out == ACT_OUT_NVFP4;
    *out = (struct plan){.kernel = "act_rows", .rows = s->rows};
    ROSE_TRY(check(s, vec, err));
    if (s->vec && s->cols * 2 % s->vec == 0) vec = s->vec;
    if (four && keeps_ahead(s, d)) vec = 32, ahead = 4;
    int vectors = s->cols * 2 / vec;
    split(s, d, vectors, &threads, &per);
    if (ahead && per == 1 && threads >= 64) threads /= 2, per = 2;
    if (s->threads) threads = s->threads, per = (vectors + threads - 1) / threads;
    if (s->per) per = s->per;
    if (per > 8)
        return status_set(err, ROSE_UNSUPPORTED, "act: rows of %d columns are too long for one scale a row",
                          s->cols);
    int pieces = token(s->out) ? 1 : (vectors + threads * per - 1) / (threads * per);
    plan_pieces(out, d, s->rows, s->cols, vec, threads, per, pieces);
    if (ahead && plan_grid(out, s->rows) > (uint32_t)(ahead * d->units)) {
        plan_int(out, "AHEAD", 1);
        out->tiles = true, out->times = ahead * d->units, out->per = INT32_MAX;
    }
    plan_int(out, "ACT", (int64_t)s->act);
    plan_int(out, "GATED", s->gated);
    plan_f32(out, "CLAMP", s->clamp);
    plan_f32(out, "ALPHA", s->alpha != 0 ? s->alpha : 1.0f);
    plan_f32(out, "UP_OFFSET", s->up_offset);
    plan_int(out, "OUT", s->out);
    plan_int(out, "SCALE_UP", s->scale_up);
    plan_int(out, "TILED", s->tiled);
    plan_element(out, s->f16);
    double n = (double)s->rows * s->cols;
    out->bytes = n * (2 + 2 * s->gated) + (double)s->rows * act_cuda_row_bytes(s->out, s->cols);
    out->ops = n * ((s->act ? 10 : 0) + (s->out ? 4 : 0));
    plan_once(out, d, s->vec ? 16 : vec, s->stream ? s->stream : s->gated || s->out ? 0 : -1); /* GELU alone of 4096 x 4096: 21.1 us, without 18.7 */
    out->values = true;
    bool curved = s->act == OP_ACT_SILU || s->act == OP_ACT_GELU_TANH || s->act == OP_ACT_GELU_ERF;
    plan_stream(out, d, (curved ? 0.2 : 0.05) + (token(s->out) && threads > 32 ? 0.25 : four ? 0.35 + plan_issue_us(d, n, ahead ? 0.17 : 0.3) : s->out ? 0.1 : 0));
    return ROSE_OK;
}

enum rose_status act_cuda(struct program *program, const struct op_act *op, struct rose_error *err)
{
    bool gated = op->up.buffer != 0;
    struct act_shape s = {
        .rows = plan_rows(program, op->y.rows), .cols = op->gate.cols, .act = op->activation, .gated = gated, .f16 = value_f16(&op->y)};
    struct act_rows_params p = {
        .x_stride = op->gate.stride, .up_stride = op->up.stride, .y_stride = op->y.stride};
    struct program_launch l = {.name = "act", .layer = op->layer, .params = &p, .params_bytes = sizeof p};
    struct plan plan;
    ROSE_TRY(value_check_alike("act", &op->y, &op->gate, err));
    if (gated) ROSE_TRY(value_check_alike("act", &op->y, &op->up, err));
    ROSE_TRY(act_cuda_plan(&s, &program->device->info, &plan, err));
    int vec = (int)plan_get(&plan, "VEC_BYTES") / 2;
    const struct op_value *values[] = {&op->gate, &op->y, &op->up};
    for (int i = 0; i < 2 + gated; i++)
        if (values[i]->stride % vec || values[i]->offset % vec)
            return status_set(err, ROSE_UNSUPPORTED,
                              "act: rows of stride %d and offset %d; the CUDA kernel takes multiples of %d",
                              values[i]->stride, values[i]->offset, vec);
    ROSE_TRY(plan_record(&plan, program, op->y.rows, offsetof(struct act_rows_params, rows), &l, err));
    value_use(&l, &op->gate, PROGRAM_READ, offsetof(struct act_rows_params, x));
    if (gated) value_use(&l, &op->up, PROGRAM_READ, offsetof(struct act_rows_params, up));
    value_use(&l, &op->y, PROGRAM_WRITE, offsetof(struct act_rows_params, y));
    program_add(program, &l);
    return ROSE_OK;
}
