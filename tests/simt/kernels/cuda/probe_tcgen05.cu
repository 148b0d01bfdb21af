// arch: sm_100a
/* One block of 128 threads, one tcgen05 product chain (OP) of M = 128 and N columns: d = A * B + A * B, twice the same product. */
#include "kernels/cuda/common/rose.cuh"
#include "kernels/cuda/common/tcgen05.cuh"

#ifndef MISTAKE
#define MISTAKE 0
#endif
#define A_BYTES 16384
#define B_BYTES 8192

struct probe_tcgen05_params {
    const uint8_t *a, *b;       /* images of shared memory, K-major, 128-byte spans */
    const uint8_t *scales;      /* [2][512]: of A, of B, as tmem_copy_scales takes them */
    const uint32_t *regs;       /* [128][8]: A for tensor memory, row a thread */
    uint32_t *d;                /* [128][N] */
};

KERNEL(probe_tcgen05, struct probe_tcgen05_params, p, 128, 1)
{
    unsigned char *sa = dynamic_shared(), *sb = sa + A_BYTES, *scales = sb + B_BYTES;
    mbarrier *bar = (mbarrier *)(scales + 1024);
    uint32_t *where = (uint32_t *)(bar + 1);
    uint32_t t = thread_x();
    for (uint32_t i = t * 16; i < A_BYTES; i += 128 * 16) st16(sa + i, ld16(p.a + i));
    for (uint32_t i = t * 16; i < B_BYTES; i += 128 * 16) st16(sb + i, ld16(p.b + i));
    if (t < 64) st16(scales + 16 * t, ld16(p.scales + 16 * t));
    if (MISTAKE != 1) fence_proxy_async();
    if (warp_id() == 0) {
        tmem_alloc(where, 256);
        tmem_relinquish();
    }
    if (t == 0) {
        mbarrier_init(bar, 1);
        fence_mbarrier_init();
    }
    tcgen05_fence_before();
    block_sync();
    tcgen05_fence_after();
    uint32_t d = *where, a = d + 128, scale_a = d + 160, scale_b = d + 164, lanes = (t & ~31u) << 16;
    uint32_t regs[8];
    UNROLL for (int i = 0; i < 8; i++) regs[i] = p.regs[8 * t + (uint32_t)i];
    tmem_st8(a + lanes, regs);
    if (MISTAKE != 5) tmem_wait_st();
    tcgen05_fence_before();
    block_sync();
    tcgen05_fence_after();
    if (t == 0) {
        uint64_t da = tcgen05_desc(sa, 16, 1024, 128), db = tcgen05_desc(sb, 16, 1024, 128);
        (void)a, (void)da;
#if OP >= 4 && OP <= 6
        tmem_copy_scales(scale_a, scales);
        tmem_copy_scales(scale_b, scales + 512);
#endif
        for (int i = 0; i < 2; i++) {
            bool more = i > 0;
            (void)scale_a, (void)scale_b;
#if OP == 0
            tcgen05_f16(d, da, db, tcgen05_idesc(128, N, TC_BF16, TC_BF16, 0, 0, false), more);
#elif OP == 1
            tcgen05_f16_ts(d, a, db, tcgen05_idesc(128, N, TC_BF16, TC_BF16, 0, 0, false), more);
#elif OP == 2
            tcgen05_f8(d, da, db, tcgen05_idesc(128, N, TC_E4M3, TC_E4M3, 0, 0, false), more);
#elif OP == 3
            tcgen05_i8(d, da, db, tcgen05_idesc(128, N, TC_S8, TC_S8, 0, 0, true), more);
#elif OP == 4
            tcgen05_mxf8(d, da, db, tcgen05_idesc_scaled(128, N, TC_E4M3, TC_E4M3, true, 0, 0), scale_a, scale_b, more);
#elif OP == 5
            tcgen05_mxf4(d, da, db, tcgen05_idesc_scaled(128, N, 1, 1, true, 0, 0), scale_a, scale_b, more);
#elif OP == 6
            tcgen05_nvf4(d, da, db, tcgen05_idesc_scaled(128, N, 1, 1, false, 0, 0), scale_a, scale_b, more);
#elif OP == 7
            tcgen05_f8_ts(d, a, db, tcgen05_idesc(128, N, TC_E4M3, TC_E4M3, 0, 0, false), more);
#elif OP == 8
            tcgen05_i8_ts(d, a, db, tcgen05_idesc(128, N, TC_S8, TC_S8, 0, 0, true), more);
#endif
        }
        if (MISTAKE != 2) tcgen05_commit(bar);
    }
    if (MISTAKE != 3) mbarrier_wait(bar, 0);
    tcgen05_fence_after();
    for (uint32_t c = 0; c < N; c += 16) {
        uint32_t r[16];
        tmem_ld16(r, d + (MISTAKE == 4 ? 0 : lanes) + c);
        tmem_wait_ld(r, 16);
        UNROLL for (int i = 0; i < 16; i++) p.d[t * N + c + (uint32_t)i] = r[i];
    }
    tcgen05_fence_before();
    block_sync();
    if (warp_id() == 0 && MISTAKE != 6) tmem_free(d, 256);
}
