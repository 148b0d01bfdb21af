/* op_dummy: seeded random values where weights would stand, bf16 or f16 (shape->dtype), uniform within sqrt(3 / k) (a product of rows of variance one has
 * variance one). For measurements without a checkpoint. */
#ifndef ROSE_OPS_DUMMY_H
#define ROSE_OPS_DUMMY_H

#include "ops/op.h"

/* Record the launch that fills memory [rows, k] (CUDA). The number of elements is a multiple of 8. */
enum rose_status op_dummy(struct program *program, void *memory, const struct tensor *shape, uint64_t seed, struct rose_error *err);
/* The same values on the host. */
void op_dummy_rows(const struct tensor *shape, uint64_t seed, uint16_t *out);

#endif
