/* What the Hopper kernels of grouped products share (moe_wgmma.cu, moe_fp8_wgmma.cu): a block's queue of tiles, and the producer.
 *
 *     a stage     [ROWS | COLS] rows of 128 bytes, 16-byte chunk c of row r at c ^ (r % 8)
 *     full[s]     128 producer threads, each after its own copies are complete and fenced for the asynchronous proxy, LAG steps
 *                 behind their issue; one more arrival with TMA's bytes
 *     empty[s]    one of each consumer warp
 *     next[i]     number of the block's i-th tile (i % SLOTS), found by the producer while it copies the one before. SLOTS are more
 *                 than the tiles that STAGES steps can lie in, so that no slot is written before all have read it
 *
 * Macros: ROWS, COLS, OUT, TILES_N, STAGES, K, GATHER, TOP_K, EXPERTS; X_PER16 (elements in 16 bytes). */
#ifndef ROSE_CUDA_MOE_WGMMA_CUH
#define ROSE_CUDA_MOE_WGMMA_CUH

#include "kernels/cuda/common/tma.cuh"
#include "kernels/cuda/moe_tile.cuh"
#include "kernels/params/moe.h"

#define STEPS ((K + X_PER16 * 8 - 1) / (X_PER16 * 8))
#define STAGE_BYTES ((ROWS + COLS) * 128)
#define PASSES (ROWS / 16) /* rows a producer thread copies */
#define LAG 1
#define SLOTS 8
/* A consumer gives a stage back when it has begun the next. */
STATIC_ASSERT(K % X_PER16 == 0 && N % 8 == 0 && STAGES >= LAG + 2 && STAGES < SLOTS - 1, "shapes do not fit");

/* The weights of a step: COLS rows. By TMA one thread asks for them; with DECODE all threads put them there (struct weights: what they know of
 * a tile), and no barrier expects bytes. */
#if DECODE
DEVICE void weights_begin(struct weights *w, const struct tile *t);
DEVICE void weights_step(struct weights *w, unsigned char *to, uint32_t step);
#else
struct weights {
    uint32_t none;
};
DEVICE void produce_weights(const struct moe_wgmma_params *p, const struct tile *t, unsigned char *to, uint32_t step, mbarrier *full);
#endif

/* The block's tiles in turn; shared memory. */
struct queue {
    mbarrier *full; /* [SLOTS] */
    uint32_t *tile; /* [SLOTS] */
};
DEVICE uint32_t queue_wait(const struct queue *q, uint32_t i)
{
    if (i == 0) return block_x();
    mbarrier_wait(&q->full[i % SLOTS], (i - 1) / SLOTS % 2);
    return q->tile[i % SLOTS];
}

/* A block's barriers, and the experts' rows in shared memory, from `full` on; returns when the predecessor has ended. */
struct block_tiles {
    mbarrier *full, *empty;
    struct queue queue;
    uint32_t *offsets, *counts, tiles;
};
DEVICE struct block_tiles tiles_begin(const struct moe_wgmma_params *p, mbarrier *full)
{
    struct block_tiles b;
    b.full = full, b.empty = full + STAGES;
    b.queue.full = b.empty + STAGES, b.queue.tile = (uint32_t *)(b.empty + STAGES + SLOTS);
    b.offsets = b.queue.tile + SLOTS, b.counts = b.offsets + EXPERTS + 1;
    if (thread_x() == 0) {
        for (uint32_t i = 0; i < SLOTS; i++) mbarrier_init(&b.queue.full[i], 1);
        for (uint32_t i = 0; i < STAGES; i++) mbarrier_init(&full[i], 129 - DECODE), mbarrier_init(&b.empty[i], CONSUMERS * 4);
        fence_mbarrier_init();
    }
    grid_dependency_wait();
    grid_dependency_launch();
    for (uint32_t e = thread_x(); e <= EXPERTS; e += THREADS) {
        b.offsets[e] = ((const uint32_t *)p->offsets)[e];
        if (e < EXPERTS) b.counts[e] = ((const uint32_t *)p->counts)[e];
    }
    block_sync();
    b.tiles = (b.offsets[EXPERTS] - b.offsets[0]) / ROWS * TILES_N;
    return b;
}

DEVICE void produce(const struct moe_wgmma_params *p, struct weights *w, const uint32_t *offsets, const uint32_t *counts, unsigned char *stages, mbarrier *full,
                    mbarrier *empty, const struct queue *queue, uint32_t tiles)
{
    const uint32_t chunk = thread_x() % 8, row0 = thread_x() / 8;
    uint32_t stage = 0, phase = 1, behind = 0, issued = 0; /* behind: the stage that is handed over next */
    uint32_t *counter = (uint32_t *)p->counter;
    UNROLL_N(1) for (uint32_t turn = 0;; turn++)
    {
        const uint32_t index = queue_wait(queue, turn);
        if (index >= tiles) break;
        uint32_t next = 0;
        if (thread_x() == 0) next = grid_dim_x() + atom_add_u32(relaxed, gpu, counter, 1);
        const struct tile t = tile_find(offsets, counts, index);
        uint32_t at[PASSES]; /* in 16 bytes */
        UNROLL for (uint32_t i = 0; i < PASSES; i++)
        {
            uint32_t row = row0 + i * 16, from = 0;
            if (row < t.rows) from = GATHER ? ((const uint32_t *)p->source)[t.place + row] / TOP_K : t.place + row;
            at[i] = (uint32_t)((uint64_t)from * p->x_stride / X_PER16) + chunk;
        }
        const char *x = (const char *)p->x;
#if DECODE
        weights_begin(w, &t);
#else
        (void)w;
#endif
        UNROLL_N(1) for (uint32_t s = 0; s < STEPS; s++)
        {
            unsigned char *to = stages + stage * STAGE_BYTES;
            mbarrier_wait(&empty[stage], phase);
#if !DECODE
            if (thread_x() == 0) {
                mbarrier_arrive_expect(&full[stage], COLS * 128);
                produce_weights(p, &t, to + ROWS * 128, s, &full[stage]);
            }
#endif
            const bool in_k = K % (X_PER16 * 8) == 0 || (s * 8 + chunk) * X_PER16 < K;
            UNROLL for (uint32_t i = 0; i < PASSES; i++)
            {
                uint32_t row = row0 + i * 16;
                cp_async16_zfill(to + row * 128 + ((chunk ^ (row & 7)) << 4), x + (uint64_t)at[i] * 16, in_k && row < t.rows ? 16 : 0);
            }
            cp_async_commit();
            x += 128;
#if DECODE
            weights_step(w, to + ROWS * 128, s);
#endif
            if (issued >= LAG) {
                cp_async_wait(LAG);
                fence_proxy_async();
                mbarrier_arrive(&full[behind]);
                behind = behind + 1 < STAGES ? behind + 1 : 0;
            }
            issued++;
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
        if (thread_x() == 0) {
            queue->tile[(turn + 1) % SLOTS] = next;
            mbarrier_arrive(&queue->full[(turn + 1) % SLOTS]);
        }
    }
    if (thread_x() == 0 && atom_add_u32(acq_rel, gpu, counter + 1, 1) == grid_dim_x() - 1) {
        st_u32(relaxed, gpu, counter, 0); /* all blocks have asked for the last time */
        st_u32(relaxed, gpu, counter + 1, 0);
    }
    cp_async_wait_all();
    fence_proxy_async();
    UNROLL_N(1) for (uint32_t i = 0; i < LAG; i++)
    {
        if (i < issued) mbarrier_arrive(&full[behind]);
        behind = behind + 1 < STAGES ? behind + 1 : 0;
    }
}

#endif
