/* Parameters of the quantiser of weights (kernels/cuda/quant_blocks.cu). */
#ifndef ROSE_KERNELS_PARAMS_QUANT_BLOCKS_H
#define ROSE_KERNELS_PARAMS_QUANT_BLOCKS_H

#include "kernels/params/types.h"

struct quant_blocks_params {
    const void *x; /* bf16 [rows, cols], 16-byte aligned rows */
    void *y;       /* e4m3 [rows, cols], dense */
    void *scale;   /* f32 [ceil(rows / 128)][ceil(cols / 128)], scale_stride from row to row of blocks */
    int64_t x_stride, scale_stride; /* elements; cuBLASLt wants scale_stride a multiple of 4 ("128x128 block scaling") */
    uint32_t rows, cols;
};

#endif
