/* op_embed: rows of the token table (any stored format), times a scale; op_gather: chosen rows of a value. */
#ifndef ROSE_OPS_EMBED_H
#define ROSE_OPS_EMBED_H

#include "ops/matmul.h"

struct op_embed {
    const struct op_weight *table; /* [vocabulary, cols] */
    program_buffer_id index;       /* i32 [rows]: step tokens (token types, positions for BERT) */
    struct op_value y;
    float scale;                   /* 0 means 1 */
    bool accumulate;               /* y += row */
    int32_t index_offset;          /* added to each index */
};
enum rose_status op_embed(struct program *program, const struct op_embed *op, struct rose_error *err);

struct op_gather {
    program_buffer_id index; /* i32 [y.rows] rows of x */
    struct op_value x, y;
};
enum rose_status op_gather(struct program *program, const struct op_gather *op, struct rose_error *err);

#endif
