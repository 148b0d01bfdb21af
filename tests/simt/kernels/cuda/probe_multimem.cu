// arch: sm_90a sm_100a sm_120a
/* Sums bf16 and floats over the GPUs of a group, adds to floats in all of them, stores to all of them, raises a flag in all of them. */
#include "kernels/cuda/common/rose.cuh"
#include "kernels/cuda/common/multimem.cuh"

#ifndef MISTAKE
#define MISTAKE 0
#endif

struct multimem_params {
    const void *sum_of, *add_to; /* multicast addresses */
    void *out;
    uint32_t *flag; /* multicast */
    const void *floats, *store; /* multicast */
    void *float_sums;
};

KERNEL(probe_multimem, struct multimem_params, p, 32, 1)
{
    uint32_t t = thread_x();
    u32x4 sum = multimem_ld_add_bf16x8((const char *)p.sum_of + 16 * t);
    st16((char *)p.out + 16 * t, sum);
    f32x4 v;
    for (int i = 0; i < 4; i++) v.v[i] = (float)(4 * t + (uint32_t)i);
    multimem_red_add_f32x4((char *)p.add_to + 16 * t, v);
    f32x4 sums = multimem_ld_add_f32x4((const char *)p.floats + 16 * t);
    u32x4 bits = {{f32_bits(sums.v[0]), f32_bits(sums.v[1]), f32_bits(sums.v[2]), f32_bits(sums.v[3])}};
    st16((char *)p.float_sums + 16 * t, bits);
    multimem_st16((char *)p.store + 16 * t, bits);
    multimem_red_release_u32(p.flag, 1);
    if (MISTAKE == 1) p.flag[0] = 1;
}
