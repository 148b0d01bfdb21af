// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* y = x W^T for few rows of bf16 x and weights of e4m3 with scales: weights are read once, one byte each, 16 bytes a load, and become
 * bf16 operands of mma.sync in registers (exact; no activation is rounded). As gemv_rows.cu, which draws tiles, splits and merging; here
 * a step is 128 of k, 2 KB of codes a warp, the width of a block of scales.
 *
 *     lane (q, c) loads k 16 c .. 16 c + 15 (h = 0) and 64 further on (h = 1) of rows q and q + 8: four instructions' worth of A each,
 *     and takes the same elements of row q of x, in two pieces of 16 bytes that it copied itself
 *
 * FP8_BLOCKS: the sums of a step are multiplied with the scale of their 128 x 128 block (of a gated pair: of either matrix) and added in
 * float32. FP8_CHANNELS: a warp's sums are multiplied with their row's scale at the end.
 *
 *     shared: f32 red[2][WARPS][NT * 128], u32 last[4], x [WARPS][steps][h 2][half 2][group][64 bytes]
 *
 * Constants: NT (eights of rows), WARPS, DEPTH, OCCUPANCY, PARTS, SPLIT 0/1, K_TAIL (k is no multiple of 128), SCALES; those of
 * gemm_epilogue.cuh. */
#define ELEMENT 1
#include "kernels/cuda/fp8.cuh"
#include "kernels/cuda/gemv_merge.cuh"

#define STEP 128

/* One step of a warp in flight. */
struct gemv_step {
    u32x4 lo[2], hi[2];
    float scale[1 + GATED];
};

/* 128 of k from element first on; k: this lane's own first one. */
DEVICE void gemv_load(const struct gemm_fp8_params *p, const struct gemv_tile *t, uint32_t first, struct gemv_step *s)
{
    const uint32_t k = first + lane_id() % 4 * 16;
    UNROLL for (uint32_t h = 0; h < 2; h++)
    {
        if (K_TAIL && k + h * 64 >= p->g.k) {
            UNROLL for (int i = 0; i < 4; i++) s->lo[h].v[i] = s->hi[h].v[i] = 0;
        } else {
            s->lo[h] = ld16_early(t->lo + k + h * 64);
            s->hi[h] = ld16_early(t->hi + k + h * 64);
        }
    }
    if (SCALES == FP8_BLOCKS) {
        UNROLL for (uint32_t i = 0; i < 1 + GATED; i++) s->scale[i] = fp8_block_scale(&p->s, t->part + i, t->col, first / FP8_BLOCK);
    }
}

DEVICE void gemv_multiply(float sum[NT][4], const struct gemv_step *s, const unsigned char *x, uint32_t group, uint32_t rows)
{
    const uint32_t q = lane_id() / 4, c = lane_id() % 4;
    float part[NT][4];
    UNROLL for (uint32_t j = 0; j < NT; j++)
        UNROLL for (uint32_t e = 0; e < 4; e++) part[j][e] = SCALES == FP8_BLOCKS ? 0.0f : sum[j][e];
    UNROLL for (uint32_t h = 0; h < 2; h++)
        UNROLL for (uint32_t half = 0; half < 2; half++) /* 8 of the 16 elements: a 16-byte piece of x */
        {
            uint32_t lo[4], hi[4];
            UNROLL for (uint32_t i = 0; i < 2; i++)
            {
                fp8_pairs(s->lo[h].v[2 * half + i], lo + 2 * i);
                fp8_pairs(s->hi[h].v[2 * half + i], hi + 2 * i);
            }
            UNROLL for (uint32_t j = 0; j < NT; j++)
            {
                u32x4 b = {{0, 0, 0, 0}};
                if (j * 8 + q < rows) b = ld16(x + (((h * 2 + half) * group + j * 8 + q) * 4 + c) * 16);
                UNROLL for (uint32_t i = 0; i < 2; i++)
                {
                    const uint32_t a[4] = {lo[2 * i], hi[2 * i], lo[2 * i + 1], hi[2 * i + 1]};
                    mma_bf16(part[j], a, b.v + 2 * i);
                }
            }
        }
    UNROLL for (uint32_t j = 0; j < NT; j++)
        UNROLL for (uint32_t e = 0; e < 4; e++)
            sum[j][e] = SCALES == FP8_BLOCKS ? fma_f32(s->scale[GATED && e >= 2], part[j][e], sum[j][e]) : part[j][e];
}

/* This lane's pieces of x: rows of the group, the warp's steps of the split. */
DEVICE void gemv_load_x(const struct gemm_params *p, uint32_t first_row, uint32_t rows, uint32_t first_k, uint32_t chunks, unsigned char *x)
{
    const uint32_t q = lane_id() / 4, c = lane_id() % 4;
    for (uint32_t chunk = warp_id(); chunk < chunks; chunk += WARPS, x += 2 * p->group * 128)
        UNROLL for (uint32_t h = 0; h < 2; h++)
            for (uint32_t m = q; m < rows; m += 8)
                UNROLL for (uint32_t half = 0; half < 2; half++)
                {
                    const uint32_t k = first_k + chunk * STEP + h * 64 + c * 16 + half * 8;
                    const bool inside = !K_TAIL || k < p->k;
                    const bf16 *from = (const bf16 *)p->x + (size_t)(first_row + m) * (size_t)p->x_stride + (inside ? k : 0);
                    cp_async16_zfill(x + (((h * 2 + half) * p->group + m) * 4 + c) * 16, from, inside ? 16 : 0);
                }
    cp_async_commit();
}

DEVICE void gemv_channels(const struct gemm_fp8_params *p, const struct gemv_tile *t, float sum[NT][4])
{
    const uint32_t q = lane_id() / 4;
    const float lo = fp8_channel_scale(&p->s, &p->g, t->part, t->col + q);
    const float hi = fp8_channel_scale(&p->s, &p->g, t->part + GATED, t->col + (GATED ? q : 8 + q));
    UNROLL for (uint32_t j = 0; j < NT; j++)
        UNROLL for (uint32_t e = 0; e < 4; e++) sum[j][e] *= e < 2 ? lo : hi;
}

KERNEL(gemv_fp8, struct gemm_fp8_params, p, THREADS, OCCUPANCY)
{
    float *red = (float *)dynamic_shared();
    uint32_t *last = (uint32_t *)(red + 2 * WARPS * SUMS);
    const uint32_t group = block_x() / p.g.blocks, block = block_x() % p.g.blocks, split = SPLIT ? block % p.g.splits : 0;
    const uint32_t stride = SPLIT ? p.g.blocks / p.g.splits : p.g.blocks, first_row = group * p.g.group;
    const uint32_t rows = min_u32(p.g.rows - first_row, p.g.group), first_k = split * p.g.chunks * STEP;
    const uint32_t chunks = min_u32(p.g.chunks, ceil_div_u32(p.g.k - first_k, STEP));
    const uint32_t rounds = ceil_div_u32(chunks, WARPS * DEPTH), step_bytes = 2 * p.g.group * 128;
    unsigned char *x = (unsigned char *)(last + 4) + warp_id() * ceil_div_u32(p.g.chunks, WARPS) * step_bytes;
    uint32_t tile = SPLIT ? block / p.g.splits : block, parity = 0;

    grid_dependency_launch();
    struct gemv_step flight[DEPTH];
    struct gemv_tile t = gemv_tile_of(&p.g, tile);
    UNROLL for (uint32_t i = 0; i < DEPTH; i++)
        if (i * WARPS + warp_id() < chunks) gemv_load(&p, &t, first_k + (i * WARPS + warp_id()) * STEP, &flight[i]);
    grid_dependency_wait();
    gemv_load_x(&p.g, first_row, rows, first_k, chunks, x);
    cp_async_wait_all();

    for (;;) {
        float sum[NT][4];
        UNROLL for (uint32_t j = 0; j < NT; j++)
            UNROLL for (uint32_t e = 0; e < 4; e++) sum[j][e] = 0;
        const bool more = tile + stride < p.g.tiles;
        const struct gemv_tile next = gemv_tile_of(&p.g, more ? tile + stride : tile);
        for (uint32_t r = 0; r < rounds; r++) {
            const bool over = r + 1 == rounds;
            const struct gemv_tile from = over ? next : t;
            const uint32_t ahead = over ? warp_id() : (r + 1) * DEPTH * WARPS + warp_id();
            UNROLL for (uint32_t i = 0; i < DEPTH; i++)
            {
                const uint32_t step = r * DEPTH + i;
                if (step * WARPS + warp_id() < chunks) gemv_multiply(sum, &flight[i], x + step * step_bytes, p.g.group, rows);
                if ((!over || more) && ahead + i * WARPS < chunks) gemv_load(&p, &from, first_k + (ahead + i * WARPS) * STEP, &flight[i]);
            }
        }
        if (SCALES == FP8_CHANNELS) gemv_channels(&p, &t, sum);
        float *mine = red + parity * (WARPS * SUMS);
        UNROLL for (uint32_t j = 0; j < NT; j++)
            UNROLL for (uint32_t e = 0; e < 4; e++) mine[warp_id() * SUMS + (j * 4 + e) * 32 + lane_id()] = sum[j][e];
        block_sync();
        gemv_merge(&p.g, &t, tile, split, group, rows, mine, NULL, last);
        if (!more) break;
        t = next, tile += stride, parity ^= 1;
    }
}
