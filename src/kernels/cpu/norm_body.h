/* RMSNorm and LayerNorm of rows; included once an instruction set. */
#include "kernels/cpu/norm.h"

/* x += add, when given; then the two moments about `mean`: sum of (x - mean) and of its square. */
static float VEC_NAME(norm_sum)(const float *x, int32_t n)
{
    vf s = vset1(0);
    int32_t i = 0;
    for (; i + VL <= n; i += VL) s = s + vload(x + i);
    if (i < n) s = s + vload_n(x + i, n - i);
    return vsum(s);
}

static float VEC_NAME(norm_squares)(const float *x, int32_t n, float mean)
{
    vf s0 = vset1(0), s1 = vset1(0), m = vset1(mean);
    int32_t i = 0;
    for (; i + 2 * VL <= n; i += 2 * VL) {
        vf a = vload(x + i) - m, b = vload(x + i + VL) - m;
        s0 = vfma(a, a, s0);
        s1 = vfma(b, b, s1);
    }
    for (; i < n; i += VL) {
        int left = n - i < VL ? n - i : VL;
        vf a = vload_n(x + i, left) - m;
        vf lane = viota();
        a = vsel(vlt(lane, vset1((float)left)), a, vset1(0));
        s0 = vfma(a, a, s0);
    }
    return vsum(s0 + s1);
}

/* y = alpha * ((x - mean) * inv * (offset + weight) + bias), or added to y. */
VEC_INLINE vf VEC_NAME(norm_apply)(const struct norm_params *p, vf x, vf mean, vf inv, vf w, vf b)
{
    vf v = (x - mean) * inv;
    if (p->weight) v = v * (w + vset1(p->weight_offset));
    if (p->bias) v = v + b;
    return v * vset1(p->alpha);
}

static void VEC_NAME(norm_row)(const struct norm_params *p, int64_t r)
{
    float *x = (float *)p->x + r * p->x_stride, *y = (float *)p->y + r * p->y_stride;
    const float *w = p->weight, *b = p->bias;
    int32_t n = p->cols, whole = n / VL * VL;
    if (p->add) {
        const float *add = (const float *)p->add + r * p->add_stride;
        for (int32_t i = 0; i < whole; i += VL) vstore(x + i, vload(x + i) + vload(add + i));
        if (whole < n)
            vstore_n(x + whole, vload_n(x + whole, n - whole) + vload_n(add + whole, n - whole), n - whole);
    }
    float mean = p->kind == NORM_LAYER ? VEC_NAME(norm_sum)(x, n) / (float)n : 0.0f;
    float inv = 1.0f / sqrtf(VEC_NAME(norm_squares)(x, n, mean) / (float)n + p->eps);
    vf vmean = vset1(mean), vinv = vset1(inv), zero = vset1(0);
    for (int32_t i = 0; i < whole; i += VL) {
        vf v = VEC_NAME(norm_apply)(p, vload(x + i), vmean, vinv, w ? vload(w + i) : zero,
                                    b ? vload(b + i) : zero);
        if (p->accumulate) v = v + vload(y + i);
        vstore(y + i, v);
    }
    if (whole < n) {
        int left = n - whole;
        vf v = VEC_NAME(norm_apply)(p, vload_n(x + whole, left), vmean, vinv,
                                    w ? vload_n(w + whole, left) : zero, b ? vload_n(b + whole, left) : zero);
        if (p->accumulate) v = v + vload_n(y + whole, left);
        vstore_n(y + whole, v, left);
    }
}

void VEC_NAME(norm_rows)(const void *params, const struct extents *extents, struct worker *w)
{
    const struct norm_params *p = params;
    size_t begin, end;
    worker_range(w, (size_t)extents->n[p->rows_extent], 1, &begin, &end);
    for (size_t r = begin; r < end; r++) VEC_NAME(norm_row)(p, (int64_t)r);
}
