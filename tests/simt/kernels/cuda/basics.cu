// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* A kernel for the harness's own tests: row sums, with every kind of basic operation; MISTAKE plants one. */
#include "kernels/cuda/common/thread.cuh"
#include "kernels/cuda/common/memory.cuh"
#include "kernels/params/types.h"

#ifndef MISTAKE
#define MISTAKE 0
#endif
#define WARPS (THREADS / 32)

struct basics_params {
    const float *x;  /* [rows, N] */
    float *y;        /* [rows] */
    uint32_t *count; /* blocks done */
    uint32_t rows;
};

KERNEL(basics, struct basics_params, p, THREADS, 1)
{
    SHARED(float, part, WARPS);
    uint32_t row = block_x();
    float sum = 0.0f;
    for (uint32_t i = thread_x() * 4; i < N + 4 * (MISTAKE == 1); i += THREADS * 4) {
        if (i + 4 <= N || MISTAKE == 1) {
            u32x4 v = ld16_nc(p.x + (size_t)row * N + i);
            UNROLL for (int k = 0; k < 4; k++) sum += f32_from_bits(v.v[k]);
        } else
            for (uint32_t k = i; k < N; k++) sum += p.x[(size_t)row * N + k];
    }
    if (MISTAKE == 2 && thread_x() == 5) return;
    sum = warp_sum_f32(sum, 32);
    if (lane_id() == 0) part[warp_id()] = sum;
    if (MISTAKE != 3) block_sync();
    if (MISTAKE == 4 && warp_id() == 1) block_sync();
    if (thread_x() == 0) {
        float total = 0.0f;
        for (int w = 0; w < WARPS + (MISTAKE == 5); w++) total += part[w];
        p.y[row] = total;
        if (MISTAKE != 6) red_add_u32(release, gpu, p.count, 1);
        else red_add_u32(relaxed, gpu, p.count, 1);
    }
    if (block_x() == 0) { /* the last of y holds the sum of all rows */
        if (thread_x() == 0) {
            while (ld_u32(acquire, gpu, p.count) < p.rows + (MISTAKE == 7)) nano_sleep(20);
            float total = 0.0f;
            for (uint32_t r = 0; r < p.rows; r++) total += p.y[r];
            p.y[p.rows + (MISTAKE == 8)] = total;
        }
    }
    if (MISTAKE == 9 && thread_x() < 16) warp_any(FULL_WARP, true);
    if (MISTAKE == 10 && lane_id() < 16) shuffle_u32(FULL_WARP, 1, 0, 32);
    if (MISTAKE == 10 && lane_id() >= 16) warp_any(FULL_WARP, true);
    if (MISTAKE == 13) shuffle_u32(lane_id() < 16 ? 0xffff : FULL_WARP, 1, 0, 16);
    if (MISTAKE == 11) part[0] = part[1] + 1.0f;
    if (MISTAKE == 12) trap();
}
