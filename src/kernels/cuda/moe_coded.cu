// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* Grouped products as moe_group.cu, with experts' weights as their file has them: GGUF's block formats (kernels/params/matmul_blocks.h) or e4m3
 * with scales (kernels/params/gemm_fp8.h). Codes become bf16 operands of mma.sync in registers, exactly; scales multiply sums in float32.
 *
 *     y[place, n] = act(gate[e, n] . x) * (up[e, n] . x)    GATED      e: the expert whose places these are
 *     y[place, n] = weight[e, n] . x                        else
 *
 * A block has N places of one expert by 16 TILES columns of y. A warp has 16 rows of one matrix and every SPLIT-th step of k; a step is a
 * chunk of 256 (blocks) or 128 codes (FP8). Warp w: tile w % TILES, matrix w / TILES % MATRICES, split w / TILES / MATRICES. The warps' sums
 * meet in shared memory, in the splits' order.
 *
 *     stage   weights: a chunk of each warp (FP8: [16][128], 16-byte chunk j of row r at j ^ (r % 8)); then x [SPLIT][BOXES of 64 k][N][64]
 *             as matmul_blocks_unit.cuh wants it
 *     behind the stages blocks: 1 KB a warp for scales of a chunk as float32
 *     at the end: sums f32 [WARPS][N / 2][32], results [N][16 TILES + 8]
 *
 * Constants: EXPERTS TOP_K COLUMNS (weight rows of a matrix) K GATED GATHER ACT EXPERT_BIAS FORMAT (BLOCKS_*; MOE_FP8) SCALES (FP8_*) N TILES
 * SPLIT STAGES OCCUPANCY (blocks an SM). */
#include "kernels/params/moe_coded.h"
#define FP8 (FORMAT == MOE_FP8)
#define STEP (FORMAT == MOE_FP8 ? 128 : 256)
#define K_TAIL (K % STEP != 0)
#include "kernels/cuda/act.cuh"
#include "kernels/cuda/fp8_unit.cuh"
#include "kernels/cuda/matmul_blocks_unit.cuh"

#define ROWS N
#define MATRICES (1 + GATED)
#define WARPS (TILES * MATRICES * SPLIT)
#define THREADS (WARPS * WARP)
#define OUT (16 * TILES)
#define TILES_N ((COLUMNS + OUT - 1) / OUT)
#define BOXES (STEP / 64)
#define W_BYTES (FP8 ? 16 * 128 : CHUNK_BYTES)
#define X_BYTES (BOXES * N * 128)
#define STAGE_BYTES (WARPS * W_BYTES + SPLIT * X_BYTES)
#define CHUNKS ((K + STEP - 1) / STEP)
#define STEPS ((CHUNKS + SPLIT - 1) / SPLIT)
#define X_VECTORS (SPLIT * BOXES * 8) /* of a row in a stage */
#define X_PASSES ((N * X_VECTORS + THREADS - 1) / THREADS)
#define X_ROW(c, e) (FP8 ? FP8_X_ROW(c, e) : BLOCKS_X_ROW(c, e))
#define OUT_STRIDE (OUT + 8)
#include "kernels/cuda/moe_tile.cuh"
STATIC_ASSERT(K % 8 == 0 && COLUMNS % 8 == 0 && N % 8 == 0 && (X_VECTORS & (X_VECTORS - 1)) == 0, "shapes do not fit");

struct source {
    const unsigned char *w;  /* blocks: the warp's tile; FP8: this lane's first row and chunk */
    const element *x;
    uint32_t x_at[X_PASSES]; /* of each pass's row, in 16 bytes: 64 GB */
    uint32_t x_rows, w_rows; /* of the tile that have tokens; FP8: of the warp's 16 that are there */
    uint32_t split;
};

/* Elements of k in chunk `chunk`, units of it. */
DEVICE uint32_t chunk_k(uint32_t chunk)
{
    return K_TAIL ? min_u32(K - chunk * STEP, STEP) : STEP;
}

DEVICE void copy_weights(const struct source *s, unsigned char *to, uint32_t chunk)
{
    const uint32_t lane = lane_id();
    if (FP8) {
        const uint32_t at = lane % 8, row = lane / 8;
        const bool in_k = !K_TAIL || chunk * STEP + at * 16 < K;
        UNROLL for (uint32_t i = 0; i < 4; i++)
        {
            const uint32_t r = row + i * 4;
            const bool in = in_k && r < s->w_rows;
            cp_async16_zfill(to + r * 128 + ((at ^ (r & 7)) << 4), in ? s->w + (size_t)(i * 4) * K + chunk * STEP : s->w, in ? 16 : 0);
        }
        return;
    }
    const unsigned char *from = s->w + (size_t)chunk * CHUNK_BYTES;
    const uint32_t bytes = s->w_rows ? chunk_k(chunk) / BLOCKS_UNIT * UNIT_BYTES : 0;
    UNROLL for (uint32_t i = 0; i < (W_BYTES + 511) / 512; i++)
    {
        const uint32_t o = i * 512 + lane * 16;
        if (o < bytes) cp_async16(to + o, from + o);
    }
}

/* Step `step` of every split. */
DEVICE void copy_stage(const struct source *s, unsigned char *stage, uint32_t step)
{
    const uint32_t chunk = step * SPLIT + s->split;
    if (SPLIT == 1 || chunk < CHUNKS) copy_weights(s, stage + warp_id() * W_BYTES, chunk);
    UNROLL for (uint32_t i = 0; i < X_PASSES; i++)
    {
        const uint32_t v = thread_x() + i * THREADS, row = v / X_VECTORS, at = v % X_VECTORS, k = step * (SPLIT * STEP) + at * 8;
        const bool in = row < s->x_rows && k < K;
        if ((N * X_VECTORS) % THREADS == 0 || row < N)
            cp_async16_zfill(stage + WARPS * W_BYTES + at / 8 * (N * 128) + row * 128 + ((at % 8 ^ (row & 7)) << 4),
                             in ? s->x + (uint64_t)s->x_at[i] * 8 + k : s->x, in ? 16 : 0);
    }
}

#if FORMAT == MOE_FP8
DEVICE float block_scale(const struct moe_coded_params *p, const struct tile *t, uint32_t matrix, uint32_t column, uint32_t block)
{
    const float *of = (const float *)((const char *)p->scale[matrix] + (uint64_t)t->expert * p->weight_stride);
    return of[min_u32(column, COLUMNS - 1) / FP8_BLOCK * CHUNKS + min_u32(block, CHUNKS - 1)];
}
DEVICE float channel_scale(const struct moe_coded_params *p, const struct tile *t, uint32_t matrix, uint32_t column)
{
    const float *of = (const float *)((const char *)p->scale[matrix] + (uint64_t)t->expert * p->weight_stride);
    return SCALES == FP8_CHANNELS ? of[min_u32(column, COLUMNS - 1)] : 1.0f;
}
/* d += a chunk's products; scale: of its block. */
DEVICE void multiply(float d[N / 2], const unsigned char *w, const unsigned char *x, float scale)
{
    float part[N / 2];
    if (SCALES == FP8_CHANNELS) {
        fp8_widen(d, w, x);
        return;
    }
    UNROLL for (uint32_t i = 0; i < N / 2; i++) part[i] = 0.0f;
    fp8_widen(part, w, x);
    UNROLL for (uint32_t i = 0; i < N / 2; i++) d[i] = fma_f32(scale, part[i], d[i]);
}
#else
DEVICE void multiply(float d[N / 2], const unsigned char *w, const unsigned char *x, unsigned char *scales, uint32_t units)
{
    blocks_chunk_scales(w, units, scales);
    warp_sync(FULL_WARP);
    UNROLL_N(N < 32 ? 2 : 1) for (uint32_t i = 0; i < (K_TAIL ? units : BLOCKS_CHUNK); i++) /* all eight at once compile for seconds */
    {
        uint32_t a[2][4];
        blocks_fragment(w, units, i, lane_id(), BLOCKS_MASK, a);
        blocks_unit(d, a, scales, x, i, NULL);
    }
    warp_sync(FULL_WARP);
}
#endif

/* The sums of a place and a column, all splits: those of warp tile + matrix * TILES, register i. */
DEVICE float gather(const float *sums, uint32_t warp, uint32_t i, uint32_t lane)
{
    float sum = 0.0f;
    UNROLL for (uint32_t s = 0; s < SPLIT; s++) sum += sums[((warp + s * (TILES * MATRICES)) * (N / 2) + i) * WARP + lane];
    return sum;
}

/* Sums to the tile of results. */
DEVICE void finish(const struct moe_coded_params *p, const struct tile *t, const float *sums, element *out)
{
    for (uint32_t u = thread_x(); u < TILES * (N / 2) * WARP; u += THREADS) {
        const uint32_t lane = u % WARP, i = u / WARP % (N / 2), tile = u / WARP / (N / 2), in = tile * 16 + lane / 4 + i / 2 % 2 * 8, column = t->column + in;
        float v[2];
        if (COLUMNS % OUT != 0 && column >= COLUMNS) continue;
        UNROLL for (uint32_t m = 0; m < MATRICES; m++)
        {
            v[m] = gather(sums, tile + m * TILES, i, lane);
#if FORMAT == MOE_FP8
            v[m] *= channel_scale(p, t, m, column);
#endif
            if (EXPERT_BIAS) v[m] += ((const float *)p->bias[m])[(uint64_t)t->expert * COLUMNS + column];
        }
        if (GATED) v[0] = act_value(ACT, 1.0f, v[0]) * v[MATRICES - 1];
        out[(i / 4 * 8 + X_ROW(lane % 4, i % 2)) * OUT_STRIDE + in] = f32_to_element(v[0]);
    }
}

KERNEL(moe_coded, struct moe_coded_params, p, THREADS, OCCUPANCY)
{
    unsigned char *shared = dynamic_shared();
    grid_dependency_wait();
    grid_dependency_launch();
    const struct tile t = tile_find((const uint32_t *)p.offsets, (const uint32_t *)p.counts, block_x());
    if (t.rows == 0) return;
    const uint32_t matrix = GATED ? warp_id() / TILES % 2 : 0, column = t.column + warp_id() % TILES * 16;
    struct source s;
    s.split = warp_id() / (TILES * MATRICES);
    s.x_rows = t.rows, s.w_rows = column < COLUMNS ? min_u32(COLUMNS - column, 16) : 0;
    s.w = (const unsigned char *)p.weight[matrix] + (uint64_t)t.expert * p.weight_stride;
    if (FP8)
        s.w += (uint64_t)(s.w_rows > lane_id() / 8 ? column + lane_id() / 8 : 0) * K + lane_id() % 8 * 16;
    else if (s.w_rows)
        s.w += (uint64_t)(column / BLOCKS_TILE) * (K / BLOCKS_UNIT * UNIT_BYTES);
    s.x = (const element *)p.x;
    UNROLL for (uint32_t i = 0; i < X_PASSES; i++)
    {
        const uint32_t row = (thread_x() + i * THREADS) / X_VECTORS;
        uint32_t at = 0;
        if (row < t.rows) at = GATHER ? ((const uint32_t *)p.source)[t.place + row] / TOP_K : t.place + row;
        s.x_at[i] = (uint32_t)((uint64_t)at * p.x_stride / 8);
    }
    float d[N / 2];
    UNROLL for (uint32_t i = 0; i < N / 2; i++) d[i] = 0.0f;
#if FORMAT == MOE_FP8
    float scales = 0.0f; /* of 32 chunks of this split, a lane each */
#else
    unsigned char *scales = shared + STAGES * STAGE_BYTES + warp_id() * 1024;
#endif

    UNROLL for (uint32_t i = 0; i < STAGES - 1; i++)
    {
        if (i < STEPS) copy_stage(&s, shared + i * STAGE_BYTES, i);
        cp_async_commit();
    }
    UNROLL_N(1) for (uint32_t i = 0; i < STEPS; i++)
    {
        const uint32_t chunk = i * SPLIT + s.split;
#if FORMAT == MOE_FP8
        if (SCALES == FP8_BLOCKS && i % WARP == 0) scales = block_scale(&p, &t, matrix, column, (i + lane_id()) * SPLIT + s.split);
#endif
        cp_async_wait(STAGES - 2);
        block_sync();
        if (i + STAGES - 1 < STEPS) copy_stage(&s, shared + (i + STAGES - 1) % STAGES * STAGE_BYTES, i + STAGES - 1);
        cp_async_commit();
        if (chunk >= CHUNKS || (COLUMNS % OUT != 0 && s.w_rows == 0)) continue;
        const unsigned char *stage = shared + i % STAGES * STAGE_BYTES, *w = stage + warp_id() * W_BYTES, *x = stage + WARPS * W_BYTES + s.split * X_BYTES;
#if FORMAT == MOE_FP8
        multiply(d, w, x, shuffle_f32(FULL_WARP, scales, i % WARP, WARP));
#else
        multiply(d, w, x, scales, chunk_k(chunk) / BLOCKS_UNIT);
#endif
    }
    cp_async_wait_all();
    block_sync();
    float *sums = (float *)shared;
    element *out = (element *)(sums + WARPS * (N / 2) * WARP), *y = (element *)p.y;
    UNROLL for (uint32_t i = 0; i < N / 2; i++) sums[(warp_id() * (N / 2) + i) * WARP + lane_id()] = d[i];
    block_sync();
    finish(&p, &t, sums, out);
    block_sync();
    for (uint32_t i = thread_x(); i < t.rows * (OUT / 8); i += THREADS) {
        const uint32_t row = i / (OUT / 8), at = i % (OUT / 8) * 8;
        if (COLUMNS % OUT == 0 || t.column + at < COLUMNS)
            st16(y + (uint64_t)(t.place + row) * COLUMNS + t.column + at, ld16(out + row * OUT_STRIDE + at));
    }
}
