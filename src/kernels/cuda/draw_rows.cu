// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* Draws a token of each row of logits: the largest (greedy, ties to the lowest id) or one of softmax(x / temperature), with a
 * token mask, and the log-probability of the drawn token under the model's own logits. One read of the logits, and of one slice again.
 *
 * The blocks of a row sweep one slice each with an online softmax (Milakov & Gimelshein 2018); the one that finishes last combines the
 * slices' sums. The draw inverts the cumulative distribution in the order of tokens at u = Philox(seed, step) (Salmon et al. 2011):
 * first among slices, then among the tokens of one slice, so that (seed, step, logits) decide it, not the number of slices.
 *
 * Constants: THREADS, PER (16-byte loads in flight a thread). */
#include "kernels/cuda/common/rose.cuh"
#include "kernels/params/draw_rows.h"

#define WARPS (THREADS / 32)
#define NONE (-INF_F32)
#define LOWEST -3.0e38f /* stands for the largest of nothing: differences stay numbers */

/* 2^-53 steps in [0, 1). */
DEVICE double draw_uniform(uint64_t seed, uint64_t step)
{
    uint32_t c[4] = {(uint32_t)step, (uint32_t)(step >> 32), 0, 0}, k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    UNROLL for (int round = 0; round < 10; round++)
    {
        uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t c1 = c[1], c3 = c[3];
        c[0] = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c[1] = (uint32_t)b;
        c[2] = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c[3] = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return ((double)(c[0] >> 5) * 67108864.0 + (double)(c[1] >> 6)) * (1.0 / 9007199254740992.0);
}

/* Logit t of a row; minus infinity where it is none, no number, or (mask not NULL) not allowed. */
DEVICE float draw_clean(float x)
{
    return x == x ? x : NONE;
}
DEVICE float draw_allowed(float x, const uint32_t *mask, uint32_t t)
{
    return mask && !(mask[t / 32] >> (t % 32) & 1) ? NONE : x;
}
/* Four logits from t on, t a multiple of 4. */
DEVICE void draw_load(const float *x, uint32_t t, uint32_t end, float out[4])
{
    if (t + 4 <= end) {
        u32x4 v = ld16_nc(x + t);
        UNROLL for (int e = 0; e < 4; e++) out[e] = f32_from_bits(v.v[e]);
    } else {
        UNROLL for (int e = 0; e < 4; e++) out[e] = t + e < end ? x[t + e] : NONE;
    }
}

/* One thread's share, or a block's. */
struct draw_state {
    float top, sum, raw_top, raw_sum;
    int32_t best;
};

DEVICE void draw_add(float *top, float *sum, float other_top, float other_sum, float rate)
{
    float t = max_f32(*top, other_top);
    *sum = *sum * exp2_approx((*top - t) * rate) + other_sum * exp2_approx((other_top - t) * rate);
    *top = t;
}
DEVICE void draw_merge(struct draw_state *a, const struct draw_state *b, float rate)
{
    if (b->best >= 0 && (a->best < 0 || b->top > a->top || (b->top == a->top && b->best < a->best))) a->best = b->best;
    draw_add(&a->top, &a->sum, b->top, b->sum, rate);
    draw_add(&a->raw_top, &a->raw_sum, b->raw_top, b->raw_sum, 1.44269504088896341f);
}

/* Over the block; the result is in every thread. `shared` holds WARPS states. */
DEVICE struct draw_state draw_reduce(struct draw_state s, float rate, struct draw_state *shared)
{
    UNROLL for (uint32_t m = WARP / 2; m; m /= 2)
    {
        struct draw_state o;
        o.top = shuffle_xor_f32(FULL_WARP, s.top, m, WARP);
        o.sum = shuffle_xor_f32(FULL_WARP, s.sum, m, WARP);
        o.raw_top = shuffle_xor_f32(FULL_WARP, s.raw_top, m, WARP);
        o.raw_sum = shuffle_xor_f32(FULL_WARP, s.raw_sum, m, WARP);
        o.best = (int32_t)shuffle_xor_u32(FULL_WARP, (uint32_t)s.best, m, WARP);
        draw_merge(&s, &o, rate);
    }
    block_sync();
    if (lane_id() == 0) shared[warp_id()] = s;
    block_sync();
    s = shared[0];
    for (int w = 1; w < WARPS; w++) draw_merge(&s, &shared[w], rate);
    return s;
}

/* The first thread at which the running sum of v exceeds target, among those whose v is positive; the last of these where rounding
 * left none. *before: the sum in front of it. All threads call; all get the answer, -1 when no v is positive. */
DEVICE int32_t draw_pick(float v, float target, float *before, float *sums, int32_t *found)
{
    float running = v;
    UNROLL for (uint32_t d = 1; d < WARP; d *= 2)
    {
        float o = shuffle_up_f32(FULL_WARP, running, d, WARP);
        if (lane_id() >= d) running += o;
    }
    block_sync();
    if (lane_id() == WARP - 1) sums[warp_id()] = running;
    block_sync();
    float offset = 0;
    for (uint32_t w = 0; w < warp_id(); w++) offset += sums[w];
    running += offset;
    uint32_t over = warp_ballot(FULL_WARP, v > 0.0f && running > target), any = warp_ballot(FULL_WARP, v > 0.0f);
    if (lane_id() == 0) {
        found[warp_id()] = over ? (int32_t)(thread_x() + ffs_u32(over) - 1) : -1;
        found[WARPS + warp_id()] = any ? (int32_t)(thread_x() + 31 - clz_u32(any)) : -1;
    }
    block_sync();
    int32_t at = -1, last = -1;
    for (int w = WARPS - 1; w >= 0; w--) {
        if (found[w] >= 0) at = found[w];
        if (last < 0) last = found[WARPS + w];
    }
    if (at < 0) at = last;
    if ((int32_t)thread_x() == at) *before = running - v;
    return at;
}

KERNEL(draw_rows, struct draw_rows_params, p, THREADS, 1)
{
    SHARED(struct draw_state, shared, WARPS);
    SHARED(float, sums, WARPS);
    SHARED(int32_t, found, 2 * WARPS);
    SHARED(uint32_t, ticket, 1);
    SHARED(float, chosen, 2); /* the slice's number; the share of its sum */
    const uint32_t row = block_x() / p.slices, slice = block_x() % p.slices;
    if (row >= p.count) return;
    const uint32_t vocabulary = (uint32_t)p.vocabulary, groups = ceil_div_u32(vocabulary, 4);
    const uint32_t length = ceil_div_u32(groups, p.slices) * 4; /* tokens a slice */
    grid_dependency_wait();
    const struct sample_row *ask = (const struct sample_row *)p.rows + row;
    const float *x = (const float *)p.logits + row * p.logits_stride;
    const uint32_t *mask = p.mask && ask->mask_row >= 0 ? (const uint32_t *)p.mask + ask->mask_row * p.mask_stride : (const uint32_t *)0;
    const bool greedy = ask->temperature < 1e-5f, raw = ask->top_n >= 0;
    const float rate = greedy ? 1.0f : div_f32(1.44269504088896341f, ask->temperature);

    struct draw_state s = {LOWEST, 0, LOWEST, 0, -1};
    const uint32_t begin = slice * length, end = min_u32(begin + length, vocabulary);
    for (uint32_t at = begin + thread_x() * 4; at < end; at += THREADS * PER * 4) {
        float v[PER][4], high = s.top, raw_high = s.raw_top;
        UNROLL for (int i = 0; i < PER; i++)
        {
            uint32_t t = at + i * (THREADS * 4);
            if (t < end) draw_load(x, t, end, v[i]);
            else v[i][0] = v[i][1] = v[i][2] = v[i][3] = NONE;
        }
        UNROLL for (int i = 0; i < PER; i++)
            UNROLL for (int e = 0; e < 4; e++) v[i][e] = draw_clean(v[i][e]), raw_high = max_f32(raw_high, v[i][e]);
        if (raw) {
            s.raw_sum *= exp_approx(s.raw_top - raw_high);
            s.raw_top = raw_high;
            UNROLL for (int i = 0; i < PER; i++)
                UNROLL for (int e = 0; e < 4; e++) s.raw_sum += exp_approx(v[i][e] - raw_high);
        }
        UNROLL for (int i = 0; i < PER; i++)
            UNROLL for (int e = 0; e < 4; e++)
            {
                uint32_t t = at + i * (THREADS * 4) + e;
                if (t < end) v[i][e] = draw_allowed(v[i][e], mask, t);
                if (v[i][e] > high) high = v[i][e], s.best = (int32_t)t;
            }
        if (!greedy) {
            s.sum *= exp2_approx((s.top - high) * rate);
            UNROLL for (int i = 0; i < PER; i++)
                UNROLL for (int e = 0; e < 4; e++) s.sum += exp2_approx((v[i][e] - high) * rate);
        }
        s.top = high;
    }
    s = draw_reduce(s, rate, shared);

    struct draw_partial *partial = (struct draw_partial *)p.partial + (size_t)row * p.slices;
    if (thread_x() == 0) {
        partial[slice].top = s.top, partial[slice].sum = s.sum;
        partial[slice].raw_top = s.raw_top, partial[slice].raw_sum = s.raw_sum;
        partial[slice].best = s.best;
        ticket[0] = atom_add_u32(acq_rel, gpu, (uint32_t *)p.counter + row, 1);
    }
    block_sync();
    grid_dependency_launch();
    if (ticket[0] != p.slices - 1) return;

    /* The last block of the row: thread i looks at slice i. */
    const struct draw_state nothing = {LOWEST, 0, LOWEST, 0, -1};
    struct draw_state mine = nothing;
    if (thread_x() < p.slices) {
        const struct draw_partial *q = partial + thread_x();
        mine.top = q->top, mine.sum = q->sum, mine.raw_top = q->raw_top, mine.raw_sum = q->raw_sum, mine.best = q->best;
    }
    s = draw_reduce(mine, rate, shared);
    int32_t token = s.best;
    if (!greedy && token >= 0) {
        float before = 0, share = mine.sum * exp2_approx((mine.top - s.top) * rate);
        float target = (float)(draw_uniform(ask->seed, ask->step) * (double)s.sum);
        if (draw_pick(share, target, &before, sums, found) == (int32_t)thread_x()) {
            chosen[0] = (float)thread_x();
            chosen[1] = div_f32(target - before, share);
        }
        block_sync();
        /* Its tokens in order, a run of them for each thread. */
        const uint32_t first = (uint32_t)chosen[0] * length, stop = min_u32(first + length, vocabulary);
        const uint32_t run = ceil_div_u32(length, THREADS), from = first + thread_x() * run, to = min_u32(from + run, stop);
        float sum = 0;
        for (uint32_t t = from; t < to; t++)
            sum += exp2_approx((draw_allowed(draw_clean(x[t]), mask, t) - s.top) * rate);
        const struct draw_state own = {LOWEST, sum, LOWEST, 0, -1};
        target = chosen[1] * draw_reduce(own, 0.0f, shared).sum;
        int32_t at = draw_pick(sum, target, &before, sums, found);
        if (at == (int32_t)thread_x()) {
            for (uint32_t t = from; t < to; t++) {
                float w = exp2_approx((draw_allowed(draw_clean(x[t]), mask, t) - s.top) * rate);
                if (w > 0.0f) token = (int32_t)t; /* the last possible one where rounding leaves none */
                before += w;
                if (w > 0.0f && before > target) break;
            }
            ticket[0] = (uint32_t)token;
        }
        block_sync();
        token = (int32_t)ticket[0];
    }
    if (thread_x() == 0) {
        struct sample_output *out = (struct sample_output *)p.output + row;
        out->token = token;
        out->top_count = 0;
        out->logprob = raw && token >= 0 ? draw_clean(x[token]) - s.raw_top - log_f32(s.raw_sum) : 0.0f;
        ((uint32_t *)p.counter)[row] = 0;
    }
}
