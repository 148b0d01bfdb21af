/* Parameters of the CUDA mixture-of-experts kernels: routing, dispatch (rows copied into the experts' padded
 * buffers), grouped products of the experts' weights, combine (weighted sum of the experts' rows). */
#ifndef ROSE_KERNELS_PARAMS_MOE_H
#define ROSE_KERNELS_PARAMS_MOE_H

#include "kernels/params/types.h"

/* moe_dispatch, moe_dispatch_few, moe_route, moe_copy. The place of a pick (token, choice) is offsets[expert] + its rank among
 * that expert's tokens, in the tokens' order: the same on every run. */
struct moe_dispatch_params {
    const void *logits; /* f32 [T, EXPERTS] */
    const void *bias;   /* f32 [EXPERTS], added for choosing only; unused when BIAS = 0 */
    const void *x;      /* bf16 [T, HIDDEN] */
    void *ids;          /* i32 [T, TOP_K], falling score; -1: nothing but NaN was left */
    void *weights;      /* f32 [T, TOP_K] */
    void *position; /* i32 [T, TOP_K], row of `rows`; -1 for an id of -1 (moe_route: the rank in its block) */
    void *counts;   /* i32 [EXPERTS] */
    void *offsets;  /* i32 [EXPERTS + 1], multiples of PAD */
    void *rows;     /* OUT [T * TOP_K + EXPERTS * (PAD - 1), HIDDEN]; rows that only pad are not written */
    void *scales;   /* of quantised rows: a scale per group of a row, as act_rows.h has them; unused when OUT is bf16 */
    void *block_base; /* moe_route, moe_copy: i32 [blocks, EXPERTS] */
    void *barrier;    /* u32 [2], zero before the first launch; no two grids at the same time */
    int64_t logits_stride, x_stride; /* elements; x_stride a multiple of 8 */
    int64_t scale_stride;            /* scales of a row */
    int32_t tokens, slices;          /* moe_dispatch: slices of a row, each its own unit of work */
};

/* moe_place, moe_spread: the same places for products that gather their rows: counts and offsets of the experts, the place of
 * each pick and the token of each place. ROUTE = 1: chooses the experts too. */
struct moe_place_params {
    const void *logits; /* ROUTE, as above */
    const void *bias;
    void *ids;      /* i32 [T, TOP_K]; written with ROUTE, else read */
    void *weights;  /* f32 [T, TOP_K]; written with ROUTE, else unused */
    void *position; /* i32 [T, TOP_K] */
    void *counts, *offsets;
    void *source;   /* i32 [places], the pick (token * TOP_K + choice) of each place that has one */
    const void *block_base, *rank; /* moe_spread: of moe_route, the latter its position */
    int64_t logits_stride;
    uint32_t tokens;
};

/* moe_pick: the choice alone, a warp a token. */
struct moe_pick_params {
    const void *logits;
    const void *bias;
    void *ids;
    void *weights;
    int64_t logits_stride;
    uint32_t tokens;
};

/* moe_group: y[place] = W[expert of the place] x[place], or activation(gate x) * (up x), for all places that have a
 * token. */
struct moe_group_params {
    const void *x;         /* bf16 [places, K], with GATHER [T, K] */
    const void *source;    /* GATHER: i32 [places], the pick of a place */
    const void *counts;    /* i32 [EXPERTS] */
    const void *offsets;   /* i32 [EXPERTS + 1], multiples of the tile's rows */
    const void *weight[2]; /* bf16 [EXPERTS, N, K]: gate and up, or one */
    const void *bias[2];   /* f32 [EXPERTS, N], unused when BIAS = 0 */
    void *y;               /* bf16 [places, N]; places without a token are not written */
    int64_t x_stride;      /* elements, a multiple of 8 */
    int64_t weight_stride; /* elements between experts, a multiple of 8 */
};

/* moe_wgmma: as moe_group; the weights by TMA. */
struct moe_wgmma_params {
    struct tensor_map weight[2]; /* bf16 [EXPERTS, N, K] dense or with a distance between experts; boxes [1, GATED ? 128 : 256, 64], swizzle 128 */
    const void *x, *source, *counts, *offsets;
    const void *bias[2];
    void *y;
    void *counter; /* u32 [2]: tiles taken beyond each block's first, blocks that found none; zero before and after */
    int64_t x_stride;
};

/* moe_few, GATED: y[place] = activation(gate x) * (up x), x the place's token's row. Else y[t] = [y[t] +] ALPHA * sum over
 * its picks of weight * (W x[place]). Both choose the experts from the logits; places lie without padding. */
struct moe_few_params {
    const void *logits;     /* f32 [T, EXPERTS] */
    const void *route_bias; /* f32 [EXPERTS], for choosing; unused when BIAS = 0 */
    void *ids, *chosen;     /* GATED: i32, f32 [T, TOP_K], written */
    const void *x;          /* bf16 GATED ? [T, K] : [places, K] */
    const void *weight[2];  /* bf16 [EXPERTS, N, K] */
    const void *bias[2];    /* f32 [EXPERTS, N], unused when EXPERT_BIAS = 0 */
    void *y;                /* bf16 GATED ? [places, N] : [T, N] */
    int64_t logits_stride, x_stride, y_stride; /* elements; the last two multiples of 8 */
    int64_t weight_stride;                     /* elements from expert to expert, a multiple of 8 */
    uint32_t tokens;
};

struct moe_combine_params {
    const void *rows;       /* bf16 [places, HIDDEN]: the experts' results */
    const void *position;   /* i32 [T, TOP_K] */
    const void *weights;    /* f32 [T, TOP_K] */
    void *y;                /* bf16 [T, HIDDEN] */
    int64_t y_stride;       /* elements, a multiple of 8 */
    int32_t tokens, slices; /* slices of a row, each a block's */
};

#endif
