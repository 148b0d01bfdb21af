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
 *     stage: w [KB][64 MG][64], x [KB][N][64] bf16, rows of 128 bytes, swizzled by TMA
 *     got:   f32 [CLUSTER - 1][N / 8][128 MG][4]: the others' sums, in the order of their ranks
 *     work:  f32 [groups][blocks][2][N / 2][128 MG]: a block's sums of its first tile, and of one that it only begins
 *
 * A gated pair: TMA takes 8 rows of the gate and 8 of the up matrix in turn, so both sums of a result lie in one thread.
 * Rows beyond a group's N are other blocks' work: blocks [g * p.blocks, ...) have rows [g * N, ...).
 *
 * NORM: x is normalised on its way and stays in shared memory behind the stages, which then have no x (gemv_norm.cuh).
 *
 * Constants: N (8 .. 128), MG (1, 2), KB, STAGES, CLUSTER, PARTS, NORM 0/1 (EPS, OFFSET); those of gemm_epilogue.cuh. */
#include "kernels/cuda/common/cluster.cuh"
#include "kernels/cuda/common/tma.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/gemm_epilogue.cuh"
#include "kernels/params/gemm_wgmma.h"
#if NORM
#include "kernels/cuda/gemv_norm.cuh"
#else
struct gemv_norm;
#endif

#define CONSUMERS (128 * MG)
#define THREADS (CONSUMERS + 32 + NORM * 128)
#define ROWS (64 * MG)
#define COLUMNS (ROWS / (1 + GATED))
#define W_BYTES (ROWS * 128)
#define X_BYTES (N * 128)
#define STAGE_BYTES (KB * (W_BYTES + (NORM ? 0 : X_BYTES)))
#define MULTIPLY_(N, d, a, b, acc) wgmma_bf16_ss(N, d, a, b, acc)
#define MULTIPLY(N, d, a, b, acc) MULTIPLY_(N, d, a, b, acc)

/* What a block does: units begin .. end of a list in which unit u is step from + u % len of tile first + u / len * stride. */
struct gemv_run {
    uint32_t begin, end, len, from, first, stride;
};
DEVICE struct gemv_run gemv_run_of(const struct gemm_params *p, uint32_t block)
{
    const uint32_t chunks = ceil_div_u32(p->k, 64 * KB);
    struct gemv_run r;
    if (CLUSTER) {
        const uint32_t clusters = p->blocks / (CLUSTER ? CLUSTER : 1), rank = CLUSTER > 1 ? cluster_rank() : 0;
        r.first = block / (CLUSTER ? CLUSTER : 1), r.stride = clusters;
        r.from = rank * chunks / (CLUSTER ? CLUSTER : 1);
        r.len = (rank + 1) * chunks / (CLUSTER ? CLUSTER : 1) - r.from;
        r.begin = 0, r.end = r.first < p->tiles ? r.len * ceil_div_u32(p->tiles - r.first, clusters) : 0;
    } else {
        const uint64_t total = (uint64_t)p->tiles * chunks;
        r.first = 0, r.stride = 1, r.from = 0, r.len = chunks;
        r.begin = (uint32_t)(block * total / p->blocks);
        r.end = (uint32_t)((block + 1) * total / p->blocks);
    }
    return r;
}
/* CLUSTER 0: the block that has a unit. */
DEVICE uint32_t gemv_block_of(const struct gemm_params *p, uint32_t unit, uint32_t chunks)
{
    return (uint32_t)((((uint64_t)unit + 1) * p->blocks - 1) / ((uint64_t)p->tiles * chunks));
}
DEVICE uint32_t gemv_part_of(const struct gemm_params *p, uint32_t tile)
{
    uint32_t part = 0;
    if (!GATED) {
        UNROLL for (uint32_t i = 1; i < PARTS; i++) part = tile >= (uint32_t)p->part[i].tile ? i : part;
    }
    return part;
}

DEVICE void gemv_load_w(const struct gemm_wgmma_params *p, unsigned char *stage, uint32_t tile, uint32_t chunk, mbarrier *full,
                        uint64_t policy)
{
    const uint32_t part = gemv_part_of(&p->g, tile), col = (tile - (uint32_t)p->g.part[part].tile) * COLUMNS;
    UNROLL for (uint32_t b = 0; b < KB; b++)
    {
        const int32_t k = (int32_t)((chunk * KB + b) * 64);
        if (GATED)
            tma_load_4d(stage + b * W_BYTES, &p->w[0], k, 0, 0, (int32_t)(col / 8), full, policy);
        else
            tma_load_2d(stage + b * W_BYTES, &p->w[part], k, (int32_t)col, full, policy);
    }
}
DEVICE void gemv_load_x(const struct gemm_wgmma_params *p, unsigned char *stage, uint32_t row, uint32_t chunk, mbarrier *full,
                        uint64_t policy)
{
    UNROLL for (uint32_t b = 0; b < KB; b++)
        tma_load_2d(stage + KB * W_BYTES + b * X_BYTES, &p->x, (int32_t)((chunk * KB + b) * 64), (int32_t)row, full, policy);
}

DEVICE void gemv_produce(const struct gemm_wgmma_params *p, unsigned char *stages, mbarrier *full, mbarrier *empty, struct gemv_run run,
                         uint32_t row)
{
    const uint64_t first = l2_evict_first(), keep = l2_evict_last();
    const uint32_t count = run.end - run.begin, early = min_u32(count, STAGES), chunk = run.begin % run.len;
    uint32_t t = run.first + run.begin / run.len * run.stride, c = chunk;
    for (uint32_t u = 0; u < early; u++) {
        mbarrier_arrive_expect(&full[u], STAGE_BYTES);
        gemv_load_w(p, stages + u * STAGE_BYTES, t, run.from + c, &full[u], first);
        if (++c == run.len) c = 0, t += run.stride;
    }
    if (!NORM) {
        grid_dependency_wait();
        c = chunk;
        for (uint32_t u = 0; u < early; u++) {
            gemv_load_x(p, stages + u * STAGE_BYTES, row, run.from + c, &full[u], keep);
            if (++c == run.len) c = 0;
        }
    }
    uint32_t stage = 0, phase = 0;
    for (uint32_t u = early; u < count; u++) {
        mbarrier_wait(&empty[stage], phase);
        mbarrier_arrive_expect(&full[stage], STAGE_BYTES);
        gemv_load_w(p, stages + stage * STAGE_BYTES, t, run.from + c, &full[stage], first);
        if (!NORM) gemv_load_x(p, stages + stage * STAGE_BYTES, row, run.from + c, &full[stage], keep);
        if (++c == run.len) c = 0, t += run.stride;
        if (++stage == STAGES) stage = 0, phase ^= 1;
    }
}

/* Sums of a tile that several blocks share. True in the block that came last: d are the whole sums then. */
DEVICE bool gemv_merge(const struct gemm_params *p, uint32_t group, uint32_t block, uint32_t tile, uint32_t chunks, float d[N / 2],
                       uint32_t *last)
{
    const uint32_t from = gemv_block_of(p, tile * chunks, chunks), to = gemv_block_of(p, tile * chunks + chunks - 1, chunks);
    float *work = (float *)p->work + (size_t)group * p->blocks * 2 * (N / 2 * CONSUMERS) + thread_x();
    float *mine = work + (size_t)(block * 2 + (block == from)) * (N / 2 * CONSUMERS);
    UNROLL for (uint32_t i = 0; i < N / 2; i++) mine[i * CONSUMERS] = d[i];
    barrier_sync(1, CONSUMERS);
    if (thread_x() == 0) {
        uint32_t *count = (uint32_t *)p->counters + group * p->tiles + tile;
        const uint32_t before = atom_add_u32(acq_rel, gpu, count, 1);
        if (before == to - from) st_u32(relaxed, gpu, count, 0); /* for the next launch */
        *last = before == to - from;
    }
    barrier_sync(1, CONSUMERS);
    if (!*last) return false;
    UNROLL for (uint32_t i = 0; i < N / 2; i++) d[i] = 0;
    for (uint32_t b = from; b <= to; b++) {
        const float *theirs = work + (size_t)(b * 2 + (b == from)) * (N / 2 * CONSUMERS);
        UNROLL for (uint32_t i = 0; i < N / 2; i++) d[i] += theirs[i * CONSUMERS];
    }
    return true;
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

#if NORM
/* Sums times their rows' r of gemv_norm.cuh. */
DEVICE void gemv_scale(const struct gemm_params *p, const struct gemv_norm *norm, float d[N / 2])
{
    mbarrier_wait(norm->done, 0);
    UNROLL for (uint32_t j = 0; j < N / 8; j++)
        UNROLL for (uint32_t e = 0; e < 2; e++)
        {
            const float scale = gemv_norm_scale(p, norm, j * 8 + lane_id() % 4 * 2 + e);
            d[4 * j + e] *= scale, d[4 * j + 2 + e] *= scale;
        }
}
#endif

/* A thread's results: sums d[4 j + e] and d[4 j + 2 + e] are rows first_row + 8 j + 2 c + e of weight rows q and q + 8 of its
 * warp's sixteen. store false: the old y into `old`, which is asked for while the weights stream; true: the new one. */
DEVICE void gemv_results(const struct gemm_params *p, uint32_t tile, uint32_t first_row, const float d[N / 2], float old[N / 2], bool store)
{
    const struct gemm_part *part = &p->part[gemv_part_of(p, tile)];
    const uint32_t warp = warp_id(), q = lane_id() / 4, c = lane_id() % 4, n = (uint32_t)part->n;
    const uint32_t col = (tile - (uint32_t)part->tile) * COLUMNS + warp * (16 / (1 + GATED)) + q;
    UNROLL for (uint32_t i = 0; i < N / 2; i += GATED && i % 2 ? 3 : 1)
    {
        const uint32_t row = first_row + i / 4 * 8 + c * 2 + i % 2, column = col + (GATED ? 0 : i / 2 % 2 * 8);
        if (row >= p->rows || column >= n) continue;
        if (store)
            gemm_put(part, row, column, gemm_finish(p, part, column, d[i], GATED ? d[i + 2] : 0.0f) + (ACCUMULATE ? old[i] : 0.0f));
        else
            old[i] = gemm_old(part, row, column);
    }
}

DEVICE void gemv_consume(const struct gemm_wgmma_params *p, unsigned char *stages, mbarrier *full, mbarrier *empty, struct gemv_run run,
                         uint32_t group, uint32_t block, uint32_t *last, unsigned char *got, const struct gemv_norm *norm)
{
    uint32_t stage = 0, phase = 0;
    (void)block, (void)last, (void)got, (void)norm;
#if NORM
    gemv_norm_clear(norm, thread_x(), CONSUMERS);
    barrier_sync(1, CONSUMERS);
#endif
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
#if NORM
            x = norm->x + (run.from + s) * (KB * X_BYTES);
            mbarrier_wait(&norm->full[(run.from + s) * KB / 2], 0);
#endif
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
#if NORM
        if (done) gemv_scale(&p->g, norm, d);
#endif
        if (done) gemv_results(&p->g, tile, group * N, d, old, true);
        unit += to - from;
    }
}

KERNEL(gemv_wgmma, struct gemm_wgmma_params, p, THREADS, 1)
{
    unsigned char *stages = dynamic_shared(), *got = stages + STAGES * STAGE_BYTES;
#if NORM
    got += gemv_norm_bytes(p.g.k);
#endif
    mbarrier *full = (mbarrier *)(got + (CLUSTER > 1 ? (CLUSTER - 1) * (N * 2 * CONSUMERS) : 0)), *empty = full + STAGES;
    mbarrier *bars = empty + STAGES; /* of the cluster, or the flag `last` */
    const uint32_t group = block_x() / p.g.blocks, block = block_x() % p.g.blocks;
    const struct gemv_run run = gemv_run_of(&p.g, block);
#if NORM
    const struct gemv_norm rows = gemv_norm_of(&p.g, group * N, stages + STAGES * STAGE_BYTES), *norm = &rows;
    gemv_norm_init(norm, thread_x(), THREADS);
#else
    const struct gemv_norm *norm = NULL;
#endif
    if (thread_x() == CONSUMERS) {
        if (!NORM) tma_prefetch_map(&p.x);
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
    if (thread_x() >= CONSUMERS + 32) {
#if NORM
        gemv_norm_rows(&p.g, norm, group * N, (run.from + run.begin % run.len) * KB / 2, thread_x() - CONSUMERS - 32);
#endif
    } else if (thread_x() >= CONSUMERS) {
        if (lane_id() == 0) gemv_produce(&p, stages, full, empty, run, group * N);
        warp_sync(FULL_WARP);
    } else {
        gemv_consume(&p, stages, full, empty, run, group, block, (uint32_t *)bars, got, norm);
    }
    if (CLUSTER > 1) cluster_sync(); /* nobody leaves while others write here */
}
