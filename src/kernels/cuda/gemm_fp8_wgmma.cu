// arch: sm_90a
/* y = x W^T by wgmma of e4m3 for many rows (Hopper), both operands with scales: gemm_wgmma.cu's persistent loop, tiles of 128 WAVES rows
 * x 128 weight rows, k in steps of 128 codes. A cluster of two blocks has the same columns and loads half of the weight rows each into both.
 *
 * The tensor cores add e4m3 products with fewer bits than float32 has (DeepSeek-V3 technical report, 3.3.2), and block scales change
 * every 128 of k. So a consumer lets four instructions (128 of k, 64 rows) run into sums of their own and adds those in float32, each
 * times scale of the row x scale of the block (FP8_BLOCKS). FP8_CHANNELS: sums are added as they are, and scaled at the end.
 *
 *     SETS 2   two sets of those sums: while one is added, the next step's instructions already run into the other
 *     SETS 1   one set: while one consumer adds, the other's instructions run; ORDER 1 makes the two take turns
 *     WAVES 2  a consumer has 64 rows of the tile's first 128 and 64 of the last: 24 instead of 32 KB from L2 for as many products
 *
 *     stage: x [128 WAVES][128], w [128][128] codes, rows of 128 bytes, swizzled by TMA; behind all barriers a stage each of
 *            f32 scales of x [128 WAVES] (FP8_BLOCKS), which the producer copies too; in memory [k block][x_stride]
 *
 * Constants: BN (128), STAGES, CLUSTER (1, 2), RASTER, SCALES, WAVES (1, 2), SETS (1, 2), ORDER 0/1; those of gemm_epilogue.cuh, PARTS. */
#define BM (128 * WAVES)
#define CHUNK 64 /* columns of results on their way out */
#include "kernels/cuda/fp8.cuh"
#include "kernels/cuda/gemm_wgmma.cuh"

STATIC_ASSERT(BN == 128, "a block of scales is a tile's columns");
STATIC_ASSERT(WAVES * SETS < 4, "sums of both kinds stay in registers");

#define SCALES_BYTES (BM * 4)

DEVICE void fp8_produce(const struct gemm_fp8_wgmma_params *p, const struct wgmma_block *b, unsigned char *scales, uint32_t steps)
{
    const uint32_t rank = CLUSTER > 1 ? cluster_rank() : 0;
    const uint64_t keep = l2_evict_normal();
    uint32_t stage = 0, phase = 0;
    for (uint32_t i = b->first; i < b->count; i += b->stride) {
        const struct wgmma_tile t = wgmma_tile_of(&p->t.g, i);
        const uint32_t left = (uint32_t)p->s.x_stride > t.row ? (uint32_t)p->s.x_stride - t.row : 0, bytes = SCALES == FP8_BLOCKS ? min_u32(left, BM) * 4 : 0;
        for (uint32_t s = 0; s < steps; s++) {
            unsigned char *x = b->stages + stage * STAGE_BYTES, *w = x + X_BYTES;
            const int32_t k = (int32_t)(s * BK);
            mbarrier *full = &b->full[stage];
            mbarrier_wait(&b->empty[stage], phase ^ 1);
            mbarrier_arrive_expect(full, STAGE_BYTES + bytes);
            UNROLL for (uint32_t h = 0; h < 2; h++)
            {
                const struct tensor_map *map = GATED ? &p->t.w[h] : &p->t.w[t.part];
                const int32_t n = (int32_t)(GATED ? t.col : t.col + h * HALF);
                if (CLUSTER == 1)
                    tma_load_2d(w + h * (HALF * BK * 2), map, k, n, full, keep);
                else if (h == rank)
                    tma_load_multicast_2d(w + h * (HALF * BK * 2), map, k, n, full, 3);
            }
            /* The first weights do not wait for the predecessor. */
            if (i == b->first && s == 0) grid_dependency_wait();
            UNROLL for (uint32_t h = 0; h < WAVES; h++)
                tma_load_2d(x + h * (128 * BK * 2), &p->t.x, k, (int32_t)(t.row + h * 128), full, keep);
            if (bytes) bulk_load(scales + stage * SCALES_BYTES, (const float *)p->s.x + (size_t)s * (size_t)p->s.x_stride + t.row, bytes, full, keep);
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
    }
}

/* Sums of a step of 64 rows on their way, and what they are multiplied with. */
struct fp8_flight {
    float part[BN / 2], w[1 + GATED];
    uint32_t stage;
};

struct fp8_consumer {
    const struct gemm_fp8_wgmma_params *p;
    const struct wgmma_block *b;
    const unsigned char *scales;
    uint32_t group, stage, phase;
};

DEVICE void fp8_advance(struct fp8_consumer *c)
{
    if (++c->stage == STAGES) c->stage = 0, c->phase ^= 1;
}

/* Four instructions: the consumer's rows of wave `wave` of the step that has arrived. */
DEVICE void fp8_issue(const struct fp8_consumer *c, const struct wgmma_tile *t, uint32_t step, uint32_t wave, bool last, struct fp8_flight *f)
{
    const unsigned char *from = c->b->stages + c->stage * STAGE_BYTES;
    const uint64_t da = wgmma_desc(from + (wave * 2 + c->group) * (64 * BK * 2), 16, 1024, 128), db = wgmma_desc(from + X_BYTES, 16, 1024, 128);
    if (ORDER) barrier_sync(1 + c->group, 256);
    wgmma_pin(f->part, BN / 2);
    wgmma_fence();
    UNROLL for (uint32_t k = 0; k < BK / 16; k++) wgmma_e4m3_ss(128, f->part, da + k * 2, db + k * 2, k != 0);
    wgmma_commit();
    if (ORDER && !(last && c->group)) barrier_arrive(2 - c->group, 256);
    UNROLL for (uint32_t i = 0; i < 1 + GATED; i++) f->w[i] = SCALES == FP8_BLOCKS ? fp8_block_scale(&c->p->s, t->part + i, t->col, step) : 1.0f;
    f->stage = c->stage;
}

/* The sums of a flight, of which `young` may have been issued later, to d. */
#define fp8_land(c, f, wave, release, young, d)                                                                          \
    do {                                                                                                             \
        float scale_[2];                                                                                             \
        fp8_row_scales(c, f, wave, scale_);                                                                          \
        if ((release) && SCALES == FP8_BLOCKS) warp_sync(FULL_WARP); /* lane 0 gives back what all have read */        \
        wgmma_wait(young);                                                                                           \
        wgmma_pin((f)->part, BN / 2);                                                                                 \
        if (release) wgmma_release(&(c)->b->empty[(f)->stage]);                                                       \
        fp8_promote(d, f, scale_);                                                                                   \
    } while (0)
DEVICE void fp8_row_scales(const struct fp8_consumer *c, const struct fp8_flight *f, uint32_t wave, float out[2])
{
    const float *at = (const float *)(c->scales + f->stage * SCALES_BYTES) + wave * 128 + c->group * 64 + warp_id() % 4 * 16 + lane_id() / 4;
    UNROLL for (uint32_t h = 0; h < 2; h++) out[h] = SCALES == FP8_BLOCKS ? at[h * 8] : 1.0f;
}
DEVICE void fp8_promote(float d[BN / 2], const struct fp8_flight *f, const float x[2])
{
    UNROLL for (uint32_t i = 0; i < BN / 2; i++)
        d[i] = SCALES == FP8_BLOCKS ? fma_f32(x[i / 2 % 2] * f->w[GATED && i >= BN / 4], f->part[i], d[i]) : d[i] + f->part[i];
}

DEVICE void fp8_channels(const struct gemm_fp8_wgmma_params *p, const struct wgmma_tile *t, uint32_t group, float d[BN / 2])
{
    const uint32_t first = t->row + group * 64 + warp_id() % 4 * 16 + lane_id() / 4;
    float x[2];
    UNROLL for (uint32_t h = 0; h < 2; h++) x[h] = ((const float *)p->s.x)[min_u32(first + h * 8, p->t.g.rows - 1)];
    UNROLL for (uint32_t j = 0; j < BN / 8; j++)
        UNROLL for (uint32_t e = 0; e < 2; e++)
        {
            const uint32_t up = GATED && j >= BN / 16, col = t->col + (j - (up ? BN / 16 : 0)) * 8 + lane_id() % 4 * 2 + e;
            const float w = fp8_channel_scale(&p->s, &p->t.g, t->part + up, col);
            d[j * 4 + e] *= x[0] * w, d[j * 4 + 2 + e] *= x[1] * w;
        }
}

/* All of k of a tile. */
#if SETS == 2
DEVICE void fp8_tile(struct fp8_consumer *c, const struct wgmma_tile *t, uint32_t steps, bool last, float d[1][BN / 2])
{
    struct fp8_flight a, b;
    uint32_t s = 0;
#define ISSUE(step, f)                                                                                                   \
    do {                                                                                                             \
        mbarrier_wait(&c->b->full[c->stage], c->phase);                                                               \
        fp8_issue(c, t, step, 0, last && (step) + 1 == steps, f);                                                     \
        fp8_advance(c);                                                                                              \
    } while (0)
    ISSUE(0, &a);
    for (; s + 2 < steps; s += 2) {
        ISSUE(s + 1, &b);
        fp8_land(c, &a, 0, true, 1, d[0]);
        ISSUE(s + 2, &a);
        fp8_land(c, &b, 0, true, 1, d[0]);
    }
    if (s + 1 < steps) {
        ISSUE(s + 1, &b);
        fp8_land(c, &a, 0, true, 1, d[0]);
        fp8_land(c, &b, 0, true, 0, d[0]);
    } else {
        fp8_land(c, &a, 0, true, 0, d[0]);
    }
}
#else
DEVICE void fp8_tile(struct fp8_consumer *c, const struct wgmma_tile *t, uint32_t steps, bool last, float d[WAVES][BN / 2])
{
    struct fp8_flight f;
    for (uint32_t s = 0; s < steps; s++) {
        mbarrier_wait(&c->b->full[c->stage], c->phase);
        UNROLL for (uint32_t wave = 0; wave < WAVES; wave++)
        {
            fp8_issue(c, t, s, wave, last && s + 1 == steps && wave + 1 == WAVES, &f);
            fp8_land(c, &f, wave, wave + 1 == WAVES, 0, d[wave]);
        }
        fp8_advance(c);
    }
}
#endif

DEVICE void fp8_consume(const struct gemm_fp8_wgmma_params *p, const struct wgmma_block *b, const unsigned char *scales, uint32_t group, uint32_t steps)
{
    struct fp8_consumer c = {p, b, scales, group, 0, 0};
    float d[WAVES][BN / 2];
    if (ORDER && group && b->first < b->count) barrier_arrive(1, 256); /* the first turn is group 0's */
    for (uint32_t i = b->first; i < b->count; i += b->stride) {
        const struct wgmma_tile t = wgmma_tile_of(&p->t.g, i);
        UNROLL for (uint32_t w = 0; w < WAVES; w++)
            UNROLL for (uint32_t e = 0; e < BN / 2; e++) d[w][e] = 0;
        fp8_tile(&c, &t, steps, i + b->stride >= b->count, d);
        if (i == b->first) grid_dependency_wait(); /* the predecessor writes the scales of x; y may be what it wrote */
        u32x4 old[CHUNK_TURNS];
        UNROLL for (uint32_t w = 0; w < WAVES; w++)
        {
            struct wgmma_tile at = t;
            at.row += w * 128;
            if (SCALES == FP8_CHANNELS) fp8_channels(p, &at, group, d[w]);
            if (STAGED && ACCUMULATE) wgmma_old(&p->t.g, &at, group, 0, old);
            if (STAGED)
                wgmma_staged(&p->t.g, &at, group, d[w], old, b->result);
            else
                wgmma_direct(&p->t.g, &at, group, d[w]);
        }
    }
}

KERNEL(gemm_fp8_wgmma, struct gemm_fp8_wgmma_params, p, THREADS, 1)
{
    unsigned char *scales = dynamic_shared() + STAGES * (STAGE_BYTES + 2 * sizeof(mbarrier)) + 8 * RESULT_BYTES;
    if (SCALES == FP8_BLOCKS) { /* rows beyond the last have sums too, and the producer brings no scales for them */
        for (uint32_t i = thread_x(); i < STAGES * SCALES_BYTES / 4; i += THREADS) st4(scales + i * 4, 0);
        fence_proxy_async();
    }
    const struct wgmma_block b = wgmma_begin(&p.t);
    const uint32_t steps = ceil_div_u32(p.t.g.k, 2 * BK);
    if (warp_id() / 4 == 0) {
        registers_shrink(40);
        if (thread_x() == 0) fp8_produce(&p, &b, scales, steps);
        warp_sync(FULL_WARP);
    } else {
        registers_grow(232);
        fp8_consume(&p, &b, scales, warp_id() / 4 - 1, steps);
    }
    if (CLUSTER > 1) cluster_sync(); /* the other block may still write into this one's memory and barriers */
}
