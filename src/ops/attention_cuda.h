/* The plans of the CUDA kernels of op_attention (kernels/cuda/attention_*.cu). */
#ifndef ROSE_OPS_ATTENTION_CUDA_H
#define ROSE_OPS_ATTENTION_CUDA_H

#include "kernels/params/attention_tile.h"
#include "ops/attention.h"
#include "ops/plan.h"
#include "tensor/layout.h"

struct attention_shape {
    int64_t rows, seqs; /* to plan for; any numbers run */
    struct op_heads heads;
    float scale, softcap;
    int32_t window;
    bool sinks, alibi;
    bool own, causal; /* as op_attention: bidirectional, causal or over pages */
    bool relative;
    int32_t relative_reach;
    int32_t page_tokens;
    bool f16;                   /* rows, and pages of two bytes, are f16, else bf16 */
    int kv_bytes;               /* an element of the pages: 0 or 2 as the rows, 1 e4m3 */
    bool deterministic;         /* split: no sequence is cut */
    int32_t max_seqs;           /* split: sequences that will ever run */
    int64_t max_tokens;         /* split: the longest file there can be, 0: unknown */
    bool one_row;               /* split: no sequence ever has more than one row */
    bool cascade;               /* split, tile: what sequences share is read by tile, their own by split (kernels/params/cascade.h) */
    /* split: norm, rotation and page write of one_row's rows happen inside; norm: bytes of a weight, 0: none. attention_cuda_split_qk
     * says where that is possible and expected to be faster. */
    bool qk, qk_rope;
    int qk_norm;
    float qk_eps, qk_offset, rope_scale;
    int32_t from_rows, to_rows; /* only sequences of at least (tiles) or at most (split, 0: any) so many rows:
                                   two launches share a step */
    int tile;                   /* measured choices, 0: the plan's own: packed rows a block, */
    int ahead;                  /* wgmma: pages of e4m3 that are loaded together, */
    int blocks, stages, least, warps, loaders; /* split: blocks of the grid, tiles in flight, tiles a block
                                         takes at least, warps that compute */
};
/* Any ragged batch. */
enum rose_status attention_cuda_plan(const struct attention_shape *shape, const struct device_info *device,
                                     struct plan *out, struct rose_error *err);

/* Long chunks on Hopper: heads of 64, 80, 96, 128, 192 and 256. */
enum rose_status attention_cuda_wgmma_plan(const struct attention_shape *shape,
                                           const struct device_info *device, struct plan *out,
                                           struct rose_error *err);
/* What the map of its pages covers, beginning at the pool; false where the plan needs none. */
bool attention_cuda_wgmma_box(const struct plan *plan, struct layout_tma *out);
bool attention_cuda_wgmma_takes(const struct attention_shape *shape, const struct device_info *device);

/* Few rows a sequence: equal shares of all tokens. out->times is the grid. partial_bytes, counters: what its
 * launches share. */
enum rose_status attention_cuda_split_plan(const struct attention_shape *shape,
                                           const struct device_info *device, struct plan *out,
                                           struct rose_error *err);
bool attention_cuda_split_qk(const struct attention_shape *shape, const struct device_info *device, const struct op_qk *op);
size_t attention_cuda_partial_bytes(const struct plan *split);
/* Can a decoding step share the reading of common pages? Places of parts that `seqs` sequences may use; what they take. */
bool attention_cuda_cascades(const struct attention_shape *shape);
int64_t attention_cuda_cascade_entries(const struct op_heads *heads, const struct device_info *device, int64_t seqs);
size_t attention_cuda_cascade_bytes(const struct op_heads *heads, const struct device_info *device, int64_t seqs);

/* op_attention on CUDA, its arguments checked. */
enum rose_status attention_cuda(struct program *program, const struct op_step *step,
                                const struct op_cache *cache, const struct op_attention *op,
                                struct rose_error *err);

#endif
