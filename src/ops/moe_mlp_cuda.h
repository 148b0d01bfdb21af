/* Mixture of experts on CUDA: what op_moe_route and op_moe_mlp record there.
 *
 *     1 to 8        moe_few chooses, gate, up, activation | moe_few chooses, down, weighted sum     (op_moe_mlp.route; sm_90 on)
 *     more          moe_pick | moe_place (fewest: moe_place alone; over 256: moe_route | moe_spread) | moe_group (Hopper, many: moe_wgmma) gate, up, activation | the same, down | moe_combine
 *
 * op_moe_mlp takes counts, offsets and places from the op_moe_route of the same program that wrote its ids. */
#ifndef ROSE_OPS_MOE_MLP_CUDA_H
#define ROSE_OPS_MOE_MLP_CUDA_H

#include "ops/moe_cuda.h"
#include "tensor/layout.h"

struct moe_mlp_shape {
    int32_t tokens, max_tokens; /* that plans are made for; that the buffers hold */
    int32_t experts, top_k, hidden, ffn;
    enum op_activation activation;
    bool gate_bias, down_bias; /* gate_bias: of gate and up */
    bool accumulate;           /* y += alpha * (...) */
    float alpha;               /* 0 means 1 */
    bool f16;                  /* rows, and weights as rows, are f16, else bf16 */
    bool deterministic;        /* a row's bits do not depend on the other rows: no moe_few */
    const struct moe_cuda_shape *route; /* how experts are chosen, for moe_few, which does that itself; NULL: it is done */
    /* Weights as their file has them (moe_coded_cuda.h); scales: FP8_*. */
    int up_format, down_format, up_scales, down_scales;
    int32_t tile;  /* rows of tiles that the places were made for; 0: the form's own */
    int32_t panel; /* so many of the experts are at hand; 0: all */
};

/* The kernel of the two products, and the rows of its tiles: places of an expert are a multiple of them. */
enum moe_mlp_kernel {
    MOE_MLP_FEW,   /* struct moe_few_params; tile 1 */
    MOE_MLP_GROUP, /* struct moe_group_params */
    MOE_MLP_WGMMA, /* struct moe_wgmma_params */
};
struct moe_mlp_form {
    enum moe_mlp_kernel kernel; /* of bf16 weights */
    int32_t tile;
    bool fp8;   /* moe_fp8_wgmma multiplies codes of both */
    bool coded; /* moe_coded reads weights of other formats as they are; else panels of them are decoded first */
};
struct moe_mlp_form moe_mlp_cuda_form(const struct moe_mlp_shape *shape, const struct device_info *device);
/* Places that the experts' buffers need for max_tokens at most. */
int64_t moe_mlp_cuda_places(const struct moe_mlp_shape *shape, const struct device_info *device);
/* The product into the experts' hidden rows (gate, up, activation), or back, by that kernel. */
enum rose_status moe_mlp_cuda_plan(const struct moe_mlp_shape *shape, bool down, const struct device_info *device,
                                   struct plan *out, struct rose_error *err);
/* MOE_MLP_WGMMA: the tensor of one matrix of all experts, stride: elements from expert to expert. */
void moe_mlp_cuda_box(const struct moe_mlp_shape *shape, bool down, int64_t stride, struct layout_tma *out);

/* Choosing and placing: moe_place alone (few tokens); moe_pick and moe_place, one block; moe_route (struct
 * moe_dispatch_params) and moe_spread. s->pad: the tile. */
struct moe_mlp_route {
    struct plan launch[2];
    int launches;
    int32_t block_tokens; /* tokens of a block of moe_route; 0: another form */
};
enum rose_status moe_mlp_cuda_plan_route(const struct moe_cuda_shape *s, const struct device_info *device,
                                         struct moe_mlp_route *out, struct rose_error *err);

/* Buffers that op_moe_route leaves for the products. */
struct moe_mlp_places {
    program_buffer_id counts, offsets, source, position;
};
/* A product's matrices: one, or gate and up, of experts [first, first + count). panel: they lie in that buffer, weight[i] - weight[0] from its
 * beginning on. */
struct moe_mlp_matrices {
    const char *weight[2];
    const float *bias[2];
    int64_t stride; /* elements from expert to expert */
    int32_t first, count;
    program_buffer_id panel;
};
/* Records the product of bf16 matrices by the form's kernel. */
enum rose_status moe_mlp_cuda_product(struct program *program, const struct op_moe_mlp *op, const struct moe_mlp_shape *shape, bool down, const struct moe_mlp_matrices *m,
                                      const struct moe_mlp_places *at, program_buffer_id x, program_buffer_id y, struct rose_error *err);
/* Bytes from expert to expert, at a constant distance in memory, of matrices [n, k] of one format (that of the first). */
enum rose_status moe_mlp_cuda_stride(const struct program *program, const char *what, const struct op_weight *w, int32_t experts, int32_t n, int32_t k, int64_t *stride,
                                     struct rose_error *err);

/* Rows that the places of an expert must be a multiple of: the op_moe_route before says so. */
int32_t moe_mlp_cuda_pad(const struct program *program, const struct op_moe_mlp *op);
/* Whether op_moe_mlp chooses the experts in its products' launches: no op_moe_route is recorded then. */
bool moe_mlp_cuda_chooses(const struct program *program, const struct op_moe_mlp *op);
enum rose_status moe_mlp_cuda_route(struct program *program, const struct op_moe_route *op, struct rose_error *err);
enum rose_status moe_mlp_cuda(struct program *program, const struct op_moe_mlp *op, struct rose_error *err);

#endif
