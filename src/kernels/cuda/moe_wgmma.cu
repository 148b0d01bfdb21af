// arch: sm_90a
/* Grouped products by wgmma for experts with many tokens (Hopper): tiles of ROWS places by 256 rows of weights, as moe_group.
 *
 * Warpgroup 0 is the producer. Its threads gather the tokens' rows (cp.async: TMA of Hopper cannot follow an index), one of
 * them has the weights copied by TMA. Each further warpgroup multiplies 64 places by all 256 rows: 128 gate and 128 up, so that
 * a pair lies in one lane, in d[i] and d[i + 64]. One without places sits the tile out. The grid is persistent: while the
 * consumers finish a tile the producer is STAGES steps into the next. Experts' last tiles are cheaper than others, so blocks
 * take tiles from a counter, not in turn.
 *
 *     a stage, its barriers, the queue of tiles: moe_wgmma.cuh
 *     results     a warp's 16 rows go through its own shared memory (stmatrix) and leave in 16-byte vectors
 *
 * Constants: EXPERTS TOP_K N K GATED GATHER ACT EXPERT_BIAS ROWS (64, 128) STAGES. */
#include "kernels/cuda/common/rose.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/tma.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/act.cuh"
#include "kernels/params/moe.h"

#define CONSUMERS (ROWS / 64)
#define THREADS (128 + CONSUMERS * 128)
#define COLS 256
#define OUT (GATED ? 128 : 256)
#define TILES_N ((N + OUT - 1) / OUT)
#define DECODE 0
#define X_PER16 8
#include "kernels/cuda/moe_wgmma.cuh"

DEVICE void produce_weights(const struct moe_wgmma_params *p, const struct tile *t, unsigned char *to, uint32_t step, mbarrier *full)
{
    const int32_t k = (int32_t)(step * 64), column = (int32_t)t->column, e = (int32_t)t->expert;
    tma_load_3d(to, &p->weight[0], k, column, e, full, l2_evict_normal());
    if (GATED) tma_load_3d(to + 128 * 128, &p->weight[1], k, column, e, full, l2_evict_normal());
}

#include "kernels/cuda/moe_wgmma_rows.cuh"

KERNEL(moe_wgmma, struct moe_wgmma_params, p, THREADS, 1)
{
    unsigned char *stages = dynamic_shared(), *results = stages + STAGES * STAGE_BYTES;
    const struct block_tiles b = tiles_begin(&p, (mbarrier *)(results + CONSUMERS * 4 * RESULT_BYTES));
    const uint32_t group = thread_x() / 128;
    if (group == 0) {
        if (CONSUMERS == 2) registers_shrink(56);
        produce(&p, NULL, b.offsets, b.counts, stages, b.full, b.empty, &b.queue, b.tiles);
    } else {
        if (CONSUMERS == 2) registers_grow(224);
        consume(&p, b.offsets, b.counts, stages, results + (warp_id() - 4) * RESULT_BYTES, b.full, b.empty, &b.queue, b.tiles, group - 1);
    }
}
