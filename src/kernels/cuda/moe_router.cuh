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

/* Scores of the lane's experts; the approximate functions are off by 2^-22, less than logits of bf16 products are. */
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
        UNROLL for (uint32_t v = 0; v < MOE_VPT; v++) score[v] = rcp_approx(1.0f + exp_approx(-score[v]));
    if (SCORE != 0) return;
    most = warp_max_f32(most, WARP);
    UNROLL for (uint32_t v = 0; v < MOE_VPT; v++)
    {
        score[v] = v * WARP + lane_id() < EXPERTS ? exp_approx(score[v] - most) : 0.0f;
        sum += score[v];
    }
    sum = rcp_approx(warp_sum_f32(sum, WARP));
    UNROLL for (uint32_t v = 0; v < MOE_VPT; v++) score[v] *= sum;
}

#if GROUPS > 1 && TOP_GROUPS < GROUPS
#define MOE_LIMITED 1
#define MOE_GROUP_VPT (EXPERTS / GROUPS / 32) /* where a group is whole vectors */
#define MOE_LOWEST 0x007fffffu                /* the key of minus infinity */
/* The float of a key; what is never chosen is below all. */
DEVICE float moe_unkey(uint32_t key)
{
    return key == 0 ? -INF_F32 : f32_from_bits(key & 0x80000000u ? key ^ 0x80000000u : ~key);
}
/* The best TOP_GROUPS groups, as bits. A group is as good as its best expert, with a selection bias as its two best together. */
DEVICE uint32_t moe_best_groups(const float *choice, const uint32_t *key)
{
    uint32_t lane = lane_id(), mine = 0, before = 0;
#if EXPERTS / GROUPS % 32 == 0
    /* Whole vectors of lanes: all groups' reductions overlap; lane g keeps those of group g. */
    uint32_t first = 0, other = 0;
    UNROLL for (uint32_t g = 0; g < GROUPS; g++)
    {
        uint32_t best = 0, second = 0;
        UNROLL for (uint32_t v = g * MOE_GROUP_VPT; v < (g + 1) * MOE_GROUP_VPT; v++)
        {
            second = key[v] > best ? best : max_u32(second, key[v]);
            best = max_u32(best, key[v]);
        }
        const uint32_t most = redux_max_u32(FULL_WARP, best);
        first = lane == g ? most : first;
        if (!BIAS) continue;
        const uint32_t has = warp_ballot(FULL_WARP, best == most), next = redux_max_u32(FULL_WARP, best == most ? second : best);
        other = lane == g ? (has & (has - 1) ? most : next) : other; /* two lanes hold it: the second best is as good */
    }
    if (lane < GROUPS) mine = max_u32(moe_key(BIAS ? moe_unkey(first) + moe_unkey(other) : moe_unkey(first)), 1);
    (void)choice;
#else
    (void)key;
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
        UNROLL_N(1) for (uint32_t m = WARP / 2; m; m /= 2)
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
    /* How many groups come before group `lane`. */
    UNROLL for (uint32_t g = 0; g < GROUPS; g++)
    {
        const uint32_t other_mine = shuffle_u32(FULL_WARP, mine, g, WARP);
        before += other_mine > mine || (other_mine == mine && g < lane);
    }
    return warp_ballot(FULL_WARP, lane < GROUPS && before < TOP_GROUPS);
}
#else
#define MOE_LIMITED 0
#endif

/* Vectors of a lane that a choice is made of: where groups are whole vectors those of the groups that are kept, else all. */
#if MOE_LIMITED && EXPERTS / GROUPS % 32 == 0
#define MOE_HEADS (TOP_GROUPS * (EXPERTS / GROUPS / 32))
#else
#define MOE_HEADS MOE_VPT
#endif

/* Lane i gets choice i of those in key and at (experts by falling key, of equals the lower expert first); returns how many there are,
 * at most TOP_K. Each lane sorts its own once; then a choice is the best of 32 heads, and the lane it came from moves up. Without the
 * sort, where a lane has many, a head is the best of what is left. */
DEVICE uint32_t moe_choose(uint32_t *key, uint32_t *at, int32_t *id)
{
    const uint32_t lane = lane_id();
#if MOE_HEADS <= 8
    /* Neighbours only, and never equals: the lower expert stays first. */
    UNROLL for (uint32_t i = 0; i + 1 < MOE_HEADS; i++)
        UNROLL for (uint32_t j = 0; j + 1 < MOE_HEADS - i; j++)
        {
            const bool swap = key[j + 1] > key[j];
            const uint32_t k = key[j], a = at[j];
            key[j] = swap ? key[j + 1] : k, key[j + 1] = swap ? k : key[j + 1];
            at[j] = swap ? at[j + 1] : a, at[j + 1] = swap ? a : at[j + 1];
        }
#endif
    UNROLL_N(1) for (uint32_t i = 0; i < TOP_K; i++)
    {
        uint32_t best = key[0], where = at[0];
#if MOE_HEADS > 8
        UNROLL for (uint32_t v = 1; v < MOE_HEADS; v++)
        {
            where = key[v] > best ? at[v] : where; /* of equals the lower expert, so not >= */
            best = max_u32(best, key[v]);
        }
#endif
        const uint32_t most = redux_max_u32(FULL_WARP, best);
        uint32_t who = warp_ballot(FULL_WARP, best == most), e;
        if (most == 0) return i;
        if (who & (who - 1)) {
            e = redux_min_u32(FULL_WARP, best == most ? where : 0xffffffffu);
            who = warp_ballot(FULL_WARP, best == most && where == e);
        }
        e = shuffle_u32(FULL_WARP, where, ffs_u32(who) - 1, WARP);
        if (lane == i) *id = (int32_t)e;
        if (!(who >> lane & 1)) continue;
#if MOE_HEADS > 8
        UNROLL for (uint32_t v = 0; v < MOE_HEADS; v++) key[v] = at[v] == e ? 0 : key[v];
#else
        UNROLL for (uint32_t v = 0; v + 1 < MOE_HEADS; v++) key[v] = key[v + 1], at[v] = at[v + 1];
        key[MOE_HEADS - 1] = 0;
#endif
    }
    return TOP_K;
}

/* The score of expert e, which another lane holds; e differs from lane to lane. */
DEVICE float moe_score_of(const float *score, int32_t e)
{
    float s = 0.0f;
    UNROLL for (uint32_t v = 0; v < MOE_VPT; v++)
    {
        const float other = shuffle_f32(FULL_WARP, score[v], (uint32_t)e % WARP, WARP);
        s = (uint32_t)e / WARP == v ? other : s;
    }
    return s;
}

/* Lane i < TOP_K gets choice i. */
DEVICE void moe_route_token(const float *logits, const float *bias, int32_t *id, float *weight)
{
    float score[MOE_VPT], choice[MOE_VPT];
    uint32_t key[MOE_VPT], head[MOE_HEADS], at[MOE_HEADS], lane = lane_id(), chosen = 0;
    moe_scores(logits, score);
    UNROLL for (uint32_t v = 0; v < MOE_VPT; v++)
    {
        uint32_t e = v * WARP + lane;
        choice[v] = BIAS && e < EXPERTS ? score[v] + bias[e] : score[v];
        key[v] = e < EXPERTS ? moe_key(choice[v]) : 0;
    }
    *id = -1;
#if MOE_LIMITED
    const uint32_t kept = moe_best_groups(choice, key);
#if EXPERTS / GROUPS % 32 == 0
    UNROLL for (uint32_t i = 0; i < MOE_HEADS; i++) head[i] = 0, at[i] = 0;
    UNROLL for (uint32_t v = 0; v < MOE_VPT; v++)
    {
        /* A shift under a branch becomes a memmove, and the arrays memory. */
        const bool take = (kept >> v / MOE_GROUP_VPT & 1) != 0;
        UNROLL for (uint32_t i = 0; i + 1 < MOE_HEADS; i++) head[i] = take ? head[i + 1] : head[i], at[i] = take ? at[i + 1] : at[i];
        head[MOE_HEADS - 1] = take ? (key[v] > MOE_LOWEST ? key[v] : 0) : head[MOE_HEADS - 1];
        at[MOE_HEADS - 1] = take ? v * WARP + lane : at[MOE_HEADS - 1];
    }
#else
    UNROLL for (uint32_t v = 0; v < MOE_VPT; v++)
    {
        at[v] = v * WARP + lane;
        head[v] = key[v] > MOE_LOWEST && (kept >> (at[v] / (EXPERTS / GROUPS)) & 1) ? key[v] : 0;
    }
#endif
    chosen = moe_choose(head, at, id);
    if (chosen < TOP_K) { /* too few numbers in the groups that are kept: what counts as minus infinity, the lowest expert first */
        uint32_t pending = 0;
        UNROLL for (uint32_t v = 0; v < MOE_VPT; v++)
        {
            const uint32_t e = v * WARP + lane;
            const bool in = (kept >> (e / (EXPERTS / GROUPS)) & 1) != 0;
            pending |= (uint32_t)(e < EXPERTS && (!in || (key[v] != 0 && key[v] <= MOE_LOWEST))) << v;
        }
        UNROLL_N(1) for (uint32_t v = 0; v < MOE_VPT; v++)
        {
            const uint32_t left = warp_ballot(FULL_WARP, pending >> v & 1);
            UNROLL_N(1) for (uint32_t rest = left; rest && chosen < TOP_K; rest &= rest - 1, chosen++)
                if (lane == chosen) *id = (int32_t)(v * WARP + ffs_u32(rest) - 1);
        }
    }
#else
    UNROLL for (uint32_t v = 0; v < MOE_VPT; v++) head[v] = key[v], at[v] = v * WARP + lane;
    chosen = moe_choose(head, at, id);
#endif
    (void)chosen;
    const float own = moe_score_of(score, *id);
    *weight = *id < 0 ? 0.0f : own;
    if (SCORE == 2) {
        float top = shuffle_f32(FULL_WARP, *weight, 0, WARP);
        *weight = *id < 0 ? 0.0f : exp_approx(*weight - top);
    }
    const float sum = warp_sum_f32(*weight, TOP_K <= 8 ? 8 : WARP);
    *weight *= (NORMALIZE || SCORE == 2) && sum > 0.0f ? SCALE * rcp_approx(sum) : SCALE;
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
