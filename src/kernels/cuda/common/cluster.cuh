/* Thread block clusters and distributed shared memory (sm_90).
 *
 * PTX ISA 9.7.13.3 "barrier.cluster", 9.7.9.24 "mapa", 9.7.9.13 "st.async". A cluster is `cluster` consecutive blocks
 * along x (a launch attribute). Pointers from cluster_map work in ordinary loads, stores and atomics; the other block
 * must be running: cluster_sync before the first access and after the last. cluster_sync releases and acquires at
 * cluster scope. */
#ifndef ROSE_CUDA_CLUSTER_CUH
#define ROSE_CUDA_CLUSTER_CUH

#include "kernels/cuda/common/mbarrier.cuh"

#if defined(ROSE_SIMT) || HAS_BULK
DEVICE uint32_t cluster_rank(void)
{
#ifdef ROSE_SIMT
    return simt_id(SIMT_ID_cluster_rank);
#else
    uint32_t r;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
#endif
}
DEVICE uint32_t cluster_size(void)
{
#ifdef ROSE_SIMT
    return simt_id(SIMT_ID_cluster_size);
#else
    uint32_t r;
    asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(r));
    return r;
#endif
}
DEVICE uint32_t cluster_id(void)
{
#ifdef ROSE_SIMT
    return simt_id(SIMT_ID_cluster_id);
#else
    uint32_t r;
    asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(r));
    return r;
#endif
}
DEVICE void cluster_arrive(void)
{
#ifdef ROSE_SIMT
    simt_cluster_arrive();
#else
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
DEVICE void cluster_wait(void)
{
#ifdef ROSE_SIMT
    simt_cluster_wait();
#else
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}
DEVICE void cluster_sync(void)
{
    cluster_arrive();
    cluster_wait();
}
/* The place in block `rank` that corresponds to p in this block's shared memory. */
DEVICE void *cluster_map(const void *p, uint32_t rank)
{
#ifdef ROSE_SIMT
    return simt_cluster_map(p, rank);
#else
    uint64_t r;
    asm volatile("mapa.u64 %0, %1, %2;" : "=l"(r) : "l"(p), "r"(rank));
    return (void *)r;
#endif
}
/* Stores 4 or 16 bytes at p's place in block `rank`, asynchronously; its bytes count on `bar`'s place there. */
DEVICE void st4_async(void *p, uint32_t rank, uint32_t v, mbarrier *bar)
{
#ifdef ROSE_SIMT
    simt_st_async(simt_cluster_map(p, rank), &v, 4, simt_cluster_map(bar, rank));
#else
    asm volatile("{ .reg .b32 a, m; mapa.shared::cluster.u32 a, %0, %2; mapa.shared::cluster.u32 m, %1, %2; "
                 "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [a], %3, [m]; }" ::"r"(shared_address(p)),
                 "r"(shared_address(bar)), "r"(rank), "r"(v)
                 : "memory");
#endif
}
DEVICE void st16_async(void *p, uint32_t rank, u32x4 v, mbarrier *bar)
{
#ifdef ROSE_SIMT
    simt_st_async(simt_cluster_map(p, rank), &v, 16, simt_cluster_map(bar, rank));
#else
    asm volatile("{ .reg .b32 a, m; mapa.shared::cluster.u32 a, %0, %2; mapa.shared::cluster.u32 m, %1, %2; "
                 "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [a], {%3, %4, %5, %6}, [m]; }" ::"r"(
                     shared_address(p)),
                 "r"(shared_address(bar)), "r"(rank), "r"(v.v[0]), "r"(v.v[1]), "r"(v.v[2]), "r"(v.v[3])
                 : "memory");
#endif
}
#endif

#endif
