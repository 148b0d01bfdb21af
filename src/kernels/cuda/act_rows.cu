// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* Activations and quantisers of bf16 rows, apart or fused: one read, one write.
 *
 *     v = act(min(x, clamp)) * (clamp(up) + UP_OFFSET)               GATED (gpt-oss clamps: CLAMP > 0, gate x sigmoid(ALPHA x))
 *     v = act(x)                                                     else
 *     y = OUT(v / scale), scale from the largest |v| of a group
 *
 * Every float32 step is one rounding, and the last one (ties to even) goes to the format, so a quantiser alone is exact:
 *     e4m3, int8    scale = largest / 448 (127), y = OUT(v * (1 / scale));  largest at least 1e-10
 *     mxfp8, mxfp4  scale = 2^(floor(log2 largest) - 8 (2)), or with SCALE_UP the power of two not below largest / 448 (6)
 *     nvfp4         scale = e4m3(global * (largest * (1 / 6))), y = e2m1(v * (global / scale))
 *
 * A block is RPB groups of TPR threads; a group takes one of the PIECES of a row: thread t holds vectors t, t + TPR, ... of the
 * piece. A scale's elements are neighbours in a warp: GROUP / VEC_BF16 lanes of one vector each, or for a row's scale the whole
 * group of threads (PIECES = 1).
 *
 * Constants: N VEC_BYTES TPR RPB PER PIECES; ACT GATED CLAMP ALPHA UP_OFFSET; OUT SCALE_UP TILED. */
#include "kernels/cuda/common/rose.cuh"
#include "kernels/cuda/common/vec.cuh"
#include "kernels/params/act_rows.h"

#define VECTORS (N / VEC_BF16)
#define TOKEN (OUT == ACT_OUT_E4M3_TOKEN || OUT == ACT_OUT_INT8_TOKEN)
#define FOUR_BITS (OUT == ACT_OUT_MXFP4 || OUT == ACT_OUT_NVFP4)
#define GROUP (OUT == ACT_OUT_E4M3_128 ? 128 : OUT == ACT_OUT_MXFP8 || OUT == ACT_OUT_MXFP4 ? 32 : OUT == ACT_OUT_NVFP4 ? 16 : 0)
#define LANES (GROUP ? GROUP / VEC_BF16 : 1)
#define WARPS (TPR * RPB / 32)
STATIC_ASSERT(!GROUP || (N % GROUP == 0 && TPR % LANES == 0), "a group lies in one warp");

DEVICE float act_sigmoid(float x)
{
    return rcp_approx(1.0f + exp_approx(-x));
}
DEVICE float act_one(float x)
{
    switch (ACT) {
    case ACT_SILU: return x * act_sigmoid(ALPHA * x);
    case ACT_GELU_TANH: /* x (1 + tanh u) / 2 = x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3) */
        return x * act_sigmoid(1.5957691216057308f * fma_f32(0.044715f * x * x, x, x));
    case ACT_GELU_ERF: return 0.5f * x * (1.0f + erf_f32(x * 0.70710678118654752f));
    case ACT_RELU: return max_f32(x, 0.0f);
    case ACT_RELU2: return max_f32(x, 0.0f) * max_f32(x, 0.0f);
    default: return x;
    }
}
DEVICE void act_vector(const vec *x, const vec *up, float *v)
{
    vec_to_f32(x, v);
    if (CLAMP > 0.0f) {
        UNROLL for (int e = 0; e < VEC_BF16; e++) v[e] = min_f32(v[e], CLAMP);
    }
    UNROLL for (int e = 0; e < VEC_BF16; e++) v[e] = act_one(v[e]);
    if (GATED) {
        float u[VEC_BF16];
        vec_to_f32(up, u);
        UNROLL for (int e = 0; e < VEC_BF16; e++)
        {
            if (CLAMP > 0.0f) u[e] = max_f32(min_f32(u[e], CLAMP), -CLAMP);
            v[e] *= UP_OFFSET + u[e];
        }
    }
}

/* What a group's largest |v| makes of its scale: the factor that v is multiplied with, and the scale's bits to store. */
DEVICE float act_scale(float largest, float global, uint32_t *bits)
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
    float scale = div_f32(max_f32(largest, 1e-10f), OUT == ACT_OUT_INT8_TOKEN ? 127.0f : 448.0f);
    *bits = f32_bits(scale);
    return rcp_f32(scale);
}

/* VEC_BF16 results of 16, 8 or 4 bits. */
DEVICE void act_store(void *row, uint32_t c, const float *v, float factor)
{
    if (OUT == ACT_OUT_BF16) {
        vec_st((bf16 *)row + c, vec_from_f32(v));
        return;
    }
    float f[VEC_BF16];
    uint32_t w[VEC_BF16 / 4];
    UNROLL for (int e = 0; e < VEC_BF16; e++) f[e] = v[e] * factor;
    UNROLL for (int i = 0; i < VEC_BF16 / 4; i++)
    {
        const float *q = f + 4 * i;
        if (OUT == ACT_OUT_INT8_TOKEN)
            w[i] = ((uint32_t)f32_to_s8(q[0]) & 255) | ((uint32_t)f32_to_s8(q[1]) & 255) << 8 | ((uint32_t)f32_to_s8(q[2]) & 255) << 16 |
                   (uint32_t)f32_to_s8(q[3]) << 24;
        else if (FOUR_BITS)
            w[i] = f32_to_e2m1x2(q[0], q[1]).bits | (uint32_t)f32_to_e2m1x2(q[2], q[3]).bits << 8;
        else
            w[i] = f32_to_e4m3x4(q[0], q[1], q[2], q[3]);
    }
    if (FOUR_BITS) {
        UNROLL for (int i = 0; i < VEC_BF16 / 8; i++) w[i] = w[2 * i] | w[2 * i + 1] << 16;
    }
    char *to = (char *)row + (FOUR_BITS ? c / 2 : c);
    const int words = VEC_BF16 / (FOUR_BITS ? 8 : 4);
    if (words == 4) {
        u32x4 r = {{w[0], w[1 % (VEC_BF16 / 4)], w[2 % (VEC_BF16 / 4)], w[3 % (VEC_BF16 / 4)]}};
        st16(to, r);
    } else if (words == 2) {
        u32x2 r = {{w[0], w[1]}};
        st8(to, r);
    } else {
        st4(to, w[0]);
    }
}

KERNEL(act_rows, struct act_rows_params, p, TPR *RPB, 1)
{
    SHARED(float, part, WARPS);
    const uint32_t t = thread_x() % TPR, unit = block_x() * RPB + thread_x() / TPR;
    const uint32_t row = unit / PIECES, first = unit % PIECES * (TPR * PER) + t;
    grid_dependency_wait();
    vec x[PER], up[GATED ? PER : 1];
    UNROLL for (int i = 0; i < PER; i++)
    {
        uint32_t c = (first + i * TPR) * VEC_BF16;
        x[i] = vec_zero();
        if (GATED) up[i] = vec_zero();
        if (row < p.rows && c < N) {
            x[i] = vec_ld((const bf16 *)p.x + row * p.x_stride + c);
            if (GATED) up[i] = vec_ld_nc((const bf16 *)p.up + row * p.up_stride + c);
        }
    }
    float global = 0;
    if (OUT == ACT_OUT_E4M3_TENSOR || OUT == ACT_OUT_NVFP4) global = *(const float *)p.global;
    grid_dependency_launch();

    float v[PER][VEC_BF16], largest[PER];
    UNROLL for (int i = 0; i < PER; i++)
    {
        act_vector(&x[i], &up[GATED ? i : 0], v[i]);
        largest[i] = 0;
        UNROLL for (int e = 0; e < VEC_BF16; e++) largest[i] = max_f32(largest[i], abs_f32(v[i][e]));
        if (GROUP) largest[i] = warp_max_f32(largest[i], LANES);
    }
    if (TOKEN) {
        UNROLL for (int i = 1; i < PER; i++) largest[0] = max_f32(largest[0], largest[i]);
        largest[0] = warp_max_f32(largest[0], TPR < WARP ? TPR : WARP);
        if (TPR > WARP) {
            if (lane_id() == 0) part[warp_id()] = largest[0];
            block_sync();
            const float *mine = part + thread_x() / TPR * (TPR / WARP);
            UNROLL for (int i = 0; i < TPR / WARP; i++) largest[0] = max_f32(largest[0], mine[i]);
        }
    }
    UNROLL for (int i = 0; i < PER; i++)
    {
        uint32_t c = (first + i * TPR) * VEC_BF16, bits = 0;
        if (row >= p.rows || c >= N) continue;
        float factor = OUT == ACT_OUT_BF16 ? 1.0f : act_scale(largest[TOKEN ? 0 : i], global, &bits);
        act_store((char *)p.y + row * p.y_stride * (OUT == ACT_OUT_BF16 ? 4 : FOUR_BITS ? 1 : 2) / 2, c, v[i], factor);
        if (TOKEN && i == 0 && t == 0) ((uint32_t *)p.scale)[row * p.scale_row_stride] = bits;
        if (GROUP && t % LANES == 0) {
            uint32_t g = c / (GROUP ? GROUP : 1);
            int64_t at = TILED ? (int64_t)ACT_TILED_SCALE(row, g, N / (GROUP ? GROUP : 1)) : row * p.scale_row_stride + g * p.scale_group_stride;
            if (GROUP == 128) ((uint32_t *)p.scale)[at] = bits;
            else ((uint8_t *)p.scale)[at] = (uint8_t)bits;
        }
    }
}
