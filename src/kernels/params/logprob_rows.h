/* Parameters of kernels/cuda/logprob_rows.cu: log-softmax of rows of logits at some of their tokens. */
#ifndef ROSE_KERNELS_PARAMS_LOGPROB_ROWS_H
#define ROSE_KERNELS_PARAMS_LOGPROB_ROWS_H

#include "kernels/params/types.h"

struct logprob_rows_params {
    const void *logits;   /* f32 or bf16 [rows, VOCAB] */
    const void *ids;      /* i32 [rows, WANT]; outside the vocabulary: minus infinity */
    void *y;              /* f32 [rows, WANT]: logit - log sum e^logit */
    void *log_sum;        /* f32 [rows], or NULL */
    void *part;           /* f32 [rows, blocks, 2]: largest, sum of e^(x - largest) of a block's part */
    void *counters;       /* u32 [rows], zero before the first launch and after each */
    int64_t logits_stride; /* elements, a multiple of 16 bytes */
    uint32_t rows, blocks; /* blocks a row; the grid is rows * blocks */
};

#endif
