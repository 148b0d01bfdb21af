/* Sine and cosine of rotary angles. PTX ISA 9.7.3.18/19 sin.approx, cos.approx: absolute error 2^-20.5 in [-pi, pi]. */
#ifndef ROSE_CUDA_TRIG_CUH
#define ROSE_CUDA_TRIG_CUH

#include "kernels/cuda/common/math.cuh"

ROSE_MATH1_ASM_(sin_approx, "sin.approx.ftz.f32", sinf(x))
ROSE_MATH1_ASM_(cos_approx, "cos.approx.ftz.f32", cosf(x))

/* For |x| < 2^20: whole turns are taken off first, exactly but for the last step (Cody and Waite 1980: 2 pi as the sum of two
 * floats; the first fused product leaves a multiple of 2^-21 below 4). Absolute error below 2^-19. */
DEVICE void sincos_approx(float x, float *s, float *c)
{
    float k = rint_f32(x * 0.15915494309189535f);
    float r = fma_f32(-k, 6.2831854820251465f, x);
    r = fma_f32(k, 1.7484555600695e-7f, r);
    *s = sin_approx(r);
    *c = cos_approx(r);
}

#endif
