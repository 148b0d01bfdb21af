/* Sweeps over a vocabulary; included once an instruction set. */
#include "kernels/cpu/sample.h"

static void VEC_NAME(sample_maxima)(const float *x, int32_t n, float *out)
{
    int32_t b = 0;
    for (; b + SAMPLE_BLOCK <= n; b += SAMPLE_BLOCK) {
        vf top = vset1(-INFINITY);
        VEC_UNROLL
        for (int i = 0; i < SAMPLE_BLOCK; i += VL) top = vmax(vload(x + b + i), top);
        out[b / SAMPLE_BLOCK] = vhmax(top);
    }
    if (b == n) return;
    float top = -INFINITY;
    for (int32_t i = b; i < n; i++) top = x[i] > top ? x[i] : top;
    out[b / SAMPLE_BLOCK] = top;
}

/* The last lanes of a block that ends early count nothing. */
VEC_INLINE vf VEC_NAME(sample_exp)(const float *x, int left, vf top, vf scale)
{
    vf e = vexp((vload_n(x, left) - top) * scale);
    return vsel(vlt(viota(), vset1((float)left)), e, vset1(0));
}

static float VEC_NAME(sample_sum_exp)(const float *x, int32_t n, float top)
{
    vf s = vset1(0), t = vset1(top);
    int32_t i = 0;
    for (; i + VL <= n; i += VL) s = s + vexp(vload(x + i) - t);
    if (i < n) s = s + VEC_NAME(sample_exp)(x + i, n - i, t, vset1(1));
    return vsum(s);
}

static void VEC_NAME(sample_block_sums)(const float *x, int32_t n, float top, float inverse_temperature, float *out)
{
    vf t = vset1(top), scale = vset1(inverse_temperature);
    for (int32_t b = 0; b < n; b += SAMPLE_BLOCK) {
        vf s = vset1(0);
        if (b + SAMPLE_BLOCK <= n)
            VEC_UNROLL
            for (int i = 0; i < SAMPLE_BLOCK; i += VL) s = s + vexp((vload(x + b + i) - t) * scale);
        else
            for (int32_t i = b; i < n; i += VL) s = s + VEC_NAME(sample_exp)(x + i, n - i < VL ? n - i : VL, t, scale);
        out[b / SAMPLE_BLOCK] = vsum(s);
    }
}

static void VEC_NAME(sample_weights)(struct sample_candidate *c, int32_t n, float top, float inverse_temperature)
{
    float x[VL];
    for (int32_t i = 0; i < n; i += VL) {
        int left = n - i < VL ? n - i : VL;
        for (int j = 0; j < left; j++) x[j] = c[i + j].value;
        for (int j = left; j < VL; j++) x[j] = top;
        vstore(x, vexp((vload(x) - vset1(top)) * vset1(inverse_temperature)));
        for (int j = 0; j < left; j++) c[i + j].value = x[j];
    }
}

static int32_t VEC_NAME(sample_collect)(const float *x, int32_t n, int32_t first, float least, struct sample_candidate *out)
{
    int32_t count = 0;
    for (int32_t i = 0; i < n; i++) {
        out[count] = (struct sample_candidate){x[i], first + i};
        count += x[i] >= least;
    }
    return count;
}

const struct sample_kernels VEC_NAME(sample_kernels) = {VEC_NAME(sample_maxima), VEC_NAME(sample_sum_exp), VEC_NAME(sample_block_sums),
                                                        VEC_NAME(sample_weights), VEC_NAME(sample_collect)};
