// arch: sm_90a sm_100a sm_120a
/* Experts' products for few tokens: every touched expert's weights stream once through shared memory by bulk copies of whole
 * rows, and meet up to eight tokens at a time in mma tiles (weights the m16 operand, tokens the n8 one).
 *
 *     GATED   unit: eight gate and eight up rows of an expert; both values of a pair end in one lane, which applies the
 *             activation. Units go round robin over the blocks.
 *     else    a block has 16 rows of y; unit: an expert. The block adds weight * product up over all active experts, then
 *             old y: no atomics, and y needs no kernel of its own.
 *
 * Warp 8 is the producer: 16 rows of CHUNK k a stage, a lane a row. Warps 0 to 7 share a stage's k, in steps of 32:
 * lane (q = lane / 4, c = lane % 4) takes 16 bytes of k c * 8 .. of rows q and q + 8 and of token q; that mma numbers k
 * otherwise does not matter as long as both operands agree: registers 0, 1 of the 16 bytes make the first k16 step, 2, 3 the
 * second.
 *
 *     GATED   the warps' sums of a unit are added up by one of them (of the next unit, by the next), two units in turn
 *     else    a warp keeps its sums [token][row] over all units: all that follows is linear
 *
 * Each block chooses all tokens' experts for itself, a warp a token (of one token: each warp): cheaper than a launch that tells
 * it. The second product depends on the first for its x only: logits are older, so its producer starts before
 * grid_dependency_wait. Plans leave it the room beside a block of the first, of which two do not fit an SM.
 *
 * Constants: EXPERTS TOP_K N K GATED ACT EXPERT_BIAS MAX_TOKENS CHUNK STAGES ACCUMULATE ALPHA; those of moe_router.cuh. */
#include "kernels/cuda/common/rose.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/tma.cuh"
#include "kernels/cuda/act.cuh"

#define WARPS 8
#define CONSUMERS (WARPS * WARP)
#define THREADS (CONSUMERS + WARP)
#define ROW_BYTES (CHUNK * 2)
#define STAGE_BYTES (16 * ROW_BYTES)
#define CHUNKS ((K + CHUNK - 1) / CHUNK)
#define STEPS ((CHUNK / 32 + WARPS - 1) / WARPS) /* of a warp in a chunk */
#define TILES (N / 8)                            /* GATED: units of an expert */
#define MAX_PICKS (MAX_TOKENS * TOP_K)
#define MAX_ACTIVE (MAX_PICKS < EXPERTS ? MAX_PICKS : EXPERTS)
#define PASSES ((MAX_TOKENS + 7) / 8)
STATIC_ASSERT(N % 8 == 0 && K % 8 == 0 && CHUNK % 32 == 0 && MAX_PICKS <= CONSUMERS, "shapes do not fit");

#include "kernels/cuda/moe_lists.cuh"

DEVICE uint32_t chunk_length(uint32_t chunk)
{
    return K % CHUNK == 0 ? CHUNK : min_u32(K - chunk * CHUNK, CHUNK);
}

/* Warp 8. Lane r copies row r of each stage. */
DEVICE void produce(const struct moe_few_params *p, const struct lists *l, unsigned char *stages, mbarrier *full, mbarrier *empty, uint32_t units,
                    uint32_t first, uint32_t step)
{
    const uint32_t lane = lane_id();
    uint32_t stage = 0, phase = 1;
    UNROLL_N(1) for (uint32_t unit = first; unit < units; unit += step)
    {
        const uint32_t e = l->expert[GATED ? unit / TILES : unit], row = GATED ? unit % TILES * 8 + lane % 8 : min_u32(block_x() * 16 + lane, N - 1);
        const element *w = (const element *)p->weight[GATED ? lane / 8 % 2 : 0] + (uint64_t)e * p->weight_stride + (uint64_t)row * K;
        UNROLL_N(1) for (uint32_t c = 0; c < CHUNKS; c++)
        {
            const uint32_t bytes = chunk_length(c) * 2;
            mbarrier_wait(&empty[stage], phase);
            if (lane == 0) mbarrier_arrive_expect(&full[stage], 16 * bytes);
            warp_sync(FULL_WARP);
            if (lane < 16) bulk_load(stages + stage * STAGE_BYTES + lane * ROW_BYTES, w + c * CHUNK, bytes, &full[stage], l2_evict_first());
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
    }
}

/* The tokens' operand of a warp's steps in a chunk: tokens [first, first + 8) of the unit's expert i. */
DEVICE void load_tokens(const struct moe_few_params *p, const struct lists *l, uint32_t i, uint32_t first, uint32_t chunk, u32x4 b[STEPS])
{
    const uint32_t q = lane_id() / 4, k = warp_id() * 32 + lane_id() % 4 * 8, begin = l->begin[i];
    const bool has = first + q < l->begin[i + 1] - begin;
    uint32_t at = begin + (has ? first + q : 0);
    if (GATED) at = l->source[at] / TOP_K;
    const element *x = (const element *)p->x + (uint64_t)at * p->x_stride + chunk * CHUNK;
    UNROLL for (uint32_t s = 0; s < STEPS; s++)
    {
        u32x4 zero = {{0, 0, 0, 0}};
        b[s] = zero;
        if (has && k + s * (WARPS * 32) < chunk_length(chunk)) b[s] = ld16(x + k + s * (WARPS * 32));
    }
}

/* d += a stage's rows by these tokens. */
DEVICE void multiply(const unsigned char *stage, uint32_t length, const u32x4 b[STEPS], float d[4])
{
    const uint32_t q = lane_id() / 4, k = warp_id() * 32 + lane_id() % 4 * 8;
    UNROLL for (uint32_t s = 0; s < STEPS; s++)
    {
        u32x4 a0 = {{0, 0, 0, 0}}, a1 = a0;
        const uint32_t at = k + s * (WARPS * 32);
        if (CHUNK % (WARPS * 32) != 0 && warp_id() * 32 + s * (WARPS * 32) >= length) continue;
        if (at < length) {
            a0 = ld16(stage + q * ROW_BYTES + at * 2);
            a1 = ld16(stage + (q + 8) * ROW_BYTES + at * 2);
        }
        UNROLL for (uint32_t h = 0; h < 4; h += 2)
        {
            const uint32_t a[4] = {a0.v[h], a1.v[h], a0.v[h + 1], a1.v[h + 1]};
            mma_element(d, a, b[s].v + h);
        }
    }
}

#if GATED
/* One warp adds up all warps' sums of a unit, part: [WARPS][PASSES][WARP]. Lane (q, c) then has gate (d[0], d[1]) and up (d[2],
 * d[3]) of row q for tokens 2 c and 2 c + 1 of a pass. */
DEVICE void finish(const struct moe_few_params *p, const struct lists *l, uint32_t unit, const f32x4 *part)
{
    const uint32_t lane = lane_id(), q = lane / 4, c = lane % 4, i = unit / TILES, begin = l->begin[i], tokens = l->begin[i + 1] - begin,
                   row = unit % TILES * 8 + q;
    float gate = 0.0f, up = 0.0f;
    if (EXPERT_BIAS) {
        gate = ((const float *)p->bias[0])[(uint64_t)l->expert[i] * N + row];
        up = ((const float *)p->bias[1])[(uint64_t)l->expert[i] * N + row];
    }
    UNROLL for (uint32_t pass = 0; pass < PASSES; pass++)
    {
        float d[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (pass * 8 >= tokens) break;
        UNROLL for (uint32_t w = 0; w < WARPS; w++)
        {
            f32x4 v = part[(w * PASSES + pass) * WARP + lane];
            UNROLL for (uint32_t h = 0; h < 4; h++) d[h] += v.v[h];
        }
        UNROLL for (uint32_t h = 0; h < 2; h++)
        {
            const uint32_t slot = pass * 8 + 2 * c + h;
            if (slot < tokens)
                ((element *)p->y)[(uint64_t)(begin + slot) * N + row] = f32_to_element(act_value(ACT, 1.0f, d[h] + gate) * (d[h + 2] + up));
        }
    }
}
#else
/* Lane (q, c): rows q (d[0], d[1]) and q + 8 (d[2], d[3]) for tokens 2 c and 2 c + 1; sum: [MAX_TOKENS][16] of this warp. */
DEVICE void finish(const struct moe_few_params *p, const struct lists *l, uint32_t i, uint32_t pass, float d[4], float *sum)
{
    const uint32_t q = lane_id() / 4, c = lane_id() % 4, begin = l->begin[i], tokens = l->begin[i + 1] - begin;
    if (EXPERT_BIAS && warp_id() == 0) {
        UNROLL for (uint32_t r = 0; r < 2; r++)
        {
            uint32_t row = block_x() * 16 + q + r * 8;
            float bias = row < N ? ((const float *)p->bias[0])[(uint64_t)l->expert[i] * N + row] : 0.0f;
            d[2 * r] += bias, d[2 * r + 1] += bias;
        }
    }
    UNROLL for (uint32_t h = 0; h < 2; h++)
    {
        const uint32_t slot = pass * 8 + 2 * c + h;
        if (slot < tokens) {
            float *to = sum + l->source[begin + slot] / TOP_K * 16 + q, w = l->weight[begin + slot];
            to[0] = fma_f32(w, d[h], to[0]);
            to[8] = fma_f32(w, d[h + 2], to[8]);
        }
    }
    warp_sync(FULL_WARP); /* the next unit's lanes hold other tokens */
}
#endif

/* Warps 0 to 7. work: GATED f32x4 [2][WARPS][PASSES][WARP], else float [WARPS][MAX_TOKENS][16], zero. */
DEVICE void consume(const struct moe_few_params *p, const struct lists *l, const unsigned char *stages, mbarrier *full, mbarrier *empty, void *work,
                    uint32_t units, uint32_t first, uint32_t step)
{
    const uint32_t lane = lane_id(), warp = warp_id();
    uint32_t stage = 0, phase = 0, turn = 0;
    u32x4 b[STEPS], next[STEPS];
    if (first < units) load_tokens(p, l, GATED ? first / TILES : first, 0, 0, next);
    UNROLL_N(1) for (uint32_t unit = first; unit < units; unit += step, turn++)
    {
        const uint32_t i = GATED ? unit / TILES : unit, tokens = l->begin[i + 1] - l->begin[i];
        float d[PASSES][4];
        UNROLL for (uint32_t pass = 0; pass < PASSES; pass++) UNROLL for (uint32_t h = 0; h < 4; h++) d[pass][h] = 0.0f;
        UNROLL_N(1) for (uint32_t c = 0; c < CHUNKS; c++)
        {
            UNROLL for (uint32_t s = 0; s < STEPS; s++) b[s] = next[s];
            const uint32_t further = c + 1 < CHUNKS ? unit : unit + step;
            if (further < units) load_tokens(p, l, GATED ? further / TILES : further, 0, c + 1 < CHUNKS ? c + 1 : 0, next);
            mbarrier_wait(&full[stage], phase);
            const unsigned char *rows = stages + stage * STAGE_BYTES;
            multiply(rows, chunk_length(c), b, d[0]);
#if PASSES > 1
            UNROLL for (uint32_t pass = 1; pass < PASSES; pass++)
            {
                if (pass * 8 >= tokens) break;
                load_tokens(p, l, i, pass * 8, c, b);
                multiply(rows, chunk_length(c), b, d[pass]);
            }
#endif
            warp_sync(FULL_WARP);
            if (lane == 0) mbarrier_arrive(&empty[stage]);
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
#if GATED
        f32x4 *part = (f32x4 *)work + turn % 2 * (WARPS * PASSES * WARP);
        UNROLL for (uint32_t pass = 0; pass < PASSES; pass++)
        {
            f32x4 v = {{d[pass][0], d[pass][1], d[pass][2], d[pass][3]}};
            part[(warp * PASSES + pass) * WARP + lane] = v;
        }
        barrier_sync(1, CONSUMERS);
        if (turn % WARPS == warp) finish(p, l, unit, part);
#else
        UNROLL for (uint32_t pass = 0; pass < PASSES; pass++)
        {
            if (pass * 8 < tokens) finish(p, l, i, pass, d[pass], (float *)work + warp * (MAX_TOKENS * 16));
        }
#endif
    }
}

KERNEL(moe_few, struct moe_few_params, p, THREADS, 1)
{
    SHARED(mbarrier, full, STAGES);
    SHARED(mbarrier, empty, STAGES);
    SHARED(f32x4, part, GATED ? 2 * WARPS * PASSES * WARP : WARPS * MAX_TOKENS * 4);
    LISTS_SHARED(lists);
    unsigned char *stages = dynamic_shared();
    float *sum = (float *)part;
    if (thread_x() == 0) {
        for (uint32_t i = 0; i < STAGES; i++) mbarrier_init(&full[i], 1), mbarrier_init(&empty[i], WARPS);
        fence_mbarrier_init();
    }
    if (!GATED)
        for (uint32_t i = thread_x(); i < WARPS * MAX_TOKENS * 16; i += THREADS) sum[i] = 0.0f;
    block_sync();
    if (GATED) {
        grid_dependency_wait();
        grid_dependency_launch();
    }
    LISTS_CHOOSE(&p, lists);
    const uint32_t units = lists.n * (GATED ? TILES : 1), first = GATED ? block_x() : 0, step = GATED ? grid_dim_x() : 1;
    if (warp_id() == WARPS) {
        produce(&p, &lists, stages, full, empty, units, first, step);
        if (GATED) return;
    } else {
        if (!GATED) {
            grid_dependency_wait();
            grid_dependency_launch();
        }
        consume(&p, &lists, stages, full, empty, part, units, first, step);
    }
#if !GATED
    block_sync();
    if (warp_id() == WARPS) return; /* it did not wait: y may not be complete for it */
    few_total(&p, sum);
#endif
}
