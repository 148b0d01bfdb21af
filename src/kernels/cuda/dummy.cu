// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* Seeded random weights, made where they are used: benches need no checkpoint. Constants: THREADS. */
#include "kernels/cuda/common/rose.cuh"
#include "kernels/params/dummy.h"

KERNEL(dummy, struct dummy_params, p, THREADS, 1)
{
    uint64_t step = (uint64_t)grid_dim_x() * THREADS;
    grid_dependency_launch();
    grid_dependency_wait(); /* what stood there before may still be read */
    for (uint64_t i = (uint64_t)block_x() * THREADS + thread_x(); i < p.n / 8; i += step) {
        u32x4 r;
        UNROLL for (int h = 0; h < 2; h++)
        {
            uint64_t z = DUMMY_START(p.seed, i * 2 + h);
            DUMMY_MIX(z);
            r.v[2 * h] = f32_to_element2(DUMMY_VALUE(z & 0xffff, p.scale), DUMMY_VALUE(z >> 16 & 0xffff, p.scale)).bits;
            r.v[2 * h + 1] = f32_to_element2(DUMMY_VALUE(z >> 32 & 0xffff, p.scale), DUMMY_VALUE(z >> 48, p.scale)).bits;
        }
        st16_stream((u32x4 *)p.y + i, r);
    }
}
