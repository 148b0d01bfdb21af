/* What one int8 plane leaves of the activations: r = x - s q, to be quantised once more as a second plane.
 * Included by each instruction set's file, so that the compiler vectorises it for that set. */
#ifndef ROSE_KERNELS_CPU_MATMUL_RESIDUAL_H
#define ROSE_KERNELS_CPU_MATMUL_RESIDUAL_H

#include "kernels/cpu/matmul.h"

/* x[h * stride], `height` rows of k columns, as quantised into `tile`; r[h * r_stride]. */
static inline void matmul_residual_body(const float *x, size_t stride, int height, int32_t k,
                                        const void *tile, float *r, size_t r_stride)
{
    enum { BLOCK = 32 };
    for (int32_t at = 0; at < k; at += BLOCK) {
        const uint8_t *block =
            (const uint8_t *)tile + (size_t)(at / BLOCK) * MATMUL_ACT_BYTES * (size_t)height;
        const float *scales = (const float *)(const void *)(block + (size_t)MATMUL_ACT_S * (size_t)height);
        int n = k - at < BLOCK ? k - at : BLOCK;
        for (int h = 0; h < height; h++) {
            const int8_t *q = (const int8_t *)block + h * BLOCK;
            const float *from = x + (size_t)h * stride + at;
            float *to = r + (size_t)h * r_stride + at, s = scales[h];
            if (n == BLOCK)
                for (int i = 0; i < BLOCK; i++) to[i] = from[i] - s * (float)q[i];
            else
                for (int i = 0; i < n; i++) to[i] = from[i] - s * (float)q[i];
        }
    }
}

#endif
