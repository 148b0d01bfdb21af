/* 16 weight rows of e4m3 times N rows of bf16 x by mma.sync (gemv_fp8_ring.cu, moe_coded.cu): codes become bf16 operands, exactly.
 *
 * Weights: 128 codes a row, x: bf16 [boxes of 64 k][N][64]; rows of 128 bytes, 16-byte chunk j of row r at j ^ (r % 8), as TMA leaves them.
 * Lane (q, c) takes k 8c .. 8c + 7 of 32 of weight rows q and q + 8, and of row q / 2 + q % 2 * 4 of x: eight lanes then read all banks. The
 * k of an instruction come in another order than they lie, in both operands alike.
 *
 * Constants: N (8 .. 64); that of fp8.cuh. */
#ifndef ROSE_CUDA_FP8_UNIT_CUH
#define ROSE_CUDA_FP8_UNIT_CUH

#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/fp8.cuh"

/* Sums d[4 j + e] and d[4 j + 2 + e] of lane c of four are row 8 j + FP8_X_ROW(c, e) of x. */
#define FP8_X_ROW(c, e) ((c) + (e) * 4)

/* part += the sums of 128 of k. */
DEVICE void fp8_widen(float part[N / 2], const unsigned char *w, const unsigned char *x)
{
    const uint32_t q = lane_id() / 4, c = lane_id() % 4, row = q / 2 + q % 2 * 4;
    UNROLL for (uint32_t t = 0; t < 4; t++) /* 32 of k */
    {
        const unsigned char *lo = w + q * 128 + (((t * 2 + c / 2) ^ q) << 4) + c % 2 * 8;
        const u32x2 codes[2] = {ld8(lo), ld8(lo + 8 * 128)};
        uint32_t a[2][4];
        UNROLL for (uint32_t u = 0; u < 2; u++) /* 16 of k */
        {
            uint32_t two[2][2];
            UNROLL for (uint32_t h = 0; h < 2; h++) fp8_pairs(codes[h].v[u], two[h]);
            UNROLL for (uint32_t i = 0; i < 4; i++) a[u][i] = two[i % 2][i / 2];
        }
        UNROLL for (uint32_t j = 0; j < N / 8; j++)
        {
            const u32x4 b = ld16(x + t / 2 * (N * 128) + (j * 8 + row) * 128 + (((t % 2 * 4 + c) ^ row) << 4));
            UNROLL for (uint32_t u = 0; u < 2; u++) mma_bf16(part + 4 * j, a[u], b.v + 2 * u);
        }
    }
}

#endif
