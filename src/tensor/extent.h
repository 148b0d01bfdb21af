/* Extents: the sizes of a step that are known only when it runs. A launch's sizes are constants or functions of these. */
#ifndef ROSE_TENSOR_EXTENT_H
#define ROSE_TENSOR_EXTENT_H

#include <stdint.h>

enum extent {
    EXTENT_ONE,     /* always 1 */
    EXTENT_ROWS,    /* query rows (tokens) in the step, T */
    EXTENT_SEQS,    /* sequences in the step, S */
    EXTENT_SAMPLES, /* rows whose logits are wanted, R */
    EXTENT_COUNT
};
struct extents {
    int32_t n[EXTENT_COUNT];
};

#endif
