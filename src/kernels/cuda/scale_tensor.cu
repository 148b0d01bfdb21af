// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* The scale of a tensor that is quantised with one: a read of all rows, whose largest |x| meets in memory (bits of numbers that are not
 * negative rise with them), and the block that ends last makes the scale of it.
 *
 * The rows' vectors are one list; the grid is persistent, a block takes THREADS * DEEP of the list at a time, DEEP a thread, loaded
 * together. NaN counts for nothing here; it stays NaN where it is quantised.
 *
 * Constants: N VEC_BYTES THREADS DEEP KIND (SCALE_TENSOR_*). */
#include "kernels/cuda/common/rose.cuh"
#include "kernels/cuda/common/vec.cuh"
#include "kernels/params/scale_tensor.h"

#define VECTORS (N / VEC_BF16)
#define WARPS (THREADS / WARP)

KERNEL(scale_tensor, struct scale_tensor_params, p, THREADS, 1)
{
    SHARED(float, part, WARPS);
    const uint32_t all = p.rows * VECTORS;
    float largest = 0;
    grid_dependency_launch();
    grid_dependency_wait();
    for (uint32_t first = block_x() * (THREADS * DEEP); first < all; first += grid_dim_x() * (THREADS * DEEP)) {
        vec x[DEEP];
        UNROLL for (uint32_t i = 0; i < DEEP; i++)
        {
            const uint32_t v = first + i * THREADS + thread_x();
            x[i] = vec_zero();
            if (v < all) x[i] = vec_ld((const element *)p.x + v / VECTORS * p.x_stride + v % VECTORS * VEC_BF16);
        }
        UNROLL for (uint32_t i = 0; i < DEEP; i++)
        {
            float f[VEC_BF16];
            vec_to_f32(&x[i], f);
            UNROLL for (int e = 0; e < VEC_BF16; e++) largest = max_f32(largest, abs_f32(f[e]));
        }
    }
    largest = warp_max_f32(largest, WARP);
    if (lane_id() == 0) part[warp_id()] = largest;
    block_sync();
    if (thread_x() != 0) return;
    UNROLL for (uint32_t w = 1; w < WARPS; w++) largest = max_f32(largest, part[w]);
    uint32_t *const work = (uint32_t *)p.work;
    red_max_u32(relaxed, gpu, work, f32_bits(largest));
    if (atom_add_u32(acq_rel, gpu, work + 1, 1) != grid_dim_x() - 1) return;
    largest = max_f32(f32_from_bits(atom_exch_b32(relaxed, gpu, work, 0)), 1e-10f);
    st_u32(relaxed, gpu, work + 1, 0);
    *(float *)p.scale = KIND == SCALE_TENSOR_NVFP4 ? div_f32(448.0f * 6.0f, largest) : div_f32(largest, 448.0f);
}
