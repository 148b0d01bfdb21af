/* multimem: one address that stands for the same place in every GPU of a multicast group (NVLS; sm_90).
 *
 * PTX ISA 9.7.9.14 "multimem.ld_reduce, multimem.st, multimem.red". The pointer comes from a multicast mapping that comm/
 * makes on machines that allow it; the project's own test machines do not, so these forms are assembled and emulated, never run
 * there. ld_reduce adds the element of all GPUs in float (.acc::f32 for bf16); st and red go to all. Relaxed at system scope:
 * ranks order them with release and acquire flags. */
#ifndef ROSE_CUDA_MULTIMEM_CUH
#define ROSE_CUDA_MULTIMEM_CUH

#include "kernels/cuda/common/types.cuh"

#if defined(ROSE_SIMT) || HAS_BULK
/* Sum over the GPUs of eight bf16 (16 bytes). */
DEVICE u32x4 multimem_ld_add_bf16x8(const void *p)
{
    u32x4 r;
#ifdef ROSE_SIMT
    simt_multimem_ld(&r, p, SIMT_REDUCE_ADD_BF16);
#else
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.bf16x2 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r.v[0]), "=r"(r.v[1]), "=r"(r.v[2]), "=r"(r.v[3])
                 : "l"(p)
                 : "memory");
#endif
    return r;
}
DEVICE f32x4 multimem_ld_add_f32x4(const void *p)
{
    f32x4 r;
#ifdef ROSE_SIMT
    simt_multimem_ld(&r, p, SIMT_REDUCE_ADD_F32);
#else
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(r.v[0]), "=f"(r.v[1]), "=f"(r.v[2]), "=f"(r.v[3])
                 : "l"(p)
                 : "memory");
#endif
    return r;
}
DEVICE void multimem_st16(void *p, u32x4 v)
{
#ifdef ROSE_SIMT
    simt_multimem_st(p, &v, SIMT_REDUCE_NONE);
#else
    asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(p), "f"(f32_from_bits(v.v[0])),
                 "f"(f32_from_bits(v.v[1])), "f"(f32_from_bits(v.v[2])), "f"(f32_from_bits(v.v[3]))
                 : "memory");
#endif
}
DEVICE void multimem_red_add_f32x4(void *p, f32x4 v)
{
#ifdef ROSE_SIMT
    simt_multimem_st(p, &v, SIMT_REDUCE_ADD_F32);
#else
    asm volatile("multimem.red.relaxed.sys.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(p), "f"(v.v[0]), "f"(v.v[1]),
                 "f"(v.v[2]), "f"(v.v[3])
                 : "memory");
#endif
}

/* Adds v to a flag in every GPU, releasing the caller's earlier writes at system scope. */
DEVICE void multimem_red_release_u32(uint32_t *p, uint32_t v)
{
#ifdef ROSE_SIMT
    simt_multimem_red_release(p, v);
#else
    asm volatile("multimem.red.release.sys.global.add.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
#endif
}
#endif

#endif
