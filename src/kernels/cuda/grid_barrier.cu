// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* ROUNDS grid barriers in a row, for their cost: what a plan of one cooperative launch has to beat a second
 * launch by. Every round each block adds to the next block's word what it finds in its own, so that a barrier
 * that lets one pass shows in the sum. Constants: THREADS, ROUNDS. */
#include "kernels/cuda/common/rose.cuh"
#include "kernels/params/grid_barrier.h"

KERNEL(grid_barrier_probe, struct grid_barrier_params, p, THREADS, 1)
{
    uint32_t *words = (uint32_t *)p.words, blocks = grid_dim_x();
    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint32_t *here = words + (i % 2) * blocks, *next = words + (1 - i % 2) * blocks;
        if (thread_x() == 0) next[(block_x() + 1) % blocks] = here[block_x()] + 1;
        grid_barrier((uint32_t *)p.counter);
    }
}
