// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* Many tokens, first launch: routing, ranks and places. A block has WARPS * PER_WARP consecutive tokens, each
 * warp PER_WARP of them; a warp counts its own picks by match, the block adds up its warps, and the block
 * that finishes last turns the blocks' counts into the place where each block's picks of an expert begin:
 *
 *     block_base[b][e] = offsets[e] + picks of e in blocks before b
 *
 * Constants: those of moe_router.cuh, PAD, THREADS, PER_WARP. */
#include "kernels/cuda/moe_router.cuh"
#include "kernels/params/moe.h"

#define WARPS (THREADS / WARP)
#define PICKS (PER_WARP * TOP_K) /* of a warp */
#define COLUMNS (MOE_VPT * WARP)
#define SEGMENTS (COLUMNS < THREADS ? THREADS / COLUMNS : 1) /* of the blocks, in the last block's scan */
#define DEEP 8                                               /* loads in flight there */

/* The last block: thread (segment, expert). */
DEVICE void moe_scan(const struct moe_dispatch_params *p, uint32_t *sums, uint32_t *total, uint32_t *begin)
{
    uint32_t blocks = grid_dim_x(), segment = SEGMENTS > 1 ? thread_x() / COLUMNS : 0;
    uint32_t from = segment * blocks / SEGMENTS, to = (segment + 1) * blocks / SEGMENTS;
    uint32_t *base = (uint32_t *)p->block_base, first = SEGMENTS > 1 ? thread_x() % COLUMNS : thread_x();
    bool mine = segment < SEGMENTS;
    UNROLL_N(1) for (uint32_t e = first; mine && e < EXPERTS; e += THREADS) {
        uint32_t sum = 0, b = from;
        UNROLL_N(1) for (; b + DEEP <= to; b += DEEP) {
            uint32_t v[DEEP];
            UNROLL for (uint32_t i = 0; i < DEEP; i++) v[i] = base[(uint64_t)(b + i) * EXPERTS + e];
            UNROLL for (uint32_t i = 0; i < DEEP; i++) sum += v[i];
        }
        UNROLL_N(1) for (; b < to; b++) sum += base[(uint64_t)b * EXPERTS + e];
        sums[segment * EXPERTS + e] = sum;
    }
    block_sync();
    UNROLL_N(1) for (uint32_t e = thread_x(); e < EXPERTS; e += THREADS) {
        uint32_t sum = 0;
        UNROLL_N(1) for (uint32_t s = 0; s < SEGMENTS; s++) sum += sums[s * EXPERTS + e];
        total[e] = sum;
    }
    block_sync();
    if (warp_id() == 0) moe_begin(total, begin);
    block_sync();
    UNROLL_N(1) for (uint32_t e = thread_x(); e <= EXPERTS; e += THREADS) {
        ((uint32_t *)p->offsets)[e] = begin[e];
        if (e < EXPERTS) ((uint32_t *)p->counts)[e] = total[e];
    }
    UNROLL_N(1) for (uint32_t e = first; mine && e < EXPERTS; e += THREADS) {
        uint32_t at = begin[e], b = from;
        UNROLL_N(1) for (uint32_t s = 0; s < segment; s++) at += sums[s * EXPERTS + e];
        UNROLL_N(1) for (; b + DEEP <= to; b += DEEP) {
            uint32_t v[DEEP];
            UNROLL for (uint32_t i = 0; i < DEEP; i++) v[i] = base[(uint64_t)(b + i) * EXPERTS + e];
            UNROLL for (uint32_t i = 0; i < DEEP; i++)
            {
                base[(uint64_t)(b + i) * EXPERTS + e] = at;
                at += v[i];
            }
        }
        UNROLL_N(1) for (; b < to; b++) {
            uint32_t v = base[(uint64_t)b * EXPERTS + e];
            base[(uint64_t)b * EXPERTS + e] = at;
            at += v;
        }
    }
}

KERNEL(moe_route, struct moe_dispatch_params, p, THREADS, 1)
{
    SHARED(int32_t, ids, WARPS * PICKS);
    SHARED(uint32_t, rank, WARPS * PICKS);
    SHARED(uint32_t, count, (WARPS > SEGMENTS ? WARPS : SEGMENTS) * EXPERTS);
    SHARED(uint32_t, total, EXPERTS);
    SHARED(uint32_t, begin, EXPERTS + 1);
    SHARED(uint32_t, last, 1);
    uint32_t lane = lane_id(), tokens = (uint32_t)p.tokens;
    const uint32_t warp = shuffle_u32(FULL_WARP, warp_id(), 0, WARP); /* seen to be the same for a warp: no code for half a warp that routes */
    uint32_t first = (block_x() * WARPS + warp) * PER_WARP, *mine = count + warp * EXPERTS;
    grid_dependency_wait();
    grid_dependency_launch();
    UNROLL_N(1) for (uint32_t e = lane; e < EXPERTS; e += WARP) mine[e] = 0;
    UNROLL_N(1) for (uint32_t i = 0; i < PER_WARP; i++)
    {
        int32_t id = -1;
        float weight;
        uint32_t t = first + i;
        if (t < tokens) {
            moe_route_token((const float *)p.logits + t * p.logits_stride, (const float *)p.bias, &id,
                            &weight);
            if (lane < TOP_K) {
                ((int32_t *)p.ids)[t * TOP_K + lane] = id;
                ((float *)p.weights)[t * TOP_K + lane] = weight;
            }
        }
        if (lane < TOP_K) ids[warp * PICKS + i * TOP_K + lane] = id;
    }
    warp_sync(FULL_WARP);
    /* 32 picks at a time, in order: those of one expert before the caller's, and those counted so far. */
    UNROLL_N(1) for (uint32_t i = 0; i < PICKS; i += WARP)
    {
        int32_t id = i + lane < PICKS ? ids[warp * PICKS + i + lane] : -1;
        uint32_t same = warp_match(FULL_WARP, (uint32_t)id), before = popcount_u32(same & ((1u << lane) - 1)),
                 seen = 0;
        if (id >= 0) {
            seen = mine[id];
            rank[warp * PICKS + i + lane] = seen + before;
        }
        warp_sync(FULL_WARP);
        if (id >= 0 && before == 0) mine[id] = seen + popcount_u32(same);
        warp_sync(FULL_WARP);
    }
    block_sync();
    /* Counts of the warps become what came before each warp; the block's counts go out. */
    UNROLL_N(1) for (uint32_t e = thread_x(); e < EXPERTS; e += THREADS) {
        uint32_t sum = 0;
        UNROLL for (uint32_t w = 0; w < WARPS; w++)
        {
            uint32_t c = count[w * EXPERTS + e];
            count[w * EXPERTS + e] = sum;
            sum += c;
        }
        ((uint32_t *)p.block_base)[(uint64_t)block_x() * EXPERTS + e] = sum;
    }
    block_sync();
    UNROLL_N(1) for (uint32_t i = lane; i < PICKS; i += WARP) {
        int32_t id = ids[warp * PICKS + i];
        if (first + i / TOP_K < tokens)
            ((int32_t *)p.position)[first * TOP_K + i] =
                id < 0 ? -1 : (int32_t)(rank[warp * PICKS + i] + mine[id]);
    }
    block_sync();
    if (thread_x() == 0) {
        uint32_t *done = (uint32_t *)p.barrier + 1;
        last[0] = atom_add_u32(acq_rel, gpu, done, 1) == grid_dim_x() - 1;
        if (last[0]) st_u32(relaxed, gpu, done, 0);
    }
    block_sync();
    if (last[0]) moe_scan(&p, count, total, begin);
}
