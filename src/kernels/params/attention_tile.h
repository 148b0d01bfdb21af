/* Parameters of the CUDA attention kernels. */
#ifndef ROSE_KERNELS_PARAMS_ATTENTION_TILE_H
#define ROSE_KERNELS_PARAMS_ATTENTION_TILE_H

#include "kernels/params/types.h"

/* Floats a head of a table of biases: OP_RELATIVE_STRIDE. */
#define ATTENTION_RELATIVE_STRIDE(reach) (2 * (reach) + 1 + 64)

/* Floats that a block leaves of an item that others finish: 16 rows of HD, then the maximum and the sum of each. */
#define ATTENTION_PARTIAL(hd) (16 * (hd) + 32)

struct attention_tile_params {
    const void *q;              /* bf16 [rows, HEADS * HD] */
    void *y;                    /* the same */
    const void *k, *v;          /* !PAGES, QK: bf16 [rows, KV_HEADS * HD] */
    const void *pool;           /* PAGES: kv_layout.h */
    const void *page_table;     /* PAGES: i32 [seqs, table_stride]; -1: freed */
    const void *seq_rows;       /* i32 [seqs + 1] */
    const void *seq_length;     /* PAGES: i32 [seqs]; 0: an inert sequence, its rows become zeros */
    const void *sinks, *alibi;  /* f32 [HEADS] */
    const void *relative;       /* f32 [HEADS, ATTENTION_RELATIVE_STRIDE]: entry reach + token - position */
    void *partial;              /* attention_split: f32 [2 * blocks, ATTENTION_PARTIAL(HD)] */
    void *counters;             /* u32, zero between launches; attention_split: [blocks], attention_wgmma: [2] */
    const void *q_norm, *k_norm, *inv_freq; /* attention_split with QK: f32 [HD], [HD], [HD / 2] */
    const void *kv_slot;        /* the same: i64 [rows]; -1: not written */
    void *pages;                /* the same: the pool, where this step's keys and values go */
    int64_t q_stride, y_stride, k_stride, v_stride; /* elements */
    int64_t page_bytes, layer_offset;               /* layer_offset: bytes from a page's begin to the layer */
    uint32_t seqs;
    int32_t table_stride;
    const void *groups, *members, *cascade_seqs; /* CASCADE: cascade.h; attention_tile the first two, attention_split the last */
    void *cascade;
    int64_t cascade_entries;
};

struct attention_wgmma_params {
    struct tensor_map pages; /* of bf16: the pool as rows of HD, boxes of 64 by a page's tokens (at most a tile's), swizzle 128 */
    struct attention_tile_params a;
};

#endif
