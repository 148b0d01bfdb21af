/* The scales of a chunk as a warp's lanes share them (matmul_blocks_few.cu, matmul_blocks_ring.cu). Constant: K_TAIL (a chunk may have fewer
 * units than BLOCKS_CHUNK). */
#ifndef ROSE_CUDA_MATMUL_BLOCKS_SCALES_CUH
#define ROSE_CUDA_MATMUL_BLOCKS_SCALES_CUH

#include "kernels/cuda/matmul_blocks.cuh"

/* Scales of units 2c and 2c + 1 of rows q and q + 8, where all lanes find them. */
DEVICE void blocks_chunk_scales(const unsigned char *chunk, uint32_t units, unsigned char *scales)
{
    const uint32_t q = lane_id() / 4, c = lane_id() % 4;
    UNROLL for (uint32_t h = 0; h < 2; h++)
    {
        const uint32_t unit = c * 2 + h;
        if (K_TAIL && unit >= units) continue;
        f32x4 s = blocks_scale(chunk, units, unit, q);
        if (MINIMA) { /* what is added: the constant in the codes is part of it */
            s.v[2] = -(s.v[2] + CODE_OFFSET * s.v[0]);
            s.v[3] = -(s.v[3] + CODE_OFFSET * s.v[1]);
        }
        u32x4 bits = {{f32_bits(s.v[0]), f32_bits(s.v[1]), f32_bits(s.v[2]), f32_bits(s.v[3])}};
        st16(scales + (unit * 8 + q) * 16, bits);
    }
}

#endif
