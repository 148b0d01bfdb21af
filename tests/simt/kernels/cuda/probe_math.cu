// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* The floating-point functions: x[n] -> out[n][20]. */
#include "kernels/cuda/common/rose.cuh"

struct probe_math_params {
    const float *x;
    float *out;
    uint32_t n;
};

KERNEL(probe_math, struct probe_math_params, p, 128, 1)
{
    uint32_t i = block_x() * 128 + thread_x();
    if (i >= p.n) return;
    float x = p.x[i], y = p.x[(i + 1) % p.n], a = abs_f32(x), *o = p.out + (size_t)i * 20;
    o[0] = exp2_approx(x);
    o[1] = log2_approx(a);
    o[2] = rcp_approx(x);
    o[3] = rsqrt_approx(a);
    o[4] = tanh_approx(x);
    o[5] = exp_approx(x);
    o[6] = exp_f32(x);
    o[7] = log_f32(a);
    o[8] = tanh_f32(x);
    o[9] = erf_f32(x);
    o[10] = sin_f32(x);
    o[11] = cos_f32(x);
    /* exact from here */
    o[12] = sqrt_f32(a);
    o[13] = rcp_f32(x);
    o[14] = div_f32(x, y);
    o[15] = fma_f32(x, y, a);
    o[16] = x * y + a;
    o[17] = floor_f32(x) + ceil_f32(y);
    o[18] = rint_f32(x * 4.0f);
    o[19] = min_f32(x, y) - max_f32(x, y) + min_nan_f32(y, a);
}
