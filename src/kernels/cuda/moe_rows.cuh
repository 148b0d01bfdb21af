/* A token's row into the experts' buffer: a vector of 8 elements, read once, written to each of the token's places as it is or
 * quantised (OUT, kernels/params/act_rows.h: bf16, e4m3 of 1 x 128, mxfp8). Constants: HIDDEN THREADS OUT TOP_K. */
#ifndef ROSE_CUDA_MOE_ROWS_CUH
#define ROSE_CUDA_MOE_ROWS_CUH

#define N HIDDEN
#define TPR THREADS
#define VEC_BYTES 16
#define SCALE_UP 0
#define TILED 0
#include "kernels/cuda/quant.cuh"
#include "kernels/params/moe.h"

#define VECTORS (HIDDEN / 8)
#define MOE_UNIT LANES /* vectors that share a scale: slices of a row end between them */
STATIC_ASSERT(OUT == ACT_OUT_BF16 || GROUP, "a row's scale would need the whole row");

/* Where slice `slice` of `slices` begins, in vectors. */
DEVICE uint32_t moe_slice(uint32_t slice, uint32_t slices)
{
    return slice * (VECTORS / MOE_UNIT) / slices * MOE_UNIT;
}

/* Vector v to places first, first + step, ... of the token's TOP_K; place: -1 nowhere. All lanes of a warp call with vectors that
 * follow each other; live: the caller has one. */
DEVICE void moe_put(const struct moe_dispatch_params *p, vec x, uint32_t v, bool live, const int32_t *place, uint32_t first, uint32_t step)
{
    float f[VEC_BF16], factor = 1;
    uint32_t bits = 0;
    if (OUT != ACT_OUT_BF16) {
        if (!live) x = vec_zero();
        vec_to_f32(&x, f);
        factor = quant_scale(quant_largest(f), 0.0f, &bits);
    }
    UNROLL for (uint32_t i = 0; i < TOP_K; i++)
    {
        const uint32_t j = first + i * step;
        if (j >= TOP_K) break;
        const int32_t row = place[j];
        if (row < 0 || !live) continue;
        char *to = (char *)p->rows + OUT_BYTES((uint64_t)(uint32_t)row * HIDDEN);
        if (OUT == ACT_OUT_BF16)
            vec_st((element *)to + v * 8, x);
        else
            quant_store(to, v * 8, f, factor);
        if (OUT != ACT_OUT_BF16 && v % LANES == 0) quant_store_scale(p->scales, (uint32_t)row, v * 8, p->scale_stride, 1, bits);
    }
}

#endif
