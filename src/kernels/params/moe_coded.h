/* Parameters of the CUDA kernels for experts whose weights stay as their file has them (kernels/cuda/moe_coded.cu, moe_panel.cu). */
#ifndef ROSE_KERNELS_PARAMS_MOE_CODED_H
#define ROSE_KERNELS_PARAMS_MOE_CODED_H

#include "kernels/params/gemm_fp8.h"
#include "kernels/params/matmul_blocks.h"
#include "kernels/params/moe.h"

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

/* moe_few_coded: as moe_few. */
struct moe_few_coded_params {
    struct moe_few_params f; /* weight_stride in bytes */
    const void *scale[2];    /* FP8: of the first expert, f32; those of the others at weight_stride */
};

/* moe_fp8_wgmma: as moe_wgmma, x and weights of e4m3. */
struct moe_fp8_wgmma_params {
    struct moe_wgmma_params t;     /* maps of [EXPERTS, N, K] in units of two codes, boxes [1, 64, 64], swizzle 128; x_stride and y in codes */
    const void *x_scale;           /* f32, of 128 of k: [rows of x][x_scale_stride] */
    const void *w_scale[2];        /* f32, of the first expert: FP8_BLOCKS [N / 128][K / 128], FP8_CHANNELS [N] */
    void *y_scale;                 /* GATED: f32, of 128 columns: [places][y_scale_stride] */
    int64_t x_scale_stride, y_scale_stride; /* elements */
    int64_t w_scale_stride;        /* bytes between experts */
};

/* moe_blocks_wgmma: as moe_wgmma. */
struct moe_blocks_wgmma_params {
    struct moe_wgmma_params t; /* its maps are unused */
    const void *weight[2];     /* of the first expert */
    int64_t weight_stride;     /* bytes between experts */
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
