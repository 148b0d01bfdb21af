// arch: sm_90a
/* y = x W^T for few rows of x on Hopper: weights stream through a ring in shared memory and are the A operand of wgmma, x's rows
 * (at most N) are its columns.
 *
 * The work is units of 64 MG weight rows by 64 KB of k. CLUSTER 0: every block gets an equal run of all units, tile after tile; a
 * block's first or last tile may be shared with its neighbours: their sums meet in `work`, added in the order of the blocks by the
 * one that comes last. CLUSTER 1 .. 8: a cluster takes whole tiles, each of its blocks one piece of k; the blocks take turns as
 * the one that gets the others' sums into its shared memory, which is faster and wants tiles in multiples of the clusters.
 *
 * Warps 0 .. 4 MG - 1 multiply (a warpgroup has 64 weight rows), the last warp's first lane fills the ring: all of it with
 * weights before the predecessor has ended, which hides what lies between two products.
 *
 *     stage: w [KB][64 MG][64], x [KB][N][64] elements, rows of 128 bytes, swizzled by TMA
 *     got:   f32 [CLUSTER - 1][N / 8][128 MG][4]: the others' sums, in the order of their ranks
 *     work:  f32 [groups][blocks][2][N / 2][128 MG]: a block's sums of its first tile, and of one that it only begins
 *
 * A gated pair: TMA takes 8 rows of the gate and 8 of the up matrix in turn, so both sums of a result lie in one thread.
 * Rows beyond a group's N are other blocks' work: blocks [g * p.blocks, ...) have rows [g * N, ...).
 *
 * Constants: N (8 .. 128), MG (1, 2), KB, STAGES, CLUSTER, PARTS; those of gemm_epilogue.cuh. */
#include "kernels/cuda/common/cluster.cuh"
#include "kernels/cuda/common/tma.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/gemm_epilogue.cuh"
#include "kernels/params/gemm_wgmma.h"

#define CONSUMERS (128 * MG)
#define THREADS (CONSUMERS + 32)
#define ROWS (64 * MG)
#define COLUMNS (ROWS / (1 + GATED))
#define W_BYTES (ROWS * 128)
#define X_BYTES (N * 128)
#define STAGE_BYTES (KB * (W_BYTES + X_BYTES))
#define MULTIPLY_(N, d, a, b, acc) wgmma_element_ss(N, d, a, b, acc)
#define MULTIPLY(N, d, a, b, acc) MULTIPLY_(N, d, a, b, acc)
#include "kernels/cuda/gemv_runs.cuh"

DEVICE void gemv_load_x(const struct gemm_wgmma_params *p, const struct gemm_fp8_scales *s, unsigned char *stage, uint32_t row, uint32_t chunk,
                        mbarrier *full, uint64_t policy)
{
    (void)s;
    UNROLL for (uint32_t b = 0; b < KB; b++)
        tma_load_2d(stage + KB * W_BYTES + b * X_BYTES, &p->x, (int32_t)((chunk * KB + b) * 64), (int32_t)row, full, policy);
}

#if CLUSTER > 1
/* The cluster's sums of its o-th tile. True in the block whose turn it is: d are the whole sums then.
 * bars: [0] counts what arrives here; [1 + r]: block r has read what this one sent it. */
DEVICE bool gemv_gather(float d[N / 2], uint32_t o, unsigned char *got, mbarrier *bars)
{
    const uint32_t rank = cluster_rank(), turn = o % CLUSTER, round = o / CLUSTER;
    if (rank != turn) {
        if (round) mbarrier_wait_cluster(&bars[1 + turn], (round - 1) % 2);
        unsigned char *to = got + (rank < turn ? rank : rank - 1) * (N * 2 * CONSUMERS) + thread_x() * 16;
        UNROLL for (uint32_t i = 0; i < N / 8; i++)
        {
            const u32x4 v = {{f32_bits(d[4 * i]), f32_bits(d[4 * i + 1]), f32_bits(d[4 * i + 2]), f32_bits(d[4 * i + 3])}};
            st16_async(to + i * (CONSUMERS * 16), turn, v, &bars[0]);
        }
        return false;
    }
    if (thread_x() == 0) mbarrier_arrive_expect(&bars[0], (CLUSTER - 1) * (N * 2 * CONSUMERS));
    mbarrier_wait_cluster(&bars[0], round % 2);
    float sum[N / 2];
    UNROLL for (uint32_t i = 0; i < N / 2; i++) sum[i] = 0;
    UNROLL for (uint32_t r = 0; r < CLUSTER; r++)
        UNROLL for (uint32_t i = 0; i < N / 8; i++)
        {
            u32x4 v = {{0, 0, 0, 0}};
            if (r != turn) v = ld16(got + (r < turn ? r : r - 1) * (N * 2 * CONSUMERS) + i * (CONSUMERS * 16) + thread_x() * 16);
            UNROLL for (uint32_t e = 0; e < 4; e++) sum[4 * i + e] += r == turn ? d[4 * i + e] : f32_from_bits(v.v[e]);
        }
    UNROLL for (uint32_t i = 0; i < N / 2; i++) d[i] = sum[i];
    warp_sync(FULL_WARP);
    if (lane_id() < CLUSTER && lane_id() != turn) mbarrier_arrive_cluster(&bars[1 + turn], lane_id());
    return true;
}
#endif

DEVICE void gemv_consume(const struct gemm_wgmma_params *p, unsigned char *stages, mbarrier *full, mbarrier *empty, struct gemv_run run,
                         uint32_t group, uint32_t block, uint32_t *last, unsigned char *got)
{
    uint32_t stage = 0, phase = 0;
    (void)block, (void)last, (void)got;
    grid_dependency_wait(); /* y and work may be a predecessor's */
    for (uint32_t unit = run.begin; unit < run.end;) {
        const uint32_t o = unit / run.len, tile = run.first + o * run.stride, from = unit % run.len;
        const uint32_t to = min_u32(run.len, from + run.end - unit);
        const bool mine = CLUSTER < 2 || o % (CLUSTER ? CLUSTER : 1) == (CLUSTER > 1 ? cluster_rank() : 0);
        uint32_t before = 0;
        float d[N / 2], old[N / 2];
        if (ACCUMULATE && mine) gemv_results(&p->g, tile, group * N, d, old, false);
        for (uint32_t s = from; s < to; s++) {
            const unsigned char *w = stages + stage * STAGE_BYTES + warp_id() / 4 * (64 * 128), *x = stages + stage * STAGE_BYTES + KB * W_BYTES;
            mbarrier_wait(&full[stage], phase);
            wgmma_pin(d, N / 2);
            wgmma_fence();
            UNROLL for (uint32_t b = 0; b < KB; b++)
            {
                const uint64_t da = wgmma_desc(w + b * W_BYTES, 16, 1024, 128), db = wgmma_desc(x + b * X_BYTES, 16, 1024, 128);
                UNROLL for (uint32_t k = 0; k < 4; k++) MULTIPLY(N, d, da + k * 2, db + k * 2, (s - from) | b | k);
            }
            wgmma_commit();
            wgmma_pin(d, N / 2);
            if (s > from) {
                wgmma_wait(1);
                if (lane_id() == 0) mbarrier_arrive(&empty[before]);
            }
            before = stage;
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
        wgmma_wait(0);
        wgmma_pin(d, N / 2);
        if (lane_id() == 0) mbarrier_arrive(&empty[before]);
#if CLUSTER > 1
        const bool done = gemv_gather(d, o, got, (mbarrier *)last);
#else
        const bool done = (from == 0 && to == run.len) || gemv_merge(&p->g, group, block, tile, run.len, d, last);
#endif
        if (done) gemv_results(&p->g, tile, group * N, d, old, true);
        unit += to - from;
    }
}

KERNEL(gemv_wgmma, struct gemm_wgmma_params, p, THREADS, 1)
{
    unsigned char *stages = dynamic_shared(), *got = stages + STAGES * STAGE_BYTES;
    mbarrier *full = (mbarrier *)(got + (CLUSTER > 1 ? (CLUSTER - 1) * (N * 2 * CONSUMERS) : 0)), *empty = full + STAGES;
    mbarrier *bars = empty + STAGES; /* of the cluster, or the flag `last` */
    const uint32_t group = block_x() / p.g.blocks, block = block_x() % p.g.blocks;
    const struct gemv_run run = gemv_run_of(&p.g, block);
    if (thread_x() == CONSUMERS) {
        tma_prefetch_map(&p.x);
        tma_prefetch_map(&p.w[0]);
    }
    if (thread_x() == 0) {
        UNROLL for (uint32_t s = 0; s < STAGES; s++)
        {
            mbarrier_init(&full[s], 1);
            mbarrier_init(&empty[s], 4 * MG);
        }
        UNROLL for (uint32_t r = 0; CLUSTER > 1 && r <= CLUSTER; r++) mbarrier_init(&bars[r], r ? 4 * MG : 1);
        fence_mbarrier_init();
    }
    if (CLUSTER > 1)
        cluster_sync();
    else
        block_sync();
    grid_dependency_launch();
    if (thread_x() >= CONSUMERS) {
        if (lane_id() == 0) gemv_produce(&p, NULL, stages, full, empty, run, group * N, STAGE_BYTES);
        warp_sync(FULL_WARP);
    } else {
        gemv_consume(&p, stages, full, empty, run, group, block, (uint32_t *)bars, got);
    }
    if (CLUSTER > 1) cluster_sync(); /* nobody leaves while others write here */
}
