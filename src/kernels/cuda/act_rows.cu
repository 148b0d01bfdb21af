// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* Activations and quantisers of rows of 16-bit elements, apart or fused: one read, one write.
 *
 *     v = act(min(x, clamp)) * (clamp(up) + UP_OFFSET)               GATED (gpt-oss clamps: CLAMP > 0, gate x sigmoid(ALPHA x))
 *     v = act(x)                                                     else
 *     y = OUT(v / scale), scale from the largest |v| of a group
 *
 * A block is RPB groups of TPR threads; a group takes one of the PIECES of a row: thread t holds vectors t, t + TPR, ... of the
 * piece. A scale's elements are neighbours in a warp: GROUP / VEC_BF16 lanes of one vector each, or for a row's scale the whole
 * group of threads (PIECES = 1).
 *
 * Constants: N VEC_BYTES TPR RPB PER PIECES; ACT GATED CLAMP ALPHA UP_OFFSET; OUT SCALE_UP TILED; STREAM (vec.cuh). */
#include "kernels/cuda/act.cuh"
#include "kernels/cuda/quant.cuh"

#define VECTORS (N / VEC_BF16)
#define WARPS (TPR * RPB / 32)

DEVICE void act_vector(const vec *x, const vec *up, float *v)
{
    vec_to_f32(x, v);
    if (CLAMP > 0.0f) {
        UNROLL for (int e = 0; e < VEC_BF16; e++) v[e] = min_f32(v[e], CLAMP);
    }
    UNROLL for (int e = 0; e < VEC_BF16; e++) v[e] = act_value(ACT, ALPHA, v[e]);
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

KERNEL(act_rows, struct act_rows_params, p, TPR *RPB, 1)
{
    SHARED(float, part, WARPS);
    const uint32_t t = thread_x() % TPR, unit = block_x() * RPB + thread_x() / TPR;
    const uint32_t row = unit / PIECES, first = unit % PIECES * (TPR * PER) + t;
    grid_dependency_launch(); /* the next kernel asks for its weights meanwhile */
    grid_dependency_wait();
    vec x[PER], up[GATED ? PER : 1];
    UNROLL for (int i = 0; i < PER; i++)
    {
        uint32_t c = (first + i * TPR) * VEC_BF16;
        x[i] = vec_zero();
        if (GATED) up[i] = vec_zero();
        if (row < p.rows && c < N) {
            x[i] = vec_ld_once((const element *)p.x + row * p.x_stride + c);
            if (GATED) up[i] = vec_ld_nc_once((const element *)p.up + row * p.up_stride + c);
        }
    }
    float global = 0;
    if (OUT == ACT_OUT_E4M3_TENSOR || OUT == ACT_OUT_NVFP4) global = *(const float *)p.global;

    float v[PER][VEC_BF16], largest[PER];
    UNROLL for (int i = 0; i < PER; i++)
    {
        act_vector(&x[i], &up[GATED ? i : 0], v[i]);
        largest[i] = quant_largest(v[i]);
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
        float factor = OUT == ACT_OUT_BF16 ? 1.0f : quant_scale(largest[TOKEN ? 0 : i], global, &bits);
        quant_store((char *)p.y + OUT_BYTES(row * p.y_stride), c, v[i], factor);
        if ((TOKEN && i == 0 && t == 0) || (GROUP && t % LANES == 0))
            quant_store_scale(p.scale, row, c, p.scale_row_stride, p.scale_group_stride, bits);
    }
}
