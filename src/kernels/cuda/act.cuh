/* Activations of one value; the numbers are ACT_* of kernels/params/act_rows.h. */
#ifndef ROSE_CUDA_ACT_CUH
#define ROSE_CUDA_ACT_CUH

#include "kernels/cuda/common/math.cuh"
#include "kernels/params/act_rows.h"

DEVICE float act_sigmoid(float x)
{
    return rcp_approx(1.0f + exp_approx(-x));
}
/* alpha: factor inside SiLU's sigmoid (gpt-oss: 1.702). */
DEVICE float act_value(int act, float alpha, float x)
{
    switch (act) {
    case ACT_SILU: return x * act_sigmoid(alpha * x);
    case ACT_GELU_TANH: /* x (1 + tanh u) / 2 = x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3) */
        return x * act_sigmoid(1.5957691216057308f * fma_f32(0.044715f * x * x, x, x));
    case ACT_GELU_ERF: return 0.5f * x * (1.0f + erf_f32(x * 0.70710678118654752f));
    case ACT_RELU: return x < 0.0f ? 0.0f : x; /* NaN stays NaN */
    case ACT_RELU2: return x < 0.0f ? 0.0f : x * x;
    default: return x;
    }
}

#endif
