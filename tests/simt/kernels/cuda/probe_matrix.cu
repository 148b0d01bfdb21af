// arch: sm_90a sm_100a sm_120a
/* ldmatrix and stmatrix of one warp: in, 32 rows of 8 halves; out, see test_simt_mma.c. */
#include "kernels/cuda/common/rose.cuh"
#include "kernels/cuda/common/mma.cuh"

struct probe_matrix_params {
    const uint16_t *in;
    uint32_t *out;
};

KERNEL(probe_matrix, struct probe_matrix_params, p, 32, 1)
{
    unsigned char *s = dynamic_shared(); /* 512 bytes in, 512 plain out, 512 transposed out; 256 of two tiles, and transposed; 128 of one, and transposed */
    uint32_t lane = thread_x();
    st16(s + 16 * lane, ld16(p.in + 8 * lane));
    warp_sync(FULL_WARP);
    uint32_t x4[4], t4[4], x2[2], t2[2], x1[1], t1[1];
    ldmatrix_x4(x4, s + 16 * lane);
    ldmatrix_x4_trans(t4, s + 16 * lane);
    ldmatrix_x2_trans(t2, s + 16 * (lane % 16));
    ldmatrix_x2(x2, s + 16 * (lane % 16));
    ldmatrix_x1(x1, s + 16 * (lane % 8));
    ldmatrix_x1_trans(t1, s + 16 * (lane % 8));
    stmatrix_x4(s + 512 + 16 * lane, x4);
    stmatrix_x4_trans(s + 1024 + 16 * lane, t4);
    stmatrix_x2(s + 1536 + 16 * (lane % 16), x2);
    stmatrix_x2_trans(s + 1792 + 16 * (lane % 16), t2);
    stmatrix_x1(s + 2048 + 16 * (lane % 8), x1);
    stmatrix_x1_trans(s + 2176 + 16 * (lane % 8), t1);
    warp_sync(FULL_WARP);
    for (int i = 0; i < 4; i++) {
        p.out[4 * lane + (uint32_t)i] = x4[i];
        p.out[128 + 4 * lane + (uint32_t)i] = t4[i];
        p.out[256 + 4 * lane + (uint32_t)i] = i < 2 ? t2[i & 1] : 0;
        p.out[384 + 4 * lane + (uint32_t)i] = i < 1 ? x1[0] : i < 2 ? t1[0] : x2[i & 1];
        p.out[512 + 4 * lane + (uint32_t)i] = ((const uint32_t *)(s + 512))[4 * lane + (uint32_t)i];
        p.out[640 + 4 * lane + (uint32_t)i] = ((const uint32_t *)(s + 1024))[4 * lane + (uint32_t)i];
    }
    for (uint32_t i = lane; i < 192; i += 32) p.out[768 + i] = ((const uint32_t *)(s + 1536))[i];
}
