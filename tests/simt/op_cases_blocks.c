/* Rows of weights in block formats as elements: the very bits that a float32 decoder and one rounding give. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/params/matmul_blocks.h"
#include "op_cases_internal.h"
#include "ops/matmul_blocks.h"

const enum dtype op_block_types[BLOCKS_FORMATS] = {DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q8_0, DTYPE_MXFP4, DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q6_K};

/* Blocks of random bits with scales of a model's size. */
void *op_random_blocks(enum dtype dtype, size_t rows, int32_t k, uint32_t seed)
{
    size_t bytes = rows * dtype_row_bytes(dtype, (size_t)k), block = dtype_info(dtype)->bytes, at = dtype == DTYPE_Q6_K ? 208 : 0;
    int halves = dtype == DTYPE_MXFP4 ? 0 : dtype == DTYPE_Q4_1 || dtype == DTYPE_Q4_K || dtype == DTYPE_Q5_K ? 2 : 1;
    uint8_t *out = malloc(bytes);
    for (size_t i = 0; i < bytes; i++) out[i] = (uint8_t)op_random(&seed);
    for (size_t b = 0; b < bytes; b += block) {
        if (dtype == DTYPE_MXFP4) out[b] = (uint8_t)(op_random(&seed) % 64 == 0 ? op_random(&seed) % 3 : 116 + op_random(&seed) % 6);
        for (int i = 0; i < halves; i++) {
            uint16_t h = f32_to_f16(op_normal(&seed) * (dtype == DTYPE_Q6_K || dtype == DTYPE_Q8_0 ? 0.0005f : dtype == DTYPE_Q4_0 || dtype == DTYPE_Q4_1 ? 0.01f : 0.0003f));
            memcpy(out + b + at + 2 * (size_t)i, &h, 2);
        }
    }
    return out;
}

struct rows_case {
    const char *name;
    struct matmul_blocks_rows_shape s;
    int w_rows, pad; /* rows of the matrix; elements between rows of y */
    float scale;
};
#define ROWS(r, kk, f, ...) {.rows = r, .k = kk, .format = BLOCKS_##f, __VA_ARGS__}
static const struct rows_case cases[] = {
    {"blocks rows Q4_0 37x96", ROWS(37, 96, Q4_0), 37, 4, 1},
    {"blocks rows Q4_1 18x320", ROWS(18, 320, Q4_1), 18, 0, 1},
    {"blocks rows Q8_0 33x288", ROWS(33, 288, Q8_0), 33, 8, 1},
    {"blocks rows MXFP4 20x1056", ROWS(20, 1056, MXFP4), 20, 0, 1},
    {"blocks rows Q4_K 40x256", ROWS(40, 256, Q4_K), 40, 0, 1},
    {"blocks rows Q5_K 9x768", ROWS(9, 768, Q5_K), 9, 4, 1},
    {"blocks rows Q6_K 35x512", ROWS(35, 512, Q6_K), 35, 0, 1},
    {"blocks gather Q8_0 9x608", ROWS(9, 608, Q8_0, .gather = true), 21, 8, 3},
    {"blocks gather Q6_K 70x256, adds", ROWS(70, 256, Q6_K, .gather = true, .accumulate = true), 50, 4, 1.5f},
    {"blocks gather Q4_0 5x32", ROWS(5, 32, Q4_0, .gather = true), 17, 0, 1},
    {"blocks gather Q4_1 6x352", ROWS(6, 352, Q4_1, .gather = true), 33, 0, 0.5f},
    {"blocks gather MXFP4 130x64", ROWS(130, 64, MXFP4, .gather = true), 16, 4, 1},
    {"blocks gather Q4_K 11x1024", ROWS(11, 1024, Q4_K, .gather = true), 40, 0, 1},
    {"blocks gather Q5_K 3x512, adds", ROWS(3, 512, Q5_K, .gather = true, .accumulate = true), 20, 0, 1},
    {"blocks rows f16 Q4_1 18x320", ROWS(18, 320, Q4_1, .f16 = true), 18, 0, 1},
    {"blocks rows f16 MXFP4 20x1056", ROWS(20, 1056, MXFP4, .f16 = true), 20, 0, 1},
    {"blocks gather f16 Q6_K 70x256, adds", ROWS(70, 256, Q6_K, .gather = true, .accumulate = true, .f16 = true), 50, 4, 1.5f},
};

const char *op_cases_blocks_name(int i) { return i < (int)(sizeof cases / sizeof *cases) ? cases[i].name : NULL; }

bool op_cases_blocks_plan(int i, const struct device_info *device, int rows, struct plan *out)
{
    struct matmul_blocks_rows_shape s = cases[i].s;
    if (rows) s.rows = rows;
    return matmul_blocks_rows_plan(&s, device, out, NULL) == ROSE_OK;
}

int op_cases_blocks_run(int i, const struct op_io *io)
{
    const struct rows_case *c = &cases[i];
    struct matmul_blocks_rows_shape s = c->s;
    if (io->rows) s.rows = io->rows;
    op_f16 = s.f16;
    struct plan plan;
    struct rose_error err = {0};
    if (matmul_blocks_rows_plan(&s, io->device, &plan, &err)) return fprintf(stderr, "%s: %s\n", c->name, err.message), 1;
    size_t rows = (size_t)s.rows, w_rows = s.gather ? (size_t)c->w_rows : rows, k = (size_t)s.k, stride = k + (size_t)c->pad;
    enum dtype dtype = op_block_types[s.format];
    void *blocks = op_random_blocks(dtype, w_rows, s.k, 81);
    struct tensor t = {.dtype = dtype, .ndim = 2, .shape = {(int64_t)w_rows, s.k}, .data = blocks};
    size_t bytes = matmul_blocks_bytes(&t);
    void *packed = malloc(bytes);
    float *value = malloc(w_rows * k * 4);
    uint16_t *old = malloc(rows * stride * 2), *got = malloc(rows * stride * 2);
    int32_t *index = malloc(rows * 4), shift = s.accumulate ? 4 : 0;
    matmul_blocks_rows(&t, 0, (int64_t)w_rows, packed);
    dtype_decode(dtype, blocks, value, w_rows * k);
    op_fill(old, rows * stride, 1, 82);
    for (size_t r = 0; r < rows; r++) index[r] = (r == 2 ? (int32_t)w_rows : r == 4 ? -1 : (int32_t)(r * 7 % w_rows)) - shift;
    struct matmul_blocks_rows_params p = {.y_stride = (int64_t)stride, .rows = (uint32_t)rows, .w_rows = (uint32_t)w_rows, .index_offset = shift, .scale = c->scale};
    p.w = io->buffer(io->context, "w", bytes, packed, true);
    p.y = io->buffer(io->context, "y", rows * stride * 2, old, false);
    if (s.gather) p.index = io->buffer(io->context, "index", rows * 4, index, false);
    int wrong = !io->run(io->context, &plan, &p, sizeof p);
    io->read(io->context, got, p.y, rows * stride * 2);
    for (size_t r = 0; r < rows && !wrong; r++)
        for (size_t e = 0; e < stride; e++) {
            int64_t from = s.gather ? (int64_t)index[r] + shift : (int64_t)r;
            float v = from >= 0 && from < (int64_t)w_rows && e < k ? value[(size_t)from * k + e] : 0, was = op_value(old[r * stride + e]);
            uint16_t want = e >= k ? old[r * stride + e] : op_bits(s.accumulate ? (float)((double)c->scale * (double)v + (double)was) : s.gather ? c->scale * v : v);
            if (got[r * stride + e] != want && !((got[r * stride + e] | want) == 0x8000) && wrong++ < 5)
                fprintf(stderr, "%s: row %zu element %zu is %04x, expected %04x\n", c->name, r, e, got[r * stride + e], want);
        }
    io->reset(io->context);
    free(blocks), free(packed), free(value), free(old), free(got), free(index);
    return wrong;
}
