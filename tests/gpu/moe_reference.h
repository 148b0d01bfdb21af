/* Float64 reference of MoE routing, places, dispatch and combine; used by tests/simt/test_moe.c and
 * gpu_moe_sample.c. Each function returns how many values are wrong. */
#ifndef ROSE_TESTS_MOE_REFERENCE_H
#define ROSE_TESTS_MOE_REFERENCE_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/moe_cuda.h"

static inline uint32_t moe_random(uint64_t *s)
{
    *s = *s * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(*s >> 32);
}
static inline float moe_random_f32(uint64_t *s) /* roughly normal */
{
    float x = 0;
    for (int i = 0; i < 6; i++) x += (float)(moe_random(s) >> 8) * 0x1p-24f;
    return (x - 3.0f) * 1.414f;
}
static inline float moe_f32(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static inline uint16_t moe_bf16(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* Which groups a token may use, by the rule of the DeepSeek V2 and V3 reports. */
static inline void moe_reference_groups(const struct moe_cuda_shape *s, double *choice)
{
    int size = s->experts / s->groups;
    double value[32];
    for (int g = 0; g < s->groups; g++) {
        double a = -INFINITY, b = -INFINITY;
        for (int i = 0; i < size; i++) {
            double c = choice[g * size + i];
            if (c > a)
                b = a, a = c;
            else if (c > b)
                b = c;
        }
        value[g] = s->bias && size > 1 ? a + b : a;
    }
    for (int g = 0; g < s->groups; g++) {
        int better = 0;
        for (int h = 0; h < s->groups; h++) better += value[h] > value[g] || (value[h] == value[g] && h < g);
        if (better >= s->top_groups)
            for (int i = 0; i < size; i++) choice[g * size + i] = -INFINITY;
    }
}

/* Ids are right when no expert left out is better than one chosen, by more than rounding. */
static inline int moe_check_route(const struct moe_cuda_shape *s, const float *logits, int64_t stride,
                                  const float *bias, const int32_t *ids, const float *weights)
{
    int wrong = 0, n = s->experts, k = s->top_k;
    double *score = malloc((size_t)n * 2 * sizeof *score), *choice = score + n;
    for (int t = 0; t < s->tokens; t++) {
        const float *x = logits + t * stride;
        double top = -INFINITY, sum = 0, chosen = 0;
        for (int e = 0; e < n; e++) top = x[e] > top ? x[e] : top;
        for (int e = 0; e < n; e++) sum += exp(x[e] - top);
        for (int e = 0; e < n; e++) {
            score[e] = s->score == OP_MOE_SIGMOID   ? 1 / (1 + exp(-(double)x[e]))
                       : s->score == OP_MOE_SOFTMAX ? exp(x[e] - top) / sum
                                                    : x[e];
            choice[e] = score[e] + (s->bias ? bias[e] : 0);
        }
        if (s->groups > 1 && s->top_groups < s->groups) moe_reference_groups(s, choice);
        double last = INFINITY, scale = s->scale != 0 ? s->scale : 1;
        for (int j = 0; j < k; j++) {
            int e = ids[t * k + j];
            if (e < 0 || e >= n || choice[e] > last + 1e-6) {
                wrong++;
                continue;
            }
            last = choice[e];
            for (int i = 0; i < j; i++) wrong += ids[t * k + i] == e;
            chosen += s->score == OP_MOE_SOFTMAX_AFTER ? exp(score[e] - top) : score[e];
        }
        for (int e = 0; e < n; e++) {
            bool in = false;
            for (int j = 0; j < k; j++) in |= ids[t * k + j] == e;
            wrong += !in && choice[e] > last + 1e-6;
        }
        for (int j = 0; j < k; j++) {
            int e = ids[t * k + j];
            if (e < 0 || e >= n) continue;
            double w = s->score == OP_MOE_SOFTMAX_AFTER ? exp(score[e] - top) : score[e];
            if (s->normalize || s->score == OP_MOE_SOFTMAX_AFTER) w /= chosen;
            wrong += !(fabs(weights[t * k + j] - w * scale) <= 3e-6 * fabs(w * scale) + 1e-12);
        }
    }
    free(score);
    return wrong;
}

/* Counts, padded offsets and stable positions, from the ids; exact. */
static inline int moe_check_places(const struct moe_cuda_shape *s, const int32_t *ids, const int32_t *counts,
                                   const int32_t *offsets, const int32_t *position)
{
    int wrong = 0, n = s->experts, pad = s->pad > 1 ? s->pad : 1, at = 0;
    int32_t *seen = calloc((size_t)n * 2, sizeof *seen), *begin = seen + n;
    for (int i = 0; i < s->tokens * s->top_k; i++)
        if (ids[i] >= 0 && ids[i] < n) seen[ids[i]]++;
    for (int e = 0; e < n; e++) {
        begin[e] = at;
        wrong += counts[e] != seen[e] || offsets[e] != at;
        at += (seen[e] + pad - 1) / pad * pad;
        seen[e] = 0;
    }
    wrong += offsets[n] != at;
    for (int i = 0; i < s->tokens * s->top_k; i++)
        wrong += ids[i] < 0 ? position[i] != -1 : position[i] != begin[ids[i]] + seen[ids[i]]++;
    free(seen);
    return wrong;
}

static inline int moe_check_rows(const struct moe_cuda_shape *s, const uint16_t *x, int64_t stride,
                                 const int32_t *position, const uint16_t *rows)
{
    int wrong = 0;
    for (int i = 0; i < s->tokens * s->top_k; i++)
        if (position[i] >= 0)
            wrong += memcmp(rows + (int64_t)position[i] * s->hidden, x + i / s->top_k * stride,
                            (size_t)s->hidden * 2) != 0;
    return wrong;
}

static inline double moe_e4m3(uint8_t c)
{
    int e = c >> 3 & 15, m = c & 7;
    double v = e ? ldexp(8 + m, e - 10) : ldexp(m, -9);
    return c & 0x80 ? -v : v;
}
/* Quantised rows: scales from the largest of a group, codes within half a step of what they stand for (and the multiplication's rounding). */
static inline int moe_check_quantised(const struct moe_cuda_shape *s, const uint16_t *x, int64_t stride, const int32_t *position, const uint8_t *rows,
                                      const void *scales)
{
    int wrong = 0, groups = moe_cuda_row_scales(s), size = s->hidden / groups;
    for (int i = 0; i < s->tokens * s->top_k * groups; i++) {
        int64_t pick = i / groups, row = position[pick];
        if (row < 0) continue;
        const uint16_t *from = x + pick / s->top_k * stride + i % groups * size;
        const uint8_t *codes = rows + row * s->hidden + i % groups * size;
        double largest = 0, scale;
        for (int c = 0; c < size; c++) largest = fmax(largest, fabs((double)moe_f32(from[c])));
        if (size == 128) {
            scale = (double)((const float *)scales)[row * groups + i % groups];
            wrong += fabs(scale - fmax(largest, 1e-10) / 448) > scale * 0x1p-23;
        } else {
            int bits = ((const uint8_t *)scales)[row * groups + i % groups], e = 0;
            frexp(largest, &e);
            scale = ldexp(1, bits - 127);
            wrong += bits != (e - 1 - 8 + 127 < 0 || largest == 0 ? 0 : e - 1 - 8 + 127);
        }
        for (int c = 0; c < size; c++) {
            double want = fmin(fabs((double)moe_f32(from[c])) / scale, 448), half = fmax(ldexp(1, (int)floor(log2(fmax(want, 0x1p-6))) - 4), 0x1p-10);
            double got = moe_e4m3(codes[c]) * (moe_f32(from[c]) < 0 ? -1 : 1);
            wrong += !(fabs(got - want) <= half * 1.001);
        }
    }
    return wrong;
}

/* old: y before, for accumulate. */
static inline int moe_check_combine(const struct moe_cuda_shape *s, const uint16_t *rows,
                                    const int32_t *position, const float *weights, const uint16_t *old,
                                    int64_t stride, const uint16_t *y)
{
    int wrong = 0;
    double alpha = s->alpha != 0 ? s->alpha : 1;
    for (int t = 0; t < s->tokens; t++)
        for (int c = 0; c < s->hidden; c++) {
            double sum = 0, size = 0;
            for (int j = 0; j < s->top_k; j++) {
                int i = t * s->top_k + j;
                if (position[i] < 0) continue;
                double part = (double)weights[i] * moe_f32(rows[(int64_t)position[i] * s->hidden + c]);
                sum += part, size += fabs(part);
            }
            sum = sum * alpha + (s->accumulate ? moe_f32(old[t * stride + c]) : 0);
            double tolerance =
                fabs(sum) * 0x1p-8 + size * fabs(alpha) * 1e-6 + 1e-30; /* a bf16 rounding, float sums */
            wrong += !(fabs(moe_f32(y[t * stride + c]) - sum) <= tolerance);
        }
    return wrong;
}

#endif
