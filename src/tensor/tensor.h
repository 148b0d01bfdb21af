/* Tensor view: dtype, shape and a pointer that somebody else owns. Row-major, shape[0] outermost (Hugging Face order:
 * a projection is [out, in]); the innermost dimension is stored in whole blocks of the dtype. */
#ifndef ROSE_TENSOR_TENSOR_H
#define ROSE_TENSOR_TENSOR_H

#include "tensor/dtype.h"

enum { TENSOR_MAX_DIMS = 4 };

/* Scales beside a matrix of F8_E4M3 codes: value [r, c] = code * value[(r / block_rows) * cols + c / block_cols]. All are finite and
 * positive, and 448 times any of them is finite. */
struct tensor_scales {
    const float *value; /* [rows, cols] */
    int64_t rows, cols;
    int64_t block_rows, block_cols; /* of the matrix; block_cols covers all columns or is a multiple of 128 */
    const char *name;               /* the matrix's, for messages */
};

struct tensor {
    enum dtype dtype;
    int ndim;
    int64_t shape[TENSOR_MAX_DIMS];
    const void *data;
    const struct tensor_scales *scales; /* of F8_E4M3 weights, else NULL */
    int64_t scales_row;                 /* row of the scaled matrix that is row 0 here */
};

/* Elements; 1 for ndim 0. Shapes come from checked files, so the product fits. */
static inline int64_t tensor_count(const struct tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->ndim; i++) n *= t->shape[i];
    return n;
}
/* Rows (product of all but the innermost dimension) and row length. */
static inline int64_t tensor_cols(const struct tensor *t) { return t->ndim ? t->shape[t->ndim - 1] : 1; }
static inline int64_t tensor_rows(const struct tensor *t) { return tensor_cols(t) ? tensor_count(t) / tensor_cols(t) : 0; }

/* The scale of element [row, col]; 1 where there are none. */
static inline float tensor_scale(const struct tensor *t, int64_t row, int64_t col)
{
    const struct tensor_scales *s = t->scales;
    return s ? s->value[(t->scales_row + row) / s->block_rows * s->cols + col / s->block_cols] : 1.0f;
}

#endif
