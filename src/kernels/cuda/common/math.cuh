/* Floating-point functions. The _approx forms are single instructions of the special function unit (PTX ISA 9.7.3: ex2,
 * lg2, rcp, rsqrt, sqrt, tanh .approx), about 2^-22 relative error (tanh 2^-11); the CPU harness computes them exactly, so
 * a test of such a kernel allows that error. The others round as IEEE or libm does (1 to 2 ulp).
 *
 * Kernels are compiled with -fmad=false: a * b + c is two roundings on both sides; write fma_f32 where one is meant. */
#ifndef ROSE_CUDA_MATH_CUH
#define ROSE_CUDA_MATH_CUH

#include "kernels/cuda/common/types.cuh"

#ifdef ROSE_SIMT
#define ROSE_MATH1_(name, cuda, cpu)                                                                          \
    DEVICE float name(float x)                                                                               \
    {                                                                                                        \
        return cpu;                                                                                          \
    }
#define ROSE_MATH1_ASM_(name, ptx, cpu) ROSE_MATH1_(name, ptx, cpu)
#else
#define ROSE_MATH1_(name, cuda, cpu)                                                                          \
    DEVICE float name(float x)                                                                               \
    {                                                                                                        \
        return cuda;                                                                                         \
    }
#define ROSE_MATH1_ASM_(name, ptx, cpu)                                                                       \
    DEVICE float name(float x)                                                                               \
    {                                                                                                        \
        float r;                                                                                             \
        asm(ptx " %0, %1;" : "=f"(r) : "f"(x));                                                              \
        return r;                                                                                            \
    }
#endif

ROSE_MATH1_ASM_(exp2_approx, "ex2.approx.ftz.f32", exp2f(x))
ROSE_MATH1_ASM_(log2_approx, "lg2.approx.ftz.f32", log2f(x))
ROSE_MATH1_ASM_(rcp_approx, "rcp.approx.ftz.f32", 1.0f / x)
ROSE_MATH1_ASM_(rsqrt_approx, "rsqrt.approx.ftz.f32", 1.0f / sqrtf(x))
ROSE_MATH1_ASM_(tanh_approx, "tanh.approx.f32", tanhf(x))
ROSE_MATH1_ASM_(sqrt_f32, "sqrt.rn.f32", sqrtf(x))
ROSE_MATH1_ASM_(rcp_f32, "rcp.rn.f32", 1.0f / x)
ROSE_MATH1_(exp_f32, expf(x), expf(x))
ROSE_MATH1_(log_f32, logf(x), logf(x))
ROSE_MATH1_(tanh_f32, tanhf(x), tanhf(x))
ROSE_MATH1_(erf_f32, erff(x), erff(x))
ROSE_MATH1_(sin_f32, sinf(x), sinf(x))
ROSE_MATH1_(cos_f32, cosf(x), cosf(x))
ROSE_MATH1_(abs_f32, fabsf(x), fabsf(x))
ROSE_MATH1_(floor_f32, floorf(x), floorf(x))
ROSE_MATH1_(ceil_f32, ceilf(x), ceilf(x))
ROSE_MATH1_(rint_f32, rintf(x), rintf(x)) /* ties to even */

/* e^x by one multiplication and ex2: for softmax and sigmoid. */
DEVICE float exp_approx(float x)
{
    return exp2_approx(x * 1.44269504088896341f);
}
DEVICE float fma_f32(float a, float b, float c)
{
    return fmaf(a, b, c);
}
/* The number where the other is NaN. */
DEVICE float min_f32(float a, float b)
{
    return fminf(a, b);
}
DEVICE float max_f32(float a, float b)
{
    return fmaxf(a, b);
}
/* NaN where either is. PTX ISA 9.7.3 "min", .NaN: sm_80. */
DEVICE float min_nan_f32(float a, float b)
{
#ifdef ROSE_SIMT
    return a != a ? a : b != b ? b : fminf(a, b);
#else
    float r;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
#endif
}
/* a / b, correctly rounded. */
DEVICE float div_f32(float a, float b)
{
#ifdef ROSE_SIMT
    return a / b;
#else
    return __fdiv_rn(a, b);
#endif
}
/* Nearest even, saturated to int8 / int32. */
DEVICE int32_t f32_to_s8(float x)
{
#ifdef ROSE_SIMT
    float r = rintf(x);
    return x != x ? 0 : r > 127.0f ? 127 : r < -128.0f ? -128 : (int32_t)r;
#else
    int32_t r;
    asm("cvt.rni.sat.s8.f32 %0, %1;" : "=r"(r) : "f"(x));
    return r;
#endif
}

#endif
