/* Mixture of experts on CUDA: what op_moe_route and op_moe_mlp record there.
 *
 *     few tokens    moe_place (chooses too) | moe_few gate, up, activation | moe_few down, weighted sum
 *     more          moe_pick | moe_place | moe_group gate, up, activation | moe_group down | moe_combine
 *
 * op_moe_mlp takes counts, offsets and places from the op_moe_route of the same program that wrote its ids. */
#ifndef ROSE_OPS_MOE_MLP_CUDA_H
#define ROSE_OPS_MOE_MLP_CUDA_H

#include "ops/moe_cuda.h"

struct moe_mlp_shape {
    int32_t tokens, max_tokens; /* that plans are made for; that the buffers hold */
    int32_t experts, top_k, hidden, ffn;
    enum op_activation activation;
    bool gate_bias, down_bias; /* gate_bias: of gate and up */
    bool accumulate;           /* y += alpha * (...) */
    float alpha;               /* 0 means 1 */
    bool deterministic;        /* a row's bits do not depend on the other rows: no moe_few */
};

/* Whether moe_few serves this: all places then lie without padding. */
bool moe_mlp_cuda_few(const struct moe_mlp_shape *shape);

/* Rows of a tile of the grouped products: places of an expert are a multiple of it. 1 for moe_few. */
int32_t moe_mlp_cuda_tile(const struct moe_mlp_shape *shape);
/* Places that the experts' buffers need for max_tokens at most. */
int64_t moe_mlp_cuda_places(const struct moe_mlp_shape *shape);
/* The product into the experts' hidden rows (gate, up, activation), or back. params: struct moe_few_params or
 * moe_group_params. */
enum rose_status moe_mlp_cuda_plan_few(const struct moe_mlp_shape *shape, bool down, const struct device_info *device,
                                       struct plan *out, struct rose_error *err);
enum rose_status moe_mlp_cuda_plan_group(const struct moe_mlp_shape *shape, bool down, const struct device_info *device,
                                         struct plan *out, struct rose_error *err);

/* launch[0]: moe_pick and launch[1]: moe_place, or moe_place alone. s->pad: the tile. */
struct moe_mlp_route {
    struct plan launch[2];
    int launches;
};
enum rose_status moe_mlp_cuda_plan_route(const struct moe_cuda_shape *s, const struct device_info *device,
                                         struct moe_mlp_route *out, struct rose_error *err);

enum rose_status moe_mlp_cuda_route(struct program *program, const struct op_moe_route *op, struct rose_error *err);
enum rose_status moe_mlp_cuda(struct program *program, const struct op_moe_mlp *op, struct rose_error *err);

#endif
