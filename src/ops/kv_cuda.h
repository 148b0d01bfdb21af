/* The plan of kernels/cuda/kv_rows.cu: page writes apart from qk, copies between pages, conversions to and from fp8 and int8. */
#ifndef ROSE_OPS_KV_CUDA_H
#define ROSE_OPS_KV_CUDA_H

#include "kernels/params/kv_rows.h"
#include "ops/op.h"
#include "ops/plan.h"

struct kv_shape {
    int64_t rows; /* tokens to plan for; any number runs */
    int32_t kv_heads, head_dim, page_tokens;
    int from, to; /* KV_*; pages of both sides have the same number of tokens */
};
enum rose_status kv_cuda_plan(const struct kv_shape *shape, const struct device_info *device, struct plan *out, struct rose_error *err);

/* Bytes of a layer in a page of that form. */
int64_t kv_cuda_layer_bytes(const struct kv_shape *shape, int form);

/* A side in a program: k and v (KV_ROWS), or pool and slot (i64 [rows], kernels/params/kv_rows.h) with where the layer lies in a page. */
struct kv_cuda_side {
    program_buffer_id k, v, pool, slot;
    int64_t k_stride, v_stride, page_bytes, layer_offset;
};
/* Recorded into a program; the rows of `extent` are the tokens. */
enum rose_status kv_cuda(struct program *program, enum extent extent, const struct kv_shape *shape, const struct kv_cuda_side *from, const struct kv_cuda_side *to, struct rose_error *err);

#endif
