/* Where keys and values lie inside a page, on CUDA. Version 1; a change of the layout raises the version (kernels and cached
 * pages on other tiers carry it).
 *
 *     page  = layer[layers]
 *     layer = K[kv_heads][page_tokens][head_dim], then V[kv_heads][page_tokens][value_dim]
 *
 * Rows are tokens: a head's keys of a page are one tile of page_tokens rows that TMA or 16-byte loads read, and a token's key is
 * head_dim consecutive elements. A slot is page * page_tokens + token. */
#ifndef ROSE_KERNELS_PARAMS_KV_LAYOUT_H
#define ROSE_KERNELS_PARAMS_KV_LAYOUT_H

#include "kernels/params/types.h"

#define KV_ROWS_VERSION 1

/* Bytes of a layer in a page; where its values begin; where a token of a head begins in K (dim = head_dim) or V (value_dim). */
#define KV_ROWS_LAYER_BYTES(kv_heads, page_tokens, head_dim, value_dim, element_bytes)                                         \
    ((int64_t)(kv_heads) * (page_tokens) * ((head_dim) + (value_dim)) * (element_bytes))
#define KV_ROWS_VALUES(kv_heads, page_tokens, head_dim, element_bytes)                                                         \
    ((int64_t)(kv_heads) * (page_tokens) * (head_dim) * (element_bytes))
#define KV_ROWS_TOKEN(head, token, page_tokens, dim, element_bytes)                                                            \
    (((int64_t)(head) * (page_tokens) + (token)) * (dim) * (element_bytes))


/* int8: behind a layer's codes the scales, f32 K[kv_heads][page_tokens], then V: code * scale, scale = largest |x| of a token's head
 * / 127. Where they begin, a token's place in K's or V's, and the bytes of a layer with them. */
#define KV_ROWS_SCALES(kv_heads, page_tokens, head_dim, value_dim) KV_ROWS_LAYER_BYTES(kv_heads, page_tokens, head_dim, value_dim, 1)
#define KV_ROWS_SCALE(value, head, token, kv_heads, page_tokens) ((((int64_t)(value) * (kv_heads) + (head)) * (page_tokens) + (token)) * 4)
#define KV_ROWS_INT8_LAYER_BYTES(kv_heads, page_tokens, head_dim, value_dim)                                                     \
    (KV_ROWS_SCALES(kv_heads, page_tokens, head_dim, value_dim) + (int64_t)2 * (kv_heads) * (page_tokens) * 4)

#endif
