/* Parameters of the CUDA kernel of the small element-wise ops (kernels/cuda/value_rows.cu). */
#ifndef ROSE_KERNELS_PARAMS_VALUE_ROWS_H
#define ROSE_KERNELS_PARAMS_VALUE_ROWS_H

#include "kernels/params/types.h"

/* OP */
#define VALUE_GATHER 0   /* y[r] = SCALE * x[index[r] + index_offset], ACC: +=; an index outside x gives zeros */
#define VALUE_SOFTCAP 1  /* y = CAP * tanh(SCALE * x / CAP); CAP 0: SCALE * x */
#define VALUE_ADD 2      /* y += SCALE * x */
#define VALUE_ROW_GATE 3 /* y *= sigmoid(x[r, 0]) */

struct value_rows_params {
    const void *x;     /* bf16 [rows, N], F32: f32; gather: [x_rows, N]; row gate: [rows, 1] */
    void *y;           /* bf16 [rows, N]; may be x; soft cap with F32: f32 */
    const void *index; /* i32 [rows] for gather */
    int64_t x_stride, y_stride; /* elements */
    uint32_t rows, x_rows;
    int32_t index_offset, unused;
};

#endif
