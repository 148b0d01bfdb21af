/* Activations and quantisers, against float64. A quantiser alone must give the same bits; behind an
 * activation, whose float32 error may tip a tie, each result lies within half a step of the exact one. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "op_cases_internal.h"
#include "ops/act_cuda.h"

struct act_case {
    const char *name;
    struct act_shape s;
    int pad;
    bool columns; /* scales [group][row], as cuBLASLt has those of 1 x 128 */
    bool patterns; /* x: every 16 bits, in order and mixed */
};
#define ACT_CASE(text, padding, ...) \
    {                                \
        text, {__VA_ARGS__}, padding, false, false \
    }
static const struct act_case cases[] = {
    ACT_CASE("act 5x264 SwiGLU", 8, .rows = 5, .cols = 264, .act = OP_ACT_SILU, .gated = true),
    ACT_CASE("act 3x768 GeGLU tanh", 0, .rows = 3, .cols = 768, .act = OP_ACT_GELU_TANH, .gated = true),
    ACT_CASE("act 3x96 GELU erf", 32, .rows = 3, .cols = 96, .act = OP_ACT_GELU_ERF),
    ACT_CASE("act 3x2880 gpt-oss", 0, .rows = 3, .cols = 2880, .act = OP_ACT_SILU, .gated = true, .clamp = 7,
             .alpha = 1.702f, .up_offset = 1),
    ACT_CASE("act 3x1000 ReLU squared", 0, .rows = 3, .cols = 1000, .act = OP_ACT_RELU2),
    ACT_CASE("act f16 5x264 SwiGLU", 8, .rows = 5, .cols = 264, .act = OP_ACT_SILU, .gated = true, .f16 = true),
    ACT_CASE("quantise 5x1000 e4m3 per tensor", 0, .rows = 5, .cols = 1000, .out = ACT_OUT_E4M3_TENSOR),
    ACT_CASE("quantise 5x2056 e4m3 per token", 8, .rows = 5, .cols = 2056, .out = ACT_OUT_E4M3_TOKEN),
    ACT_CASE("quantise 7x384 e4m3 1x128", 128, .rows = 7, .cols = 384, .out = ACT_OUT_E4M3_128),
    ACT_CASE("quantise 5x1536 mxfp8 tiled", 0, .rows = 5, .cols = 1536, .out = ACT_OUT_MXFP8, .tiled = true),
    ACT_CASE("quantise 5x160 mxfp8 up", 32, .rows = 5, .cols = 160, .out = ACT_OUT_MXFP8, .scale_up = true,
             .per = 2),
    ACT_CASE("quantise 5x480 mxfp4", 32, .rows = 5, .cols = 480, .out = ACT_OUT_MXFP4),
    ACT_CASE("quantise 5x1024 nvfp4 tiled", 0, .rows = 5, .cols = 1024, .out = ACT_OUT_NVFP4, .tiled = true),
    ACT_CASE("quantise 9x272 int8 per token", 16, .rows = 9, .cols = 272, .out = ACT_OUT_INT8_TOKEN),
    ACT_CASE("SwiGLU + e4m3 1x128 5x512", 0, .rows = 5, .cols = 512, .act = OP_ACT_SILU, .gated = true,
             .out = ACT_OUT_E4M3_128),
    ACT_CASE("SwiGLU + e4m3 per token 3x1536", 0, .rows = 3, .cols = 1536, .act = OP_ACT_SILU, .gated = true,
             .out = ACT_OUT_E4M3_TOKEN, .threads = 64),
    ACT_CASE("SwiGLU + mxfp4 5x320", 0, .rows = 5, .cols = 320, .act = OP_ACT_SILU, .gated = true,
             .out = ACT_OUT_MXFP4),
    {"quantise 7x640 e4m3 1x128, scales column by column", {.rows = 7, .cols = 640, .out = ACT_OUT_E4M3_128}, 0, true, false},
    ACT_CASE("quantise 133x96 mxfp8 tiled", 0, .rows = 133, .cols = 96, .out = ACT_OUT_MXFP8, .tiled = true),
    ACT_CASE("quantise 5x352 mxfp4 tiled, up", 0, .rows = 5, .cols = 352, .out = ACT_OUT_MXFP4, .tiled = true, .scale_up = true),
    ACT_CASE("quantise f16 5x264 e4m3 per token", 8, .rows = 5, .cols = 264, .out = ACT_OUT_E4M3_TOKEN, .f16 = true),
    ACT_CASE("gpt-oss + mxfp8 tiled 5x2880", 0, .rows = 5, .cols = 2880, .act = OP_ACT_SILU, .gated = true, .clamp = 7, .alpha = 1.702f, .up_offset = 1,
             .out = ACT_OUT_MXFP8, .tiled = true),
    ACT_CASE("GeGLU tanh + e4m3 per tensor 5x264", 8, .rows = 5, .cols = 264, .act = OP_ACT_GELU_TANH, .gated = true, .out = ACT_OUT_E4M3_TENSOR),
    ACT_CASE("GELU erf + int8 per token 5x1032", 8, .rows = 5, .cols = 1032, .act = OP_ACT_GELU_ERF, .out = ACT_OUT_INT8_TOKEN),
    ACT_CASE("ReLU squared + nvfp4 tiled 5x336", 0, .rows = 5, .cols = 336, .act = OP_ACT_RELU2, .out = ACT_OUT_NVFP4, .tiled = true),
    ACT_CASE("quantise 3x2048 e4m3 1x128, four at once", 0, .rows = 3, .cols = 2048, .out = ACT_OUT_E4M3_128, .threads = 32, .per = 4),
    ACT_CASE("quantise 5x1152 e4m3 1x128, ragged, four at once", 128, .rows = 5, .cols = 1152, .out = ACT_OUT_E4M3_128, .threads = 32, .per = 4),
    ACT_CASE("quantise 5x1056 mxfp8, ragged, four at once", 32, .rows = 5, .cols = 1056, .out = ACT_OUT_MXFP8, .threads = 16, .per = 4),
    ACT_CASE("quantise 34x1024 mxfp8 tiled, up, four at once", 0, .rows = 34, .cols = 1024, .out = ACT_OUT_MXFP8, .tiled = true, .scale_up = true, .threads = 32, .per = 4),
    ACT_CASE("quantise 5x1024 mxfp4, four at once", 0, .rows = 5, .cols = 1024, .out = ACT_OUT_MXFP4, .threads = 32, .per = 4),
    ACT_CASE("quantise 5x1040 nvfp4, ragged, two at once", 16, .rows = 5, .cols = 1040, .out = ACT_OUT_NVFP4, .threads = 32, .per = 4),
    ACT_CASE("quantise f16 5x2048 e4m3 1x128, four at once", 0, .rows = 5, .cols = 2048, .out = ACT_OUT_E4M3_128, .threads = 64, .per = 4, .f16 = true),
    ACT_CASE("quantise 5x2056 int8 per token, eight vectors a thread", 8, .rows = 5, .cols = 2056, .out = ACT_OUT_INT8_TOKEN, .threads = 64, .per = 8),
    ACT_CASE("SwiGLU + mxfp8 3x2048, four at once", 0, .rows = 3, .cols = 2048, .act = OP_ACT_SILU, .gated = true, .out = ACT_OUT_MXFP8, .threads = 32, .per = 4),
    ACT_CASE("quantise 400x512 e4m3 1x128, a unit ahead", 0, .rows = 400, .cols = 512, .out = ACT_OUT_E4M3_128, .threads = 32, .per = 2, .ahead = 1),
    ACT_CASE("quantise 400x512 e4m3 per token, a unit ahead", 0, .rows = 400, .cols = 512, .out = ACT_OUT_E4M3_TOKEN, .threads = 64, .per = 1, .ahead = 1),
    ACT_CASE("quantise 5x1024 mxfp8, stores of 16 bytes", 0, .rows = 5, .cols = 1024, .out = ACT_OUT_MXFP8, .threads = 32, .per = 2, .stream = 3, .vec = 32),
    ACT_CASE("quantise 400x512 mxfp4, a unit ahead, stores of 16 bytes", 0, .rows = 400, .cols = 512, .out = ACT_OUT_MXFP4, .threads = 16, .per = 2, .ahead = 1, .vec = 32),
    ACT_CASE("quantise 400x512 nvfp4, a unit ahead, stores of 16 bytes", 0, .rows = 400, .cols = 512, .out = ACT_OUT_NVFP4, .threads = 16, .per = 2, .ahead = 1, .vec = 32),
    {"quantise every pattern, e4m3 1x128", {.rows = 128, .cols = 1024, .out = ACT_OUT_E4M3_128, .per = 4}, 0, false, true},
    {"quantise every pattern, e4m3 per token", {.rows = 128, .cols = 1024, .out = ACT_OUT_E4M3_TOKEN}, 0, false, true},
    {"quantise every pattern, int8 per token", {.rows = 128, .cols = 1024, .out = ACT_OUT_INT8_TOKEN}, 0, false, true},
    {"quantise every pattern, mxfp8", {.rows = 128, .cols = 1024, .out = ACT_OUT_MXFP8, .per = 4}, 0, false, true},
    {"quantise every pattern, mxfp8 up, tiled", {.rows = 128, .cols = 1024, .out = ACT_OUT_MXFP8, .scale_up = true, .tiled = true, .per = 2}, 0, false, true},
    {"quantise every pattern, mxfp4", {.rows = 128, .cols = 1024, .out = ACT_OUT_MXFP4, .per = 2}, 0, false, true},
    {"quantise every pattern, nvfp4", {.rows = 128, .cols = 1024, .out = ACT_OUT_NVFP4, .per = 2}, 0, false, true},
    {"quantise every f16 pattern, e4m3 1x128", {.rows = 128, .cols = 1024, .out = ACT_OUT_E4M3_128, .per = 4, .f16 = true}, 0, false, true},
    {"quantise every f16 pattern, int8 per token", {.rows = 128, .cols = 1024, .out = ACT_OUT_INT8_TOKEN, .f16 = true}, 0, false, true},
    ACT_CASE("act 3x264 ReLU", 8, .rows = 3, .cols = 264, .act = OP_ACT_RELU),
};

/* The values of the codes 0, 1, 2, … (positive, rising): e4m3 has 127, e2m1 8. */
static double code_value(int mantissa, int bias, int code)
{
    int e = code >> mantissa, m = code & ((1 << mantissa) - 1);
    return e ? ldexp(1 + ldexp(m, -mantissa), e - bias) : ldexp(m, 1 - bias - mantissa);
}
/* The code nearest to |x|, the even one of two equally near, with the sign put at bit `sign`. */
static unsigned nearest(double x, int mantissa, int bias, int codes, int sign)
{
    double a = fabs(x);
    int lo = 0, hi = codes - 1;
    while (lo < hi) { /* the largest code not above a */
        int mid = (lo + hi + 1) / 2;
        if (code_value(mantissa, bias, mid) <= a)
            lo = mid;
        else
            hi = mid - 1;
    }
    if (lo + 1 < codes) {
        double below = a - code_value(mantissa, bias, lo), above = code_value(mantissa, bias, lo + 1) - a;
        if (above < below || (above == below && lo % 2)) lo++;
    }
    return (unsigned)lo | (signbit(x) ? 1u << sign : 0);
}
static unsigned e4m3_of(double x)
{
    return nearest(x, 3, 7, 127, 7);
}
static double four_bits(unsigned c)
{
    return code_value(1, 1, c & 7) * (c & 8 ? -1 : 1);
}

/* What a code stands for before its scale. */
static double value_of(int out, unsigned code)
{
    if (out == ACT_OUT_INT8_TOKEN) return (double)(int8_t)code;
    if (out == ACT_OUT_MXFP4 || out == ACT_OUT_NVFP4) return four_bits(code);
    return code_value(3, 7, (int)(code & 127)) * (code & 128 ? -1 : 1);
}

static double activate(const struct act_shape *s, double x, double up)
{
    double clamp = (double)s->clamp, alpha = s->alpha != 0 ? (double)s->alpha : 1;
    if (clamp > 0) x = fmin(x, clamp), up = fmax(fmin(up, clamp), -clamp);
    if (s->act == OP_ACT_SILU) x = x / (1 + exp(-alpha * x));
    if (s->act == OP_ACT_GELU_TANH) x = 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
    if (s->act == OP_ACT_GELU_ERF) x = 0.5 * x * (1 + erf(x / sqrt(2)));
    if (s->act == OP_ACT_RELU2) x = x > 0 ? x * x : 0;
    if (s->act == OP_ACT_RELU) x = x > 0 ? x : 0;
    return s->gated ? x * (up + (double)s->up_offset) : x;
}

/* The scale of a group whose largest |v| is known, as its bits and its value; and what v is multiplied with.
 */
struct group_scale {
    uint32_t bits;
    double value;
    float factor;
};
static struct group_scale scale_of(const struct act_shape *s, float largest, float global)
{
    struct group_scale r = {0};
    bool mx4 = s->out == ACT_OUT_MXFP4;
    if (s->out == ACT_OUT_E4M3_TENSOR)
        r.value = (double)global, r.factor = 1.0f / global;
    else if (s->out == ACT_OUT_MXFP8 || mx4) {
        int e;
        if (isinf(largest)) {
            e = s->scale_up ? 127 : 127 - (mx4 ? 2 : 8);
        } else if (s->scale_up) {
            double m = frexp((double)(float)((double)largest / (mx4 ? 6 : 448)), &e);
            e = m == 0 ? -127 : m == 0.5 ? e - 1 : e;
        } else {
            frexp((double)largest, &e);
            e = largest == 0 ? -127 : e - 1 - (mx4 ? 2 : 8);
        }
        if (e < -127) e = -127;
        r.bits = (uint32_t)(e + 127), r.value = ldexp(1, e), r.factor = (float)ldexp(1, -e);
    } else if (s->out == ACT_OUT_NVFP4) {
        r.bits = e4m3_of(
            (double)(float)((double)global * (double)(float)((double)largest * (double)(float)(1.0 / 6))));
        double v = code_value(3, 7, (int)r.bits);
        r.value = v / (double)global, r.factor = v > 0 ? (float)((double)global / v) : 0;
    } else {
        float scale = (float)((double)fmaxf(largest, 1e-10f) / (s->out == ACT_OUT_INT8_TOKEN ? 127 : 448));
        memcpy(&r.bits, &scale, 4);
        r.value = (double)scale, r.factor = 1.0f / scale;
    }
    return r;
}

/* k->s.rows: as many as there are. */
static uint32_t scale_at(const struct act_case *k, const void *scales, size_t row, size_t group,
                         size_t groups)
{
    const struct act_shape *s = &k->s;
    size_t at = s->tiled ? ACT_TILED_SCALE(row, group, groups) : k->columns ? group * (size_t)s->rows + row : row * groups + group;
    uint32_t r = 0;
    if (act_cuda_group(s->out) && s->out != ACT_OUT_E4M3_128)
        r = ((const uint8_t *)scales)[at];
    else
        memcpy(&r, (const char *)scales + at * 4, 4);
    return r;
}

/* One element's stored value against v (exact: in double; for a quantiser alone v is the very float). */
static int check_code(const struct act_case *k, const uint8_t *row, size_t c, double v, struct group_scale g)
{
    const struct act_shape *s = &k->s;
    bool four = s->out == ACT_OUT_MXFP4 || s->out == ACT_OUT_NVFP4, exact = s->act == OP_ACT_NONE;
    unsigned got = four ? row[c / 2] >> (c % 2 * 4) & 15 : row[c], want;
    double product = exact ? (double)((float)v * g.factor) : v * (double)g.factor;
    if (s->out == ACT_OUT_INT8_TOKEN) {
        want = isnan(product) ? 0 : (unsigned)(int)fmin(fmax(nearbyint(product), -128), 127) & 255;
    } else if (isnan(product)) {
        want = four ? 7 : 0x7f;
    } else {
        want = four ? nearest(product, 1, 1, 8, 3) : e4m3_of(product);
    }
    if (got == want) return 0;
    if (!exact) { /* a neighbour, when the product is all but half-way */
        double value = value_of(s->out, got), wanted = value_of(s->out, want);
        if (fabs(fabs(value - product) - fabs(wanted - product)) <= 1e-4 * fabs(product) + 1e-6) return 0;
    }
    static int told;
    if (told++ < 20)
        fprintf(stderr, "%s: column %zu: code %02x, expected %02x for %.9g\n", k->name, c, got, want,
                product);
    return 1;
}

static int check_row(const struct act_case *k, size_t r, const double *v, float global, const void *y,
                     const void *scales)
{
    const struct act_shape *s = &k->s;
    size_t n = (size_t)s->cols, group = (size_t)act_cuda_group(s->out), groups = group ? n / group : 1;
    int wrong = 0;
    if (!group) group = n;
    for (size_t g = 0; g < groups; g++) {
        float largest = 0;
        for (size_t c = g * group; c < (g + 1) * group; c++) largest = fmaxf(largest, (float)fabs(v[c]));
        struct group_scale w = scale_of(s, largest, global);
        if (s->out != ACT_OUT_E4M3_TENSOR) {
            uint32_t bits = scale_at(k, scales, r, g, groups);
            if (s->act == OP_ACT_NONE) {
                if (bits != w.bits && wrong++ == 0)
                    fprintf(stderr, "%s: scale %zu, %zu is %x, expected %x\n", k->name, r, g, bits, w.bits);
            } else if (group == n || s->out == ACT_OUT_E4M3_128) {
                float f;
                memcpy(&f, &bits, 4);
                wrong += !(fabs((double)f - w.value) <= 1e-5 * w.value);
                w.factor = 1.0f / f;
            } else if (bits != w.bits) { /* the largest lies by a power of two */
                wrong += bits + 1 != w.bits && bits != w.bits + 1;
                w.factor = (float)ldexp(1, 127 - (int)bits);
            }
        }
        for (size_t c = g * group; c < (g + 1) * group; c++) wrong += check_code(k, y, c, v[c], w);
    }
    return wrong;
}

int op_check_quantised(const char *name, int out, bool tiled, int cols, size_t row, const double *v,
                       float global, const void *y, const void *scales)
{
    struct act_case k = {.name = name, .s = {.cols = cols, .act = OP_ACT_SILU, .out = out, .tiled = tiled}};
    return check_row(&k, row, v, global, y, scales);
}

const char *op_cases_act_name(int i)
{
    return i < (int)(sizeof cases / sizeof *cases) ? cases[i].name : NULL;
}
bool op_cases_act_plan(int i, const struct device_info *device, int rows, struct plan *out)
{
    struct act_shape s = cases[i].s;
    if (rows) s.rows = rows;
    return act_cuda_plan(&s, device, out, NULL) == ROSE_OK;
}

int op_cases_act_run(int i, const struct op_io *io)
{
    struct act_case given = cases[i];
    const struct act_case *k = &given;
    struct plan plan;
    struct rose_error err = {0};
    if (io->rows) given.s.rows = io->rows;
    const struct act_shape s = given.s;
    op_f16 = s.f16;
    if (act_cuda_plan(&s, io->device, &plan, &err))
        return fprintf(stderr, "%s: %s\n", k->name, err.message), 1;
    size_t n = (size_t)s.cols, rows = (size_t)s.rows, stride = n + (size_t)k->pad, all = rows * stride;
    size_t group = (size_t)act_cuda_group(s.out), groups = group ? n / group : 1;
    size_t row_bytes = s.out == ACT_OUT_BF16                              ? stride * 2
                       : s.out == ACT_OUT_MXFP4 || s.out == ACT_OUT_NVFP4 ? stride / 2
                                                                          : stride;
    size_t scale_bytes = s.tiled ? (rows + 127) / 128 * ((groups + 3) / 4) * 512 : rows * groups * 4;
    uint16_t *x = malloc(all * 2), *up = malloc(all * 2);
    uint8_t *y = malloc(rows * row_bytes), *scales = malloc(scale_bytes);
    double *v = malloc(n * 8);
    float global = s.out == ACT_OUT_NVFP4 ? 448 * 6 / 40.0f : 0.037f;
    op_fill(x, all, 2, 21), op_fill(up, all, 2, 22);
    for (size_t r = 0; r < rows; r++) /* rows of very different sizes, a group of zeros, an outlier */
        for (size_t c = 0; c < stride && !s.act; c++) {
            float f = op_value(x[r * stride + c]) * (r % 5 == 1 ? 0x1p-30f : r % 5 == 3 ? 0x1p9f : 1);
            if (r % 5 == 2 && c < 256) f = c == 200 ? 3e4f : 0;
            x[r * stride + c] = op_bits(f);
        }
    for (size_t i = 0; i < all && k->patterns; i++) x[i] = (uint16_t)(i / stride % 128 < 64 ? i : i * 40503);
    struct act_rows_params p = {.x_stride = (int64_t)stride,
                                .up_stride = (int64_t)stride,
                                .y_stride = (int64_t)stride,
                                .scale_row_stride = k->columns ? 1 : (int64_t)groups,
                                .scale_group_stride = k->columns ? (int64_t)rows : 1,
                                .rows = (uint32_t)rows};
    p.x = io->buffer(io->context, "x", all * 2, x, false);
    if (s.gated) p.up = io->buffer(io->context, "up", all * 2, up, false);
    p.y = io->buffer(io->context, "y", rows * row_bytes, NULL, false);
    if (s.out > ACT_OUT_E4M3_TENSOR) p.scale = io->buffer(io->context, "scale", scale_bytes, NULL, false);
    if (s.out == ACT_OUT_E4M3_TENSOR || s.out == ACT_OUT_NVFP4)
        p.global = io->buffer(io->context, "global", 4, &global, false);
    int wrong = !io->run(io->context, &plan, &p, sizeof p);
    io->read(io->context, y, p.y, rows * row_bytes);
    if (p.scale) io->read(io->context, scales, p.scale, scale_bytes);
    for (size_t r = 0; r < rows && !wrong; r++) {
        for (size_t c = 0; c < n; c++)
            v[c] = activate(&s, (double)op_value(x[r * stride + c]),
                            s.gated ? (double)op_value(up[r * stride + c]) : 0);
        if (s.out != ACT_OUT_BF16) wrong += check_row(k, r, v, global, y + r * row_bytes, scales);
        for (size_t c = 0; c < n && s.out == ACT_OUT_BF16; c++)
            wrong += op_check(k->name, r * stride + c, ((uint16_t *)y)[r * stride + c], v[c], 2e-6);
        for (size_t b = row_bytes / stride * n; b < row_bytes && row_bytes >= stride; b++)
            wrong += y[r * row_bytes + b] != 0xff;
    }
    io->reset(io->context);
    free(x), free(up), free(y), free(scales), free(v);
    return wrong;
}
