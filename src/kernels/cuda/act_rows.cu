// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* Activations and quantisers of rows of 16-bit elements, apart or fused: one read, one write.
 *
 *     v = act(min(x, clamp)) * (clamp(up) + UP_OFFSET)               GATED (gpt-oss clamps: CLAMP > 0, gate x sigmoid(ALPHA x))
 *     v = act(x)                                                     else
 *     y = OUT(v / scale), scale from the largest |v| of a group
 *
 * A block is RPB groups of TPR threads; a group takes one of the PIECES of a row, each of its warps PER times 32 vectors beside each
 * other, lane l the vectors l, l + 32, ... of them (fewer than 32 threads: as a warp of that many). A scale's elements are neighbours in a
 * warp: GROUP / VEC_BF16 lanes of one vector each, and the scales of a warp lie together (4 vectors a thread: 1024 elements, 32 bytes of
 * scales of 128 or 32), or for a row's scale the whole group of threads (PIECES = 1).
 *
 * Constants: N VEC_BYTES TPR RPB PER PIECES; ACT GATED CLAMP ALPHA UP_OFFSET; OUT SCALE_UP TILED; AHEAD: a grid of as many blocks as run at once, each with
 * its next unit under way (0 unless given); STREAM (vec.cuh). */
#include "kernels/cuda/act.cuh"
#include "kernels/cuda/quant.cuh"

#define VECTORS (N / VEC_BF16)
#define WARPS (TPR * RPB / 32)
#define SPAN (TPR < WARP ? TPR : WARP) /* threads whose vectors lie side by side */
#define STEP (SPAN * VEC_BF16)         /* elements from a thread's vector to its next one */
#define WHOLE (VECTORS % (TPR * PER) == 0)
#define THERE(i) (WHOLE || c + (i) * STEP < N)

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

/* Groups reduced at once. Every lane brings the largest of its vector of TOGETHER groups; each exchange halves the groups that a lane
 * goes on with, so that the first log2(TOGETHER) of them are also all the selection, and a lane ends with the one that it makes the
 * scale of:
 *
 *     lane of the LANES of a group     0 .. LANES/4-1   LANES/4 ..   LANES/2 ..   3 LANES/4 ..      (TOGETHER 4)
 *     its group, of vector                   0               1            2            3
 *
 * 1x128: 2 + 1 + 1 + 1 exchanges and 4 that hand the factors out, instead of 16; one division instead of 4. All lanes of the warp call. */
#define TOGETHER (LANES >= 4 && PER % 4 == 0 ? 4 : LANES >= 2 && PER % 2 == 0 ? 2 : 1)
#define QUANT_SHARE (LANES / TOGETHER) /* lanes that end with the same group */
DEVICE float quant_largest_together(const float *largest)
{
    float most[TOGETHER];
    UNROLL for (int i = 0; i < TOGETHER; i++) most[i] = largest[i];
    UNROLL for (int m = LANES / 2; m; m /= 2)
    {
        const int keep = m >= QUANT_SHARE ? m / QUANT_SHARE : 0; /* groups left after this exchange */
        const bool high = (lane_id() & (uint32_t)m) != 0;
        if (!keep) most[0] = max_f32(most[0], shuffle_xor_f32(FULL_WARP, most[0], (uint32_t)m, WARP));
        UNROLL for (int i = 0; i < keep; i++)
        {
            const float give = high ? most[i] : most[(i + keep) % TOGETHER], mine = high ? most[(i + keep) % TOGETHER] : most[i];
            most[i] = max_f32(mine, shuffle_xor_f32(FULL_WARP, give, (uint32_t)m, WARP));
        }
    }
    return most[0];
}
/* What the lanes made of vector i's group. */
DEVICE float quant_factor_of(float factor, int i)
{
    return LANES > 1 && TOGETHER > 1 ? shuffle_f32(FULL_WARP, factor, (uint32_t)(i * QUANT_SHARE), LANES) : factor;
}

/* The largest of a row's threads in this warp, as integers: neither negative nor NaN. */
DEVICE float quant_largest_warp(float largest)
{
    if (TPR >= WARP) return f32_from_bits(redux_max_u32(FULL_WARP, f32_bits(largest)));
    return warp_max_f32(largest, SPAN);
}

#ifndef AHEAD
#define AHEAD 0
#endif
/* Results that are the elements themselves. */
#define PLAIN (ACT == ACT_NONE && !GATED && CLAMP == 0.0f)

struct act_unit {
    vec x[PER], up[GATED ? PER : 1];
};
/* A piece of a row, of `unit`, as this thread holds it: its row and its first column. */
DEVICE uint32_t act_row(uint32_t unit)
{
    return unit / PIECES;
}
DEVICE uint32_t act_column(uint32_t unit)
{
    const uint32_t t = thread_x() % TPR;
    return (unit % PIECES * (TPR * PER) + t / SPAN * (SPAN * PER) + t % SPAN) * VEC_BF16;
}
DEVICE void act_load(const struct act_rows_params *p, uint32_t unit, struct act_unit *u)
{
    const uint32_t row = act_row(unit), c = act_column(unit);
    UNROLL for (int i = 0; i < PER; i++)
    {
        u->x[i] = vec_zero();
        if (GATED) u->up[i] = vec_zero();
        if (row < p->rows && THERE(i)) {
            u->x[i] = vec_ld_once((const element *)p->x + row * p->x_stride + c + i * STEP);
            if (GATED) u->up[i] = vec_ld_nc_once((const element *)p->up + row * p->up_stride + c + i * STEP);
        }
    }
}
DEVICE void act_finish(const struct act_rows_params *p, uint32_t unit, const struct act_unit *u, float global, float *part)
{
    const uint32_t t = thread_x() % TPR, row = act_row(unit), c = act_column(unit);
    const bool live = row < p->rows;
    float v[PER][VEC_BF16], largest[PER], factor[PER];
    UNROLL for (int i = 0; i < PER; i++)
    {
        act_vector(&u->x[i], &u->up[GATED ? i : 0], v[i]);
        if (TOKEN || GROUP) largest[i] = PLAIN ? quant_largest_elements(&u->x[i]) : quant_largest_vector(v[i]);
        factor[i] = OUT == ACT_OUT_E4M3_TENSOR ? rcp_f32(global) : 1.0f;
    }
    if (TOKEN) {
        UNROLL for (int i = 1; i < PER; i++) largest[0] = max_f32(largest[0], largest[i]);
        largest[0] = quant_largest_warp(largest[0]);
        if (TPR > WARP) {
            if (lane_id() == 0) part[warp_id()] = largest[0];
            block_sync();
            const float *mine = part + thread_x() / TPR * (TPR / WARP);
            UNROLL for (int i = 0; i < TPR / WARP; i++) largest[0] = max_f32(largest[0], mine[i]);
        }
        uint32_t bits = 0;
        factor[0] = quant_scale(largest[0], global, &bits);
        UNROLL for (int i = 1; i < PER; i++) factor[i] = factor[0];
        if (live && t == 0) quant_store_scale(p->scale, row, 0, p->scale_row_stride, p->scale_group_stride, bits);
    }
    if (GROUP) {
        UNROLL for (int i = 0; i < PER; i += TOGETHER)
        {
            uint32_t bits = 0;
            const float mine = quant_scale(quant_largest_together(largest + i), global, &bits);
            UNROLL for (int j = 0; j < TOGETHER; j++) factor[i + j] = quant_factor_of(mine, j);
            /* where the group begins that this lane made the scale of */
            const uint32_t at = c / (GROUP ? GROUP : 1) * GROUP + (i + t % LANES / QUANT_SHARE) * STEP;
            if (live && t % QUANT_SHARE == 0 && (WHOLE || at < N)) quant_store_scale(p->scale, row, at, p->scale_row_stride, p->scale_group_stride, bits);
        }
    }
    char *y = (char *)p->y + OUT_BYTES(row * p->y_stride);
    UNROLL for (int i = 0; i < PER; i++)
    {
        if (live && THERE(i)) quant_store(y, c + i * STEP, v[i], factor[i]);
    }
}

KERNEL(act_rows, struct act_rows_params, p, TPR *RPB, 1)
{
    SHARED(float, part, 2 * WARPS);
    uint32_t unit = block_x() * RPB + thread_x() / TPR;
    grid_dependency_launch(); /* the next kernel asks for its weights meanwhile */
    grid_dependency_wait();
    struct act_unit now;
    act_load(&p, unit, &now);
    float global = 0;
    if (OUT == ACT_OUT_E4M3_TENSOR || OUT == ACT_OUT_NVFP4) global = *(const float *)p.global;
#if AHEAD
    /* All threads of a block turn as often: they meet. A turn's maxima lie beside the last turn's, which others may still read. */
    uint32_t turn = 0;
    UNROLL_N(1) for (uint32_t first = block_x() * RPB; first < p.rows * PIECES; first += grid_dim_x() * RPB)
    {
        struct act_unit next;
        act_load(&p, unit + grid_dim_x() * RPB, &next);
        act_finish(&p, unit, &now, global, part + turn * WARPS);
        now = next, unit += grid_dim_x() * RPB, turn ^= 1;
    }
#else
    act_finish(&p, unit, &now, global, part);
#endif
}
