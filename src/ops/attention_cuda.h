/* The plans of the CUDA kernels of op_attention (kernels/cuda/attention_*.cu). */
#ifndef ROSE_OPS_ATTENTION_CUDA_H
#define ROSE_OPS_ATTENTION_CUDA_H

#include "kernels/params/attention_tile.h"
#include "ops/attention.h"
#include "ops/plan.h"

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
    int tile; /* measured choice: packed rows a block; 0: the plan's own */
};
/* Any ragged batch. */
enum rose_status attention_cuda_plan(const struct attention_shape *shape, const struct device_info *device,
                                     struct plan *out, struct rose_error *err);

/* op_attention on CUDA, its arguments checked. */
enum rose_status attention_cuda(struct program *program, const struct op_step *step,
                                const struct op_cache *cache, const struct op_attention *op,
                                struct rose_error *err);

#endif
