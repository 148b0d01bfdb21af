/* Routing, dispatch and combine of a mixture of experts on one GPU, recorded into programs: tokens copied to their experts' padded rows,
 * quantised on the way or not, and the experts' results added up. Experts whose products gather their rows themselves (ops/moe_mlp_cuda.h)
 * need the combine alone. */
#ifndef ROSE_OPS_DISPATCH_CUDA_H
#define ROSE_OPS_DISPATCH_CUDA_H

#include "ops/moe_cuda.h"

/* As struct moe_dispatch_params. A program runs at most shape->tokens tokens of EXTENT_ROWS. */
struct dispatch_buffers {
    struct op_value logits, x;    /* f32 [T, experts]; bf16 [T, hidden] */
    const float *bias;            /* device [experts], with shape->bias */
    program_buffer_id ids, weights, position, counts, offsets, rows, scales; /* scales: with shape->out, moe_cuda_row_scales a row */
};
enum rose_status dispatch_cuda(struct program *program, const struct moe_cuda_shape *shape, const struct dispatch_buffers *buffers, struct rose_error *err);

/* y = [y +] alpha * sum over a token's picks of weight * rows[place] */
enum rose_status dispatch_cuda_combine(struct program *program, int layer, const struct moe_cuda_shape *shape, program_buffer_id rows, program_buffer_id position,
                                       program_buffer_id weights, const struct op_value *y, struct rose_error *err);

#endif
