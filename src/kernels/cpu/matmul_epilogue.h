/* What follows a tile of products: bias, activation, gate, scale, residual. Written on elementwise_vec.h and
 * compiled once an instruction set. */
#ifndef ROSE_KERNELS_CPU_MATMUL_EPILOGUE_H
#define ROSE_KERNELS_CPU_MATMUL_EPILOGUE_H

#include "kernels/cpu/elementwise_vec.h"
#include "kernels/cpu/erf.h"
#include "kernels/cpu/matmul.h"

/* erf; without AVX-512 by Abramowitz & Stegun 7.1.26: absolute error below 1.5e-7. */
VEC_INLINE vf matmul_erf(vf x)
{
#if defined(__AVX512F__)
    return verf(x);
#else
    vf a = vabs(x), t = vset1(1.0f) / vfma(a, vset1(0.3275911f), vset1(1.0f));
    vf p = vset1(1.061405429f);
    p = vfma(p, t, vset1(-1.453152027f));
    p = vfma(p, t, vset1(1.421413741f));
    p = vfma(p, t, vset1(-0.284496736f));
    p = vfma(p, t, vset1(0.254829592f));
    vf e = vexp(vset1(0.0f) - a * a);
    return vcopysign(vset1(1.0f) - p * t * e, x);
#endif
}

VEC_INLINE vf matmul_sigmoid_times(vf x, vf u) /* x / (1 + e^-u) */
{
    return x / (vset1(1.0f) + vexp(vset1(0.0f) - u));
}

VEC_INLINE vf matmul_activate(enum matmul_activation activation, vf x)
{
    switch (activation) {
    case MATMUL_SILU: return matmul_sigmoid_times(x, x);
    case MATMUL_GELU_TANH: /* (1 + tanh u) / 2 = 1 / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x^3) */
        return matmul_sigmoid_times(x, vset1(1.5957691216f) * vfma(x * x * x, vset1(0.044715f), x));
    case MATMUL_GELU_ERF: return vset1(0.5f) * x * (vset1(1.0f) + matmul_erf(x * vset1(0.70710678f)));
    case MATMUL_RELU: return vrelu(x);
    case MATMUL_RELU2: return vrelu(x) * vrelu(x);
    default: return x;
    }
}

/* n lanes; a constant VL needs no mask. */
VEC_INLINE vf matmul_finish_load(const float *p, int n)
{
    return n == VL ? vload(p) : vload_n(p, n);
}

VEC_INLINE void matmul_finish_lanes(const struct matmul_finish *f, const enum matmul_activation activation,
                                    vf v, const float *up, int at, float *y, int n)
{
    if (f->bias) v = v + matmul_finish_load(f->bias + at, n);
    v = matmul_activate(activation, v);
    if (up) {
        vf u = matmul_finish_load(up, n);
        if (f->up_bias) u = u + matmul_finish_load(f->up_bias + at, n);
        v = v * u;
    }
    if (f->alpha != 1.0f) v = v * vset1(f->alpha);
    if (f->accumulate) v = v + matmul_finish_load(y, n);
    if (n == VL)
        vstore(y, v);
    else
        vstore_n(y, v, n);
}

/* Whole groups of columns, the activation a constant: a tile's products wait for this on their way to memory.
 */
VEC_INLINE void matmul_finish_whole(const struct matmul_finish *f, const enum matmul_activation activation,
                                    const float *out, const float *up, int rows, float *y, size_t stride)
{
    for (int r = 0; r < rows; r++, out += CPU_GROUP, y += stride) {
        for (int c = 0; c < CPU_GROUP; c += VL)
            matmul_finish_lanes(f, activation, vload(out + c), up ? up + c : NULL, c, y + c, VL);
        if (up) up += CPU_GROUP;
    }
}

static void VEC_NAME(matmul_finish)(const struct matmul_finish *f, const float *out, const float *up,
                                    int rows, int cols, float *y, size_t stride)
{
    if (cols == CPU_GROUP && f->activation == MATMUL_SILU && up) {
        matmul_finish_whole(f, MATMUL_SILU, out, up, rows, y, stride);
        return;
    }
    if (cols == CPU_GROUP && f->activation == MATMUL_GELU_ERF && !up) {
        matmul_finish_whole(f, MATMUL_GELU_ERF, out, NULL, rows, y, stride);
        return;
    }
    if (cols == CPU_GROUP && f->activation == MATMUL_LINEAR && !up) {
        if (f->bias || f->alpha != 1.0f || f->accumulate) {
            matmul_finish_whole(f, MATMUL_LINEAR, out, NULL, rows, y, stride);
            return;
        }
        for (int r = 0; r < rows; r++, out += CPU_GROUP, y += stride)
            for (int c = 0; c < CPU_GROUP; c += VL) vstore(y + c, vload(out + c));
        return;
    }
    for (int r = 0; r < rows; r++, out += CPU_GROUP, y += stride) {
        for (int c = 0; c < cols; c += VL) {
            int n = cols - c < VL ? cols - c : VL;
            matmul_finish_lanes(f, f->activation, vload(out + c), up ? up + c : NULL, c, y + c, n);
        }
        if (up) up += CPU_GROUP;
    }
}

#endif
