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
#define NARROW(s) (BF16 && (!MODIFY || (s)->narrow))
struct scratch {      /* shared memory of the block */
    uint64_t *pool;   /* [CANDIDATES]: candidates (key, ~token), histograms or counts */
    uint16_t *list;   /* [SUBS] */
    uint64_t *reduce; /* [2 * WARPS] */
    uint32_t *word;   /* [8] */
    uint64_t *wide;   /* [4] */
};
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
DEVICE float at(const struct source *s, uint32_t token)
{
    return NARROW(s) ? bf16_to_f32(((const bf16 *)s->x)[token]) : ((const float *)s->x)[token];
}
/* `each` (4 f32 or 8 bf16) logits from a token on; minus infinity beyond the vocabulary and for NaN. */
DEVICE void load(const struct source *s, uint32_t token, uint32_t each, float *v)
{
    UNROLL for (uint32_t i = 0; i < each; i++) v[i] = -INF_F32;
    if (token + each <= VOCAB) {
        const char *from = (const char *)s->x + (uint64_t)token * (16 / each);
        u32x4 q;
        if (s->foreign)
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
DEVICE_CALL uint64_t block_scan(const struct scratch *m, uint64_t v, uint64_t *total)
{
    uint64_t upto = warp_scan_u64(v), before = 0, all = 0;
    block_sync();
    if (lane_id() == WARP - 1) m->reduce[warp_id()] = upto;
    block_sync();
    for (uint32_t w = 0; w < WARPS; w++) {
        if (w < warp_id()) before += m->reduce[w];
        all += m->reduce[w];
    }
    *total = all;
    return before + upto - v;
}
DEVICE_CALL uint64_t block_max(const struct scratch *m, uint64_t v)
{
    for (uint32_t d = WARP / 2; d; d /= 2) {
        uint64_t o = shuffle_xor_u64(FULL_WARP, v, d, WARP);
        v = o > v ? o : v;
    }
    block_sync();
    if (lane_id() == 0) m->reduce[warp_id()] = v;
    block_sync();
    for (uint32_t w = 0; w < WARPS; w++) v = m->reduce[w] > v ? m->reduce[w] : v;
    return v;
}

#endif
