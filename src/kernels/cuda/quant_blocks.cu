// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* Weights of bf16 to e4m3 with a scale for each 128 x 128 of them, as kernels/params/gemm_fp8.h wants them:
 *
 *     scale = largest |x| of the block / 448 (at least 1e-10 / 448), y = e4m3(x * (1 / scale))      every step rounded once, ties to even
 *
 * A block of threads has a block of weights, all of which it holds in registers: 16 threads a row, vectors of 8. Rows and columns
 * beyond the matrix count as zeros and are not stored. Four blocks of 512 threads an SM: 32 registers a thread, so the quotient is quant.cuh's, without a call.
 *
 * Constants: SIDE (128), THREADS, STREAM (common/vec.cuh). */
#include "kernels/cuda/common/rose.cuh"
#define VEC_BYTES 16
#define OUT ACT_OUT_E4M3_TOKEN /* scales in float32, as a row's */
#define N SIDE
#define TPR THREADS
#define SCALE_UP 0
#define TILED 0
#include "kernels/cuda/quant.cuh"
#include "kernels/params/quant_blocks.h"

#define ROW_LANES (SIDE / 8)             /* threads a row */
#define PER (SIDE * ROW_LANES / THREADS) /* vectors a thread */

KERNEL(quant_blocks, struct quant_blocks_params, p, THREADS, 2048 / THREADS)
{
    SHARED(float, part, THREADS / WARP);
    const uint32_t across = ceil_div_u32(p.cols, SIDE), block_row = block_x() / across, block_col = block_x() % across;
    const uint32_t row = block_row * SIDE + thread_x() / ROW_LANES, col = block_col * SIDE + thread_x() % ROW_LANES * 8;
    u32x4 x[PER];
    uint32_t most = 0; /* of a pair, without signs */
    grid_dependency_launch();
    grid_dependency_wait();
    UNROLL for (uint32_t i = 0; i < PER; i++)
    {
        const uint32_t r = row + i * (THREADS / ROW_LANES);
        UNROLL for (int w = 0; w < 4; w++) x[i].v[w] = 0;
        if (r < p.rows && col < p.cols) x[i] = vec_ld_once((const bf16 *)p.x + (size_t)r * (size_t)p.x_stride + col);
    }
    UNROLL for (uint32_t i = 0; i < PER; i++)
        UNROLL for (int w = 0; w < 4; w++) most = bf16x2_max(as_bf16x2(most), as_bf16x2(x[i].v[w] & 0x7fff7fffu)).bits;
    /* NaN where a half has nothing else: not the larger of anything */
    float largest = max_f32(bf16x2_lo_f32(as_bf16x2(most)), bf16x2_hi_f32(as_bf16x2(most)));
    largest = warp_max_f32(largest, WARP);
    if (lane_id() == 0) part[warp_id()] = largest;
    block_sync();
    UNROLL for (uint32_t i = 0; i < THREADS / WARP; i++) largest = max_f32(largest, part[i]);
    uint32_t scale;
    const float factor = quant_quotient(max_f32(largest, 1e-10f), &scale);
    UNROLL for (uint32_t i = 0; i < PER; i++)
    {
        const uint32_t r = row + i * (THREADS / ROW_LANES);
        u32x2 y;
        UNROLL for (int h = 0; h < 2; h++)
        {
            const bf16x2 a = as_bf16x2(x[i].v[2 * h]), b = as_bf16x2(x[i].v[2 * h + 1]);
            y.v[h] = f32_to_e4m3x4(bf16x2_lo_f32(a) * factor, bf16x2_hi_f32(a) * factor, bf16x2_lo_f32(b) * factor, bf16x2_hi_f32(b) * factor);
        }
        if (r < p.rows && col < p.cols) st8_once((unsigned char *)p.y + (size_t)r * p.cols + col, y);
    }
    if (thread_x() == 0) ((uint32_t *)p.scale)[block_row * p.scale_stride + block_col] = scale;
}
