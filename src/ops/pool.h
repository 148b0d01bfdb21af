/* op_pool: one row a sequence out of its rows, the way each sequence asks for. */
#ifndef ROSE_OPS_POOL_H
#define ROSE_OPS_POOL_H

#include "ops/op.h"

enum op_pooling { OP_POOL_CLS, OP_POOL_MEAN, OP_POOL_LAST, OP_POOL_WEIGHTED_MEAN, OP_POOL_MAX, OP_POOL_MEAN_SQRT, OP_POOL_COUNT };

struct op_pool {
    program_buffer_id seq_rows; /* i32 [S + 1] */
    program_buffer_id kind;     /* i32 [S], enum op_pooling */
    program_buffer_id skip;     /* i32 [S]: leading rows that do not count */
    struct op_value x, y;       /* [T, cols], [S, cols]; y may be float32 on CUDA too */
};
enum rose_status op_pool(struct program *program, const struct op_pool *op, struct rose_error *err);

#endif
