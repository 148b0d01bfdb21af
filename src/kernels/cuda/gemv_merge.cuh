/* What the products of few rows by mma.sync share (gemv_rows.cu, gemv_fp8.cu): tiles of 16 weight rows (a gated pair: 8 of each matrix),
 * and the sums of warps and splits.
 *
 * Constants of those files; ELEMENT: bytes of a weight. */
#ifndef ROSE_CUDA_GEMV_MERGE_CUH
#define ROSE_CUDA_GEMV_MERGE_CUH

#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/gemm_epilogue.cuh"

#define THREADS (32 * WARPS)
#ifndef NORM
#define NORM 0
#endif
#if NORM
#define NORM_EPS EPS
#else
#define NORM_EPS 0.0f
#endif
#define COLUMNS (GATED ? 8 : 16)
#define SUMS (NT * 128)

struct gemv_tile {
    const unsigned char *lo, *hi; /* this lane's two weight rows */
    uint32_t part, col;
};

DEVICE struct gemv_tile gemv_tile_of(const struct gemm_params *p, uint32_t tile)
{
    struct gemv_tile t;
    t.part = 0;
    if (!GATED) {
        UNROLL for (uint32_t i = 1; i < PARTS; i++) t.part = tile >= (uint32_t)p->part[i].tile ? i : t.part;
    }
    const struct gemm_part *part = &p->part[t.part];
    const uint32_t last = (uint32_t)part->n - 1, q = lane_id() / 4;
    const size_t row_bytes = (size_t)p->k * ELEMENT;
    t.col = (tile - (uint32_t)part->tile) * COLUMNS;
    /* Rows beyond the last are computed as copies of it and not stored. */
    t.lo = (const unsigned char *)part->w + min_u32(t.col + q, last) * row_bytes;
    t.hi = GATED ? (const unsigned char *)p->part[1].w + min_u32(t.col + q, last) * row_bytes
                 : (const unsigned char *)part->w + min_u32(t.col + 8 + q, last) * row_bytes;
    return t;
}

/* Where sums (j, e) of lane l belong: row of x in the group, weight row q (e < 2) or q + 8. */
DEVICE void gemv_store(const struct gemm_params *p, const struct gemv_tile *t, uint32_t first_row, uint32_t m, uint32_t q, float lo,
                       float hi)
{
    const struct gemm_part *part = &p->part[t->part];
    const uint32_t n = (uint32_t)part->n, col = t->col + q;
    if (col < n) gemm_store(part, first_row + m, col, gemm_finish(p, part, col, lo, hi));
    if (!GATED && col + 8 < n) gemm_store(part, first_row + m, col + 8, gemm_finish(p, part, col + 8, hi, 0.0f));
}

/* The tile's sums of all warps, and of all splits where this block is the last of them. NORM: with squares of x by warp and row. */
DEVICE void gemv_merge(const struct gemm_params *p, const struct gemv_tile *t, uint32_t tile, uint32_t split, uint32_t group,
                       uint32_t rows, const float *red, const float *squares, uint32_t *last)
{
    const uint32_t counter = group * p->tiles + tile;
    float *work = (float *)p->work + (size_t)counter * p->splits * SUMS;
    for (uint32_t u = thread_x() % THREADS; u < NT * 64; u += THREADS) {
        const uint32_t at = u / 64 * 128 + u % 64, l = u % 32, m = u / 64 * 8 + l % 4 * 2 + u / 32 % 2;
        if (m >= rows) continue;
        float lo = 0, hi = 0;
        UNROLL for (uint32_t w = 0; w < WARPS; w++) lo += red[w * SUMS + at], hi += red[w * SUMS + at + 64];
        if (NORM) {
            float sum = 0;
            UNROLL for (uint32_t w = 0; w < WARPS; w++) sum += squares[w * 8 + m];
            const float r = rsqrt_approx(fma_f32(sum, 1.0f / (float)p->k, NORM_EPS));
            lo *= r, hi *= r;
        }
        if (SPLIT) {
            work[split * SUMS + at] = lo, work[split * SUMS + at + 64] = hi;
        } else {
            gemv_store(p, t, group * p->group, m, l / 4, lo, hi);
        }
    }
    if (!SPLIT || !gemm_last_split(p, counter, last)) return;
    for (uint32_t u = thread_x() % THREADS; u < NT * 64; u += THREADS) {
        const uint32_t at = u / 64 * 128 + u % 64, l = u % 32, m = u / 64 * 8 + l % 4 * 2 + u / 32 % 2;
        if (m >= rows) continue;
        float lo = 0, hi = 0;
        for (uint32_t s = 0; s < p->splits; s++) lo += work[s * SUMS + at], hi += work[s * SUMS + at + 64];
        gemv_store(p, t, group * p->group, m, l / 4, lo, hi);
    }
}

#endif
