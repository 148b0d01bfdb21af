/* Warp-level matrix instructions: ldmatrix, stmatrix, mma.sync dense, sparse and block-scaled.
 *
 * PTX ISA 9.7.14.5.14 "mma", 9.7.14.6 "mma.sp", 9.7.14.5.15 "ldmatrix", 9.7.14.5.16 "stmatrix". bf16, f16, s8: sm_80;
 * e4m3, e5m2: sm_89; stmatrix: sm_90; e2m1 with block scales: sm_120a. All 32 lanes call, converged.
 *
 * d += a * b, with d[4] float (int32 for s8). One picture for all element widths, for a warp's 16 x 8 tile with
 * q = lane / 4 (0..7), c = lane % 4 and E elements a register (2 of 16 bits, 4 of 8, 8 of 4):
 *
 *     a[0]: row q,     k = c*E .. +E-1         b[0]: k = c*E .. +E-1,        column q
 *     a[1]: row q + 8, same k                  b[1]: k = 4*E + c*E .. ,      column q
 *     a[2]: row q,     k = 4*E + c*E ..        (sparse: b[2], b[3] continue at 8*E and 12*E)
 *     a[3]: row q + 8, same
 *     d[0], d[1]: row q, columns 2c, 2c + 1;   d[2], d[3]: row q + 8
 *
 * K of the instruction is 8*E (16, 32, 64), sparse 16*E. A is row-major, B column-major (each output column's k contiguous).
 *
 * Sparse A holds two of each four consecutive k; metadata has 4 bits a group: the positions (0..3) of the first and the second
 * kept element, low two bits the first, ascending. 16-bit: the lane pair (2s, 2s + 1) of each quad that selector s names
 * gives the metadata: lane c' of the pair covers k 16*c' .. +15, row q in the low half, row q + 8 in the high half. 8-bit:
 * every lane: row q + 8*(lane & 1), k 32*(lane >> 1 & 1) .. +31. e2m1: the unit is a pair of elements (paired 4:8), every
 * lane: row q + 8*(lane & 1), k 64*(lane >> 1 & 1) .. +63.
 *
 * Precision: products are exact, sums are kept in at least float with truncation that differs between architectures; the
 * harness adds in double and rounds once. */
#ifndef ROSE_CUDA_MMA_CUH
#define ROSE_CUDA_MMA_CUH

#include "kernels/cuda/common/async.cuh"

/* ---- ldmatrix: 8 x 8 tiles of 16-bit elements; lane i gives the address of row i % 8 of tile i / 8 (16-byte aligned).
 * Register t of lane l gets row l / 4, elements 2*(l % 4), +1 of tile t; _trans: the tile transposed. --------------------- */
#ifdef ROSE_SIMT
#define ROSE_LDMATRIX_(n, name, out, list, suffix, is_trans)                                                  \
    DEVICE void name(uint32_t r[n], const void *row)                                                         \
    {                                                                                                        \
        simt_ldmatrix(r, row, n, is_trans);                                                                  \
    }
#define ROSE_STMATRIX_(n, name, in, list, suffix, is_trans)                                                   \
    DEVICE void name(void *row, const uint32_t r[n])                                                         \
    {                                                                                                        \
        simt_stmatrix(row, r, n, is_trans);                                                                  \
    }
#else
#define ROSE_LDMATRIX_(n, name, out, list, suffix, is_trans)                                                  \
    DEVICE void name(uint32_t r[n], const void *row)                                                         \
    {                                                                                                        \
        asm volatile("ldmatrix.sync.aligned.m8n8.x" #n suffix ".shared.b16 " list ";"                        \
                     : out                                                                                   \
                     : "r"(shared_address(row))                                                              \
                     : "memory");                                                                            \
    }
#define ROSE_STMATRIX_(n, name, in, list, suffix, is_trans)                                                   \
    DEVICE void name(void *row, const uint32_t r[n])                                                         \
    {                                                                                                        \
        asm volatile("stmatrix.sync.aligned.m8n8.x" #n suffix ".shared.b16 " list ";" ::"r"(                 \
                         shared_address(row)),                                                               \
                     in                                                                                      \
                     : "memory");                                                                            \
    }
#endif
#define ROSE_OUT1_ "=r"(r[0])
#define ROSE_OUT2_ "=r"(r[0]), "=r"(r[1])
#define ROSE_OUT4_ "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
ROSE_LDMATRIX_(1, ldmatrix_x1, ROSE_OUT1_, "{%0}, [%1]", "", false)
ROSE_LDMATRIX_(2, ldmatrix_x2, ROSE_OUT2_, "{%0, %1}, [%2]", "", false)
ROSE_LDMATRIX_(4, ldmatrix_x4, ROSE_OUT4_, "{%0, %1, %2, %3}, [%4]", "", false)
ROSE_LDMATRIX_(1, ldmatrix_x1_trans, ROSE_OUT1_, "{%0}, [%1]", ".trans", true)
ROSE_LDMATRIX_(2, ldmatrix_x2_trans, ROSE_OUT2_, "{%0, %1}, [%2]", ".trans", true)
ROSE_LDMATRIX_(4, ldmatrix_x4_trans, ROSE_OUT4_, "{%0, %1, %2, %3}, [%4]", ".trans", true)
#if defined(ROSE_SIMT) || ROSE_ARCH >= 900
#define ROSE_IN1_ "r"(r[0])
#define ROSE_IN2_ "r"(r[0]), "r"(r[1])
#define ROSE_IN4_ "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
ROSE_STMATRIX_(1, stmatrix_x1, ROSE_IN1_, "[%0], {%1}", "", false)
ROSE_STMATRIX_(2, stmatrix_x2, ROSE_IN2_, "[%0], {%1, %2}", "", false)
ROSE_STMATRIX_(4, stmatrix_x4, ROSE_IN4_, "[%0], {%1, %2, %3, %4}", "", false)
ROSE_STMATRIX_(1, stmatrix_x1_trans, ROSE_IN1_, "[%0], {%1}", ".trans", true)
ROSE_STMATRIX_(2, stmatrix_x2_trans, ROSE_IN2_, "[%0], {%1, %2}", ".trans", true)
ROSE_STMATRIX_(4, stmatrix_x4_trans, ROSE_IN4_, "[%0], {%1, %2, %3, %4}", ".trans", true)
#endif

/* ---- mma ------------------------------------------------------------------------------------------------------------------ */
#ifdef ROSE_SIMT
#define ROSE_MMA_(name, type, con, ptx, ta, tb)                                                               \
    DEVICE void name(type d[4], const uint32_t a[4], const uint32_t b[2])                                    \
    {                                                                                                        \
        simt_mma(d, a, b, ta, tb, 0, 0, SIMT_SCALE_NONE, 0, 0);                                              \
    }
#define ROSE_MMA_SP_(name, type, con, ptx, ta, tb)                                                            \
    DEVICE void name##_(type d[4], const uint32_t a[4], const uint32_t b[4], uint32_t meta, uint32_t selector) \
    {                                                                                                        \
        simt_mma(d, a, b, ta, tb, 1 + selector, meta, SIMT_SCALE_NONE, 0, 0);                                \
    }
#else
#define ROSE_MMA_(name, type, con, ptx, ta, tb)                                                               \
    DEVICE void name(type d[4], const uint32_t a[4], const uint32_t b[2])                                    \
    {                                                                                                        \
        asm volatile("mma.sync.aligned." ptx " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                     : con(d[0]), con(d[1]), con(d[2]), con(d[3])                                            \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                    \
    }
/* The selector is an immediate: both forms are written out, the constant argument picks one. */
#define ROSE_MMA_SP_(name, type, con, ptx, ta, tb)                                                            \
    DEVICE void name##_(type d[4], const uint32_t a[4], const uint32_t b[4], uint32_t meta, uint32_t selector) \
    {                                                                                                        \
        if (selector == 0)                                                                                   \
            asm volatile(ROSE_MMA_SP_NAME_ ".sync.aligned." ptx                                              \
                         " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, 0x0;" \
                         : con(d[0]), con(d[1]), con(d[2]), con(d[3])                                        \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), \
                           "r"(meta));                                                                       \
        else                                                                                                 \
            asm volatile(ROSE_MMA_SP_NAME_ ".sync.aligned." ptx                                              \
                         " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, 0x1;" \
                         : con(d[0]), con(d[1]), con(d[2]), con(d[3])                                        \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), \
                           "r"(meta));                                                                       \
    }
#define ROSE_MMA_SP_NAME_ "mma.sp::ordered_metadata"
#endif
ROSE_MMA_(mma_bf16, float, "+f", "m16n8k16.row.col.f32.bf16.bf16.f32", SIMT_BF16, SIMT_BF16)
ROSE_MMA_(mma_f16, float, "+f", "m16n8k16.row.col.f32.f16.f16.f32", SIMT_F16, SIMT_F16)
ROSE_MMA_(mma_s8, int32_t, "+r", "m16n8k32.row.col.s32.s8.s8.s32", SIMT_S8, SIMT_S8)
ROSE_MMA_SP_(mma_sp_bf16, float, "+f", "m16n8k32.row.col.f32.bf16.bf16.f32", SIMT_BF16, SIMT_BF16)
ROSE_MMA_SP_(mma_sp_f16, float, "+f", "m16n8k32.row.col.f32.f16.f16.f32", SIMT_F16, SIMT_F16)
/* mma_sp_bf16(d, a, b[4], metadata, selector) with a constant selector 0 or 1. */
#define mma_sp_bf16(d, a, b, meta, selector) mma_sp_bf16_(d, a, b, meta, selector)
#define mma_sp_f16(d, a, b, meta, selector) mma_sp_f16_(d, a, b, meta, selector)

/* 8-bit sparse: the selector is always 0. */
#ifdef ROSE_SIMT
#define ROSE_MMA_SP8_(name, type, con, ptx, ta, tb)                                                           \
    DEVICE void name(type d[4], const uint32_t a[4], const uint32_t b[4], uint32_t meta)                     \
    {                                                                                                        \
        simt_mma(d, a, b, ta, tb, 1, meta, SIMT_SCALE_NONE, 0, 0);                                           \
    }
#else
#define ROSE_MMA_SP8_(name, type, con, ptx, ta, tb)                                                           \
    DEVICE void name(type d[4], const uint32_t a[4], const uint32_t b[4], uint32_t meta)                     \
    {                                                                                                        \
        asm volatile(ROSE_MMA_SP_NAME_ ".sync.aligned." ptx                                                  \
                     " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, 0x0;"  \
                     : con(d[0]), con(d[1]), con(d[2]), con(d[3])                                            \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), \
                       "r"(meta));                                                                           \
    }
#endif
ROSE_MMA_SP8_(mma_sp_s8, int32_t, "+r", "m16n8k64.row.col.s32.s8.s8.s32", SIMT_S8, SIMT_S8)
#if defined(ROSE_SIMT) || HAS_MMA_FP8
ROSE_MMA_(mma_e4m3, float, "+f", "m16n8k32.row.col.f32.e4m3.e4m3.f32", SIMT_E4M3, SIMT_E4M3)
ROSE_MMA_(mma_e5m2, float, "+f", "m16n8k32.row.col.f32.e5m2.e5m2.f32", SIMT_E5M2, SIMT_E5M2)
ROSE_MMA_(mma_e4m3_e5m2, float, "+f", "m16n8k32.row.col.f32.e4m3.e5m2.f32", SIMT_E4M3, SIMT_E5M2)
ROSE_MMA_(mma_e5m2_e4m3, float, "+f", "m16n8k32.row.col.f32.e5m2.e4m3.f32", SIMT_E5M2, SIMT_E4M3)
ROSE_MMA_SP8_(mma_sp_e4m3, float, "+f", "m16n8k64.row.col.f32.e4m3.e4m3.f32", SIMT_E4M3, SIMT_E4M3)
ROSE_MMA_SP8_(mma_sp_e5m2, float, "+f", "m16n8k64.row.col.f32.e5m2.e5m2.f32", SIMT_E5M2, SIMT_E5M2)
#endif

/* ---- block-scaled 4-bit (sm_120a): d += (a * sa) * (b * sb), scales along k --------------------------------------------------
 * A register of scales holds, byte j, the scale of k block j. sa: lanes c = 0 (row q) and c = 1 (row q + 8) of each quad give it;
 * sb: lane c = 0 (column q). nvf4: ue4m3, blocks of 16 (4 bytes; sparse: blocks of 32); mxf4: ue8m0, blocks of 32 (2 bytes;
 * sparse: blocks of 64). The sparse forms are paired 4:8, k 128. */
#if defined(ROSE_SIMT) || HAS_MMA_MXF4
#ifdef ROSE_SIMT
#define ROSE_MMA_BS_(name, ptx, stype)                                                                        \
    DEVICE void name(float d[4], const uint32_t a[4], const uint32_t b[2], uint32_t sa, uint32_t sb)         \
    {                                                                                                        \
        simt_mma(d, a, b, SIMT_E2M1, SIMT_E2M1, 0, 0, stype, sa, sb);                                        \
    }
#define ROSE_MMA_SP_BS_(name, ptx, stype)                                                                     \
    DEVICE void name(float d[4], const uint32_t a[4], const uint32_t b[4], uint32_t meta, uint32_t sa,       \
                     uint32_t sb)                                                                            \
    {                                                                                                        \
        simt_mma(d, a, b, SIMT_E2M1, SIMT_E2M1, 1, meta, stype, sa, sb);                                     \
    }
#else
#define ROSE_MMA_BS_(name, ptx, stype)                                                                        \
    DEVICE void name(float d[4], const uint32_t a[4], const uint32_t b[2], uint32_t sa, uint32_t sb)         \
    {                                                                                                        \
        asm volatile("{ .reg .b16 z; mov.b16 z, 0; mma.sync.aligned.m16n8k64.row.col." ptx                   \
                     " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, "                     \
                     "%10, {z, z}, %11, {z, z}; }"                                                           \
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                        \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(sa), "r"(sb));  \
    }
#define ROSE_MMA_SP_BS_(name, ptx, stype)                                                                     \
    DEVICE void name(float d[4], const uint32_t a[4], const uint32_t b[4], uint32_t meta, uint32_t sa,       \
                     uint32_t sb)                                                                            \
    {                                                                                                        \
        asm volatile("{ .reg .b16 z; mov.b16 z, 0; mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col." ptx \
                     " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, 0x0, " \
                     "%13, {z, z}, %14, {z, z}; }"                                                           \
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                        \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), \
                       "r"(meta), "r"(sa), "r"(sb));                                                         \
    }
#endif
ROSE_MMA_BS_(mma_nvf4, "kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3", SIMT_SCALE_UE4M3_4)
ROSE_MMA_BS_(mma_mxf4, "kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0", SIMT_SCALE_UE8M0_2)
ROSE_MMA_SP_BS_(mma_sp_nvf4, "kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3", SIMT_SCALE_UE4M3_4)
ROSE_MMA_SP_BS_(mma_sp_mxf4, "kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0", SIMT_SCALE_UE8M0_2)
#endif

#endif
