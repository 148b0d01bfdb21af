// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* y = x W^T for few rows of x and weights in a block format, which are read once as they are and become operands in registers.
 *
 * A tile is 16 weight rows (of a gated pair: 16 of both matrices) by one split of k. A block goes through the tiles first, first + stride,
 * ...; its warps share k in chunks of 256: warp w has the chunks w, w + WARPS, ... of its split. Each warp keeps a ring of DEPTH chunks
 * in shared memory, filled by cp.async (16 bytes a lane, side by side), across tiles; the first ones come before the predecessor ends.
 *
 *     chunk in the ring -> scales of its units as float32, by all lanes -> per unit: codes to pairs of elements, two mma.sync with x,
 *     sums * scale (- sum of x * minimum) added to the tile's, in float32
 *
 * The weights are mma's first operand, so that a lane's four sums belong to two weight rows, whose scales one 16-byte load brings.
 * No weight is rounded; codes are exact. Sums of the warps meet in shared memory in the order of the warps, those of the splits
 * in `work` in the order of the splits (as gemv_rows). Bits depend on the plan alone.
 *
 *     shared: f32 red[BUFFERS][WARPS][SUMS], u32 last[4], a warp each: f32 scales[MATRICES][8 units][8][4], ring [DEPTH][MATRICES][chunk];
 *             x [units of the split][group][64 bytes], with MINIMA f32 sums of x [units][8 NT]
 *     x's row of a unit: lane c's 16 bytes are elements 4c .. 4c + 3 and 16 + 4c .. 16 + 4c + 3, as the weights lie
 *     work:   f32 [groups][tiles][splits][SUMS], of lane's accumulators [MATRICES][NT][4][32]
 *
 * Constants: FORMAT, NT (eights of rows), WARPS, DEPTH, OCCUPANCY, PARTS, SPLIT 0/1, K_TAIL (the last chunk of k is not whole); those of
 * gemm_epilogue.cuh. p.chunks: chunks of a split, p.group <= 8 NT rows of x a group of blocks. */
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/gemm_epilogue.cuh"
#include "kernels/cuda/matmul_blocks_scales.cuh"

#define THREADS (32 * WARPS)
#define MATRICES (1 + GATED)
#define SUMS (MATRICES * NT * 128)
#define BUFFERS (NT < 4 ? 2 : 1)
#define SCALES (BLOCKS_CHUNK * 8) /* f32x4 a matrix */
#define WARP_BYTES (MATRICES * (SCALES * 16 + DEPTH * CHUNK_BYTES))

/* Where a warp is in its sequence of chunks: tile by tile. */
struct few_place {
    uint32_t tile, chunk;
};
DEVICE void few_next(struct few_place *at, uint32_t chunks, uint32_t stride)
{
    at->chunk += WARPS;
    if (at->chunk < chunks) return;
    at->chunk = warp_id();
    at->tile += stride;
}

DEVICE uint32_t few_part(const struct gemm_params *p, uint32_t tile)
{
    uint32_t part = 0;
    if (!GATED) {
        UNROLL for (uint32_t i = 1; i < PARTS; i++) part = tile >= (uint32_t)p->part[i].tile ? i : part;
    }
    return part;
}
/* Units of chunk `chunk` of all of k. */
DEVICE uint32_t few_units(const struct gemm_params *p, uint32_t chunk)
{
    return K_TAIL ? min_u32(p->k / BLOCKS_UNIT - chunk * BLOCKS_CHUNK, BLOCKS_CHUNK) : BLOCKS_CHUNK;
}

/* Ask for a chunk of every matrix; nothing behind the last tile. One group of copies either way. */
DEVICE void few_load(const struct gemm_params *p, const struct few_place *at, uint32_t first_chunk, uint32_t chunks, unsigned char *to)
{
    if (at->tile < p->tiles && at->chunk < chunks) {
        const uint32_t which = few_part(p, at->tile), chunk = first_chunk + at->chunk, bytes = few_units(p, chunk) * UNIT_BYTES;
        UNROLL for (uint32_t g = 0; g < MATRICES; g++)
        {
            const struct gemm_part *part = &p->part[which + g];
            const unsigned char *from = blocks_chunk(part->w, p->k / BLOCKS_UNIT, at->tile - (uint32_t)p->part[which].tile, chunk);
            UNROLL for (uint32_t i = 0; i < (CHUNK_BYTES + 511) / 512; i++)
            {
                const uint32_t o = i * 512 + lane_id() * 16;
                if (o < bytes) cp_async16(to + g * CHUNK_BYTES + o, from + o);
            }
        }
    }
    cp_async_commit();
}

/* One unit: d[NT][4] += (codes * x) scaled. x, sums: the unit's. */
DEVICE void few_multiply(float d[NT][4], const uint32_t a[2][4], const unsigned char *scale, const unsigned char *x, const unsigned char *sums,
                         uint32_t rows)
{
    const uint32_t q = lane_id() / 4, c = lane_id() % 4;
    const u32x4 bits = ld16(scale + q * 16);
    float s[4];
    UNROLL for (int i = 0; i < 4; i++) s[i] = f32_from_bits(bits.v[i]);
    UNROLL for (uint32_t j = 0; j < NT; j++)
    {
        u32x4 b = {{0, 0, 0, 0}};
        if (j * 8 + q < rows) b = ld16(x + ((j * 8 + q) * 4 + c) * 16);
        UNROLL for (int half = 0; half < 1 + HALVES; half++)
        {
            float t[4] = {0, 0, 0, 0};
            mma_element(t, a[half], b.v + 2 * half);
            if (!HALVES) mma_element(t, a[1], b.v + 2);
            UNROLL for (int e = 0; e < 4; e++) d[j][e] = fma_f32(s[2 * half + e / 2], t[e], d[j][e]);
        }
        if (MINIMA) {
            const u32x2 two = ld8(sums + (j * 8 + c * 2) * 4);
            UNROLL for (int e = 0; e < 4; e++) d[j][e] = fma_f32(s[2 + e / 2], f32_from_bits(two.v[e % 2]), d[j][e]);
        }
    }
}

/* Rows of the group, the units of the split; sums of x where they are needed. All threads; ends with a barrier. */
DEVICE void few_load_x(const struct gemm_params *p, uint32_t first_row, uint32_t rows, uint32_t first_unit, uint32_t units, unsigned char *x, float *sums)
{
    for (uint32_t m = 0; m < rows; m++) {
        const element *from = (const element *)p->x + (size_t)(first_row + m) * (size_t)p->x_stride + first_unit * BLOCKS_UNIT;
        for (uint32_t i = thread_x(); i < units * 8; i += THREADS)
            cp_async8(x + (i / 8 * p->group + m) * 64 + i % 4 * 16 + i / 4 % 2 * 8, from + i * 4);
    }
    cp_async_commit();
    cp_async_wait_all();
    block_sync();
    if (!MINIMA) return;
    for (uint32_t i = thread_x(); i < units * NT * 8; i += THREADS) {
        const uint32_t m = i % (NT * 8);
        float sum = 0;
        if (m < rows) {
            UNROLL for (uint32_t h = 0; h < 4; h++)
            {
                const u32x4 v = ld16(x + (i / (NT * 8) * p->group + m) * 64 + h * 16);
                UNROLL for (int e = 0; e < 4; e++) sum += element2_lo_f32(as_element2(v.v[e])) + element2_hi_f32(as_element2(v.v[e]));
            }
        }
        sums[i] = sum;
    }
    block_sync();
}

/* Sums of row m of x and weight rows q (lo) and q + 8 (hi) of the tile; up: of the pair's second matrix. */
DEVICE void few_store(const struct gemm_params *p, const struct gemm_part *part, uint32_t col, uint32_t row, const float lo[MATRICES],
                      const float hi[MATRICES])
{
    if (col < (uint32_t)part->n) gemm_store(part, row, col, gemm_finish(p, part, col, lo[0], lo[MATRICES - 1]));
    if (col + 8 < (uint32_t)part->n) gemm_store(part, row, col + 8, gemm_finish(p, part, col + 8, hi[0], hi[MATRICES - 1]));
}

/* Sum of `count` pieces `stride` floats apart, in their order. */
DEVICE void few_gather(const float *from, uint32_t count, uint32_t stride, float lo[MATRICES], float hi[MATRICES])
{
    UNROLL for (uint32_t g = 0; g < MATRICES; g++)
    {
        lo[g] = hi[g] = 0;
        for (uint32_t w = 0; w < count; w++) lo[g] += from[w * stride + g * NT * 128], hi[g] += from[w * stride + g * NT * 128 + 64];
    }
}

/* The tile's sums of all warps, and of all splits where this block is the last of them. */
DEVICE void few_merge(const struct gemm_params *p, uint32_t tile, uint32_t split, uint32_t group, uint32_t rows, const float *red, uint32_t *last)
{
    const uint32_t counter = group * p->tiles + tile;
    const struct gemm_part *part = &p->part[few_part(p, tile)];
    const uint32_t first_col = (tile - (uint32_t)part->tile) * BLOCKS_TILE, first_row = group * p->group;
    float *work = (float *)p->work + (size_t)counter * p->splits * SUMS, lo[MATRICES], hi[MATRICES];
    for (uint32_t u = thread_x(); u < NT * 64; u += THREADS) {
        const uint32_t at = u / 64 * 128 + u % 64, l = u % 32, m = u / 64 * 8 + l % 4 * 2 + u / 32 % 2;
        if (m >= rows) continue;
        few_gather(red + at, WARPS, SUMS, lo, hi);
        if (SPLIT) {
            UNROLL for (uint32_t g = 0; g < MATRICES; g++) work[split * SUMS + g * NT * 128 + at] = lo[g], work[split * SUMS + g * NT * 128 + at + 64] = hi[g];
        } else {
            few_store(p, part, first_col + l / 4, first_row + m, lo, hi);
        }
    }
    if (!SPLIT || !gemm_last_split(p, counter, last)) return;
    for (uint32_t u = thread_x(); u < NT * 64; u += THREADS) {
        const uint32_t at = u / 64 * 128 + u % 64, l = u % 32, m = u / 64 * 8 + l % 4 * 2 + u / 32 % 2;
        if (m >= rows) continue;
        few_gather(work + at, p->splits, SUMS, lo, hi);
        few_store(p, part, first_col + l / 4, first_row + m, lo, hi);
    }
}

/* A chunk that has arrived: d[matrix] += its products. unit: the chunk's first one in the split. */
DEVICE void few_chunk(float d[MATRICES][NT][4], const unsigned char *ring, unsigned char *scales, const unsigned char *x, const float *sums, uint32_t unit,
                      uint32_t units, uint32_t group, uint32_t rows)
{
    UNROLL for (uint32_t g = 0; g < MATRICES; g++) blocks_chunk_scales(ring + g * CHUNK_BYTES, units, scales + g * SCALES * 16);
    warp_sync(FULL_WARP);
    UNROLL for (uint32_t g = 0; g < MATRICES; g++)
        UNROLL_N(2) for (uint32_t i = 0; i < (K_TAIL ? units : BLOCKS_CHUNK); i++) /* all eight at once compile for seconds */
        {
            uint32_t a[2][4];
            blocks_fragment(ring + g * CHUNK_BYTES, units, i, lane_id(), BLOCKS_MASK, a);
            few_multiply(d[g], a, scales + (g * BLOCKS_CHUNK + i) * 128, x + (unit + i) * group * 64, (const unsigned char *)(sums + (unit + i) * NT * 8), rows);
        }
}

KERNEL(matmul_blocks_few, struct gemm_params, p, THREADS, OCCUPANCY)
{
    float *red = (float *)dynamic_shared();
    uint32_t *last = (uint32_t *)(red + BUFFERS * WARPS * SUMS);
    unsigned char *mine = (unsigned char *)(last + 4) + warp_id() * WARP_BYTES, *ring = mine + MATRICES * SCALES * 16;
    unsigned char *x = (unsigned char *)(last + 4) + WARPS * WARP_BYTES;
    const uint32_t group = block_x() / p.blocks, block = block_x() % p.blocks, split = SPLIT ? block % p.splits : 0;
    const uint32_t stride = SPLIT ? p.blocks / p.splits : p.blocks, first_row = group * p.group;
    const uint32_t rows = min_u32(p.rows - first_row, p.group), all = p.k / BLOCKS_UNIT;
    const uint32_t first_chunk = split * p.chunks, chunks = min_u32(p.chunks, ceil_div_u32(all, BLOCKS_CHUNK) - first_chunk);
    float *sums = (float *)(x + p.chunks * BLOCKS_CHUNK * p.group * 64);
    struct few_place ahead;
    uint32_t tile = SPLIT ? block / p.splits : block, slot = 0, parity = 0;
    ahead.tile = tile, ahead.chunk = warp_id();

    grid_dependency_launch();
    UNROLL for (uint32_t i = 0; i + 1 < DEPTH; i++)
    {
        few_load(&p, &ahead, first_chunk, chunks, ring + i * (MATRICES * CHUNK_BYTES));
        few_next(&ahead, chunks, stride);
    }
    grid_dependency_wait();
    few_load_x(&p, first_row, rows, first_chunk * BLOCKS_CHUNK, min_u32(chunks * BLOCKS_CHUNK, all - first_chunk * BLOCKS_CHUNK), x, sums);

    for (; tile < p.tiles; tile += stride) {
        float d[MATRICES][NT][4];
        UNROLL for (uint32_t g = 0; g < MATRICES; g++)
            UNROLL for (uint32_t j = 0; j < NT; j++)
                UNROLL for (uint32_t e = 0; e < 4; e++) d[g][j][e] = 0;
        for (uint32_t chunk = warp_id(); chunk < chunks; chunk += WARPS) {
            const uint32_t free_slot = slot == 0 ? DEPTH - 1 : slot - 1;
            warp_sync(FULL_WARP); /* all lanes are done with the chunk before this one */
            few_load(&p, &ahead, first_chunk, chunks, ring + free_slot * (MATRICES * CHUNK_BYTES));
            few_next(&ahead, chunks, stride);
            cp_async_wait(DEPTH - 1);
            warp_sync(FULL_WARP);
            few_chunk(d, ring + slot * (MATRICES * CHUNK_BYTES), mine, x, sums, chunk * BLOCKS_CHUNK, few_units(&p, first_chunk + chunk), p.group, rows);
            slot = slot + 1 == DEPTH ? 0 : slot + 1;
        }
        float *sent = red + parity * (WARPS * SUMS);
        UNROLL for (uint32_t g = 0; g < MATRICES; g++)
            UNROLL for (uint32_t j = 0; j < NT; j++)
                UNROLL for (uint32_t e = 0; e < 4; e++) sent[warp_id() * SUMS + ((g * NT + j) * 4 + e) * 32 + lane_id()] = d[g][j][e];
        block_sync();
        few_merge(&p, tile, split, group, rows, sent, last);
        if (BUFFERS == 2) parity ^= 1;
        else block_sync();
    }
    cp_async_wait_all();
}
