// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* Many tokens, second launch: a block a token reads the row once and writes it to its TOP_K places.
 * Constants: EXPERTS, TOP_K, HIDDEN, THREADS, OUT, BLOCK_TOKENS (tokens of a block of moe_route). */
#include "kernels/cuda/moe_rows.cuh"

#define EACH ((VECTORS + THREADS - 1) / THREADS)
#define DEEP (EACH < 4 ? EACH : 4) /* vectors a thread has in flight */

KERNEL(moe_copy, struct moe_dispatch_params, p, THREADS, 1)
{
    SHARED(int32_t, place, TOP_K);
    uint32_t t = block_x();
    grid_dependency_wait();
    grid_dependency_launch();
    if (t >= (uint32_t)p.tokens) return;
    const element *x = (const element *)p.x + (uint64_t)t * p.x_stride;
    vec v[DEEP];
    UNROLL for (uint32_t i = 0; i < DEEP; i++)
    {
        uint32_t at = i * THREADS + thread_x();
        v[i] = vec_zero();
        if (at < VECTORS) v[i] = ld16_nc(x + at * 8);
    }
    if (thread_x() < TOP_K) {
        uint32_t i = t * TOP_K + thread_x();
        int32_t id = ((const int32_t *)p.ids)[i], rank = ((const int32_t *)p.position)[i], at = -1;
        if (id >= 0)
            at =
                rank + ((const int32_t *)p.block_base)[(uint64_t)(t / BLOCK_TOKENS) * EXPERTS + (uint32_t)id];
        place[thread_x()] = at;
        ((int32_t *)p.position)[i] = at;
    }
    block_sync();
    for (uint32_t from = 0; from < VECTORS; from += DEEP * THREADS) {
        if (from > 0) UNROLL for (uint32_t i = 0; i < DEEP; i++)
            {
                uint32_t at = from + i * THREADS + thread_x();
                if (at < VECTORS) v[i] = ld16_nc(x + at * 8);
            }
        if (OUT != ACT_OUT_BF16) {
            UNROLL for (uint32_t i = 0; i < DEEP; i++)
            {
                uint32_t at = from + i * THREADS + thread_x();
                moe_put(&p, v[i], at, at < VECTORS, place, 0, 1);
            }
            continue;
        }
        UNROLL for (uint32_t j = 0; j < TOP_K; j++) /* a place after the other: whole rows */
        {
            int32_t row = place[j];
            UNROLL for (uint32_t i = 0; i < DEEP; i++)
            {
                uint32_t at = from + i * THREADS + thread_x();
                if (row >= 0 && at < VECTORS) st16((element *)p.rows + (uint64_t)(uint32_t)row * HIDDEN + at * 8, v[i]);
            }
        }
    }
}
