/* Rows of a table by index. */
#ifndef ROSE_KERNELS_CPU_EMBED_H
#define ROSE_KERNELS_CPU_EMBED_H

#include "kernels/cpu/weight.h"

struct extents;
struct worker;

struct embed_params {
    const int32_t *index; /* [rows] */
    float *y;             /* [rows, k], row r at r * y_stride */
    void *work;           /* f32 [workers][k], for accumulate */
    struct cpu_weight table;
    size_t row_bytes;     /* the table's rows lie as in the file, this far apart; 0: packed */
    enum dtype dtype;     /* of such rows */
    int32_t y_stride, rows_extent, max_rows, index_offset;
    float scale;
    bool accumulate;
};
/* y = [y +] scale * table[index + index_offset]; an index outside the table gives a row of zeros. */
void embed_run(const void *params, const struct extents *extents, struct worker *w);

#endif
