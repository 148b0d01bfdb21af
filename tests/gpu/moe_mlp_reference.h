/* Float64 reference of a whole mixture of experts, with its random inputs; used by tests/simt/test_moe_mlp_cuda.c and
 * gpu_moe.c. */
#ifndef ROSE_TESTS_MOE_MLP_REFERENCE_H
#define ROSE_TESTS_MOE_MLP_REFERENCE_H

#include "moe_reference.h"
#include "ops/moe_mlp_cuda.h"
#include "tensor/dtype.h"

/* How the router's logits are made: evenly; a few experts take most; all tokens to the same experts. */
enum moe_skew { MOE_EVEN, MOE_SKEWED, MOE_ONE };

struct moe_mlp_data {
    struct moe_cuda_shape route; /* tokens, experts, top_k, hidden, score, ... */
    int32_t ffn;
    float *logits, *bias[3];     /* gate, up, down: [experts, n] */
    uint16_t *x, *weight[3], *y; /* bf16, or f16 with route.f16; y before */
    size_t weights;              /* elements of one */
    bool quantised;              /* x and the inner rows are e4m3 with a scale for 128 elements */
};

/* What is left of v as e4m3. */
static inline void moe_mlp_quantise(double *v, size_t n)
{
    for (size_t g = 0; g < n; g += 128) {
        float most = 1e-10f;
        for (size_t i = g; i < g + 128 && i < n; i++) most = fmaxf(most, fabsf((float)v[i]));
        const float scale = most / 448, factor = 1 / scale;
        for (size_t i = g; i < g + 128 && i < n; i++) {
            float f = (float)v[i] * factor;
            uint8_t code;
            dtype_encode(DTYPE_F8_E4M3, &f, &code, 1, NULL);
            dtype_decode(DTYPE_F8_E4M3, &code, &f, 1);
            v[i] = (double)f * (double)scale;
        }
    }
}

static inline double moe_mlp_value(const struct moe_cuda_shape *s, uint16_t bits) { return s->f16 ? f16_to_f32(bits) : moe_f32(bits); }

static inline void moe_mlp_fill_as(bool f16, uint16_t *out, size_t n, float scale, uint64_t *r)
{
    for (size_t i = 0; i < n; i++) out[i] = (f16 ? f32_to_f16 : moe_bf16)(((float)(int)(moe_random(r) >> 8) * 0x1p-23f - 1) * scale);
}
static inline void moe_mlp_fill(uint16_t *out, size_t n, float scale, uint64_t *r) { moe_mlp_fill_as(false, out, n, scale, r); }

static inline struct moe_mlp_data moe_mlp_make(const struct moe_cuda_shape *s, int32_t ffn, enum moe_skew skew, uint64_t seed)
{
    struct moe_mlp_data d = {.route = *s, .ffn = ffn};
    size_t t = (size_t)s->tokens, e = (size_t)s->experts, h = (size_t)s->hidden, f = (size_t)ffn;
    d.weights = e * h * f;
    d.logits = malloc(t * e * 4);
    d.x = malloc(t * h * 2), d.y = malloc(t * h * 2);
    for (size_t i = 0; i < t * e; i++) {
        float skewed = skew == MOE_SKEWED ? 4 / (1 + 0.3f * (float)(i % e)) : skew == MOE_ONE ? -(float)(i % e) * 20 : 0;
        d.logits[i] = moe_random_f32(&seed) + skewed;
    }
    moe_mlp_fill_as(s->f16, d.x, t * h, 1, &seed);
    moe_mlp_fill_as(s->f16, d.y, t * h, 1, &seed);
    for (int i = 0; i < 3; i++) {
        size_t n = i < 2 ? f : h;
        d.weight[i] = malloc(d.weights * 2);
        moe_mlp_fill_as(s->f16, d.weight[i], d.weights, 2.5f / sqrtf(i < 2 ? (float)h : (float)f), &seed);
        d.bias[i] = malloc(e * n * 4);
        for (size_t j = 0; j < e * n; j++) d.bias[i][j] = moe_random_f32(&seed) * 0.3f;
    }
    return d;
}

static inline void moe_mlp_drop(struct moe_mlp_data *d)
{
    free(d->logits), free(d->x), free(d->y);
    for (int i = 0; i < 3; i++) free(d->weight[i]), free(d->bias[i]);
}

static inline double moe_mlp_activation(enum op_activation a, double x)
{
    switch (a) {
    case OP_ACT_SILU: return x / (1 + exp(-x));
    case OP_ACT_GELU_TANH: return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    case OP_ACT_GELU_ERF: return 0.5 * x * (1 + erf(x * 0.7071067811865476));
    case OP_ACT_RELU: return x > 0 ? x : 0;
    case OP_ACT_RELU2: return x > 0 ? x * x : 0;
    default: return x;
    }
}

static inline double moe_mlp_dot(const struct moe_cuda_shape *s, const uint16_t *w, const double *x, size_t n, double *size)
{
    double sum = 0, abs = 0;
    for (size_t i = 0; i < n; i++) {
        double v = moe_mlp_value(s, w[i]) * x[i];
        sum += v, abs += fabs(v);
    }
    if (size) *size = abs;
    return sum;
}

/* Of `check` tokens spread over all, the error of y: the worst element against what roundings of the inner values, of
 * an expert's row and of y allow (1 is all of it), and the root mean square against that of y. y rows are y_stride apart. */
struct moe_mlp_error {
    double worst, rms;
};
static inline struct moe_mlp_error moe_mlp_check(const struct moe_mlp_data *d, enum op_activation act, bool gate_bias, bool down_bias,
                                                 const int32_t *ids, const float *weights, const uint16_t *y, int64_t y_stride, int check)
{
    struct moe_mlp_error error = {0, 0};
    const struct moe_cuda_shape *s = &d->route;
    size_t h = (size_t)s->hidden, f = (size_t)d->ffn;
    double *x = malloc(h * 8), *inner = malloc(f * 8), *sum = malloc(h * 8), *allow = malloc(h * 8), square = 0, off = 0, unit = s->f16 ? 0x1p-11 : 0x1p-8;
    double alpha = s->alpha != 0 ? s->alpha : 1;
    for (int i = 0; i < check && i < s->tokens; i++) {
        size_t t = check >= s->tokens ? (size_t)i : (size_t)i * (size_t)(s->tokens - 1) / (size_t)(check - 1);
        for (size_t c = 0; c < h; c++) x[c] = moe_mlp_value(s, d->x[t * h + c]), sum[c] = allow[c] = 0;
        if (d->quantised) moe_mlp_quantise(x, h);
        for (int j = 0; j < s->top_k; j++) {
            int32_t e = ids[t * (size_t)s->top_k + (size_t)j];
            double weight = weights[t * (size_t)s->top_k + (size_t)j] * alpha;
            if (e < 0) continue;
            for (size_t n = 0; n < f; n++) {
                size_t row = (size_t)e * f + n;
                double g = moe_mlp_dot(s, d->weight[0] + row * h, x, h, NULL), u = moe_mlp_dot(s, d->weight[1] + row * h, x, h, NULL);
                if (gate_bias) g += d->bias[0][row], u += d->bias[1][row];
                inner[n] = moe_mlp_activation(act, g) * u;
            }
            if (d->quantised) moe_mlp_quantise(inner, f);
            for (size_t c = 0; c < h; c++) {
                double size, v = moe_mlp_dot(s, d->weight[2] + ((size_t)e * h + c) * f, inner, f, &size);
                if (down_bias) v += d->bias[2][(size_t)e * h + c];
                sum[c] += weight * v;
                allow[c] += fabs(weight) * (size + fabs(v)) * unit;
            }
        }
        for (size_t c = 0; c < h; c++) {
            double want = sum[c] + (s->accumulate ? moe_mlp_value(s, d->y[t * h + c]) : 0), got = moe_mlp_value(s, y[(int64_t)t * y_stride + (int64_t)c]);
            double wrong = fabs(got - want) / (allow[c] + fabs(want) * unit + 1e-9);
            error.worst = wrong <= error.worst ? error.worst : wrong; /* NaN stays */
            off += (got - want) * (got - want), square += want * want;
        }
    }
    error.rms = sqrt(off / (square + 1e-30));
    free(x), free(inner), free(sum), free(allow);
    return error;
}

#endif
