/* Parameters of the CUDA kernel of op_qk. */
#ifndef ROSE_KERNELS_PARAMS_QK_ROWS_H
#define ROSE_KERNELS_PARAMS_QK_ROWS_H

#include "kernels/params/types.h"

struct qk_rows_params {
    void *q;                     /* bf16 [rows, HEADS * HD], in place */
    void *k;                     /* bf16 [rows, KV_HEADS * HD]; in place when not WRITE */
    const void *v;               /* bf16 [rows, KV_HEADS * HD] when WRITE */
    void *pool;                  /* pages, kv_layout.h */
    const void *q_norm, *k_norm; /* [HD] of NORM bytes an element */
    const void *inv_freq;        /* f32 [ROTARY / 2], or [S, ROTARY / 2] when SEQ_FREQ */
    const void *positions;       /* i32 [rows] */
    const void *row_seq;         /* i32 [rows] when SEQ_FREQ */
    const void *kv_slot;         /* i64 [rows]; -1: not written */
    int64_t q_stride, k_stride, v_stride; /* elements */
    int64_t page_bytes, layer_offset;     /* layer_offset: bytes from a page's begin to the layer */
    uint32_t rows, unused;
};

#endif
