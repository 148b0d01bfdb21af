// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* One warp, one matrix instruction (OP) on raw registers: in[lane][20] = a[4], b[4], meta, sa, sb, -, d[4], ..; out[lane][4].
 * The same on the CPU and on the GPU, so that their layouts can be compared. */
#include "kernels/cuda/common/rose.cuh"
#include "kernels/cuda/common/mma.cuh"

struct probe_mma_params {
    const uint32_t *in;
    uint32_t *out;
};

KERNEL(probe_mma, struct probe_mma_params, p, 32, 1)
{
    const uint32_t *in = p.in + thread_x() * 20;
    uint32_t a[4], b[4], meta = in[8], sa = in[9], sb = in[10];
    float d[4];
    int32_t e[4];
    UNROLL for (int i = 0; i < 4; i++)
    {
        a[i] = in[i];
        b[i] = in[4 + i];
        d[i] = f32_from_bits(in[12 + i]);
        e[i] = (int32_t)in[12 + i];
    }
    (void)meta, (void)sa, (void)sb;
#if OP == 0
    mma_bf16(d, a, b);
#elif OP == 1
    mma_f16(d, a, b);
#elif OP == 2
    mma_s8(e, a, b);
#elif OP == 3
    mma_sp_bf16(d, a, b, meta, 0);
#elif OP == 4
    mma_sp_bf16(d, a, b, meta, 1);
#elif OP == 5
    mma_sp_f16(d, a, b, meta, 0);
#elif OP == 6
    mma_sp_s8(e, a, b, meta);
#elif OP == 7
    mma_e4m3(d, a, b);
#elif OP == 8
    mma_e5m2(d, a, b);
#elif OP == 9
    mma_sp_e4m3(d, a, b, meta);
#elif OP == 10
    mma_nvf4(d, a, b, sa, sb);
#elif OP == 11
    mma_mxf4(d, a, b, sa, sb);
#elif OP == 12
    mma_sp_nvf4(d, a, b, meta, sa, sb);
#elif OP == 13
    mma_sp_mxf4(d, a, b, meta, sa, sb);
#elif OP == 14
    mma_e4m3_e5m2(d, a, b);
#elif OP == 15
    mma_e5m2_e4m3(d, a, b);
#elif OP == 16
    mma_sp_e5m2(d, a, b, meta);
#endif
    UNROLL for (int i = 0; i < 4; i++)
        p.out[thread_x() * 4 + i] = OP == 2 || OP == 6 ? (uint32_t)e[i] : f32_bits(d[i]);
}
