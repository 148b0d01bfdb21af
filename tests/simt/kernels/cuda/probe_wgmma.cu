// arch: sm_90a
/* One warpgroup, one wgmma (OP) of N columns: operands as images of shared memory (A_BYTES, B_BYTES) or raw registers.
 * The same on the CPU and on the GPU. */
#include "kernels/cuda/common/rose.cuh"
#include "kernels/cuda/common/wgmma.cuh"

struct probe_wgmma_params {
    const uint8_t *a, *b;       /* images of shared memory */
    const uint32_t *regs;       /* [128][5]: a[4], metadata */
    uint32_t *d;                /* [128][N / 2], in and out */
    uint32_t a_leading, a_stride, a_span;
    uint32_t b_leading, b_stride, b_span;
    uint32_t accumulate;
};

#ifndef MISTAKE
#define MISTAKE 0
#endif
#if OP == 10 || OP == 11 || OP == 12
typedef int32_t acc_t;
#define ACC_IN(u) ((int32_t)(u))
#define ACC_OUT(x) ((uint32_t)(x))
#else
typedef float acc_t;
#define ACC_IN(u) f32_from_bits(u)
#define ACC_OUT(x) f32_bits(x)
#endif

KERNEL(probe_wgmma, struct probe_wgmma_params, p, 128, 1)
{
    unsigned char *sa = dynamic_shared(), *sb = sa + A_BYTES;
    uint32_t t = thread_x();
    for (uint32_t i = t * 16; i < A_BYTES; i += 128 * 16) st16(sa + i, ld16(p.a + i));
    for (uint32_t i = t * 16; i < B_BYTES; i += 128 * 16) st16(sb + i, ld16(p.b + i));
    if (MISTAKE != 1) fence_proxy_async();
    if (MISTAKE != 2) block_sync();
    uint32_t a[4], meta = p.regs[5 * t + 4];
    acc_t d[N / 2];
    UNROLL for (int i = 0; i < 4; i++) a[i] = p.regs[5 * t + (uint32_t)i];
    UNROLL for (int i = 0; i < N / 2; i++) d[i] = ACC_IN(p.d[t * (N / 2) + (uint32_t)i]);
    uint64_t da = wgmma_desc(sa, p.a_leading, p.a_stride, p.a_span), db = wgmma_desc(sb, p.b_leading, p.b_stride, p.b_span);
    uint32_t acc = p.accumulate;
    (void)meta, (void)da;
    wgmma_pin(d, N / 2);
    if (MISTAKE != 3) wgmma_fence();
#if OP == 0
    wgmma_bf16_ss(N, d, da, db, acc);
#elif OP == 1
    wgmma_bf16_rs(N, d, a, db, acc);
#elif OP == 2
    wgmma_f16_ss(N, d, da, db, acc);
#elif OP == 3
    wgmma_bf16_ss_t(N, d, da, db, acc, 1, 1);
#elif OP == 4
    wgmma_bf16_rs_t(N, d, a, db, acc, 1);
#elif OP == 5
    wgmma_e4m3_ss(N, d, da, db, acc);
#elif OP == 6
    wgmma_e5m2_rs(N, d, a, db, acc);
#elif OP == 7
    wgmma_sp_bf16_ss(N, d, da, db, meta, 0, acc);
#elif OP == 8
    wgmma_sp_bf16_rs(N, d, a, db, meta, 1, acc);
#elif OP == 9
    wgmma_sp_e4m3_rs(N, d, a, db, meta, acc);
#elif OP == 10
    wgmma_s8_ss(N, d, da, db, acc);
#elif OP == 11
    wgmma_s8_rs(N, d, a, db, acc);
#elif OP == 12
    wgmma_sp_s8_rs(N, d, a, db, meta, acc);
#elif OP == 13
    wgmma_sp_e4m3_ss(N, d, da, db, meta, acc);
#elif OP == 14 /* two in a chain */
    wgmma_bf16_ss(N, d, da, db, acc);
    wgmma_bf16_ss(N, d, da, db, 1);
#else /* the others of one operand's kind */
    if (OP == 15) wgmma_e4m3_rs(N, d, a, db, acc);
    if (OP == 16) wgmma_e5m2_ss(N, d, da, db, acc);
    if (OP == 17) wgmma_f16_rs(N, d, a, db, acc);
    if (OP == 18) wgmma_f16_rs_t(N, d, a, db, acc, 1);
    if (OP == 19) wgmma_sp_f16_rs(N, d, a, db, meta, 0, acc);
#endif
    wgmma_commit();
    if (MISTAKE == 4) sb[t] = 0;
    if (MISTAKE == 5) p.d[t * (N / 2)] = ACC_OUT(d[0]);
    if (MISTAKE != 6) wgmma_wait(0);
    wgmma_pin(d, N / 2);
    UNROLL for (int i = 0; i < N / 2; i++) p.d[t * (N / 2) + (uint32_t)i] = ACC_OUT(d[i]);
}
