// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* The choice of experts for many tokens, a warp a token. Constants: those of moe_router.cuh, THREADS. */
#include "kernels/cuda/moe_router.cuh"
#include "kernels/params/moe.h"

KERNEL(moe_pick, struct moe_pick_params, p, THREADS, 1)
{
    uint32_t t = block_x() * (THREADS / WARP) + warp_id(), lane = lane_id();
    grid_dependency_wait();
    grid_dependency_launch();
    if (t >= p.tokens) return;
    int32_t id;
    float weight;
    moe_route_token((const float *)p.logits + t * p.logits_stride, (const float *)p.bias, &id, &weight);
    if (lane < TOP_K) {
        ((int32_t *)p.ids)[t * TOP_K + lane] = id;
        ((float *)p.weights)[t * TOP_K + lane] = weight;
    }
}
