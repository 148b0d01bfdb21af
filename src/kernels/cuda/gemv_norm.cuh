/* RMSNorm of x inside a product of few rows (gemv_wgmma.cu, NORM): y = r * sum(w * bf16(gain * x)), r = 1 / sqrt(mean(x^2) + EPS).
 *
 * One number of a row is all that a norm needs of the whole row, and it may come last: it scales the finished sums. So four warps of
 * the block write gain * x into shared memory, 128 of k at a time, and the product begins with the first piece; weights stream
 * meanwhile. x stays there for all tiles of the block.
 *
 *     x:    bf16 [2 pieces][N][64], rows of 128 bytes, 16-byte chunk c of row r at c ^ (r % 8), as TMA's swizzle has them
 *     part: f32 [N][8]: sums of squares
 *     full: [pieces], done
 *
 * Half a warp reads 128 of k of a row. Up to eight rows share the eight halves: one row has all of them, each with every eighth piece.
 *
 * Constants: N, EPS, OFFSET. */
#ifndef ROSE_CUDA_GEMV_NORM_CUH
#define ROSE_CUDA_GEMV_NORM_CUH

#include "kernels/cuda/common/mbarrier.cuh"
#include "kernels/cuda/common/rose.cuh"
#include "kernels/params/gemm.h"

#define NORM_THREADS 128
#define NORM_PIECE 128
#define NORM_HALVES (NORM_THREADS / 16)
#define NORM_SETS (N / 8)                         /* of eight rows */
#define NORM_AHEAD (NORM_SETS > 4 ? 1 : 8 / NORM_SETS) /* pieces whose loads are under way */

struct gemv_norm {
    unsigned char *x;
    float *part;
    mbarrier *full, *done;
    uint32_t pieces, rows, share; /* rows that there are; halves' rows: 1, 2, 4 or 8 */
};

DEVICE uint32_t gemv_norm_bytes(uint32_t k)
{
    return ceil_div_u32(k, NORM_PIECE) * (2 * N * 128 + 8) + N * NORM_HALVES * 4 + 8;
}
DEVICE struct gemv_norm gemv_norm_of(const struct gemm_params *p, uint32_t first_row, unsigned char *shared)
{
    struct gemv_norm n;
    n.pieces = ceil_div_u32(p->k, NORM_PIECE);
    n.rows = min_u32(p->rows - first_row, N);
    n.share = n.rows > 4 ? 8 : n.rows > 2 ? 4 : n.rows;
    n.x = shared;
    n.part = (float *)(shared + n.pieces * (2 * N * 128));
    n.full = (mbarrier *)(n.part + N * NORM_HALVES);
    n.done = n.full + n.pieces;
    return n;
}

/* Barriers, by all threads t < threads. */
DEVICE void gemv_norm_init(const struct gemv_norm *n, uint32_t t, uint32_t threads)
{
    for (uint32_t i = t; i <= n->pieces; i += threads) mbarrier_init(&n->full[i], i < n->pieces ? n->rows : NORM_HALVES);
    fence_mbarrier_init();
}

/* Rows that there are not become zeros, by the threads that multiply: before they begin. */
DEVICE void gemv_norm_clear(const struct gemv_norm *n, uint32_t t, uint32_t threads)
{
    const u32x4 zero = {{0, 0, 0, 0}};
    for (uint32_t r = n->rows; r < N; r++)
        for (uint32_t c = t; c < n->pieces * 16; c += threads) st16(n->x + c / 8 * (N * 128) + r * 128 + c % 8 * 16, zero);
    fence_proxy_async();
}

/* The weights of 8 columns, and one of them as a factor. Nothing waits for them before it needs them. */
DEVICE void gemv_norm_weights(const struct gemm_params *p, uint32_t column, u32x4 w[2])
{
    w[0] = ld16_early((const float *)p->norm + column);
    w[1] = ld16_early((const float *)p->norm + column + 4);
}
DEVICE float gemv_norm_gain(const u32x4 w[2], uint32_t i)
{
    const float gain = f32_from_bits(w[i / 4].v[i % 4]);
    return OFFSET != 0 ? OFFSET + gain : gain;
}

/* 8 of a row: their squares are added to sum, gain times them go to `to`. */
DEVICE float gemv_norm_put(u32x4 in, const u32x4 gain[2], unsigned char *to, float sum)
{
    u32x4 out;
    UNROLL for (uint32_t i = 0; i < 4; i++)
    {
        const element2 both = as_element2(in.v[i]);
        const float lo = element2_lo_f32(both), hi = element2_hi_f32(both);
        sum = fma_f32(hi, hi, fma_f32(lo, lo, sum));
        out.v[i] = f32_to_element2(lo * gemv_norm_gain(gain, 2 * i), hi * gemv_norm_gain(gain, 2 * i + 1)).bits;
    }
    st16(to, out);
    return sum;
}

/* r of a row of the group, when all its squares are in `part`. */
DEVICE float gemv_norm_scale(const struct gemm_params *p, const struct gemv_norm *n, uint32_t row)
{
    float sum = 0;
    if (row >= n->rows) return 0;
    for (uint32_t i = 0; i < NORM_HALVES / n->share; i++) sum += n->part[row * NORM_HALVES + i];
    return rsqrt_approx(fma_f32(sum, 1.0f / (float)p->k, EPS));
}

/* What the four warps do; t < NORM_THREADS. first: the piece that is wanted first. */
DEVICE void gemv_norm_rows(const struct gemm_params *p, const struct gemv_norm *n, uint32_t first_row, uint32_t first, uint32_t t)
{
    const uint32_t half = t / 16, v = t % 16, row = half % n->share, stride = NORM_HALVES / n->share;
    const element *x = (const element *)p->x + (size_t)(first_row + row) * (size_t)p->x_stride + v * 8;
    float sum[NORM_SETS];
    UNROLL for (uint32_t r = 0; r < NORM_SETS; r++) sum[r] = 0;
    for (uint32_t s = half / n->share, done = 0; done < n->pieces; s += NORM_AHEAD * stride, done += NORM_AHEAD * stride) {
        u32x4 in[NORM_AHEAD][NORM_SETS], gain[NORM_AHEAD][2];
        UNROLL for (uint32_t a = 0; a < NORM_AHEAD; a++)
        {
            const uint32_t at = s + a * stride, piece = first + at < n->pieces ? first + at : first + at - n->pieces;
            UNROLL for (uint32_t e = 0; e < 4; e++) gain[a][0].v[e] = gain[a][1].v[e] = 0;
            if (at < n->pieces && piece * NORM_PIECE + v * 8 < p->k) gemv_norm_weights(p, piece * NORM_PIECE + v * 8, gain[a]);
        }
        if (done == 0) grid_dependency_wait();
        UNROLL for (uint32_t a = 0; a < NORM_AHEAD; a++)
        {
            const uint32_t at = s + a * stride, piece = first + at < n->pieces ? first + at : first + at - n->pieces;
            UNROLL for (uint32_t r = 0; r < NORM_SETS; r++)
            {
                UNROLL for (uint32_t e = 0; e < 4; e++) in[a][r].v[e] = 0;
                if (at < n->pieces && row + 8 * r < n->rows && piece * NORM_PIECE + v * 8 < p->k)
                    in[a][r] = ld16(x + (size_t)(8 * r) * (size_t)p->x_stride + piece * NORM_PIECE);
            }
        }
        UNROLL for (uint32_t a = 0; a < NORM_AHEAD; a++)
        {
            const uint32_t at = s + a * stride, piece = first + at < n->pieces ? first + at : first + at - n->pieces;
            UNROLL for (uint32_t r = 0; r < NORM_SETS; r++)
                if (at < n->pieces && row + 8 * r < n->rows)
                    sum[r] = gemv_norm_put(in[a][r], gain[a], n->x + (piece * 2 + v / 8) * (N * 128) + (row + 8 * r) * 128 + ((v % 8) ^ (row % 8)) * 16, sum[r]);
            fence_proxy_async();
            warp_sync(FULL_WARP);
            UNROLL for (uint32_t r = 0; r < NORM_SETS; r++)
                if (v == 0 && at < n->pieces && row + 8 * r < n->rows) mbarrier_arrive(&n->full[piece]);
        }
    }
    UNROLL for (uint32_t r = 0; r < NORM_SETS; r++)
    {
        UNROLL for (uint32_t m = 8; m; m /= 2) sum[r] += shuffle_xor_f32(FULL_WARP, sum[r], m, 16);
        if (v == 0 && row + 8 * r < n->rows) n->part[(row + 8 * r) * NORM_HALVES + half / n->share] = sum[r];
    }
    if (v == 0) mbarrier_arrive(n->done);
}

#endif
