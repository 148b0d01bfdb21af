/* One vector of a normalised row: what both norm kernels do with the registers that hold it. Constants: VEC_BYTES N; LAYER ADD
 * ACCUMULATE 0/1; WEIGHT BIAS bytes an element, 0: none; EPS OFFSET ALPHA; and those of quant.cuh. */
#ifndef ROSE_CUDA_NORM_CUH
#define ROSE_CUDA_NORM_CUH

#include "kernels/cuda/quant.cuh"
#include "kernels/params/norm_rows.h"

/* x = element(x + add) */
DEVICE void norm_add(vec *x, const vec *add)
{
    float f[VEC_BF16], g[VEC_BF16];
    vec_to_f32(x, f);
    vec_to_f32(add, g);
    UNROLL for (int e = 0; e < VEC_BF16; e++) f[e] += g[e];
    *x = vec_from_f32(f);
}
/* What a vector adds to the first reduction: squares, or for LayerNorm the values. */
DEVICE float norm_first(const vec *x, float sum)
{
    float f[VEC_BF16];
    vec_to_f32(x, f);
    UNROLL for (int e = 0; e < VEC_BF16; e++) sum = LAYER ? sum + f[e] : fma_f32(f[e], f[e], sum);
    return sum;
}
/* To the second one: squared distances from the mean. */
DEVICE float norm_second(const vec *x, float mean, float sum)
{
    float f[VEC_BF16];
    vec_to_f32(x, f);
    UNROLL for (int e = 0; e < VEC_BF16; e++) sum = fma_f32(f[e] - mean, f[e] - mean, sum);
    return sum;
}
DEVICE void norm_values(const vec *x, const vec *old, const float *weight, const float *bias, float mean, float scale, float *out)
{
    float g[VEC_BF16];
    vec_to_f32(x, out);
    if (ACCUMULATE) vec_to_f32(old, g);
    UNROLL for (int e = 0; e < VEC_BF16; e++)
    {
        float n = (out[e] - mean) * scale;
        if (WEIGHT) n = n * (OFFSET + weight[e]);
        if (BIAS) n = n + bias[e];
        n = n * ALPHA;
        out[e] = ACCUMULATE ? n + g[e] : n;
    }
}

#endif
