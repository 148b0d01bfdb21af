/* Activations of one value; the numbers are ACT_* of kernels/params/act_rows.h. */
#ifndef ROSE_CUDA_ACT_CUH
#define ROSE_CUDA_ACT_CUH

#include "kernels/cuda/common/math.cuh"
#include "kernels/params/act_rows.h"

DEVICE float act_sigmoid(float x)
{
    return rcp_approx(1.0f + exp_approx(-x));
}
/* x Phi(x) = max(x, 0) - |x| erfc(|x| / sqrt(2)) / 2. The last factor is e^(-x^2 / 2) times a polynomial without constant of
 * 1 / (1 + p |x| / sqrt(2)) (Hastings 1955; these coefficients: weighted least squares made even, relative error 1.1e-6 for |x| <= 16,
 * beyond which it is zero in float32): 17 instructions, where erff takes twice as many and loses the tail to 1 - erf. */
DEVICE float act_gelu_erf(float x)
{
    float a = min_f32(abs_f32(x), 16.0f);
    float t = rcp_approx(fma_f32(0.2687005769f, a, 1.0f));
    float q = fma_f32(-0.06269733518f, t, 0.1679738760f);
    q = fma_f32(q, t, -0.03488790785f);
    q = fma_f32(q, t, 0.1238624409f);
    q = fma_f32(q, t, 0.09032063145f);
    q = fma_f32(q, t, 0.1082836053f);
    q = fma_f32(q, t, 0.1071440933f);
    q = q * t * exp2_approx(a * a * -0.72134752044448170f);
    return fma_f32(-a, q, x < 0.0f ? 0.0f : x); /* NaN stays NaN */
}
/* alpha: factor inside SiLU's sigmoid (gpt-oss: 1.702). */
DEVICE float act_value(int act, float alpha, float x)
{
    switch (act) {
    case ACT_SILU: return x * act_sigmoid(alpha * x);
    case ACT_GELU_TANH: /* x (1 + tanh u) / 2 = x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3) */
        return x * act_sigmoid(1.5957691216057308f * fma_f32(0.044715f * x * x, x, x));
    case ACT_GELU_ERF: return act_gelu_erf(x);
    case ACT_RELU: return x < 0.0f ? 0.0f : x; /* NaN stays NaN */
    case ACT_RELU2: return x < 0.0f ? 0.0f : x * x;
    default: return x;
    }
}

#endif
