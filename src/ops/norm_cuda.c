#include "ops/norm_cuda.h"

#include <stddef.h>

#include "kernels/params/norm_rows.h"
#include "ops/value.h"

/* Threads a row. Few rows: a vector a thread, so that one round of loads serves all (T = 1 waits for memory,
 * then for the sum). Many rows: up to four vectors a thread, fewer threads in the barrier and more bytes in
 * flight for each. */
static int threads_of(const struct norm_shape *s, const struct device_info *d, int vectors)
{
    enum { MOST = 8 }; /* vectors a thread: 32 registers of packed bf16 (64 with the residual) */
    int threads = 1;
    while (threads < vectors && threads < 1024) threads *= 2;
    if (threads <= 8) return threads;
    /* The rows fill every SM's threads several times: give each thread more. An SM holds 1024 threads of a
     * vector each (their registers): beyond that a second wave would wait for the first. */
    int64_t filled = (int64_t)d->units * d->max_threads_per_unit;
    int want = s->rows * threads >= filled * 2 ? 4 : s->rows * threads > (int64_t)d->units * 1024 ? 2 : 1;
    /* Measured (bench/results/h200.csv, sweeps): 4096 columns in 256 threads 17.4 us, in 128 18.3; 2048 in 128 9.5, in 64 10.4. */
    if (s->kind == OP_NORM_RMS && !s->out && vectors <= 512 && want > 2) want = 2;
    /* LayerNorm: 2048 columns in 128 threads 10.1 us, in 64 10.6; 4096 in 128 19.4, in 256 19.7. A residual of 8192 columns: 71.5 in 256
     * threads; in 1024 of 56 registers, one block an SM, 110. */
    if (s->kind == OP_NORM_LAYER && !s->out && vectors <= 256 && want > 2) want = 2;
    while (want > 1 && threads > 8) threads /= 2, want /= 2;
    while ((vectors + threads - 1) / threads > MOST) threads *= 2;
    return threads;
}

/* Bytes that few rows of idle lanes waste are nothing; a row that leaves more than a quarter of the lanes
 * idle takes fewer threads with more vectors, where that divides it better (cols 96: 4 threads of 3 vectors).
 */
static int fit_threads(int threads, int vectors)
{
    int best = threads, best_idle = (vectors + threads - 1) / threads * threads - vectors;
    for (int t = threads / 2; t >= 2 && t >= threads / 4 && threads <= 32; t /= 2) {
        int idle = (vectors + t - 1) / t * t - vectors;
        if (idle * 4 < best_idle * 3 && best_idle * 4 > vectors) best = t, best_idle = idle;
    }
    return best;
}

static enum rose_status check(const struct norm_shape *s, int vec, struct rose_error *err)
{
    int group = act_cuda_group(s->out);
    if (s->cols <= 0 || !vec)
        return status_set(err, ROSE_UNSUPPORTED,
                          "norm: rows of %d columns; the CUDA kernel takes multiples of 8", s->cols);
    if (s->out < ACT_OUT_BF16 || s->out > ACT_OUT_INT8_TOKEN || (s->out && s->accumulate) ||
        (s->tiled && group != 32 && group != 16))
        return status_set(err, ROSE_INVALID,
                          "norm: unknown output %d, or one that cannot be added to or tiled", s->out);
    if (group && s->cols % group)
        return status_set(err, ROSE_UNSUPPORTED, "norm: rows of %d columns are no whole groups of %d",
                          s->cols, group);
    return ROSE_OK;
}

/* What every form's kernel takes as constants. */
static void constants(const struct norm_shape *s, int vec, int threads, struct plan *out)
{
    plan_int(out, "N", s->cols);
    plan_int(out, "VEC_BYTES", vec);
    plan_int(out, "TPR", threads);
    plan_int(out, "LAYER", s->kind == OP_NORM_LAYER);
    plan_int(out, "ADD", s->add);
    plan_int(out, "ACCUMULATE", s->accumulate);
    plan_int(out, "WEIGHT", s->weight);
    plan_int(out, "BIAS", s->bias);
    plan_f32(out, "EPS", s->eps);
    plan_f32(out, "OFFSET", s->offset);
    plan_f32(out, "ALPHA", s->alpha != 0 ? s->alpha : 1.0f);
    plan_int(out, "OUT", s->out);
    plan_int(out, "SCALE_UP", s->scale_up);
    plan_int(out, "TILED", s->tiled);
    plan_element(out, s->f16);
}

static void cost(const struct norm_shape *s, const struct device_info *d, bool wide, struct plan *out)
{
    out->bytes = (double)s->rows * (2.0 * s->cols * (1 + 2 * s->add + s->accumulate) +
                                    act_cuda_row_bytes(s->out, s->cols)) +
                 (double)s->cols * (s->weight + s->bias);
    out->ops = (s->kind == OP_NORM_RMS ? 4.0 : 6.0) * s->cols * (double)s->rows;
    bool token = s->out == ACT_OUT_E4M3_TOKEN || s->out == ACT_OUT_INT8_TOKEN;
    /* One SM moves a row at 75 bytes/ns, with nothing else to do meanwhile; each reduction and its barrier
     * cost 0.15 us. */
    double row_us = (out->bytes / (double)(s->rows > 0 ? s->rows : 1) +
                     (s->rows > 1 ? (double)s->cols * (s->weight + s->bias) : 0)) /
                    75e3;
    out->values = true;
    bool four = s->out == ACT_OUT_MXFP4 || s->out == ACT_OUT_NVFP4;
    plan_stream(out, d, row_us + (wide ? 0.15 : 0.1) * ((s->kind == OP_NORM_LAYER ? 2 : 1) + token) + (four ? 0.35 : 0));
}

/* Bytes of shared memory that a block may have so that `resident` of them fit an SM. */
static int room(const struct device_info *d, int resident)
{
    size_t unit = d->shared_per_unit ? d->shared_per_unit : (size_t)(plan_arch(d) < 1200 ? 228 : 100) << 10;
    return (int)(unit / (size_t)resident) - 2048; /* what the system takes, and the sums */
}

/* False where the shape or the device has no such form. */
static bool plan_bulk(const struct norm_shape *s, const struct device_info *d, struct plan *out)
{
    int vectors = s->cols / 8, threads = s->threads ? s->threads : ROSE_MIN(512, (vectors + 31) / 32 * 32);
    int stage = (s->cols * 2 + 127) / 128 * 128 * (1 + s->add), resident = s->resident ? s->resident : 2;
    int stages = s->stages ? s->stages : ROSE_MIN(6, room(d, resident) / stage);
    if (plan_arch(d) < 900 || s->accumulate || stages < 2 + s->bulk_store || stages * stage > room(d, resident) ||
        (vectors + threads - 1) / threads > 16 || (act_cuda_group(s->out) && threads * 8 % act_cuda_group(s->out)))
        return false;
    out->kernel = "norm_bulk";
    constants(s, 16, threads, out);
    plan_int(out, "THREADS", threads);
    plan_int(out, "STAGES", stages);
    plan_int(out, "STORE", s->bulk_store);
    out->block = (uint32_t)threads;
    out->shared_bytes = (uint32_t)(stages * stage);
    out->tiles = true; /* a persistent grid, whatever the number of rows */
    out->times = (int32_t)ROSE_MIN((int64_t)d->units * resident, s->rows);
    out->per = INT32_MAX;
    cost(s, d, true, out);
    plan_once(out, d, 16, s->bulk_store ? -1 : s->stream);
    return true;
}

/* The same for rows in registers, one ahead. */
static bool plan_ahead(const struct norm_shape *s, const struct device_info *d, struct plan *out)
{
    int vectors = s->cols / 8, threads = s->threads ? s->threads : ROSE_MIN(512, (vectors / 2 + 31) / 32 * 32), resident = s->resident ? s->resident : 1024 / threads;
    if (s->out || s->accumulate || s->cols % 8 || threads < 32 || threads % 32 || threads > 1024 || resident < 1 || (vectors + threads - 1) / threads > 8) return false;
    out->kernel = "norm_ahead";
    constants(s, 16, threads, out);
    plan_int(out, "MIN_BLOCKS", resident);
    out->block = (uint32_t)threads;
    out->tiles = true; /* a persistent grid, whatever the number of rows */
    out->times = (int32_t)ROSE_MIN((int64_t)d->units * resident, s->rows);
    out->per = INT32_MAX;
    cost(s, d, true, out);
    plan_once(out, d, 16, s->stream);
    return true;
}

/* Forms of more rows than L2 holds, as an H200 measured them (bench/results/h200_sweep.csv; over a clone, 4096 and 32768 rows): vectors a
 * thread, threads an SM. What is not here is norm_rows as threads_of has it. */
static bool measured(const struct norm_shape *s, const struct device_info *d, struct norm_shape *out)
{
    static const struct {
        int cols;
        bool layer, add, few, many; /* few, many: below and from 16384 rows */
        enum norm_form form;
        int per, live;
    } best[] = {{2048, false, true, true, true, NORM_FORM_ROWS, 1, 1536},   /* +2.5, +0.0 % */
                {8192, false, false, true, false, NORM_FORM_AHEAD, 2, 1024}, /* +4.0 */
                {8192, false, false, false, true, NORM_FORM_ROWS, 2, 1536},  /* +4.7 */
                {8192, false, true, true, false, NORM_FORM_AHEAD, 2, 1024},  /* +4.7 */
                {8192, false, true, false, true, NORM_FORM_ROWS, 2, 1024},   /* +4.5 */
                {16384, false, false, true, true, NORM_FORM_AHEAD, 4, 512},  /* +6.8 */
                {16384, false, true, true, true, NORM_FORM_AHEAD, 4, 512},   /* +5.8 */
                {2048, true, false, false, true, NORM_FORM_AHEAD, 2, 1024},  /* +3.2 */
                {2048, true, true, true, true, NORM_FORM_ROWS, 1, 1536},     /* +3.9, +0.8 */
                {4096, true, false, true, false, NORM_FORM_AHEAD, 2, 1024},  /* +7.2 */
                {4096, true, true, true, true, NORM_FORM_ROWS, 2, 1024},     /* +5.7, +4.2 */
                {8192, true, false, true, true, NORM_FORM_AHEAD, 2, 1024},   /* +8.1, +7.3 */
                {8192, true, true, true, true, NORM_FORM_ROWS, 4, 1024},     /* +6.9, +3.9 */
                {16384, true, false, true, true, NORM_FORM_AHEAD, 4, 512}};  /* +14.5 */
    if (s->form != NORM_FORM_AUTO || s->threads || s->out || s->accumulate || plan_arch(d) != 900 || d->l2_bytes == 0 ||
        (double)s->rows * s->cols * (4 + 4 * s->add) <= 0.75 * (double)d->l2_bytes)
        return false;
    for (size_t i = 0; i < ROSE_COUNT(best); i++) {
        if (best[i].cols != s->cols || best[i].layer != (s->kind == OP_NORM_LAYER) || best[i].add != s->add || !(s->rows < 16384 ? best[i].few : best[i].many)) continue;
        *out = *s;
        out->form = best[i].form, out->threads = s->cols / 8 / best[i].per, out->resident = best[i].live / out->threads;
        return true;
    }
    return false;
}

enum rose_status norm_cuda_plan(const struct norm_shape *s, const struct device_info *d, struct plan *out,
                                struct rose_error *err)
{
    *out = (struct plan){.kernel = "norm_rows", .rows = s->rows, .times = 1};
    int vec = plan_vector(d, (int64_t)s->cols * 2), group = act_cuda_group(s->out);
    ROSE_TRY(check(s, vec, err));
    struct norm_shape chosen;
    if (measured(s, d, &chosen)) return norm_cuda_plan(&chosen, d, out, err);
    /* Measured: 4096 rows with a residual of 2048 columns 18.2 us instead of 20.0 (three blocks an SM), of 16384 142 instead of 147 and
     * without one 74 instead of 77 (one block), LayerNorm's two sums there more still; elsewhere the other form is as fast or faster. */
    bool wide = s->cols >= 16384, narrow = s->add && s->cols <= 2048 && s->cols >= 1024;
    struct norm_shape bulk = *s;
    if (s->form == NORM_FORM_AUTO && (s->kind == OP_NORM_RMS || wide) && !s->out && !s->threads && s->rows >= 2048 && s->rows <= 16384 && (wide || narrow))
        bulk.form = NORM_FORM_BULK, bulk.resident = wide ? 1 : 3, bulk.threads = wide ? ROSE_MIN(1024, s->cols / 16 / 32 * 32) : ROSE_MAX(64, s->cols / 16 / 32 * 32);
    if (bulk.form == NORM_FORM_BULK && plan_bulk(&bulk, d, out)) return ROSE_OK;
    if (s->form == NORM_FORM_AHEAD && plan_ahead(s, d, out)) return ROSE_OK;
    int vectors = s->cols * 2 / vec,
        threads = s->threads ? s->threads : fit_threads(threads_of(s, d, vectors), vectors);
    while (group > threads * vec / 2) threads *= 2; /* a group lies in one warp */
    if ((vectors + threads - 1) / threads > 16)
        return status_set(err, ROSE_UNSUPPORTED, "norm: rows of %d columns; the CUDA kernel takes at most %d",
                          s->cols, 16 * 1024 * vec / 2);
    /* Sub-warp rows share a warp; blocks grow only when there are more warps than SMs. */
    int64_t warps = (s->rows * threads + 31) / 32;
    int block = threads < 32 ? 32 : threads;
    /* A barrier serves one row where possible: rows of several warps do not wait for each other. */
    int most = threads > 32 ? 128 : 256;
    while (block < most && warps * 32 > (int64_t)d->units * block) block *= 2;
    if (s->block) block = s->block;
    if (block < threads) block = threads;
    int repeat = s->repeat;
    if (!repeat) { /* narrow rows: two loads in flight a thread once the SMs are full */
        int per = (vectors + threads - 1) / threads;
        repeat =
            threads <= 32 && per == 1 && s->rows * threads >= (int64_t)d->units * d->max_threads_per_unit * 4
                ? 2
                : 1;
    }
    if (threads > 32) repeat = 1;
    int per_block = block / threads;
    constants(s, vec, threads, out);
    plan_int(out, "RPB", per_block);
    plan_int(out, "REP", repeat);
    plan_int(out, "MIN_BLOCKS", s->resident ? s->resident : 1);
    out->block = (uint32_t)block;
    out->per = per_block * repeat;
    cost(s, d, threads > 32, out);
    plan_once(out, d, vec, s->stream);
    return ROSE_OK;
}

/* Vector loads need whole vectors between rows and at their beginning. */
static enum rose_status aligned(const char *name, const struct op_value *v, int vec, struct rose_error *err)
{
    if (v->stride * 2 % vec == 0 && v->offset * 2 % vec == 0) return ROSE_OK;
    return status_set(err, ROSE_UNSUPPORTED,
                      "norm: %s has stride %d and offset %d; the CUDA kernel takes multiples of %d", name,
                      v->stride, v->offset, vec / 2);
}

enum rose_status norm_cuda(struct program *program, const struct op_norm *op, struct rose_error *err)
{
    bool add = op->add.buffer != 0;
    struct norm_shape s = {.rows = plan_rows(program, op->x.rows),
                           .cols = op->x.cols,
                           .kind = op->kind,
                           .weight = op->weight ? 4 : 0,
                           .bias = op->bias ? 4 : 0,
                           .add = add,
                           .accumulate = op->accumulate,
                           .f16 = value_f16(&op->x),
                           .eps = op->eps,
                           .offset = op->weight_offset,
                           .alpha = op->alpha};
    struct norm_rows_params p = {.weight = op->weight,
                                 .bias = op->bias,
                                 .x_stride = op->x.stride,
                                 .add_stride = op->add.stride,
                                 .y_stride = op->y.stride};
    struct program_launch l = {.name = "norm", .layer = op->layer, .params = &p, .params_bytes = sizeof p};
    struct plan plan;
    ROSE_TRY(value_check_alike("norm", &op->x, &op->y, err));
    ROSE_TRY(value_check_alike("norm", &op->x, &op->add, err));
    ROSE_TRY(norm_cuda_plan(&s, &program->device->info, &plan, err));
    int vec = (int)plan_get(&plan, "VEC_BYTES");
    ROSE_TRY(aligned("x", &op->x, vec, err));
    ROSE_TRY(aligned("y", &op->y, vec, err));
    if (add) ROSE_TRY(aligned("add", &op->add, vec, err));
    ROSE_TRY(plan_record(&plan, program, op->x.rows, offsetof(struct norm_rows_params, rows), &l, err));
    value_use(&l, &op->x, add ? PROGRAM_UPDATE : PROGRAM_READ, offsetof(struct norm_rows_params, x));
    if (add) value_use(&l, &op->add, PROGRAM_READ, offsetof(struct norm_rows_params, add));
    value_use(&l, &op->y, op->accumulate ? PROGRAM_UPDATE : PROGRAM_WRITE,
              offsetof(struct norm_rows_params, y));
    program_add(program, &l);
    return ROSE_OK;
}
