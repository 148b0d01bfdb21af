// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* y = x: what every kernel that reads and writes is measured against. With ADD x = y = x + add (as integers): the streams of a norm
 * with a residual, two read and two written, one of them in place. Constants: THREADS, PER (16-byte vectors a thread, all loaded
 * before the first store), ADD. */
#include "kernels/cuda/common/rose.cuh"
#include "kernels/params/clone.h"

KERNEL(clone, struct clone_params, p, THREADS, 1)
{
    uint64_t first = (uint64_t)block_x() * (THREADS * PER) + thread_x();
    u32x4 v[PER], add[ADD ? PER : 1];
    grid_dependency_wait();
    UNROLL for (int i = 0; i < PER; i++)
    {
        uint64_t at = first + i * THREADS;
        if (at < p.vectors) v[i] = ld16((const u32x4 *)p.x + at);
        if (ADD && at < p.vectors) add[i] = ld16_nc((const u32x4 *)p.add + at);
    }
    grid_dependency_launch();
    UNROLL for (int i = 0; i < PER; i++)
    {
        uint64_t at = first + i * THREADS;
        if (ADD) UNROLL for (int w = 0; w < 4; w++) v[i].v[w] += add[ADD ? i : 0].v[w];
        if (ADD && at < p.vectors) st16((u32x4 *)p.x + at, v[i]);
        if (at < p.vectors) st16((u32x4 *)p.y + at, v[i]);
    }
}
