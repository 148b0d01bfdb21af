// arch: sm_90a
/* y = x W^T for few rows of x and weights of e4m3 with scales on Hopper: codes stream through a ring in shared memory, as in gemv_wgmma.cu
 * (runs of units, groups of N rows of x, sums that meet in `work`). A box is 64 MG weight rows by 128 of k, the width of a block of scales.
 *
 *     A8 0: x is bf16. A warp makes its 16 weight rows' codes bf16 operands of mma.sync (exact) and multiplies them with x's rows, which
 *           lie in two boxes of 64 of k beside them: no activation is rounded
 *     A8 1: x is e4m3 with scales. A warpgroup's 64 weight rows are the A operand of wgmma, x's rows its columns
 *
 *     A8 0: lane (q, c) takes k 8c .. 8c + 7 of 32 of weight rows q and q + 8, and of row q / 2 + q % 2 * 4 of x: swizzled, eight lanes
 *     then read all banks. The k of an instruction come in another order than they lie, in both operands alike
 *
 * Either way d[4 j + e], d[4 j + 2 + e] are rows 8 j + GEMV_ROW(c, e) of x with weight rows q and q + 8 of the warp's sixteen. FP8_BLOCKS: the
 * sums of a box are multiplied with the scale of its 128 x 128 block (A8: and of x's row) and added in float32. FP8_CHANNELS: A8 1 adds boxes
 * in float32 too; the scales multiply whole tiles.
 *
 *     stage: w [KB][64 MG][128] codes, x [KB][N][128] codes or [KB][2][N][64] bf16, rows of 128 bytes, swizzled by TMA;
 *            A8 and FP8_BLOCKS: f32 scales of x [KB][N], in 1024 bytes
 *
 * Constants: N (8 .. 64), MG (1, 2), KB, STAGES, PARTS, A8, SCALES; those of gemm_epilogue.cuh. */
#define CLUSTER 0
#define GEMV_BOX 128
#if !A8
#define GEMV_ROW(c, e) FP8_X_ROW(c, e)
#endif
#define NORM 0
#define CONSUMERS (128 * MG)
#define THREADS (CONSUMERS + 32)
#define ROWS (64 * MG)
#define COLUMNS (ROWS / (1 + GATED))
#define W_BYTES (ROWS * 128)
#define X_BYTES (N * (A8 ? 128 : 256))
#define SCALES_BYTES (A8 && SCALES == FP8_BLOCKS ? 1024 : 0)
#define STAGE_BYTES (KB * (W_BYTES + X_BYTES) + SCALES_BYTES)
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/fp8_unit.cuh"
#include "kernels/cuda/gemv_runs.cuh"

STATIC_ASSERT(KB * N * 4 <= 1024, "a stage's scales");

#define MULTIPLY_(N, d, a, b, acc) wgmma_e4m3_ss(N, d, a, b, acc)
#define MULTIPLY(N, d, a, b, acc) MULTIPLY_(N, d, a, b, acc)

/* Bytes of the scales of a group's rows in one box. */
DEVICE uint32_t ring_scales_bytes(const struct gemm_fp8_scales *s, uint32_t row)
{
    return SCALES_BYTES ? min_u32((uint32_t)s->x_stride - row, N) * 4 : 0;
}
DEVICE void gemv_load_x(const struct gemm_wgmma_params *p, const struct gemm_fp8_scales *s, unsigned char *stage, uint32_t row, uint32_t chunk,
                        mbarrier *full, uint64_t policy)
{
    UNROLL for (uint32_t b = 0; b < KB; b++)
    {
        const uint32_t box = chunk * KB + b;
        unsigned char *to = stage + KB * W_BYTES + b * X_BYTES;
        UNROLL for (uint32_t h = 0; h < 2 - A8; h++)
            tma_load_2d(to + h * (N * 128), &p->x, (int32_t)((box * (2 - A8) + h) * 64), (int32_t)row, full, policy);
        if (SCALES_BYTES) /* a box behind k has codes of zero */
            bulk_load(stage + KB * (W_BYTES + X_BYTES) + b * (N * 4), (const float *)s->x + (size_t)min_u32(box, s->k_blocks - 1) * (size_t)s->x_stride + row,
                      ring_scales_bytes(s, row), full, policy);
    }
}

/* By wgmma. w: this warpgroup's 64 rows. */
DEVICE void ring_multiply(float part[N / 2], const unsigned char *w, const unsigned char *x)
{
    const uint64_t da = wgmma_desc(w, 16, 1024, 128), db = wgmma_desc(x, 16, 1024, 128);
    wgmma_pin(part, N / 2);
    wgmma_fence();
    UNROLL for (uint32_t k = 0; k < 4; k++) MULTIPLY(N, part, da + k * 2, db + k * 2, k != 0);
    wgmma_commit();
    wgmma_wait(0);
    wgmma_pin(part, N / 2);
}

/* A unit that has arrived: d += its products. scales: of this tile's blocks of 32 boxes, a lane each; box: the unit's first, of those. */
DEVICE void ring_unit(float d[N / 2], const unsigned char *stage, const float scales[1 + GATED], uint32_t box)
{
    const uint32_t warp = warp_id(), c = lane_id() % 4;
    UNROLL for (uint32_t b = 0; b < KB; b++)
    {
        const unsigned char *w = stage + b * W_BYTES + (A8 ? warp / 4 * (64 * 128) : warp * (16 * 128)), *x = stage + KB * W_BYTES + b * X_BYTES;
        float part[N / 2], s[2] = {1, 1};
        UNROLL for (uint32_t i = 0; i < N / 2; i++) part[i] = A8 || SCALES == FP8_BLOCKS ? 0.0f : d[i];
        UNROLL for (uint32_t i = 0; i < 2 && SCALES == FP8_BLOCKS; i++) s[i] = shuffle_f32(FULL_WARP, scales[GATED ? i : 0], box + b, WARP);
        if (A8)
            ring_multiply(part, w, x);
        else
            fp8_widen(part, w, x);
        UNROLL for (uint32_t j = 0; j < N / 8; j++)
        {
            float of_x[2] = {1, 1};
            if (SCALES_BYTES) {
                const u32x2 two = ld8(stage + KB * (W_BYTES + X_BYTES) + (b * N + j * 8 + c * 2) * 4);
                UNROLL for (uint32_t e = 0; e < 2; e++) of_x[e] = f32_from_bits(two.v[e]);
            }
            UNROLL for (uint32_t i = 4 * j; i < 4 * j + 4; i++)
                d[i] = SCALES == FP8_BLOCKS ? fma_f32(of_x[i % 2] * s[i / 2 % 2], part[i], d[i]) : A8 ? d[i] + part[i] : part[i];
        }
    }
}

/* FP8_CHANNELS: a whole tile's sums, times their scales. */
DEVICE void ring_channels(const struct gemm_fp8_wgmma_params *p, uint32_t tile, uint32_t first_row, float d[N / 2])
{
    const uint32_t part = gemv_part_of(&p->t.g, tile), col = (tile - (uint32_t)p->t.g.part[part].tile) * COLUMNS + warp_id() * (16 / (1 + GATED)) + lane_id() / 4;
    const float lo = fp8_channel_scale(&p->s, &p->t.g, part, col), hi = fp8_channel_scale(&p->s, &p->t.g, part + GATED, GATED ? col : col + 8);
    UNROLL for (uint32_t i = 0; i < N / 2; i++)
    {
        const uint32_t row = min_u32(first_row + i / 4 * 8 + GEMV_ROW(lane_id() % 4, i % 2), p->t.g.rows - 1);
        d[i] *= (i / 2 % 2 ? hi : lo) * (A8 ? ((const float *)p->s.x)[row] : 1.0f);
    }
}

/* Scales of the tile's block in 32 boxes from `box` on, a lane each. */
DEVICE void ring_scales(const struct gemm_fp8_wgmma_params *p, uint32_t tile, uint32_t box, float out[1 + GATED])
{
    const uint32_t part = gemv_part_of(&p->t.g, tile), col = (tile - (uint32_t)p->t.g.part[part].tile) * COLUMNS;
    UNROLL for (uint32_t i = 0; i < 1 + GATED; i++) out[i] = fp8_block_scale(&p->s, part + i, col, min_u32(box + lane_id(), p->s.k_blocks - 1));
}

DEVICE void ring_consume(const struct gemm_fp8_wgmma_params *p, unsigned char *stages, mbarrier *full, mbarrier *empty, struct gemv_run run, uint32_t group,
                         uint32_t block, uint32_t *last)
{
    uint32_t stage = 0, phase = 0;
    bool waited = false;
    for (uint32_t unit = run.begin; unit < run.end;) {
        const uint32_t tile = unit / run.len, from = unit % run.len, to = min_u32(run.len, from + run.end - unit);
        float d[N / 2], old[N / 2], scales[1 + GATED] = {0};
        UNROLL for (uint32_t i = 0; i < N / 2; i++) d[i] = 0;
        if (SCALES == FP8_BLOCKS) ring_scales(p, tile, from * KB, scales);
        if (!waited) grid_dependency_wait(); /* y, work and scales of x may be a predecessor's */
        waited = true;
        if (ACCUMULATE) gemv_results(&p->t.g, tile, group * N, d, old, false);
        for (uint32_t s = from; s < to; s++) {
            const uint32_t box = (s - from) * KB % WARP;
            if (SCALES == FP8_BLOCKS && s > from && box == 0) ring_scales(p, tile, s * KB, scales);
            mbarrier_wait(&full[stage], phase);
            ring_unit(d, stages + stage * STAGE_BYTES, scales, box);
            warp_sync(FULL_WARP);
            if (lane_id() == 0) mbarrier_arrive(&empty[stage]);
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
        const bool done = (from == 0 && to == run.len) || gemv_merge(&p->t.g, group, block, tile, run.len, d, last);
        if (done && SCALES == FP8_CHANNELS) ring_channels(p, tile, group * N, d);
        if (done) gemv_results(&p->t.g, tile, group * N, d, old, true);
        unit += to - from;
    }
}

KERNEL(gemv_fp8_ring, struct gemm_fp8_wgmma_params, p, THREADS, 1)
{
    unsigned char *stages = dynamic_shared();
    mbarrier *full = (mbarrier *)(stages + STAGES * STAGE_BYTES), *empty = full + STAGES;
    const uint32_t group = block_x() / p.t.g.blocks, block = block_x() % p.t.g.blocks;
    const struct gemv_run run = gemv_run_of(&p.t.g, block);
    if (SCALES_BYTES) { /* rows of the group beyond the last have sums too, and no scales are brought for them */
        for (uint32_t i = thread_x(); i < STAGES * (SCALES_BYTES / 4); i += THREADS)
            st4(stages + i / (1024 / 4) * STAGE_BYTES + KB * (W_BYTES + X_BYTES) + i % (1024 / 4) * 4, 0);
        fence_proxy_async();
    }
    if (thread_x() == CONSUMERS) {
        tma_prefetch_map(&p.t.x);
        tma_prefetch_map(&p.t.w[0]);
    }
    if (thread_x() == 0) {
        UNROLL for (uint32_t s = 0; s < STAGES; s++)
        {
            mbarrier_init(&full[s], 1);
            mbarrier_init(&empty[s], 4 * MG);
        }
        fence_mbarrier_init();
    }
    block_sync();
    grid_dependency_launch();
    if (thread_x() < CONSUMERS)
        ring_consume(&p, stages, full, empty, run, group, block, (uint32_t *)(empty + STAGES));
    else if (lane_id() == 0)
        gemv_produce(&p.t, &p.s, stages, full, empty, run, group * N, KB * (W_BYTES + X_BYTES + ring_scales_bytes(&p.s, group * N)));
}
