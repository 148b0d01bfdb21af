// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* y = x W^T by mma.sync for any number of rows and weights of e4m3 with scales: tiles of BM rows x BN weight rows, k in steps of 128
 * codes, STAGES steps in flight by cp.async. After gemm_rows.cu, with which it shares order and epilogue.
 *
 * A8 0: x is bf16; codes become bf16 operands in registers (exact), so that nothing is rounded but y. A row's bits depend on nothing but
 *       the row. ldmatrix gives a lane codes 4 c .. 4 c + 3 of 16 of a weight row; x's operand takes the same four elements (the sum does
 *       not care which k an operand's place stands for), 8 bytes of a row.
 * A8 1: x is e4m3 with scales (one for 128 of k of a row, or one a row): mma of e4m3 (sm_89). Its sums are kept apart for 128 of k each
 *       and added in float32, because the instruction keeps fewer bits than float32 has.
 *
 *     x tile [BM][128], w tile [BN][128] in shared memory, 16-byte chunk j of row r at j ^ (r % 8) of its 128 bytes; bf16 rows of x have
 *     two times 128 bytes
 *
 * FP8_BLOCKS: the sums of a step are multiplied with the scale of their 128 x 128 block (A8: times that of the row). A tile's columns
 * lie in one block. FP8_CHANNELS: scales multiply the finished sums.
 *
 * Constants: BM BN WM WN STAGES RASTER A8 SCALES; those of gemm_epilogue.cuh. */
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/fp8.cuh"
#include "kernels/cuda/gemm_epilogue.cuh"

#define THREADS (32 * WM * WN)
#define BK 128
#define X_ROW (A8 ? BK : 2 * BK) /* bytes */
#define TM (BM / WM)
#define TN (BN / WN)
#define COLUMNS (BN / (1 + GATED)) /* of y a tile */
#define STAGE_BYTES (BM * X_ROW + BN * BK)
#define APART (A8 || SCALES == FP8_BLOCKS) /* the sums of a step */
STATIC_ASSERT(TM % 16 == 0 && TN % 16 == 0 && THREADS % 16 == 0 && FP8_BLOCK % COLUMNS == 0, "warps have whole pairs of tiles");

typedef float gemm_sums[TM / 16][TN / 8][4];

DEVICE uint32_t gemm_at(uint32_t row, uint32_t chunk, uint32_t row_bytes)
{
    return row * row_bytes + (chunk & 8) * 16 + ((chunk ^ row) & 7) * 16;
}

/* Step `step` of k of the weight tile at column `col`. */
DEVICE void gemm_load_w(const struct gemm_params *p, const struct gemm_part *part, uint32_t col, uint32_t step, unsigned char *to)
{
    const uint32_t chunk = thread_x() % 8, k = step * BK + chunk * 16;
    UNROLL for (uint32_t i = 0; i < (BN * 8 + THREADS - 1) / THREADS; i++)
    {
        const uint32_t r = thread_x() / 8 + i * (THREADS / 8);
        if (BN % (THREADS / 8) && r >= BN) break;
        const uint32_t n = col + (GATED ? r / 16 * 8 + r % 8 : r);
        const unsigned char *w = (const unsigned char *)(GATED && r / 8 % 2 ? p->part[1].w : part->w);
        const bool inside = n < (uint32_t)part->n && k < p->k;
        cp_async16_zfill(to + gemm_at(r, chunk, BK), inside ? w + (size_t)n * p->k + k : w, inside ? 16 : 0);
    }
}
DEVICE void gemm_load_x(const struct gemm_params *p, uint32_t row, uint32_t step, unsigned char *to)
{
    const uint32_t chunks = X_ROW / 16, chunk = thread_x() % chunks, k = step * BK + chunk * (A8 ? 16 : 8);
    UNROLL for (uint32_t i = 0; i < (BM * chunks + THREADS - 1) / THREADS; i++)
    {
        const uint32_t r = thread_x() / chunks + i * (THREADS / chunks);
        if (BM % (THREADS / chunks) && r >= BM) break;
        const bool inside = row + r < p->rows && k < p->k;
        const size_t at = inside ? ((size_t)(row + r) * (size_t)p->x_stride + k) * (A8 ? 1 : 2) : 0;
        cp_async16_zfill(to + gemm_at(r, chunk, X_ROW), (const unsigned char *)p->x + at, inside ? 16 : 0);
    }
}

/* The codes of TN weight rows, 16 of k from chunk `chunk` and from the next one: lane's word of each. */
DEVICE void gemm_codes(uint32_t b[TN / 8][2], const unsigned char *w, uint32_t warp_n, uint32_t chunk)
{
    const uint32_t lane = lane_id();
    UNROLL for (uint32_t j = 0; j < TN / 16; j++)
    {
        uint32_t four[4];
        ldmatrix_x4(four, w + gemm_at(warp_n * TN + j * 16 + lane / 16 * 8 + lane % 8, chunk + lane / 8 % 2, BK));
        b[2 * j][0] = four[0], b[2 * j][1] = four[1], b[2 * j + 1][0] = four[2], b[2 * j + 1][1] = four[3];
    }
}

#if A8
DEVICE void gemm_step(gemm_sums d, const unsigned char *x, const unsigned char *w, uint32_t warp_m, uint32_t warp_n)
{
    const uint32_t lane = lane_id();
    UNROLL for (uint32_t k = 0; k < BK / 32; k++)
    {
        uint32_t a[TM / 16][4], b[TN / 8][2];
        UNROLL for (uint32_t i = 0; i < TM / 16; i++) ldmatrix_x4(a[i], x + gemm_at(warp_m * TM + i * 16 + lane % 16, k * 2 + lane / 16, X_ROW));
        gemm_codes(b, w, warp_n, k * 2);
        UNROLL for (uint32_t i = 0; i < TM / 16; i++)
            UNROLL for (uint32_t j = 0; j < TN / 8; j++) mma_e4m3(d[i][j], a[i], b[j]);
    }
}
#else
DEVICE void gemm_step(gemm_sums d, const unsigned char *x, const unsigned char *w, uint32_t warp_m, uint32_t warp_n)
{
    const uint32_t q = lane_id() / 4, c = lane_id() % 4;
    UNROLL for (uint32_t k = 0; k < BK / 32; k++)
    {
        uint32_t codes[TN / 8][2];
        gemm_codes(codes, w, warp_n, k * 2);
        UNROLL for (uint32_t h = 0; h < 2; h++) /* 16 of k: two chunks of x */
        {
            uint32_t a[TM / 16][4];
            UNROLL for (uint32_t i = 0; i < TM / 16; i++)
                UNROLL for (uint32_t half = 0; half < 2; half++)
                {
                    const uint32_t row = warp_m * TM + i * 16 + half * 8 + q;
                    const u32x2 v = ld8(x + gemm_at(row, k * 4 + h * 2 + c / 2, X_ROW) + c % 2 * 8);
                    a[i][half] = v.v[0], a[i][2 + half] = v.v[1];
                }
            UNROLL for (uint32_t j = 0; j < TN / 8; j++)
            {
                uint32_t b[2];
                fp8_pairs(codes[j][h], b);
                UNROLL for (uint32_t i = 0; i < TM / 16; i++) mma_bf16(d[i][j], a[i], b);
            }
        }
    }
}
#endif

/* This thread's rows: x's scales of k block `block` (FP8_BLOCKS), or of the rows. */
DEVICE void gemm_row_scales(const struct gemm_fp8_params *p, uint32_t first, uint32_t block, float out[TM / 16][2])
{
    UNROLL for (uint32_t i = 0; i < TM / 16; i++)
        UNROLL for (uint32_t h = 0; h < 2; h++)
        {
            const uint32_t row = min_u32(first + i * 16 + h * 8, p->g.rows - 1);
            out[i][h] = A8 ? ((const float *)p->s.x)[(size_t)block * (size_t)p->s.x_stride + row] : 1.0f;
        }
}

/* The sums of a step, times their scales, to d. */
DEVICE void gemm_promote(const struct gemm_fp8_params *p, gemm_sums d, gemm_sums apart, uint32_t part, uint32_t col, uint32_t first, uint32_t step)
{
    float w[1 + GATED], x[TM / 16][2];
    UNROLL for (uint32_t i = 0; i < 1 + GATED; i++) w[i] = SCALES == FP8_BLOCKS ? fp8_block_scale(&p->s, part + i, col, step) : 1.0f;
    if (SCALES == FP8_BLOCKS) gemm_row_scales(p, first, step, x);
    UNROLL for (uint32_t i = 0; i < TM / 16; i++)
        UNROLL for (uint32_t j = 0; j < TN / 8; j++)
            UNROLL for (uint32_t e = 0; e < 4; e++)
            {
                const float scale = SCALES == FP8_BLOCKS ? w[GATED && j % 2] * x[i][e / 2] : 1.0f;
                d[i][j][e] = SCALES == FP8_BLOCKS ? fma_f32(scale, apart[i][j][e], d[i][j][e]) : d[i][j][e] + apart[i][j][e];
                apart[i][j][e] = 0;
            }
}

/* Scales of weight rows, and with A8 of x's rows. col: this thread's first column of y. */
DEVICE void gemm_channels(const struct gemm_fp8_params *p, gemm_sums d, uint32_t part, uint32_t col, uint32_t first)
{
    float x[TM / 16][2];
    gemm_row_scales(p, first, 0, x);
    UNROLL for (uint32_t j = 0; j < TN / 8; j++)
        UNROLL for (uint32_t e = 0; e < 2; e++)
        {
            const float w = fp8_channel_scale(&p->s, &p->g, part + (GATED && j % 2), col + j / (1 + GATED) * 8 + e);
            UNROLL for (uint32_t i = 0; i < TM / 16; i++) d[i][j][e] *= w * x[i][0], d[i][j][2 + e] *= w * x[i][1];
        }
}

KERNEL(gemm_fp8, struct gemm_fp8_params, p, THREADS, 1)
{
    unsigned char *shared = dynamic_shared();
    const uint32_t row_tiles = ceil_div_u32(p.g.rows, BM), strip = block_x() / (RASTER * p.g.tiles), in_strip = block_x() % (RASTER * p.g.tiles);
    const uint32_t strip_rows = min_u32(row_tiles - strip * RASTER, RASTER);
    const uint32_t tile = in_strip / strip_rows, row = (strip * RASTER + in_strip % strip_rows) * BM;
    const uint32_t steps = ceil_div_u32(p.g.k, BK), warp_m = warp_id() % WM, warp_n = warp_id() / WM;
    const uint32_t q = lane_id() / 4, c = lane_id() % 4 * 2, first = row + warp_m * TM + q;
    uint32_t which = 0;
    if (!GATED) {
        UNROLL for (uint32_t i = 1; i < GEMM_PARTS; i++) which = p.g.part[i].n && tile >= (uint32_t)p.g.part[i].tile ? i : which;
    }
    const struct gemm_part part = p.g.part[which];
    const uint32_t col = (tile - (uint32_t)part.tile) * COLUMNS;
    gemm_sums d, apart;
    UNROLL for (uint32_t i = 0; i < TM / 16; i++)
        UNROLL for (uint32_t j = 0; j < TN / 8; j++)
            UNROLL for (uint32_t e = 0; e < 4; e++) d[i][j][e] = apart[i][j][e] = 0;

    /* Weights do not wait for the predecessor. */
    grid_dependency_launch();
    UNROLL for (uint32_t s = 0; s < STAGES - 1; s++)
        if (s < steps) gemm_load_w(&p.g, &part, col, s, shared + s * STAGE_BYTES + BM * X_ROW);
    grid_dependency_wait();
    UNROLL for (uint32_t s = 0; s < STAGES - 1; s++)
    {
        if (s < steps) gemm_load_x(&p.g, row, s, shared + s * STAGE_BYTES);
        cp_async_commit();
    }
    for (uint32_t s = 0; s < steps; s++) {
        cp_async_wait(STAGES - 2);
        block_sync(); /* step s has arrived for all, and nobody reads the place of step s - 1 any more */
        const uint32_t next = s + STAGES - 1;
        unsigned char *to = shared + next % STAGES * STAGE_BYTES, *from = shared + s % STAGES * STAGE_BYTES;
        if (next < steps) {
            gemm_load_x(&p.g, row, next, to);
            gemm_load_w(&p.g, &part, col, next, to + BM * X_ROW);
        }
        cp_async_commit();
        gemm_step(APART ? apart : d, from, from + BM * X_ROW, warp_m, warp_n);
        if (APART) gemm_promote(&p, d, apart, which, col, first, s);
    }
    cp_async_wait_all();

    const uint32_t n = col + warp_n * TN / (1 + GATED) + c;
    if (SCALES == FP8_CHANNELS) gemm_channels(&p, d, which, n, first);
    UNROLL for (uint32_t i = 0; i < TM / 16; i++)
        UNROLL for (uint32_t j = 0; j < TN / 8; j += 1 + GATED)
            UNROLL for (uint32_t h = 0; h < 2; h++)
            {
                const uint32_t r = first + i * 16 + h * 8, up = j + GATED;
                if (r < p.g.rows)
                    gemm_store_pair(&p.g, &part, r, n + j * 8 / (1 + GATED), d[i][j][2 * h], d[i][j][2 * h + 1], d[i][up][2 * h], d[i][up][2 * h + 1]);
            }
}
