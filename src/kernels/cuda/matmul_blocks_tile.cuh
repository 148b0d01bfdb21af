/* Weights in a block format as 16-bit rows in shared memory, where a product finds those of other weights (moe_blocks_wgmma.cu, gemm_rows.cu): rows of 128
 * bytes, 64 of k, 16-byte chunk c of row r at c ^ (r % 8). Rounded once, as matmul_blocks_rows.cu rounds them. */
#ifndef ROSE_CUDA_MATMUL_BLOCKS_TILE_CUH
#define ROSE_CUDA_MATMUL_BLOCKS_TILE_CUH

#include "kernels/cuda/matmul_blocks.cuh"

/* A unit of a tile, by a warp. unit: in the chunk; s: blocks_scale of this lane's rows; to: the tile's first row; apart: rows from its first to its ninth; at: 0 or 1,
 * which half of the 64 of k. */
DEVICE void blocks_store(const struct blocks_raw *raw, uint32_t unit, f32x4 s, unsigned char *to, uint32_t apart, uint32_t at)
{
    const uint32_t q = lane_id() / 4, c = lane_id() % 4;
    uint32_t a[2][4];
    blocks_raw_fragment(raw, unit, BLOCKS_MASK, a);
    UNROLL for (uint32_t row = 0; row < 2; row++)
        UNROLL for (uint32_t half = 0; half < 2; half++)
        {
            const float scale = s.v[HALVES ? half * 2 + row : row], added = MINIMA ? -(s.v[2 + row] + CODE_OFFSET * scale) : 0.0f;
            const u32x2 out = {{blocks_scaled(a[half][row], scale, added), blocks_scaled(a[half][2 + row], scale, added)}};
            st8(to + (row * apart + q) * 128 + (((at * 4 + half * 2 + c / 2) ^ q) << 4) + c % 2 * 8, out);
        }
}

#endif
