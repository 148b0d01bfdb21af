/* Parameters of the CUDA kernels for experts whose weights stay as their file has them (kernels/cuda/moe_coded.cu, moe_panel.cu). */
#ifndef ROSE_KERNELS_PARAMS_MOE_CODED_H
#define ROSE_KERNELS_PARAMS_MOE_CODED_H

#include "kernels/params/gemm_fp8.h"
#include "kernels/params/matmul_blocks.h"

/* FORMAT: BLOCKS_* or this: e4m3 codes [COLUMNS, K] and their scales. */
#define MOE_FP8 BLOCKS_FORMATS

/* moe_coded: as moe_group. */
struct moe_coded_params {
    const void *x;         /* bf16 [places, K], with GATHER [T, K] */
    const void *source;    /* GATHER: i32 [places], the pick of a place */
    const void *counts;    /* i32 [EXPERTS] */
    const void *offsets;   /* i32 [EXPERTS + 1], multiples of the tile's rows */
    const void *weight[2]; /* gate and up, or one: of the first expert */
    const void *scale[2];  /* FP8: its scales, f32 */
    const void *bias[2];   /* f32 [EXPERTS, COLUMNS], unused when EXPERT_BIAS = 0 */
    void *y;               /* bf16 [places, COLUMNS]; places without a token are not written */
    int64_t x_stride;      /* elements, a multiple of 8 */
    int64_t weight_stride; /* bytes between experts, a multiple of 16; scales lie at the same distance */
};

/* moe_panel: matrices of experts in a block format as bf16, of experts that have tokens. */
struct moe_panel_params {
    const void *weight; /* of the panel's first expert */
    const void *counts; /* i32 [experts of the panel] */
    void *y;            /* bf16 [experts of the panel, COLUMNS, K] */
    int64_t weight_stride, y_stride; /* between experts, in bytes */
    uint32_t experts, unused;
};

#endif
