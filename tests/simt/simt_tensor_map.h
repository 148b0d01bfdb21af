/* Tensor maps for the harness: what cuTensorMapEncodeTiled makes for the GPU. */
#ifndef ROSE_SIMT_TENSOR_MAP_H
#define ROSE_SIMT_TENSOR_MAP_H

#include "kernels/params/types.h"
#include "simt_device.h"

struct simt_tensor {
    void *base; /* a simt_buffer, or inside one */
    int rank;
    uint32_t element_bytes;
    uint32_t dim[5];         /* elements, innermost first */
    uint64_t stride[4];      /* bytes, of dimensions 1 ..; 0: dense */
    uint32_t box[5];         /* elements */
    uint32_t swizzle;        /* 0, 32, 64, 128 */
    enum simt_reduce reduce; /* element type of tma_reduce_add, where one is used */
};
void simt_tensor_map(struct tensor_map *out, const struct simt_tensor *t);

#endif
