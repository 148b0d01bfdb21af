// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* y = x W^T for few rows of x: weights are read once, straight into registers as the A operand of mma.sync, 16 bytes a load.
 *
 * A tile is 16 weight rows (a gated pair: 8 of the gate, 8 of the up matrix) by one split of k. A block goes through the tiles
 * first, first + stride, ...; its warps share k in steps of 64: warp w has the steps w, w + WARPS, ... of its split. DEPTH steps
 * of a warp (2 KB each) are in flight, across tiles, and the first ones start before the predecessor has ended.
 *
 *     lane (q = lane / 4, c = lane % 4) loads k 8c .. 8c + 7 of rows q and q + 8: two instructions' worth of A. The sum does not
 *     care which k an operand's place stands for, so B's lane (q, c) takes the same 8 elements of row q of x.
 *
 * A lane needs of x just the 16-byte pieces that it copied itself, so x waits for no barrier; it stays in shared memory for all
 * tiles. Sums of the warps meet in shared memory in the order of the warps, those of the splits in `work` in the order of the
 * splits, added up by the block that comes last. Bits depend on the plan, not on which block came last.
 *
 *     shared, of each team: f32 red[2][WARPS][NT * 128], u32 last[4], x [WARPS][steps][2][group][64 bytes]; NORM: f32 squares[WARPS][8],
 *             gain [WARPS][steps][64]
 *     work:   f32 [groups][tiles][splits][NT * 128], of lane's accumulators [NT][4][32]
 *
 * TEAMS of WARPS warps have a tile each, side by side: all tiles of narrow weights are then on their way before the predecessor has ended.
 *
 * NORM (up to eight rows, all of a warp's steps in flight): y = r * sum(w * element(gain * x)), r = 1 / sqrt(mean(x^2) + EPS). A lane multiplies the
 * pieces of x that it needs itself, and what it has of the squares is added up beside the sums.
 *
 * Rows beyond a group's (p.group <= 8 NT) are other blocks' work: blocks [g * p.blocks, ...) have rows [g * p.group, ...).
 *
 * Constants: NT (eights of rows), WARPS, TEAMS, NORM 0/1 (EPS, OFFSET), DEPTH, OCCUPANCY, PARTS, SPLIT 0/1, K_TAIL (k is no multiple of 64); those of
 * gemm_epilogue.cuh. */
#define ELEMENT 2
#include "kernels/cuda/gemv_merge.cuh"

#define STEP 64
STATIC_ASSERT(!NORM || NT == 1, "lane q has row q");
STATIC_ASSERT(TEAMS == 1 || !SPLIT, "teams have whole tiles");

/* 64 of k from element k on: k is this lane's own first one. */
DEVICE void gemv_load(const struct gemm_params *p, const struct gemv_tile *t, uint32_t k, u32x4 lo[2], u32x4 hi[2])
{
    UNROLL for (uint32_t h = 0; h < 2; h++)
    {
        if (K_TAIL && k + h * 32 >= p->k) {
            UNROLL for (int i = 0; i < 4; i++) lo[h].v[i] = hi[h].v[i] = 0;
        } else {
            lo[h] = ld16_early(t->lo + (k + h * 32) * 2);
            hi[h] = ld16_early(t->hi + (k + h * 32) * 2);
        }
    }
}

DEVICE void gemv_multiply(float d[NT][4], const u32x4 lo[2], const u32x4 hi[2], const unsigned char *x, uint32_t group, uint32_t rows)
{
    const uint32_t q = lane_id() / 4, c = lane_id() % 4;
    UNROLL for (uint32_t h = 0; h < 2; h++)
        UNROLL for (uint32_t j = 0; j < NT; j++)
        {
            u32x4 b = {{0, 0, 0, 0}};
            if (j * 8 + q < rows) b = ld16(x + ((h * group + j * 8 + q) * 4 + c) * 16);
            UNROLL for (uint32_t s = 0; s < 2; s++)
            {
                const uint32_t a[4] = {lo[h].v[2 * s], hi[h].v[2 * s], lo[h].v[2 * s + 1], hi[h].v[2 * s + 1]};
                mma_element(d[j], a, b.v + 2 * s);
            }
        }
}

/* This lane's pieces of x: rows of the group, the warp's steps of the split. */
DEVICE void gemv_load_x(const struct gemm_params *p, uint32_t first_row, uint32_t rows, uint32_t first_k, uint32_t chunks,
                        unsigned char *x)
{
    const uint32_t q = lane_id() / 4, c = lane_id() % 4;
    for (uint32_t chunk = warp_id() % WARPS; chunk < chunks; chunk += WARPS, x += 2 * p->group * 64)
        UNROLL for (uint32_t h = 0; h < 2; h++)
            for (uint32_t m = q; m < rows; m += 8) {
                const uint32_t k = first_k + chunk * STEP + h * 32 + c * 8;
                const bool inside = !K_TAIL || k < p->k;
                const element *from = (const element *)p->x + (size_t)(first_row + m) * (size_t)p->x_stride + (inside ? k : 0);
                cp_async16_zfill(x + ((h * p->group + m) * 4 + c) * 16, from, inside ? 16 : 0);
            }
    cp_async_commit();
}

#if NORM
/* The warp's gains, which no predecessor writes. */
DEVICE void gemv_load_gain(const struct gemm_params *p, uint32_t chunks, float *gain)
{
    for (uint32_t chunk = warp_id() % WARPS; chunk < chunks; chunk += WARPS, gain += STEP) {
        const uint32_t k = chunk * STEP + lane_id() * 4;
        if (lane_id() < STEP / 4) cp_async16_zfill(gain + lane_id() * 4, (const float *)p->norm + (k < p->k ? k : 0), k < p->k ? 16 : 0);
    }
    cp_async_commit();
}
/* This lane's pieces of x times their gains, and the sum of their squares of its row, of all lanes of the row. */
DEVICE float gemv_norm_x(const struct gemm_params *p, uint32_t first_row, uint32_t rows, uint32_t chunks, const float *gain, unsigned char *x)
{
    const uint32_t q = lane_id() / 4, c = lane_id() % 4;
    u32x4 in[DEPTH][2];
    float sum = 0;
    UNROLL for (uint32_t i = 0; i < DEPTH; i++)
        UNROLL for (uint32_t h = 0; h < 2; h++)
        {
            const uint32_t chunk = i * WARPS + warp_id() % WARPS, k = chunk * STEP + h * 32 + c * 8;
            UNROLL for (uint32_t e = 0; e < 4; e++) in[i][h].v[e] = 0;
            if (chunk < chunks && q < rows && (!K_TAIL || k < p->k)) in[i][h] = ld16((const element *)p->x + (size_t)(first_row + q) * (size_t)p->x_stride + k);
        }
    cp_async_wait_all();
    warp_sync(FULL_WARP);
    UNROLL for (uint32_t i = 0; i < DEPTH; i++)
        UNROLL for (uint32_t h = 0; h < 2; h++)
        {
            u32x4 out;
            if (i * WARPS + warp_id() % WARPS >= chunks || q >= rows) continue;
            UNROLL for (uint32_t e = 0; e < 4; e++)
            {
                const element2 both = as_element2(in[i][h].v[e]);
                const float lo = element2_lo_f32(both), hi = element2_hi_f32(both), *g = gain + i * STEP + h * 32 + c * 8 + 2 * e;
                sum = fma_f32(hi, hi, fma_f32(lo, lo, sum));
                out.v[e] = f32_to_element2(lo * (OFFSET + g[0]), hi * (OFFSET + g[1])).bits;
            }
            st16(x + i * (2 * p->group * 64) + ((h * p->group + q) * 4 + c) * 16, out);
        }
    return warp_sum_f32(sum, 4);
}
#endif

KERNEL(gemv_rows, struct gemm_params, p, THREADS * TEAMS, OCCUPANCY)
{
    const uint32_t warp = warp_id() % WARPS, team = warp_id() / WARPS, steps = ceil_div_u32(p.chunks, WARPS), step_bytes = 2 * p.group * 64;
    const uint32_t team_bytes = 2 * WARPS * SUMS * 4 + 16 + WARPS * steps * step_bytes + NORM * (WARPS * 32 + WARPS * steps * STEP * 4);
    float *red = (float *)((unsigned char *)dynamic_shared() + team * team_bytes);
    uint32_t *last = (uint32_t *)(red + 2 * WARPS * SUMS);
    const uint32_t group = block_x() / p.blocks, block = block_x() % p.blocks * TEAMS + team;
    const uint32_t split = SPLIT ? block % p.splits : 0, stride = SPLIT ? p.blocks / p.splits : p.blocks * TEAMS, first_row = group * p.group;
    const uint32_t rows = min_u32(p.rows - first_row, p.group), first_k = split * p.chunks * STEP;
    const uint32_t chunks = min_u32(p.chunks, ceil_div_u32(p.k - first_k, STEP)), c8 = first_k + lane_id() % 4 * 8;
    const uint32_t rounds = ceil_div_u32(chunks, WARPS * DEPTH);
    unsigned char *x = (unsigned char *)(last + 4) + warp * steps * step_bytes;
    uint32_t tile = SPLIT ? block / p.splits : block, parity = 0;
    const float *squares = NULL;

    grid_dependency_launch();
    if (TEAMS > 1 && tile >= p.tiles) return;
    u32x4 lo[DEPTH][2], hi[DEPTH][2];
    struct gemv_tile t = gemv_tile_of(&p, tile);
    UNROLL for (uint32_t i = 0; i < DEPTH; i++)
        if (i * WARPS + warp < chunks) gemv_load(&p, &t, c8 + (i * WARPS + warp) * STEP, lo[i], hi[i]);
#if NORM
    float *sums = (float *)((unsigned char *)(last + 4) + WARPS * steps * step_bytes), *gain = sums + WARPS * 8 + warp * steps * STEP;
    squares = sums;
    gemv_load_gain(&p, chunks, gain);
    grid_dependency_wait();
    const float sum = gemv_norm_x(&p, first_row, rows, chunks, gain, x);
    if (lane_id() % 4 == 0) sums[warp * 8 + lane_id() / 4] = sum;
#else
    grid_dependency_wait();
    gemv_load_x(&p, first_row, rows, first_k, chunks, x);
    cp_async_wait_all();
#endif

    for (;;) {
        float d[NT][4];
        UNROLL for (uint32_t j = 0; j < NT; j++)
            UNROLL for (uint32_t e = 0; e < 4; e++) d[j][e] = 0;
        const bool more = tile + stride < p.tiles;
        const struct gemv_tile next = gemv_tile_of(&p, more ? tile + stride : tile);
        for (uint32_t r = 0; r < rounds; r++) {
            const bool over = r + 1 == rounds;
            const struct gemv_tile *from = over ? &next : &t;
            const struct gemv_tile f = *from;
            const uint32_t ahead = over ? warp : (r + 1) * DEPTH * WARPS + warp;
            UNROLL for (uint32_t i = 0; i < DEPTH; i++)
            {
                const uint32_t step = r * DEPTH + i;
                if (step * WARPS + warp < chunks) gemv_multiply(d, lo[i], hi[i], x + step * step_bytes, p.group, rows);
                if ((!over || more) && ahead + i * WARPS < chunks) gemv_load(&p, &f, c8 + (ahead + i * WARPS) * STEP, lo[i], hi[i]);
            }
        }
        float *mine = red + parity * (WARPS * SUMS);
        UNROLL for (uint32_t j = 0; j < NT; j++)
            UNROLL for (uint32_t e = 0; e < 4; e++) mine[warp * SUMS + (j * 4 + e) * 32 + lane_id()] = d[j][e];
        if (TEAMS > 1)
            barrier_sync(1 + team, THREADS);
        else
            block_sync();
        gemv_merge(&p, &t, tile, split, group, rows, mine, squares, last);
        if (!more) break;
        t = next, tile += stride, parity ^= 1;
    }
}
