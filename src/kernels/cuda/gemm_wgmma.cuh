/* What the Hopper products by wgmma share (gemm_wgmma.cu, gemm_fp8_wgmma.cu): the persistent loop's tiles, the producer, the epilogue,
 * the block's parts. A step of k is 64 units of two bytes: 64 elements or 128 e4m3.
 *
 * Constants of those files. */
#ifndef ROSE_CUDA_GEMM_WGMMA_CUH
#define ROSE_CUDA_GEMM_WGMMA_CUH

#include "kernels/cuda/common/cluster.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/tma.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/gemm_epilogue.cuh"
#include "kernels/params/gemm_wgmma.h"

#define THREADS 384
#ifndef BM
#define BM 128
#endif
#define BK 64 /* units */
#define HALF (BN / 2)
#define COLUMNS (GATED ? HALF : BN)
#define X_BYTES (BM * BK * 2)
#define STAGE_BYTES (X_BYTES + BN * BK * 2)
/* Results of 16 bits leave through shared memory of each warp, [16][CHUNK], 16-byte chunk c of row r at c ^ r % 8, in whole lines. */
#ifndef STAGED
#define STAGED (!OUT_F32 && COLUMNS % 64 == 0)
#endif
#ifndef CHUNK
#define CHUNK (COLUMNS < 128 ? COLUMNS : 128)
#endif
#define RESULT_BYTES (STAGED ? 16 * CHUNK * 2 : 0)
#define CHUNK_LANES (CHUNK / 8)
#define CHUNK_TURNS (16 * CHUNK_LANES / WARP)

struct wgmma_tile {
    uint32_t row, col, part;
};
/* Tile number i of the cluster's persistent loop. */
DEVICE struct wgmma_tile wgmma_tile_of(const struct gemm_params *p, uint32_t i)
{
    struct wgmma_tile t;
    const uint32_t row_tiles = ceil_div_u32(p->rows, BM * CLUSTER), strip = i / (RASTER * p->tiles), in = i % (RASTER * p->tiles);
    const uint32_t strip_rows = min_u32(row_tiles - strip * RASTER, RASTER), tile = in / strip_rows;
    t.row = ((strip * RASTER + in % strip_rows) * CLUSTER + (CLUSTER > 1 ? cluster_rank() : 0)) * BM;
    t.part = 0;
    if (!GATED) {
        UNROLL for (uint32_t k = 1; k < PARTS; k++) t.part = tile >= (uint32_t)p->part[k].tile ? k : t.part;
    }
    t.col = (tile - (uint32_t)p->part[t.part].tile) * COLUMNS;
    return t;
}

DEVICE void wgmma_produce(const struct gemm_wgmma_params *p, unsigned char *stages, mbarrier *full, mbarrier *empty, uint32_t first,
                          uint32_t count, uint32_t stride, uint32_t steps)
{
    const uint32_t rank = CLUSTER > 1 ? cluster_rank() : 0;
    const uint64_t keep = l2_evict_normal();
    uint32_t stage = 0, phase = 0;
    for (uint32_t i = first; i < count; i += stride) {
        const struct wgmma_tile t = wgmma_tile_of(&p->g, i);
        for (uint32_t s = 0; s < steps; s++) {
            unsigned char *x = stages + stage * STAGE_BYTES, *w = x + X_BYTES;
            const int32_t k = (int32_t)(s * BK);
            mbarrier_wait(&empty[stage], phase ^ 1);
            mbarrier_arrive_expect(&full[stage], STAGE_BYTES);
            UNROLL for (uint32_t h = 0; h < 2; h++)
            {
                const struct tensor_map *map = GATED ? &p->w[h] : &p->w[t.part];
                const int32_t n = (int32_t)(GATED ? t.col : t.col + h * HALF);
                if (CLUSTER == 1)
                    tma_load_2d(w + h * (HALF * BK * 2), map, k, n, &full[stage], keep);
                else if (h == rank)
                    tma_load_multicast_2d(w + h * (HALF * BK * 2), map, k, n, &full[stage], 3);
            }
            /* The first weights do not wait for the predecessor. */
            if (i == first && s == 0) grid_dependency_wait();
            tma_load_2d(x, &p->x, k, (int32_t)t.row, &full[stage], keep);
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
    }
}

/* A block of 8 columns: this lane's two neighbours, finished, with the old y added. */
DEVICE void wgmma_finish(const struct gemm_params *p, const struct gemm_part *part, uint32_t row, uint32_t col, const float d[2],
                         const float up[2], float out[2])
{
    UNROLL for (uint32_t e = 0; e < 2; e++) out[e] = gemm_finish(p, part, col + e, d[e], GATED ? up[e] : 0.0f);
    if (!ACCUMULATE) return;
    const size_t at = (size_t)row * (size_t)part->y_stride + col;
    if (OUT_F32) {
        const u32x2 old = ld8((const float *)part->y + at);
        UNROLL for (uint32_t e = 0; e < 2; e++) out[e] += f32_from_bits(old.v[e]);
    } else {
        const element2 old = as_element2(ld4((const element *)part->y + at));
        out[0] += element2_lo_f32(old), out[1] += element2_hi_f32(old);
    }
}

/* Two blocks of 8 columns at a time. float32: four lanes have a sector of 32 bytes. 16 bits: neighbouring lanes exchange, so that the
 * even one has four columns of the first block and the odd one of the second: again a sector. */
DEVICE void wgmma_direct(const struct gemm_params *p, const struct wgmma_tile *t, uint32_t group, const float d[BN / 2])
{
    const struct gemm_part *part = &p->part[t->part];
    const uint32_t c = lane_id() % 4, odd = c % 2, first = t->row + group * 64 + warp_id() % 4 * 16 + lane_id() / 4;
    UNROLL for (uint32_t j = 0; j < COLUMNS / 8; j += 2)
        UNROLL for (uint32_t h = 0; h < 2; h++)
        {
            const uint32_t row = first + h * 8;
            uint32_t word[2];
            UNROLL for (uint32_t i = 0; i < 2; i++)
            {
                const uint32_t at = (j + i) * 4 + h * 2, col = t->col + (j + i) * 8 + c * 2;
                float v[2] = {0, 0};
                if (row < p->rows && col < (uint32_t)part->n) {
                    wgmma_finish(p, part, row, col, d + at, d + (GATED ? at + BN / 4 : at), v);
                    if (OUT_F32) {
                        const u32x2 out = {{f32_bits(v[0]), f32_bits(v[1])}};
                        st8((float *)part->y + (size_t)row * (size_t)part->y_stride + col, out);
                    }
                }
                word[i] = f32_to_element2(v[0], v[1]).bits;
            }
            if (OUT_F32) continue;
            const uint32_t other = shuffle_xor_u32(FULL_WARP, odd ? word[0] : word[1], 1, WARP), mine = odd ? word[1] : word[0];
            const uint32_t col = t->col + (j + odd) * 8 + (c - odd) * 2;
            const u32x2 out = {{odd ? other : mine, odd ? mine : other}};
            if (ACCUMULATE) warp_sync(FULL_WARP); /* a lane writes over what its neighbour has read */
            if (row < p->rows && col < (uint32_t)part->n)
                st8((element *)part->y + (size_t)row * (size_t)part->y_stride + col, out);
        }
}

/* Where this lane's 16 bytes of a turn of a chunk lie, in y and in shared memory; false where y has none. */
DEVICE bool wgmma_place(const struct gemm_params *p, const struct wgmma_tile *t, uint32_t group, uint32_t chunk, uint32_t turn, size_t *y, uint32_t *shared)
{
    const struct gemm_part *part = &p->part[t->part];
    const uint32_t r = turn * (WARP / CHUNK_LANES) + lane_id() / CHUNK_LANES, c = lane_id() % CHUNK_LANES;
    const uint32_t row = t->row + group * 64 + warp_id() % 4 * 16 + r, col = t->col + chunk * CHUNK + c * 8;
    *shared = r * (CHUNK * 2) + ((c ^ (r & 7)) << 4);
    *y = (size_t)row * (size_t)part->y_stride + col;
    return row < p->rows && col < (uint32_t)part->n;
}
/* The old y of a chunk. */
DEVICE void wgmma_old(const struct gemm_params *p, const struct wgmma_tile *t, uint32_t group, uint32_t chunk, u32x4 old[CHUNK_TURNS])
{
    UNROLL for (uint32_t i = 0; i < CHUNK_TURNS; i++)
    {
        const u32x4 zero = {{0, 0, 0, 0}};
        size_t y;
        uint32_t shared;
        old[i] = zero;
        if (wgmma_place(p, t, group, chunk, i, &y, &shared)) old[i] = ld16((const element *)p->part[t->part].y + y);
    }
}

/* Two neighbours of a row from their sums. */
DEVICE uint32_t wgmma_pair(const struct gemm_params *p, const struct gemm_part *part, uint32_t col, const float d[2], const float up[2], uint32_t old)
{
    float v[2] = {0, 0};
    if (!BIAS || col < (uint32_t)part->n) {
        UNROLL for (uint32_t e = 0; e < 2; e++) v[e] = gemm_finish(p, part, col + e, d[e], GATED ? up[e] : 0.0f);
    }
    if (ACCUMULATE) v[0] += element2_lo_f32(as_element2(old)), v[1] += element2_hi_f32(as_element2(old));
    return f32_to_element2(v[0], v[1]).bits;
}

/* old: of the first chunk, asked for beside the last products; those of the next chunk are asked for while one is finished. */
DEVICE void wgmma_staged(const struct gemm_params *p, const struct wgmma_tile *t, uint32_t group, const float d[BN / 2], u32x4 old[CHUNK_TURNS],
                         unsigned char *result)
{
    const struct gemm_part *part = &p->part[t->part];
    const uint32_t lane = lane_id(), r = lane % 16;
    uint32_t shared;
    size_t y;
    UNROLL for (uint32_t chunk = 0; chunk < COLUMNS / CHUNK; chunk++)
    {
        if (ACCUMULATE) {
            UNROLL for (uint32_t i = 0; i < CHUNK_TURNS; i++)
            {
                wgmma_place(p, t, group, chunk, i, &y, &shared);
                st16(result + shared, old[i]);
            }
            warp_sync(FULL_WARP);
            if (chunk + 1 < COLUMNS / CHUNK) wgmma_old(p, t, group, chunk + 1, old);
        }
        UNROLL for (uint32_t j = 0; j < CHUNK / 8; j += 2)
        {
            unsigned char *at = result + r * (CHUNK * 2) + (((j + lane / 16) ^ (r & 7)) << 4);
            uint32_t word[4], before[4] = {0, 0, 0, 0};
            if (ACCUMULATE) {
                ldmatrix_x4(before, at);
                warp_sync(FULL_WARP);
            }
            UNROLL for (uint32_t h = 0; h < 2; h++)
            {
                const uint32_t block = chunk * (CHUNK / 8) + j + h, i = block * 4, col = t->col + block * 8 + lane % 4 * 2, up = GATED ? BN / 4 : 0;
                word[2 * h] = wgmma_pair(p, part, col, d + i, d + i + up, before[2 * h]);
                word[2 * h + 1] = wgmma_pair(p, part, col, d + i + 2, d + i + 2 + up, before[2 * h + 1]);
            }
            stmatrix_x4(at, word);
        }
        warp_sync(FULL_WARP);
        UNROLL for (uint32_t i = 0; i < CHUNK_TURNS; i++)
            if (wgmma_place(p, t, group, chunk, i, &y, &shared)) st16((element *)part->y + y, ld16(result + shared));
        warp_sync(FULL_WARP);
    }
}

DEVICE void wgmma_release(mbarrier *empty)
{
    if (lane_id() != 0) return;
    if (CLUSTER == 1)
        mbarrier_arrive(empty);
    else {
        mbarrier_arrive_remote(empty, 0);
        mbarrier_arrive_remote(empty, 1);
    }
}

/* Barriers, and who begins where: tile `first` and every `stride`th of `count`. */
struct wgmma_block {
    unsigned char *stages, *result; /* result: this warp's */
    mbarrier *full, *empty;
    uint32_t count, stride, first;
};

DEVICE struct wgmma_block wgmma_begin(const struct gemm_wgmma_params *p)
{
    struct wgmma_block b;
    b.stages = dynamic_shared();
    b.result = b.stages + STAGES * STAGE_BYTES + (warp_id() % 8) * RESULT_BYTES; /* of warps 4 to 11 */
    b.full = (mbarrier *)(b.stages + STAGES * STAGE_BYTES + 8 * RESULT_BYTES), b.empty = b.full + STAGES;
    b.count = ceil_div_u32(p->g.rows, BM * CLUSTER) * p->g.tiles, b.stride = grid_dim_x() / CLUSTER, b.first = block_x() / CLUSTER;
    if (thread_x() == 32) {
        tma_prefetch_map(&p->x);
        tma_prefetch_map(&p->w[0]);
    }
    if (thread_x() == 0) {
        UNROLL for (uint32_t s = 0; s < STAGES; s++)
        {
            mbarrier_init(&b.full[s], 1);
            mbarrier_init(&b.empty[s], 8 * CLUSTER);
        }
        fence_mbarrier_init();
    }
    if (CLUSTER > 1)
        cluster_sync();
    else
        block_sync();
    grid_dependency_launch();
    if (b.first >= b.count) grid_dependency_wait(); /* a grid without work must not end before its predecessors */
    return b;
}

#endif
