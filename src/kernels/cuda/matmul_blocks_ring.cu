// arch: sm_90a
/* y = x W^T for few rows of x and weights in a block format on Hopper: chunks stream through a ring in shared memory by bulk copies, in runs of
 * units as in gemv_wgmma.cu (groups of N rows of x, sums that meet in `work`). A unit is a chunk (256 of k) of WARPS tiles of 16 weight
 * rows, a tile a warp; of a gated pair tiles of both matrices in turn.
 *
 *     chunk -> scales of its units as float32, by all lanes -> per unit (32 of k): codes to pairs of elements, two mma.sync with x, sums * scale
 *     (- sum of x * minimum: a product with ones) added in float32
 *
 * No weight is rounded. Lane (q, c) takes elements 4c .. and 16 + 4c .. of a unit, of x from row 2 (q % 4) + q / 4: swizzled as TMA leaves
 * them, sixteen lanes then read all banks. Bits depend on the plan alone.
 *
 * Formats with minima: what they are multiplied with, sums of x over a unit, is the same for all tiles and added up once a stage.
 *
 *     stage: x [4][N][64] elements, rows of 128 bytes, swizzled; a chunk of each warp's tile; with minima sums of x, f32 [8 units][N / 8][4][2];
 *            whole KB. Behind the stages 1 KB a warp: scales f32 [8 units][8][4]; at the end of a tile sums of the up matrix on their way to
 *            the gate's warp
 *
 * Constants: FORMAT, N (8 .. 64), WARPS (8, 12, 16), STAGES, PARTS, K_TAIL (the last chunk of k is not whole); those of gemm_epilogue.cuh. */
#define CLUSTER 0
#define NORM 0
#define KB 4
#define CONSUMERS (32 * WARPS)
/* Sums of x over units: by one more warp, or by all warps before they use them; Q5_K's few columns add up their own (H200, 14336x4096, us, own / another
 * warp / all: Q4_K 1 row 20.6 / 19.4, 16 25.3 / 23.4, 32 36.5 / 39.0 / 33.4, 64 58.9 / 77.0 / 53.9; Q5_K 1 row 23.9 / 24.3, 32 46.7 / 45.0 / 45.5). */
#define SUMS_WARP (MINIMA && N <= 16 && FORMAT != BLOCKS_Q5_K)
#define SUMS_ALL (MINIMA && N > 16)
#define SUMS (SUMS_WARP || SUMS_ALL)
#define THREADS (CONSUMERS + 32 + 32 * SUMS_WARP)
#define ROWS (16 * WARPS)
#define COLUMNS (ROWS / (1 + GATED))
#define X_BYTES (N * 512)
#define SUMS_BYTES (SUMS ? N * 32 : 0)
#define STAGE_BYTES ((X_BYTES + WARPS * CHUNK_BYTES + SUMS_BYTES + 1023) / 1024 * 1024)
#define UNITS (N < 32 ? 2 : 1) /* at once; all eight compile for seconds */
#define EARLY (N < 32) /* the old y is asked for while weights stream: as many registers as there are sums */
#define GEMV_ROW(c, e) BLOCKS_X_ROW(c, e)
#define GEMV_BYTES(p, tile, chunk, bytes) ((bytes) + ring_bytes(p, tile, chunk))
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/gemm_epilogue.cuh"
#include "kernels/cuda/matmul_blocks_unit.cuh"

DEVICE uint32_t ring_bytes(const struct gemm_params *p, uint32_t tile, uint32_t chunk);
#include "kernels/cuda/gemv_runs.cuh"
#include "kernels/cuda/matmul_blocks_stream.cuh"

DEVICE void gemv_load_w(const struct gemm_wgmma_params *p, unsigned char *stage, uint32_t tile, uint32_t chunk, mbarrier *full,
                        uint64_t policy)
{
    ring_load(&p->g, stage + X_BYTES, tile, chunk, full, policy);
}
DEVICE void gemv_load_x(const struct gemm_wgmma_params *p, const struct gemm_fp8_scales *s, unsigned char *stage, uint32_t row, uint32_t chunk,
                        mbarrier *full, uint64_t policy)
{
    (void)s;
    UNROLL for (uint32_t b = 0; b < KB; b++) tma_load_2d(stage + b * (N * 128), &p->x, (int32_t)((chunk * KB + b) * 64), (int32_t)row, full, policy);
}

#if GATED
/* The gate's warps finish a tile with the sums of their neighbours, the up matrix' warps. place: this warp's KB. */
DEVICE void ring_gated(const struct gemm_params *p, uint32_t tile, uint32_t first_row, const float d[N / 2], unsigned char *place)
{
    const uint32_t warp = warp_id(), up = warp % 2, q = lane_id() / 4, c = lane_id() % 4, col = tile * COLUMNS + warp / 2 * BLOCKS_TILE + q;
    UNROLL for (uint32_t j = 0; j < N / 8; j++)
    {
        u32x4 v = {{f32_bits(d[4 * j]), f32_bits(d[4 * j + 1]), f32_bits(d[4 * j + 2]), f32_bits(d[4 * j + 3])}};
        if (up) st16(place + j % 2 * 512 + lane_id() * 16, v);
        barrier_sync(2 + warp / 2, 64);
        if (!up) {
            v = ld16(place + 1024 + j % 2 * 512 + lane_id() * 16);
            UNROLL for (uint32_t i = 0; i < 4; i++)
            {
                const uint32_t row = first_row + j * 8 + GEMV_ROW(c, i % 2), column = col + i / 2 * 8;
                if (row < p->rows && column < (uint32_t)p->part[0].n)
                    gemm_store(&p->part[0], row, column, gemm_finish(p, &p->part[0], column, d[4 * j + i], f32_from_bits(v.v[i])));
            }
        }
    }
    barrier_sync(2 + warp / 2, 64); /* the places are scales again */
}
#endif

#if SUMS
/* Sums of x over unit `unit` of a stage, for all rows. */
DEVICE void ring_sum_unit(unsigned char *x, uint32_t unit)
{
    UNROLL for (uint32_t j = 0; j < N / 8; j++)
    {
        u32x2 b[2];
        float sum[4];
        blocks_x(x, unit, j, b);
        blocks_sum(b, sum);
        const u32x2 two = {{f32_bits(sum[0]), f32_bits(sum[1])}};
        if (lane_id() < 4) st8(x + X_BYTES + WARPS * CHUNK_BYTES + ((unit * (N / 8) + j) * 4 + lane_id()) * 8, two);
    }
}
#endif
#if SUMS_WARP
/* Of every stage, by a warp that does nothing else. */
DEVICE void ring_sums(const struct gemm_params *p, unsigned char *stages, mbarrier *full, mbarrier *summed, struct gemv_run run)
{
    uint32_t stage = 0, phase = 0;
    for (uint32_t unit = run.begin; unit < run.end; unit++) {
        const uint32_t units = ring_units(p, unit % run.len);
        mbarrier_wait(&full[stage], phase);
        UNROLL_N(UNITS) for (uint32_t i = 0; i < (K_TAIL ? units : BLOCKS_CHUNK); i++) ring_sum_unit(stages + stage * STAGE_BYTES, i);
        warp_sync(FULL_WARP);
        if (lane_id() == 0) mbarrier_arrive(&summed[stage]);
        if (++stage == STAGES) stage = 0, phase ^= 1;
    }
}
#endif

DEVICE void ring_consume(const struct gemm_params *p, unsigned char *stages, mbarrier *full, mbarrier *empty, mbarrier *summed, struct gemv_run run,
                         uint32_t group, uint32_t block, unsigned char *scales, uint32_t *last)
{
    const uint32_t warp = warp_id(), mask = blocks_mask(p->rows);
    uint32_t stage = 0, phase = 0;
    for (uint32_t unit = run.begin; unit < run.end;) {
        const uint32_t tile = unit / run.len, from = unit % run.len, to = min_u32(run.len, from + run.end - unit);
        const bool mine = warp < ring_tile_of(p, tile).count;
        float d[N / 2], old[N / 2];
        UNROLL for (uint32_t i = 0; i < N / 2; i++) d[i] = 0;
        if (unit == run.begin) grid_dependency_wait(); /* y and work may be a predecessor's */
        if (ACCUMULATE && !GATED && EARLY) gemv_results(p, tile, group * N, d, old, false);
        for (uint32_t s = from; s < to; s++) {
            unsigned char *x = stages + stage * STAGE_BYTES;
            const unsigned char *chunk = x + X_BYTES + warp * CHUNK_BYTES;
            const uint32_t units = ring_units(p, s);
            mbarrier_wait(&full[stage], phase);
#if SUMS_ALL
            if (warp < units) ring_sum_unit(x, warp);
            barrier_sync(1, CONSUMERS);
#endif
            if (mine) {
                blocks_chunk_scales(chunk, units, scales);
                warp_sync(FULL_WARP);
                if (SUMS_WARP) mbarrier_wait(&summed[stage], phase);
                UNROLL_N(UNITS) for (uint32_t i = 0; i < (K_TAIL ? units : BLOCKS_CHUNK); i++)
                {
                    uint32_t a[2][4];
                    blocks_fragment(chunk, units, i, lane_id(), mask, a);
                    blocks_unit(d, a, scales, x, i, SUMS ? x + X_BYTES + WARPS * CHUNK_BYTES : NULL);
                }
            }
            warp_sync(FULL_WARP);
            if (lane_id() == 0) mbarrier_arrive(&empty[stage]);
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
        if ((from == 0 && to == run.len) || gemv_merge(p, group, block, tile, run.len, d, last)) {
#if GATED
            ring_gated(p, tile, group * N, d, scales);
#else
            if (ACCUMULATE && !EARLY) gemv_results(p, tile, group * N, d, old, false);
            gemv_results(p, tile, group * N, d, old, true);
#endif
        }
        unit += to - from;
    }
}

KERNEL(matmul_blocks_ring, struct gemm_wgmma_params, p, THREADS, 1)
{
    unsigned char *stages = dynamic_shared(), *scales = stages + STAGES * STAGE_BYTES;
    mbarrier *full = (mbarrier *)(scales + WARPS * 1024), *empty = full + STAGES, *summed = empty + STAGES;
    const uint32_t group = block_x() / p.g.blocks, block = block_x() % p.g.blocks;
    const struct gemv_run run = gemv_run_of(&p.g, block);
    if (thread_x() == CONSUMERS) tma_prefetch_map(&p.x);
    if (thread_x() == 0) {
        UNROLL for (uint32_t s = 0; s < STAGES; s++)
        {
            mbarrier_init(&full[s], 1);
            mbarrier_init(&empty[s], WARPS);
            if (SUMS_WARP) mbarrier_init(&summed[s], 1);
        }
        fence_mbarrier_init();
    }
    block_sync();
    grid_dependency_launch();
    if (thread_x() < CONSUMERS)
        ring_consume(&p.g, stages, full, empty, summed, run, group, block, scales + warp_id() * 1024, (uint32_t *)(empty + STAGES * (1 + SUMS_WARP)));
#if SUMS_WARP
    else if (thread_x() >= CONSUMERS + 32)
        ring_sums(&p.g, stages, full, summed, run);
#endif
    else if (lane_id() == 0)
        gemv_produce(&p, NULL, stages, full, empty, run, group * N, X_BYTES);
}
