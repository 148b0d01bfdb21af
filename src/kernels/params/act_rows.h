/* Parameters of the CUDA kernel of activations and quantisers (kernels/cuda/act_rows.cu). */
#ifndef ROSE_KERNELS_PARAMS_ACT_ROWS_H
#define ROSE_KERNELS_PARAMS_ACT_ROWS_H

#include "kernels/params/types.h"

/* ACT, as enum op_activation. */
#define ACT_NONE 0
#define ACT_SILU 1
#define ACT_GELU_TANH 2
#define ACT_GELU_ERF 3
#define ACT_RELU 4
#define ACT_RELU2 5

/* OUT: what a result is stored as. One scale per ... */
#define ACT_OUT_BF16 0
#define ACT_OUT_E4M3_TENSOR 1 /* e4m3, one f32 scale that is known: *global */
#define ACT_OUT_E4M3_TOKEN 2  /* e4m3, f32 scale a row */
#define ACT_OUT_E4M3_128 3    /* e4m3, f32 scale per 128 elements of a row */
#define ACT_OUT_MXFP8 4       /* e4m3, ue8m0 scale per 32 (OCP MX 1.0) */
#define ACT_OUT_MXFP4 5       /* e2m1, ue8m0 scale per 32 (OCP MX 1.0) */
#define ACT_OUT_NVFP4 6       /* e2m1, e4m3 scale per 16; *global = 448 * 6 / largest of the tensor multiplies it */
#define ACT_OUT_INT8_TOKEN 7  /* int8, f32 scale a row */

struct act_rows_params {
    const void *x;  /* bf16 [rows, N]: the gate, when GATED */
    const void *up; /* bf16 [rows, N] when GATED */
    void *y;        /* [rows, N] of OUT's type; 4-bit: two elements a byte, the first in the low half */
    void *scale;    /* of OUT's scales: [rows] or [rows, N / group] with the strides below, or tiled */
    const void *global;                       /* f32 [1] */
    int64_t x_stride, up_stride, y_stride;    /* elements */
    int64_t scale_row_stride, scale_group_stride; /* elements; unused when TILED */
    uint32_t rows, unused;
};

/* The layout that cuBLASLt and tcgen05 block-scaled products read scales in (cuBLAS manual, "Block scaling factors layout"): tiles of
 * 128 rows x 4 groups, 512 bytes each, one row of tiles after the other. Elements of a byte. */
#define ACT_TILED_SCALE(row, group, groups)                                                                                       \
    ((((uint64_t)(row) / 128) * (((groups) + 3) / 4) + (group) / 4) * 512 + (row) % 32 * 16 + (row) % 128 / 32 * 4 + (group) % 4)

#endif
