// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* Many tokens, after moe_route: the place of each pick from its rank in its block, and the pick of each place.
 * Constants: EXPERTS, TOP_K, THREADS, BLOCK_TOKENS (tokens of a block of moe_route). */
#include "kernels/cuda/common/rose.cuh"
#include "kernels/params/moe.h"

KERNEL(moe_spread, struct moe_place_params, p, THREADS, 1)
{
    const uint32_t i = block_x() * THREADS + thread_x();
    grid_dependency_wait();
    grid_dependency_launch();
    if (i >= p.tokens * TOP_K) return;
    int32_t id = ((const int32_t *)p.ids)[i], rank = ((const int32_t *)p.rank)[i], place = -1;
    if (id >= 0) {
        const uint64_t block = i / (TOP_K * BLOCK_TOKENS);
        place = rank + ((const int32_t *)p.block_base)[block * EXPERTS + (uint32_t)id];
        ((uint32_t *)p.source)[place] = i;
    }
    ((int32_t *)p.position)[i] = place;
}
