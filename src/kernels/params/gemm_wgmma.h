/* Parameters of the Hopper matrix product (kernels/cuda/gemm_wgmma.cu). */
#ifndef ROSE_KERNELS_PARAMS_GEMM_WGMMA_H
#define ROSE_KERNELS_PARAMS_GEMM_WGMMA_H

#include "kernels/params/gemm.h"

struct gemm_wgmma_params {
    struct tensor_map x;             /* bf16 [rows at most, k], box [128][64], swizzle 128 */
    struct tensor_map w[GEMM_PARTS]; /* bf16 [n, k], box [BN / 2][64], swizzle 128 */
    struct gemm_params g;
};

#endif
