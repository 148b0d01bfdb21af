/* Tensor memory and the fifth-generation tensor core of sm_100a, one block (cta_group::1).
 *
 * PTX ISA 9.7.16 "TensorCore 5th Generation Family Instructions".
 *
 * Tensor memory is 128 lanes x 512 columns of 32 bits a block; an address is lane << 16 | column. One warp allocates columns (a
 * power of two, at least 32) and must free them before the block ends. D of an M = 128 product has row m in lane m and
 * column n in column n; A may lie there too (16-bit: two k a column). Warp w reaches lanes 32 * (w % 4) .. +31 with
 * tmem_ld and tmem_st: lane i of the warp gets lane 32 * (w % 4) + i, one column a register.
 *
 * One thread issues products; they run in order, on their own. tcgen05_commit makes an mbarrier arrive when all of the thread's
 * products and copies so far are complete. tmem_ld's registers are valid after tmem_wait_ld, tmem_st's data is there after
 * tmem_wait_st. Where a block barrier (not an mbarrier) orders them between threads: tcgen05_fence_before before it,
 * tcgen05_fence_after after it. Shared operands come through the asynchronous proxy (fence_proxy_async after ordinary stores).
 *
 * K of one product is 32 bytes of A: 16 elements of 16 bits, 32 of 8, 64 of 4. Operand layouts are wgmma's (wgmma.cuh), but the
 * descriptor is tcgen05_desc. Scales (block-scaled kinds) lie in tensor memory: row r (of A or of B's N) in lane r % 32,
 * column r / 32, one byte a k block, the same in all four lane quarters: what tmem_copy_scales makes of 512 bytes a 128 rows,
 * row r at (r % 32) * 16 + r / 32 * 4. */
#ifndef ROSE_CUDA_TCGEN05_CUH
#define ROSE_CUDA_TCGEN05_CUH

#include "kernels/cuda/common/mbarrier.cuh"

#if defined(ROSE_SIMT) || HAS_TCGEN05

/* Whole warp. Writes the address of `columns` columns to *where (shared memory); waits while others hold them. */
DEVICE void tmem_alloc(uint32_t *where, uint32_t columns)
{
#ifdef ROSE_SIMT
    simt_tmem_alloc(where, columns);
#else
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(shared_address(where)), "r"(columns)
                 : "memory");
#endif
}
DEVICE void tmem_free(uint32_t address, uint32_t columns)
{
#ifdef ROSE_SIMT
    simt_tmem_free(address, columns);
#else
    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(address), "r"(columns) : "memory");
#endif
}
/* This block will allocate no more: another on the SM may. */
DEVICE void tmem_relinquish(void)
{
#ifndef ROSE_SIMT
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory");
#endif
}
DEVICE void tcgen05_fence_before(void)
{
#ifndef ROSE_SIMT
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
#endif
}
DEVICE void tcgen05_fence_after(void)
{
#ifndef ROSE_SIMT
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
#endif
}
DEVICE void tcgen05_commit(mbarrier *bar)
{
#ifdef ROSE_SIMT
    simt_tcgen05_commit(bar);
#else
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(shared_address(bar))
                 : "memory");
#endif
}

/* Shared operand: as wgmma_desc (bytes; span 0, 32, 64, 128). */
DEVICE uint64_t tcgen05_desc(const void *shared, uint32_t leading, uint32_t stride, uint32_t span)
{
    uint64_t mode = span == 128 ? 2 : span == 64 ? 4 : span == 32 ? 6 : 0;
    return (uint64_t)(shared_address(shared) >> 4 & 0x3fff) | (uint64_t)(leading >> 4 & 0x3fff) << 16 |
           (uint64_t)(stride >> 4 & 0x3fff) << 32 | 1ull << 46 | mode << 61;
}

/* Element formats of the instruction descriptor, by kind. */
enum { TC_F16 = 0, TC_BF16 = 1 };                       /* tcgen05_f16 */
enum { TC_E4M3 = 0, TC_E5M2 = 1 };                      /* tcgen05_f8, tcgen05_mxf8 */
enum { TC_U8 = 0, TC_S8 = 1 };                          /* tcgen05_i8 */
/* Instruction descriptor of the unscaled kinds: D in float (int32: i8), A and B K-major unless trans. m 64 or 128, n a
 * multiple of 16. */
DEVICE uint32_t tcgen05_idesc(uint32_t m, uint32_t n, uint32_t a_format, uint32_t b_format, uint32_t a_trans, uint32_t b_trans,
                              bool integer)
{
    return (integer ? 2u : 1u) << 4 | a_format << 7 | b_format << 10 | a_trans << 15 | b_trans << 16 | n / 8 << 17 | m / 16 << 24;
}
/* Of the block-scaled kinds (m 128). ue8m0: scale type; 4-bit kinds: formats 1 (e2m1). a_byte, b_byte: first byte of the scale
 * words to use (mxf8: 0 .. 3; mxf4: 0 or 2; nvf4: 0). */
DEVICE uint32_t tcgen05_idesc_scaled(uint32_t m, uint32_t n, uint32_t a_format, uint32_t b_format, bool ue8m0, uint32_t a_byte,
                                     uint32_t b_byte)
{
    return b_byte << 4 | a_format << 7 | b_format << 10 | n / 8 << 17 | (uint32_t)ue8m0 << 23 | m / 128 << 27 | a_byte << 29;
}

#ifdef ROSE_SIMT
#define ROSE_TC_SS_(name, kind, k)                                                                            \
    DEVICE void name(uint32_t d, uint64_t desc_a, uint64_t desc_b, uint32_t idesc, bool accumulate)          \
    {                                                                                                        \
        simt_tcgen05_mma(k, d, desc_a, 0, false, desc_b, idesc, 0, 0, accumulate);                           \
    }                                                                                                        \
    DEVICE void name##_ts(uint32_t d, uint32_t a, uint64_t desc_b, uint32_t idesc, bool accumulate)          \
    {                                                                                                        \
        simt_tcgen05_mma(k, d, 0, a, true, desc_b, idesc, 0, 0, accumulate);                                 \
    }
#define ROSE_TC_SCALED_(name, kind, k)                                                                        \
    DEVICE void name(uint32_t d, uint64_t desc_a, uint64_t desc_b, uint32_t idesc, uint32_t scale_a,         \
                     uint32_t scale_b, bool accumulate)                                                      \
    {                                                                                                        \
        simt_tcgen05_mma(k, d, desc_a, 0, false, desc_b, idesc, scale_a, scale_b, accumulate);               \
    }
#else
#define ROSE_TC_SS_(name, kind, k)                                                                            \
    DEVICE void name(uint32_t d, uint64_t desc_a, uint64_t desc_b, uint32_t idesc, bool accumulate)          \
    {                                                                                                        \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %4, 0; tcgen05.mma.cta_group::1.kind::" kind            \
                     " [%0], %1, %2, %3, p; }" ::"r"(d),                                                     \
                     "l"(desc_a), "l"(desc_b), "r"(idesc), "r"((uint32_t)accumulate)                         \
                     : "memory");                                                                            \
    }                                                                                                        \
    DEVICE void name##_ts(uint32_t d, uint32_t a, uint64_t desc_b, uint32_t idesc, bool accumulate)          \
    {                                                                                                        \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %4, 0; tcgen05.mma.cta_group::1.kind::" kind            \
                     " [%0], [%1], %2, %3, p; }" ::"r"(d),                                                   \
                     "r"(a), "l"(desc_b), "r"(idesc), "r"((uint32_t)accumulate)                              \
                     : "memory");                                                                            \
    }
#define ROSE_TC_SCALED_(name, kind, k)                                                                        \
    DEVICE void name(uint32_t d, uint64_t desc_a, uint64_t desc_b, uint32_t idesc, uint32_t scale_a,         \
                     uint32_t scale_b, bool accumulate)                                                      \
    {                                                                                                        \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %6, 0; tcgen05.mma.cta_group::1.kind::" kind            \
                     " [%0], %1, %2, %3, [%4], [%5], p; }" ::"r"(d),                                         \
                     "l"(desc_a), "l"(desc_b), "r"(idesc), "r"(scale_a), "r"(scale_b), "r"((uint32_t)accumulate) \
                     : "memory");                                                                            \
    }
#endif
/* d (tensor memory) = A * B (+ d). By one thread. name_ts: A in tensor memory. */
ROSE_TC_SS_(tcgen05_f16, "f16", SIMT_TC_F16)
ROSE_TC_SS_(tcgen05_f8, "f8f6f4", SIMT_TC_F8)
ROSE_TC_SS_(tcgen05_i8, "i8", SIMT_TC_I8)
/* Block-scaled: e4m3 or e5m2 with ue8m0 a 32 of k; e2m1 with ue8m0 a 32; e2m1 with ue4m3 a 16. */
ROSE_TC_SCALED_(tcgen05_mxf8, "mxf8f6f4.block_scale.scale_vec::1X", SIMT_TC_MXF8)
ROSE_TC_SCALED_(tcgen05_mxf4, "mxf4.block_scale.scale_vec::2X", SIMT_TC_MXF4)
ROSE_TC_SCALED_(tcgen05_nvf4, "mxf4nvf4.block_scale.scale_vec::4X", SIMT_TC_NVF4)

/* Scales of 128 rows: 512 contiguous bytes of shared memory to four columns, in order with the thread's products. */
DEVICE void tmem_copy_scales(uint32_t address, const void *shared)
{
#ifdef ROSE_SIMT
    simt_tmem_copy_scales(address, shared);
#else
    asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;" ::"r"(address), "l"(tcgen05_desc(shared, 16, 128, 0))
                 : "memory");
#endif
}

/* ---- registers <-> tensor memory: whole warp, n columns of 1, 2, 4, 8, 16, 32 -------------------------------------------- */
#ifdef ROSE_SIMT
#define ROSE_TMEM_(n)                                                                                         \
    DEVICE void tmem_ld##n(uint32_t r[n], uint32_t address)                                                  \
    {                                                                                                        \
        simt_tmem_ld(r, address, n);                                                                         \
    }                                                                                                        \
    DEVICE void tmem_st##n(uint32_t address, const uint32_t r[n])                                            \
    {                                                                                                        \
        simt_tmem_st(address, r, n);                                                                         \
    }
#else
#define ROSE_T1_(c, i) c(r[i])
#define ROSE_T2_(c, i) ROSE_T1_(c, i), ROSE_T1_(c, i + 1)
#define ROSE_T4_(c, i) ROSE_T2_(c, i), ROSE_T2_(c, i + 2)
#define ROSE_T8_(c, i) ROSE_T4_(c, i), ROSE_T4_(c, i + 4)
#define ROSE_T16_(c, i) ROSE_T8_(c, i), ROSE_T8_(c, i + 8)
#define ROSE_T32_(c, i) ROSE_T16_(c, i), ROSE_T16_(c, i + 16)
#define ROSE_TS1_ "%0"
#define ROSE_TS2_ "%0, %1"
#define ROSE_TS4_ ROSE_TS2_ ", %2, %3"
#define ROSE_TS8_ ROSE_TS4_ ", %4, %5, %6, %7"
#define ROSE_TS16_ ROSE_TS8_ ", %8, %9, %10, %11, %12, %13, %14, %15"
#define ROSE_TS32_ ROSE_TS16_ ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define ROSE_TMEM_(n)                                                                                         \
    DEVICE void tmem_ld##n(uint32_t r[n], uint32_t address)                                                  \
    {                                                                                                        \
        asm volatile("tcgen05.ld.sync.aligned.32x32b.x" #n ".b32 {" ROSE_TS##n##_ "}, [%" #n "];"            \
                     : ROSE_T##n##_("=r", 0)                                                                 \
                     : "r"(address));                                                                        \
    }                                                                                                        \
    DEVICE void tmem_st##n(uint32_t address, const uint32_t r[n])                                            \
    {                                                                                                        \
        asm volatile("tcgen05.st.sync.aligned.32x32b.x" #n ".b32 [%" #n "], {" ROSE_TS##n##_ "};" ::ROSE_T##n##_("r", 0), \
                     "r"(address)                                                                            \
                     : "memory");                                                                            \
    }
#endif
ROSE_TMEM_(1)
ROSE_TMEM_(2)
ROSE_TMEM_(4)
ROSE_TMEM_(8)
ROSE_TMEM_(16)
ROSE_TMEM_(32)
/* The registers of tmem_ld: name them here, so that no use moves before the wait. */
#ifdef ROSE_SIMT
#define tmem_wait_ld(r, n) simt_tmem_wait_ld()
#else
#define tmem_wait_ld(r, n)                                                                                    \
    do {                                                                                                     \
        asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");                                         \
        UNROLL for (int i_ = 0; i_ < (n); i_++) asm volatile("" : "+r"((r)[i_]));                            \
    } while (0)
#endif
DEVICE void tmem_wait_st(void)
{
#ifdef ROSE_SIMT
    simt_tmem_wait_st();
#else
    asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
#endif
}

#endif

#endif
