/* Mixture of experts: op_moe_route picks experts from router logits, op_moe_mlp runs the chosen gated MLPs and adds them up. */
#ifndef ROSE_OPS_MOE_H
#define ROSE_OPS_MOE_H

#include "ops/matmul.h"

enum op_moe_score { OP_MOE_SOFTMAX, OP_MOE_SIGMOID, OP_MOE_SOFTMAX_AFTER /* top-k of logits, softmax over the chosen */ };

struct op_moe_route {
    int layer;
    int32_t experts, top_k;
    enum op_moe_score score;
    bool normalize;              /* chosen weights sum to one */
    float scale;                 /* multiplies the weights; 0 means 1 */
    const float *selection_bias; /* f32 [experts], only for choosing (DeepSeek V3); NULL */
    int32_t groups, top_groups;  /* group-limited choice; 0: none */
    struct op_value logits;      /* f32 [T, experts] */
    program_buffer_id ids;       /* i32 [T, top_k] */
    program_buffer_id weights;   /* f32 [T, top_k] */
    bool deterministic;          /* as of the op_moe_mlp that follows */
    int32_t pad; /* CUDA: places of an expert are a multiple of it (moe_mlp_cuda_pad); 0: as experts in bf16 want it. op_moe_mlp fills it in */
};
enum rose_status op_moe_route(struct program *program, const struct op_moe_route *op, struct rose_error *err);

struct op_moe_mlp {
    int layer;
    const struct op_moe_route *route; /* recorded first, or within (few tokens on CUDA); NULL: it is there already */
    int32_t experts, top_k;
    const struct op_weight *gate, *up, *down; /* [experts] each */
    const float *gate_bias, *up_bias, *down_bias; /* f32 [experts, n] or NULL */
    enum op_activation activation;
    program_buffer_id ids, weights;
    struct op_value x, y;
    bool accumulate;
    float alpha;
    bool deterministic;
};
enum rose_status op_moe_mlp(struct program *program, const struct op_moe_mlp *op, struct rose_error *err);

#endif
