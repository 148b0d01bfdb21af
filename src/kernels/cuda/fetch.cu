// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* A step's inputs: pieces of a block in pinned host memory go where the forward reads them. One launch instead of a copy: a copy
 * engine's start costs more than the few kilobytes, page tables travel without their unused tails, and histories get a prompt's
 * tokens in the same pass.
 *
 * Constants: THREADS. */
#include "kernels/cuda/common/rose.cuh"
#include "kernels/params/fetch.h"

#define DEEP 8 /* loads in flight a lane: the host is a microsecond away */

KERNEL(fetch, struct fetch_params, p, THREADS, 1)
{
    const struct fetch_segment *list = (const struct fetch_segment *)p.segments;
    grid_dependency_wait();
    /* No grid_dependency_launch: a chain of small kernels that each let the next one in early would bring attention, which reads the
     * sequences' lengths before it waits, here before they have come. */
    for (uint32_t i = block_x() * (THREADS / WARP) + warp_id();; i += FETCH_WARPS) {
        u32x4 s = ld16(list + i);
        uint32_t words = s.v[3];
        if (words == 0) break;
        uint32_t *to = (uint32_t *)(uintptr_t)((uint64_t)s.v[1] << 32 | s.v[0]);
        const uint32_t *from = (const uint32_t *)p.block + s.v[2];
        for (uint32_t at = lane_id(); at < words; at += WARP * DEEP) {
            uint32_t v[DEEP];
            UNROLL for (uint32_t k = 0; k < DEEP; k++) v[k] = at + k * WARP < words ? ld4(from + at + k * WARP) : 0;
            UNROLL for (uint32_t k = 0; k < DEEP; k++)
                if (at + k * WARP < words) st4(to + at + k * WARP, v[k]);
        }
    }
}
