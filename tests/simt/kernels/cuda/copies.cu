// arch: sm_90a sm_100a sm_120a
/* Doubles a matrix tile by tile: TMA in (128-byte swizzle), ordinary arithmetic, TMA out, two stages; the row sums of a
 * tile travel through the cluster's shared memory. For the harness's own tests; MISTAKE plants one. */
#include "kernels/cuda/common/rose.cuh"
#include "kernels/cuda/common/cluster.cuh"
#include "kernels/cuda/common/tma.cuh"

#ifndef MISTAKE
#define MISTAKE 0
#endif
#define TILE_ROWS 16
#define TILE_COLS 32 /* floats: the swizzle span */
#define STAGES 2
#define THREADS 64

struct copies_params {
    struct tensor_map in, out;
    float *sums;    /* [blocks, 2]: of the block's first tile, and what its neighbour sent */
    const float *w; /* [THREADS] weights, constant */
    uint32_t tiles; /* tiles of a block, down the rows */
};

DEVICE uint32_t at(uint32_t row, uint32_t col) /* float index in a swizzled tile */
{
    uint32_t byte = row * 128 + col * 4;
    return (byte ^ (byte >> 7 & 7) << 4) / 4;
}

KERNEL(copies, struct copies_params, p, THREADS, 1)
{
    unsigned char *shared = dynamic_shared();
    float *in = (float *)shared; /* [STAGES][TILE_ROWS * TILE_COLS] */
    float *out = in + STAGES * TILE_ROWS * TILE_COLS;
    float *weights = out + TILE_ROWS * TILE_COLS; /* [THREADS] */
    mbarrier *full = (mbarrier *)(weights + THREADS);
    float *inbox = (float *)(full + STAGES); /* [1] */
    const uint32_t bytes = TILE_ROWS * TILE_COLS * 4, t = thread_x();

    if (t == 0) {
        for (int s = 0; s < STAGES; s++) mbarrier_init(&full[s], 1);
        if (MISTAKE != 6) fence_mbarrier_init();
    }
    cp_async4(&weights[t], &p.w[t]);
    cp_async_commit();
    if (MISTAKE == 7 && t == 40) mbarrier_test(&full[0], 1);
    block_sync();
    if (MISTAKE != 11) grid_dependency_wait();
    uint32_t row0 = block_x() * p.tiles * TILE_ROWS;
    if (t == 0)
        for (uint32_t s = 0; s < STAGES && s < p.tiles; s++) {
            mbarrier_arrive_expect(&full[s], MISTAKE == 8 ? bytes / 2 : bytes);
            tma_load_2d(in + s * TILE_ROWS * TILE_COLS, &p.in, 0, (int32_t)(row0 + s * TILE_ROWS), &full[s],
                        l2_evict_first());
        }
    if (MISTAKE != 10) cp_async_wait(0);
    block_sync();
    float w = weights[t ^ 1];

    float first_sum = 0.0f;
    for (uint32_t i = 0; i < p.tiles; i++) {
        uint32_t s = i % STAGES;
        const float *tile = in + s * TILE_ROWS * TILE_COLS;
        if (MISTAKE != 1) mbarrier_wait(&full[s], (i / STAGES + (MISTAKE == 2)) & 1);
        if (i > 0) { /* the last store must have read `out` */
            if (t == 0 && MISTAKE != 9) bulk_wait_read(0);
            block_sync();
        }
        for (uint32_t k = t; k < TILE_ROWS * TILE_COLS; k += THREADS) {
            float v = tile[at(k / TILE_COLS, k % TILE_COLS)];
            if (i == 0) first_sum += v;
            out[at(k / TILE_COLS, k % TILE_COLS)] = v * w;
        }
        if (MISTAKE != 3) fence_proxy_async();
        if (MISTAKE != 4) block_sync();
        if (t == 0) {
            int32_t col = MISTAKE == 15 ? 2 : 0, row = MISTAKE == 16 ? -1 : (int32_t)(row0 + i * TILE_ROWS);
            tma_store_2d(&p.out, col, row, out);
            bulk_commit();
        }
        /* All have read the stage: fill it again. */
        if (t == 0 && i + STAGES < p.tiles) {
            mbarrier_arrive_expect(&full[s], bytes);
            tma_load_2d(in + s * TILE_ROWS * TILE_COLS, &p.in, 0, (int32_t)(row0 + (i + STAGES) * TILE_ROWS), &full[s],
                        l2_evict_first());
        }
        if (MISTAKE == 13 && i == 0 && t == 5) out[0] = tile[0];
    }
    if (t == 0 && MISTAKE != 5) bulk_wait_read(0);

    /* The block's first sum to the neighbour. */
    SHARED(float, part, 2);
    first_sum = warp_sum_f32(first_sum, 32);
    if (lane_id() == 0) part[warp_id()] = first_sum;
    cluster_sync();
    if (t == 0) {
        float *theirs = (float *)cluster_map(inbox, cluster_rank() ^ 1);
        *theirs = part[0] + part[1];
        p.sums[block_x() * 2] = part[0] + part[1];
    }
    if (MISTAKE != 14) cluster_sync();
    if (t == 0) p.sums[block_x() * 2 + 1] = *inbox;
    if (MISTAKE == 12 && t == 0 && cluster_rank() == 1) { /* reads a block that may have ended */
        for (int i = 0; i < 400; i++) nano_sleep(100);
        p.sums[block_x() * 2] = *(float *)cluster_map(inbox, 0);
    }
}
