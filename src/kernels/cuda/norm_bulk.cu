// arch: sm_90a sm_100a sm_120a
/* The norms of norm_rows.cu for many rows: bulk copies bring whole rows into shared memory several rows ahead, so that bytes are
 * in flight whatever the reductions wait for. The grid is persistent, a block takes every gridDim-th row:
 *
 *     thread 0     x (and add) of row i + STAGES - 1 -> the stage that row i - 1 has left
 *     everybody    the row from its stage into registers, the sums over the block, y (and x) from registers to memory
 *
 * A stage is x, then add; thread t holds vectors t, t + THREADS, ... With STORE = 1 results go back into the stage (x' over x, y
 * over add, or over x where nothing is added), and thread 0 stores whole rows from there.
 *
 * Constants: N THREADS STAGES STORE; LAYER ADD WEIGHT BIAS EPS OFFSET ALPHA OUT SCALE_UP TILED as norm_rows.cu has them
 * (ACCUMULATE = 0); VEC_BYTES = 16, TPR = THREADS (quant.cuh); STREAM (vec.cuh), 0 where STORE. */
#include "kernels/cuda/common/tma.cuh"
#include "kernels/cuda/norm.cuh"

#define VECTORS (N / VEC_BF16)
#define PER ((VECTORS + THREADS - 1) / THREADS)
#define WARPS (THREADS / WARP)
#define PART_FLOATS ((WARPS + 3) / 4 * 4)
#define SLOT ((N * 2 + 127) / 128 * 128)
#define STAGE_BYTES (SLOT * (1 + ADD))
STATIC_ASSERT(!STORE || !STREAM, "the copy engine stores");

/* The sum over the block, in every thread. part: [PART_FLOATS], not read by an earlier sum's laggards. */
DEVICE float norm_block_sum(float v, float *part)
{
    float s = warp_sum_f32(v, WARP);
    if (lane_id() == 0) part[warp_id()] = s;
    block_sync();
    s = 0;
    UNROLL for (int i = 0; i < WARPS; i++) s += part[i];
    return s;
}
DEVICE float norm_block_max(float v, float *part)
{
    float s = warp_max_f32(v, WARP);
    if (lane_id() == 0) part[warp_id()] = s;
    block_sync();
    s = 0;
    UNROLL for (int i = 0; i < WARPS; i++) s = max_f32(s, part[i]);
    return s;
}

DEVICE void norm_load(const struct norm_rows_params *p, unsigned char *stage, mbarrier *full, uint32_t row)
{
    mbarrier_arrive_expect(full, N * 2 * (1 + ADD));
    bulk_load(stage, (const element *)p->x + row * p->x_stride, N * 2, full, l2_evict_first());
    if (ADD) bulk_load(stage + SLOT, (const element *)p->add + row * p->add_stride, N * 2, full, l2_evict_first());
}

/* Weights and biases of the thread's vectors, once for all its rows. */
DEVICE void norm_tables(const struct norm_rows_params *p, float weight[PER][VEC_BF16], float bias[PER][VEC_BF16])
{
    UNROLL for (int i = 0; i < PER; i++)
    {
        uint32_t c = (thread_x() + i * THREADS) * VEC_BF16;
        UNROLL for (int e = 0; e < VEC_BF16; e++) weight[i][e] = 0, bias[i][e] = 0;
        if (WEIGHT && c < N) vec_ld_table(p->weight, c, WEIGHT, weight[i]);
        if (BIAS && c < N) vec_ld_table(p->bias, c, BIAS, bias[i]);
    }
}

KERNEL(norm_bulk, struct norm_rows_params, p, THREADS, 1)
{
    SHARED(mbarrier, full, STAGES);
    SHARED(f32x4, sums, 2 * 3 * PART_FLOATS / 4);
    const uint32_t t = thread_x(), step = grid_dim_x();
    unsigned char *const stages = dynamic_shared();
    if (t == 0) {
        for (int s = 0; s < STAGES; s++) mbarrier_init(&full[s], 1);
        fence_mbarrier_init();
    }
    block_sync();
    float weight[PER][VEC_BF16], bias[PER][VEC_BF16];
    norm_tables(&p, weight, bias);
    grid_dependency_launch();
    grid_dependency_wait();
    if (t == 0)
        for (uint32_t s = 0; s < STAGES - STORE; s++)
            if (block_x() + s * step < p.rows) norm_load(&p, stages + s * STAGE_BYTES, &full[s], block_x() + s * step);
    float global = 0;
    if (OUT == ACT_OUT_E4M3_TENSOR || OUT == ACT_OUT_NVFP4) global = *(const float *)p.global;

    uint32_t stage = 0, phase = 0, turn = 0;
    UNROLL_N(1) for (uint32_t row = block_x(); row < p.rows; row += step)
    {
        unsigned char *const at = stages + stage * STAGE_BYTES;
        float *const part = (float *)(sums + turn * 3 * (PART_FLOATS / 4));
        vec x[PER];
        float sum = 0, mean = 0;
        mbarrier_wait(&full[stage], phase);
        UNROLL for (int i = 0; i < PER; i++)
        {
            uint32_t c = (t + i * THREADS) * VEC_BF16;
            x[i] = vec_zero();
            if (c >= N) continue;
            x[i] = vec_ld((const element *)at + c);
            if (ADD) {
                vec add = vec_ld((const element *)(at + SLOT) + c);
                norm_add(&x[i], &add);
            }
            sum = norm_first(&x[i], sum);
        }
        sum = norm_block_sum(sum, part); /* everybody has read the stage */
        if (!STORE && t == 0 && row + STAGES * step < p.rows) norm_load(&p, at, &full[stage], row + STAGES * step);
        if (LAYER) {
            mean = sum * (1.0f / N);
            sum = 0;
            UNROLL for (int i = 0; i < PER; i++)
                if ((t + i * THREADS) * VEC_BF16 < N) sum = norm_second(&x[i], mean, sum);
            sum = norm_block_sum(sum, part + PART_FLOATS);
        }
        const float scale = rsqrt_approx(fma_f32(sum, 1.0f / N, EPS));
        float v[TOKEN ? PER : 1][VEC_BF16], largest = 0, factor = 1;
        uint32_t bits = 0;
        char *const y = STORE ? (char *)at + (ADD ? SLOT : 0) : (char *)p.y + OUT_BYTES(row * p.y_stride);
        UNROLL for (int i = 0; i < PER; i++)
        {
            const uint32_t c = (t + i * THREADS) * VEC_BF16;
            const bool live = c < N;
            float *f = v[TOKEN ? i : 0];
            norm_values(&x[i], &x[i], weight[i], bias[i], mean, scale, f);
            if (ADD && live && STORE) vec_st((element *)at + c, x[i]);
            if (ADD && live && !STORE) vec_st_once((element *)p.x + row * p.x_stride + c, x[i]);
            if (TOKEN) {
                if (live) largest = max_f32(largest, quant_largest(f));
                continue;
            }
            float most = GROUP ? quant_largest(f) : 0.0f;
            if (OUT != ACT_OUT_BF16) factor = quant_scale(most, global, &bits);
            if (live) quant_store(y, c, f, factor);
            if (live && GROUP && t % LANES == 0) quant_store_scale(p.scale, row, c, p.scale_row_stride, p.scale_group_stride, bits);
        }
        if (TOKEN) {
            largest = norm_block_max(largest, part + 2 * PART_FLOATS);
            factor = quant_scale(largest, global, &bits);
            UNROLL for (int i = 0; i < PER; i++)
            {
                uint32_t c = (t + i * THREADS) * VEC_BF16;
                if (c < N) quant_store(y, c, v[TOKEN ? i : 0], factor);
            }
            if (t == 0) quant_store_scale(p.scale, row, 0, p.scale_row_stride, p.scale_group_stride, bits);
        }
        if (STORE) {
            fence_proxy_async();
            block_sync();
            if (t == 0) {
                if (ADD) bulk_store((element *)p.x + row * p.x_stride, at, N * 2);
                bulk_store((char *)p.y + OUT_BYTES(row * p.y_stride), y, OUT_BYTES(N));
                bulk_commit();
                bulk_wait_read(1); /* the row before has left its stage */
                const uint32_t next = row + (STAGES - 1) * step, to = stage ? stage - 1 : STAGES - 1;
                if (next < p.rows) norm_load(&p, stages + to * STAGE_BYTES, &full[to], next);
            }
        }
        turn ^= 1;
        if (++stage == STAGES) stage = 0, phase ^= 1;
    }
    if (STORE && t == 0) bulk_wait_read(0);
}
