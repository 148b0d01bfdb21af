// arch: sm_90a
/* Grouped products by wgmma of e4m3 for experts with many tokens (Hopper): moe_wgmma.cu's persistent loop (moe_wgmma.cuh) over tiles of ROWS places
 * by 256 rows of weights, k in steps of 128 codes, with gemm_fp8_wgmma.cu's sums: four instructions (128 of k) run into sums of their own, which are
 * added in float32, each times scale of the row x scale of the block (FP8_CHANNELS: x the row's, the weights' scales at the end).
 *
 *     y[place, n] = act(gate[e, n] . x) * (up[e, n] . x)    GATED: as e4m3 with a scale for 128 columns, the next product's x
 *     y[place, n] = weight[e, n] . x                        else, as bf16
 *
 * Each of two consumers has all places by 128 rows of weights: GATED 64 gate and 64 up rows, else 128. So both share the places' rows in L2 and
 * shared memory, and a tile's 128 columns are a group of the result. Places come in waves of 64; one without tokens is left out.
 *
 *     stage     x [ROWS][128] codes, w [256][128] codes: of consumer 0 gate, up, of consumer 1 gate, up, 64 each
 *     results   a warp's 16 rows leave through its own shared memory: 64 codes or 128 bf16
 *     largest   f32 [2][consumer][ROWS]: of each row's 64 columns, tiles in turn
 *     scales    lane l of a warp keeps that of x's row 16 w + l % 16 of wave l / 16, and that of the weights for step l of 32
 *
 * Constants: EXPERTS TOP_K N K GATED GATHER ACT EXPERT_BIAS ROWS (64, 128) STAGES SCALES. */
#include "kernels/cuda/common/rose.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/act.cuh"
#include "kernels/cuda/fp8.cuh"
#include "kernels/params/moe_coded.h"

#define WAVES (ROWS / 64)
#define CONSUMERS 2
#define THREADS (128 + CONSUMERS * 128)
#define COLS 256
#define OUT (GATED ? 128 : 256)
#define TILES_N ((N + OUT - 1) / OUT)
#define DECODE 0
#define X_PER16 16
#define MATRICES (1 + GATED)
#define RESULT_BYTES (16 * (GATED ? 64 : 256)) /* of a warp */
#include "kernels/cuda/moe_wgmma.cuh"
STATIC_ASSERT(K % FP8_BLOCK == 0 && N % FP8_BLOCK == 0, "a group of k has one scale, and so has a tile's row");

DEVICE void produce_weights(const struct moe_wgmma_params *p, const struct tile *t, unsigned char *to, uint32_t step, mbarrier *full)
{
    UNROLL for (uint32_t i = 0; i < 4; i++)
    {
        const uint32_t column = t->column + (GATED ? i / 2 * 64 : i * 64);
        tma_load_3d(to + i * (64 * 128), &p->weight[GATED ? i % 2 : 0], (int32_t)(step * 64), (int32_t)column, (int32_t)t->expert, full, l2_evict_normal());
    }
}

/* What a consumer knows of its tile. column: its first one of y. */
struct part {
    const struct moe_fp8_wgmma_params *p;
    const float *x_scale, *w_scale[MATRICES]; /* this lane's row; the expert's */
    uint32_t column, first;                   /* first: row of the warp in a wave */
    uint32_t place, rows, group;              /* of the tile */
};

DEVICE struct part part_of(const struct moe_fp8_wgmma_params *p, const struct tile *t, uint32_t g)
{
    const uint32_t lane = lane_id(), row = (WAVES > 1 ? lane / 16 * 64 : 0) + warp_id() % 4 * 16 + lane % 16;
    uint32_t from = 0;
    struct part c;
    c.p = p, c.place = t->place, c.rows = t->rows, c.group = g;
    c.first = warp_id() % 4 * 16;
    c.column = t->column + g * (OUT / 2);
    if (row < t->rows) from = GATHER ? ((const uint32_t *)p->t.source)[t->place + row] / TOP_K : t->place + row;
    c.x_scale = (const float *)p->x_scale + (uint64_t)from * p->x_scale_stride;
    if (row >= t->rows) c.x_scale = (const float *)p->x_scale; /* their codes are zero */
    UNROLL for (uint32_t m = 0; m < MATRICES; m++) c.w_scale[m] = (const float *)((const char *)p->w_scale[m] + (uint64_t)t->expert * p->w_scale_stride);
    return c;
}

/* Scales of the consumer's columns for 32 steps from `step` on, a lane each. */
DEVICE void block_scales(const struct part *c, uint32_t step, float out[MATRICES])
{
    const uint32_t block = min_u32(c->column, N - 1) / FP8_BLOCK, at = min_u32(step + lane_id(), STEPS - 1);
    UNROLL for (uint32_t m = 0; m < MATRICES; m++) out[m] = SCALES == FP8_BLOCKS ? c->w_scale[m][block * STEPS + at] : 1.0f;
}

/* A step that has arrived: d += its products. x: this lane's row's scale; w: of the weights. */
DEVICE void multiply(float d[WAVES][64], const unsigned char *stage, const struct part *c, float x, const float w[MATRICES])
{
    const uint64_t db = wgmma_desc(stage + (ROWS + c->group * 128) * 128, 16, 1024, 128);
    UNROLL for (uint32_t wave = 0; wave < WAVES; wave++)
    {
        float part[64], rows[2];
        if (wave * 64 >= c->rows) break;
        UNROLL for (uint32_t h = 0; h < 2; h++) rows[h] = shuffle_f32(FULL_WARP, x, wave * 16 + h * 8 + lane_id() / 4, WARP);
        const uint64_t da = wgmma_desc(stage + wave * (64 * 128), 16, 1024, 128);
        wgmma_pin(part, 64);
        wgmma_fence();
        UNROLL for (uint32_t k = 0; k < 4; k++) wgmma_e4m3_ss(128, part, da + k * 2, db + k * 2, k != 0);
        wgmma_commit();
        wgmma_wait(0);
        wgmma_pin(part, 64);
        UNROLL for (uint32_t i = 0; i < 64; i++) d[wave][i] = fma_f32(rows[i / 2 % 2] * w[GATED && i >= 32], part[i], d[wave][i]);
    }
}

/* Scales of channels, biases. column: of d[0]; matrix: of d. */
DEVICE void adjust(const struct part *c, const struct tile *t, uint32_t matrix, uint32_t column, float d[4])
{
    UNROLL for (uint32_t e = 0; e < 2; e++)
    {
        const uint32_t at = min_u32(column + e, N - 1);
        if (SCALES == FP8_CHANNELS) {
            const float scale = c->w_scale[matrix][at];
            d[e] *= scale, d[2 + e] *= scale;
        }
        if (EXPERT_BIAS) {
            const float bias = ((const float *)c->p->t.bias[matrix])[(uint64_t)t->expert * N + at];
            d[e] += bias, d[2 + e] += bias;
        }
    }
}

#if GATED
/* Activation, and the result as codes. largest: this tile's turn. */
DEVICE void finish(const struct part *c, const struct tile *t, float d[WAVES][64], unsigned char *result, float *largest)
{
    const uint32_t lane = lane_id(), q = lane / 4, k = lane % 4 * 2;
    UNROLL for (uint32_t wave = 0; wave < WAVES; wave++)
    {
        float most[2] = {0.0f, 0.0f};
        UNROLL for (uint32_t j = 0; j < 8; j++)
        {
            adjust(c, t, 0, c->column + j * 8 + k, d[wave] + j * 4);
            adjust(c, t, 1, c->column + j * 8 + k, d[wave] + 32 + j * 4);
            UNROLL for (uint32_t e = 0; e < 4; e++)
            {
                d[wave][j * 4 + e] = act_value(ACT, 1.0f, d[wave][j * 4 + e]) * d[wave][32 + j * 4 + e];
                most[e / 2] = max_f32(most[e / 2], abs_f32(d[wave][j * 4 + e]));
            }
        }
        UNROLL for (uint32_t h = 0; h < 2; h++)
        {
            most[h] = warp_max_f32(most[h], 4);
            if (lane % 4 == 0) largest[c->group * ROWS + wave * 64 + c->first + h * 8 + q] = most[h];
        }
    }
    barrier_sync(1, CONSUMERS * 128);
    UNROLL for (uint32_t wave = 0; wave < WAVES; wave++)
    {
        UNROLL for (uint32_t h = 0; h < 2; h++)
        {
            const uint32_t row = wave * 64 + c->first + h * 8 + q;
            const float scale = div_f32(max_f32(max_f32(largest[row], largest[ROWS + row]), 1e-10f), 448.0f), factor = rcp_f32(scale);
            if (c->group == 0 && lane % 4 == 0 && row < c->rows)
                ((float *)c->p->y_scale)[(uint64_t)(c->place + row) * c->p->y_scale_stride + t->column / FP8_BLOCK] = scale;
            UNROLL for (uint32_t j = 0; j < 8; j++)
                *(uint16_t *)(result + (h * 8 + q) * 64 + j * 8 + k) = f32_to_e4m3x2(d[wave][j * 4 + h * 2] * factor, d[wave][j * 4 + h * 2 + 1] * factor);
        }
        warp_sync(FULL_WARP);
        UNROLL for (uint32_t i = 0; i < 2; i++)
        {
            const uint32_t row = i * 8 + q, at = wave * 64 + c->first + row;
            if (at < c->rows) st16((char *)c->p->t.y + (uint64_t)(c->place + at) * N + c->column + lane % 4 * 16, ld16(result + row * 64 + lane % 4 * 16));
        }
        warp_sync(FULL_WARP);
    }
}
#else
DEVICE void finish(const struct part *c, const struct tile *t, float d[WAVES][64], unsigned char *result, float *largest)
{
    const uint32_t lane = lane_id();
    (void)largest;
    UNROLL for (uint32_t wave = 0; wave < WAVES; wave++)
    {
        UNROLL for (uint32_t j = 0; j < 16; j += 2)
        {
            uint32_t r[4];
            UNROLL for (uint32_t h = 0; h < 2; h++)
            {
                float *of = d[wave] + (j + h) * 4;
                adjust(c, t, 0, c->column + (j + h) * 8 + lane % 4 * 2, of);
                r[2 * h] = f32_to_bf16x2(of[0], of[1]).bits, r[2 * h + 1] = f32_to_bf16x2(of[2], of[3]).bits;
            }
            const uint32_t row = lane % 16, chunk = j + lane / 16;
            stmatrix_x4(result + row * 256 + ((chunk ^ (row & 7)) << 4), r);
        }
        warp_sync(FULL_WARP);
        UNROLL for (uint32_t i = 0; i < 8; i++)
        {
            const uint32_t row = i * 2 + lane / 16, chunk = lane % 16, at = wave * 64 + c->first + row;
            if (at < c->rows && (N % OUT == 0 || c->column < N))
                st16((bf16 *)c->p->t.y + (uint64_t)(c->place + at) * N + c->column + chunk * 8, ld16(result + row * 256 + ((chunk ^ (row & 7)) << 4)));
        }
        warp_sync(FULL_WARP);
    }
}
#endif

DEVICE void consume(const struct moe_fp8_wgmma_params *p, const uint32_t *offsets, const uint32_t *counts, unsigned char *stages, unsigned char *result,
                    float *largest, mbarrier *full, mbarrier *empty, const struct queue *queue, uint32_t tiles, uint32_t g)
{
    uint32_t stage = 0, phase = 0;
    UNROLL_N(1) for (uint32_t turn = 0;; turn++)
    {
        const uint32_t index = queue_wait(queue, turn);
        if (index >= tiles) break;
        const struct tile t = tile_find(offsets, counts, index);
        const struct part c = part_of(p, &t, g);
        float d[WAVES][64], scales[MATRICES], x = c.x_scale[0];
        UNROLL for (uint32_t wave = 0; wave < WAVES; wave++)
            UNROLL for (uint32_t i = 0; i < 64; i++) d[wave][i] = 0.0f;
        UNROLL_N(1) for (uint32_t s = 0; s < STEPS; s++)
        {
            float w[MATRICES];
            if (s % WARP == 0) block_scales(&c, s, scales);
            const float next = c.x_scale[min_u32(s + 1, STEPS - 1)];
            UNROLL for (uint32_t m = 0; m < MATRICES; m++) w[m] = shuffle_f32(FULL_WARP, scales[m], s % WARP, WARP);
            mbarrier_wait(&full[stage], phase);
            multiply(d, stages + stage * STAGE_BYTES, &c, x, w);
            if (lane_id() == 0) mbarrier_arrive(&empty[stage]);
            if (++stage == STAGES) stage = 0, phase ^= 1;
            x = next;
        }
        finish(&c, &t, d, result, largest + turn % 2 * (CONSUMERS * ROWS));
    }
}

KERNEL(moe_fp8_wgmma, struct moe_fp8_wgmma_params, p, THREADS, 1)
{
    unsigned char *stages = dynamic_shared(), *results = stages + STAGES * STAGE_BYTES;
    float *largest = (float *)(results + CONSUMERS * 4 * RESULT_BYTES);
    const struct block_tiles b = tiles_begin(&p.t, (mbarrier *)(largest + 2 * CONSUMERS * ROWS));
    const uint32_t group = thread_x() / 128;
    if (group == 0) {
        registers_shrink(56);
        produce(&p.t, NULL, b.offsets, b.counts, stages, b.full, b.empty, &b.queue, b.tiles);
    } else {
        registers_grow(224);
        consume(&p, b.offsets, b.counts, stages, results + (warp_id() - 4) * RESULT_BYTES, largest, b.full, b.empty, &b.queue, b.tiles, group - 1);
    }
}
