/* The language of a kernel: C-style CUDA that NVRTC compiles as C++17 for the GPU and gcc or clang as C17 for the CPU
 * (ROSE_SIMT, tests/simt). What differs between the two is behind the macros of this file:
 *
 *     DEVICE                                  a device function, always inlined
 *     DEVICE_CALL                             a device function that stays a call: rare or long paths, compiled once
 *     KERNEL(name, params, p, threads, min)   a kernel's head: `params` is its parameter struct, `p` the name by which
 *                                             the body knows it (a __grid_constant__), `threads` the block's size,
 *                                             `min` the blocks that must fit an SM
 *     SHARED(type, name, count)               a static shared array, as a statement; sizeof(name) is meaningless
 *     SHARED2(type, name, rows, cols)         the same, two-dimensional
 *     dynamic_shared()                        the dynamic shared memory, 1024-byte aligned when no SHARED is used
 *     UNROLL, UNROLL_N(n)                     in front of a loop
 *     STATIC_ASSERT(cond, text)
 *
 * Common ground of C and C++: cast every void pointer, no compound literals, `struct x` spelt out (or a typedef), no
 * overloading, no designated initialisers, -D constants or enums for sizes. No float literal without f.
 *
 * Constants that the JIT gives: everything a plan calls a constant, and ROSE_ARCH where the code asks for the
 * architecture (800, 890, 900, 1000, 1200; from the compiler on the GPU, a -D of the harness on the CPU). */
#ifndef ROSE_CUDA_TYPES_CUH
#define ROSE_CUDA_TYPES_CUH

#include "kernels/params/types.h"

#ifdef ROSE_SIMT

#include "simt_device.h" /* tests/simt: the CPU meaning of every wrapper */

#define DEVICE static inline __attribute__((always_inline, unused))
#define DEVICE_CALL static __attribute__((noinline, unused))
#define KERNEL(name, params, p, threads, min_blocks)                                                         \
    static void name##_body(const params p);                                                                \
    SIMT_EXPORT void name(const void *args);                                                                \
    SIMT_EXPORT const struct simt_kernel_info name##_info = {threads, min_blocks, sizeof(params)};          \
    void name(const void *args)                                                                             \
    {                                                                                                       \
        name##_body(*(const params *)args);                                                                 \
    }                                                                                                       \
    static void name##_body(const params p)
#define SHARED(type, name, count)                                                                            \
    static const char name##_key_;                                                                          \
    type *const name = (type *)simt_shared(&name##_key_, #name, sizeof(type) * (count), _Alignof(type))
#define SHARED2(type, name, rows, cols)                                                                      \
    static const char name##_key_;                                                                          \
    type(*const name)[cols] =                                                                               \
        (type(*)[cols])simt_shared(&name##_key_, #name, sizeof(type) * (rows) * (cols), _Alignof(type))
DEVICE unsigned char *dynamic_shared(void)
{
    return (unsigned char *)simt_shared_dynamic();
}
#define UNROLL
#define UNROLL_N(n)
#define STATIC_ASSERT(cond, text) _Static_assert(cond, text)
#define ALIGNED(n) __attribute__((aligned(n)))
#define INF_F32 __builtin_inff()
#ifndef ROSE_ARCH
#error "the harness names the architecture: -DROSE_ARCH=900"
#endif

#else

#define DEVICE static __device__ __forceinline__
#define DEVICE_CALL static __device__ __noinline__
#define KERNEL(name, params, p, threads, min_blocks)                                                         \
    extern "C" __global__ void __launch_bounds__(threads, min_blocks) name(const __grid_constant__ params p)
#define SHARED(type, name, count) __shared__ type name[count]
#define SHARED2(type, name, rows, cols) __shared__ type name[rows][cols]
extern "C" __shared__ __align__(1024) unsigned char rose_dynamic_shared_[];
DEVICE unsigned char *dynamic_shared(void)
{
    return rose_dynamic_shared_;
}
#define UNROLL _Pragma("unroll")
#define ROSE_PRAGMA_(x) _Pragma(#x)
#define UNROLL_N(n) ROSE_PRAGMA_(unroll n)
#define STATIC_ASSERT(cond, text) static_assert(cond, text)
#define ALIGNED(n) __align__(n)
#define INF_F32 __int_as_float(0x7f800000)
#define ROSE_ARCH __CUDA_ARCH__

#endif

/* What an architecture has (PTX ISA, "Target ISA notes" of each instruction; facts/hardware.md, "Instruction
 * floors"). A kernel that uses a group without it does not compile for that target. */
#define HAS_BULK (ROSE_ARCH >= 900)     /* cp.async.bulk, TMA, mbarrier expect_tx, clusters, stmatrix, multimem */
#define HAS_PDL (ROSE_ARCH >= 900)      /* griddepcontrol */
#define HAS_WGMMA (ROSE_ARCH == 900)    /* wgmma, sm_90a */
#define HAS_TCGEN05 (ROSE_ARCH == 1000) /* tensor memory, sm_100a */
#define HAS_LD32 (ROSE_ARCH >= 1000)    /* 32-byte global loads and stores */
#define HAS_MMA_FP8 (ROSE_ARCH >= 890)  /* mma.sync on e4m3 and e5m2 */
#define HAS_MMA_MXF4 (ROSE_ARCH == 1200) /* mma.sync block-scaled, sm_120a */
#define HAS_CVT_FP8 (ROSE_ARCH >= 890)  /* cvt to and from e4m3x2, e5m2x2 */
#define HAS_CVT_FP4 (ROSE_ARCH >= 1000) /* cvt to and from e2m1x2, ue8m0x2 (sm_100a, sm_120a) */

/* Element types. They are structs so that arithmetic on the bits does not compile; convert.cuh turns them to floats. */
typedef struct {
    uint16_t bits;
} bf16;
typedef struct {
    uint16_t bits;
} f16;
typedef struct {
    uint8_t bits;
} e4m3; /* 1-4-3, bias 7, no infinity, NaN 0x7f and 0xff, max 448 */
typedef struct {
    uint8_t bits;
} e5m2; /* 1-5-2, bias 15, IEEE-like, max 57344 */
typedef struct {
    uint8_t bits;
} ue8m0; /* 2^(bits - 127), NaN 0xff */
typedef struct {
    uint8_t bits;
} e2m1x2; /* two 1-2-1 codes, element 0 in the low nibble: 0 .5 1 1.5 2 3 4 6 */
/* Two elements in one register, element 0 in the low half. */
typedef struct {
    uint32_t bits;
} bf16x2;
typedef struct {
    uint32_t bits;
} f16x2;

/* Vectors of 32-bit registers: what loads, stores and matrix instructions move. */
typedef struct ALIGNED(8) {
    uint32_t v[2];
} u32x2;
typedef struct ALIGNED(16) {
    uint32_t v[4];
} u32x4;
typedef struct ALIGNED(32) {
    uint32_t v[8];
} u32x8;
typedef struct ALIGNED(8) {
    float v[2];
} f32x2;
typedef struct ALIGNED(16) {
    float v[4];
} f32x4;

/* Small integer helpers. */
DEVICE int32_t min_i32(int32_t a, int32_t b)
{
    return a < b ? a : b;
}
DEVICE int32_t max_i32(int32_t a, int32_t b)
{
    return a > b ? a : b;
}
DEVICE uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}
DEVICE uint32_t max_u32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}
DEVICE uint32_t ceil_div_u32(uint32_t a, uint32_t b)
{
    return (a + b - 1) / b;
}

/* Bits of a float, and back. */
DEVICE uint32_t f32_bits(float x)
{
#ifdef ROSE_SIMT
    union {
        float f;
        uint32_t u;
    } c;
    c.f = x;
    return c.u;
#else
    return __float_as_uint(x);
#endif
}
DEVICE float f32_from_bits(uint32_t u)
{
#ifdef ROSE_SIMT
    union {
        float f;
        uint32_t u;
    } c;
    c.u = u;
    return c.f;
#else
    return __uint_as_float(u);
#endif
}

#endif
