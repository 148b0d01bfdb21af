/* Parameters of the CUDA norm kernel; everything that a model fixes is a constant of the kernel. */
#ifndef ROSE_KERNELS_PARAMS_NORM_ROWS_H
#define ROSE_KERNELS_PARAMS_NORM_ROWS_H

#include "kernels/params/types.h"

struct norm_rows_params {
    void *x;            /* bf16 [rows, N]; written when ADD */
    const void *add;    /* bf16 [rows, N] when ADD */
    void *y;            /* [rows, N] of OUT's type; bf16 may be x */
    const void *weight; /* [N], f32 or bf16, when WEIGHT */
    const void *bias;   /* the same, when BIAS */
    void *scale;        /* of OUT's scales, as act_rows.h has them */
    const void *global; /* f32 [1] */
    int64_t x_stride, add_stride, y_stride; /* elements, multiples of 16 bytes (32 on sm_100) */
    int64_t scale_row_stride, scale_group_stride;
    uint32_t rows, unused;
};

#endif
