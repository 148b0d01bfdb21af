/* mbarrier: a barrier in shared memory that counts arrivals and asynchronously copied bytes.
 *
 * PTX ISA 9.7.13.15 "mbarrier" (sm_80; expect_tx, try_wait and everything of clusters sm_90), 9.7.13.4 "fence".
 *
 * An mbarrier has a phase: it completes when all `count` arrivals have come and as many bytes as were expected have been
 * copied, then starts the next with the same count. Waiters name the phase by its parity: the first phase is 0, so a
 * consumer waits for 0, 1, 0, ...; waiting for parity 1 on a fresh barrier returns at once (a producer's first pass).
 *
 * Memory: arrive releases and wait acquires at block scope (the _cluster forms at cluster scope); a wait also makes the
 * bytes counted in its phase visible. After mbarrier_init one thread calls fence_mbarrier_init, then the block (or
 * cluster) synchronises. Data written by ordinary stores that TMA, wgmma or tcgen05 will read needs fence_proxy_async in
 * every writing thread before the barrier that hands it over. */
#ifndef ROSE_CUDA_MBARRIER_CUH
#define ROSE_CUDA_MBARRIER_CUH

#include "kernels/cuda/common/async.cuh"

typedef uint64_t mbarrier; /* 8 bytes of shared memory, 8-aligned; never read or written directly */

/* count: arrivals a phase, 1 .. 2^20 - 1. By one thread. */
DEVICE void mbarrier_init(mbarrier *bar, uint32_t count)
{
#ifdef ROSE_SIMT
    simt_mbarrier_init(bar, count);
#else
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(bar)), "r"(count) : "memory");
#endif
}
/* Before the memory is used for something else. */
DEVICE void mbarrier_invalidate(mbarrier *bar)
{
#ifdef ROSE_SIMT
    simt_mbarrier_invalidate(bar);
#else
    asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(shared_address(bar)) : "memory");
#endif
}
DEVICE void mbarrier_arrive(mbarrier *bar)
{
#ifdef ROSE_SIMT
    simt_mbarrier_arrive(bar, 0, false);
#else
    asm volatile("{ .reg .b64 s; mbarrier.arrive.shared.b64 s, [%0]; }" ::"r"(shared_address(bar)) : "memory");
#endif
}
/* Whether the phase of this parity is complete. Acquires when it is. */
DEVICE bool mbarrier_test(mbarrier *bar, uint32_t parity)
{
#ifdef ROSE_SIMT
    return simt_mbarrier_test(bar, parity);
#elif ROSE_ARCH >= 900
    uint32_t done;
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(shared_address(bar)), "r"(parity)
                 : "memory");
    return done != 0;
#else
    uint32_t done;
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(shared_address(bar)), "r"(parity)
                 : "memory");
    return done != 0;
#endif
}
/* Waits for the phase of this parity to complete. */
DEVICE void mbarrier_wait(mbarrier *bar, uint32_t parity)
{
#ifdef ROSE_SIMT
    simt_mbarrier_wait(bar, parity);
#elif ROSE_ARCH >= 900
    asm volatile("{\n .reg .pred p;\n"
                 "rose_wait_%=:\n mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                 " @!p bra rose_wait_%=;\n}" ::"r"(shared_address(bar)),
                 "r"(parity)
                 : "memory");
#else
    while (!mbarrier_test(bar, parity)) {}
#endif
}
/* cp.async: an arrival once all copies that the calling thread has issued so far are complete. It does not raise the
 * count (noinc): the barrier's count includes it. */
DEVICE void cp_async_mbarrier_arrive(mbarrier *bar)
{
#ifdef ROSE_SIMT
    simt_cp_async_mbarrier_arrive(bar);
#else
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(bar)) : "memory");
#endif
}

#if defined(ROSE_SIMT) || HAS_BULK
/* Makes initialised mbarriers known to the cluster and to the copy engines. */
DEVICE void fence_mbarrier_init(void)
{
#ifdef ROSE_SIMT
    simt_fence_mbarrier_init();
#else
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
/* Orders the caller's ordinary accesses to shared memory before asynchronous ones (TMA, wgmma, tcgen05) that a barrier
 * orders after it. */
DEVICE void fence_proxy_async(void)
{
#ifdef ROSE_SIMT
    simt_fence_proxy_async(false);
#else
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
/* The same for global memory too: data this grid wrote with ordinary stores and then moves by TMA. */
DEVICE void fence_proxy_async_global(void)
{
#ifdef ROSE_SIMT
    simt_fence_proxy_async(true);
#else
    asm volatile("fence.proxy.async;" ::: "memory");
#endif
}
/* Raises the current phase's expected bytes, without arriving. */
DEVICE void mbarrier_expect(mbarrier *bar, uint32_t bytes)
{
#ifdef ROSE_SIMT
    simt_mbarrier_expect(bar, bytes);
#else
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)), "r"(bytes)
                 : "memory");
#endif
}
/* The producer's arrival: raises the expected bytes and arrives. Then issue the copies that bring them. */
DEVICE void mbarrier_arrive_expect(mbarrier *bar, uint32_t bytes)
{
#ifdef ROSE_SIMT
    simt_mbarrier_arrive(bar, bytes, false);
#else
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(bar)), "r"(bytes)
                 : "memory");
#endif
}
/* Arrives at the same mbarrier of block `rank` of the cluster; releases at cluster scope. */
DEVICE void mbarrier_arrive_cluster(mbarrier *bar, uint32_t rank)
{
#ifdef ROSE_SIMT
    simt_mbarrier_arrive(simt_cluster_map(bar, rank), 0, true);
#else
    asm volatile("{ .reg .b32 a; mapa.shared::cluster.u32 a, %0, %1; "
                 "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [a]; }" ::"r"(shared_address(bar)),
                 "r"(rank)
                 : "memory");
#endif
}
/* The same without a fence, as a consumer gives a stage back whose reads are complete (wgmma_wait) and which only TMA fills again. Releasing at
 * cluster scope is a MEMBAR of the whole GPU, about half a microsecond each time, and acquiring there empties level 1. */
DEVICE void mbarrier_arrive_remote(mbarrier *bar, uint32_t rank)
{
#ifdef ROSE_SIMT
    simt_mbarrier_arrive(simt_cluster_map(bar, rank), 0, true);
#else
    asm volatile("{ .reg .b32 a; mapa.shared::cluster.u32 a, %0, %1; "
                 "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [a]; }" ::"r"(shared_address(bar)),
                 "r"(rank)
                 : "memory");
#endif
}
/* Waits and acquires what blocks of the cluster released. */
DEVICE void mbarrier_wait_cluster(mbarrier *bar, uint32_t parity)
{
#ifdef ROSE_SIMT
    simt_mbarrier_wait(bar, parity);
#else
    asm volatile("{\n .reg .pred p;\n"
                 "rose_wait_%=:\n mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1;\n"
                 " @!p bra rose_wait_%=;\n}" ::"r"(shared_address(bar)),
                 "r"(parity)
                 : "memory");
#endif
}
#endif

#endif
