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
 * NORM (one tile a block, all of it in flight): x is normalised on its way into shared memory, as gemv_norm.cuh says: gain * x, and the
 * finished sums times 1 / sqrt(mean(x^2) + EPS). KEEP: block 0 also writes the normalised rows.
 *
 * Constants: NORM 0/1 (EPS, OFFSET, KEEP); NT (eights of rows), WARPS, DEPTH, OCCUPANCY, PARTS, SPLIT 0/1, K_TAIL (k is no multiple of 64); those of
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
                mma_bf16(d[j], a, b.v + 2 * s);
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
                const bf16 *from = (const bf16 *)p->x + (size_t)(first_row + m) * (size_t)p->x_stride + (inside ? k : 0);
                cp_async16_zfill(x + ((h * p->group + m) * 4 + c) * 16, from, inside ? 16 : 0);
            }
    cp_async_commit();
}

#if NORM
STATIC_ASSERT(!SPLIT, "a norm wants all of k");
/* This lane's pieces, as gemv_load_x takes them: the norm's weights, and x. */
struct gemv_pieces {
    u32x4 gain[DEPTH][2][2], x[DEPTH][2][NT];
};
DEVICE uint32_t gemv_piece_k(uint32_t i, uint32_t h)
{
    return (i * WARPS + warp_id()) * STEP + h * 32 + lane_id() % 4 * 8;
}
DEVICE float gemv_gain(const u32x4 gain[2], uint32_t i)
{
    const float g = f32_from_bits(gain[i / 4].v[i % 4]);
    return OFFSET != 0 ? OFFSET + g : g;
}
/* 8 of a row times their weights and a factor. */
DEVICE u32x4 gemv_weigh(u32x4 x, const u32x4 gain[2], float factor)
{
    u32x4 r;
    UNROLL for (uint32_t i = 0; i < 4; i++)
    {
        const bf16x2 both = as_bf16x2(x.v[i]);
        r.v[i] = f32_to_bf16x2(bf16x2_lo_f32(both) * factor * gemv_gain(gain, 2 * i), bf16x2_hi_f32(both) * factor * gemv_gain(gain, 2 * i + 1)).bits;
    }
    return r;
}
DEVICE void gemv_ask_gain(const struct gemm_params *p, struct gemv_pieces *s)
{
    UNROLL for (uint32_t i = 0; i < DEPTH; i++)
        UNROLL for (uint32_t h = 0; h < 2; h++)
            UNROLL for (uint32_t e = 0; e < 2; e++)
            {
                const uint32_t k = gemv_piece_k(i, h);
                UNROLL for (uint32_t v = 0; v < 4; v++) s->gain[i][h][e].v[v] = 0;
                if (k < p->k) s->gain[i][h][e] = ld16_early((const float *)p->norm + k + 4 * e);
            }
}
/* x into shared memory; squares of the warp's pieces of each row into part[WARPS][NT * 8]. */
DEVICE void gemv_norm_x(const struct gemm_params *p, uint32_t first_row, uint32_t rows, unsigned char *x, float *part, struct gemv_pieces *s)
{
    const uint32_t q = lane_id() / 4, c = lane_id() % 4;
    float sum[NT];
    UNROLL for (uint32_t j = 0; j < NT; j++) sum[j] = 0;
    UNROLL for (uint32_t i = 0; i < DEPTH; i++)
        UNROLL for (uint32_t h = 0; h < 2; h++)
            UNROLL for (uint32_t j = 0; j < NT; j++)
            {
                UNROLL for (uint32_t v = 0; v < 4; v++) s->x[i][h][j].v[v] = 0;
                if (j * 8 + q < rows && gemv_piece_k(i, h) < p->k)
                    s->x[i][h][j] = ld16((const bf16 *)p->x + (size_t)(first_row + j * 8 + q) * (size_t)p->x_stride + gemv_piece_k(i, h));
            }
    UNROLL for (uint32_t i = 0; i < DEPTH; i++)
        UNROLL for (uint32_t h = 0; h < 2; h++)
            UNROLL for (uint32_t j = 0; j < NT; j++)
            {
                UNROLL for (uint32_t v = 0; v < 4; v++)
                {
                    const float lo = bf16x2_lo_f32(as_bf16x2(s->x[i][h][j].v[v])), hi = bf16x2_hi_f32(as_bf16x2(s->x[i][h][j].v[v]));
                    sum[j] = fma_f32(hi, hi, fma_f32(lo, lo, sum[j]));
                }
                if (j * 8 + q < rows && i * WARPS + warp_id() < ceil_div_u32(p->k, STEP))
                    st16(x + ((i * 2 + h) * p->group + j * 8 + q) * 64 + c * 16, gemv_weigh(s->x[i][h][j], s->gain[i][h], 1.0f));
            }
    UNROLL for (uint32_t j = 0; j < NT; j++)
    {
        const float all = warp_sum_f32(sum[j], 4);
        if (c == 0) part[warp_id() * (NT * 8) + j * 8 + q] = all;
    }
    warp_sync(FULL_WARP);
}
DEVICE float gemv_norm_factor(const struct gemm_params *p, const float *part, uint32_t row)
{
    float sum = 0;
    UNROLL for (uint32_t w = 0; w < WARPS; w++) sum += part[w * (NT * 8) + row];
    return rsqrt_approx(fma_f32(sum, 1.0f / (float)p->k, EPS));
}
DEVICE void gemv_norm_keep(const struct gemm_params *p, uint32_t first_row, uint32_t rows, const float *part, const struct gemv_pieces *s)
{
    const uint32_t q = lane_id() / 4;
    UNROLL for (uint32_t j = 0; j < NT; j++)
    {
        if (j * 8 + q >= rows) continue;
        const float factor = gemv_norm_factor(p, part, j * 8 + q);
        bf16 *y = (bf16 *)p->kept + (size_t)(first_row + j * 8 + q) * (size_t)p->kept_stride;
        UNROLL for (uint32_t i = 0; i < DEPTH; i++)
            UNROLL for (uint32_t h = 0; h < 2; h++)
                if (gemv_piece_k(i, h) < p->k) st16(y + gemv_piece_k(i, h), gemv_weigh(s->x[i][h][j], s->gain[i][h], factor));
    }
}
#endif

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
#if NORM
    SHARED(float, part, WARPS * NT * 8);
    struct gemv_pieces pieces;
    gemv_ask_gain(&p, &pieces);
    grid_dependency_wait();
    gemv_norm_x(&p, first_row, rows, x, part, &pieces);
    block_sync(); /* all squares are there */
    if (KEEP && block == 0) gemv_norm_keep(&p, first_row, rows, part, &pieces);
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
            const uint32_t ahead = over ? warp_id() : (r + 1) * DEPTH * WARPS + warp_id();
            UNROLL for (uint32_t i = 0; i < DEPTH; i++)
            {
                const uint32_t step = r * DEPTH + i;
                if (step * WARPS + warp_id() < chunks) gemv_multiply(d, lo[i], hi[i], x + step * step_bytes, p.group, rows);
                if ((!over || more) && ahead + i * WARPS < chunks) gemv_load(&p, &f, c8 + (ahead + i * WARPS) * STEP, lo[i], hi[i]);
            }
        }
#if NORM
        UNROLL for (uint32_t j = 0; j < NT; j++)
            UNROLL for (uint32_t e = 0; e < 2; e++)
            {
                const float factor = gemv_norm_factor(&p, part, j * 8 + lane_id() % 4 * 2 + e);
                d[j][e] *= factor, d[j][2 + e] *= factor;
            }
#endif
        float *mine = red + parity * (WARPS * SUMS);
        UNROLL for (uint32_t j = 0; j < NT; j++)
            UNROLL for (uint32_t e = 0; e < 4; e++) mine[warp_id() * SUMS + (j * 4 + e) * 32 + lane_id()] = d[j][e];
        block_sync();
        gemv_merge(&p, &t, tile, split, group, rows, mine, last);
        if (!more) break;
        t = next, tile += stride, parity ^= 1;
    }
}
