// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* Small element-wise ops on bf16 rows: gather (token embedding, rows to be sampled), logits soft cap, add, and a gate a row.
 *
 * A block is RPB groups of TPR threads; a group takes one of the PIECES of a row, PER vectors a thread, TPR apart.
 *
 * Constants: N VEC_BYTES TPR RPB PER PIECES; OP SCALE CAP. */
#include "kernels/cuda/common/rose.cuh"
#include "kernels/cuda/common/vec.cuh"
#include "kernels/params/value_rows.h"

DEVICE float value_one(float x, float y, float gate)
{
    if (OP == VALUE_SOFTCAP && CAP > 0.0f) return CAP * tanh_f32(SCALE * x * (1.0f / (CAP > 0.0f ? CAP : 1.0f)));
    if (OP == VALUE_ADD) return fma_f32(SCALE, x, y);
    if (OP == VALUE_ROW_GATE) return y * gate;
    return SCALE * x;
}

KERNEL(value_rows, struct value_rows_params, p, TPR *RPB, 1)
{
    const uint32_t t = thread_x() % TPR, unit = block_x() * RPB + thread_x() / TPR;
    const uint32_t row = unit / PIECES, first = unit % PIECES * (TPR * PER) + t;
    grid_dependency_wait();
    int64_t from = row;
    float gate = 0;
    bool live = row < p.rows, there = live;
    if (OP == VALUE_GATHER && live) {
        from = ((const int32_t *)p.index)[row];
        there = from >= 0 && from < (int64_t)p.x_rows;
    }
    if (OP == VALUE_ROW_GATE && live)
        gate = rcp_approx(1.0f + exp_approx(-bf16_to_f32(((const bf16 *)p.x)[row * p.x_stride])));
    vec x[PER], y[PER];
    UNROLL for (int i = 0; i < PER; i++)
    {
        uint32_t c = (first + i * TPR) * VEC_BF16;
        x[i] = y[i] = vec_zero();
        if (OP != VALUE_ROW_GATE && there && c < N) x[i] = vec_ld((const bf16 *)p.x + from * p.x_stride + c);
        if ((OP == VALUE_ADD || OP == VALUE_ROW_GATE) && live && c < N) y[i] = vec_ld((const bf16 *)p.y + row * p.y_stride + c);
    }
    grid_dependency_launch();
    UNROLL for (int i = 0; i < PER; i++)
    {
        uint32_t c = (first + i * TPR) * VEC_BF16;
        float a[VEC_BF16], b[VEC_BF16];
        vec_to_f32(&x[i], a);
        vec_to_f32(&y[i], b);
        UNROLL for (int e = 0; e < VEC_BF16; e++) a[e] = value_one(a[e], b[e], gate);
        if (live && c < N) vec_st((bf16 *)p.y + row * p.y_stride + c, vec_from_f32(a));
    }
}
