// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* Experts' products for few tokens: every touched expert's weights stream once through shared memory, as deep as it allows,
 * and meet up to eight tokens at a time in mma tiles (weights the m16 operand, tokens the n8 one).
 *
 *     GATED   unit: eight gate and eight up rows of an expert, all k, by one warp; both values of a pair end in one lane,
 *             which applies the activation. Units go round robin over the blocks' warps.
 *     else    a block has 16 rows of y and all active experts; unit: an expert and SEGMENT k, round robin over its warps.
 *             A warp adds weight * product to its own sums [token][row], the block adds up the warps in their order, then
 *             old y: no atomics, and y needs no kernel of its own.
 *
 * A lane copies what it will feed to mma itself (cp.async into its own slots): nothing has to be synchronised, and shared
 * memory is only a deeper register file. Lane (q = lane / 4, c = lane % 4) holds 16 bytes of k c * 8 .. of rows q and q + 8
 * and of token q; that mma numbers k otherwise does not matter as long as both operands agree: registers 0, 1 of the 16
 * bytes make the first k16 step, 2, 3 the second.
 *
 *     a warp's ring   DEPTH x [32 lanes: row q | 32 lanes: row q + 8 | 4 * AT_ONCE lanes: token q], 16 bytes each
 *
 * More than eight tokens of an expert: the unit is repeated for the next eight.
 *
 * ROUTE: each block chooses all tokens' experts for itself, a warp a token: cheaper than a launch that tells it. The second
 * product then depends on the first for its x only: logits are older, so it chooses and fills its ring before
 * grid_dependency_wait.
 *
 * Constants: EXPERTS TOP_K N K GATED ACT EXPERT_BIAS MAX_TOKENS AT_ONCE (tokens a pass, at most 8) DEPTH WARPS SEGMENT ACCUMULATE
 * ALPHA ROUTE; ROUTE: those of moe_router.cuh. */
#include "kernels/cuda/common/rose.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/act.cuh"
#include "kernels/params/moe.h"
#if ROUTE
#define MOE_LOGIT(p) f32_from_bits(ld4_older(p))
#include "kernels/cuda/moe_router.cuh"
#endif

#define THREADS (WARPS * WARP)
#define SLOT (1024 + AT_ONCE * 64)
#define TILES (N / 8)                            /* GATED: units of an expert */
#define SEGMENTS ((K + SEGMENT - 1) / SEGMENT)   /* else */
#define UNITS (GATED ? TILES : SEGMENTS)
#define MAX_PICKS (MAX_TOKENS * TOP_K)
#define MAX_ACTIVE (MAX_PICKS < EXPERTS ? MAX_PICKS : EXPERTS)
STATIC_ASSERT(N % 8 == 0 && K % 8 == 0 && SEGMENT % 32 == 0 && AT_ONCE <= 8 && MAX_TOKENS % AT_ONCE == 0, "shapes do not fit");
STATIC_ASSERT(!ROUTE || MAX_PICKS <= THREADS, "a thread a pick");

/* Who has which places, in shared memory: expert[i] those from begin[i] to begin[i + 1]. */
struct lists {
    uint32_t *expert, *begin, *source; /* source: the pick of a place */
    float *weight;                     /* of a place */
    uint32_t n;
};

#if ROUTE
/* All threads. ids, raw: [MAX_PICKS]; at: the expert of a place; n: one word. */
DEVICE void lists_choose(const struct moe_few_params *p, struct lists *l, int32_t *ids, float *raw, uint32_t *at, uint32_t *n)
{
    const uint32_t warp = warp_id(), lane = lane_id(), i = thread_x(), picks = p->tokens * TOP_K;
    UNROLL_N(1) for (uint32_t t = warp; t < p->tokens; t += WARPS)
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
}
#else
DEVICE void lists_load(const struct moe_few_params *p, struct lists *l, uint32_t *n)
{
    const uint32_t picks = p->tokens * TOP_K, *active = (const uint32_t *)p->active;
    for (uint32_t i = thread_x(); i <= MAX_ACTIVE; i += THREADS) {
        if (i < MAX_ACTIVE) l->expert[i] = active[1 + i];
        l->begin[i] = active[1 + EXPERTS + i];
    }
    for (uint32_t i = thread_x(); i < picks; i += THREADS) {
        uint32_t pick = ((const uint32_t *)p->source)[i];
        l->source[i] = pick;
        if (!GATED) l->weight[i] = ((const float *)p->chosen)[pick];
    }
    if (thread_x() == 0) n[0] = active[0];
    block_sync();
    l->n = n[0];
}
#endif

/* Where the copies stand. */
struct feed {
    const bf16 *a0, *a1, *b;  /* next 16 bytes of this lane */
    uint32_t unit, first, k;  /* first: of the tokens of this pass */
    uint32_t tokens;          /* of the unit's expert */
    bool has_a1, has_b;
};
enum { FEED_WEIGHTS = 1, FEED_TOKENS = 2 };

DEVICE uint32_t unit_k(uint32_t unit)
{
    return GATED ? 0 : unit % SEGMENTS * SEGMENT;
}
DEVICE uint32_t unit_end(uint32_t unit)
{
    return GATED || SEGMENTS == 1 ? K : min_u32(unit_k(unit) + SEGMENT, K);
}

/* The tokens [first, first + AT_ONCE) of a unit. */
DEVICE void feed_pass(struct feed *f, const struct moe_few_params *p, const struct lists *l)
{
    const uint32_t q = lane_id() / 4, c = lane_id() % 4, i = f->unit / UNITS, begin = l->begin[i],
                   row = GATED ? f->unit % TILES * 8 + q : block_x() * 16 + q, k = unit_k(f->unit) + c * 8;
    f->k = unit_k(f->unit);
    f->tokens = l->begin[i + 1] - begin;
    const uint64_t at = (uint64_t)l->expert[i] * p->weight_stride + (uint64_t)row * K + k;
    f->a0 = (const bf16 *)p->weight[0] + at;
    f->a1 = (const bf16 *)p->weight[GATED ? 1 : 0] + at + (GATED ? 0 : 8 * K);
    f->has_a1 = GATED || N % 16 == 0 || row + 8 < N;
    const uint32_t slot = f->first + q;
    f->has_b = q < AT_ONCE && slot < f->tokens;
    uint32_t x = begin + (f->has_b ? slot : 0);
    if (GATED) x = l->source[x] / TOP_K;
    f->b = (const bf16 *)p->x + (uint64_t)x * p->x_stride + k;
}

/* One chunk of 32 k into a slot, if any is left. Closes a group in any case. */
DEVICE void feed_chunk(struct feed *f, const struct moe_few_params *p, const struct lists *l, unsigned char *slot, uint32_t units, uint32_t step,
                       int what)
{
    if (f->unit < units) {
        const uint32_t lane = lane_id(), end = unit_end(f->unit);
        const bool in = K % 32 == 0 || f->k + lane % 4 * 8 < end;
        if (what & FEED_WEIGHTS) {
            cp_async16_zfill(slot + lane * 16, f->a0, in ? 16 : 0);
            cp_async16_zfill(slot + 512 + lane * 16, f->a1, in && f->has_a1 ? 16 : 0);
        }
        if ((what & FEED_TOKENS) && (AT_ONCE == 8 || lane < AT_ONCE * 4)) cp_async16_zfill(slot + 1024 + lane * 16, f->b, in && f->has_b ? 16 : 0);
        f->a0 += 32, f->a1 += 32, f->b += 32, f->k += 32;
        if (f->k >= end) {
            f->first += AT_ONCE;
            if (f->first >= f->tokens) f->first = 0, f->unit += step;
            if (f->unit < units) feed_pass(f, p, l);
        }
    }
    cp_async_commit();
}

/* d += the chunk in a slot. */
DEVICE void multiply(const unsigned char *slot, float d[4])
{
    const uint32_t lane = lane_id();
    u32x4 a0 = ld16(slot + lane * 16), a1 = ld16(slot + 512 + lane * 16), b = {{0, 0, 0, 0}};
    if (AT_ONCE == 8 || lane < AT_ONCE * 4) b = ld16(slot + 1024 + lane * 16);
    UNROLL for (uint32_t i = 0; i < 4; i += 2)
    {
        uint32_t a[4] = {a0.v[i], a1.v[i], a0.v[i + 1], a1.v[i + 1]};
        mma_bf16(d, a, b.v + i);
    }
}

#if GATED
/* Lane (q, c): gate (d[0], d[1]) and up (d[2], d[3]) of row q for tokens 2 c and 2 c + 1 of the pass. */
DEVICE void finish(const struct moe_few_params *p, const struct lists *l, uint32_t unit, uint32_t first, float d[4], float *sum)
{
    const uint32_t q = lane_id() / 4, c = lane_id() % 4, i = unit / UNITS, begin = l->begin[i], tokens = l->begin[i + 1] - begin,
                   row = unit % TILES * 8 + q;
    float gate = 0.0f, up = 0.0f;
    (void)sum;
    if (EXPERT_BIAS) {
        gate = ((const float *)p->bias[0])[(uint64_t)l->expert[i] * N + row];
        up = ((const float *)p->bias[1])[(uint64_t)l->expert[i] * N + row];
    }
    UNROLL for (uint32_t h = 0; h < 2; h++)
    {
        uint32_t slot = first + 2 * c + h;
        if (2 * c + h < AT_ONCE && slot < tokens)
            ((bf16 *)p->y)[(uint64_t)(begin + slot) * N + row] = f32_to_bf16(act_value(ACT, 1.0f, d[h] + gate) * (d[h + 2] + up));
    }
}
#else
/* Lane (q, c): rows q (d[0], d[1]) and q + 8 (d[2], d[3]) for tokens 2 c and 2 c + 1; sum: [MAX_TOKENS][16] of this warp. */
DEVICE void finish(const struct moe_few_params *p, const struct lists *l, uint32_t unit, uint32_t first, float d[4], float *sum)
{
    const uint32_t q = lane_id() / 4, c = lane_id() % 4, i = unit / UNITS, begin = l->begin[i], tokens = l->begin[i + 1] - begin;
    if (EXPERT_BIAS && unit % SEGMENTS == 0) {
        UNROLL for (uint32_t r = 0; r < 2; r++)
        {
            uint32_t row = block_x() * 16 + q + r * 8;
            float bias = row < N ? ((const float *)p->bias[0])[(uint64_t)l->expert[i] * N + row] : 0.0f;
            d[2 * r] += bias, d[2 * r + 1] += bias;
        }
    }
    UNROLL for (uint32_t h = 0; h < 2; h++)
    {
        uint32_t slot = first + 2 * c + h;
        if (2 * c + h < AT_ONCE && slot < tokens) {
            float *to = sum + l->source[begin + slot] / TOP_K * 16 + q, w = l->weight[begin + slot];
            to[0] = fma_f32(w, d[h], to[0]);
            to[8] = fma_f32(w, d[h + 2], to[8]);
        }
    }
    warp_sync(FULL_WARP); /* the next unit's lanes hold other tokens */
}
#endif

KERNEL(moe_few, struct moe_few_params, p, THREADS, 1)
{
    SHARED(uint32_t, expert, MAX_ACTIVE);
    SHARED(uint32_t, begin, MAX_ACTIVE + 1);
    SHARED(uint32_t, source, MAX_PICKS);
    SHARED(float, weight, MAX_PICKS);
    SHARED(uint32_t, count, 2);
    SHARED(float, sum, GATED ? 1 : WARPS * MAX_TOKENS * 16);
    struct lists lists = {expert, begin, source, weight, 0};
    const uint32_t warp = warp_id();
    unsigned char *ring = dynamic_shared() + warp * (DEPTH * SLOT);
    if (!GATED)
        for (uint32_t i = thread_x(); i < WARPS * MAX_TOKENS * 16; i += THREADS) sum[i] = 0.0f;
#if ROUTE
    SHARED(int32_t, ids, MAX_PICKS);
    SHARED(float, raw, MAX_PICKS);
    SHARED(uint32_t, at_place, MAX_PICKS);
    if (GATED) {
        grid_dependency_wait();
        grid_dependency_launch();
    }
    lists_choose(&p, &lists, ids, raw, at_place, count);
    if (GATED && block_x() == 0)
        for (uint32_t i = thread_x(); i < p.tokens * TOP_K; i += THREADS) ((int32_t *)p.ids)[i] = ids[i], ((float *)p.chosen)[i] = raw[i];
#else
    grid_dependency_wait();
    grid_dependency_launch();
    lists_load(&p, &lists, count);
#endif
    const uint32_t units = lists.n * UNITS, step = GATED ? grid_dim_x() * WARPS : WARPS;
    uint32_t unit = GATED ? block_x() + grid_dim_x() * warp : warp, at = 0;
    struct feed feed = {0, 0, 0, unit, 0, 0, 0, false, false};
    if (unit < units) feed_pass(&feed, &p, &lists);
#if ROUTE && !GATED
    struct feed late = feed;
    UNROLL_N(1) for (uint32_t i = 0; i < DEPTH - 1; i++) feed_chunk(&feed, &p, &lists, ring + i * SLOT, units, step, FEED_WEIGHTS);
    grid_dependency_wait();
    grid_dependency_launch();
    UNROLL_N(1) for (uint32_t i = 0; i < DEPTH - 1; i++) feed_chunk(&late, &p, &lists, ring + i * SLOT, units, step, FEED_TOKENS);
#else
    UNROLL_N(1) for (uint32_t i = 0; i < DEPTH - 1; i++) feed_chunk(&feed, &p, &lists, ring + i * SLOT, units, step, FEED_WEIGHTS | FEED_TOKENS);
#endif
    UNROLL_N(1) for (; unit < units; unit += step)
    {
        const uint32_t i = unit / UNITS, tokens = begin[i + 1] - begin[i], chunks = (unit_end(unit) - unit_k(unit) + 31) / 32;
        UNROLL_N(1) for (uint32_t first = 0; first < tokens; first += AT_ONCE)
        {
            float d[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            UNROLL_N(2) for (uint32_t j = 0; j < chunks; j++)
            {
                cp_async_wait(DEPTH - 2);
                multiply(ring + at * SLOT, d);
                /* Into the slot before, whose registers the last multiply has used up. */
                feed_chunk(&feed, &p, &lists, ring + (at ? at - 1 : DEPTH - 1) * SLOT, units, step, FEED_WEIGHTS | FEED_TOKENS);
                at = at + 1 < DEPTH ? at + 1 : 0;
            }
            finish(&p, &lists, unit, first, d, sum + (GATED ? 0 : warp * (MAX_TOKENS * 16)));
        }
    }
    cp_async_wait_all();
#if !GATED
    block_sync();
    for (uint32_t i = thread_x(); i < p.tokens * 16; i += THREADS) {
        uint32_t row = block_x() * 16 + i % 16;
        if (row >= N) continue;
        float total = 0.0f;
        UNROLL for (uint32_t w = 0; w < WARPS; w++) total += sum[w * (MAX_TOKENS * 16) + i];
        bf16 *y = (bf16 *)p.y + (uint64_t)(i / 16) * p.y_stride + row;
        total *= ALPHA;
        if (ACCUMULATE) total += bf16_to_f32(*y);
        *y = f32_to_bf16(total);
    }
#endif
}
