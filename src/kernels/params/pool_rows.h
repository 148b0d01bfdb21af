/* Parameters of the CUDA kernel of op_pool (kernels/cuda/pool_rows.cu). */
#ifndef ROSE_KERNELS_PARAMS_POOL_ROWS_H
#define ROSE_KERNELS_PARAMS_POOL_ROWS_H

#include "kernels/params/pool.h"

struct pool_rows_params {
    const void *x;              /* bf16 [T, COLS] */
    void *y;                    /* bf16 or f32 (OUT_F32) [S, COLS] */
    const void *seq_rows;       /* i32 [S + 1] */
    const void *kind;           /* i32 [S], POOL_* */
    const void *skip;           /* i32 [S]: leading rows that do not count */
    int64_t x_stride, y_stride; /* elements */
    uint32_t seqs, unused;
};

#endif
