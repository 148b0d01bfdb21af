/* Parameters of the grid barrier's probe. */
#ifndef ROSE_KERNELS_PARAMS_GRID_BARRIER_H
#define ROSE_KERNELS_PARAMS_GRID_BARRIER_H

#include "kernels/params/types.h"

struct grid_barrier_params {
    void *words;   /* u32 [2, blocks] */
    void *counter; /* u32, zero when allocated */
};

#endif
