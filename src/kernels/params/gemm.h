/* Parameters of the CUDA matrix products (kernels/cuda/gemm_rows.cu, gemv_rows.cu): y = x W^T of up to four weights that share x. */
#ifndef ROSE_KERNELS_PARAMS_GEMM_H
#define ROSE_KERNELS_PARAMS_GEMM_H

#include "kernels/params/types.h"

#define GEMM_PARTS 4

struct gemm_part {
    const void *w;    /* bf16 [n, k], rows dense, 16-byte aligned */
    const void *bias; /* f32 [n] or NULL */
    void *y;          /* bf16 or f32 [rows, n]; of a gated pair only part 0 has one */
    int64_t y_stride; /* elements */
    int32_t n;
    int32_t tile; /* first tile of columns that belongs to this part */
};

struct gemm_params {
    struct gemm_part part[GEMM_PARTS];
    const void *x;    /* bf16 [rows, k], 16-byte aligned rows */
    void *work;       /* gemv_rows: f32 sums of the splits, see there */
    void *counters;   /* gemv_rows: u32 a tile, zero between launches */
    const void *norm; /* gemv_rows with NORM: the norm's weight, f32 [k], 16-byte aligned */
    int64_t x_stride; /* elements */
    uint32_t rows, k;
    uint32_t tiles, splits; /* tiles of columns of all parts; pieces of k */
    /* gemv_rows: blocks and rows of x of a group of rows, steps of 64 of k in a split */
    uint32_t blocks, group, chunks;
    float alpha;
};

#endif
