/* Which planned CUDA kernels a dense decoder needs, without weights and without a GPU: for `rose kernels`,
 * and to compile them all at once before the first program is recorded. */
#ifndef ROSE_OPS_KERNELS_H
#define ROSE_OPS_KERNELS_H

#include "ops/act_cuda.h"
#include "ops/norm_cuda.h"
#include "ops/plan.h"
#include "ops/qk_cuda.h"

struct kernels_model {
    int32_t hidden, intermediate;
    struct op_heads heads;
    enum op_norm_kind norm;
    bool norm_bias, post_norm; /* post_norm: the norm's result is added to the residual stream (Gemma 2, 3) */
    float norm_eps, norm_offset;
    bool qk_norm, norm_after_rope;
    enum op_rope_kind rope;
    int32_t rotary_dim;
    float rope_scale;
    bool seq_freq;
    enum op_activation activation;
    bool gated;
    int32_t page_tokens;
};

struct kernels_entry {
    const char *op; /* "norm", "norm + residual", "qk", "act" */
    struct plan plan;
};

/* Plans for steps of each of n numbers of rows (decode: the batch sizes; prefill: the chunk). Two numbers
 * that give the same constants share an entry, which keeps the first one's geometry. Returns how many, at
 * most `room`; a model that a kernel does not serve is an error. */
enum rose_status kernels_of_model(const struct kernels_model *model, const struct device_info *device,
                                  const int64_t *rows, int n, struct kernels_entry *out, int room, int *count,
                                  struct rose_error *err);

/* Request all from jit and compile them. */
enum rose_status kernels_compile(const struct kernels_entry *entries, int count, struct jit *jit,
                                 const char *arch, struct rose_error *err);

#endif
