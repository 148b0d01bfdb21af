/* Sweeps over a vocabulary; included once an instruction set. */
#include "kernels/cpu/sample.h"

#define SAMPLE_LOG2_E 1.44269504f

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
    vf e = vexp2((vload_n(x, left) - top) * scale);
    return vsel(vlt(viota(), vset1((float)left)), e, vset1(0));
}

static float VEC_NAME(sample_sum_exp)(const float *x, int32_t n, float top)
{
    vf s = vset1(0), s2 = vset1(0), t = vset1(top), scale = vset1(SAMPLE_LOG2_E);
    int32_t i = 0;
    for (; i + 2 * VL <= n; i += 2 * VL) {
        s = s + vexp2((vload(x + i) - t) * scale);
        s2 = s2 + vexp2((vload(x + i + VL) - t) * scale);
    }
    for (; i < n; i += VL) s = s + VEC_NAME(sample_exp)(x + i, n - i < VL ? n - i : VL, t, scale);
    return vsum(s + s2);
}

static void VEC_NAME(sample_block_sums)(const float *x, int32_t n, float top, float inverse_temperature,
                                        float *out)
{
    vf t = vset1(top), scale = vset1(inverse_temperature * SAMPLE_LOG2_E);
    for (int32_t b = 0; b < n; b += SAMPLE_BLOCK) {
        vf s = vset1(0);
        if (b + SAMPLE_BLOCK <= n) VEC_UNROLL
        for (int i = 0; i < SAMPLE_BLOCK; i += VL) s = s + vexp2((vload(x + b + i) - t) * scale);
        else for (int32_t i = b; i < n; i += VL) s =
            s + VEC_NAME(sample_exp)(x + i, n - i < VL ? n - i : VL, t, scale);
        out[b / SAMPLE_BLOCK] = vsum(s);
    }
}

static void VEC_NAME(sample_weights)(struct sample_candidate *c, int32_t n, float top,
                                     float inverse_temperature)
{
    float x[VL];
    for (int32_t i = 0; i < n; i += VL) {
        int left = n - i < VL ? n - i : VL;
        for (int j = 0; j < left; j++) x[j] = c[i + j].value;
        for (int j = left; j < VL; j++) x[j] = top;
        vstore(x, vexp2((vload(x) - vset1(top)) * vset1(inverse_temperature * SAMPLE_LOG2_E)));
        for (int j = 0; j < left; j++) c[i + j].value = x[j];
    }
}

static int32_t VEC_NAME(sample_collect)(const float *x, int32_t n, int32_t first, float least,
                                        struct sample_candidate *out)
{
    int32_t count = 0, i = 0;
    vf bound = vset1(least);
    for (; i + VL <= n; i += VL)
        for (uint32_t bits = vbits(vge(vload(x + i), bound)); bits; bits &= bits - 1) {
            int32_t j = i + __builtin_ctz(bits);
            out[count++] = (struct sample_candidate){x[j], first + j};
        }
    for (; i < n; i++)
        if (x[i] >= least) out[count++] = (struct sample_candidate){x[i], first + i};
    return count;
}

const struct sample_kernels VEC_NAME(sample_kernels) = {VEC_NAME(sample_maxima), VEC_NAME(sample_sum_exp),
                                                        VEC_NAME(sample_block_sums), VEC_NAME(sample_weights),
                                                        VEC_NAME(sample_collect)};
