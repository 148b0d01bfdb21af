// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* The norms of norm_rows.cu for many rows: a block keeps taking every gridDim-th row and asks for the next one before it sums this
 * one, so that loads are under way while the block waits at its barrier, and weights are read once for all its rows.
 *
 *     registers    x, add of row i | x, add of row i + 1, under way | weight, bias as they lie in memory
 *
 * Thread t holds vectors t, t + TPR, ... of a row. One barrier a sum: the partial sums have two places, used in turn.
 *
 * Constants: N VEC_BYTES (16) TPR MIN_BLOCKS; LAYER ADD 0/1; WEIGHT BIAS bytes an element, 0: none; EPS OFFSET ALPHA as norm_rows.cu has
 * them; ACCUMULATE = OUT = 0; STREAM (vec.cuh). */
#include "kernels/cuda/norm.cuh"

#define VECTORS (N / VEC_BF16)
#define PER ((VECTORS + TPR - 1) / TPR)
#define WARPS (TPR / WARP)
#define PART ((WARPS + 3) / 4)
#define TABLE(bytes) ((bytes) == 4 ? 2 : 1) /* vectors of a table beside one of elements */

/* The sum over the block, in every thread. part: [PART], of this turn. */
DEVICE float norm_block_sum(float v, f32x4 *part)
{
    float s = warp_sum_f32(v, WARP);
    if (lane_id() == 0) ((float *)part)[warp_id()] = s;
    block_sync();
    s = 0;
    UNROLL for (int i = 0; i < WARPS / 4; i++)
    {
        u32x4 q = ld16(part + i);
        s += (f32_from_bits(q.v[0]) + f32_from_bits(q.v[1])) + (f32_from_bits(q.v[2]) + f32_from_bits(q.v[3]));
    }
    UNROLL for (int i = WARPS / 4 * 4; i < WARPS; i++) s += ((float *)part)[i];
    return s;
}
STATIC_ASSERT(VEC_BYTES == 16 && TPR % WARP == 0, "whole warps");

/* Row `row`'s vectors of this thread, if there is such a row. */
DEVICE void norm_ask(const struct norm_rows_params *p, uint32_t row, vec *x, vec *add)
{
    UNROLL for (int i = 0; i < PER; i++)
    {
        const uint32_t c = (thread_x() + i * TPR) * VEC_BF16;
        x[i] = vec_zero();
        if (ADD) add[i] = vec_zero();
        if (row < p->rows && c < N) {
            x[i] = STREAM & 1 ? ld16_policy((const element *)p->x + row * p->x_stride + c, l2_evict_first()) : ld16_early((const element *)p->x + row * p->x_stride + c);
            if (ADD) add[i] = vec_ld_nc_once((const element *)p->add + row * p->add_stride + c);
        }
    }
}
/* A table's vectors of this thread, as they lie there. */
DEVICE void norm_table(const void *table, int bytes, vec (*out)[2])
{
    UNROLL for (int i = 0; i < PER; i++)
        UNROLL for (int h = 0; h < TABLE(bytes); h++)
        {
            const uint32_t c = (thread_x() + i * TPR) * VEC_BF16;
            out[i][h] = vec_zero();
            if (c < N) out[i][h] = vec_ld_keep((const char *)table + (size_t)c * bytes + h * VEC_BYTES);
        }
}
DEVICE void norm_floats(vec *table, int bytes, float *out)
{
    vec_forget(&table[0]);
    if (bytes == 2) {
        vec_to_f32(&table[0], out);
        return;
    }
    vec_forget(&table[1]);
    UNROLL for (int i = 0; i < VEC_BF16; i++) out[i] = f32_from_bits(table[i / VEC_WORDS].v[i % VEC_WORDS]);
}

KERNEL(norm_ahead, struct norm_rows_params, p, TPR, MIN_BLOCKS)
{
    SHARED(f32x4, sums, 4 * PART);
    const uint32_t t = thread_x(), step = grid_dim_x();
    vec weight[WEIGHT ? PER : 1][2], bias[BIAS ? PER : 1][2], next[PER], next_add[PER];
    if (WEIGHT) norm_table(p.weight, WEIGHT, weight);
    if (BIAS) norm_table(p.bias, BIAS, bias);
    grid_dependency_launch();
    grid_dependency_wait();
    norm_ask(&p, block_x(), next, next_add);

    uint32_t turn = 0;
    UNROLL_N(1) for (uint32_t row = block_x(); row < p.rows; row += step)
    {
        vec x[PER];
        float sum = 0, mean = 0;
        UNROLL for (int i = 0; i < PER; i++)
        {
            x[i] = next[i];
            if (ADD) norm_add(&x[i], &next_add[i]);
            sum = norm_first(&x[i], sum);
        }
        norm_ask(&p, row + step, next, next_add);
        f32x4 *const part = sums + turn * 2 * PART;
        turn ^= 1;
        sum = norm_block_sum(sum, part);
        if (LAYER) {
            mean = sum * (1.0f / N);
            sum = 0;
            UNROLL for (int i = 0; i < PER; i++)
                if ((t + i * TPR) < VECTORS) sum = norm_second(&x[i], mean, sum);
            sum = norm_block_sum(sum, part + PART);
        }
        const float scale = rsqrt_approx(fma_f32(sum, 1.0f / N, EPS));
        UNROLL for (int i = 0; i < PER; i++)
        {
            const uint32_t c = (t + i * TPR) * VEC_BF16;
            float w[VEC_BF16], b[VEC_BF16], f[VEC_BF16];
            if (WEIGHT) norm_floats(weight[i], WEIGHT, w);
            if (BIAS) norm_floats(bias[i], BIAS, b);
            if (c >= N) continue;
            vec_forget(&x[i]);
            norm_values(&x[i], &x[i], w, b, mean, scale, f);
            if (ADD) vec_st_once((element *)p.x + row * p.x_stride + c, x[i]);
            vec_st_once((element *)p.y + row * p.y_stride + c, vec_from_f32(f));
        }
    }
}
