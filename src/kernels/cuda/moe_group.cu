// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* Grouped products by mma.sync: each expert's weights times the rows of its tokens.
 *
 *     y[place, n] = act(gate[e, n] . x) * (up[e, n] . x)    GATED      e: the expert whose places these are
 *     y[place, n] = weight[e, n] . x                        else
 *
 * A block has one tile: ROWS places of one expert by COLS rows of weights (GATED: COLS / 2 gate and as many up rows, eight
 * of each in turn, so that a lane of an mma tile holds both of a pair). The weights are the m16 operand: few tokens waste
 * little of the n8 operand.
 *
 * Blocks beyond the last tile (moe_tile.cuh) leave at once.
 *
 *     shared memory   STAGES x [COLS weight rows | ROWS token rows] of 64 k, 128 bytes a row, 16-byte chunk c of row r at
 *                     c ^ (r % 8); afterwards the tile of results, [ROWS][OUT + 8] elements
 *
 * Constants: EXPERTS TOP_K N K GATED GATHER ACT EXPERT_BIAS ROWS COLS STAGES WARPS_C (along weights, 32 each) WARPS_R (along places)
 * BLOCKS (an SM). */
#include "kernels/cuda/common/rose.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/act.cuh"
#include "kernels/params/moe.h"

#define THREADS (WARPS_C * WARPS_R * WARP)
#define OUT (GATED ? COLS / 2 : COLS)      /* columns of y a tile */
#define TILES_N ((N + OUT - 1) / OUT)      /* tiles across y */
#define STAGE_BYTES ((COLS + ROWS) * 128)
#define PASS (THREADS / 8)                 /* rows that the block copies at a time */
#define STEPS ((K + 63) / 64)
#define MI (COLS / WARPS_C / 16)           /* m16 tiles of a warp */
#define NI (ROWS / WARPS_R / 8)            /* n8 tiles of a warp */
#define X_PASSES ((ROWS + PASS - 1) / PASS)
#define OUT_STRIDE (OUT + 8)               /* elements; 16-byte rows that start in different banks */
#include "kernels/cuda/moe_tile.cuh"
STATIC_ASSERT(COLS % PASS == 0 && PASS % 16 == 0 && NI % 2 == 0 && K % 8 == 0 && N % 8 == 0, "tile and block do not fit");

DEVICE unsigned char *tile_at(unsigned char *rows, uint32_t row, uint32_t chunk)
{
    return rows + row * 128 + ((chunk ^ (row & 7)) << 4);
}

/* What a thread copies: chunk thread % 8 of every PASS-th row. */
struct copier {
    const element *w, *x;
    uint32_t x_at[X_PASSES];      /* of each pass's row, in 16 bytes: 64 GB */
    uint32_t chunk, row, columns; /* columns: of weight pass 0, to compare with N */
    uint32_t x_rows;              /* of the tile that have tokens */
};

/* The next 64 k. Pointers may stand beyond the ends: there no byte is asked for. */
DEVICE void copy_stage(struct copier *c, unsigned char *stage, uint32_t step)
{
    const bool in_k = K % 64 == 0 || step * 64 + c->chunk * 8 < K;
    UNROLL for (uint32_t i = 0; i < COLS / PASS; i++)
    {
        const uint32_t further = i * PASS / (GATED ? 2 : 1); /* rows of the matrix */
        const bool in = in_k && (N % OUT == 0 || c->columns + further < N);
        cp_async16_zfill(tile_at(stage, c->row + i * PASS, c->chunk), c->w + (size_t)further * K, in ? 16 : 0);
    }
    UNROLL for (uint32_t i = 0; i < X_PASSES; i++)
    {
        const uint32_t row = c->row + i * PASS;
        if (ROWS % PASS == 0 || row < ROWS)
            cp_async16_zfill(tile_at(stage + COLS * 128, row, c->chunk), c->x + (uint64_t)c->x_at[i] * 8,
                             in_k && row < c->x_rows ? 16 : 0);
    }
    c->w += 64, c->x += 64;
}

DEVICE void multiply(unsigned char *stage, float acc[MI][NI][4])
{
    const uint32_t lane = lane_id(), c0 = warp_id() % WARPS_C * MI * 16, r0 = warp_id() / WARPS_C * NI * 8;
    UNROLL_N(NI >= 8 ? 1 : 4) for (uint32_t kk = 0; kk < 4; kk++) /* unrolled, large tiles spill */
    {
        uint32_t a[MI][4];
        UNROLL for (uint32_t i = 0; i < MI; i++)
            ldmatrix_x4(a[i], tile_at(stage, c0 + i * 16 + lane % 16, kk * 2 + lane / 16));
        UNROLL for (uint32_t j = 0; j < NI; j += 2)
        {
            uint32_t r[4];
            ldmatrix_x4(r, tile_at(stage + COLS * 128, r0 + j * 8 + lane % 8 + lane / 16 * 8, kk * 2 + lane / 8 % 2));
            UNROLL for (uint32_t i = 0; i < MI; i++)
            {
                mma_element(acc[i][j], a[i], r);
                mma_element(acc[i][j + 1], a[i], r + 2);
            }
        }
    }
}

DEVICE float bias_of(const struct moe_group_params *p, int which, const struct tile *t, uint32_t column)
{
    return column < N ? ((const float *)p->bias[which])[(uint64_t)t->expert * N + column] : 0.0f;
}

/* Accumulators to the tile of results in shared memory. */
DEVICE void finish(const struct moe_group_params *p, const struct tile *t, float acc[MI][NI][4], element *out)
{
    const uint32_t q = lane_id() / 4, c = lane_id() % 4, c0 = warp_id() % WARPS_C * MI * (GATED ? 8 : 16),
                   r0 = warp_id() / WARPS_C * NI * 8;
    UNROLL for (uint32_t i = 0; i < MI; i++)
    {
        uint32_t column = c0 + i * (GATED ? 8 : 16) + q;
        float low = 0.0f, high = 0.0f;
        if (EXPERT_BIAS) {
            low = bias_of(p, 0, t, t->column + column);
            high = GATED ? bias_of(p, 1, t, t->column + column) : bias_of(p, 0, t, t->column + column + 8);
        }
        UNROLL for (uint32_t j = 0; j < NI; j++)
        {
            UNROLL for (uint32_t h = 0; h < 2; h++)
            {
                float v = acc[i][j][h] + low, u = acc[i][j][h + 2] + high;
                element *to = out + (r0 + j * 8 + 2 * c + h) * OUT_STRIDE + column;
                if (GATED) {
                    *to = f32_to_element(act_value(ACT, 1.0f, v) * u);
                } else {
                    to[0] = f32_to_element(v);
                    to[8] = f32_to_element(u);
                }
            }
        }
    }
}

KERNEL(moe_group, struct moe_group_params, p, THREADS, BLOCKS)
{
    unsigned char *shared = dynamic_shared();
    grid_dependency_wait();
    grid_dependency_launch();
    const struct tile t = tile_find((const uint32_t *)p.offsets, (const uint32_t *)p.counts, block_x());
    if (t.rows == 0) return;
    struct copier c;
    c.chunk = thread_x() % 8, c.row = thread_x() / 8, c.x_rows = t.rows;
    {
        const uint32_t in = c.row % 16, half = GATED ? in / 8 : 0;
        c.columns = t.column + (GATED ? c.row / 16 * 8 + in % 8 : c.row);
        const element *w = (const element *)p.weight[half] + (uint64_t)t.expert * p.weight_stride;
        c.w = w + (uint64_t)c.columns * K + c.chunk * 8;
    }
    c.x = (const element *)p.x;
    UNROLL for (uint32_t i = 0; i < X_PASSES; i++)
    {
        uint32_t row = c.row + i * PASS, at = 0;
        if (row < t.rows) at = GATHER ? ((const uint32_t *)p.source)[t.place + row] / TOP_K : t.place + row;
        c.x_at[i] = (uint32_t)((uint64_t)at * p.x_stride / 8) + c.chunk;
    }
    float acc[MI][NI][4];
    UNROLL for (uint32_t i = 0; i < MI; i++)
        UNROLL for (uint32_t j = 0; j < NI; j++)
            UNROLL for (uint32_t h = 0; h < 4; h++) acc[i][j][h] = 0.0f;

    UNROLL for (uint32_t s = 0; s < STAGES - 1; s++)
    {
        if (s < STEPS) copy_stage(&c, shared + s * STAGE_BYTES, s);
        cp_async_commit();
    }
    UNROLL_N(1) for (uint32_t s = 0; s < STEPS; s++)
    {
        cp_async_wait(STAGES - 2);
        block_sync();
        if (s + STAGES - 1 < STEPS) copy_stage(&c, shared + (s + STAGES - 1) % STAGES * STAGE_BYTES, s + STAGES - 1);
        cp_async_commit();
        multiply(shared + s % STAGES * STAGE_BYTES, acc);
    }
    cp_async_wait_all();
    block_sync();
    element *out = (element *)shared, *y = (element *)p.y;
    finish(&p, &t, acc, out);
    block_sync();
    for (uint32_t i = thread_x(); i < t.rows * (OUT / 8); i += THREADS) {
        uint32_t row = i / (OUT / 8), column = i % (OUT / 8) * 8;
        if (t.column + column < N)
            st16(y + (uint64_t)(t.place + row) * N + t.column + column, ld16(out + row * OUT_STRIDE + column));
    }
}
