/* A unit of a weight tile in a block format times N rows of x by mma.sync (matmul_blocks_ring.cu, moe_coded.cu).
 *
 * x is bf16 [boxes of 64 k][N][64], rows of 128 bytes, 16-byte chunk j of row r at j ^ (r % 8), as TMA leaves them. Lane (q, c) takes
 * elements 4c .. and 16 + 4c .. of a unit from row 2 (q % 4) + q / 4: sixteen lanes then read all banks.
 *
 * Constants: N (8 .. 64); those of matmul_blocks_scales.cuh. */
#ifndef ROSE_CUDA_MATMUL_BLOCKS_UNIT_CUH
#define ROSE_CUDA_MATMUL_BLOCKS_UNIT_CUH

#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/matmul_blocks_scales.cuh"

/* Sums d[4 j + e] and d[4 j + 2 + e] of lane c of four are row 8 j + BLOCKS_X_ROW(c, e) of x. */
#define BLOCKS_X_ROW(c, e) (((c) * 2 + (e)) % 4 * 2 + ((c) * 2 + (e)) / 4)

/* This lane's elements of 8 rows of x from row 8 j on of a unit, for both halves. */
DEVICE void blocks_x(const unsigned char *x, uint32_t unit, uint32_t j, u32x2 b[2])
{
    const uint32_t q = lane_id() / 4, c = lane_id() % 4, row = q % 4 * 2 + q / 4;
    const unsigned char *at = x + unit / 2 * (N * 128) + (j * 8 + row) * 128 + c % 2 * 8;
    UNROLL for (uint32_t half = 0; half < 2; half++) b[half] = ld8(at + (((unit % 2 * 4 + half * 2 + c / 2) ^ row) << 4));
}
/* Sums of x over a unit: of the two rows of lane c of four. */
DEVICE void blocks_sum(const u32x2 b[2], float sum[4])
{
    const uint32_t ones[4] = {PAIR_ONE, PAIR_ONE, PAIR_ONE, PAIR_ONE};
    UNROLL for (int e = 0; e < 4; e++) sum[e] = 0;
    UNROLL for (int half = 0; half < 2; half++) mma_element(sum, ones, b[half].v);
}

/* One unit: d += (codes * x) scaled. unit: in the chunk; sums: of x, f32 [units][N / 8][4 lanes][2], or NULL: added up here. */
DEVICE void blocks_unit(float d[N / 2], const uint32_t a[2][4], const unsigned char *scale, const unsigned char *x, uint32_t unit, const unsigned char *sums)
{
    const uint32_t q = lane_id() / 4, c = lane_id() % 4;
    const u32x4 bits = ld16(scale + (unit * 8 + q) * 16);
    float s[4];
    UNROLL for (int i = 0; i < 4; i++) s[i] = f32_from_bits(bits.v[i]);
    UNROLL for (uint32_t j = 0; j < N / 8; j++)
    {
        u32x2 b[2];
        blocks_x(x, unit, j, b);
        UNROLL for (int half = 0; half < 1 + HALVES; half++)
        {
            float t[4] = {0, 0, 0, 0};
            mma_element(t, a[half], b[half].v);
            if (!HALVES) mma_element(t, a[1], b[1].v);
            UNROLL for (int e = 0; e < 4; e++) d[4 * j + e] = fma_f32(s[2 * half + e / 2], t[e], d[4 * j + e]);
        }
        if (MINIMA) {
            float sum[4];
            if (sums) {
                const u32x2 two = ld8(sums + ((unit * (N / 8) + j) * 4 + c) * 8);
                UNROLL for (int e = 0; e < 4; e++) sum[e] = f32_from_bits(two.v[e % 2]);
            } else
                blocks_sum(b, sum);
            UNROLL for (int e = 0; e < 4; e++) d[4 * j + e] = fma_f32(s[2 + e / 2], sum[e], d[4 * j + e]);
        }
    }
}

#endif
