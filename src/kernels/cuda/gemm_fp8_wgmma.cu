// arch: sm_90a
/* y = x W^T by wgmma of e4m3 for many rows (Hopper), both operands with scales: gemm_wgmma.cu's persistent loop and producer, tiles of
 * 128 rows x 128 weight rows, k in steps of 128 codes.
 *
 * The tensor cores add e4m3 products with fewer bits than float32 has (DeepSeek-V3 technical report, 3.3.2), and block scales change
 * every 128 of k. So a consumer lets four instructions (128 of k) run into sums of their own, waits, and adds them in float32, each times
 * scale of the row x scale of the block (FP8_BLOCKS). While one consumer adds, the other's instructions keep the tensor cores busy: of
 * 64 x 128 x 128 they take 256 clocks, the additions about 100 of a scheduler's. FP8_CHANNELS: sums are added as they are, and scaled at
 * the end.
 *
 *     scales of x: [k block][x_stride], so that a warp's rows lie side by side; those of the next step are asked for before this one's
 *     sums are waited for
 *
 * Constants: BN (128), STAGES, CLUSTER (1), RASTER, SCALES; those of gemm_epilogue.cuh, PARTS. */
#define STAGED 0
#include "kernels/cuda/fp8.cuh"
#include "kernels/cuda/gemm_wgmma.cuh"

STATIC_ASSERT(BN == 128 && CLUSTER == 1, "a block of scales is a tile's columns");

/* What a thread multiplies the sums of a step with: its two rows', and the block's of the weights. */
struct fp8_scales {
    float x[2], w[1 + GATED];
};

DEVICE struct fp8_scales fp8_scales_of(const struct gemm_fp8_wgmma_params *p, const struct wgmma_tile *t, uint32_t row, uint32_t step)
{
    struct fp8_scales s;
    UNROLL for (uint32_t h = 0; h < 2; h++)
        s.x[h] = ((const float *)p->s.x)[(size_t)step * (size_t)p->s.x_stride + min_u32(row + h * 8, p->t.g.rows - 1)];
    UNROLL for (uint32_t i = 0; i < 1 + GATED; i++) s.w[i] = SCALES == FP8_BLOCKS ? fp8_block_scale(&p->s, t->part + i, t->col, step) : 1.0f;
    return s;
}

DEVICE void fp8_promote(float d[BN / 2], const float step[BN / 2], const struct fp8_scales *s)
{
    UNROLL for (uint32_t i = 0; i < BN / 2; i++)
        d[i] = SCALES == FP8_BLOCKS ? fma_f32(s->x[i / 2 % 2] * s->w[GATED && i >= BN / 4], step[i], d[i]) : d[i] + step[i];
}

DEVICE void fp8_channels(const struct gemm_fp8_wgmma_params *p, const struct wgmma_tile *t, uint32_t row, float d[BN / 2])
{
    const struct fp8_scales s = fp8_scales_of(p, t, row, 0);
    UNROLL for (uint32_t j = 0; j < BN / 8; j++)
        UNROLL for (uint32_t e = 0; e < 2; e++)
        {
            const uint32_t up = GATED && j >= BN / 16, col = t->col + (j - (up ? BN / 16 : 0)) * 8 + lane_id() % 4 * 2 + e;
            const float w = fp8_channel_scale(&p->s, &p->t.g, t->part + up, col);
            d[j * 4 + e] *= s.x[0] * w, d[j * 4 + 2 + e] *= s.x[1] * w;
        }
}

DEVICE void fp8_consume(const struct gemm_fp8_wgmma_params *p, const struct wgmma_block *b, uint32_t group, uint32_t steps)
{
    uint32_t stage = 0, phase = 0;
    float d[BN / 2], part[BN / 2];
    for (uint32_t i = b->first; i < b->count; i += b->stride) {
        const struct wgmma_tile t = wgmma_tile_of(&p->t.g, i);
        const uint32_t row = t.row + group * 64 + warp_id() % 4 * 16 + lane_id() / 4;
        UNROLL for (uint32_t e = 0; e < BN / 2; e++) d[e] = 0;
        if (i == b->first) grid_dependency_wait(); /* the predecessor writes the scales of x; y may be what it wrote */
        struct fp8_scales scales = fp8_scales_of(p, &t, row, 0);
        for (uint32_t s = 0; s < steps; s++) {
            const unsigned char *x = b->stages + stage * STAGE_BYTES + group * (64 * BK * 2), *w = b->stages + stage * STAGE_BYTES + X_BYTES;
            mbarrier_wait(&b->full[stage], phase);
            const uint64_t da = wgmma_desc(x, 16, 1024, 128), db = wgmma_desc(w, 16, 1024, 128);
            wgmma_pin(part, BN / 2);
            wgmma_fence();
            UNROLL for (uint32_t k = 0; k < BK / 16; k++) wgmma_e4m3_ss(128, part, da + k * 2, db + k * 2, k != 0);
            wgmma_commit();
            const struct fp8_scales next = fp8_scales_of(p, &t, row, SCALES == FP8_BLOCKS && s + 1 < steps ? s + 1 : 0);
            wgmma_wait(0);
            wgmma_pin(part, BN / 2);
            wgmma_release(&b->empty[stage]);
            fp8_promote(d, part, &scales);
            scales = next;
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
        if (SCALES == FP8_CHANNELS) fp8_channels(p, &t, row, d);
        wgmma_direct(&p->t.g, &t, group, d);
    }
}

KERNEL(gemm_fp8_wgmma, struct gemm_fp8_wgmma_params, p, THREADS, 1)
{
    const struct wgmma_block b = wgmma_begin(&p.t);
    const uint32_t steps = ceil_div_u32(p.t.g.k, 2 * BK);
    if (warp_id() / 4 == 0) {
        registers_shrink(40);
        if (thread_x() == 0) wgmma_produce(&p.t, b.stages, b.full, b.empty, b.first, b.count, b.stride, steps);
        warp_sync(FULL_WARP);
    } else {
        registers_grow(232);
        fp8_consume(&p, &b, warp_id() / 4 - 1, steps);
    }
}
