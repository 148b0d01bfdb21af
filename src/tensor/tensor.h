/* Tensor view: dtype, shape and a pointer that somebody else owns. Row-major, shape[0] outermost (Hugging Face order:
 * a projection is [out, in]); the innermost dimension is stored in whole blocks of the dtype. */
#ifndef ROSE_TENSOR_TENSOR_H
#define ROSE_TENSOR_TENSOR_H

#include "tensor/dtype.h"

enum { TENSOR_MAX_DIMS = 4 };

struct tensor {
    enum dtype dtype;
    int ndim;
    int64_t shape[TENSOR_MAX_DIMS];
    const void *data;
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

#endif
