/* Parameters of the CUDA products with FP8 weights (kernels/cuda/gemv_fp8.cu, gemm_fp8.cu, gemm_fp8_wgmma.cu). */
#ifndef ROSE_KERNELS_PARAMS_GEMM_FP8_H
#define ROSE_KERNELS_PARAMS_GEMM_FP8_H

#include "kernels/params/gemm_wgmma.h"

/* SCALES */
#define FP8_CHANNELS 0 /* one a weight row */
#define FP8_BLOCKS 1   /* one a block of FP8_BLOCK x FP8_BLOCK weights */
#define FP8_BLOCK 128

struct gemm_fp8_scales {
    const void *w[GEMM_PARTS]; /* f32: of blocks [ceil(n / 128)][k_blocks], of channels [n] */
    const void *x;             /* A8, f32: of blocks [k_blocks][x_stride], of rows [rows] */
    int64_t x_stride;
    uint32_t k_blocks, unused;
};

struct gemm_fp8_params {
    struct gemm_params g; /* w: e4m3 [n, k]; x: bf16, with A8 e4m3; k a multiple of 16 */
    struct gemm_fp8_scales s;
};

struct gemm_fp8_wgmma_params {
    struct gemm_wgmma_params t; /* maps in units of two codes */
    struct gemm_fp8_scales s;
};

#endif
