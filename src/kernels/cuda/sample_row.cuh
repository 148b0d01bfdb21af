/* What the parts of the sampling kernel share: constants, a row of logits, sums over a block. */
#ifndef ROSE_CUDA_SAMPLE_ROW_CUH
#define ROSE_CUDA_SAMPLE_ROW_CUH

#include "kernels/cuda/common/rose.cuh"
#include "kernels/params/sample.h"

#define WARPS (THREADS / WARP)
#define TILE 512
#define TILES ((VOCAB + TILE - 1) / TILE)
#define SUBS (TILES * 8)
#define KEYS ((SUBS + THREADS - 1) / THREADS) /* maxima a thread */
#define STATS ((11 * TILES + 3) / 4 * 4)      /* floats: maxima, top, one, warm */
#define CANDIDATES 4096
#define BINS 2048
#define GROUP 8192            /* tokens whose counts fit the pool */
#define LEAST_KEY 0x00800000u /* of -FLT_MAX; minus infinity and NaN are below */
#define LOG2_E 1.44269504f

struct source {
    const void *x;      /* the row: logits, or changed logits (f32) */
    const float *stats; /* [STATS] */
    bool narrow;        /* x is bf16 */
    bool foreign;       /* nobody in this grid writes x */
};
#define NARROW(s) (BF16 && (!MODIFY || (s).narrow))
/* Shared memory of the block: at constant places, so that functions that are called know it for shared memory. */
#define POOL ((uint64_t *)dynamic_shared())           /* [CANDIDATES]: candidates (key, ~token), histograms or counts */
#define REDUCE (POOL + CANDIDATES)                    /* [2 * WARPS] */
#define WIDE (REDUCE + 2 * WARPS)                     /* [4] */
#define WORD ((uint32_t *)(WIDE + 4))                 /* [8] */
#define LIST ((uint16_t *)(WORD + 8))                 /* [SUBS]; SAMPLE_SHARED in params/sample.h counts them all */
enum { W_COUNT, W_LIST, W_FOUND, W_LAST, W_LOW, W_HIGH, W_SPARE, W_TOKEN };

/* Rises with x, equal for both zeros; 0 for NaN. */
DEVICE uint32_t key_of(float x)
{
    uint32_t u = f32_bits(x + 0.0f);
    return x != x ? 0 : u & 0x80000000u ? ~u : u | 0x80000000u;
}
DEVICE float value_of(uint32_t key)
{
    return f32_from_bits(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}
DEVICE uint64_t fixed_of(float w)
{
    return (uint64_t)(w * 17592186044416.0f); /* 2^44: 2^19 tokens fit */
}
/* Weight of a logit relative to the top one; scale = log2(e) / temperature. */
DEVICE float weight_of(float x, float top, float scale)
{
    return exp2_approx((x - top) * scale);
}
DEVICE float at(struct source s, uint32_t token)
{
    return NARROW(s) ? bf16_to_f32(((const bf16 *)s.x)[token]) : ((const float *)s.x)[token];
}
/* `each` (4 f32 or 8 bf16) logits from a token on; minus infinity beyond the vocabulary. */
DEVICE void load_raw(struct source s, uint32_t token, uint32_t each, float *v)
{
    UNROLL for (uint32_t i = 0; i < each; i++) v[i] = -INF_F32;
    if (token + each <= VOCAB) {
        const char *from = (const char *)s.x + (uint64_t)token * (16 / each);
        u32x4 q;
        if (s.foreign)
            q = ld16_nc(from);
        else
            q = ld16(from);
        UNROLL for (uint32_t i = 0; i < each; i++)
        {
            if (each == 4)
                v[i] = f32_from_bits(q.v[i % 4]);
            else
                v[i] = i % 2 ? bf16x2_hi_f32(as_bf16x2(q.v[i / 2])) : bf16x2_lo_f32(as_bf16x2(q.v[i / 2]));
        }
    } else if (VOCAB % each) {
        UNROLL for (uint32_t i = 0; i < each; i++)
        {
            if (token + i < VOCAB) v[i] = at(s, token + i);
        }
    }
}
/* Four logits of either type, where each lane of a bf16 row has to have what it has of a f32 one. */
DEVICE void load_four(struct source s, uint32_t token, float *v)
{
    if (BF16 && token + 4 <= VOCAB) {
        const u32x2 q = ld8_nc((const char *)s.x + (uint64_t)token * 2);
        UNROLL for (uint32_t i = 0; i < 4; i++) v[i] = i % 2 ? bf16x2_hi_f32(as_bf16x2(q.v[i / 2])) : bf16x2_lo_f32(as_bf16x2(q.v[i / 2]));
    } else if (BF16) {
        UNROLL for (uint32_t i = 0; i < 4; i++) v[i] = token + i < VOCAB ? at(s, token + i) : -INF_F32;
    } else {
        load_raw(s, token, 4, v);
    }
}
/* The same with minus infinity for NaN. */
DEVICE void load(struct source s, uint32_t token, uint32_t each, float *v)
{
    load_raw(s, token, each, v);
    UNROLL for (uint32_t i = 0; i < each; i++) v[i] = max_f32(v[i], -INF_F32);
}

/* ---- block-wide sums
 * ------------------------------------------------------------------------------------------------- */

DEVICE uint64_t up_u64(uint64_t v, uint32_t d)
{
    uint32_t lo = shuffle_up_u32(FULL_WARP, (uint32_t)v, d, WARP);
    uint32_t hi = shuffle_up_u32(FULL_WARP, (uint32_t)(v >> 32), d, WARP);
    return (uint64_t)hi << 32 | lo;
}
DEVICE uint64_t warp_scan_u64(uint64_t v)
{
    UNROLL for (uint32_t d = 1; d < WARP; d *= 2)
    {
        uint64_t o = up_u64(v, d);
        if (lane_id() >= d) v += o;
    }
    return v;
}
/* Sum over the threads before the caller; *total over all. */
DEVICE_CALL uint64_t block_scan(uint64_t v, uint64_t *total)
{
    uint64_t upto = warp_scan_u64(v), before = 0, all = 0;
    block_sync();
    if (lane_id() == WARP - 1) REDUCE[warp_id()] = upto;
    block_sync();
    UNROLL for (uint32_t w = 0; w < WARPS; w++)
    {
        const uint64_t sum = REDUCE[w];
        before += w < warp_id() ? sum : 0;
        all += sum;
    }
    *total = all;
    return before + upto - v;
}
/* The warp's number, which ptxas sees to be the same for a warp: what it decides needs no second copy of every shuffle, for half a warp. */
DEVICE uint32_t same_warp(void)
{
    return shuffle_u32(FULL_WARP, warp_id(), 0, WARP);
}
/* The key of the row's largest logit, and the first tile that has it. */
DEVICE_CALL uint32_t top_of(const float *stats, uint32_t *tile)
{
    uint32_t most = 0, first = 0xffffffffu;
    UNROLL_N(4) for (uint32_t t = thread_x(); t < TILES; t += THREADS)
    {
        const uint32_t k = key_of(stats[SUBS + t]);
        first = k > most ? t : first;
        most = max_u32(most, k);
    }
    uint32_t *const part = (uint32_t *)REDUCE;
    UNROLL for (uint32_t turn = 0; turn < 2; turn++) /* the warp, then the warps: each by itself */
    {
        const uint32_t best = redux_max_u32(FULL_WARP, most);
        first = redux_min_u32(FULL_WARP, most == best ? first : 0xffffffffu);
        most = best;
        if (turn == 1) break;
        block_sync();
        if (lane_id() == 0) part[warp_id()] = most, part[WARPS + warp_id()] = first;
        block_sync();
        most = lane_id() < WARPS ? part[lane_id()] : 0;
        first = lane_id() < WARPS ? part[WARPS + lane_id()] : 0xffffffffu;
    }
    *tile = first;
    return most;
}

#endif
