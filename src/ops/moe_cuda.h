/* Plans of the CUDA mixture-of-experts kernels: route and dispatch, then combine.
 *
 * Dispatch has four forms, chosen by the number of tokens:
 *     few                              at most 16: a cluster shares the routing, a thread an expert (sm_90)
 *     every block routes for itself    at most a warp a token in each block: no exchange, one launch
 *     grid barrier                     one cooperative launch; the grid shares the routing
 *     two launches                     moe_route (ranks by match, the last block scans), then moe_copy
 */
#ifndef ROSE_OPS_MOE_CUDA_H
#define ROSE_OPS_MOE_CUDA_H

#include "kernels/params/moe.h"
#include "ops/moe.h"
#include "ops/plan.h"

enum { MOE_CUDA_EVERY_TOKENS = 16, MOE_CUDA_BARRIER_TOKENS = 256 };

struct moe_cuda_shape {
    int32_t tokens, experts, top_k, hidden;
    int32_t pad; /* places of an expert are a multiple of it; 0 means 1 */
    enum op_moe_score score;
    bool normalize, bias;
    float scale;                /* 0 means 1 */
    int32_t groups, top_groups; /* 0: none */
    bool accumulate;            /* combine: y += */
    float alpha;                /* combine; 0 means 1 */
    bool f16;                   /* rows are f16, else bf16 */
    int out;                    /* dispatch: ACT_OUT_* of the copied rows: bf16, e4m3 per 1 x 128, mxfp8 */
    int few;                    /* measured choice: 1: at most 16 tokens by moe_dispatch_few, -1: not; 0: the plan's own */
    int cluster;                /* measured choice: blocks that share the routing of 2 to 16 tokens (sm_90), 1: none; 0: the plan's own */
};

enum moe_cuda_form { MOE_CUDA_EVERY, MOE_CUDA_BARRIER, MOE_CUDA_TWO, MOE_CUDA_FEW };
struct moe_cuda_dispatch {
    enum moe_cuda_form form;
    struct plan launch[2]; /* all take struct moe_dispatch_params */
    int launches;
    int32_t slices;       /* params.slices */
    int32_t block_tokens; /* MOE_CUDA_TWO: tokens of a row of block_base */
    double bytes, limit_us, predicted_us;
};
enum rose_status moe_cuda_plan_dispatch(const struct moe_cuda_shape *shape, const struct device_info *device,
                                        struct moe_cuda_dispatch *out, struct rose_error *err);
/* *slices: params.slices of struct moe_combine_params. */
enum rose_status moe_cuda_plan_combine(const struct moe_cuda_shape *shape, const struct device_info *device,
                                       struct plan *out, int32_t *slices, struct rose_error *err);

/* Rows that the experts' buffer needs at most; bytes of a row of it, and scales beside it (bytes each: 4 or 1). */
int64_t moe_cuda_rows(const struct moe_cuda_shape *shape);
double moe_cuda_row_bytes(const struct moe_cuda_shape *shape);
int32_t moe_cuda_row_scales(const struct moe_cuda_shape *shape);

#endif
