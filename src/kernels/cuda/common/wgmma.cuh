/* Warpgroup matrix instructions of Hopper (sm_90a): d[64 x N] += A[64 x K] * B[K x N], dense and 2:4 sparse.
 *
 * PTX ISA 9.7.15 "Asynchronous Warpgroup Level Matrix Multiply-Accumulate", 9.7.19.5 "setmaxnreg".
 *
 * A warpgroup is four consecutive warps from a multiple of four; its 128 threads call together. K is 16 for 16-bit, 32 for
 * 8-bit types (sparse: 32, 64). B comes from shared memory, A from shared memory (_ss) or registers (_rs).
 *
 *     wgmma_fence();                      before the first, and whenever registers d or a were touched since the last wait
 *     wgmma_bf16_ss(N, d, desc_a, desc_b, accumulate)   ... several, with the same d without a fence between
 *     wgmma_commit();                     closes the group
 *     wgmma_wait(n);                      all but the n youngest groups are complete; only then d may be read, register a
 *                                         and the shared memory be written
 *     wgmma_pin(d, count);                keeps the compiler from moving accesses to d across the asm; after wait, before fence
 *     wgmma_keep_order(shared, last);     keeps arithmetic whose result is last before a wgmma_wait that follows
 *
 * N is a constant, a multiple of 8 up to 256 (s8: 8, 16, 24 and multiples of 16; macros paste it); accumulate 0 starts from
 * zero.
 * d[N / 2]: thread t of the warpgroup, lane l, has rows 16 * (t / 32) + l / 4 (+ 8 for i / 2 odd), columns
 * 8 * (i / 4) + 2 * (l % 4) + i % 2. Register A (a[4]): the a of mma.cuh for the warp's 16 rows. Sparse metadata: as in mma.cuh,
 * for the warp's 16 rows (16-bit: selector 0 or 1, a constant).
 *
 * Shared operands lie as TMA's swizzle modes put them and are named by descriptors (wgmma_desc). K-major (each row's k
 * contiguous; all types), span S = 128, 64, 32: atoms of 8 rows x S bytes, 8 * S aligned; `stride` is the distance of
 * atoms along M or N; k moves inside the atom by advancing the start address; leading is not used. Span 0: cores of 8 rows x
 * 16 bytes, contiguous 128 bytes; leading: distance along K, stride: along M or N. MN-major (16-bit types, _t forms): atoms of S
 * bytes along M or N by 8 k; leading: distance along M or N, stride: along K (span 0: the other way round).
 *
 * Memory: wgmma reads shared memory through the asynchronous proxy: what ordinary stores wrote needs fence_proxy_async, what
 * TMA wrote does not. */
#ifndef ROSE_CUDA_WGMMA_CUH
#define ROSE_CUDA_WGMMA_CUH

#include "kernels/cuda/common/mbarrier.cuh"

#if defined(ROSE_SIMT) || HAS_WGMMA
#ifndef ROSE_SIMT
#include "kernels/cuda/common/wgmma_operands.cuh"
#endif

/* span: 0, 32, 64 or 128; leading, stride in bytes. A descriptor's address part advances by (bytes >> 4). */
DEVICE uint64_t wgmma_desc(const void *shared, uint32_t leading, uint32_t stride, uint32_t span)
{
    uint64_t mode = span == 128 ? 1 : span == 64 ? 2 : span == 32 ? 3 : 0;
    return (uint64_t)(shared_address(shared) >> 4 & 0x3fff) | (uint64_t)(leading >> 4 & 0x3fff) << 16 |
           (uint64_t)(stride >> 4 & 0x3fff) << 32 | mode << 62;
}

DEVICE void wgmma_fence(void)
{
#ifdef ROSE_SIMT
    simt_wgmma_fence();
#else
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
DEVICE void wgmma_commit(void)
{
#ifdef ROSE_SIMT
    simt_wgmma_commit();
#else
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
#ifdef ROSE_SIMT
#define wgmma_wait(n) simt_wgmma_wait(n)
#define wgmma_pin(d, count) ((void)(d))
#else
#define wgmma_wait(n) asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(n) : "memory")
#define wgmma_pin(d, count)                                                                                   \
    do {                                                                                                     \
        UNROLL for (int i_ = 0; i_ < (count); i_++) rose_pin_(d[i_]);                                        \
    } while (0)
DEVICE void rose_pin_(float &x)
{
    asm volatile("" : "+f"(x)::"memory");
}
DEVICE void rose_pin_(int32_t &x)
{
    asm volatile("" : "+r"(x)::"memory");
}
#endif
/* ptxas moves wgmma_wait up to the end of the products' issue, over all arithmetic, but leaves the order of memory accesses alone:
 * a store (PTX 9.7.9.12 "st", .volatile) of what the arithmetic ends in keeps it before the wait. shared: a place of the thread's own. */
DEVICE void wgmma_keep_order(float *shared, float last)
{
#ifdef ROSE_SIMT
    simt_store(shared, &last, 4);
#else
    asm volatile("st.volatile.shared.f32 [%0], %1;" ::"r"(shared_address(shared)), "f"(last) : "memory");
#endif
}
/* Takes registers from, or gives them to, the block's pool: n a multiple of 8, 24 .. 256, a constant. All warps of the
 * warpgroup; needs a register limit at launch (launch bounds with a minimum of blocks). */
#ifdef ROSE_SIMT
#define registers_grow(n) simt_setmaxnreg(n)
#define registers_shrink(n) simt_setmaxnreg(n)
#else
#define registers_grow(n) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n))
#define registers_shrink(n) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n))
#endif

#ifdef ROSE_SIMT
#define ROSE_WG_SS_(N, k, types, t, ti, tail, C, d, da, db, acc, transa, transb)                              \
    simt_wgmma(d, N, ti, acc, NULL, da, db, transa, transb, 0, 0)
#define ROSE_WG_RS_(N, k, types, t, ti, tail, C, d, a, db, acc, transb)                                       \
    simt_wgmma(d, N, ti, acc, a, 0, db, 0, transb, 0, 0)
#define ROSE_WG_SP_SS_(N, k, types, ti, tail, C, d, da, db, meta, sel, acc) simt_wgmma(d, N, ti, acc, NULL, da, db, 0, 0, 1 + (sel), meta)
#define ROSE_WG_SP_RS_(N, k, types, ti, tail, C, d, a, db, meta, sel, acc) simt_wgmma(d, N, ti, acc, a, 0, db, 0, 0, 1 + (sel), meta)
#else
/* Operands after the accumulators: 0 accumulate, 1 descriptor of B, 2 descriptor of A or registers 2 .. 5, then metadata. */
#define ROSE_WG_SS_(N, k, types, t, ti, tail, C, d, da, db, acc, transa, transb)                              \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, " ROSE_WG_0_##N##_ ", 0; wgmma.mma_async.sync.aligned.m64n" #N k types " " ROSE_WG_D_##N##_ \
                 ", " ROSE_WG_2_##N##_ ", " ROSE_WG_1_##N##_ ", p" tail "; }"                                \
                 : ROSE_WG_##C##_##N##_(d)                                                                   \
                 : "r"((int32_t)(acc)), "l"((uint64_t)(db)), "l"((uint64_t)(da)))
#define ROSE_WG_RS_(N, k, types, t, ti, tail, C, d, a, db, acc, transb)                                       \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, " ROSE_WG_0_##N##_ ", 0; wgmma.mma_async.sync.aligned.m64n" #N k types " " ROSE_WG_D_##N##_ \
                 ", {" ROSE_WG_2_##N##_ ", " ROSE_WG_3_##N##_ ", " ROSE_WG_4_##N##_ ", " ROSE_WG_5_##N##_ "}, " ROSE_WG_1_##N##_ \
                 ", p" tail "; }"                                                                            \
                 : ROSE_WG_##C##_##N##_(d)                                                                   \
                 : "r"((int32_t)(acc)), "l"((uint64_t)(db)), "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]))
#define ROSE_WG_SP_SS_(N, k, types, ti, tail, C, d, da, db, meta, sel, acc)                                   \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, " ROSE_WG_0_##N##_ ", 0; wgmma.mma_async.sp.sync.aligned.m64n" #N k types " " ROSE_WG_D_##N##_ \
                 ", " ROSE_WG_2_##N##_ ", " ROSE_WG_1_##N##_ ", " ROSE_WG_3_##N##_ ", " #sel ", p" tail "; }" \
                 : ROSE_WG_##C##_##N##_(d)                                                                   \
                 : "r"((int32_t)(acc)), "l"((uint64_t)(db)), "l"((uint64_t)(da)), "r"(meta))
#define ROSE_WG_SP_RS_(N, k, types, ti, tail, C, d, a, db, meta, sel, acc)                                    \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, " ROSE_WG_0_##N##_ ", 0; wgmma.mma_async.sp.sync.aligned.m64n" #N k types " " ROSE_WG_D_##N##_ \
                 ", {" ROSE_WG_2_##N##_ ", " ROSE_WG_3_##N##_ ", " ROSE_WG_4_##N##_ ", " ROSE_WG_5_##N##_ "}, " ROSE_WG_1_##N##_ \
                 ", " ROSE_WG_6_##N##_ ", " #sel ", p" tail "; }"                                            \
                 : ROSE_WG_##C##_##N##_(d)                                                                   \
                 : "r"((int32_t)(acc)), "l"((uint64_t)(db)), "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "r"(meta))
#endif

/* 16-bit types. trans: 0 K-major, 1 MN-major; literal 0 or 1 in the _t forms. tail: ", scale_a, scale_b, trans_a, trans_b". */
#define ROSE_WG_TAIL_(ta, tb) ", 1, 1, " #ta ", " #tb
#define ROSE_WG_TAIL_RS_(tb) ", 1, 1, " #tb
#define wgmma_bf16_ss(N, d, da, db, acc) wgmma_bf16_ss_t(N, d, da, db, acc, 0, 0)
#define wgmma_bf16_ss_t(N, d, da, db, acc, ta, tb)                                                            \
    ROSE_WG_SS_(N, "k16", ".f32.bf16.bf16", 0, SIMT_BF16, ROSE_WG_TAIL_(ta, tb), F, d, da, db, acc, ta, tb)
#define wgmma_bf16_rs(N, d, a, db, acc) wgmma_bf16_rs_t(N, d, a, db, acc, 0)
#define wgmma_bf16_rs_t(N, d, a, db, acc, tb)                                                                 \
    ROSE_WG_RS_(N, "k16", ".f32.bf16.bf16", 0, SIMT_BF16, ROSE_WG_TAIL_RS_(tb), F, d, a, db, acc, tb)
#define wgmma_f16_ss(N, d, da, db, acc)                                                                       \
    ROSE_WG_SS_(N, "k16", ".f32.f16.f16", 0, SIMT_F16, ", 1, 1, 0, 0", F, d, da, db, acc, 0, 0)
#define wgmma_f16_rs(N, d, a, db, acc) wgmma_f16_rs_t(N, d, a, db, acc, 0)
#define wgmma_f16_rs_t(N, d, a, db, acc, tb)                                                                  \
    ROSE_WG_RS_(N, "k16", ".f32.f16.f16", 0, SIMT_F16, ROSE_WG_TAIL_RS_(tb), F, d, a, db, acc, tb)
/* 8-bit types, always K-major. */
#define wgmma_e4m3_ss(N, d, da, db, acc) ROSE_WG_SS_(N, "k32", ".f32.e4m3.e4m3", 0, SIMT_E4M3, ", 1, 1", F, d, da, db, acc, 0, 0)
#define wgmma_e4m3_rs(N, d, a, db, acc) ROSE_WG_RS_(N, "k32", ".f32.e4m3.e4m3", 0, SIMT_E4M3, ", 1, 1", F, d, a, db, acc, 0)
#define wgmma_e5m2_ss(N, d, da, db, acc) ROSE_WG_SS_(N, "k32", ".f32.e5m2.e5m2", 0, SIMT_E5M2, ", 1, 1", F, d, da, db, acc, 0, 0)
#define wgmma_e5m2_rs(N, d, a, db, acc) ROSE_WG_RS_(N, "k32", ".f32.e5m2.e5m2", 0, SIMT_E5M2, ", 1, 1", F, d, a, db, acc, 0)
/* int8; d is int32_t. */
#define wgmma_s8_ss(N, d, da, db, acc) ROSE_WG_SS_(N, "k32", ".s32.s8.s8", 0, SIMT_S8, "", I, d, da, db, acc, 0, 0)
#define wgmma_s8_rs(N, d, a, db, acc) ROSE_WG_RS_(N, "k32", ".s32.s8.s8", 0, SIMT_S8, "", I, d, a, db, acc, 0)
/* Sparse A: (N, d, a or its descriptor, desc_b, metadata, [selector,] accumulate). */
#define wgmma_sp_bf16_ss(N, d, da, db, meta, sel, acc)                                                        \
    ROSE_WG_SP_SS_(N, "k32", ".f32.bf16.bf16", SIMT_BF16, ", 1, 1, 0, 0", F, d, da, db, meta, sel, acc)
#define wgmma_sp_bf16_rs(N, d, a, db, meta, sel, acc)                                                         \
    ROSE_WG_SP_RS_(N, "k32", ".f32.bf16.bf16", SIMT_BF16, ", 1, 1, 0", F, d, a, db, meta, sel, acc)
#define wgmma_sp_f16_rs(N, d, a, db, meta, sel, acc)                                                          \
    ROSE_WG_SP_RS_(N, "k32", ".f32.f16.f16", SIMT_F16, ", 1, 1, 0", F, d, a, db, meta, sel, acc)
#define wgmma_sp_e4m3_ss(N, d, da, db, meta, acc)                                                             \
    ROSE_WG_SP_SS_(N, "k64", ".f32.e4m3.e4m3", SIMT_E4M3, ", 1, 1", F, d, da, db, meta, 0, acc)
#define wgmma_sp_e4m3_rs(N, d, a, db, meta, acc)                                                              \
    ROSE_WG_SP_RS_(N, "k64", ".f32.e4m3.e4m3", SIMT_E4M3, ", 1, 1", F, d, a, db, meta, 0, acc)
#define wgmma_sp_s8_rs(N, d, a, db, meta, acc) ROSE_WG_SP_RS_(N, "k64", ".s32.s8.s8", SIMT_S8, "", I, d, a, db, meta, 0, acc)

#endif

#endif
