// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* y = x W^T by mma.sync for any number of rows: tiles of BM rows x BN weight rows, k in steps of 64, STAGES steps in flight by
 * cp.async (sm_80). The sum of a result runs over k in ascending steps of 16 whatever the tile, so that a row's bits depend on
 * nothing but the row.
 *
 *     x tile [BM][64], w tile [BN][64] elements in shared memory, rows of 128 bytes, 16-byte chunk c of row r at c ^ (r % 8):
 *     loads and ldmatrix touch all banks. WM x WN warps, a warp has (BM / WM) x (BN / WN) of the tile.
 *
 * A gated pair: the w tile alternates 8 rows of the gate with 8 of the up matrix, so that both sums of a result lie in one
 * thread; the tile then has BN / 2 columns. What lies outside of x or W is loaded as zeros and not stored.
 *
 * Weights in a block format (FORMAT, kernels/params/matmul_blocks.h): a warp reads 16 weight rows of a step into registers, two steps ahead, and puts them decoded
 * where other weights' copies arrive, one step ahead; of a gated pair the warps have tiles of both matrices in turn.
 *
 * Blocks go down a strip of RASTER row tiles before the next column tile, so that a wave shares both operands in L2.
 *
 * Constants: BM BN WM WN STAGES RASTER; FORMAT (BLOCKS_*, or not defined); those of gemm_epilogue.cuh. */
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/gemm_epilogue.cuh"
#ifdef FORMAT
#include "kernels/cuda/matmul_blocks_tile.cuh"
#endif

#define THREADS (32 * WM * WN)
#define BK 64
#define ROW_BYTES (BK * 2)
#define TM (BM / WM)
#define TN (BN / WN)
#define COLUMNS (BN / (1 + GATED)) /* of y a tile */
#define STAGE_BYTES ((BM + BN) * ROW_BYTES)
STATIC_ASSERT(TM % 16 == 0 && TN % 16 == 0 && THREADS % 8 == 0, "warps have whole pairs of tiles");

DEVICE uint32_t gemm_at(uint32_t row, uint32_t chunk)
{
    return row * ROW_BYTES + (chunk ^ (row % 8)) * 16;
}

#ifdef FORMAT
STATIC_ASSERT(BN == 16 * WM * WN, "a warp has a tile of weights");

/* A warp's weights: its tile of 16 rows, where they go in the tile of BN, and the step that is on its way. */
struct weights {
    const unsigned char *w;
    uint32_t row, apart, units; /* units: of a row of the matrix */
    struct blocks_raw raw[2];
    f32x4 scale[2];
};
DEVICE uint32_t weights_unit(const struct weights *w, uint32_t step, uint32_t i)
{
    return min_u32(step * 2 + i, w->units - 1); /* behind k x is zero */
}
DEVICE void weights_load(struct weights *w, uint32_t step)
{
    UNROLL for (uint32_t i = 0; i < 2; i++)
    {
        const uint32_t unit = weights_unit(w, step, i), chunk = unit / BLOCKS_CHUNK, units = min_u32(w->units - chunk * BLOCKS_CHUNK, BLOCKS_CHUNK);
        w->raw[i] = blocks_raw_load(w->w + (size_t)chunk * CHUNK_BYTES, units, unit % BLOCKS_CHUNK, lane_id());
        w->scale[i] = blocks_scale(w->w + (size_t)chunk * CHUNK_BYTES, units, unit % BLOCKS_CHUNK, lane_id() / 4);
    }
}
/* The step to its place, and the next one on its way. */
DEVICE void weights_store(struct weights *w, uint32_t step, unsigned char *to)
{
    UNROLL for (uint32_t i = 0; i < 2; i++)
        blocks_store(&w->raw[i], weights_unit(w, step, i) % BLOCKS_CHUNK, w->scale[i], to + w->row * ROW_BYTES, w->apart, i);
    weights_load(w, step + 1);
}
DEVICE struct weights weights_begin(const struct gemm_params *p, const struct gemm_part *part, uint32_t col)
{
    const uint32_t warp = warp_id(), up = GATED ? warp % 2 : 0, tile = col / BLOCKS_TILE + (GATED ? warp / 2 : warp), tiles = ceil_div_u32((uint32_t)part->n, BLOCKS_TILE);
    struct weights w;
    w.units = p->k / BLOCKS_UNIT;
    w.w = blocks_chunk(up ? p->part[1].w : part->w, w.units, min_u32(tile, tiles - 1), 0);
    w.row = GATED ? warp / 2 * 32 + up * 8 : warp * 16, w.apart = GATED ? 16 : 8;
    weights_load(&w, 0);
    return w;
}
#else
/* Step `step` of k of the weight tile at column `col`. */
DEVICE void gemm_load_w(const struct gemm_params *p, const struct gemm_part *part, uint32_t col, uint32_t step, unsigned char *to)
{
    const uint32_t chunk = thread_x() % 8, k = step * BK + chunk * 8;
    UNROLL for (uint32_t i = 0; i < (BN * 8 + THREADS - 1) / THREADS; i++)
    {
        const uint32_t r = thread_x() / 8 + i * (THREADS / 8);
        if (BN % (THREADS / 8) && r >= BN) break;
        const uint32_t n = col + (GATED ? r / 16 * 8 + r % 8 : r);
        const element *w = (const element *)(GATED && r / 8 % 2 ? p->part[1].w : part->w);
        const bool inside = n < (uint32_t)part->n && k < p->k;
        cp_async16_zfill(to + gemm_at(r, chunk), inside ? w + (size_t)n * p->k + k : w, inside ? 16 : 0);
    }
}
#endif
DEVICE void gemm_load_x(const struct gemm_params *p, uint32_t row, uint32_t step, unsigned char *to)
{
    const uint32_t chunk = thread_x() % 8, k = step * BK + chunk * 8;
    UNROLL for (uint32_t i = 0; i < (BM * 8 + THREADS - 1) / THREADS; i++)
    {
        const uint32_t r = thread_x() / 8 + i * (THREADS / 8);
        if (BM % (THREADS / 8) && r >= BM) break;
        const bool inside = row + r < p->rows && k < p->k;
        cp_async16_zfill(to + gemm_at(r, chunk), (const element *)p->x + (inside ? (size_t)(row + r) * (size_t)p->x_stride + k : 0),
                         inside ? 16 : 0);
    }
}

/* One step: d[TM / 16][TN / 8] += x tile * w tile. */
DEVICE void gemm_step(float d[TM / 16][TN / 8][4], const unsigned char *x, const unsigned char *w, uint32_t warp_m, uint32_t warp_n)
{
    const uint32_t lane = lane_id();
    UNROLL for (uint32_t k = 0; k < BK / 16; k++)
    {
        uint32_t a[TM / 16][4], b[TN / 8][2];
        UNROLL for (uint32_t i = 0; i < TM / 16; i++)
            ldmatrix_x4(a[i], x + gemm_at(warp_m * TM + i * 16 + lane % 16, k * 2 + lane / 16));
        UNROLL for (uint32_t j = 0; j < TN / 16; j++)
        {
            uint32_t four[4];
            ldmatrix_x4(four, w + gemm_at(warp_n * TN + j * 16 + lane / 16 * 8 + lane % 8, k * 2 + lane / 8 % 2));
            b[2 * j][0] = four[0], b[2 * j][1] = four[1], b[2 * j + 1][0] = four[2], b[2 * j + 1][1] = four[3];
        }
        UNROLL for (uint32_t i = 0; i < TM / 16; i++)
            UNROLL for (uint32_t j = 0; j < TN / 8; j++) mma_element(d[i][j], a[i], b[j]);
    }
}

KERNEL(gemm_rows, struct gemm_params, p, THREADS, 1)
{
    unsigned char *shared = dynamic_shared();
    const uint32_t row_tiles = ceil_div_u32(p.rows, BM), strip = block_x() / (RASTER * p.tiles), in_strip = block_x() % (RASTER * p.tiles);
    const uint32_t strip_rows = min_u32(row_tiles - strip * RASTER, RASTER);
    const uint32_t tile = in_strip / strip_rows, row = (strip * RASTER + in_strip % strip_rows) * BM;
    const uint32_t steps = ceil_div_u32(p.k, BK);
    const uint32_t warp_m = warp_id() % WM, warp_n = warp_id() / WM;
    uint32_t which = 0;
    if (!GATED) {
        UNROLL for (uint32_t i = 1; i < GEMM_PARTS; i++) which = p.part[i].n && tile >= (uint32_t)p.part[i].tile ? i : which;
    }
    const struct gemm_part part = p.part[which];
    const uint32_t col = (tile - (uint32_t)part.tile) * COLUMNS;
    float d[TM / 16][TN / 8][4];
    UNROLL for (uint32_t i = 0; i < TM / 16; i++)
        UNROLL for (uint32_t j = 0; j < TN / 8; j++)
            UNROLL for (uint32_t e = 0; e < 4; e++) d[i][j][e] = 0;

    /* Weights do not wait for the predecessor. */
    grid_dependency_launch();
#ifdef FORMAT
    struct weights w = weights_begin(&p, &part, col);
    weights_store(&w, 0, shared + BM * ROW_BYTES);
#else
    UNROLL for (uint32_t s = 0; s < STAGES - 1; s++)
        if (s < steps) gemm_load_w(&p, &part, col, s, shared + s * STAGE_BYTES + BM * ROW_BYTES);
#endif
    grid_dependency_wait();
    UNROLL for (uint32_t s = 0; s < STAGES - 1; s++)
    {
        if (s < steps) gemm_load_x(&p, row, s, shared + s * STAGE_BYTES);
        cp_async_commit();
    }
    for (uint32_t s = 0; s < steps; s++) {
        cp_async_wait(STAGES - 2);
        block_sync(); /* step s has arrived for all, and nobody reads the place of step s - 1 any more */
        const uint32_t next = s + STAGES - 1;
        unsigned char *to = shared + next % STAGES * STAGE_BYTES, *from = shared + s % STAGES * STAGE_BYTES;
        if (next < steps) {
            gemm_load_x(&p, row, next, to);
#ifndef FORMAT
            gemm_load_w(&p, &part, col, next, to + BM * ROW_BYTES);
#endif
        }
        cp_async_commit();
#ifdef FORMAT
        if (s + 1 < steps) weights_store(&w, s + 1, shared + (s + 1) % STAGES * STAGE_BYTES + BM * ROW_BYTES);
#endif
        gemm_step(d, from, from + BM * ROW_BYTES, warp_m, warp_n);
    }
    cp_async_wait_all();

    const uint32_t q = lane_id() / 4, c = lane_id() % 4 * 2;
    UNROLL for (uint32_t i = 0; i < TM / 16; i++)
        UNROLL for (uint32_t j = 0; j < TN / 8; j += 1 + GATED)
            UNROLL for (uint32_t h = 0; h < 2; h++)
            {
                const uint32_t r = row + warp_m * TM + i * 16 + h * 8 + q, n = col + (warp_n * TN + j * 8) / (1 + GATED) + c;
                const uint32_t up = j + GATED;
                if (r < p.rows)
                    gemm_store_pair(&p, &part, r, n, d[i][j][2 * h], d[i][j][2 * h + 1], d[i][up][2 * h], d[i][up][2 * h + 1]);
            }
}
