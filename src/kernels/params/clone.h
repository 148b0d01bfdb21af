#ifndef ROSE_KERNELS_PARAMS_CLONE_H
#define ROSE_KERNELS_PARAMS_CLONE_H

#include "kernels/params/types.h"

struct clone_params {
    const void *x;
    void *y;
    uint64_t vectors; /* of 16 bytes */
};

#endif
