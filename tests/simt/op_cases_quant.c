/* The quantiser of weights and the scale of a tensor: bit for bit what float64 says, each step rounded once and ties to even. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "op_cases_internal.h"
#include "ops/quant_cuda.h"

static const struct quant_case {
    const char *name;
    int rows, cols, pad, scale_pad; /* elements between rows, and between rows of scales */
} cases[] = {{"quantise 200x264 e4m3 128x128, scales as cuBLASLt has them", 200, 264, 8, 1}, {"quantise 129x8 e4m3 128x128", 129, 8, 0, 0}, {"quantise 128x384 e4m3 128x128", 128, 384, 16, 0}};
static const struct tensor_case {
    const char *name;
    struct scale_tensor_shape s;
    int pad;
} tensors[] = {{"scale of a tensor 37x264 for e4m3", {37, 264, SCALE_TENSOR_E4M3, false}, 8},
               {"scale of a tensor 9x4104 for nvfp4", {9, 4104, SCALE_TENSOR_NVFP4, false}, 0},
               {"scale of a tensor f16 270x80 for e4m3", {270, 80, SCALE_TENSOR_E4M3, true}, 16},
               {"scale of a tensor 43x512 of zeros for nvfp4", {43, 512, SCALE_TENSOR_NVFP4, false}, 0}};
enum { SIDE = 128, CODES = 127, BLOCKS = sizeof cases / sizeof *cases, TENSORS = sizeof tensors / sizeof *tensors };

/* The nearest code, of two equally near the even one. */
static uint8_t nearest(double x)
{
    int best = 0;
    double distance = INFINITY;
    for (int c = 0; c < CODES; c++) {
        uint8_t byte = (uint8_t)c;
        float v;
        dtype_decode(DTYPE_F8_E4M3, &byte, &v, 1);
        double d = fabs(fabs(x) - (double)v);
        if (d < distance || (d == distance && c % 2 == 0)) distance = d, best = c;
    }
    return (uint8_t)(best | (signbit(x) ? 0x80 : 0));
}

static int check(const struct quant_case *k, const uint16_t *x, size_t stride, const uint8_t *y, const float *scale)
{
    int wrong = 0, across = (k->cols + SIDE - 1) / SIDE, down = (k->rows + SIDE - 1) / SIDE;
    for (int b = 0; b < across * down; b++) {
        int r0 = b / across * SIDE, c0 = b % across * SIDE, r1 = ROSE_MIN(r0 + SIDE, k->rows), c1 = ROSE_MIN(c0 + SIDE, k->cols);
        double largest = (double)1e-10f;
        for (int r = r0; r < r1; r++)
            for (int c = c0; c < c1; c++) largest = fmax(largest, fabs((double)bf16_to_f32(x[(size_t)r * stride + (size_t)c])));
        float want = (float)(largest / 448), factor = (float)(1 / (double)want);
        const float *got_scale = &scale[b / across * (across + k->scale_pad) + b % across];
        if (memcmp(&want, got_scale, 4) && wrong++ < 5) fprintf(stderr, "%s: scale %d is %.9g, expected %.9g\n", k->name, b, (double)*got_scale, (double)want);
        for (int r = r0; r < r1; r++)
            for (int c = c0; c < c1; c++) {
                uint8_t got = y[(size_t)r * (size_t)k->cols + (size_t)c], code = nearest((double)(float)((double)bf16_to_f32(x[(size_t)r * stride + (size_t)c]) * (double)factor));
                if (got != code && wrong++ < 5) fprintf(stderr, "%s: [%d, %d] is %02x, expected %02x\n", k->name, r, c, got, code);
            }
    }
    return wrong;
}

static int run_blocks(int i, const struct op_io *io)
{
    struct quant_case k = cases[i];
    struct plan plan;
    struct rose_error err = {0};
    if (io->rows) k.rows = io->rows;
    if (quant_cuda_blocks_plan(k.rows, k.cols, io->device, &plan, &err)) return fprintf(stderr, "%s: %s\n", k.name, err.message), 1;
    size_t stride = (size_t)(k.cols + k.pad), rows = (size_t)k.rows, codes = rows * (size_t)k.cols, across = (size_t)((k.cols + SIDE - 1) / SIDE + k.scale_pad), blocks = across * ((rows + SIDE - 1) / SIDE);
    uint16_t *x = malloc(rows * stride * 2);
    uint8_t *y = malloc(codes);
    float *scale = malloc(blocks * sizeof *scale);
    op_fill(x, rows * stride, 1, 5);
    for (size_t r = 0; r < rows && r < SIDE; r++) /* the first block is all zeros; the second has ties: 448 and odd sixteenths of it */
        for (size_t c = 0; c < (size_t)k.cols; c++) {
            if (c < SIDE && k.cols > SIDE) x[r * stride + c] = 0;
            else if (c < 2 * SIDE && k.cols > SIDE) x[r * stride + c] = f32_to_bf16(r + c == SIDE ? 448.0f : (float)((r * 7 + c) % 32) * 0.5f + 16);
        }
    struct quant_blocks_params p = {.x_stride = (int64_t)stride, .scale_stride = (int64_t)across, .rows = (uint32_t)k.rows, .cols = (uint32_t)k.cols};
    p.x = io->buffer(io->context, "x", rows * stride * 2, x, true);
    p.y = io->buffer(io->context, "y", codes, NULL, false);
    p.scale = io->buffer(io->context, "scale", blocks * 4, NULL, false);
    int wrong = !io->run(io->context, &plan, &p, sizeof p);
    if (!wrong) {
        io->read(io->context, y, p.y, codes), io->read(io->context, scale, p.scale, blocks * 4);
        wrong = check(&k, x, stride, y, scale);
    }
    io->reset(io->context);
    free(x), free(y), free(scale);
    return wrong;
}

/* The largest lies where ragged ends are missed: last row, last column. Twice, so that what the first left in `work` is seen. */
static int run_tensor(int i, const struct op_io *io)
{
    struct tensor_case k = tensors[i];
    struct plan plan;
    struct rose_error err = {0};
    if (io->rows) k.s.rows = io->rows;
    op_f16 = k.s.f16;
    if (quant_cuda_tensor_plan(&k.s, io->device, &plan, &err)) return fprintf(stderr, "%s: %s\n", k.name, err.message), 1;
    size_t rows = (size_t)k.s.rows, n = (size_t)k.s.cols, stride = n + (size_t)k.pad;
    uint16_t *x = malloc(rows * stride * 2);
    uint32_t zero[2] = {0}, work[2];
    float largest = 1e-10f, got = 0;
    op_fill(x, rows * stride, 1, 9);
    x[rows * stride - 1 - (size_t)k.pad] = op_bits(-77.0f);
    if (k.pad) x[n] = op_bits(5000.0f); /* between rows: no part of the tensor */
    if (!strcmp(k.name, tensors[TENSORS - 1].name)) memset(x, 0, rows * stride * 2);
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < n; c++) largest = fmaxf(largest, fabsf(op_value(x[r * stride + c])));
    float want = k.s.kind == SCALE_TENSOR_NVFP4 ? (float)(2688.0 / (double)largest) : (float)((double)largest / 448.0);
    struct scale_tensor_params p = {.x_stride = (int64_t)stride, .rows = (uint32_t)rows};
    p.x = io->buffer(io->context, "x", rows * stride * 2, x, false);
    p.scale = io->buffer(io->context, "scale", 4, NULL, false);
    p.work = io->buffer(io->context, "work", sizeof zero, zero, false);
    int wrong = !io->run(io->context, &plan, &p, sizeof p) || !io->run(io->context, &plan, &p, sizeof p);
    if (!wrong) {
        io->read(io->context, &got, p.scale, 4), io->read(io->context, work, p.work, sizeof work);
        wrong = memcmp(&got, &want, 4) != 0 || work[0] || work[1];
        if (wrong) fprintf(stderr, "%s: %.9g, expected %.9g; left %u %u\n", k.name, (double)got, (double)want, work[0], work[1]);
    }
    io->reset(io->context);
    free(x);
    return wrong;
}

int op_cases_quant_run(int i, const struct op_io *io) { return i < BLOCKS ? run_blocks(i, io) : run_tensor(i - BLOCKS, io); }
const char *op_cases_quant_name(int i) { return i < BLOCKS ? cases[i].name : i < BLOCKS + TENSORS ? tensors[i - BLOCKS].name : NULL; }
bool op_cases_quant_plan(int i, const struct device_info *device, int rows, struct plan *out)
{
    if (i < BLOCKS) return quant_cuda_blocks_plan(rows ? rows : cases[i].rows, cases[i].cols, device, out, NULL) == ROSE_OK;
    struct scale_tensor_shape s = tensors[i - BLOCKS].s;
    if (rows) s.rows = rows;
    return quant_cuda_tensor_plan(&s, device, out, NULL) == ROSE_OK;
}
