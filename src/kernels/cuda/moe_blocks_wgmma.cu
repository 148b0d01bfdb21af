// arch: sm_90a
/* moe_wgmma.cu with weights in a block format of GGUF: the producer decodes each step's weights into the stage, where TMA would have put them, so that
 * no 16-bit copy of them passes through memory. Weights are rounded to 16 bits once, as a panel of them would be (moe_panel.cu).
 *
 *     producer: gathers x (moe_wgmma.cuh) and decodes: a warp has four tiles of 16 weight rows, two units (64 of k) of each a step; the words of the next step are asked for while one is decoded
 *     stage:   [ROWS places | 256 weight rows] of 64 k, GATED 128 gate and 128 up rows
 *
 * Constants: those of moe_wgmma.cu; FORMAT. */
#define CONSUMERS (ROWS / 64)
#define THREADS (128 + CONSUMERS * 128)
#define COLS 256
#define OUT (GATED ? 128 : 256)
#define TILES_N ((N + OUT - 1) / OUT)
#define X_PER16 8
#define DECODE 1
#include "kernels/cuda/matmul_blocks_tile.cuh"
#include "kernels/params/moe_coded.h"

#define UNITS (K / BLOCKS_UNIT) /* of a row */
#define WEIGHT_TILES ((N + BLOCKS_TILE - 1) / BLOCKS_TILE)
#define ITEMS 8 /* of a warp in a step: tiles by units */

struct weights {
    const struct moe_blocks_wgmma_params *p;
    const unsigned char *w; /* the expert's matrix that this warp decodes */
    uint32_t first;         /* the warp's first tile of it */
    struct blocks_raw raw[ITEMS];
};
#include "kernels/cuda/moe_wgmma_rows.cuh"

/* Where a chunk of item i's tile begins: i / 2 counts the warp's tiles. w: of the warp's matrix and expert. */
DEVICE const unsigned char *item_chunk(const unsigned char *w, uint32_t first, uint32_t i, uint32_t unit)
{
    return blocks_chunk(w, UNITS, min_u32(first + i / 2, WEIGHT_TILES - 1), unit / BLOCKS_CHUNK);
}
DEVICE uint32_t item_units(uint32_t unit)
{
    return UNITS % BLOCKS_CHUNK == 0 ? BLOCKS_CHUNK : min_u32(UNITS - unit / BLOCKS_CHUNK * BLOCKS_CHUNK, BLOCKS_CHUNK);
}

DEVICE void weights_begin(struct weights *w, const struct tile *t)
{
    const uint32_t warp = warp_id();
    w->first = t->column / BLOCKS_TILE + (GATED ? warp % 2 : warp) * 4;
    w->w = (const unsigned char *)w->p->weight[GATED ? warp / 2 : 0] + (uint64_t)t->expert * w->p->weight_stride;
    UNROLL for (uint32_t i = 0; i < ITEMS; i++)
    {
        const uint32_t unit = min_u32(i % 2, UNITS - 1);
        w->raw[i] = blocks_raw_load(item_chunk(w->w, w->first, i, unit), item_units(unit), unit, lane_id());
    }
}
DEVICE void weights_step(struct weights *w, unsigned char *to, uint32_t step)
{
    UNROLL for (uint32_t i = 0; i < ITEMS; i++)
    {
        const uint32_t unit = min_u32(step * 2 + i % 2, UNITS - 1), next = min_u32(step * 2 + 2 + i % 2, UNITS - 1); /* behind k x is zero */
        const f32x4 scale = blocks_scale(item_chunk(w->w, w->first, i, unit), item_units(unit), unit % BLOCKS_CHUNK, lane_id() / 4);
        blocks_store(&w->raw[i], unit % BLOCKS_CHUNK, scale, to + (warp_id() * 64 + i / 2 * 16) * 128, 8, i % 2);
        w->raw[i] = blocks_raw_load(item_chunk(w->w, w->first, i, next), item_units(next), next % BLOCKS_CHUNK, lane_id());
    }
}

KERNEL(moe_blocks_wgmma, struct moe_blocks_wgmma_params, p, THREADS, 1)
{
    unsigned char *stages = dynamic_shared(), *results = stages + STAGES * STAGE_BYTES;
    const struct block_tiles b = tiles_begin(&p.t, (mbarrier *)(results + CONSUMERS * 4 * RESULT_BYTES));
    const uint32_t group = thread_x() / 128;
    if (group == 0) {
        struct weights w;
        w.p = &p;
        produce(&p.t, &w, b.offsets, b.counts, stages, b.full, b.empty, &b.queue, b.tiles);
    } else {
        consume(&p.t, b.offsets, b.counts, stages, results + (warp_id() - 4) * RESULT_BYTES, b.full, b.empty, &b.queue, b.tiles, group - 1);
    }
}
