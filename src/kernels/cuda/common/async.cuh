/* cp.async: global to shared memory without registers (sm_80).
 *
 * PTX ISA 9.7.9.25.3 "Non-bulk copy". The data is in shared memory, and visible to the issuing thread, only after its
 * cp_async_wait; other threads need a barrier after that. Groups complete in order: cp_async_wait(n) leaves at most the n
 * youngest committed groups pending. cp_async16 goes past L1. The _zfill forms copy src_bytes and zero the rest; with 0 the
 * source is not touched. Addresses are aligned to the size. */
#ifndef ROSE_CUDA_ASYNC_CUH
#define ROSE_CUDA_ASYNC_CUH

#include "kernels/cuda/common/types.cuh"

/* The address of shared memory as instructions want it: 32 bits, within the block's window. */
DEVICE uint32_t shared_address(const void *p)
{
#ifdef ROSE_SIMT
    return simt_shared_address(p);
#else
    return (uint32_t)__cvta_generic_to_shared(p);
#endif
}

#ifdef ROSE_SIMT
#define ROSE_CP_ASYNC_(size, mode)                                                                            \
    DEVICE void cp_async##size(void *shared, const void *global)                                             \
    {                                                                                                        \
        simt_cp_async(shared, global, size, size);                                                           \
    }                                                                                                        \
    DEVICE void cp_async##size##_zfill(void *shared, const void *global, uint32_t src_bytes)                 \
    {                                                                                                        \
        simt_cp_async(shared, global, size, src_bytes);                                                      \
    }
#else
#define ROSE_CP_ASYNC_(size, mode)                                                                            \
    DEVICE void cp_async##size(void *shared, const void *global)                                             \
    {                                                                                                        \
        asm volatile("cp.async." mode ".shared.global [%0], [%1], " #size ";" ::"r"(shared_address(shared)), \
                     "l"(global)                                                                             \
                     : "memory");                                                                            \
    }                                                                                                        \
    DEVICE void cp_async##size##_zfill(void *shared, const void *global, uint32_t src_bytes)                 \
    {                                                                                                        \
        asm volatile("cp.async." mode ".shared.global [%0], [%1], " #size ", %2;" ::"r"(                     \
                         shared_address(shared)),                                                            \
                     "l"(global), "r"(src_bytes)                                                             \
                     : "memory");                                                                            \
    }
#endif
ROSE_CP_ASYNC_(4, "ca")
ROSE_CP_ASYNC_(8, "ca")
ROSE_CP_ASYNC_(16, "cg")

DEVICE void cp_async_commit(void)
{
#ifdef ROSE_SIMT
    simt_cp_async_commit();
#else
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/* n is a constant. */
#ifdef ROSE_SIMT
#define cp_async_wait(n) simt_cp_async_wait(n)
#define cp_async_wait_all() simt_cp_async_wait(~0u)
#else
#define cp_async_wait(n) asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory")
#define cp_async_wait_all() asm volatile("cp.async.wait_all;" ::: "memory")
#endif

#endif
