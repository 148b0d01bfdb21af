#include "op_cases.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "op_cases_internal.h"

#define DEVICE_OF(name, sms, l2_mib, bytes_s, threads)                                                                                       \
    {                                                                                                                                        \
        .kind = DEVICE_CUDA, .arch = name, .units = (sms), .l2_bytes = (l2_mib) << 20, .bandwidth = (bytes_s), .warp = 32,                  \
        .max_threads_per_unit = (threads), .max_threads_per_block = 1024                                                                     \
    }
const struct device_info op_devices[OP_DEVICES] = {
    DEVICE_OF("sm_80", 108, 40, 2.0e12, 2048),
    DEVICE_OF("sm_89", 142, 96, 0.9e12, 1536),
    DEVICE_OF("sm_90a", 132, 60, 4.8e12, 2048),
    DEVICE_OF("sm_100a", 148, 126, 8.0e12, 2048),
    DEVICE_OF("sm_120a", 188, 128, 1.8e12, 1536),
};

uint32_t op_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}
float op_normal(uint32_t *state)
{
    float s = 0;
    for (int i = 0; i < 4; i++) s += (float)op_random(state) * 0x1p-23f - 1.0f;
    return s * 0.87f;
}
bool op_f16;
float op_value(uint16_t bits)
{
    return op_f16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}
uint16_t op_bits(float value)
{
    return op_f16 ? f32_to_f16(value > 65504 ? 65504 : value < -65504 ? -65504 : value) : f32_to_bf16(value);
}
double op_half_unit(void)
{
    return op_f16 ? 0x1p-11 : 0x1p-8;
}
void op_fill(uint16_t *out, size_t n, float scale, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) out[i] = op_bits(op_normal(&seed) * scale);
}
/* Eight sums side by side: one would wait for each of its additions. */
double op_dot(const double *x, const float *w, size_t n, double *size)
{
    enum { LANES = 8 };
    double sum[LANES] = {0}, all[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t j = 0; j < LANES; j++) {
            double v = x[i + j] * (double)w[i + j];
            sum[j] += v, all[j] += fabs(v);
        }
    for (; i < n; i++) sum[0] += x[i] * (double)w[i], all[0] += fabs(x[i] * (double)w[i]);
    for (size_t j = 1; j < LANES; j++) sum[0] += sum[j], all[0] += all[j];
    *size = all[0];
    return sum[0];
}
/* n weights of `bytes` each, and what they mean. */
void *op_weights(size_t n, int bytes, float mean, uint32_t seed, double *value)
{
    char *out = calloc(n ? n : 1, 4);
    for (size_t i = 0; i < n; i++) {
        float w = mean + op_normal(&seed) * 0.3f;
        if (bytes == 2) {
            uint16_t b = op_bits(w);
            memcpy(out + i * 2, &b, 2);
            value[i] = (double)op_value(b);
        } else {
            memcpy(out + i * 4, &w, 4);
            value[i] = (double)w;
        }
    }
    return out;
}
/* A result of 16 bits must be the exact value rounded once: within half a unit in the last place, and `slack` for
 * the float32 sums. */
int op_check(const char *name, size_t at, uint16_t got, double want, double slack)
{
    double g = (double)op_value(got), tolerance = fabs(want) * op_half_unit() * 1.004 + slack;
    if (op_f16) want = want > 65504 ? 65504 : want < -65504 ? -65504 : want;
    if (fabs(g - want) <= tolerance) return 0;
    static int told;
    if (told++ < 20)
        fprintf(stderr, "%s: element %zu is %.9g, expected %.9g within %.3g\n", name, at, g, want, tolerance);
    return 1;
}

/* ---- norm ---- */

#include "ops/norm_cuda.h"
#include "kernels/params/norm_rows.h"

struct norm_case {
    const char *name;
    struct norm_shape s;
    int pad; /* elements between rows */
    bool in_place;
};
#define RMS(...)                                       \
    {                                                  \
        .eps = 1e-6f, .kind = OP_NORM_RMS, __VA_ARGS__ \
    }
#define LAYER(...)                                       \
    {                                                    \
        .eps = 1e-5f, .kind = OP_NORM_LAYER, __VA_ARGS__ \
    }
static const struct norm_case norm_cases[] = {
    {"norm 5x96 f32 weight", RMS(.rows = 5, .cols = 96, .weight = 4), 32, false},
    {"norm 41x128 in place", RMS(.rows = 41, .cols = 128, .weight = 2), 0, true},
    {"norm 135x64, two rows a thread", RMS(.rows = 135, .cols = 64, .weight = 4, .repeat = 2), 0, false},
    {"norm 3x264 ragged, residual", RMS(.rows = 3, .cols = 264, .weight = 4, .add = true, .stream = 3), 8, false},
    {"norm 3x4096", RMS(.rows = 3, .cols = 4096, .weight = 4), 0, false},
    {"norm 2x4096, four vectors a thread, residual",
     RMS(.rows = 2, .cols = 4096, .weight = 2, .add = true, .threads = 128), 0, false},
    {"norm 3x2560 Gemma post-norm",
     RMS(.rows = 3, .cols = 2560, .weight = 4, .offset = 1, .accumulate = true, .alpha = 0.5f), 64, false},
    {"norm 2x16384 without weight", RMS(.rows = 2, .cols = 16384), 0, false},
    {"layernorm 3x2048 with bias", LAYER(.rows = 3, .cols = 2048, .weight = 4, .bias = 4), 0, false},
    {"layernorm 3x1000 ragged, residual", LAYER(.rows = 3, .cols = 1000, .weight = 2, .bias = 2, .add = true),
     0, false},
    {"norm f16 3x264 ragged, residual", RMS(.rows = 3, .cols = 264, .weight = 4, .add = true, .f16 = true), 8, false},
    {"norm f16 3x2560 Gemma post-norm", RMS(.rows = 3, .cols = 2560, .weight = 4, .offset = 1, .accumulate = true, .alpha = 0.5f, .f16 = true), 64, false},
    {"layernorm f16 300x1032 by bulk copies, in place",
     LAYER(.rows = 300, .cols = 1032, .weight = 2, .bias = 2, .form = NORM_FORM_BULK, .stages = 2, .threads = 64, .f16 = true), 0, true},
    {"norm 3x2048 to e4m3 per token, residual",
     RMS(.rows = 3, .cols = 2048, .weight = 4, .add = true, .out = ACT_OUT_E4M3_TOKEN), 16, false},
    {"norm 37x128 to int8 per token, two rows a thread",
     RMS(.rows = 37, .cols = 128, .weight = 4, .repeat = 2, .out = ACT_OUT_INT8_TOKEN), 0, false},
    {"norm 5x384 to e4m3 1x128", RMS(.rows = 5, .cols = 384, .weight = 4, .out = ACT_OUT_E4M3_128, .stream = 2), 0, false},
    {"norm 3x2080 to mxfp8 tiled",
     RMS(.rows = 3, .cols = 2080, .weight = 2, .out = ACT_OUT_MXFP8, .tiled = true), 0, false},
    {"norm 3x1024 to nvfp4", RMS(.rows = 3, .cols = 1024, .weight = 2, .out = ACT_OUT_NVFP4, .add = true), 32,
     false},
    {"norm 401x1000 by bulk copies, residual",
     RMS(.rows = 401, .cols = 1000, .weight = 4, .add = true, .form = NORM_FORM_BULK), 8, false},
    {"norm 300x2048 by bulk copies both ways, residual",
     RMS(.rows = 300, .cols = 2048, .weight = 2, .add = true, .form = NORM_FORM_BULK, .bulk_store = true, .stages = 3), 0, false},
    {"layernorm 300x1032 by bulk copies, in place",
     LAYER(.rows = 300, .cols = 1032, .weight = 2, .bias = 2, .form = NORM_FORM_BULK, .stages = 2, .threads = 64), 0, true},
    {"norm 290x512 by bulk copies to e4m3 per token",
     RMS(.rows = 290, .cols = 512, .weight = 4, .add = true, .out = ACT_OUT_E4M3_TOKEN, .form = NORM_FORM_BULK, .bulk_store = true), 16, false},
    {"norm 290x512 by bulk copies to nvfp4",
     RMS(.rows = 290, .cols = 512, .weight = 2, .out = ACT_OUT_NVFP4, .form = NORM_FORM_BULK), 32, false},
    {"norm 401x1000 a row ahead, residual", RMS(.rows = 401, .cols = 1000, .weight = 4, .add = true, .form = NORM_FORM_AHEAD, .threads = 64, .resident = 1, .stream = 3), 8, false},
    {"norm f16 300x2048 a row ahead, in place", RMS(.rows = 300, .cols = 2048, .weight = 2, .f16 = true, .form = NORM_FORM_AHEAD, .threads = 256, .resident = 2), 0, true},
    {"layernorm 300x1032 a row ahead, residual",
     LAYER(.rows = 300, .cols = 1032, .weight = 2, .bias = 4, .add = true, .form = NORM_FORM_AHEAD, .threads = 160, .resident = 1), 16, false},
    {"norm 3x264 with bias", RMS(.rows = 3, .cols = 264, .weight = 4, .bias = 4), 8, false},
    {"norm 3x520 to e4m3 per tensor", RMS(.rows = 3, .cols = 520, .weight = 4, .out = ACT_OUT_E4M3_TENSOR), 8, false},
    {"layernorm 5x352 to mxfp4 tiled, residual", LAYER(.rows = 5, .cols = 352, .weight = 2, .bias = 2, .add = true, .out = ACT_OUT_MXFP4, .tiled = true), 32, false},
    {"layernorm 37x80", LAYER(.rows = 37, .cols = 80, .weight = 4), 0, false},
};

static void norm_row(const struct norm_shape *s, const double *x, const double *w, const double *b,
                     const double *old, double *y)
{
    double mean = 0, sq = 0;
    for (int c = 0; c < s->cols && s->kind == OP_NORM_LAYER; c++) mean += x[c] / s->cols;
    for (int c = 0; c < s->cols; c++) sq += (x[c] - mean) * (x[c] - mean) / s->cols;
    for (int c = 0; c < s->cols; c++) {
        double v = (x[c] - mean) / sqrt(sq + (double)s->eps);
        if (s->weight) v *= (double)s->offset + w[c];
        if (s->bias) v += b[c];
        v *= s->alpha != 0 ? (double)s->alpha : 1;
        y[c] = s->accumulate ? old[c] + v : v;
    }
}

static int norm_check(const struct norm_case *k, size_t rows, size_t stride, const uint16_t *x,
                      const uint16_t *add, const uint16_t *old, const double *w, const double *b,
                      const uint16_t *got_x, const uint16_t *got_y, const void *scales, float global)
{
    size_t n = (size_t)k->s.cols;
    int wrong = 0;
    double *v = malloc(4 * n * sizeof *v), *y = v + n, *o = v + 2 * n;
    for (size_t r = 0; r < rows; r++) {
        for (size_t c = 0; c < n; c++) {
            size_t at = r * stride + c;
            float f = op_value(x[at]);
            if (k->s.add) {
                f = op_value(op_bits(f + op_value(add[at])));
                wrong += op_value(got_x[at]) != f;
            }
            v[c] = (double)f;
            o[c] = (double)op_value(old[at]);
        }
        norm_row(&k->s, v, w, b, o, y);
        bool four = k->s.out == ACT_OUT_MXFP4 || k->s.out == ACT_OUT_NVFP4;
        if (k->s.out) {
            const char *row = (const char *)got_y + r * stride / (four ? 2 : 1);
            wrong += op_check_quantised(k->name, k->s.out, k->s.tiled, k->s.cols, r, y, global, row, scales);
            continue;
        }
        for (size_t c = 0; c < n; c++)
            wrong += op_check(k->name, r * stride + c, got_y[r * stride + c], y[c], 3e-6);
        for (size_t c = n; c < stride && !k->in_place && !k->s.accumulate; c++)
            wrong += got_y[r * stride + c] != 0xffff;
    }
    free(v);
    return wrong;
}

static int norm_run(const struct norm_case *k, const struct op_io *io)
{
    struct norm_shape s = k->s;
    if (io->rows) s.rows = io->rows;
    struct rose_error err = {0};
    struct plan plan;
    op_f16 = s.f16;
    if (norm_cuda_plan(&s, io->device, &plan, &err))
        return fprintf(stderr, "%s: %s\n", k->name, err.message), 1;
    size_t n = (size_t)s.cols, stride = n + (size_t)k->pad, all = (size_t)s.rows * stride, bytes = all * 2;
    uint16_t *x = malloc(bytes), *add = malloc(bytes), *old = malloc(bytes), *got_x = malloc(bytes),
             *got_y = malloc(bytes);
    double *wv = calloc(n, 8), *bv = calloc(n, 8);
    void *w = op_weights(n, s.weight, s.offset != 0 ? 0 : 1, 5, wv), *b = op_weights(n, s.bias, 0, 6, bv);
    op_fill(x, all, 2, 1), op_fill(add, all, 1, 2), op_fill(old, all, 1, 3);
    struct norm_rows_params p = {.x_stride = (int64_t)stride,
                                 .add_stride = (int64_t)stride,
                                 .y_stride = (int64_t)stride,
                                 .rows = (uint32_t)s.rows};
    p.x = io->buffer(io->context, "x", bytes, x, false);
    p.y = k->in_place ? p.x : io->buffer(io->context, "y", bytes, s.accumulate ? old : NULL, false);
    if (s.add) p.add = io->buffer(io->context, "add", bytes, add, false);
    if (s.weight) p.weight = io->buffer(io->context, "weight", n * (size_t)s.weight, w, true);
    float global = s.out == ACT_OUT_NVFP4 ? 448 * 6 / 8.0f : 0.02f;
    size_t group = (size_t)act_cuda_group(s.out), groups = group ? n / group : 1,
           scale_bytes = ((size_t)s.rows + 127) / 128 * 128 * (groups + 4) * 4;
    void *scales = malloc(scale_bytes);
    p.scale_row_stride = (int64_t)groups, p.scale_group_stride = 1;
    if (s.out > ACT_OUT_E4M3_TENSOR) p.scale = io->buffer(io->context, "scale", scale_bytes, NULL, false);
    if (s.out == ACT_OUT_E4M3_TENSOR || s.out == ACT_OUT_NVFP4)
        p.global = io->buffer(io->context, "global", 4, &global, false);
    if (s.bias) p.bias = io->buffer(io->context, "bias", n * (size_t)s.bias, b, true);
    int wrong = !io->run(io->context, &plan, &p, sizeof p);
    io->read(io->context, got_x, p.x, bytes), io->read(io->context, got_y, p.y, bytes);
    if (p.scale) io->read(io->context, scales, p.scale, scale_bytes);
    if (!wrong)
        wrong = norm_check(k, (size_t)s.rows, stride, x, add, old, wv, bv, got_x, got_y, scales, global);
    free(scales);
    io->reset(io->context);
    free(x), free(add), free(old), free(got_x), free(got_y), free(wv), free(bv), free(w), free(b);
    return wrong;
}

/* ---- all ---- */

static const char *norm_name(int i)
{
    return i < (int)(sizeof norm_cases / sizeof *norm_cases) ? norm_cases[i].name : NULL;
}
static int norm_run_case(int i, const struct op_io *io)
{
    return norm_run(&norm_cases[i], io);
}
static bool norm_plan(int i, const struct device_info *device, int rows, struct plan *out)
{
    struct norm_shape s = norm_cases[i].s;
    if (rows) s.rows = rows;
    return norm_cuda_plan(&s, device, out, NULL) == ROSE_OK;
}

static const struct {
    const char *(*name)(int i);
    int (*run)(int i, const struct op_io *io);
    bool (*plan)(int i, const struct device_info *device, int rows, struct plan *out);
    bool (*there)(int i, const struct device_info *device); /* NULL: everywhere */
} files[] = {{norm_name, norm_run_case, norm_plan, NULL},
             {op_cases_qk_name, op_cases_qk_run, op_cases_qk_plan, NULL},
             {op_cases_attention_name, op_cases_attention_run, op_cases_attention_plan, NULL},
             {op_cases_act_name, op_cases_act_run, op_cases_act_plan, NULL},
             {op_cases_value_name, op_cases_value_run, op_cases_value_plan, NULL},
             {op_cases_blocks_name, op_cases_blocks_run, op_cases_blocks_plan, NULL},
             {op_cases_pool_name, op_cases_pool_run, op_cases_pool_plan, NULL},
             {op_cases_quant_name, op_cases_quant_run, op_cases_quant_plan, NULL},
             {op_cases_kv_name, op_cases_kv_run, op_cases_kv_plan, NULL},
             {op_cases_logprob_name, op_cases_logprob_run, op_cases_logprob_plan, NULL},
             {op_cases_fp8_name, op_cases_fp8_run, op_cases_fp8_plan, NULL},
             {op_cases_matmul_name, op_cases_matmul_run, op_cases_matmul_plan, op_cases_matmul_there}};
enum { FILES = sizeof files / sizeof *files };

/* Which file has case i, and where in it. */
static int find(int i, int *at)
{
    for (int f = 0; f < FILES; f++)
        for (int k = 0; files[f].name(k); k++)
            if (i-- == 0) {
                *at = k;
                return f;
            }
    return -1;
}

const char *op_cases_name(int i)
{
    int at, f = find(i, &at);
    return f < 0 ? NULL : files[f].name(at);
}
int op_cases_run(int i, const struct op_io *io)
{
    int at, f = find(i, &at);
    op_f16 = false;
    return f < 0 ? 1 : files[f].run(at, io);
}
bool op_cases_there(int i, const struct device_info *device)
{
    int at, f = find(i, &at);
    return f >= 0 && (!files[f].there || files[f].there(at, device));
}
bool op_cases_plan(int i, const struct device_info *device, int rows, struct plan *out)
{
    int at, f = find(i, &at);
    return f >= 0 && files[f].plan(at, device, rows, out);
}
