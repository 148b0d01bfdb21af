/* What the kernels for few tokens share (moe_few.cu, moe_few_coded.cu): who has which places, and y's sums.
 *
 * Macros: EXPERTS TOP_K N GATED MAX_TOKENS ACCUMULATE ALPHA, those of moe_router.cuh; WARPS, CONSUMERS, THREADS, MAX_PICKS. */
#ifndef ROSE_CUDA_MOE_LISTS_CUH
#define ROSE_CUDA_MOE_LISTS_CUH

#include "kernels/params/moe.h"
#define MOE_LOGIT(p) f32_from_bits(ld4_older(p))
#include "kernels/cuda/moe_router.cuh"

/* Who has which places, in shared memory: expert[i] those from begin[i] to begin[i + 1]. */
struct lists {
    uint32_t *expert, *begin, *source; /* source: the pick of a place */
    float *weight;                     /* of a place */
    uint32_t n;
};

/* Declares a kernel's lists and what choosing them needs, and makes them: macros, since shared memory is declared where a kernel begins. */
#if MAX_TOKENS == 1
#define LISTS_SHARED(l)                             \
    SHARED2(uint32_t, expert, WARPS + 1, TOP_K);    \
    SHARED2(uint32_t, begin, WARPS + 1, TOP_K + 1); \
    SHARED2(uint32_t, source, WARPS + 1, TOP_K);    \
    SHARED2(float, weight, WARPS + 1, TOP_K);       \
    struct lists l = {expert[warp_id()], begin[warp_id()], source[warp_id()], weight[warp_id()], 0}
#define LISTS_CHOOSE(p, l) lists_choose_one(p, &(l))
#else
#define LISTS_SHARED(l)                      \
    SHARED(uint32_t, expert, MAX_ACTIVE);    \
    SHARED(uint32_t, begin, MAX_ACTIVE + 1); \
    SHARED(uint32_t, source, MAX_PICKS);     \
    SHARED(float, weight, MAX_PICKS);        \
    SHARED(uint32_t, count, 2);              \
    SHARED(int32_t, ids, MAX_PICKS);         \
    SHARED(float, raw, MAX_PICKS);           \
    SHARED(uint32_t, at_place, MAX_PICKS);   \
    struct lists l = {expert, begin, source, weight, 0}
#define LISTS_CHOOSE(p, l) lists_choose(p, &(l), ids, raw, at_place, count)
#endif

#if MAX_TOKENS == 1
/* One token: its choices are the places. Each warp for itself, l in memory of its own. */
DEVICE void lists_choose_one(const struct moe_few_params *p, struct lists *l)
{
    const uint32_t lane = lane_id();
    int32_t id;
    float weight;
    moe_route_token((const float *)p->logits, (const float *)p->route_bias, &id, &weight);
    l->n = popcount_u32(warp_ballot(FULL_WARP, lane < TOP_K && id >= 0)); /* what NaN left out comes last */
    if (lane < l->n) l->expert[lane] = (uint32_t)id, l->source[lane] = lane, l->weight[lane] = weight;
    if (lane <= l->n) l->begin[lane] = lane;
    if (GATED && block_x() == 0 && warp_id() == 0 && lane < TOP_K) ((int32_t *)p->ids)[lane] = id, ((float *)p->chosen)[lane] = weight;
    warp_sync(FULL_WARP);
}
#else
/* All threads. ids, raw: [MAX_PICKS]; at: the expert of a place; n: two words. */
DEVICE void lists_choose(const struct moe_few_params *p, struct lists *l, int32_t *ids, float *raw, uint32_t *at, uint32_t *n)
{
    const uint32_t warp = warp_id(), lane = lane_id(), i = thread_x(), picks = p->tokens * TOP_K;
    UNROLL_N(1) for (uint32_t t = warp; t < p->tokens; t += WARPS + 1)
    {
        int32_t id;
        float weight;
        moe_route_token((const float *)p->logits + t * p->logits_stride, (const float *)p->route_bias, &id, &weight);
        if (lane < TOP_K) ids[t * TOP_K + lane] = id, raw[t * TOP_K + lane] = weight;
    }
    block_sync();
    /* A pick's place: how many picks have a lower expert, or the same and come before. */
    if (i < picks) {
        const int32_t e = ids[i];
        uint32_t place = 0, valid = 0;
        UNROLL_N(8) for (uint32_t j = 0; j < picks; j++)
        {
            int32_t other = ids[j];
            valid += other >= 0;
            place += other >= 0 && (other < e || (other == e && j < i));
        }
        if (e >= 0) l->source[place] = i, l->weight[place] = raw[i], at[place] = (uint32_t)e;
        if (i == 0) n[1] = valid;
    }
    block_sync();
    if (warp == 0) {
        uint32_t found = 0, valid = n[1];
        UNROLL_N(1) for (uint32_t from = 0; from < valid; from += WARP)
        {
            uint32_t place = from + lane;
            bool first = place < valid && (place == 0 || at[place] != at[place - 1]);
            uint32_t all = warp_ballot(FULL_WARP, first), index = found + popcount_u32(all & ((1u << lane) - 1));
            if (first) l->expert[index] = at[place], l->begin[index] = place;
            found += popcount_u32(all);
        }
        if (lane == 0) l->begin[found] = valid, n[0] = found;
    }
    block_sync();
    l->n = n[0];
    if (GATED && block_x() == 0)
        for (uint32_t j = thread_x(); j < picks; j += THREADS) ((int32_t *)p->ids)[j] = ids[j], ((float *)p->chosen)[j] = raw[j];
}
#endif

/* y of this block's 16 columns, sum: [WARPS][MAX_TOKENS][16]. All consumers. */
DEVICE void few_total(const struct moe_few_params *p, const float *sum)
{
    for (uint32_t i = thread_x(); i < p->tokens * 16; i += CONSUMERS) {
        uint32_t row = block_x() * 16 + i % 16;
        if (row >= N) continue;
        float total = 0.0f;
        UNROLL for (uint32_t w = 0; w < WARPS; w++) total += sum[w * (MAX_TOKENS * 16) + i];
        element *y = (element *)p->y + (uint64_t)(i / 16) * p->y_stride + row;
        total *= ALPHA;
        if (ACCUMULATE) total += element_to_f32(*y);
        *y = f32_to_element(total);
    }
}

#endif
