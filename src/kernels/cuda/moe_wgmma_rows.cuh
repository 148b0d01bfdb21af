/* Consumers of the Hopper grouped products of 16-bit operands (moe_wgmma.cu, moe_blocks_wgmma.cu): 64 places by a tile's 256 rows of weights, 128 gate
 * and 128 up where GATED, so that a pair lies in one lane, in d[i] and d[i + 64]. Results leave through a warp's own shared memory in 16-byte
 * vectors. Macros: those of moe_wgmma.cuh; GATED ACT EXPERT_BIAS N. */
#ifndef ROSE_CUDA_MOE_WGMMA_ROWS_CUH
#define ROSE_CUDA_MOE_WGMMA_ROWS_CUH

#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/act.cuh"
#include "kernels/cuda/moe_wgmma.cuh"

#define RESULT_BYTES (16 * 128 * 2) /* of a warp: 128 columns at a time */

DEVICE f32x2 bias_pair(const struct moe_wgmma_params *p, int which, const struct tile *t, uint32_t column)
{
    f32x2 b = {{0.0f, 0.0f}};
    if (column < N) {
        const float *from = (const float *)p->bias[which] + (uint64_t)t->expert * N + column;
        b.v[0] = from[0], b.v[1] = from[1];
    }
    return b;
}

/* Two neighbouring columns of a row. */
DEVICE uint32_t result_pair(const float *d, const float *up, f32x2 bias, f32x2 up_bias)
{
    float a = d[0] + bias.v[0], b = d[1] + bias.v[1];
    if (GATED) {
        a = act_value(ACT, 1.0f, a) * (up[0] + up_bias.v[0]);
        b = act_value(ACT, 1.0f, b) * (up[1] + up_bias.v[1]);
    }
    return f32_to_element2(a, b).bits;
}

/* rows: of the tile's that this warp has, up to 16, the first is place `place`. */
DEVICE void finish(const struct moe_wgmma_params *p, const struct tile *t, const float d[128], unsigned char *result, uint32_t place, int32_t rows)
{
    const uint32_t lane = lane_id(), c = lane % 4, up = GATED ? 64 : 0;
    UNROLL for (uint32_t half = 0; half < OUT / 128; half++)
    {
        UNROLL for (uint32_t j = 0; j < 16; j += 2)
        {
            uint32_t r[4];
            UNROLL for (uint32_t h = 0; h < 2; h++)
            {
                const uint32_t group = half * 16 + j + h, i = group * 4, column = t->column + group * 8 + 2 * c;
                f32x2 bias = {{0.0f, 0.0f}}, up_bias = {{0.0f, 0.0f}};
                if (EXPERT_BIAS) bias = bias_pair(p, 0, t, column);
                if (EXPERT_BIAS && GATED) up_bias = bias_pair(p, 1, t, column);
                r[2 * h] = result_pair(d + i, d + i + up, bias, up_bias);
                r[2 * h + 1] = result_pair(d + i + 2, d + i + up + 2, bias, up_bias);
            }
            const uint32_t row = lane % 16, group = j + lane / 16;
            stmatrix_x4(result + row * 256 + ((group ^ (row & 7)) << 4), r);
        }
        warp_sync(FULL_WARP);
        UNROLL for (uint32_t i = 0; i < 8; i++)
        {
            const uint32_t row = i * 2 + lane / 16, group = lane % 16, column = t->column + half * 128 + group * 8;
            if ((int32_t)row < rows && (N % OUT == 0 || column < N))
                st16((element *)p->y + (uint64_t)(place + row) * N + column, ld16(result + row * 256 + ((group ^ (row & 7)) << 4)));
        }
        warp_sync(FULL_WARP);
    }
}

/* g: which 64 places of the tile. */
DEVICE void consume(const struct moe_wgmma_params *p, const uint32_t *offsets, const uint32_t *counts, unsigned char *stages, unsigned char *result,
                    mbarrier *full, mbarrier *empty, const struct queue *queue, uint32_t tiles, uint32_t g)
{
    float d[128];
    uint32_t stage = 0, phase = 0;
    const uint32_t w = warp_id() % 4;
    const uint64_t a0 = wgmma_desc(stages + g * (64 * 128), 0, 1024, 128), b0 = wgmma_desc(stages + ROWS * 128, 0, 1024, 128);
    UNROLL_N(1) for (uint32_t turn = 0;; turn++)
    {
        const uint32_t index = queue_wait(queue, turn);
        if (index >= tiles) break;
        const struct tile t = tile_find(offsets, counts, index);
        if (t.rows <= g * 64) {
            UNROLL_N(1) for (uint32_t s = 0; s < STEPS; s++)
            {
                mbarrier_wait(&full[stage], phase);
                if (lane_id() == 0) mbarrier_arrive(&empty[stage]);
                if (++stage == STAGES) stage = 0, phase ^= 1;
            }
            continue;
        }
        uint32_t before = 0;
        UNROLL_N(1) for (uint32_t s = 0; s < STEPS; s++)
        {
            mbarrier_wait(&full[stage], phase);
            const uint64_t a = a0 + stage * (STAGE_BYTES >> 4), b = b0 + stage * (STAGE_BYTES >> 4);
            wgmma_fence();
            UNROLL for (uint32_t k = 0; k < 4; k++) wgmma_element_ss(256, d, a + k * 2, b + k * 2, s + k > 0);
            wgmma_commit();
            wgmma_wait(1);
            if (s > 0 && lane_id() == 0) mbarrier_arrive(&empty[before]);
            before = stage;
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
        wgmma_wait(0);
        wgmma_pin(d, 128);
        if (lane_id() == 0) mbarrier_arrive(&empty[before]);
        finish(p, &t, d, result, t.place + g * 64 + w * 16, (int32_t)t.rows - (int32_t)(g * 64 + w * 16));
    }
}

#endif
