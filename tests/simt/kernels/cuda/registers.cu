// arch: sm_90a
/* A loading warpgroup gives registers to two others: SHRINK * 128 + GROW * 256 may not exceed what the block was launched
 * with (168 * 384). */
#include "kernels/cuda/common/rose.cuh"
#include "kernels/cuda/common/wgmma.cuh"

struct registers_params {
    uint32_t *y; /* [384] */
};

KERNEL(registers, struct registers_params, p, 384, 1)
{
    if (warp_id() < 4) registers_shrink(SHRINK);
    else registers_grow(GROW);
    p.y[thread_x()] = thread_x();
}
