/* Whole grids: programmatic dependent launch and the grid barrier.
 *
 * PTX ISA 9.7.13.14 "griddepcontrol" (sm_90; before, the calls do nothing, and so must the launch attribute). Memory:
 * after grid_dependency_wait all stores of the predecessor grids are visible to the calling thread, and to those that a
 * barrier orders after it. Before it a kernel may touch only what no predecessor writes (weights): the harness checks.
 * grid_dependency_launch lets the successor start when every block has called it or ended; it orders nothing. */
#ifndef ROSE_CUDA_GRID_CUH
#define ROSE_CUDA_GRID_CUH

#include "kernels/cuda/common/memory.cuh"
#include "kernels/cuda/common/thread.cuh"

DEVICE void grid_dependency_wait(void)
{
#ifdef ROSE_SIMT
    simt_grid_wait();
#elif HAS_PDL
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
DEVICE void grid_dependency_launch(void)
{
#ifdef ROSE_SIMT
    simt_grid_launch();
#elif HAS_PDL
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Blocks of the grid, all dimensions. */
DEVICE uint32_t grid_blocks(void)
{
    return grid_dim_x() * grid_dim_y() * grid_dim_z();
}
/* Position of the block in the grid. */
DEVICE uint32_t block_rank(void)
{
    return (block_z() * grid_dim_y() + block_y()) * grid_dim_x() + block_x();
}

/* Every thread of every block waits for all; stores before are visible after, grid-wide. Needs a cooperative launch and
 * one counter, zeroed once when it was allocated and used by no two grids at the same time; it never overflows: block 0
 * adds what the other blocks leave to 2^31, so that each barrier flips the top bit, which is what the blocks wait for. */
DEVICE void grid_barrier(uint32_t *counter)
{
    block_sync();
    if (thread_x() + thread_y() + thread_z() == 0) {
        uint32_t add = block_rank() == 0 ? 0x80000000u - (grid_blocks() - 1) : 1;
        uint32_t old = atom_add_u32(acq_rel, gpu, counter, add);
        while (((ld_u32(acquire, gpu, counter) ^ old) & 0x80000000u) == 0) {}
    }
    block_sync();
}
/* The same in two halves, for work that does not depend on the others between them. All threads of the block call both;
 * the ticket matters in thread 0 only. */
DEVICE uint32_t grid_barrier_arrive(uint32_t *counter)
{
    uint32_t old = 0;
    block_sync();
    if (thread_x() + thread_y() + thread_z() == 0) {
        uint32_t add = block_rank() == 0 ? 0x80000000u - (grid_blocks() - 1) : 1;
        old = atom_add_u32(acq_rel, gpu, counter, add);
    }
    return old;
}
DEVICE void grid_barrier_wait(uint32_t *counter, uint32_t ticket)
{
    if (thread_x() + thread_y() + thread_z() == 0)
        while (((ld_u32(acquire, gpu, counter) ^ ticket) & 0x80000000u) == 0) {}
    block_sync();
}

#endif
