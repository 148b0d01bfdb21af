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
 *     shared: f32 red[2][WARPS][NT * 128], u32 last[4], x [WARPS][steps][2][group][64 bytes]
 *     work:   f32 [groups][tiles][splits][NT * 128], of lane's accumulators [NT][4][32]
 *
 * Rows beyond a group's (p.group <= 8 NT) are other blocks' work: blocks [g * p.blocks, ...) have rows [g * p.group, ...).
 *
 * Constants: NT (eights of rows), WARPS, DEPTH, OCCUPANCY, PARTS, SPLIT 0/1, K_TAIL (k is no multiple of 64); those of
 * gemm_epilogue.cuh. */
#define ELEMENT 2
#include "kernels/cuda/gemv_merge.cuh"

#define STEP 64

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
    for (uint32_t chunk = warp_id(); chunk < chunks; chunk += WARPS, x += 2 * p->group * 64)
        UNROLL for (uint32_t h = 0; h < 2; h++)
            for (uint32_t m = q; m < rows; m += 8) {
                const uint32_t k = first_k + chunk * STEP + h * 32 + c * 8;
                const bool inside = !K_TAIL || k < p->k;
                const element *from = (const element *)p->x + (size_t)(first_row + m) * (size_t)p->x_stride + (inside ? k : 0);
                cp_async16_zfill(x + ((h * p->group + m) * 4 + c) * 16, from, inside ? 16 : 0);
            }
    cp_async_commit();
}

KERNEL(gemv_rows, struct gemm_params, p, THREADS, OCCUPANCY)
{
    float *red = (float *)dynamic_shared();
    uint32_t *last = (uint32_t *)(red + 2 * WARPS * SUMS);
    const uint32_t group = block_x() / p.blocks, block = block_x() % p.blocks, split = SPLIT ? block % p.splits : 0;
    const uint32_t stride = SPLIT ? p.blocks / p.splits : p.blocks, first_row = group * p.group;
    const uint32_t rows = min_u32(p.rows - first_row, p.group), first_k = split * p.chunks * STEP;
    const uint32_t chunks = min_u32(p.chunks, ceil_div_u32(p.k - first_k, STEP)), c8 = first_k + lane_id() % 4 * 8;
    const uint32_t rounds = ceil_div_u32(chunks, WARPS * DEPTH), step_bytes = 2 * p.group * 64;
    unsigned char *x = (unsigned char *)(last + 4) + warp_id() * ceil_div_u32(p.chunks, WARPS) * step_bytes;
    uint32_t tile = SPLIT ? block / p.splits : block, parity = 0;

    grid_dependency_launch();
    u32x4 lo[DEPTH][2], hi[DEPTH][2];
    struct gemv_tile t = gemv_tile_of(&p, tile);
    UNROLL for (uint32_t i = 0; i < DEPTH; i++)
        if (i * WARPS + warp_id() < chunks) gemv_load(&p, &t, c8 + (i * WARPS + warp_id()) * STEP, lo[i], hi[i]);
    grid_dependency_wait();
    gemv_load_x(&p, first_row, rows, first_k, chunks, x);
    cp_async_wait_all();

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
            const uint32_t ahead = over ? warp_id() : (r + 1) * DEPTH * WARPS + warp_id();
            UNROLL for (uint32_t i = 0; i < DEPTH; i++)
            {
                const uint32_t step = r * DEPTH + i;
                if (step * WARPS + warp_id() < chunks) gemv_multiply(d, lo[i], hi[i], x + step * step_bytes, p.group, rows);
                if ((!over || more) && ahead + i * WARPS < chunks) gemv_load(&p, &f, c8 + (ahead + i * WARPS) * STEP, lo[i], hi[i]);
            }
        }
        float *mine = red + parity * (WARPS * SUMS);
        UNROLL for (uint32_t j = 0; j < NT; j++)
            UNROLL for (uint32_t e = 0; e < 4; e++) mine[warp_id() * SUMS + (j * 4 + e) * 32 + lane_id()] = d[j][e];
        block_sync();
        gemv_merge(&p, &t, tile, split, group, rows, mine, last);
        if (!more) break;
        t = next, tile += stride, parity ^= 1;
    }
}
