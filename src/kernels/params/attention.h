/* Parameters of op_qk and op_attention. */
#ifndef ROSE_KERNELS_PARAMS_ATTENTION_H
#define ROSE_KERNELS_PARAMS_ATTENTION_H

#include "kernels/params/types.h"

/* As enum op_rope_kind. */
enum { QK_ROPE_NONE, QK_ROPE_HALF, QK_ROPE_PAIRS };

struct qk_params {
    void *q;                              /* [T, heads * head_dim], in place */
    void *k;                              /* [T, kv_heads * head_dim]; NULL: none */
    const void *v;                        /* [T, kv_heads * value_dim]; NULL: none */
    void *pool;                           /* pages */
    const void *q_norm, *k_norm;          /* f32 or NULL */
    const void *inv_freq;                 /* f32 [rotary_dim / 2] */
    const void *seq_inv_freq;             /* f32 [S, rotary_dim / 2] or NULL */
    const void *positions;                /* i32 [T] */
    const void *row_seq;                  /* i32 [T], with seq_inv_freq */
    const void *kv_slot;                  /* i64 [T] */
    int64_t q_stride, k_stride, v_stride; /* elements */
    int64_t page_bytes;
    int32_t heads, kv_heads, head_dim, value_dim;
    int32_t norm_full, norm_after_rope, rope, rotary_dim;
    int32_t write, cache_dtype, page_tokens, layer; /* layer: index within the group's page */
    float norm_eps, norm_offset, rope_scale;
};

struct attention_params {
    const void *q;          /* [T, heads * head_dim] */
    void *y;                /* [T, heads * value_dim] */
    const void *k, *v;      /* bidirectional: [T, kv_heads * head_dim], [T, kv_heads * value_dim] */
    const void *pool;       /* causal: pages */
    const void *page_table; /* i32 [S, table_stride] */
    const void *seq_rows;   /* i32 [S + 1] */
    const void *seq_length; /* i32 [S] */
    const void *sinks;      /* f32 [heads] or NULL */
    const void *alibi;      /* f32 [heads] or NULL */
    const void *relative;   /* f32 [heads, 2 * relative_reach + 1 + 64] or NULL */
    void *partial;          /* f32 [partial_rows, value_dim + 2]: split sequences */
    int64_t q_stride, y_stride, k_stride, v_stride, page_bytes;
    int32_t heads, kv_heads, head_dim, value_dim;
    int32_t cache_dtype; /* bidirectional: DTYPE_BF16 where products in bfloat16 will do, else DTYPE_F32 */
    int32_t page_tokens, layer, table_stride;
    int32_t window, bidirectional, deterministic, partial_rows;
    int32_t causal, relative_reach;
    float scale, softcap;
};

#endif
