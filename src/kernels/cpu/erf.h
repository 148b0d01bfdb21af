/* erf by a table; after elementwise_vec.h, with AVX-512. */
#ifndef ROSE_KERNELS_CPU_ERF_H
#define ROSE_KERNELS_CPU_ERF_H

#if defined(__AVX512F__)
/* Row k: the coefficients of t^k in 16 pieces of [0, 4), t in [-1/2, 1/2] from a piece's middle. Own fits at Chebyshev points. */
static const float erf_coefficient[6][16] = {
    {0.140316203f, 0.404116899f, 0.623240888f, 0.784075081f, 0.888388216f, 0.948170066f, 0.978443742f, 0.99199003f,
     0.997345984f, 0.999217033f, 0.999794602f, 0.999952137f, 0.999990106f, 0.999998212f, 0.999999702f, 0.99999994f},
    {0.277721316f, 0.245088205f, 0.190874889f, 0.131186262f, 0.0795684904f, 0.0425899439f, 0.0201180633f, 0.00838645641f,
     0.00308520487f, 0.0010016195f, 0.000286968861f, 7.25571226e-05f, 1.61896987e-05f, 3.18794582e-06f, 5.53983398e-07f, 8.49564472e-08f},
    {-0.0086785974f, -0.0229765903f, -0.0298238471f, -0.0286969058f, -0.0223787706f, -0.0146404821f, -0.00817308761f, -0.00393118709f,
     -0.00163899991f, -0.000594684971f, -0.00018830398f, -5.21405818e-05f, -1.26442746e-05f, -2.68855229e-06f, -5.01700924e-07f, -8.22220727e-08f},
    {-0.00560497306f, -0.00366992224f, -0.000869918615f, 0.0014518695f, 0.00253828568f, 0.00246778131f, 0.00179440517f, 0.00105378346f,
     0.000516215747f, 0.000214539206f, 7.64106517e-05f, 2.34753625e-05f, 6.24941731e-06f, 1.44626563e-06f, 2.91671199e-07f, 5.13555349e-08f},
    {0.000266321586f, 0.000646147702f, 0.000685522216f, 0.000438096817f, 0.000110683097f, -0.000117121192f, -0.000192895575f, -0.00016469945f,
     -0.000103136437f, -5.15857246e-05f, -2.13552285e-05f, -7.45522766e-06f, -2.21961955e-06f, -5.67745872e-07f, -1.25404952e-07f, -2.40095961e-08f},
    {0.000101101556f, 4.42638193e-05f, -2.64014143e-05f, -6.51456867e-05f, -5.96300742e-05f, -2.9925699e-05f, -2.24926976e-06f, 1.10625215e-05f,
     1.21525509e-05f, 8.16462762e-06f, 4.13712314e-06f, 1.68721419e-06f, 5.70568318e-07f, 1.62675519e-07f, 3.951126e-08f, 8.23277979e-09f},
};

/* Absolute error below 6e-8, all of it rounding; no division and no power. A lane picks its piece's coefficients out of registers. Behind 4
 * every float32 result is 1. */
VEC_INLINE vf verf(vf x)
{
    vf a = vmin(vabs(x) * vset1(4.0f), vset1(15.999999f));
    __m512i piece = _mm512_cvttps_epi32(a);
    vf t = a - (_mm512_cvtepi32_ps(piece) + vset1(0.5f)), p = _mm512_permutexvar_ps(piece, vload(erf_coefficient[5]));
    VEC_UNROLL
    for (int k = 4; k >= 0; k--) p = vfma(p, t, _mm512_permutexvar_ps(piece, vload(erf_coefficient[k])));
    return vcopysign(p, x);
}
#endif

#endif
