/* Parameters of op_norm's kernels. */
#ifndef ROSE_KERNELS_PARAMS_NORM_H
#define ROSE_KERNELS_PARAMS_NORM_H

#include "kernels/params/types.h"

enum { NORM_RMS, NORM_LAYER };

struct norm_params {
    void *x;                                /* [rows, cols]; written when add is given */
    const void *add;                        /* [rows, cols] or NULL: x += add first */
    void *y;                                /* [rows, cols] */
    const void *weight;                     /* f32 [cols] or NULL: ones */
    const void *bias;                       /* f32 [cols] or NULL */
    int64_t x_stride, add_stride, y_stride; /* elements */
    int32_t cols;
    int32_t kind;        /* NORM_* */
    int32_t accumulate;  /* y += alpha * norm(x), else y = alpha * norm(x) */
    int32_t rows_extent; /* enum extent: how many rows a step has */
    float eps, weight_offset, alpha;
};

#endif
