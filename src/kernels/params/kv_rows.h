/* Parameters of kernels/cuda/kv_rows.cu: keys and values of tokens, between rows and pages, or from pages to pages, converted on
 * their way. */
#ifndef ROSE_KERNELS_PARAMS_KV_ROWS_H
#define ROSE_KERNELS_PARAMS_KV_ROWS_H

#include "kernels/params/types.h"

/* What a side is: rows of bf16, or pages (kv_layout.h) of bf16, of e4m3 (the values themselves, saturated) or of int8 with a scale
 * for each head of a token. */
#define KV_ROWS 0
#define KV_PAGES_BF16 1
#define KV_PAGES_E4M3 2
#define KV_PAGES_INT8 3

struct kv_side {
    void *k, *v;               /* KV_ROWS: bf16 [rows, KV_HEADS * HD] */
    void *pool;                /* pages */
    const void *slot;          /* pages: i64 [rows], page * PAGE_TOKENS + token; -1: the token is left out */
    int64_t k_stride, v_stride; /* elements, multiples of 8 */
    int64_t page_bytes, layer_offset;
};
struct kv_rows_params {
    struct kv_side from, to;
    uint32_t rows, unused;
};

#endif
