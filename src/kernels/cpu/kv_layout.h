/* Where keys and values lie inside a page, on the CPU. Version 1; a change of the layout raises the version.
 *
 * A page of a cache group holds page_tokens tokens (a multiple of 16) of `layers` layers:
 *
 *     page  = layer[layers]
 *     layer = head[kv_heads]
 *     head  = block[page_tokens / 16]
 *     block = K of 16 tokens, then V of 16 tokens        (16 tokens: one vector of AVX-512, one AMX tile row)
 *
 * A block is self-contained, so the page size is free. d = head_dim, e = value_dim, t = token in the block:
 *
 *     dtype      K                                         V
 *     F32, F16   [d][16]       tokens are lanes            [16][e]
 *     BF16       [d/2][16][2]  pairs of dims (dpbf16, AMX) [8][e][2]  pairs of tokens
 *     Q8_0       int8 [d][16], f16 scale [ceil(d/32)][16]  int8 [16][e], f16 scale [16][ceil(e/32)]
 *
 * Q8_0 here: 32 dims of one token share a scale max|x| / 127; a last group of fewer dims is as good as a
 * whole one, so any even head_dim works.
 */
#ifndef ROSE_KERNELS_CPU_KV_LAYOUT_H
#define ROSE_KERNELS_CPU_KV_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tensor/dtype.h"

enum { KV_LAYOUT_VERSION = 1, KV_BLOCK = 16, KV_MAX_PAGE_TOKENS = 256, KV_MAX_DIM = 512 };

static inline bool kv_layout_dtype_ok(enum dtype t)
{
    return t == DTYPE_F32 || t == DTYPE_F16 || t == DTYPE_BF16 || t == DTYPE_Q8_0;
}

/* Bytes of one key or one value of n dims. */
static inline size_t kv_layout_vector(enum dtype t, int32_t n)
{
    if (t == DTYPE_F32) return (size_t)n * 4;
    if (t == DTYPE_Q8_0) return (size_t)n + 2 * (size_t)((n + 31) / 32);
    return (size_t)n * 2;
}

/* Bytes of a block of 16 tokens of one head. */
static inline size_t kv_layout_block(enum dtype t, int32_t head_dim, int32_t value_dim)
{
    return KV_BLOCK * (kv_layout_vector(t, head_dim) + kv_layout_vector(t, value_dim));
}

/* What addresses need, made once a launch. */
struct kv_layout {
    enum dtype dtype;
    int32_t page_tokens;
    size_t page_bytes, layer_offset, head_bytes, block_bytes, value_offset; /* V within a block */
};

static inline struct kv_layout kv_layout_make(enum dtype t, int32_t page_tokens, size_t page_bytes,
                                              int32_t layer, int32_t kv_heads, int32_t head_dim,
                                              int32_t value_dim)
{
    struct kv_layout l = {.dtype = t, .page_tokens = page_tokens, .page_bytes = page_bytes};
    l.block_bytes = kv_layout_block(t, head_dim, value_dim);
    l.head_bytes = l.block_bytes * (size_t)(page_tokens / KV_BLOCK);
    l.layer_offset = l.head_bytes * (size_t)kv_heads * (size_t)layer;
    l.value_offset = KV_BLOCK * kv_layout_vector(t, head_dim);
    return l;
}

/* Offset in the pool of the block that holds token `offset` of a page. */
static inline size_t kv_layout_at(const struct kv_layout *l, int64_t page, int32_t head, int32_t offset)
{
    return (size_t)page * l->page_bytes + l->layer_offset + (size_t)head * l->head_bytes +
           (size_t)(offset / KV_BLOCK) * l->block_bytes;
}

#endif
