/* Parameters of op_pool. */
#ifndef ROSE_KERNELS_PARAMS_POOL_H
#define ROSE_KERNELS_PARAMS_POOL_H

#include "kernels/params/types.h"

/* As enum op_pooling. */
enum { POOL_CLS, POOL_MEAN, POOL_LAST, POOL_WEIGHTED_MEAN, POOL_MAX, POOL_MEAN_SQRT };

struct pool_params {
    const void *x;              /* [T, cols] */
    void *y;                    /* [S, cols] */
    const void *seq_rows;       /* i32 [S + 1] */
    const void *kind;           /* i32 [S], POOL_* */
    const void *skip;           /* i32 [S]: leading rows that do not count (a prompt) */
    int64_t x_stride, y_stride; /* elements */
    int32_t cols, unused;
};

#endif
