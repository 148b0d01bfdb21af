/* Parameters of the element-wise kernels: activation, soft cap, add, gather. */
#ifndef ROSE_KERNELS_PARAMS_ELEMENTWISE_H
#define ROSE_KERNELS_PARAMS_ELEMENTWISE_H

#include "kernels/params/types.h"

/* As enum op_activation. */
enum {
    ELEMENTWISE_NONE,
    ELEMENTWISE_SILU,
    ELEMENTWISE_GELU_TANH,
    ELEMENTWISE_GELU_ERF,
    ELEMENTWISE_RELU,
    ELEMENTWISE_RELU2,
};

/* act: y = f(x) or f(x) * up. softcap: y = cap * tanh(scale * x / cap), cap 0: scale * x. add: y += scale *
 * x. gather: y[r] = x[index[r]]. */
struct elementwise_params {
    const void *x;                         /* [rows, cols] */
    const void *up;                        /* act: [rows, cols] or NULL */
    void *y;                               /* [rows, cols] */
    const void *index;                     /* gather: i32 [rows] */
    int64_t x_stride, up_stride, y_stride; /* elements */
    int32_t cols, rows_extent;
    int32_t activation; /* ELEMENTWISE_* */
    float scale, cap;
};

#endif
