/* Mixture of experts on the CPU: choosing experts, and running the chosen gated MLPs. */
#ifndef ROSE_KERNELS_CPU_MOE_H
#define ROSE_KERNELS_CPU_MOE_H

#include "kernels/cpu/matmul.h"

struct extents;
struct worker;

/* The same order as enum op_moe_score. */
enum moe_score { MOE_SOFTMAX, MOE_SIGMOID, MOE_SOFTMAX_AFTER };
enum { MOE_MAX_EXPERTS = 4096, MOE_MAX_TOP_K = 64 };

struct moe_route_params {
    const float *logits; /* [rows, experts], row r at r * stride */
    int32_t *ids;        /* [rows, top_k], falling score; equal scores: the lower expert first */
    float *weights;      /* [rows, top_k] */
    const float *bias;   /* [experts], added to the scores for choosing only; NULL: none */
    float *work;         /* [workers][2 * experts] */
    int32_t stride, experts, top_k, groups, top_groups, rows_extent, max_rows;
    enum moe_score score;
    float scale;
    bool normalize;
};
void moe_route_run(const void *params, const struct extents *extents, struct worker *w);

struct moe_mlp_params {
    const int32_t *ids;                           /* [rows, top_k]; an id outside [0, experts) is skipped */
    const float *weights;                         /* [rows, top_k] */
    const float *x;                               /* [rows, k] */
    float *y;                                     /* [rows, n] */
    void *work;                                   /* moe_mlp_plan says how many bytes */
    const struct cpu_weight *gate, *up, *down;    /* [experts], alive as long as the program */
    const float *gate_bias, *up_bias, *down_bias; /* [experts, n] or NULL */
    int32_t x_stride, y_stride, experts, top_k, rows_extent, max_rows;
    enum matmul_activation activation;
    float alpha;
    bool accumulate, deterministic;
    bool amx; /* moe_mlp_plan: experts with many rows take the bf16 path */
};
/* Last step of recording: choose the path. Returns the bytes of work memory for a team of `workers`. */
size_t moe_mlp_plan(struct moe_mlp_params *p, int workers);
/* y = [y +] alpha * sum over a row's experts, in rising order of the expert, of weight * down(activation(gate
 * x) * up x). */
void moe_mlp_run(const void *params, const struct extents *extents, struct worker *w);

#endif
