/* Element-wise kernels; included once an instruction set. Work is split into pieces of one row and up to
 * CHUNK columns. */
#include "kernels/cpu/elementwise.h"

enum { VEC_NAME(CHUNK) = 4096 };

/* erf: Taylor polynomial below 0.5 (error 1e-8), Abramowitz & Stegun 7.1.26 above; absolute error
 * below 3.4e-7. */
VEC_INLINE vf VEC_NAME(elementwise_erf)(vf x)
{
    vf a = vabs(x), x2 = x * x;
    vf p = vset1(-1.0f / 1320 * 1.0f);
    p = vfma(p, x2, vset1(1.0f / 216));
    p = vfma(p, x2, vset1(-1.0f / 42));
    p = vfma(p, x2, vset1(0.1f));
    p = vfma(p, x2, vset1(-1.0f / 3));
    p = vfma(p * x2, x, x) * vset1(1.12837917f);
    vf t = vset1(1.0f) / vfma(a, vset1(0.3275911f), vset1(1.0f));
    vf q = vset1(1.061405429f);
    q = vfma(q, t, vset1(-1.453152027f));
    q = vfma(q, t, vset1(1.421413741f));
    q = vfma(q, t, vset1(-0.284496736f));
    q = vfma(q, t, vset1(0.254829592f));
    vf big = vset1(1.0f) - q * t * vexp(vset1(0) - a * a);
    return vsel(vlt(a, vset1(0.5f)), p, vcopysign(big, x));
}

VEC_INLINE vf VEC_NAME(elementwise_f)(int kind, vf x)
{
    vf zero = vset1(0), one = vset1(1.0f);
    switch (kind) {
    case ELEMENTWISE_SILU: return x / (one + vexp(zero - x));
    case ELEMENTWISE_GELU_TANH: {
        vf inner = vset1(0.797884561f) * vfma(vset1(0.044715f) * x * x, x, x);
        return vset1(0.5f) * x * (one + vtanh(inner));
    }
    case ELEMENTWISE_GELU_ERF:
        return vset1(0.5f) * x * (one + VEC_NAME(elementwise_erf)(x * vset1(0.707106781f)));
    case ELEMENTWISE_RELU: return vrelu(x);
    case ELEMENTWISE_RELU2: return vrelu(x) * vrelu(x);
    default: return x;
    }
}

/* Columns [b, e) of a row, kind known at compile time after inlining. */
VEC_INLINE void VEC_NAME(elementwise_act_piece)(int kind, const float *x, const float *up, float *y,
                                                int32_t n)
{
    int32_t i = 0;
    for (; i + VL <= n; i += VL) {
        vf v = VEC_NAME(elementwise_f)(kind, vload(x + i));
        if (up) v = v * vload(up + i);
        vstore(y + i, v);
    }
    if (i < n) {
        vf v = VEC_NAME(elementwise_f)(kind, vload_n(x + i, n - i));
        if (up) v = v * vload_n(up + i, n - i);
        vstore_n(y + i, v, n - i);
    }
}

/* The next piece for this worker: row and columns. Pieces of a worker are contiguous. */
struct VEC_NAME(elementwise_piece) {
    size_t at, end, chunks;
};

static struct VEC_NAME(elementwise_piece)
    VEC_NAME(elementwise_pieces)(const struct elementwise_params *p, const struct extents *extents,
                                 struct worker *w)
{
    struct VEC_NAME(elementwise_piece) s;
    s.chunks = ((size_t)p->cols + VEC_NAME(CHUNK) - 1) / VEC_NAME(CHUNK);
    worker_range(w, (size_t)extents->n[p->rows_extent] * s.chunks, 1, &s.at, &s.end);
    return s;
}

static int32_t VEC_NAME(elementwise_where)(const struct elementwise_params *p,
                                           const struct VEC_NAME(elementwise_piece) * s, int64_t *row,
                                           int32_t *col)
{
    *row = (int64_t)(s->at / s->chunks);
    *col = (int32_t)(s->at % s->chunks) * VEC_NAME(CHUNK);
    return p->cols - *col < VEC_NAME(CHUNK) ? p->cols - *col : VEC_NAME(CHUNK);
}

static void VEC_NAME(elementwise_act)(const void *params, const struct extents *extents, struct worker *w)
{
    const struct elementwise_params *p = params;
    struct VEC_NAME(elementwise_piece) s = VEC_NAME(elementwise_pieces)(p, extents, w);
    for (; s.at < s.end; s.at++) {
        int64_t r;
        int32_t c, n = VEC_NAME(elementwise_where)(p, &s, &r, &c);
        const float *x = (const float *)p->x + r * p->x_stride + c;
        const float *up = p->up ? (const float *)p->up + r * p->up_stride + c : NULL;
        float *y = (float *)p->y + r * p->y_stride + c;
        switch (p->activation) {
        case ELEMENTWISE_SILU: VEC_NAME(elementwise_act_piece)(ELEMENTWISE_SILU, x, up, y, n); break;
        case ELEMENTWISE_GELU_TANH:
            VEC_NAME(elementwise_act_piece)(ELEMENTWISE_GELU_TANH, x, up, y, n);
            break;
        case ELEMENTWISE_GELU_ERF: VEC_NAME(elementwise_act_piece)(ELEMENTWISE_GELU_ERF, x, up, y, n); break;
        case ELEMENTWISE_RELU: VEC_NAME(elementwise_act_piece)(ELEMENTWISE_RELU, x, up, y, n); break;
        case ELEMENTWISE_RELU2: VEC_NAME(elementwise_act_piece)(ELEMENTWISE_RELU2, x, up, y, n); break;
        default: VEC_NAME(elementwise_act_piece)(ELEMENTWISE_NONE, x, up, y, n); break;
        }
    }
}

static void VEC_NAME(elementwise_softcap)(const void *params, const struct extents *extents, struct worker *w)
{
    const struct elementwise_params *p = params;
    struct VEC_NAME(elementwise_piece) s = VEC_NAME(elementwise_pieces)(p, extents, w);
    vf in = vset1(p->cap != 0 ? p->scale / p->cap : p->scale), out = vset1(p->cap);
    for (; s.at < s.end; s.at++) {
        int64_t r;
        int32_t c, n = VEC_NAME(elementwise_where)(p, &s, &r, &c);
        const float *x = (const float *)p->x + r * p->x_stride + c;
        float *y = (float *)p->y + r * p->y_stride + c;
        for (int32_t i = 0; i < n; i += VL) {
            int left = n - i < VL ? n - i : VL;
            vf v = vload_n(x + i, left) * in;
            if (p->cap != 0) v = vtanh(v) * out;
            vstore_n(y + i, v, left);
        }
    }
}

static void VEC_NAME(elementwise_add)(const void *params, const struct extents *extents, struct worker *w)
{
    const struct elementwise_params *p = params;
    struct VEC_NAME(elementwise_piece) s = VEC_NAME(elementwise_pieces)(p, extents, w);
    for (; s.at < s.end; s.at++) {
        int64_t r;
        int32_t c, n = VEC_NAME(elementwise_where)(p, &s, &r, &c);
        const float *x = (const float *)p->x + r * p->x_stride + c;
        float *y = (float *)p->y + r * p->y_stride + c;
        for (int32_t i = 0; i < n; i += VL) {
            int left = n - i < VL ? n - i : VL;
            vstore_n(y + i, vfma(vset1(p->scale), vload_n(x + i, left), vload_n(y + i, left)), left);
        }
    }
}

static void VEC_NAME(elementwise_gather)(const void *params, const struct extents *extents, struct worker *w)
{
    const struct elementwise_params *p = params;
    struct VEC_NAME(elementwise_piece) s = VEC_NAME(elementwise_pieces)(p, extents, w);
    const int32_t *index = p->index;
    for (; s.at < s.end; s.at++) {
        int64_t r;
        int32_t c, n = VEC_NAME(elementwise_where)(p, &s, &r, &c);
        memcpy((float *)p->y + r * p->y_stride + c, (const float *)p->x + index[r] * p->x_stride + c,
               (size_t)n * sizeof(float));
    }
}

const struct elementwise_kernels VEC_NAME(elementwise_kernels) = {
    VEC_NAME(elementwise_act), VEC_NAME(elementwise_softcap), VEC_NAME(elementwise_add),
    VEC_NAME(elementwise_gather)};
