/* Weights of e4m3 as operands of bf16 matrix instructions, and their scales.
 *
 * Constant: SCALES, FP8_CHANNELS (a scale a weight row: applied to the finished sum) or FP8_BLOCKS (128 x 128: applied to the sums of
 * 128 of k). */
#ifndef ROSE_CUDA_FP8_CUH
#define ROSE_CUDA_FP8_CUH

#include "kernels/cuda/common/convert.cuh"
#include "kernels/cuda/common/rose.cuh"
#include "kernels/params/gemm_fp8.h"

/* Codes 0, 1 and 2, 3 of a word as two pairs of bf16, exactly: sign and fields are put at the top of a bf16, whose exponent is then 120
 * too small. */
DEVICE void fp8_pairs(uint32_t codes, uint32_t out[2])
{
    UNROLL for (uint32_t i = 0; i < 2; i++)
    {
        const uint32_t t = byte_permute(codes, 0, i ? 0x3424 : 0x1404); /* code bytes in the upper halves of the 16-bit lanes */
        out[i] = bf16x2_mul(as_bf16x2((t & 0x80008000u) | (t >> 4 & 0x07f007f0u)), as_bf16x2(0x7b807b80u)).bits;
    }
}

/* The scale of 128 of k of the block of weight row `col`. */
DEVICE float fp8_block_scale(const struct gemm_fp8_scales *s, uint32_t part, uint32_t col, uint32_t k_block)
{
    return ((const float *)s->w[part])[(size_t)(col / FP8_BLOCK) * s->k_blocks + k_block];
}
/* Of weight row `col`; rows beyond the last have the last one's. */
DEVICE float fp8_channel_scale(const struct gemm_fp8_scales *s, const struct gemm_params *g, uint32_t part, uint32_t col)
{
    return ((const float *)s->w[part])[min_u32(col, (uint32_t)g->part[part].n - 1)];
}

#endif
