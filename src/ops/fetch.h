/* op_fetch: the inputs of a step, from pinned host memory to where the forward reads them (CUDA; the CPU reads the host's block). */
#ifndef ROSE_OPS_FETCH_H
#define ROSE_OPS_FETCH_H

#include "kernels/params/fetch.h"
#include "ops/op.h"

struct op_fetch {
    const void *segments; /* struct fetch_segment [], DEVICE_MEMORY_HOST */
    const void *block;    /* what their `from` counts in */
};
enum rose_status op_fetch(struct program *program, const struct op_fetch *op, struct rose_error *err);

#endif
