/* What the Hopper products of few rows by streamed weights share (gemv_wgmma.cu, gemv_fp8_ring.cu, matmul_blocks_ring.cu): how blocks divide the work into runs
 * of units, the producer, the sums of tiles that several blocks share, results.
 *
 * Constants of those files; macros: CONSUMERS (threads), ROWS (weight rows a tile), COLUMNS (of y), W_BYTES (of a box), STAGE_BYTES. */
#ifndef ROSE_CUDA_GEMV_RUNS_CUH
#define ROSE_CUDA_GEMV_RUNS_CUH

#include "kernels/cuda/common/cluster.cuh"
#include "kernels/cuda/common/tma.cuh"
#include "kernels/cuda/gemm_epilogue.cuh"
#include "kernels/params/gemm_fp8.h"

/* Sums d[4 j + e] and d[4 j + 2 + e] of lane c of four are row 8 j + GEMV_ROW(c, e) of x. */
#ifndef GEMV_ROW
#define GEMV_ROW(c, e) ((c) * 2 + (e))
#endif

/* Elements of k that a box of KB has. */
#ifndef GEMV_BOX
#define GEMV_BOX 64
#endif

/* What a block does: units begin .. end of a list in which unit u is step from + u % len of tile first + u / len * stride. */
struct gemv_run {
    uint32_t begin, end, len, from, first, stride;
};
DEVICE struct gemv_run gemv_run_of(const struct gemm_params *p, uint32_t block)
{
    const uint32_t chunks = ceil_div_u32(p->k, GEMV_BOX * KB);
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

#ifndef GEMV_ALONE /* defined: the kernel fills its rings itself */
#ifndef GEMV_BYTES
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
/* Bytes of a unit of chunk `chunk` of a tile; a kernel whose units differ has its own, and its own gemv_load_w. */
#define GEMV_BYTES(p, tile, chunk, bytes) (bytes)
#else
DEVICE void gemv_load_w(const struct gemm_wgmma_params *p, unsigned char *stage, uint32_t tile, uint32_t chunk, mbarrier *full,
                        uint64_t policy);
#endif
/* What the kernel brings for a unit beside the weights, on the same barrier: x of its group's rows. */
DEVICE void gemv_load_x(const struct gemm_wgmma_params *p, const struct gemm_fp8_scales *s, unsigned char *stage, uint32_t row, uint32_t chunk,
                        mbarrier *full, uint64_t policy);

/* Fills the ring. bytes: of a unit (GEMV_BYTES); s: handed to gemv_load_x. */
DEVICE void gemv_produce(const struct gemm_wgmma_params *p, const struct gemm_fp8_scales *s, unsigned char *stages, mbarrier *full, mbarrier *empty,
                         struct gemv_run run, uint32_t row, uint32_t bytes)
{
    const uint64_t first = l2_evict_first(), keep = l2_evict_last();
    const uint32_t count = run.end - run.begin, early = min_u32(count, STAGES), chunk = run.begin % run.len;
    uint32_t t = run.first + run.begin / run.len * run.stride, c = chunk;
    for (uint32_t u = 0; u < early; u++) {
        mbarrier_arrive_expect(&full[u], GEMV_BYTES(&p->g, t, run.from + c, bytes));
        gemv_load_w(p, stages + u * STAGE_BYTES, t, run.from + c, &full[u], first);
        if (++c == run.len) c = 0, t += run.stride;
    }
    grid_dependency_wait();
    c = chunk;
    for (uint32_t u = 0; u < early; u++) {
        gemv_load_x(p, s, stages + u * STAGE_BYTES, row, run.from + c, &full[u], keep);
        if (++c == run.len) c = 0;
    }
    uint32_t stage = 0, phase = 0;
    for (uint32_t u = early; u < count; u++) {
        mbarrier_wait(&empty[stage], phase);
        mbarrier_arrive_expect(&full[stage], GEMV_BYTES(&p->g, t, run.from + c, bytes));
        gemv_load_w(p, stages + stage * STAGE_BYTES, t, run.from + c, &full[stage], first);
        gemv_load_x(p, s, stages + stage * STAGE_BYTES, row, run.from + c, &full[stage], keep);
        if (++c == run.len) c = 0, t += run.stride;
        if (++stage == STAGES) stage = 0, phase ^= 1;
    }
}

#endif

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

/* A thread's results: sums d[4 j + e] and d[4 j + 2 + e] are rows first_row + 8 j + GEMV_ROW(c, e) of weight rows q and q + 8 of its
 * warp's sixteen. store false: the old y into `old`, which is asked for while the weights stream; true: the new one. */
DEVICE void gemv_results(const struct gemm_params *p, uint32_t tile, uint32_t first_row, const float d[N / 2], float old[N / 2], bool store)
{
    const struct gemm_part *part = &p->part[gemv_part_of(p, tile)];
    const uint32_t warp = warp_id(), q = lane_id() / 4, c = lane_id() % 4, n = (uint32_t)part->n;
    const uint32_t col = (tile - (uint32_t)part->tile) * COLUMNS + warp * (16 / (1 + GATED)) + q;
    UNROLL for (uint32_t i = 0; i < N / 2; i += GATED && i % 2 ? 3 : 1)
    {
        const uint32_t row = first_row + i / 4 * 8 + GEMV_ROW(c, i % 2), column = col + (GATED ? 0 : i / 2 % 2 * 8);
        if (row >= p->rows || column >= n) continue;
        if (store)
            gemm_put(part, row, column, gemm_finish(p, part, column, d[i], GATED ? d[i + 2] : 0.0f) + (ACCUMULATE ? old[i] : 0.0f));
        else
            old[i] = gemm_old(part, row, column);
    }
}

#endif
