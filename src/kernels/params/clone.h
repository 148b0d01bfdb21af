#ifndef ROSE_KERNELS_PARAMS_CLONE_H
#define ROSE_KERNELS_PARAMS_CLONE_H

#include "kernels/params/types.h"

struct clone_params {
    void *x; /* written with ADD only */
    void *y;
    const void *add;
    uint64_t vectors; /* of 16 bytes */
};

#endif
