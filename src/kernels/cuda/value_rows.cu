// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* Small element-wise ops on rows of 16-bit elements: gather (token embedding, rows to be sampled), logits soft cap, add, and a gate a row.
 *
 * A block is RPB groups of TPR threads; a group takes one of the PIECES of a row, PER vectors a thread, TPR apart.
 *
 * Constants: N VEC_BYTES TPR RPB PER PIECES; OP SCALE CAP; ACC (gather adds), F32 (soft cap: logits are f32; row gate: the
 * gate is). */
#include "kernels/cuda/common/rose.cuh"
#include "kernels/cuda/common/vec.cuh"
#include "kernels/params/value_rows.h"

DEVICE float value_one(float x, float y, float gate)
{
    if (OP == VALUE_SOFTCAP && CAP > 0.0f) return CAP * tanh_f32(SCALE * x * (1.0f / (CAP > 0.0f ? CAP : 1.0f)));
    if (OP == VALUE_ADD || (OP == VALUE_GATHER && ACC)) return fma_f32(SCALE, x, y);
    if (OP == VALUE_ROW_GATE) return y * gate;
    return SCALE * x;
}

#if F32 && OP == VALUE_SOFTCAP
#define LANES VEC_WORDS /* elements a vector */
#else
#define LANES VEC_BF16
#endif

KERNEL(value_rows, struct value_rows_params, p, TPR *RPB, 1)
{
    const uint32_t t = thread_x() % TPR, unit = block_x() * RPB + thread_x() / TPR;
    const uint32_t row = unit / PIECES, first = unit % PIECES * (TPR * PER) + t;
    grid_dependency_launch(); /* the next kernel asks for its weights meanwhile */
    grid_dependency_wait();
    int64_t from = row;
    float gate = 0;
    bool live = row < p.rows, there = live;
    if (OP == VALUE_GATHER && live) {
        from = (int64_t)((const int32_t *)p.index)[row] + p.index_offset;
        there = from >= 0 && from < (int64_t)p.x_rows;
    }
    if (OP == VALUE_ROW_GATE && live)
        gate = rcp_approx(1.0f + exp_approx(F32 ? -((const float *)p.x)[row * p.x_stride] : -element_to_f32(((const element *)p.x)[row * p.x_stride])));
    vec x[PER], y[PER];
    const bool old = OP == VALUE_ADD || OP == VALUE_ROW_GATE || (OP == VALUE_GATHER && ACC);
    const int bytes = LANES == VEC_BF16 ? 2 : 4;
    UNROLL for (int i = 0; i < PER; i++)
    {
        uint32_t c = (first + i * TPR) * LANES;
        x[i] = y[i] = vec_zero();
        if (OP != VALUE_ROW_GATE && there && c < N) x[i] = vec_ld((const char *)p.x + (from * p.x_stride + c) * bytes);
        if (old && live && c < N) y[i] = vec_ld((const char *)p.y + (row * p.y_stride + c) * bytes);
    }
    UNROLL for (int i = 0; i < PER; i++)
    {
        uint32_t c = (first + i * TPR) * LANES;
#if F32 && OP == VALUE_SOFTCAP
        UNROLL for (int e = 0; e < LANES; e++) x[i].v[e] = f32_bits(value_one(f32_from_bits(x[i].v[e]), 0.0f, 0.0f));
        if (live && c < N) vec_st((char *)p.y + (row * p.y_stride + c) * 4, x[i]);
#else
        float a[VEC_BF16], b[VEC_BF16];
        vec_to_f32(&x[i], a);
        vec_to_f32(&y[i], b);
        UNROLL for (int e = 0; e < VEC_BF16; e++) a[e] = value_one(a[e], b[e], gate);
        if (live && c < N) vec_st((element *)p.y + row * p.y_stride + c, vec_from_f32(a));
#endif
    }
}
