/* Matrix products against float64: every epilogue, several weights at once, ragged rows, columns and k. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "op_cases_internal.h"
#include "kernels/params/gemm_wgmma.h"
#include "kernels/params/matmul_blocks.h"
#include "ops/matmul_blocks.h"
#include "ops/matmul_plan.h"

struct matmul_case {
    const char *name;
    struct matmul_shape s;
    float alpha;
    int pad; /* elements between rows of x and y */
};
#define ONE(r, nn, kk, ...) {.rows = r, .parts = 1, .n = {nn}, .k = kk, __VA_ARGS__}
static const struct matmul_case cases[] = {
    {"matmul 1x72x200", ONE(1, 72, 200, .pairs = true), 1, 0},
    {"matmul 5x130x264 to f32, odd columns, bias", ONE(5, 67, 264, .out_f32 = true, .bias = true), 0.5f, 8},
    {"matmul 19x136x264, residual", ONE(19, 136, 264, .accumulate = true, .pairs = true), 0.25f, 16},
    {"matmul 3x(96+40+40)x128, bias",
     {.rows = 3, .parts = 3, .n = {96, 40, 40}, .k = 128, .bias = true, .pairs = true},
     1,
     8},
    {"matmul 70x(72+33+20+1)x136 to f32",
     {.rows = 70, .parts = 4, .n = {72, 33, 20, 1}, .k = 136, .out_f32 = true},
     1,
     0},
    {"matmul 9x104x192 SwiGLU",
     {.rows = 9, .parts = 2, .n = {104, 104}, .k = 192, .gated = true, .act = OP_ACT_SILU, .pairs = true},
     1,
     0},
    {"matmul 66x70x72 GeGLU, bias, residual",
     {.rows = 66,
      .parts = 2,
      .n = {70, 70},
      .k = 72,
      .gated = true,
      .bias = true,
      .accumulate = true,
      .act = OP_ACT_GELU_TANH,
      .pairs = true},
     1,
     2},
    {"matmul 130x140x88, 64x128 tiles, gelu", ONE(130, 140, 88, .act = OP_ACT_GELU_ERF, .tile = 3, .pairs = true), 1, 0},
    {"matmul 140x136x136, 128x128 tiles", ONE(140, 136, 136, .tile = 4, .pairs = true), 1, 8},
    {"matmul 33x3x8, one column tile, k of one chunk", ONE(33, 3, 8, .tile = 2), 1, 0},
    {"matmul 1x2000x200, splits", ONE(1, 2000, 200, .splits = 3, .accumulate = true, .pairs = true), 2, 0},
    {"matmul 8x60x1096, 2 warps of 3 steps, bias, relu2", ONE(8, 60, 1096, .warps = 2, .depth = 3, .bias = true, .act = OP_ACT_RELU2), 1, 0},
    {"matmul 16x(24+9)x704, splits of one SM, f32",
     {.rows = 16, .parts = 2, .n = {24, 9}, .k = 704, .splits = 4, .warps = 2, .depth = 2, .out_f32 = true},
     1,
     8},
    {"matmul 4x1200x520 SwiGLU, splits, bias",
     {.rows = 4, .parts = 2, .n = {1200, 1200}, .k = 520, .gated = true, .act = OP_ACT_SILU, .splits = 2, .bias = true},
     1,
     0},
    {"matmul 3x100x4040, tiles at once, residual", ONE(3, 100, 4040, .accumulate = true, .pairs = true), 1, 8},
    {"matmul 8x40x2560 SwiGLU, tiles at once", {.rows = 8, .parts = 2, .n = {40, 40}, .k = 2560, .gated = true, .act = OP_ACT_SILU, .pairs = true}, 1, 0},
    {"matmul 300x400x200 wgmma 256, clusters", ONE(300, 400, 200, .tile = 11, .rows16 = true, .tma = true, .pairs = true), 1, 8},
#define THREE(r, t) {.rows = r, .parts = 3, .n = {264, 40, 8}, .k = 136, .tile = t, .bias = true, .accumulate = true, .rows16 = true, .tma = true, .pairs = true}
    {"matmul 200x(264+40+8)x136 wgmma 256, bias, residual", THREE(200, 12), 0.5f, 8},
    {"matmul 300x(264+40+8)x136 wgmma 256, clusters, bias, residual", THREE(300, 11), 0.5f, 8},
    {"matmul 270x200x328 wgmma 128, clusters, SwiGLU, bias",
     {.rows = 270,
      .parts = 2,
      .n = {200, 200},
      .k = 328,
      .tile = 13,
      .gated = true,
      .bias = true,
      .act = OP_ACT_SILU,
      .rows16 = true, .tma = true,
      .pairs = true},
     1,
     0},
    {"matmul 300x(264+40+8)x136 wgmma 224, clusters, bias, residual", THREE(300, 16), 0.5f, 8},
    {"matmul 140x232x200 wgmma 224, SwiGLU, bias",
     {.rows = 140, .parts = 2, .n = {232, 232}, .k = 200, .tile = 17, .gated = true, .bias = true, .act = OP_ACT_SILU, .rows16 = true, .tma = true, .pairs = true}, 1, 8},
    {"matmul 130x136x520 wgmma 128, f32, residual",
     ONE(130, 136, 520, .tile = 14, .out_f32 = true, .accumulate = true, .rows16 = true, .tma = true, .pairs = true),
     1,
     8},
    {"matmul 70x72x64 wgmma 64, gelu", ONE(70, 72, 64, .tile = 15, .act = OP_ACT_GELU_TANH, .rows16 = true, .tma = true, .pairs = true), 1, 0},
    {"matmul 3x200x400 stream", ONE(3, 200, 400, .tma = true, .tile = 21), 1, 8},
    {"matmul 8x(520+72+9)x1032 stream of 128 rows, bias, residual",
     {.rows = 8, .parts = 3, .n = {520, 72, 9}, .k = 1032, .bias = true, .accumulate = true, .tma = true, .tile = 26},
     0.5f,
     8},
    {"matmul 21x136x712 stream SwiGLU, bias",
     {.rows = 21, .parts = 2, .n = {136, 136}, .k = 712, .gated = true, .bias = true, .act = OP_ACT_SILU, .tma = true, .tile = 21},
     1,
     0},
    {"matmul 16x72x1296 stream of 128 rows, GeGLU",
     {.rows = 16, .parts = 2, .n = {72, 72}, .k = 1296, .gated = true, .act = OP_ACT_GELU_TANH, .tma = true, .tile = 26},
     1,
     0},
    {"matmul 2x9000x136 stream, f32", ONE(2, 9000, 136, .out_f32 = true, .tma = true, .tile = 29), 1, 0},
    {"matmul 5x700x520 stream, whole tiles, residual", ONE(5, 700, 520, .accumulate = true, .tma = true, .tile = 22), 1, 0},
    {"matmul 3x9000x264 stream, clusters of 2, residual, bias",
     ONE(3, 9000, 264, .accumulate = true, .bias = true, .tma = true, .tile = 23), 1, 8},
    {"matmul 11x(400+72+72)x1032 stream, clusters of 4, f32",
     {.rows = 11, .parts = 3, .n = {400, 72, 72}, .k = 1032, .out_f32 = true, .tma = true, .tile = 24},
     1,
     0},
    {"matmul 8x600x1096 stream, clusters of 8, SwiGLU",
     {.rows = 8, .parts = 2, .n = {600, 600}, .k = 1096, .gated = true, .act = OP_ACT_SILU, .tma = true, .tile = 25},
     1,
     0},
    {"matmul 130x72x1096 stream, clusters of 8, whose sums leave room for 32 columns", ONE(130, 72, 1096, .tma = true, .tile = 25), 1, 8},
#define NORM .norm = true, .norm_eps = 1e-5f
    {"matmul 1x520x1000 at once, norm", ONE(1, 520, 1000, NORM), 1, 8},
    {"matmul 3x(1400+520+280)x520 two tiles side by side, norm of 1 + w, bias",
     {.rows = 3, .parts = 3, .n = {1400, 520, 280}, .k = 520, NORM, .norm_offset = 1, .bias = true},
     0.5f,
     8},
    {"matmul 4x1800x200 SwiGLU, two tiles side by side, norm", {.rows = 4, .parts = 2, .n = {1800, 1800}, .k = 200, NORM, .gated = true, .act = OP_ACT_SILU}, 1, 8},
    {"matmul 4x4300x136 three tiles side by side, norm, f32", ONE(4, 4300, 136, NORM, .out_f32 = true), 1, 0},
    {"matmul 2x2200x712 two tiles side by side, residual", ONE(2, 2200, 712, .accumulate = true, .pairs = true), 1, 8},
#define BLOCKS(format) .blocks_format = 1 + BLOCKS_##format
    {"blocks Q4_0 1x1000x288", ONE(1, 1000, 288, BLOCKS(Q4_0), .pairs = true), 1, 0},
    {"blocks Q4_0 3x72x4128, residual", ONE(3, 72, 4128, BLOCKS(Q4_0), .accumulate = true), 0.5f, 8},
    {"blocks Q4_1 2x(96+40+9)x608, bias", {.rows = 2, .parts = 3, .n = {96, 40, 9}, .k = 608, BLOCKS(Q4_1), .bias = true}, 1, 8},
    {"blocks Q8_0 9x200x576 SwiGLU, bias",
     {.rows = 9, .parts = 2, .n = {200, 200}, .k = 576, BLOCKS(Q8_0), .gated = true, .bias = true, .act = OP_ACT_SILU},
     1,
     0},
    {"blocks Q8_0 1x640x32 to f32", ONE(1, 640, 32, BLOCKS(Q8_0), .out_f32 = true), 2, 0},
    {"blocks MXFP4 5x90x352, gelu", ONE(5, 90, 352, BLOCKS(MXFP4), .act = OP_ACT_GELU_ERF), 1, 8},
    {"blocks Q4_K 1x300x2048", ONE(1, 300, 2048, BLOCKS(Q4_K)), 1, 0},
    {"blocks Q4_K 20x152x512 SwiGLU", {.rows = 20, .parts = 2, .n = {152, 152}, .k = 512, BLOCKS(Q4_K), .gated = true, .act = OP_ACT_SILU}, 1, 0},
    {"blocks Q4_K 70x(72+33+20+1)x256 to f32", {.rows = 70, .parts = 4, .n = {72, 33, 20, 1}, .k = 256, BLOCKS(Q4_K), .out_f32 = true}, 1, 0},
    {"blocks Q5_K 4x130x1024, splits, residual, bias", ONE(4, 130, 1024, BLOCKS(Q5_K), .splits = 2, .warps = 2, .accumulate = true, .bias = true), 1, 8},
    {"blocks Q5_K 33x24x768", ONE(33, 24, 768, BLOCKS(Q5_K)), 1, 0},
    {"blocks Q6_K 7x200x1536, relu2", ONE(7, 200, 1536, BLOCKS(Q6_K), .act = OP_ACT_RELU2), 1, 0},
    {"blocks Q6_K 1x136x768 GeGLU, splits", {.rows = 1, .parts = 2, .n = {136, 136}, .k = 768, BLOCKS(Q6_K), .gated = true, .act = OP_ACT_GELU_TANH, .splits = 3}, 1, 0},
    {"blocks Q6_K 40x50x512, deterministic", ONE(40, 50, 512, BLOCKS(Q6_K), .deterministic = true), 1, 0},
    {"blocks ring Q4_0 1x1000x288", ONE(1, 1000, 288, BLOCKS(Q4_0), .tma = true, .tile = 41), 1, 0},
    {"blocks ring Q4_1 20x(96+40+9)x608, bias, residual",
     {.rows = 20, .parts = 3, .n = {96, 40, 9}, .k = 608, BLOCKS(Q4_1), .bias = true, .accumulate = true, .tma = true, .tile = 42}, 0.5f, 8},
    {"blocks ring Q8_0 9x200x576 SwiGLU, bias", {.rows = 9, .parts = 2, .n = {200, 200}, .k = 576, BLOCKS(Q8_0), .gated = true, .act = OP_ACT_SILU, .bias = true, .tma = true}, 1, 8},
    {"blocks ring MXFP4 5x90x352, gelu", ONE(5, 90, 352, BLOCKS(MXFP4), .act = OP_ACT_GELU_ERF, .tma = true), 1, 8},
    {"blocks ring Q4_K 1x700x2048", ONE(1, 700, 2048, BLOCKS(Q4_K), .tma = true), 1, 0},
    {"blocks ring Q4_K 70x(272+33+20+1)x512 to f32", {.rows = 70, .parts = 4, .n = {272, 33, 20, 1}, .k = 512, BLOCKS(Q4_K), .out_f32 = true, .tma = true}, 1, 0},
    {"blocks ring Q5_K 33x24x768, residual", ONE(33, 24, 768, BLOCKS(Q5_K), .accumulate = true, .tma = true, .tile = 41), 1, 8},
    {"blocks ring Q6_K 40x136x768 GeGLU, residual",
     {.rows = 40, .parts = 2, .n = {136, 136}, .k = 768, BLOCKS(Q6_K), .gated = true, .act = OP_ACT_GELU_TANH, .accumulate = true, .tma = true, .tile = 42}, 1, 0},
#define MANY(columns, runs) .tile = MATMUL_TILE_BLOCKS_FORMS + 2 * (columns) + (runs), .tma = true /* of 32, 64, 128, 192, 256, with 12 warps 32, 64; by runs */
    {"blocks wgmma Q4_0 70x1000x288, 32 by runs", ONE(70, 1000, 288, BLOCKS(Q4_0), MANY(0, 1), .rows16 = true), 1, 0},
    {"blocks wgmma Q4_1 140x(264+40+16)x608, 64, bias, residual",
     {.rows = 140, .parts = 3, .n = {264, 40, 16}, .k = 608, BLOCKS(Q4_1), .bias = true, .accumulate = true, MANY(1, 0), .rows16 = true}, 0.5f, 8},
    {"blocks wgmma Q8_0 100x200x576 SwiGLU, 64 by runs, bias",
     {.rows = 100, .parts = 2, .n = {200, 200}, .k = 576, BLOCKS(Q8_0), .gated = true, .act = OP_ACT_SILU, .bias = true, MANY(1, 1), .rows16 = true}, 1, 8},
    {"blocks wgmma MXFP4 150x147x352, 128, gelu, odd columns", ONE(150, 147, 352, BLOCKS(MXFP4), .act = OP_ACT_GELU_ERF, MANY(2, 0)), 1, 9},
    {"blocks wgmma Q4_K 130x(272+33+20+1)x512 to f32, 128 by runs, residual",
     {.rows = 130, .parts = 4, .n = {272, 33, 20, 1}, .k = 512, BLOCKS(Q4_K), .out_f32 = true, .accumulate = true, MANY(2, 1)}, 1, 0},
    {"blocks wgmma Q5_K 200x136x768, 192, residual", ONE(200, 136, 768, BLOCKS(Q5_K), .accumulate = true, MANY(3, 0), .rows16 = true), 1, 8},
    {"blocks wgmma Q6_K 260x136x512 GeGLU, 256, residual",
     {.rows = 260, .parts = 2, .n = {136, 136}, .k = 512, BLOCKS(Q6_K), .gated = true, .act = OP_ACT_GELU_TANH, .accumulate = true, MANY(4, 0), .rows16 = true}, 1, 0},
    {"blocks wgmma Q6_K 40x300x768, 256 by runs", ONE(40, 300, 768, BLOCKS(Q6_K), MANY(4, 1)), 1, 0},
    {"blocks wgmma Q6_K 60x520x512, 12 warps, 64 by runs, residual", ONE(60, 520, 512, BLOCKS(Q6_K), .accumulate = true, MANY(6, 1), .rows16 = true), 1, 8},
    {"blocks wgmma Q5_K 40x264x512 SwiGLU, 12 warps, 32, bias",
     {.rows = 40, .parts = 2, .n = {264, 264}, .k = 512, BLOCKS(Q5_K), .gated = true, .act = OP_ACT_SILU, .bias = true, MANY(5, 0), .rows16 = true}, 1, 8},
    {"blocks wgmma f16 Q4_K 70x152x512 SwiGLU, 32 by runs",
     {.rows = 70, .parts = 2, .n = {152, 152}, .k = 512, BLOCKS(Q4_K), .gated = true, .act = OP_ACT_SILU, MANY(0, 1), .rows16 = true, .f16 = true}, 1, 0},
    {"blocks wgmma f16 MXFP4 130x136x96, 128", ONE(130, 136, 96, BLOCKS(MXFP4), MANY(2, 0), .rows16 = true, .f16 = true), 1, 8},
    {"blocks wgmma f16 Q5_K 70x136x512 GeGLU, 64",
     {.rows = 70, .parts = 2, .n = {136, 136}, .k = 512, BLOCKS(Q5_K), .gated = true, .act = OP_ACT_GELU_TANH, MANY(1, 0), .rows16 = true, .f16 = true}, 1, 8},
    {"blocks tiles Q4_0 130x147x288, 128x128, odd columns", ONE(130, 147, 288, BLOCKS(Q4_0), .tile = 4), 1, 9},
    {"blocks tiles Q4_1 70x(72+40+16)x608, 64x64, bias, residual",
     {.rows = 70, .parts = 3, .n = {72, 40, 16}, .k = 608, BLOCKS(Q4_1), .bias = true, .accumulate = true, .tile = 2, .pairs = true}, 0.5f, 8},
    {"blocks tiles Q8_0 70x104x576 SwiGLU, 64x128, bias",
     {.rows = 70, .parts = 2, .n = {104, 104}, .k = 576, BLOCKS(Q8_0), .gated = true, .act = OP_ACT_SILU, .bias = true, .tile = 3, .pairs = true}, 1, 8},
    {"blocks tiles MXFP4 20x90x352, 16x64, gelu", ONE(20, 90, 352, BLOCKS(MXFP4), .act = OP_ACT_GELU_ERF, .tile = 1), 1, 0},
    {"blocks tiles Q4_K 130x(152+33+1)x512 to f32, 128x128", {.rows = 130, .parts = 3, .n = {152, 33, 1}, .k = 512, BLOCKS(Q4_K), .out_f32 = true, .tile = 4}, 1, 0},
    {"blocks tiles Q5_K 66x70x768, 64x64", ONE(66, 70, 768, BLOCKS(Q5_K), .tile = 2, .pairs = true), 1, 2},
    {"blocks tiles Q6_K 130x136x512 GeGLU, 128x128", {.rows = 130, .parts = 2, .n = {136, 136}, .k = 512, BLOCKS(Q6_K), .gated = true, .act = OP_ACT_GELU_TANH, .tile = 4, .pairs = true}, 1, 0},
    {"blocks tiles f16 Q4_K 70x70x256, 64x64", ONE(70, 70, 256, BLOCKS(Q4_K), .tile = 2, .f16 = true), 1, 0},
    {"matmul f16 3x(96+40+40)x128, bias", {.rows = 3, .parts = 3, .n = {96, 40, 40}, .k = 128, .bias = true, .pairs = true, .f16 = true}, 1, 8},
    {"matmul f16 66x70x72 GeGLU, residual",
     {.rows = 66, .parts = 2, .n = {70, 70}, .k = 72, .gated = true, .accumulate = true, .act = OP_ACT_GELU_TANH, .pairs = true, .f16 = true}, 1, 2},
    {"matmul f16 1x2000x200, splits", ONE(1, 2000, 200, .splits = 3, .accumulate = true, .pairs = true, .f16 = true), 2, 0},
    {"matmul f16 140x136x136, 128x128 tiles", ONE(140, 136, 136, .tile = 4, .pairs = true, .f16 = true), 1, 8},
    {"matmul f16 300x(264+40+8)x136 wgmma 256, clusters, bias, residual",
     {.rows = 300, .parts = 3, .n = {264, 40, 8}, .k = 136, .tile = 11, .bias = true, .accumulate = true, .rows16 = true, .tma = true, .pairs = true, .f16 = true}, 0.5f, 8},
    {"matmul f16 70x72x64 wgmma 64, gelu", ONE(70, 72, 64, .tile = 15, .act = OP_ACT_GELU_TANH, .rows16 = true, .tma = true, .pairs = true, .f16 = true), 1, 0},
    {"matmul f16 21x136x712 stream SwiGLU, bias",
     {.rows = 21, .parts = 2, .n = {136, 136}, .k = 712, .gated = true, .bias = true, .act = OP_ACT_SILU, .tma = true, .tile = 21, .f16 = true}, 1, 0},
    {"blocks f16 Q4_0 3x72x4128, residual", ONE(3, 72, 4128, BLOCKS(Q4_0), .accumulate = true, .f16 = true), 0.5f, 8},
    {"blocks f16 Q5_K 33x24x768", ONE(33, 24, 768, BLOCKS(Q5_K), .f16 = true), 1, 0},
    {"blocks f16 Q6_K 7x200x1536, relu2", ONE(7, 200, 1536, BLOCKS(Q6_K), .act = OP_ACT_RELU2, .f16 = true), 1, 0},
    {"blocks ring f16 Q8_0 9x200x576 SwiGLU", {.rows = 9, .parts = 2, .n = {200, 200}, .k = 576, BLOCKS(Q8_0), .gated = true, .act = OP_ACT_SILU, .tma = true, .f16 = true}, 1, 8},
    {"blocks ring f16 MXFP4 5x90x352, gelu", ONE(5, 90, 352, BLOCKS(MXFP4), .act = OP_ACT_GELU_ERF, .tma = true, .f16 = true), 1, 8},
    {"blocks ring f16 Q4_K 1x700x2048", ONE(1, 700, 2048, BLOCKS(Q4_K), .tma = true, .f16 = true), 1, 0},
};

double op_activate(enum op_activation a, double x)
{
    switch (a) {
    case OP_ACT_SILU: return x / (1 + exp(-x));
    case OP_ACT_GELU_TANH: return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
    case OP_ACT_GELU_ERF: return 0.5 * x * (1 + erf(x / sqrt(2)));
    case OP_ACT_RELU: return x > 0 ? x : 0;
    case OP_ACT_RELU2: return x > 0 ? x * x : 0;
    default: return x;
    }
}

struct data {
    struct matmul_shape s;
    size_t x_stride, y_stride;
    uint16_t *x, *in;         /* in: what is multiplied, x or with a norm element(gain * x) */
    float *gain;              /* the norm's weight */
    double *row;              /* what the row of `in` that is checked means */
    double *scale;            /* of a row: 1 or the norm's */
    void *w[GEMM_PARTS];      /* as the device has them */
    float *value[GEMM_PARTS]; /* what they mean */
    size_t w_bytes[GEMM_PARTS];
    bool rounded;             /* weights in blocks are multiplied as 16-bit elements */
    float *bias[GEMM_PARTS];
    void *old, *got; /* of all parts, one behind the other */
};

/* dot and the sum of magnitudes, which the float32 sum's error is in proportion to */
static double dot(const struct data *d, size_t r, int part, size_t col, double *size)
{
    double sum = op_dot(d->row, d->value[part] + col * (size_t)d->s.k, (size_t)d->s.k, size);
    sum *= d->scale[r], *size *= d->scale[r];
    if (d->s.bias) sum += (double)d->bias[part][col];
    return sum;
}

static int check(const struct matmul_case *k, const struct data *d)
{
    int wrong = 0, parts = d->s.gated ? 1 : d->s.parts;
    const char *got = d->got, *old = d->old;
    size_t element = d->s.out_f32 ? 4 : 2, at = 0;
    for (int p = 0; p < parts; at += (size_t)d->s.rows * d->y_stride, p++)
        for (size_t r = 0; r < (size_t)d->s.rows; r++) {
            for (size_t c = 0; c < (size_t)d->s.k; c++) d->row[c] = (double)op_value(d->in[r * d->x_stride + c]);
            for (size_t c = 0; c < (size_t)d->s.n[p]; c++) {
                size_t i = at + r * d->y_stride + c;
                double size, up_size, v = op_activate(d->s.act, dot(d, r, p, c, &size)), slack = size;
                if (d->s.gated) {
                    double up = dot(d, r, 1, c, &up_size);
                    slack = size * fabs(up) + up_size * fabs(v), v *= up;
                }
                v *= (double)k->alpha, slack = 1e-5 * slack + 1e-5;
                if (d->s.out_f32) {
                    float g, o;
                    memcpy(&g, got + i * element, 4), memcpy(&o, old + i * element, 4);
                    if (d->s.accumulate) v += (double)o;
                    if (!(fabs((double)g - v) <= slack) && wrong++ < 5)
                        fprintf(stderr, "%s: part %d row %zu column %zu is %.9g, expected %.9g\n", k->name, p, r, c, (double)g, v);
                } else {
                    uint16_t g, o;
                    memcpy(&g, got + i * element, 2), memcpy(&o, old + i * element, 2);
                    if (d->s.accumulate) v += (double)op_value(o);
                    wrong += op_check(k->name, i, g, v, slack);
                }
            }
            for (size_t c = (size_t)d->s.n[p]; c < d->y_stride; c++) /* between the rows: untouched */
                wrong += memcmp(got + (at + r * d->y_stride + c) * element, old + (at + r * d->y_stride + c) * element, element) != 0;
        }
    return wrong;
}

static int launch(const struct matmul_case *k, const struct op_io *io, struct data *d, const struct matmul_plan *plan)
{
    const struct matmul_shape *s = &d->s;
    struct gemm_params p = {
        .x_stride = (int64_t)d->x_stride, .rows = (uint32_t)s->rows, .k = (uint32_t)s->k, .alpha = k->alpha};
    int parts = s->gated ? 1 : s->parts;
    size_t element = s->out_f32 ? 4 : 2, each = (size_t)s->rows * d->y_stride * element;
    p.x = io->buffer(io->context, "x", (size_t)s->rows * d->x_stride * 2, d->x, false);
    char *y = io->buffer(io->context, "y", each * (size_t)parts, d->old, false);
    size_t first = d->w_bytes[0];
    char *pair = s->gated ? io->buffer(io->context, "w", first * 2, d->w[0], true) : NULL; /* d->w[1] is behind d->w[0] */
    for (int i = 0; i < s->parts; i++) {
        p.part[i].n = s->n[i];
        p.part[i].w = pair ? pair + (size_t)i * first : io->buffer(io->context, "w", d->w_bytes[i], d->w[i], true);
        if (s->bias && i != 2) p.part[i].bias = io->buffer(io->context, "bias", (size_t)s->n[i] * 4, d->bias[i], true);
        p.part[i].y_stride = (int64_t)d->y_stride;
        if (i < parts) p.part[i].y = y + (size_t)i * each;
    }
    if (s->norm) p.norm = io->buffer(io->context, "norm", (size_t)s->k * 4, d->gain, true);
    matmul_plan_params(plan, &p);
    size_t groups = plan->work_bytes ? (size_t)((s->rows + plan->group - 1) / plan->group) : 0;
    void *zero = calloc(groups + 1, plan->counter_bytes + 1);
    if (groups) p.work = io->buffer(io->context, "work", groups * plan->work_bytes, NULL, false);
    if (groups) p.counters = io->buffer(io->context, "counters", groups * plan->counter_bytes, zero, false);
    free(zero);
    if (plan->box) { /* TMA */
        _Alignas(64) struct gemm_wgmma_params t = {.g = p};
        struct layout_tma box;
        for (int i = -1; i < (plan->x_alone ? 0 : plan->interleaved ? 1 : s->parts); i++) {
            const void *base = matmul_plan_box(plan, &p, i, s->rows, &box);
            io->map(io->context, i < 0 ? &t.x : &t.w[i], base, &box);
        }
        if (!io->run(io->context, &plan->plan, &t, sizeof t)) return 1;
    } else if (!io->run(io->context, &plan->plan, &p, sizeof p))
        return 1;
    io->read(io->context, d->got, y, each * (size_t)parts);
    return 0;
}

/* Weights of part i at d->w[i] (room is there), and what they mean. */
static void make_weights(struct data *d, int i)
{
    size_t count = (size_t)d->s.n[i] * (size_t)d->s.k;
    d->value[i] = malloc(count * 4);
    if (!d->s.blocks_format) {
        op_fill(d->w[i], count, 1 / sqrtf((float)d->s.k), 20 + (uint32_t)i);
        for (size_t e = 0; e < count; e++) d->value[i][e] = op_value(((const uint16_t *)d->w[i])[e]);
        return;
    }
    enum dtype dtype = op_block_types[d->s.blocks_format - 1];
    void *blocks = op_random_blocks(dtype, (size_t)d->s.n[i], d->s.k, 20 + (uint32_t)i);
    struct tensor t = {.dtype = dtype, .ndim = 2, .shape = {d->s.n[i], d->s.k}, .data = blocks};
    matmul_blocks_rows(&t, 0, d->s.n[i], d->w[i]);
    dtype_decode(dtype, blocks, d->value[i], count);
    for (size_t e = 0; e < count && d->rounded; e++) d->value[i][e] = op_value(op_bits(d->value[i][e]));
    free(blocks);
}

/* The norm in float64, but for the one rounding to 16 bits that the product's operand has. */
static void normalise(struct data *d)
{
    size_t rows = (size_t)d->s.rows, k = (size_t)d->s.k;
    uint32_t seed = 70;
    d->row = malloc(k * sizeof *d->row), d->gain = malloc(k * 4), d->scale = malloc(rows * sizeof *d->scale), d->in = malloc(rows * d->x_stride * 2);
    memcpy(d->in, d->x, rows * d->x_stride * 2);
    for (size_t c = 0; c < k; c++) d->gain[c] = 1 - d->s.norm_offset + 0.3f * op_normal(&seed);
    for (size_t r = 0; r < rows; r++) {
        double squares = 0;
        d->scale[r] = 1;
        for (size_t c = 0; d->s.norm && c < k; c++) {
            float x = op_value(d->x[r * d->x_stride + c]);
            squares += (double)x * (double)x;
            d->in[r * d->x_stride + c] = op_bits(x * (d->s.norm_offset + d->gain[c]));
        }
        if (d->s.norm) d->scale[r] = 1 / sqrt(squares / (double)k + (double)d->s.norm_eps);
    }
}

static size_t bytes_of(const struct matmul_shape *s, int i)
{
    struct tensor t = {.dtype = s->blocks_format ? op_block_types[s->blocks_format - 1] : DTYPE_BF16, .ndim = 2, .shape = {s->n[i], s->k}};
    return s->blocks_format ? matmul_blocks_bytes(&t) : (size_t)s->n[i] * (size_t)s->k * 2;
}

static int run(const struct matmul_case *k, const struct op_io *io)
{
    struct data d = {.s = k->s};
    op_f16 = k->s.f16;
    if (io->rows && !d.s.norm) d.s.rows = io->rows;
    struct rose_error err = {0};
    struct matmul_plan plan;
    if (matmul_plan_make(&d.s, io->device, &plan, &err)) return fprintf(stderr, "%s: %s\n", k->name, err.message), 1;
    d.rounded = !strcmp(plan.plan.kernel, "matmul_blocks_wgmma") || !strcmp(plan.plan.kernel, "gemm_rows");
    int32_t widest = 0;
    for (int i = 0; i < d.s.parts; i++) widest = d.s.n[i] > widest ? d.s.n[i] : widest;
    d.x_stride = (size_t)d.s.k + (size_t)(k->pad + 7) / 8 * 8, d.y_stride = (size_t)widest + (size_t)k->pad;
    size_t xs = (size_t)d.s.rows * d.x_stride, ys = (size_t)d.s.rows * d.y_stride * (size_t)(d.s.gated ? 1 : d.s.parts);
    d.x = malloc(xs * 2), d.old = malloc(ys * 4), d.got = malloc(ys * 4);
    op_fill(d.x, xs, d.s.norm ? 3 : 1, 11);
    normalise(&d);
    if (d.s.out_f32) {
        uint32_t seed = 12;
        for (size_t i = 0; i < ys; i++) ((float *)d.old)[i] = op_normal(&seed);
    } else
        op_fill(d.old, ys, 1, 12);
    for (int i = 0; i < d.s.parts; i++) {
        uint32_t seed = 40 + (uint32_t)i;
        size_t size = d.w_bytes[i] = bytes_of(&d.s, i);
        d.w[i] = d.s.gated && i ? (char *)d.w[0] + size : malloc(d.s.gated ? size * 2 : size), d.bias[i] = malloc((size_t)d.s.n[i] * 4);
        make_weights(&d, i);
        for (int c = 0; c < d.s.n[i]; c++) d.bias[i][c] = i == 2 ? 0 : op_normal(&seed); /* part 2 has none */
    }
    int wrong = launch(k, io, &d, &plan);
    if (!wrong) wrong = check(k, &d);
    io->reset(io->context);
    for (int i = 0; i < d.s.parts; i++) free(d.s.gated && i ? NULL : d.w[i]), free(d.value[i]), free(d.bias[i]);
    free(d.x), free(d.old), free(d.got), free(d.in), free(d.gain), free(d.scale), free(d.row);
    return wrong;
}

const char *op_cases_matmul_name(int i)
{
    return i < (int)(sizeof cases / sizeof *cases) ? cases[i].name : NULL;
}
int op_cases_matmul_run(int i, const struct op_io *io)
{
    return run(&cases[i], io);
}
bool op_cases_matmul_there(int i, const struct device_info *device)
{
    return (!cases[i].s.norm && cases[i].s.tile < MATMUL_TILE_BLOCKS_WGMMA) || plan_arch(device) == 900;
}
bool op_cases_matmul_plan(int i, const struct device_info *device, int rows, struct plan *out)
{
    struct matmul_shape s = cases[i].s;
    if (rows && !s.norm) s.rows = rows; /* few rows alone are normalised in the product */
    struct matmul_plan plan;
    if (matmul_plan_make(&s, device, &plan, NULL) != ROSE_OK) return false;
    *out = plan.plan;
    return true;
}
