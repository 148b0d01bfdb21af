// arch: sm_90a
/* y = x W^T for many rows of x and weights in a block format on Hopper: a warp decodes its 16 weight rows into registers, where they are the A operand of
 * wgmma; N rows of x are its columns. No 16-bit copy of the weights passes through memory, shared or other. Weights are rounded to 16 bits once, as
 * matmul_blocks_rows.cu rounds them.
 *
 *     consumers  two warpgroups of 64 weight rows, or three, where few rows of x leave decoding the longer part: 64 of k are decoded while the products of the 64
 *                before run, and while the other warpgroups' do
 *     producers  a thread for x, one for weights: rings of their own, since a chunk of weights is four steps of x
 *
 *     x        [STAGES][N][64] elements, rows of 128 bytes, swizzled by TMA: a step of k
 *     weights  [W_STAGES][WARPS] chunks (matmul_blocks_stream.cuh)
 *     scales   [WARPS][2] KB: of a chunk as float32 (matmul_blocks_scales.cuh), of this chunk and the one before
 *     results  [WARPS] 512 bytes: rows of x by the warp's columns on their way to 16-byte stores
 *     work     f32 [groups][blocks][2][N / 2][32 WARPS]: sums of tiles that blocks share (gemv_runs.cuh)
 *
 * How codes become operands: matmul_blocks_operand.cuh.
 *
 * A gated pair: a warp's rows q are eight of the gate's, q + 8 of the up matrix, so that both sums of a result lie in one thread. Two warps share two tiles of
 * the format, each has the scales of one.
 *
 * CLUSTER 1: whole tiles, of all groups of N rows, in turn; 0: every block of a group has an equal run of its chunks.
 *
 * Constants: FORMAT, N (32, 64, 128, 192, 256), WARPS (8; 12 with N up to 64), STAGES, W_STAGES, CLUSTER (0, 1), PARTS, K_TAIL (the last chunk of k is not whole), STAGED (y's rows are
 * 16-byte aligned, n a multiple of 8); those of gemm_epilogue.cuh. */
#define CONSUMERS (32 * WARPS)
#define THREADS (CONSUMERS + 128)
#define ROWS (16 * WARPS)
#define COLUMNS (ROWS / (1 + GATED))
#define KB 4
#define X_BYTES (N * 128)
#define STAGE_BYTES X_BYTES
#define W_BYTES (WARPS * CHUNK_BYTES)
#define RESULT_BYTES 512
#define VECTORS (2 / (1 + GATED)) /* of 16 bytes that a row of x has of a warp's results */
#define RESULT_ROWS (32 / VECTORS)
#define MULTIPLY_(N, d, a, b, acc) wgmma_element_rs(N, d, a, b, acc)
#define MULTIPLY(N, d, a, b, acc) MULTIPLY_(N, d, a, b, acc)
#define GEMV_ALONE
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/tma.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/gemm_epilogue.cuh"
#include "kernels/cuda/matmul_blocks_operand.cuh"
#include "kernels/cuda/matmul_blocks_scales.cuh"
#include "kernels/cuda/matmul_blocks_stream.cuh"
#include "kernels/params/gemm_wgmma.h"

STATIC_ASSERT(N % RESULT_ROWS == 0, "results leave in whole turns");

/* ---- producers -------------------------------------------------------------------------------------------------------------------- */

/* Units of the block's run: of which group of rows and which tile. */
struct place {
    uint32_t group, tile;
};
DEVICE struct place place_of(const struct gemm_params *p, const struct gemv_run *run, uint32_t unit)
{
    const uint32_t at = run->first + unit / run->len * run->stride;
    const struct place r = {at / p->tiles, at % p->tiles};
    return r;
}
DEVICE struct gemv_run run_of(const struct gemm_params *p)
{
    struct gemv_run r = gemv_run_of(p, block_x() % p->blocks);
    if (CLUSTER) {
        const uint32_t count = p->tiles * ceil_div_u32(p->rows, N);
        r.first = block_x(), r.stride = grid_dim_x();
        r.end = r.first < count ? r.len * ceil_div_u32(count - r.first, r.stride) : 0;
    } else
        r.first = block_x() / p->blocks * p->tiles;
    return r;
}

DEVICE void produce_x(const struct gemm_wgmma_params *p, unsigned char *stages, mbarrier *full, mbarrier *empty, const struct gemv_run *run)
{
    const uint64_t keep = l2_evict_normal();
    uint32_t stage = 0, phase = 1;
    grid_dependency_wait();
    for (uint32_t unit = run->begin; unit < run->end; unit++) {
        const uint32_t chunk = unit % run->len, row = place_of(&p->g, run, unit).group * N, steps = (ring_units(&p->g, chunk) + 1) / 2;
        for (uint32_t i = 0; i < steps; i++) {
            mbarrier_wait(&empty[stage], phase);
            mbarrier_arrive_expect(&full[stage], X_BYTES);
            tma_load_2d(stages + stage * X_BYTES, &p->x, (int32_t)((chunk * KB + i) * 64), (int32_t)row, &full[stage], keep);
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
    }
}
/* Weights do not wait for the predecessor. */
DEVICE void produce_weights(const struct gemm_params *p, unsigned char *weights, mbarrier *full, mbarrier *empty, const struct gemv_run *run)
{
    const uint64_t policy = p->rows > N ? l2_evict_normal() : l2_evict_first();
    uint32_t slot = 0, phase = 1;
    for (uint32_t unit = run->begin; unit < run->end; unit++) {
        const uint32_t chunk = unit % run->len, tile = place_of(p, run, unit).tile;
        mbarrier_wait(&empty[slot], phase);
        mbarrier_arrive_expect(&full[slot], ring_bytes(p, tile, chunk));
        ring_load(p, weights + slot * W_BYTES, tile, chunk, &full[slot], policy);
        if (++slot == W_STAGES) slot = 0, phase ^= 1;
    }
}

/* ---- weights ---------------------------------------------------------------------------------------------------------------------- */

/* The ring of weights as a consumer warp reads it. */
struct feed {
    const unsigned char *weights;
    unsigned char *scales; /* of all warps */
    mbarrier *full, *empty;
    struct operand operand;
    uint32_t slot, phase, turn, units; /* turn: which of the two KB; units: of the chunk */
    bool mine;                         /* the warp has a tile here */
};
DEVICE void feed_begin(struct feed *f, uint32_t units)
{
    f->units = units, f->turn ^= 1;
    mbarrier_wait(&f->full[f->slot], f->phase);
    if (f->mine) {
        blocks_chunk_scales(f->weights + f->slot * W_BYTES + warp_id() * CHUNK_BYTES, units, f->scales + (warp_id() * 2 + f->turn) * 1024);
        if (GATED) barrier_sync(2 + warp_id() / 2, 64);
    }
    warp_sync(FULL_WARP);
}
DEVICE void feed_end(struct feed *f)
{
    warp_sync(FULL_WARP);
    if (lane_id() == 0) mbarrier_arrive(&f->empty[f->slot]);
    if (++f->slot == W_STAGES) f->slot = 0, f->phase ^= 1;
}

/* Scale, and what is added, of row q (row 0) or q + 8 of the warp in a half of a unit. */
DEVICE f32x2 feed_scale(const struct feed *f, uint32_t unit, uint32_t row, uint32_t half)
{
    const uint32_t warp = warp_id(), of = GATED ? warp / 2 * 2 + row : warp, in = GATED ? warp % 2 : row;
    const unsigned char *s = f->scales + (of * 2 + f->turn) * 1024 + (unit * 8 + lane_id() / 4) * 16;
    f32x2 r;
    r.v[0] = f32_from_bits(ld4(s + (HALVES ? half * 8 : 0) + in * 4));
    r.v[1] = MINIMA ? f32_from_bits(ld4(s + 8 + in * 4)) : r.v[0] * -OPERAND_OFFSET;
    return r;
}
/* A unit's weights as wgmma's A operands; zeros where there are none. */
DEVICE void feed_decode(const struct feed *f, uint32_t unit, uint32_t a[2][4])
{
    const uint32_t q = lane_id() / 4, c = lane_id() % 4, warp = warp_id();
    if (!f->mine || (K_TAIL && unit >= f->units)) {
        UNROLL for (uint32_t half = 0; half < 2; half++)
            UNROLL for (uint32_t i = 0; i < 4; i++) a[half][i] = 0;
        return;
    }
    const unsigned char *chunks = f->weights + f->slot * W_BYTES + (GATED ? warp / 2 * 2 : warp) * CHUNK_BYTES;
    float scale[2][2], added[2][2];
    UNROLL for (uint32_t row = 0; row < 2; row++)
        UNROLL for (uint32_t half = 0; half < 2; half++)
        {
            const f32x2 s = feed_scale(f, unit, row, half);
            scale[row][half] = s.v[0], added[row][half] = s.v[1];
        }
    UNROLL for (uint32_t pair = 0; pair < 2; pair++) /* c, 4 + c */
    {
        struct blocks_raw raw[1 + GATED];
        UNROLL for (uint32_t m = 0; m < 1 + GATED; m++) raw[m] = blocks_raw_load(chunks + m * CHUNK_BYTES, f->units, unit, q * 4 + pair * 2 + c / 2);
        UNROLL for (uint32_t row = 0; row < 2; row++)
        {
            const struct blocks_raw *r = &raw[GATED ? row : 0];
            uint32_t w[BLOCKS_WORDS], out[2];
            UNROLL for (uint32_t i = 0; i < BLOCKS_WORDS; i++) w[i] = (GATED ? warp % 2 : row) ? r->w[BLOCKS_WORDS + i] : r->w[i];
            operand_pairs(&f->operand, w, r->high, unit, GATED ? 0 : row, scale[row], added[row], out);
            a[0][pair * 2 + row] = out[0], a[1][pair * 2 + row] = out[1];
        }
    }
}

/* ---- results ---------------------------------------------------------------------------------------------------------------------- */

/* Sums d[4 j + e] are rows first_row + 8 j + 2 c + e of column q of the warp, d[4 j + 2 + e] of column q + 8, or, GATED, the up matrix' of column q. */
DEVICE float finished(const struct gemm_params *p, const struct gemm_part *part, uint32_t column, const float *d, uint32_t half, uint32_t e)
{
    if (BIAS && column >= (uint32_t)part->n) return 0.0f;
    return gemm_finish(p, part, column, d[(GATED ? 0 : 2 * half) + e], GATED ? d[2 + e] : 0.0f);
}

/* Where this lane's 16 bytes of turn `turn` lie in y; false where y has none. */
DEVICE bool result_place(const struct gemm_params *p, const struct gemm_part *part, uint32_t first_row, uint32_t column, uint32_t turn, element **y)
{
    const uint32_t row = first_row + turn * RESULT_ROWS + lane_id() / VECTORS, at = column + lane_id() % VECTORS * 8;
    *y = (element *)part->y + (size_t)row * (size_t)part->y_stride + at;
    return row < p->rows && at < (uint32_t)part->n;
}
/* Vector `vector` of row `row` of a turn. */
DEVICE unsigned char *result_at(unsigned char *result, uint32_t row, uint32_t vector)
{
    return result + row * (VECTORS * 16) + ((VECTORS == 2 ? vector ^ row / 4 % 2 : vector) << 4);
}

/* column: the warp's first; result: its 512 bytes. */
DEVICE void results_staged(const struct gemm_params *p, const struct gemm_part *part, uint32_t first_row, uint32_t column, const float d[N / 2], unsigned char *result)
{
    const uint32_t lane = lane_id(), q = lane / 4;
    const u32x4 zero = {{0, 0, 0, 0}};
    u32x4 old = zero;
    element *y;
    unsigned char *mine = result_at(result, lane / VECTORS, lane % VECTORS), *at = result_at(result, lane / 8 / VECTORS * 8 + lane % 8, lane / 8 % VECTORS);
    if (ACCUMULATE && result_place(p, part, first_row, column, 0, &y)) old = ld16(y);
    UNROLL for (uint32_t turn = 0; turn < N / RESULT_ROWS; turn++)
    {
        uint32_t word[4], before[4] = {0, 0, 0, 0};
        if (ACCUMULATE) {
            st16(mine, old);
            warp_sync(FULL_WARP);
            ldmatrix_x4_trans(before, at);
            warp_sync(FULL_WARP);
            old = zero;
            if (turn + 1 < N / RESULT_ROWS && result_place(p, part, first_row, column, turn + 1, &y)) old = ld16(y);
        }
        UNROLL for (uint32_t i = 0; i < 4; i++)
        {
            const uint32_t half = i % VECTORS;
            const float *of = d + 4 * (turn * (RESULT_ROWS / 8) + i / VECTORS);
            float v[2];
            UNROLL for (uint32_t e = 0; e < 2; e++) v[e] = finished(p, part, column + half * 8 + q, of, half, e);
            if (ACCUMULATE) v[0] += element2_lo_f32(as_element2(before[i])), v[1] += element2_hi_f32(as_element2(before[i]));
            word[i] = f32_to_element2(v[0], v[1]).bits;
        }
        stmatrix_x4_trans(at, word);
        warp_sync(FULL_WARP);
        if (result_place(p, part, first_row, column, turn, &y)) st16(y, ld16(mine));
        warp_sync(FULL_WARP);
    }
}
DEVICE void results_direct(const struct gemm_params *p, const struct gemm_part *part, uint32_t first_row, uint32_t column, const float d[N / 2])
{
    const uint32_t q = lane_id() / 4, c = lane_id() % 4;
    UNROLL for (uint32_t j = 0; j < N / 8; j++)
        UNROLL for (uint32_t half = 0; half < VECTORS; half++)
            UNROLL for (uint32_t e = 0; e < 2; e++)
            {
                const uint32_t row = first_row + j * 8 + 2 * c + e, at = column + half * 8 + q;
                if (row < p->rows && at < (uint32_t)part->n) gemm_store(part, row, at, finished(p, part, at, d + 4 * j, half, e));
            }
}

/* ---- consumers -------------------------------------------------------------------------------------------------------------------- */

DEVICE void consume(const struct gemm_params *p, const unsigned char *stages, mbarrier *full, mbarrier *empty, struct feed *f, const struct gemv_run *run,
                    unsigned char *result, uint32_t *last)
{
    const uint64_t b0 = wgmma_desc(stages, 16, 1024, 128);
    uint32_t stage = 0, phase = 0;
    (void)last;
    if (run->begin == run->end) grid_dependency_wait(); /* a grid without work must not end before its predecessors */
    UNROLL_N(1) for (uint32_t unit = run->begin; unit < run->end;)
    {
        const struct place at = place_of(p, run, unit);
        const uint32_t from = unit % run->len, to = min_u32(run->len, from + run->end - unit);
        const struct gemm_part *part = &p->part[gemv_part_of(p, at.tile)];
        float d[N / 2];
        uint32_t a[2][2][2][4]; /* two steps, two units of each */
        f->mine = warp_id() < ring_tile_of(p, at.tile).count;
        feed_begin(f, ring_units(p, from));
        UNROLL for (uint32_t u = 0; u < 2; u++) feed_decode(f, u, a[0][u]);
        if (unit == run->begin) grid_dependency_wait(); /* y and work may be a predecessor's */
        UNROLL_N(1) for (uint32_t s = from; s < to; s++)
        {
            const uint32_t units = ring_units(p, s), steps = K_TAIL ? (units + 1) / 2 : KB;
            UNROLL_N(1) for (uint32_t i = 0; i < steps; i += 2) /* all four steps at once take twice as long to compile */
                UNROLL for (uint32_t j = 0; j < 2; j++)
                {
                    const uint32_t next = i + j + 1;
                    if (K_TAIL && j && next > steps) continue;
                    const uint64_t b = b0 + stage * (X_BYTES >> 4);
                    mbarrier_wait(&full[stage], phase);
                    wgmma_pin(d, N / 2);
                    wgmma_fence();
                    UNROLL for (uint32_t k = 0; k < 4; k++) MULTIPLY(N, d, a[j][k / 2][k % 2], b + k * 2, (s - from) | i | j | k);
                    wgmma_commit();
                    wgmma_pin(d, N / 2);
                    /* The next step's weights meanwhile. */
                    if ((j || K_TAIL) && next >= steps) {
                        feed_end(f);
                        if (s + 1 < to) feed_begin(f, ring_units(p, s + 1));
                    }
                    if (next < steps || s + 1 < to) {
                        UNROLL for (uint32_t u = 0; u < 2; u++) feed_decode(f, (next < steps ? next * 2 : 0) + u, a[1 - j][u]);
                    }
                    wgmma_wait(0);
                    wgmma_pin(d, N / 2);
                    if (lane_id() == 0) mbarrier_arrive(&empty[stage]);
                    if (++stage == STAGES) stage = 0, phase ^= 1;
                }
        }
#if !CLUSTER
        if ((from == 0 && to == run->len) || gemv_merge(p, at.group, block_x() % p->blocks, at.tile, run->len, d, last))
#endif
        {
            const uint32_t column = (at.tile - (uint32_t)part->tile) * COLUMNS + warp_id() * (16 / (1 + GATED));
            if (STAGED)
                results_staged(p, part, at.group * N, column, d, result);
            else
                results_direct(p, part, at.group * N, column, d);
        }
        unit += to - from;
    }
}

KERNEL(matmul_blocks_wgmma, struct gemm_wgmma_params, p, THREADS, 1)
{
    unsigned char *stages = dynamic_shared(), *weights = stages + STAGES * X_BYTES, *scales = weights + W_STAGES * W_BYTES, *results = scales + WARPS * 2048;
    mbarrier *full = (mbarrier *)(results + WARPS * RESULT_BYTES), *empty = full + STAGES, *w_full = empty + STAGES, *w_empty = w_full + W_STAGES;
    const struct gemv_run run = run_of(&p.g);
    if (thread_x() == CONSUMERS) tma_prefetch_map(&p.x);
    if (thread_x() == 0) {
        UNROLL for (uint32_t s = 0; s < STAGES; s++) mbarrier_init(&full[s], 1), mbarrier_init(&empty[s], WARPS);
        UNROLL for (uint32_t s = 0; s < W_STAGES; s++) mbarrier_init(&w_full[s], 1), mbarrier_init(&w_empty[s], WARPS);
        fence_mbarrier_init();
    }
    block_sync();
    grid_dependency_launch();
    if (thread_x() >= CONSUMERS) {
        registers_shrink(WARPS == 8 ? 40 : 32);
        if (thread_x() == CONSUMERS) produce_x(&p, stages, full, empty, &run);
        if (thread_x() == CONSUMERS + 32) produce_weights(&p.g, weights, w_full, w_empty, &run);
    } else {
        struct feed f = {weights, scales, w_full, w_empty, operand_begin(GATED && warp_id() % 2 != 0, blocks_mask(p.g.rows)), 0, 0, 0, 0, false};
        registers_grow(WARPS == 8 ? 232 : 160);
        consume(&p.g, stages, full, empty, &f, &run, results + warp_id() * RESULT_BYTES, (uint32_t *)(w_empty + W_STAGES));
    }
}
