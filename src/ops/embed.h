/* op_embed: rows of the token table (any stored format), times a scale; op_gather: chosen rows of a value. */
#ifndef ROSE_OPS_EMBED_H
#define ROSE_OPS_EMBED_H

#include "ops/matmul.h"

/* A table that is only looked up keeps the file's order of values on the CPU: groups of 16 rows side by side, as products want them, put
 * a row's values 64 bytes apart. As op_weight_bytes, op_weight_pack and op_weight_adopt; 0 bytes: a table of this type is packed like a weight. */
size_t op_table_bytes(const struct device *device, const struct tensor *source);
enum rose_status op_table_pack(struct device *device, const struct tensor *source, void *memory, struct op_weight *out, struct rose_error *err);
bool op_table_adopt(const struct device *device, const struct tensor *source, const void *memory, size_t sample, struct op_weight *out);

struct op_embed {
    const struct op_weight *table; /* [vocabulary, cols], from op_table_pack or op_weight_pack */
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
