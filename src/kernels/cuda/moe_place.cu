// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* Places of all picks, by one block: it needs no counters that live from launch to launch, and even 65,536 picks take it
 * a small part of their products' time. With ROUTE it chooses the experts first, a warp a token.
 *
 *     1   warp w has picks [w, w + 1) * segment, 32 at a time in their order: equal ids find each other by match, the
 *         warp counts them in its row of `count`; a pick's rank so far goes to position
 *     2   rows of `count` become what the warps before have, their sums the experts' counts, padded offsets
 *     3   position = offset + warps before + rank; source[position] = pick
 *
 * The place of a pick is its rank among its expert's picks in the tokens' order: the same on every run.
 * Constants: those of moe_router.cuh, PAD, THREADS, ROUTE. */
#include "kernels/cuda/moe_router.cuh"
#include "kernels/params/moe.h"

#define WARPS (THREADS / WARP)
#define BATCH 4 /* vectors of picks */

KERNEL(moe_place, struct moe_place_params, p, THREADS, 1)
{
    SHARED(uint32_t, count, WARPS * EXPERTS);
    SHARED(uint32_t, total, EXPERTS);
    SHARED(uint32_t, begin, EXPERTS + 1);
    const uint32_t lane = lane_id(), picks = p.tokens * TOP_K;
    const uint32_t warp = shuffle_u32(FULL_WARP, warp_id(), 0, WARP); /* seen to be the same for a warp: no code for half a warp */
    uint32_t *mine = count + warp * EXPERTS;
    int32_t *ids = (int32_t *)p.ids, *position = (int32_t *)p.position;
    UNROLL_N(1) for (uint32_t e = lane; e < EXPERTS; e += WARP) mine[e] = 0;
    grid_dependency_wait();
    grid_dependency_launch();
    if (ROUTE) {
        UNROLL_N(1) for (uint32_t t = warp; t < p.tokens; t += WARPS)
        {
            int32_t id;
            float weight;
            moe_route_token((const float *)p.logits + t * p.logits_stride, (const float *)p.bias, &id, &weight);
            if (lane < TOP_K) {
                ids[t * TOP_K + lane] = id;
                ((float *)p.weights)[t * TOP_K + lane] = weight;
            }
        }
        block_sync();
    }
    const uint32_t segment = ceil_div_u32(picks, WARPS * WARP) * WARP, first = min_u32(warp * segment, picks),
                   last = min_u32(first + segment, picks);
    warp_sync(FULL_WARP);
    /* BATCH loads at a time are on their way together; few picks stay in registers for step 3. */
    int32_t id[BATCH], rank[BATCH];
    UNROLL_N(1) for (uint32_t at = first; at < last; at += BATCH * WARP)
    {
        UNROLL for (uint32_t v = 0; v < BATCH; v++) id[v] = at + v * WARP + lane < last ? ids[at + v * WARP + lane] : -1;
        UNROLL for (uint32_t v = 0; v < BATCH; v++)
        {
            const uint32_t i = at + v * WARP + lane;
            uint32_t seen = 0, same = warp_match(FULL_WARP, (uint32_t)id[v]), before = popcount_u32(same & ((1u << lane) - 1));
            if (id[v] >= 0) seen = mine[id[v]];
            warp_sync(FULL_WARP);
            if (id[v] >= 0 && before == 0) mine[id[v]] = seen + popcount_u32(same);
            warp_sync(FULL_WARP);
            rank[v] = (int32_t)(seen + before);
            if (segment > BATCH * WARP && i < last) position[i] = rank[v];
        }
    }
    block_sync();
    for (uint32_t e = thread_x(); e < EXPERTS; e += THREADS) {
        uint32_t sum = 0;
        UNROLL_N(8) for (uint32_t w = 0; w < WARPS; w++)
        {
            uint32_t c = count[w * EXPERTS + e];
            count[w * EXPERTS + e] = sum;
            sum += c;
        }
        total[e] = sum;
        ((uint32_t *)p.counts)[e] = sum;
    }
    block_sync();
    if (warp == 0) moe_begin(total, begin);
    block_sync();
    UNROLL_N(1) for (uint32_t e = thread_x(); e <= EXPERTS; e += THREADS) ((uint32_t *)p.offsets)[e] = begin[e];
    UNROLL_N(1) for (uint32_t at = first; at < last; at += BATCH * WARP)
    {
        if (segment > BATCH * WARP)
            UNROLL for (uint32_t v = 0; v < BATCH; v++)
            {
                const uint32_t i = at + v * WARP + lane;
                id[v] = i < last ? ids[i] : -1;
                rank[v] = i < last ? position[i] : 0;
            }
        UNROLL for (uint32_t v = 0; v < BATCH; v++)
        {
            const uint32_t i = at + v * WARP + lane;
            int32_t place = -1;
            if (id[v] >= 0) {
                place = (int32_t)(begin[id[v]] + mine[id[v]]) + rank[v];
                ((uint32_t *)p.source)[place] = i;
            }
            if (i < last) position[i] = place;
        }
    }
}
