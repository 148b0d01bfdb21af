/* Parameters of the kernel that brings a step's inputs to the device (kernels/cuda/fetch.cu). */
#ifndef ROSE_KERNELS_PARAMS_FETCH_H
#define ROSE_KERNELS_PARAMS_FETCH_H

#include "kernels/params/types.h"

/* One piece: `words` of 4 bytes from the host's block at word `from` to device address `to`. */
struct fetch_segment {
    uint64_t to;
    uint32_t from, words;
};

/* Warps of the grid; warp w takes segments w, w + FETCH_WARPS, … up to the first with no words. The host ends its list with
 * FETCH_WARPS of those. */
#define FETCH_WARPS 512
#define FETCH_MOST_WORDS 1024 /* words of a segment: the work is spread by segments */

struct fetch_params {
    const void *segments; /* struct fetch_segment [], host memory */
    const void *block;    /* u32 [], host memory */
    uint32_t one, unused; /* 1 */
};

#endif
