/* The choice of a token's experts by one warp; the rules are those of kernels/cpu/moe.c. Expert e is the
 * business of lane e % 32. Constants: EXPERTS (<= 1024), TOP_K (<= 32), SCORE (0 softmax, 1 sigmoid, 2
 * softmax over the chosen), BIAS (0, 1), GROUPS and TOP_GROUPS (GROUPS <= 32; 0 or 1: none), NORMALIZE, SCALE
 * (float). */
#ifndef ROSE_CUDA_MOE_ROUTER_CUH
#define ROSE_CUDA_MOE_ROUTER_CUH

#include "kernels/cuda/common/rose.cuh"

#ifndef MOE_LOGIT
#define MOE_LOGIT(p) (*(p)) /* how a logit is loaded */
#endif
#define MOE_VPT ((EXPERTS + WARP - 1) / WARP)
STATIC_ASSERT(EXPERTS <= 1024 && TOP_K <= 32 && TOP_K <= EXPERTS && GROUPS <= 32,
              "more than a warp's registers hold");

/* Rises with x; equal for both zeros; 0 for NaN, which is never chosen. */
DEVICE uint32_t moe_key(float x)
{
    uint32_t u = f32_bits(x + 0.0f);
    return x != x ? 0 : u & 0x80000000u ? ~u : u | 0x80000000u;
}

DEVICE void moe_scores(const float *logits, float *score)
{
    float most = -INF_F32, sum = 0.0f;
    UNROLL for (uint32_t v = 0; v < MOE_VPT; v++)
    {
        uint32_t e = v * WARP + lane_id();
        score[v] = e < EXPERTS ? MOE_LOGIT(logits + e) : -INF_F32;
        most = score[v] > most ? score[v] : most;
    }
    if (SCORE == 1)
        UNROLL for (uint32_t v = 0; v < MOE_VPT; v++) score[v] = rcp_f32(1.0f + exp_f32(-score[v]));
    if (SCORE != 0) return;
    most = warp_max_f32(most, WARP);
    UNROLL for (uint32_t v = 0; v < MOE_VPT; v++)
    {
        score[v] = v * WARP + lane_id() < EXPERTS ? exp_f32(score[v] - most) : 0.0f;
        sum += score[v];
    }
    sum = warp_sum_f32(sum, WARP);
    sum = rcp_f32(sum);
    UNROLL for (uint32_t v = 0; v < MOE_VPT; v++) score[v] *= sum;
}

#if GROUPS > 1 && TOP_GROUPS < GROUPS
#define MOE_GROUP_VPT (EXPERTS / GROUPS / 32) /* where a group is whole vectors */
/* The float of a key; what is never chosen is below all. */
DEVICE float moe_unkey(uint32_t key)
{
    return key == 0 ? -INF_F32 : f32_from_bits(key & 0x80000000u ? key ^ 0x80000000u : ~key);
}
/* Only experts of the best TOP_GROUPS groups keep their keys. A group is as good as its best expert, with a
 * selection bias as its two best together. */
DEVICE void moe_limit_groups(const float *choice, uint32_t *key)
{
    uint32_t lane = lane_id(), mine = 0, chosen = 0;
#if EXPERTS / GROUPS % 32 == 0
    /* Whole vectors of lanes: all groups' reductions overlap. */
    UNROLL for (uint32_t g = 0; g < GROUPS; g++)
    {
        uint32_t best = 0, second = 0;
        UNROLL for (uint32_t v = g * MOE_GROUP_VPT; v < (g + 1) * MOE_GROUP_VPT; v++)
        {
            second = key[v] > best ? best : max_u32(second, key[v]);
            best = max_u32(best, key[v]);
        }
        uint32_t most = redux_max_u32(FULL_WARP, best);
        float value = moe_unkey(most);
        if (BIAS) {
            uint32_t owner = ffs_u32(warp_ballot(FULL_WARP, best == most)) - 1;
            value += moe_unkey(redux_max_u32(FULL_WARP, lane == owner ? second : best));
        }
        if (lane == g) mine = max_u32(moe_key(value), 1);
    }
#else
    UNROLL_N(1) for (uint32_t g = 0; g < GROUPS; g++)
    {
        float first = -INF_F32, second = -INF_F32;
        UNROLL for (uint32_t v = 0; v < MOE_VPT; v++)
        {
            uint32_t e = v * WARP + lane;
            if (e < EXPERTS && e / (EXPERTS / GROUPS) == g && choice[v] > second) {
                second = choice[v] > first ? first : choice[v];
                first = choice[v] > first ? choice[v] : first;
            }
        }
        UNROLL for (uint32_t m = WARP / 2; m; m /= 2)
        {
            float f = shuffle_xor_f32(FULL_WARP, first, m, WARP),
                  s = shuffle_xor_f32(FULL_WARP, second, m, WARP);
            float low = f < first ? f : first, high = s > second ? s : second;
            first = f > first ? f : first;
            second = low > high ? low : high;
        }
        if (lane == g) mine = max_u32(moe_key(BIAS && EXPERTS / GROUPS > 1 ? first + second : first), 1);
    }
#endif
    UNROLL_N(1) for (uint32_t i = 0; i < TOP_GROUPS; i++)
    {
        uint32_t best = redux_max_u32(FULL_WARP, mine);
        uint32_t g = redux_min_u32(FULL_WARP, mine == best ? lane : WARP);
        chosen |= 1u << g;
        if (lane == g) mine = 0;
    }
    UNROLL for (uint32_t v = 0; v < MOE_VPT; v++)
    {
        uint32_t e = v * WARP + lane;
        if (e < EXPERTS && !(chosen >> (e / (EXPERTS / GROUPS)) & 1)) key[v] = moe_key(-INF_F32);
    }
}
#endif

#if EXPERTS <= 8 * 32
/* Lane i < TOP_K gets choice i. Each lane sorts its own experts once; then a choice is the best of 32 heads, and the lane it came
 * from moves up. */
DEVICE void moe_choose_sorted(float *score, uint32_t *key, int32_t *id, float *weight)
{
    uint32_t at[MOE_VPT], lane = lane_id();
    UNROLL for (uint32_t v = 0; v < MOE_VPT; v++) at[v] = v * WARP + lane;
    /* Neighbours only, and never equals: the lower expert stays first. */
    UNROLL for (uint32_t i = 0; i + 1 < MOE_VPT; i++)
    {
        UNROLL for (uint32_t j = 0; j + 1 < MOE_VPT - i; j++)
        {
            const bool swap = key[j + 1] > key[j];
            const uint32_t k = key[j], a = at[j];
            key[j] = swap ? key[j + 1] : k, key[j + 1] = swap ? k : key[j + 1];
            at[j] = swap ? at[j + 1] : a, at[j + 1] = swap ? a : at[j + 1];
            const float s = score[j];
            score[j] = swap ? score[j + 1] : s, score[j + 1] = swap ? s : score[j + 1];
        }
    }
    UNROLL_N(1) for (uint32_t i = 0; i < TOP_K; i++)
    {
        const uint32_t most = redux_max_u32(FULL_WARP, key[0]);
        uint32_t who = warp_ballot(FULL_WARP, key[0] == most), from = ffs_u32(who) - 1;
        if (who & (who - 1)) from = redux_min_u32(FULL_WARP, key[0] == most ? at[0] : 0xffffffffu) % WARP;
        const uint32_t e = shuffle_u32(FULL_WARP, at[0], from, WARP);
        const float s = shuffle_f32(FULL_WARP, score[0], from, WARP);
        if (lane == i && most) *id = (int32_t)e, *weight = s;
        if (lane == from) {
            UNROLL for (uint32_t v = 0; v + 1 < MOE_VPT; v++) key[v] = key[v + 1], at[v] = at[v + 1], score[v] = score[v + 1];
            key[MOE_VPT - 1] = 0;
        }
    }
}
#endif

/* Lane i < TOP_K gets choice i. */
DEVICE void moe_route_token(const float *logits, const float *bias, int32_t *id, float *weight)
{
    float score[MOE_VPT], choice[MOE_VPT];
    uint32_t key[MOE_VPT], lane = lane_id();
    moe_scores(logits, score);
    UNROLL for (uint32_t v = 0; v < MOE_VPT; v++)
    {
        uint32_t e = v * WARP + lane;
        choice[v] = BIAS && e < EXPERTS ? score[v] + bias[e] : score[v];
        key[v] = e < EXPERTS ? moe_key(choice[v]) : 0;
    }
#if GROUPS > 1 && TOP_GROUPS < GROUPS
    moe_limit_groups(choice, key);
#endif
    *id = -1;
    *weight = 0.0f;
#if EXPERTS <= 8 * 32
    moe_choose_sorted(score, key, id, weight);
#else
    UNROLL_N(1) for (uint32_t i = 0; i < TOP_K; i++)
    {
        uint32_t best = 0, at = 0xffffffffu;
        float mine = 0.0f;
        UNROLL for (uint32_t v = 0; v < MOE_VPT; v++)
        {
            if (key[v] > best) at = v * WARP + lane; /* of equals the lower expert, so not >= */
            best = max_u32(best, key[v]);
        }
        uint32_t most = redux_max_u32(FULL_WARP, best);
        uint32_t e = redux_min_u32(FULL_WARP, best == most ? at : 0xffffffffu);
        UNROLL for (uint32_t v = 0; v < MOE_VPT; v++)
        {
            if (v * WARP + lane == e) mine = score[v], key[v] = 0;
        }
        mine = shuffle_f32(FULL_WARP, mine, e % WARP, WARP);
        if (lane == i && most) *id = (int32_t)e, *weight = mine;
    }
#endif
    if (SCORE == 2) {
        float top = shuffle_f32(FULL_WARP, *weight, 0, WARP);
        *weight = *id < 0 ? 0.0f : exp_f32(*weight - top);
    }
    float sum = 0.0f;
    UNROLL for (uint32_t i = 0; i < TOP_K; i++) sum += shuffle_f32(FULL_WARP, *weight, i, WARP);
    *weight *= (NORMALIZE || SCORE == 2) && sum > 0.0f ? div_f32(SCALE, sum) : SCALE;
}

/* Padded places of the experts from their counts, by warp 0: begin[e], and begin[EXPERTS] the end. */
DEVICE void moe_begin(const uint32_t *count, uint32_t *begin)
{
    uint32_t padded[MOE_VPT], sum = 0, lane = lane_id();
    UNROLL for (uint32_t v = 0; v < MOE_VPT; v++) /* here a lane has consecutive experts */
    {
        uint32_t e = lane * MOE_VPT + v;
        padded[v] = e < EXPERTS ? ceil_div_u32(count[e], PAD) * PAD : 0;
        sum += padded[v];
    }
    uint32_t at = warp_scan_u32(sum) - sum;
    UNROLL for (uint32_t v = 0; v < MOE_VPT; v++)
    {
        uint32_t e = lane * MOE_VPT + v;
        if (e < EXPERTS) begin[e] = at;
        at += padded[v];
    }
    if (lane == WARP - 1) begin[EXPERTS] = at;
}

#endif
