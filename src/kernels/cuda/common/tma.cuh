/* The bulk copy engine: TMA tiles of 1 to 5 dimensions and plain bulk copies (sm_90).
 *
 * PTX ISA 9.7.9.25.4 "cp.async.bulk", 9.7.9.25.5 "cp.async.bulk.tensor", "cp.reduce.async.bulk(.tensor)",
 * "cp.async.bulk.commit_group / wait_group", 9.7.9.27 "prefetch", 9.7.9.18 "createpolicy".
 *
 * One thread issues. Loads complete on an mbarrier of the block: their bytes (always the whole box; what lies outside the
 * tensor arrives as zeros) count down its expected bytes. Stores and reductions are grouped: bulk_commit closes the
 * thread's group, bulk_wait_read(n) waits until all but the n youngest groups have read their shared memory (which may
 * then be reused, and must have happened before the block ends), bulk_wait(n) until they are complete.
 *
 * Shared memory: 128-byte aligned (1024 for the 128-byte swizzle's pattern to start at its first row); sizes of bulk
 * copies and both addresses multiples of 16. The boxes lie in shared memory densely, innermost dimension first, with
 * 16-byte chunks swizzled: chunk index ^= (address / 128) % (span / 16) for spans of 32, 64, 128.
 *
 * Coordinates are in elements, innermost first. Those of loads may be negative; a store or reduction begins inside the
 * tensor (what lies behind its end is dropped) and its innermost coordinate at a multiple of 16 bytes: anything else is an
 * illegal instruction on an H200. map is the address of a `struct tensor_map` member of
 * the kernel's parameters. Ordinary stores to the source of a store, or to memory that a load overwrites, need
 * fence_proxy_async first (mbarrier.cuh). policy: l2_evict_first(), l2_evict_last() or l2_evict_normal() (memory.cuh). */
#ifndef ROSE_CUDA_TMA_CUH
#define ROSE_CUDA_TMA_CUH

#include "kernels/cuda/common/mbarrier.cuh"

#if defined(ROSE_SIMT) || HAS_BULK

/* ---- plain bulk copies ----------------------------------------------------------------------------------------------- */
/* bytes from global to shared memory. */
DEVICE void bulk_load(void *shared, const void *global, uint32_t bytes, mbarrier *bar, uint64_t policy)
{
#ifdef ROSE_SIMT
    (void)policy;
    simt_bulk_load(shared, global, bytes, bar, 0);
#else
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], "
                 "%4;" ::"r"(shared_address(shared)),
                 "l"(global), "r"(bytes), "r"(shared_address(bar)), "l"(policy)
                 : "memory");
#endif
}
/* The same into all blocks of the cluster that `blocks` names, at the same place, each on its own mbarrier there. */
DEVICE void bulk_load_multicast(void *shared, const void *global, uint32_t bytes, mbarrier *bar, uint16_t blocks)
{
#ifdef ROSE_SIMT
    simt_bulk_load(shared, global, bytes, bar, blocks);
#else
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, "
                 "[%3], %4;" ::"r"(shared_address(shared)),
                 "l"(global), "r"(bytes), "r"(shared_address(bar)), "h"(blocks)
                 : "memory");
#endif
}
/* bytes from this block's shared memory to the place of `to` in block `rank`, on `bar`'s place there. */
DEVICE void bulk_copy_cluster(void *to, uint32_t rank, const void *from, uint32_t bytes, mbarrier *bar)
{
#ifdef ROSE_SIMT
    simt_bulk_copy_cluster(simt_cluster_map(to, rank), from, bytes, simt_cluster_map(bar, rank));
#else
    asm volatile("{ .reg .b32 a, m; mapa.shared::cluster.u32 a, %0, %4; mapa.shared::cluster.u32 m, %3, %4; "
                 "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [a], [%1], %2, [m]; }" ::"r"(
                     shared_address(to)),
                 "r"(shared_address(from)), "r"(bytes), "r"(shared_address(bar)), "r"(rank)
                 : "memory");
#endif
}
DEVICE void bulk_store(void *global, const void *shared, uint32_t bytes)
{
#ifdef ROSE_SIMT
    simt_bulk_store(global, shared, bytes, SIMT_REDUCE_NONE);
#else
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global),
                 "r"(shared_address(shared)), "r"(bytes)
                 : "memory");
#endif
}
/* Adds elements to global memory, each atomically (relaxed). */
DEVICE void bulk_reduce_add_f32(void *global, const void *shared, uint32_t bytes)
{
#ifdef ROSE_SIMT
    simt_bulk_store(global, shared, bytes, SIMT_REDUCE_ADD_F32);
#else
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(global),
                 "r"(shared_address(shared)), "r"(bytes)
                 : "memory");
#endif
}
DEVICE void bulk_reduce_add_bf16(void *global, const void *shared, uint32_t bytes)
{
#ifdef ROSE_SIMT
    simt_bulk_store(global, shared, bytes, SIMT_REDUCE_ADD_BF16);
#else
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.bf16 [%0], [%1], %2;" ::"l"(global),
                 "r"(shared_address(shared)), "r"(bytes)
                 : "memory");
#endif
}
DEVICE void bulk_prefetch_l2(const void *global, uint32_t bytes)
{
#ifdef ROSE_SIMT
    (void)global, (void)bytes;
#else
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(global), "r"(bytes));
#endif
}
DEVICE void bulk_commit(void)
{
#ifdef ROSE_SIMT
    simt_bulk_commit();
#else
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#endif
}
/* n is a constant. */
#ifdef ROSE_SIMT
#define bulk_wait(n) simt_bulk_wait(n, false)
#define bulk_wait_read(n) simt_bulk_wait(n, true)
#else
#define bulk_wait(n) asm volatile("cp.async.bulk.wait_group %0;" ::"n"(n) : "memory")
#define bulk_wait_read(n) asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(n) : "memory")
#endif

/* ---- tiles --------------------------------------------------------------------------------------------------------------
 * tma_load_2d(shared, &p.map, c0, c1, bar, policy), tma_load_multicast_2d(shared, map, c0, c1, bar, blocks),
 * tma_store_2d(map, c0, c1, shared), tma_reduce_add_2d(map, c0, c1, shared), tma_prefetch_2d(map, c0, c1);
 * the same for 1d, 3d, 4d and 5d. */
DEVICE void tma_prefetch_map(const struct tensor_map *map)
{
#ifdef ROSE_SIMT
    (void)map;
#else
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
#endif
}

#define ROSE_PARAMS_1_ int32_t c0
#define ROSE_PARAMS_2_ int32_t c0, int32_t c1
#define ROSE_PARAMS_3_ int32_t c0, int32_t c1, int32_t c2
#define ROSE_PARAMS_4_ int32_t c0, int32_t c1, int32_t c2, int32_t c3
#define ROSE_PARAMS_5_ int32_t c0, int32_t c1, int32_t c2, int32_t c3, int32_t c4

#ifdef ROSE_SIMT
#define ROSE_ARRAY_1_ {c0}
#define ROSE_ARRAY_2_ {c0, c1}
#define ROSE_ARRAY_3_ {c0, c1, c2}
#define ROSE_ARRAY_4_ {c0, c1, c2, c3}
#define ROSE_ARRAY_5_ {c0, c1, c2, c3, c4}
#define ROSE_TMA_(n)                                                                                          \
    DEVICE void tma_load_##n##d(void *shared, const struct tensor_map *map, ROSE_PARAMS_##n##_, mbarrier *bar, \
                                uint64_t policy)                                                             \
    {                                                                                                        \
        const int32_t c[5] = ROSE_ARRAY_##n##_;                                                              \
        (void)policy;                                                                                        \
        simt_tma_load(shared, map, n, c, bar, 0);                                                            \
    }                                                                                                        \
    DEVICE void tma_load_multicast_##n##d(void *shared, const struct tensor_map *map, ROSE_PARAMS_##n##_,    \
                                          mbarrier *bar, uint16_t blocks)                                    \
    {                                                                                                        \
        const int32_t c[5] = ROSE_ARRAY_##n##_;                                                              \
        simt_tma_load(shared, map, n, c, bar, blocks);                                                       \
    }                                                                                                        \
    DEVICE void tma_store_##n##d(const struct tensor_map *map, ROSE_PARAMS_##n##_, const void *shared)       \
    {                                                                                                        \
        const int32_t c[5] = ROSE_ARRAY_##n##_;                                                              \
        simt_tma_store(map, n, c, shared, false);                                                            \
    }                                                                                                        \
    DEVICE void tma_reduce_add_##n##d(const struct tensor_map *map, ROSE_PARAMS_##n##_, const void *shared)  \
    {                                                                                                        \
        const int32_t c[5] = ROSE_ARRAY_##n##_;                                                              \
        simt_tma_store(map, n, c, shared, true);                                                             \
    }                                                                                                        \
    DEVICE void tma_prefetch_##n##d(const struct tensor_map *map, ROSE_PARAMS_##n##_)                        \
    {                                                                                                        \
        const int32_t c[5] = ROSE_ARRAY_##n##_;                                                              \
        (void)map, (void)c;                                                                                  \
    }
#else
/* The coordinates are the asm's first operands; the numbers of the rest follow from their count. */
#define ROSE_COORDS_1_ "{%0}"
#define ROSE_COORDS_2_ "{%0, %1}"
#define ROSE_COORDS_3_ "{%0, %1, %2}"
#define ROSE_COORDS_4_ "{%0, %1, %2, %3}"
#define ROSE_COORDS_5_ "{%0, %1, %2, %3, %4}"
#define ROSE_IN_1_ "r"(c0)
#define ROSE_IN_2_ "r"(c0), "r"(c1)
#define ROSE_IN_3_ "r"(c0), "r"(c1), "r"(c2)
#define ROSE_IN_4_ "r"(c0), "r"(c1), "r"(c2), "r"(c3)
#define ROSE_IN_5_ "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
#define ROSE_TMA_N_(n, o1, o2, o3, o4)                                                                        \
    DEVICE void tma_load_##n##d(void *shared, const struct tensor_map *map, ROSE_PARAMS_##n##_, mbarrier *bar, \
                                uint64_t policy)                                                             \
    {                                                                                                        \
        asm volatile("cp.async.bulk.tensor." #n                                                              \
                     "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [" o1 "], [" o2 ", " ROSE_COORDS_##n##_ \
                     "], [" o3 "], " o4 ";" ::ROSE_IN_##n##_,                                                \
                     "r"(shared_address(shared)), "l"(map), "r"(shared_address(bar)), "l"(policy)            \
                     : "memory");                                                                            \
    }                                                                                                        \
    DEVICE void tma_load_multicast_##n##d(void *shared, const struct tensor_map *map, ROSE_PARAMS_##n##_,    \
                                          mbarrier *bar, uint16_t blocks)                                    \
    {                                                                                                        \
        asm volatile("cp.async.bulk.tensor." #n                                                              \
                     "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [" o1 "], [" o2 ", " ROSE_COORDS_##n##_ \
                     "], [" o3 "], " o4 ";" ::ROSE_IN_##n##_,                                                \
                     "r"(shared_address(shared)), "l"(map), "r"(shared_address(bar)), "h"(blocks)            \
                     : "memory");                                                                            \
    }                                                                                                        \
    DEVICE void tma_store_##n##d(const struct tensor_map *map, ROSE_PARAMS_##n##_, const void *shared)       \
    {                                                                                                        \
        asm volatile("cp.async.bulk.tensor." #n "d.global.shared::cta.tile.bulk_group [" o1 ", " ROSE_COORDS_##n##_ \
                     "], [" o2 "];" ::ROSE_IN_##n##_,                                                        \
                     "l"(map), "r"(shared_address(shared))                                                   \
                     : "memory");                                                                            \
    }                                                                                                        \
    DEVICE void tma_reduce_add_##n##d(const struct tensor_map *map, ROSE_PARAMS_##n##_, const void *shared)  \
    {                                                                                                        \
        asm volatile("cp.reduce.async.bulk.tensor." #n "d.global.shared::cta.add.tile.bulk_group [" o1 ", " ROSE_COORDS_##n##_ \
                     "], [" o2 "];" ::ROSE_IN_##n##_,                                                        \
                     "l"(map), "r"(shared_address(shared))                                                   \
                     : "memory");                                                                            \
    }                                                                                                        \
    DEVICE void tma_prefetch_##n##d(const struct tensor_map *map, ROSE_PARAMS_##n##_)                        \
    {                                                                                                        \
        asm volatile("cp.async.bulk.prefetch.tensor." #n "d.L2.global.tile [" o1 ", " ROSE_COORDS_##n##_ "];" ::ROSE_IN_##n##_, \
                     "l"(map)                                                                                \
                     : "memory");                                                                            \
    }
#define ROSE_TMA_(n) ROSE_TMA_##n##_
#define ROSE_TMA_1_ ROSE_TMA_N_(1, "%1", "%2", "%3", "%4")
#define ROSE_TMA_2_ ROSE_TMA_N_(2, "%2", "%3", "%4", "%5")
#define ROSE_TMA_3_ ROSE_TMA_N_(3, "%3", "%4", "%5", "%6")
#define ROSE_TMA_4_ ROSE_TMA_N_(4, "%4", "%5", "%6", "%7")
#define ROSE_TMA_5_ ROSE_TMA_N_(5, "%5", "%6", "%7", "%8")
#endif
ROSE_TMA_(1)
ROSE_TMA_(2)
ROSE_TMA_(3)
ROSE_TMA_(4)
ROSE_TMA_(5)

#endif

#endif
