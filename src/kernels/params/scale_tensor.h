/* Parameters of kernels/cuda/scale_tensor.cu: the one scale of a whole tensor, out of its largest |x|. */
#ifndef ROSE_KERNELS_PARAMS_SCALE_TENSOR_H
#define ROSE_KERNELS_PARAMS_SCALE_TENSOR_H

#include "kernels/params/types.h"

/* KIND: what the scale is for (kernels/cuda/quant.cuh); largest is at least 1e-10. */
#define SCALE_TENSOR_E4M3 0  /* largest / 448: ACT_OUT_E4M3_TENSOR */
#define SCALE_TENSOR_NVFP4 1 /* 448 * 6 / largest: multiplies ACT_OUT_NVFP4's scales of 16 */

struct scale_tensor_params {
    const void *x;    /* bf16 [rows, N] */
    void *scale;      /* f32 [1] */
    void *work;       /* u32 [2], zero before the first launch and after each: largest so far as its bits, blocks that are done */
    int64_t x_stride; /* elements */
    uint32_t rows, unused;
};

#endif
