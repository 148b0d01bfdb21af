/* Experts' matrices of random codes in FP8 or a block format of GGUF, for tests and benches of experts that stay as their file has them. */
#ifndef ROSE_TESTS_MOE_CODED_DATA_H
#define ROSE_TESTS_MOE_CODED_DATA_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "moe_mlp_reference.h"
#include "ops/matmul_cuda.h"
#include "ops/weight_view.h"

enum moe_coded_scales { MOE_CODED_BLOCKS, MOE_CODED_CHANNELS, MOE_CODED_TENSOR };

/* Experts' matrices [experts * n, k] as a file would have them. */
struct moe_coded {
    struct tensor all;
    struct tensor_scales scales;
    void *bytes;
    float *scale;
    int64_t experts, n, k;
};

/* Where a block's scales are, and the standard deviation of its codes: that of the weights then is about 0.6 / sqrt(k). */
static inline void moe_coded_blocks(enum dtype dtype, uint8_t *block, float size, uint64_t *r)
{
    float spread = dtype == DTYPE_Q8_0 ? 74 : dtype == DTYPE_Q4_K ? 4.6f * 36 : dtype == DTYPE_Q5_K ? 9.2f * 36 : dtype == DTYPE_Q6_K ? 18.5f * 74 : 4.6f;
    float d = size / spread * (0.75f + 0.5f * fabsf(moe_random_f32(r)));
    uint16_t half = f32_to_f16(d), min = f32_to_f16(d * (dtype == DTYPE_Q4_1 ? -7.5f : dtype == DTYPE_Q4_K ? 7.5f : 15.5f));
    if (dtype == DTYPE_MXFP4) block[0] = (uint8_t)(127 + (int)floorf(log2f(size / 2.9f)) + (int)(moe_random(r) % 2));
    else memcpy(block + (dtype == DTYPE_Q6_K ? 208 : 0), &half, 2);
    if (dtype == DTYPE_Q4_1 || dtype == DTYPE_Q4_K || dtype == DTYPE_Q5_K) memcpy(block + 2, &min, 2);
}

static inline struct moe_coded moe_coded_make(enum dtype dtype, enum moe_coded_scales kind, int64_t experts, int64_t n, int64_t k, uint64_t seed)
{
    struct moe_coded c = {.all = {.dtype = dtype, .ndim = 2, .shape = {experts * n, k}}, .experts = experts, .n = n, .k = k};
    size_t row = dtype_row_bytes(dtype, (size_t)k), total = (size_t)(experts * n) * row, block = dtype_info(dtype)->bytes;
    float size = 1.4f / sqrtf((float)k);
    c.all.data = c.bytes = malloc(total);
    for (size_t i = 0; i < total; i++) ((uint8_t *)c.bytes)[i] = (uint8_t)(moe_random(&seed) >> 24);
    if (dtype != DTYPE_F8_E4M3) {
        for (size_t b = 0; b < total; b += block) moe_coded_blocks(dtype, (uint8_t *)c.bytes + b, size, &seed);
        return c;
    }
    for (size_t i = 0; i < total; i++) { /* most near 16, where steps are 2; none NaN */
        uint8_t *code = (uint8_t *)c.bytes + i;
        *code = (uint8_t)((*code & 0x80) | (0x40 + *code % 24));
    }
    /* A matrix's own blocks: every expert begins one. */
    int64_t block_rows = kind == MOE_CODED_BLOCKS ? 128 : kind == MOE_CODED_CHANNELS ? 1 : n, block_cols = kind == MOE_CODED_BLOCKS ? 128 : k;
    int64_t rows = (n + block_rows - 1) / block_rows, cols = (k + block_cols - 1) / block_cols;
    c.scale = malloc((size_t)(experts * rows * cols) * sizeof(float));
    for (int64_t i = 0; i < experts * rows * cols; i++) /* four bits: times a code's four bf16 has them all */
        c.scale[i] = ldexpf((float)(8 + moe_random(&seed) % 8), (int)floorf(log2f(size / 100)));
    c.scales = (struct tensor_scales){.value = c.scale, .rows = rows, .cols = cols, .block_rows = block_rows, .block_cols = block_cols, .name = "experts"};
    return c;
}

static inline void moe_coded_drop(struct moe_coded *c) { free(c->bytes), free(c->scale); }

/* Expert e; scales: where its own are kept. */
static inline struct tensor moe_coded_expert(const struct moe_coded *c, int64_t e, struct tensor_scales *scales)
{
    struct tensor t = {.dtype = c->all.dtype, .ndim = 2, .shape = {c->n, c->k}};
    t.data = (const char *)c->bytes + (size_t)(e * c->n) * dtype_row_bytes(t.dtype, (size_t)c->k);
    if (!c->scale) return t;
    *scales = c->scales;
    scales->value += e * scales->rows * scales->cols;
    t.scales = scales;
    return t;
}

/* What the matrices mean, rounded to bf16: for moe_mlp_data. */
static inline void moe_coded_values(const struct moe_coded *c, uint16_t *out)
{
    float *row = malloc((size_t)c->k * sizeof *row);
    for (int64_t e = 0; e < c->experts; e++) {
        struct tensor_scales scales;
        struct tensor t = moe_coded_expert(c, e, &scales);
        for (int64_t r = 0; r < c->n; r++) {
            dtype_decode(t.dtype, (const char *)t.data + (size_t)r * dtype_row_bytes(t.dtype, (size_t)c->k), row, (size_t)c->k);
            for (int64_t i = 0; i < c->k; i++) *out++ = moe_bf16(row[i] * tensor_scale(&t, r, i));
        }
    }
    free(row);
}

/* Bytes of an expert in device memory, from one to the next. */
static inline size_t moe_coded_stride(const struct moe_coded *c)
{
    struct tensor_scales scales;
    struct tensor t = moe_coded_expert(c, 0, &scales);
    return size_round_up(matmul_cuda_weight_bytes(&t, false), 256);
}

#endif
