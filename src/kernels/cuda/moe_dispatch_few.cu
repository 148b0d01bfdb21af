// arch: sm_90a sm_100a sm_120a
/* At most MAX_TOKENS tokens: routing, places and copies in one launch, without a barrier of the grid.
 *
 *     route    a token by COLS threads, an expert a thread: its place among the chosen is the number of keys before its own. CLUSTER
 *              blocks share the tokens and tell each other the ids; one token needs no cluster, every block routes it
 *     places   a warp a pick: ids below its expert, and equal ones before it, say where it goes; nobody counts or scans experts
 *     copy     a block takes a slice of a token's row
 *
 * Offsets and counts go out last, a piece a block of the first cluster. Groups of experts (GROUPS > 1) are warps.
 *
 * Constants: EXPERTS (at most 512) TOP_K SCORE BIAS GROUPS TOP_GROUPS NORMALIZE SCALE as moe_router.cuh has them; PAD (1 or at least
 * MAX_TOKENS), HIDDEN, THREADS (a multiple of COLS), OUT, MAX_TOKENS, CLUSTER (1 with MAX_TOKENS 1, else 8). */
#include "kernels/cuda/common/cluster.cuh"
#include "kernels/cuda/moe_rows.cuh"

#define COLS ((EXPERTS + 31) / 32 * 32)
#define BANDS (COLS / 32) /* warps of a token; with GROUPS its groups */
#define TEAMS (THREADS / COLS)
#define WARPS (THREADS / WARP)
#define PICKS (MAX_TOKENS * TOP_K)
#define WORDS ((EXPERTS + 31) / 32)
#define PIECES 8 /* blocks that write offsets */
#define LIMITED (GROUPS > 1 && TOP_GROUPS < GROUPS)
#define LOWEST 0x007fffffu /* the key of minus infinity: an expert of a group that was left out */
STATIC_ASSERT(!LIMITED || EXPERTS == GROUPS * 32, "a group is a warp");
STATIC_ASSERT(PAD == 1 || PAD >= MAX_TOKENS, "an expert has at most one piece of padding");

DEVICE uint32_t few_key(float x)
{
    uint32_t u = f32_bits(x + 0.0f);
    return x != x ? 0 : u & 0x80000000u ? ~u : u | 0x80000000u;
}
DEVICE float few_unkey(uint32_t key)
{
    return key == 0 ? -INF_F32 : f32_from_bits(key & 0x80000000u ? key ^ 0x80000000u : ~key);
}

struct team { /* of a token: shared memory */
    uint32_t *keys;       /* [COLS] */
    float *part;          /* [2][BANDS] */
    uint32_t *group;      /* [BANDS] keys of groups */
    uint32_t *valid;      /* [BANDS] experts of a group that may be chosen */
    int32_t *ids;         /* [TOP_K] */
    float *raw;           /* [TOP_K] */
};

/* Softmax over all experts of a token. Everybody in the block calls. */
DEVICE float few_softmax(const struct team *m, float logit, uint32_t band)
{
    float most = warp_max_f32(logit != logit ? -INF_F32 : logit, WARP), sum;
    if (lane_id() == 0) m->part[band] = most;
    block_sync();
    UNROLL for (uint32_t i = 0; i < BANDS; i++) most = max_f32(most, m->part[i]);
    const float e = exp_f32(logit - most);
    sum = warp_sum_f32(e, WARP);
    if (lane_id() == 0) m->part[BANDS + band] = sum;
    block_sync();
    sum = 0;
    UNROLL for (uint32_t i = 0; i < BANDS; i++) sum += m->part[BANDS + i];
    return e * rcp_f32(sum);
}

/* A group is as good as its best expert, with a selection bias as its two best together; returns the TOP_GROUPS best as bits. */
DEVICE uint32_t few_groups(const struct team *m, uint32_t key, uint32_t band)
{
    const uint32_t lane = lane_id(), most = redux_max_u32(FULL_WARP, key);
    float value = few_unkey(most);
    if (BIAS) {
        const uint32_t owner = ffs_u32(warp_ballot(FULL_WARP, key == most)) - 1;
        value += few_unkey(redux_max_u32(FULL_WARP, lane == owner ? 0 : key));
    }
    const uint32_t valid = popcount_u32(warp_ballot(FULL_WARP, key > LOWEST));
    if (lane == 0) m->group[band] = max_u32(few_key(value), 1), m->valid[band] = valid;
    block_sync();
    /* Every warp sees for itself which are kept: lane g how many groups come before group g. */
    const uint32_t mine = lane < BANDS ? m->group[lane] : 0;
    uint32_t before = lane < BANDS ? 0 : TOP_GROUPS;
    UNROLL for (uint32_t g = 0; g < BANDS; g++)
    {
        const uint32_t other = shuffle_u32(FULL_WARP, mine, g, WARP);
        before += other > mine || (other == mine && g < lane);
    }
    return warp_ballot(FULL_WARP, before < TOP_GROUPS);
}

/* Keys of a band that come before `key`: larger, with `equal` as large too. */
DEVICE uint32_t few_before(const uint32_t *keys, uint32_t key, bool equal)
{
    const uint32_t bound = equal ? key - 1 : key; /* key > 0 */
    uint32_t n = 0;
    UNROLL for (int i = 0; i < 32; i += 4)
    {
        u32x4 k = ld16(keys + i);
        UNROLL for (int j = 0; j < 4; j++) n += k.v[j] > bound;
    }
    return n;
}

/* Token t by the team; ids and raw scores into the team's memory. Everybody in the block calls, t beyond the tokens or not. */
DEVICE void few_route(const struct moe_dispatch_params *p, const struct team *m, uint32_t t, uint32_t e)
{
    const uint32_t band = e / 32;
    const bool live = t < (uint32_t)p->tokens && e < EXPERTS;
    float score = live ? ((const float *)p->logits)[t * p->logits_stride + e] : -INF_F32, choice;
    const float add = BIAS && live ? ((const float *)p->bias)[e] : 0.0f;
    if (e < TOP_K) m->ids[e] = -1, m->raw[e] = 0.0f;
    if (SCORE == 0) score = few_softmax(m, score, band);
    if (SCORE == 1) score = rcp_f32(1.0f + exp_f32(-score));
    choice = BIAS ? score + add : score;
    uint32_t key = live ? few_key(choice) : 0, kept = ~0u;
#if LIMITED
    kept = few_groups(m, key, band);
    /* Experts of the groups that were left out come into play only when too few others are numbers. */
    const bool enough = redux_add_u32(FULL_WARP, kept >> lane_id() & 1 ? m->valid[lane_id()] : 0) >= TOP_K;
    if (!enough && !(kept >> band & 1)) key = min_u32(key, LOWEST);
    if (!enough) kept = ~0u;
#endif
    m->keys[e] = key;
    uint32_t place = popcount_u32(warp_match(FULL_WARP, key) & ((1u << lane_id()) - 1));
    block_sync();
    if (kept >> band & 1) {
        UNROLL_N(1) for (uint32_t b = 0; b < BANDS; b++)
            if (kept >> b & 1) place += few_before(m->keys + b * 32, key, b < band);
        if (key != 0 && place < TOP_K) m->ids[place] = (int32_t)e, m->raw[place] = score;
    }
    block_sync();
}

/* Lane i < TOP_K: the weight of choice i, as moe_router.cuh has it. */
DEVICE float few_weight(int32_t id, float raw)
{
    float weight = id < 0 ? 0.0f : raw, sum = 0.0f;
    if (SCORE == 2) {
        float top = shuffle_f32(FULL_WARP, weight, 0, WARP);
        weight = id < 0 ? 0.0f : exp_f32(weight - top);
    }
    UNROLL for (uint32_t i = 0; i < TOP_K; i++) sum += shuffle_f32(FULL_WARP, weight, i, WARP);
    return weight * ((NORMALIZE || SCORE == 2) && sum > 0.0f ? div_f32(SCALE, sum) : SCALE);
}

/* Where the picks of expert e begin, and how many there are. */
DEVICE uint32_t few_begin(const int32_t *ids, const uint32_t *bitmap, uint32_t picks, uint32_t e, uint32_t *count)
{
    uint32_t less = 0, same = 0;
    UNROLL_N(4) for (uint32_t i = 0; i < picks; i++)
    {
        const int32_t id = ids[i];
        less += id >= 0 && id < (int32_t)e;
        same += id == (int32_t)e;
    }
    *count = same;
    if (PAD == 1 || CLUSTER == 1) return less * PAD;
    uint32_t n = 0;
    UNROLL for (uint32_t w = 0; w < WORDS; w++) n += popcount_u32(w < e / 32 ? bitmap[w] : w == e / 32 ? bitmap[w] & ((1u << e % 32) - 1) : 0);
    return n * PAD;
}

KERNEL(moe_dispatch_few, struct moe_dispatch_params, p, THREADS, 1)
{
    SHARED(u32x4, keys, TEAMS * COLS / 4);
    SHARED(float, part, TEAMS * 2 * BANDS);
    SHARED(uint32_t, groups, TEAMS * 2 * BANDS);
    SHARED(int32_t, chosen, TEAMS * TOP_K);
    SHARED(float, raw, TEAMS * TOP_K);
    SHARED(int32_t, shared_ids, CLUSTER > 1 ? PICKS : 1);
    int32_t *const ids = CLUSTER > 1 ? shared_ids : chosen;
    SHARED(uint32_t, bitmap, WORDS);
    SHARED(int32_t, place, TOP_K);
    const uint32_t lane = lane_id(), warp = warp_id(), tokens = (uint32_t)p.tokens, slices = (uint32_t)p.slices, picks = tokens * TOP_K;
    const uint32_t team = thread_x() / COLS, e = thread_x() % COLS, band = e / 32, rank = CLUSTER > 1 ? block_x() % CLUSTER : 0;
    const uint32_t own = block_x() / slices, slice = block_x() % slices;
    const struct team m = {(uint32_t *)keys + team * COLS, part + team * 2 * BANDS, groups + team * 2 * BANDS, groups + team * 2 * BANDS + BANDS,
                           chosen + team * TOP_K, raw + team * TOP_K};
    if (CLUSTER > 1) cluster_arrive(); /* I run: others may write here after they have waited */
    grid_dependency_wait();
    grid_dependency_launch();

    /* The vector to copy is on its way while the block routes; threads beyond the slice take other places of the same vectors. */
    const uint32_t begin = moe_slice(slice, slices), width = moe_slice(slice + 1, slices) - begin;
    const uint32_t span = max_u32((width + 31) / 32 * 32, 32), lanes = span < THREADS ? THREADS / span : 1, mine = thread_x() / span;
    const uint32_t at = span < THREADS ? thread_x() % span : thread_x();
    const element *const row = (const element *)p.x + (uint64_t)own * p.x_stride;
    vec first = vec_zero();
    if (own < tokens && at < width) first = ld16(row + (begin + at) * 8);
    for (uint32_t w = thread_x(); CLUSTER > 1 && w < WORDS; w += THREADS) bitmap[w] = 0;

    UNROLL_N(1) for (uint32_t from = 0; from < MAX_TOKENS; from += CLUSTER * TEAMS)
    {
        const uint32_t t = from + rank * TEAMS + team;
        if (from >= tokens) break;
        few_route(&p, &m, t, e);
        if (CLUSTER > 1 && from == 0) cluster_wait();
        if (CLUSTER > 1 && t < tokens && e < TOP_K) {
            UNROLL for (uint32_t r = 0; r < CLUSTER; r++) *(int32_t *)cluster_map(ids + t * TOP_K + e, r) = m.ids[e];
        }
        if (block_x() < CLUSTER && t < tokens && band == BANDS - 1) { /* a warp that has the least to copy */
            const int32_t id = lane < TOP_K ? m.ids[lane] : -1;
            const float weight = few_weight(id, lane < TOP_K ? m.raw[lane] : 0.0f);
            if (lane < TOP_K) {
                ((int32_t *)p.ids)[t * TOP_K + lane] = id;
                ((float *)p.weights)[t * TOP_K + lane] = weight;
            }
        }
        if (CLUSTER * TEAMS < MAX_TOKENS) block_sync(); /* before the team's memory is used again */
    }
    if (CLUSTER > 1) {
        cluster_sync();
        for (uint32_t i = thread_x(); PAD > 1 && i < picks; i += THREADS)
            if (ids[i] >= 0) red_or_b32(relaxed, cta, &bitmap[ids[i] / 32], 1u << ids[i] % 32);
        if (PAD > 1) block_sync();
    }

    if (CLUSTER == 1 && thread_x() < TOP_K) { /* one token: a pick's place is the number of lower experts */
        const int32_t id = ids[thread_x()];
        uint32_t less = 0;
        UNROLL for (uint32_t i = 0; i < TOP_K; i++) less += ids[i] >= 0 && ids[i] < id;
        place[thread_x()] = id < 0 ? -1 : (int32_t)(less * PAD);
        if (block_x() == 0) ((int32_t *)p.position)[thread_x()] = place[thread_x()];
    }
    if (CLUSTER > 1 && own < tokens) {
        for (uint32_t j = warp; j < TOP_K; j += WARPS) {
            const int32_t id = ids[own * TOP_K + j];
            uint32_t less = 0, before = 0;
            for (uint32_t i = lane; i < picks; i += WARP) {
                const int32_t other = ids[i];
                less += PAD == 1 && other >= 0 && other < id;
                before += other == id && i < own * TOP_K;
            }
            if (PAD > 1 && lane < WORDS)
                less = PAD * popcount_u32((int32_t)lane < id / 32 ? bitmap[lane] : (int32_t)lane == id / 32 ? bitmap[lane] & ((1u << id % 32) - 1) : 0);
            const uint32_t sum = redux_add_u32(FULL_WARP, less + before);
            if (lane == 0) {
                place[j] = id < 0 ? -1 : (int32_t)sum;
                if (slice == 0) ((int32_t *)p.position)[own * TOP_K + j] = place[j];
            }
        }
    }
    block_sync();
    if (own < tokens && mine < lanes) {
        moe_put(&p, first, begin + at, at < width, place, mine, lanes);
        for (uint32_t v = at + THREADS; v - lane < width; v += THREADS) /* slices wider than the block */
            moe_put(&p, v < width ? ld16(row + (begin + v) * 8) : vec_zero(), begin + v, v < width, place, 0, 1);
    }
    if (block_x() < PIECES) {
        const uint32_t to = (block_x() + 1) * (EXPERTS + 1) / PIECES;
        for (uint32_t i = block_x() * (EXPERTS + 1) / PIECES + thread_x(); i < to; i += THREADS) {
            uint32_t count;
            ((uint32_t *)p.offsets)[i] = few_begin(ids, bitmap, picks, i, &count);
            if (i < EXPERTS) ((uint32_t *)p.counts)[i] = count;
        }
    }
}
