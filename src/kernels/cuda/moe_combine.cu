// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* y[t] = [y[t] +] ALPHA * sum over a token's picks, in their order, of weight * rows[position]: TOP_K loads
 * in flight a thread, sums in registers (float). Constants: TOP_K, HIDDEN, THREADS, ACCUMULATE, ALPHA. */
#include "kernels/cuda/common/rose.cuh"
#include "kernels/params/moe.h"

#define VECTORS (HIDDEN / 8)
#define DEEP (TOP_K < 8 ? TOP_K : 8) /* rows in flight */

KERNEL(moe_combine, struct moe_combine_params, p, THREADS, 1)
{
    uint32_t slices = (uint32_t)p.slices, t = block_x() / slices, slice = block_x() % slices;
    grid_dependency_wait();
    grid_dependency_launch();
    if (t >= (uint32_t)p.tokens) return;
    int32_t row[TOP_K];
    float weight[TOP_K];
    UNROLL for (uint32_t j = 0; j < TOP_K; j++) row[j] = ((const int32_t *)p.position)[t * TOP_K + j];
    UNROLL for (uint32_t j = 0; j < TOP_K; j++) weight[j] = ((const float *)p.weights)[t * TOP_K + j];
    uint32_t end = (slice + 1) * VECTORS / slices;
    for (uint32_t at = slice * VECTORS / slices + thread_x(); at < end; at += THREADS) {
        float sum[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        UNROLL for (uint32_t from = 0; from < TOP_K; from += DEEP)
        {
            u32x4 v[DEEP];
            UNROLL for (uint32_t j = 0; j < DEEP; j++)
            {
                u32x4 zero = {{0, 0, 0, 0}};
                v[j] = zero;
                if (from + j < TOP_K && row[from + j < TOP_K ? from + j : 0] >= 0)
                    v[j] =
                        ld16_nc((const element *)p.rows + (uint64_t)(uint32_t)row[from + j] * HIDDEN + at * 8);
            }
            UNROLL for (uint32_t j = 0; j < DEEP; j++)
            {
                float w = from + j < TOP_K ? weight[from + j < TOP_K ? from + j : 0] : 0.0f;
                UNROLL for (uint32_t i = 0; i < 4; i++)
                {
                    sum[2 * i] = fma_f32(w, element2_lo_f32(as_element2(v[j].v[i])), sum[2 * i]);
                    sum[2 * i + 1] = fma_f32(w, element2_hi_f32(as_element2(v[j].v[i])), sum[2 * i + 1]);
                }
            }
        }
        element *y = (element *)p.y + (uint64_t)t * p.y_stride + at * 8;
        u32x4 old = {{0, 0, 0, 0}}, out;
        if (ACCUMULATE) old = ld16(y);
        UNROLL for (uint32_t i = 0; i < 4; i++)
        {
            float lo = sum[2 * i] * ALPHA, hi = sum[2 * i + 1] * ALPHA;
            if (ACCUMULATE)
                lo += element2_lo_f32(as_element2(old.v[i])), hi += element2_hi_f32(as_element2(old.v[i]));
            out.v[i] = f32_to_element2(lo, hi).bits;
        }
        st16(y, out);
    }
}
