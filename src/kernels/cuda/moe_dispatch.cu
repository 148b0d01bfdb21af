// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* Few tokens: routing, places and copies in one launch.
 *
 *     route    EVERY = 1: each block routes all tokens for itself, a warp a token; nothing is exchanged, or with CLUSTER > 1 (sm_90)
 *              the blocks of a cluster share the tokens and tell each other the ids
 *              EVERY = 0: the grid shares the tokens, then meets at a grid barrier (cooperative launch)
 *     count    each block counts all ids in shared memory and scans the padded counts
 *     copy     unit of work: one slice of one token's row, read once and written TOP_K times; a pick's rank
 * is the number of earlier tokens with the same id
 *
 * Constants: those of moe_router.cuh, HIDDEN (a multiple of 8), PAD, THREADS, EVERY, MAX_TOKENS, OUT, CLUSTER (above 1: a warp for each of MAX_TOKENS). */
#if CLUSTER > 1
#include "kernels/cuda/common/cluster.cuh"
#endif
#include "kernels/cuda/moe_router.cuh"
#include "kernels/cuda/moe_rows.cuh"

#define WARPS (THREADS / WARP)
STATIC_ASSERT(CLUSTER == 1 || (EVERY && WARPS * CLUSTER >= MAX_TOKENS), "a cluster has a warp for each token");

KERNEL(moe_dispatch, struct moe_dispatch_params, p, THREADS, 1)
{
    SHARED(int32_t, ids, MAX_TOKENS * TOP_K);
    SHARED(uint32_t, count, EXPERTS);
    SHARED(uint32_t, begin, EXPERTS + 1);
    SHARED(int32_t, place, TOP_K);
    uint32_t lane = lane_id(), tokens = (uint32_t)p.tokens, slices = (uint32_t)p.slices;
    const uint32_t warp = shuffle_u32(FULL_WARP, warp_id(), 0, WARP); /* seen to be the same for a warp: no code for half a warp that routes */
    uint32_t units = tokens * slices, unit = block_x();
    const uint32_t rank = CLUSTER > 1 ? block_x() % CLUSTER : 0;
#if CLUSTER > 1
    cluster_arrive(); /* I run: others may write here after they have waited */
#endif
    grid_dependency_wait();
    grid_dependency_launch();

    /* The first vector to copy is on its way while the block routes. */
    vec first = vec_zero();
    uint32_t first_at = moe_slice(unit % slices, slices) + thread_x();
    if (unit < units && first_at < VECTORS)
        first = ld16((const element *)p.x + (uint64_t)(unit / slices) * p.x_stride + first_at * 8);
    UNROLL_N(1) for (uint32_t e = thread_x(); e < EXPERTS; e += THREADS) count[e] = 0;

    uint32_t step = EVERY ? WARPS * CLUSTER : WARPS * grid_dim_x();
    int32_t id = -1;
    UNROLL_N(1) for (uint32_t t = EVERY ? warp * CLUSTER + rank : block_x() + warp * grid_dim_x(); t < tokens; t += step)
    {
        float weight;
        moe_route_token((const float *)p.logits + t * p.logits_stride, (const float *)p.bias, &id, &weight);
        if (lane < TOP_K) {
            if (EVERY && CLUSTER == 1) ids[t * TOP_K + lane] = id;
            if (!EVERY || block_x() < CLUSTER) {
                ((int32_t *)p.ids)[t * TOP_K + lane] = id;
                ((float *)p.weights)[t * TOP_K + lane] = weight;
            }
        }
    }
#if CLUSTER > 1
    cluster_wait();
    if (warp * CLUSTER + rank < tokens && lane < TOP_K) {
        UNROLL for (uint32_t r = 0; r < CLUSTER; r++) *(int32_t *)cluster_map(ids + (warp * CLUSTER + rank) * TOP_K + lane, r) = id;
    }
    cluster_sync();
#endif
    if (!EVERY) {
        grid_barrier((uint32_t *)p.barrier);
        UNROLL_N(4) for (uint32_t i = thread_x(); i < tokens * TOP_K; i += THREADS) ids[i] = ((const int32_t *)p.ids)[i];
    }
    block_sync();
    UNROLL_N(1) for (uint32_t i = thread_x(); i < tokens * TOP_K; i += THREADS)
        if (ids[i] >= 0) red_add_u32(relaxed, cta, &count[ids[i]], 1);
    block_sync();
    if (warp == 0) moe_begin(count, begin);
    block_sync();
    if (block_x() == 0) {
        UNROLL_N(1) for (uint32_t e = thread_x(); e <= EXPERTS; e += THREADS) {
            ((uint32_t *)p.offsets)[e] = begin[e];
            if (e < EXPERTS) ((uint32_t *)p.counts)[e] = count[e];
        }
    }

    UNROLL_N(1) for (; unit < units; unit += grid_dim_x()) {
        uint32_t t = unit / slices, slice = unit % slices;
        UNROLL_N(1) for (uint32_t j = warp; j < TOP_K; j += WARPS) {
            int32_t e = ids[t * TOP_K + j];
            uint32_t rank = 0;
            UNROLL_N(4) for (uint32_t i = lane; i < t * TOP_K; i += WARP) rank += ids[i] == e;
            rank = redux_add_u32(FULL_WARP, rank);
            if (lane == 0) {
                place[j] = e < 0 ? -1 : (int32_t)(begin[e] + rank);
                if (slice == 0) ((int32_t *)p.position)[t * TOP_K + j] = place[j];
            }
        }
        block_sync();
        const uint32_t end = moe_slice(slice + 1, slices);
        UNROLL_N(1) for (uint32_t v = moe_slice(slice, slices) + thread_x(); v - lane < end; v += THREADS) {
            vec x = first;
            if ((unit != block_x() || v != first_at) && v < end) x = ld16((const element *)p.x + (uint64_t)t * p.x_stride + v * 8);
            moe_put(&p, x, v, v < end, place, 0, 1);
        }
        block_sync();
    }
}
