/* Activations of one value; the numbers are ACT_* of kernels/params/act_rows.h. */
#ifndef ROSE_CUDA_ACT_CUH
#define ROSE_CUDA_ACT_CUH

#include "kernels/cuda/common/math.cuh"
#include "kernels/params/act_rows.h"

DEVICE float act_sigmoid(float x)
{
    return rcp_approx(1.0f + exp_approx(-x));
}
/* x Phi(x) = max(x, 0) - |x| erfc(|x| / sqrt(2)) / 2. With b = |x| sqrt(log2(e) / 2) the last factor is 2^(-b^2) times a polynomial
 * without constant of 1 / (1 + p b) (Hastings 1955; these coefficients: weighted least squares made even, for |x| <= 16, beyond which
 * it is zero in float32), relative error 3.5e-5 where a bf16 keeps 2e-3, 4.9e-6 where an f16 keeps 2.4e-4: 14 and 15 instructions,
 * where erff takes twice as many and loses the tail to 1 - erf. */
DEVICE float act_gelu_erf(float x)
{
    const float b = min_nan_f32(abs_f32(x * 0.8493218003f), 13.5891488f);
#if ACT_F16
    const float t = rcp_approx(fma_f32(0.364997107f, b, 1.0f));
    float q = fma_f32(-0.08705164999f, t, 0.2124853714f);
    q = fma_f32(q, t, 0.01851228817f);
    q = fma_f32(q, t, 0.1571161653f);
    q = fma_f32(q, t, 0.1418048929f);
    q = fma_f32(q, t, 0.1458352114f);
#else
    const float t = rcp_approx(fma_f32(0.4444722835f, b, 1.0f));
    float q = fma_f32(-0.1059555712f, t, 0.2282599471f);
    q = fma_f32(q, t, 0.1040413653f);
    q = fma_f32(q, t, 0.1855496176f);
    q = fma_f32(q, t, 0.1768041712f);
#endif
    q = q * t * exp2_approx(b * -b);
    return fma_f32(-b, q, max_f32(x, 0.0f)); /* NaN stays NaN: it is in b */
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
