/* The plan of kernels/cuda/logprob_rows.cu: log-softmax of rows of logits, gathered at some tokens. */
#ifndef ROSE_OPS_LOGPROB_CUDA_H
#define ROSE_OPS_LOGPROB_CUDA_H

#include "kernels/params/logprob_rows.h"
#include "ops/op.h"
#include "ops/plan.h"

struct logprob_shape {
    int64_t rows; /* to plan for; any number runs */
    int32_t vocabulary, want; /* want: tokens a row, 1 to 4096 */
    bool bf16; /* logits; else f32 */
};
/* *blocks: params.blocks; the grid is rows * blocks. */
enum rose_status logprob_cuda_plan(const struct logprob_shape *shape, const struct device_info *device, struct plan *out, int32_t *blocks,
                                   struct rose_error *err);

/* Recorded into a program: logits f32 or bf16 [rows, vocabulary] with rows at multiples of 16 bytes, ids i32 [rows, want] ->
 * y f32 [rows, want] and, unless 0, log_sum f32 [rows]. */
enum rose_status logprob_cuda(struct program *program, const struct op_value *logits, int32_t want, program_buffer_id ids, program_buffer_id y, program_buffer_id log_sum,
                              struct rose_error *err);

#endif
