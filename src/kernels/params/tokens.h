/* op_tokens: a step's input tokens out of the sequences' histories. */
#ifndef ROSE_KERNELS_PARAMS_TOKENS_H
#define ROSE_KERNELS_PARAMS_TOKENS_H

#include "kernels/params/types.h"

struct tokens_params {
    const void *history;     /* i32, all slots */
    const void *row_history; /* i64 [T], where each row's sequence begins in history; CUDA: -1: no sequence */
    const void *positions;   /* i32 [T] */
    void *tokens;            /* i32 [T] */
    uint32_t rows, unused;   /* CUDA: T */
};

#endif
