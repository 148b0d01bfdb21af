/* The plan of the CUDA kernel of op_qk (kernels/cuda/qk_rows.cu): QK-norm, rotation and page write in one
 * launch.
 */
#ifndef ROSE_OPS_QK_CUDA_H
#define ROSE_OPS_QK_CUDA_H

#include "ops/attention.h"
#include "ops/plan.h"

struct qk_shape {
    int64_t rows; /* to plan for; any number runs */
    int32_t heads, kv_heads, head_dim;
    int norm; /* bytes of a weight (4: f32, 2: as the rows), 0: no norm */
    bool norm_after_rope;
    float eps, offset;
    enum op_rope_kind rope;
    int32_t rotary_dim;
    float rope_scale; /* 0 means 1 */
    bool seq_freq, write, f16; /* f16: rows and pages of two bytes are f16, else bf16 */
    int32_t page_tokens;
    int kv_bytes; /* an element of the pages: 0 or 2 as the rows, 1 e4m3 */
    int repeat, block, threads; /* measured choices: heads a thread, threads a block, threads a head; 0: the plan's own */
    int stream;        /* measured choice, of plan_once */
    int share;         /* 1: a block shares its rows' angles, -1: every group its own; 0: the plan's own */
};
enum rose_status qk_cuda_plan(const struct qk_shape *shape, const struct device_info *device,
                              struct plan *out, struct rose_error *err);

/* op_qk on CUDA, its arguments checked. norm_full runs as norms over the whole rows first. */
enum rose_status qk_cuda(struct program *program, const struct op_step *step, const struct op_cache *cache,
                         const struct op_qk *op, struct rose_error *err);

#endif
