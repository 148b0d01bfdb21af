/* From float32 results to what is stored: elements, or a narrow format with the scale of a group of neighbours. Used by kernels whose
 * threads hold vectors t, t + TPR, ... of a row, so that a group lies in neighbouring lanes.
 *
 * Constants: OUT (kernels/params/act_rows.h), SCALE_UP, TILED; N, TPR.
 *
 * Every float32 step is one rounding, and the last one (ties to even) goes to the format:
 *     e4m3, int8    scale = largest / 448 (127), y = OUT(v * (1 / scale));  largest at least 1e-10
 *     mxfp8, mxfp4  scale = 2^(floor(log2 largest) - 8 (2)), or with SCALE_UP the power of two not below largest / 448 (6)
 *     nvfp4         scale = e4m3(global * (largest * (1 / 6))), y = e2m1(v * (global / scale)) */
#ifndef ROSE_CUDA_QUANT_CUH
#define ROSE_CUDA_QUANT_CUH

#include "kernels/cuda/common/rose.cuh"
#include "kernels/cuda/common/vec.cuh"
#include "kernels/params/act_rows.h"

#define TOKEN (OUT == ACT_OUT_E4M3_TOKEN || OUT == ACT_OUT_INT8_TOKEN)
#define FOUR_BITS (OUT == ACT_OUT_MXFP4 || OUT == ACT_OUT_NVFP4)
#define GROUP (OUT == ACT_OUT_E4M3_128 ? 128 : OUT == ACT_OUT_MXFP8 || OUT == ACT_OUT_MXFP4 ? 32 : OUT == ACT_OUT_NVFP4 ? 16 : 0)
#define LANES (GROUP ? GROUP / VEC_BF16 : 1)
/* Bytes of n elements of a row. */
#define OUT_BYTES(n) ((n) * (OUT == ACT_OUT_BF16 ? 4 : FOUR_BITS ? 1 : 2) / 2)
STATIC_ASSERT(!GROUP || (N % GROUP == 0 && TPR % LANES == 0), "a group lies in one warp");

/* The largest |v| of a vector; also of its group where that is a part of the row (all lanes of the warp call). */
DEVICE float quant_largest_vector(const float *v)
{
    float largest = 0;
    UNROLL for (int e = 0; e < VEC_BF16; e++) largest = max_f32(largest, abs_f32(v[e]));
    return largest;
}
DEVICE float quant_largest(const float *v)
{
    float largest = quant_largest_vector(v);
    return GROUP ? warp_max_f32(largest, LANES) : largest;
}

/* The same of a vector of elements whose results they are (no activation): pairs at once. */
DEVICE float quant_largest_elements(const vec *x)
{
    uint32_t most = x->v[0] & 0x7fff7fffu;
    UNROLL for (int i = 1; i < VEC_WORDS; i++) most = element2_max(as_element2(most), as_element2(x->v[i] & 0x7fff7fffu)).bits;
    /* NaN where a half has nothing else: not the larger of anything */
    return max_f32(max_f32(element2_lo_f32(as_element2(most)), element2_hi_f32(as_element2(most))), 0.0f);
}

/* largest / TOP and its reciprocal, both as IEEE rounds them, without the branches of the general functions: largest lies between 1e-10
 * and infinity, where Markstein's correction of a product by the reciprocal is exact for 448 and 127 (every float tried), and one Newton step
 * of rcp.approx is what rcp.rn computes inside the range of its fast path. */
DEVICE float quant_quotient(float largest, uint32_t *bits)
{
    const float top = OUT == ACT_OUT_INT8_TOKEN ? 127.0f : 448.0f, part = 1.0f / top;
    const float near = largest * part, scale = fma_f32(fma_f32(-top, near, largest), part, near);
    const float back = rcp_approx(scale), factor = fma_f32(back, fma_f32(-scale, back, 1.0f), back);
    const bool finite = largest < INF_F32;
    *bits = f32_bits(finite ? scale : INF_F32);
    return finite ? factor : 0.0f;
}

/* What a group's largest |v| makes of its scale: the factor that v is multiplied with, and the scale's bits to store. */
DEVICE float quant_scale(float largest, float global, uint32_t *bits)
{
    if (OUT == ACT_OUT_E4M3_TENSOR) return rcp_f32(global);
    if (OUT == ACT_OUT_MXFP8 || OUT == ACT_OUT_MXFP4) {
        const float top = OUT == ACT_OUT_MXFP8 ? 448.0f : 6.0f;
        const int32_t exponent = OUT == ACT_OUT_MXFP8 ? 8 : 2;
        int32_t s = SCALE_UP ? f32_to_ue8m0_up(div_f32(largest, top)).bits : max_i32(f32_to_ue8m0_down(largest).bits - exponent, 0);
        *bits = (uint32_t)s;
        return f32_from_bits(s >= 254 ? 0x400000u : (uint32_t)(254 - s) << 23); /* 2^(127 - s) */
    }
    if (OUT == ACT_OUT_NVFP4) {
        e4m3 s = f32_to_e4m3(global * (largest * 0.16666667163372040f));
        *bits = s.bits;
        return s.bits ? div_f32(global, e4m3_to_f32(s)) : 0.0f;
    }
    return quant_quotient(max_f32(largest, 1e-10f), bits);
}

/* int8 in the low byte, by the rounding of an addition; NaN is 0. |x| is at most 127 and its rounding: the scale is its largest's. */
DEVICE uint32_t quant_s8(float x)
{
    return f32_bits(max_f32(x, -INF_F32) + 12582912.0f); /* 1.5 * 2^23 */
}

/* VEC_BF16 results of 16, 8 or 4 bits. */
DEVICE void quant_store(void *row, uint32_t c, const float *v, float factor)
{
    if (OUT == ACT_OUT_BF16) {
        vec_st_once((element *)row + c, vec_from_f32(v));
        return;
    }
    float f[VEC_BF16];
    uint32_t w[VEC_BF16 / 4];
    UNROLL for (int e = 0; e < VEC_BF16; e++) f[e] = v[e] * factor;
    UNROLL for (int i = 0; i < VEC_BF16 / 4; i++)
    {
        const float *q = f + 4 * i;
        if (OUT == ACT_OUT_INT8_TOKEN)
            w[i] = byte_permute(byte_permute(quant_s8(q[0]), quant_s8(q[1]), 0x0040), byte_permute(quant_s8(q[2]), quant_s8(q[3]), 0x0040), 0x5410);
        else if (!FOUR_BITS)
            w[i] = f32_to_e4m3x4(q[0], q[1], q[2], q[3]);
    }
    if (FOUR_BITS) {
        UNROLL for (int i = 0; i < VEC_BF16 / 8; i++) w[i] = f32_to_e2m1x8(f + 8 * i);
    }
    char *to = (char *)row + (FOUR_BITS ? c / 2 : c);
    const int words = VEC_BF16 / (FOUR_BITS ? 8 : 4);
    if (words == 4) {
        u32x4 r = {{w[0], w[1 % (VEC_BF16 / 4)], w[2 % (VEC_BF16 / 4)], w[3 % (VEC_BF16 / 4)]}};
        st16_once(to, r);
    } else if (words == 2) {
        u32x2 r = {{w[0], w[1]}};
        st8_once(to, r);
    } else {
        st4_once(to, w[0]);
    }
}

/* Stores the scale of the group that column c begins. */
DEVICE void quant_store_scale(void *scale, uint32_t row, uint32_t c, int64_t row_stride, int64_t group_stride, uint32_t bits)
{
    uint32_t g = c / (GROUP ? GROUP : 1);
    int64_t at = TILED ? (int64_t)ACT_TILED_SCALE(row, g, N / (GROUP ? GROUP : 1)) : row * row_stride + g * group_stride;
    if (TOKEN) ((uint32_t *)scale)[row * row_stride] = bits;
    else if (GROUP == 128) ((uint32_t *)scale)[at] = bits;
    else if (GROUP) ((uint8_t *)scale)[at] = (uint8_t)bits;
}

#endif
