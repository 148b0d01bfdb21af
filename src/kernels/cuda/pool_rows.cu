// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* Pooling: one row a sequence out of its rows, the way each sequence asks for (Reimers & Gurevych 2019 and sentence-transformers'
 * Pooling: first, last, mean, weighted mean, max, sum over the root of the length).
 *
 * A block takes 128 bytes of columns of one sequence: LANES vectors beside each other, GROUPS groups of such lanes. Group g reads the
 * sequence's rows g, g + GROUPS, ... that count; the groups' sums meet by shuffles inside a warp, then in shared memory, always in
 * the same order: a text's bits depend on its own rows only, not on what lies beside it.
 *
 *     warp w:  lanes 0..7  rows 4w, 4w + GROUPS, ...     lanes 8..15  rows 4w + 1, ...     (LANES = 8)
 *
 * Constants: COLS VEC_BYTES LANES GROUPS PIECES (blocks a sequence) OUT_F32. */
#include "kernels/cuda/common/rose.cuh"
#include "kernels/cuda/common/vec.cuh"
#include "kernels/params/pool_rows.h"

#define THREADS (LANES * GROUPS)
#define WARPS (THREADS / WARP)
#define WIDTH (LANES * VEC_BF16) /* columns of a block */
#define AHEAD 4                  /* rows under way a thread */
STATIC_ASSERT(WIDTH % WARP == 0 && WIDTH <= THREADS && WARP % LANES == 0, "a thread ends with a column");

DEVICE float pool_meet(int32_t kind, float a, float b)
{
    return kind == POOL_MAX ? max_f32(a, b) : a + b;
}

DEVICE void pool_add(int32_t kind, float weight, const vec *x, float *sum)
{
    float f[VEC_BF16];
    vec_to_f32(x, f);
    UNROLL for (int e = 0; e < VEC_BF16; e++) sum[e] = kind == POOL_MAX ? max_f32(sum[e], f[e]) : fma_f32(weight, f[e], sum[e]);
}

/* What the sum is multiplied with; rows [first, n) count, and weigh their position from 1 in the weighted mean. */
DEVICE float pool_scale(int32_t kind, int32_t first, int32_t n)
{
    float count = (float)(n - first);
    if (kind == POOL_MEAN) return div_f32(1.0f, count);
    if (kind == POOL_MEAN_SQRT) return div_f32(1.0f, sqrt_f32(count));
    if (kind == POOL_WEIGHTED_MEAN) return div_f32(2.0f, count * ((float)first + (float)n + 1.0f));
    return 1.0f;
}

KERNEL(pool_rows, struct pool_rows_params, p, THREADS, 1)
{
    SHARED(float, part, WARPS *WIDTH);
    const uint32_t seq = block_x() / PIECES, lane = thread_x() % LANES, group = thread_x() / LANES;
    const uint32_t col0 = block_x() % PIECES * WIDTH, col = col0 + lane * VEC_BF16;
    grid_dependency_launch(); /* the next kernel asks for its weights meanwhile */
    grid_dependency_wait();
    if (seq >= p.seqs) return; /* the whole block */
    const int32_t row0 = ((const int32_t *)p.seq_rows)[seq], n = ((const int32_t *)p.seq_rows)[seq + 1] - row0;
    const int32_t kind = ((const int32_t *)p.kind)[seq], skip = ((const int32_t *)p.skip)[seq];
    int32_t first = skip < n ? skip : n - 1, end = n; /* a text that is all prompt: its last row */
    if (kind == POOL_LAST) first = n - 1;
    if (kind == POOL_CLS) end = first + 1;
    const bool there = n > 0 && col < COLS;
    const element *x = (const element *)p.x + row0 * p.x_stride + col;

    float sum[VEC_BF16];
    UNROLL for (int e = 0; e < VEC_BF16; e++) sum[e] = kind == POOL_MAX ? -INF_F32 : 0.0f;
    UNROLL_N(1) for (int32_t r0 = first + (int32_t)group; there && r0 < end; r0 += AHEAD * GROUPS)
    {
        vec v[AHEAD];
        UNROLL for (int i = 0; i < AHEAD; i++)
        {
            v[i] = vec_zero();
            if (r0 + i * GROUPS < end) v[i] = vec_ld(x + (r0 + i * GROUPS) * p.x_stride);
        }
        UNROLL for (int i = 0; i < AHEAD; i++)
        {
            int32_t r = r0 + i * GROUPS;
            if (r < end) pool_add(kind, kind == POOL_WEIGHTED_MEAN ? (float)(r + 1) : 1.0f, &v[i], sum);
        }
    }
    UNROLL for (uint32_t m = LANES; m < WARP; m *= 2)
        UNROLL for (int e = 0; e < VEC_BF16; e++) sum[e] = pool_meet(kind, sum[e], shuffle_xor_f32(FULL_WARP, sum[e], m, WARP));
    if (lane_id() < LANES) {
        UNROLL for (int e = 0; e < VEC_BF16; e++) part[warp_id() * WIDTH + lane * VEC_BF16 + e] = sum[e];
    }
    block_sync();
    const uint32_t at = col0 + thread_x();
    if (thread_x() >= WIDTH || at >= COLS) return;
    float y = part[thread_x()];
    UNROLL for (int w = 1; w < WARPS; w++) y = pool_meet(kind, y, part[w * WIDTH + thread_x()]);
    y = n > 0 ? y * pool_scale(kind, first, end) : 0.0f;
#if OUT_F32
    ((float *)p.y)[seq * p.y_stride + at] = y;
#else
    ((element *)p.y)[seq * p.y_stride + at] = f32_to_element(y);
#endif
}
