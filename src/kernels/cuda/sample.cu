// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* From logits to tokens; what a row may ask for stands in params/sample.h.
 *
 * `blocks` blocks share a row. Each reads its part once, by warps, a tile of 512 logits a warp at a time, and leaves in `work`
 *
 *     maxima[8 a tile]   of 64 logits each, those of 4 lanes: tells where large logits are
 *     top, one, warm     of a tile: its maximum; sums of e^(x - top) and of e^((x - top) / temperature)
 *
 * Rows with edits, penalties or a mask: the block writes the changed logits to `work` too and takes the numbers from them.
 * The block that finishes a row last (a counter) draws. It needs no second look at most of the logits: the k-th largest of
 * the maxima is a bound that at least k logits reach, and only sub-blocks whose maximum reaches it are read again. Up to
 * CANDIDATES are sorted by (logit falling, id rising) and the draw takes a prefix. When more survive (a flat row under top-p,
 * thousands of equal logits) the same prefix is found by histograms, each a pass over the row, which by then is in L2.
 *
 * Masses are integers (weight * 2^44), so sums do not depend on their order: one seed gives one token, always. The number
 * drawn picks by cumulative mass in the order of the sort; without top-k, top-p and min-p, in the order of ids.
 *
 * Constants: VOCAB, BF16 (logits are bf16, else f32), MODIFY (rows may have edits, penalties, masks), THREADS, MIN_BLOCKS. */
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
#define GROUP 8192     /* tokens whose counts fit the pool */
#define LEAST_KEY 0x00800000u /* of -FLT_MAX; minus infinity and NaN are below */
#define LOG2_E 1.44269504f

struct source {
    const void *x;      /* the row: logits, or changed logits (f32) */
    const float *stats; /* [STATS] */
    bool narrow;        /* x is bf16 */
    bool foreign;       /* nobody in this grid writes x */
};
#define NARROW(s) (BF16 && (!MODIFY || (s)->narrow))
struct scratch { /* shared memory of the block */
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
        if (s->foreign) q = ld16_nc(from);
        else q = ld16(from);
        UNROLL for (uint32_t i = 0; i < each; i++)
        {
            if (each == 4) v[i] = f32_from_bits(q.v[i % 4]);
            else v[i] = i % 2 ? bf16x2_hi_f32(as_bf16x2(q.v[i / 2])) : bf16x2_lo_f32(as_bf16x2(q.v[i / 2]));
        }
    } else if (VOCAB % each) {
        UNROLL for (uint32_t i = 0; i < each; i++)
        {
            if (token + i < VOCAB) v[i] = at(s, token + i);
        }
    }
    UNROLL for (uint32_t i = 0; i < each; i++) v[i] = max_f32(v[i], -INF_F32);
}

/* ---- block-wide sums ------------------------------------------------------------------------------------------------- */

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

/* ---- the part of a row that a block reads ------------------------------------------------------------------------------ */

/* One tile by one warp. */
DEVICE void sweep(const struct source *s, float *stats, uint32_t tile, uint32_t each, bool one, bool warm, float scale)
{
    float v[16], most = -INF_F32;
    UNROLL for (uint32_t l = 0; l < 16 / each; l++) load(s, tile * TILE + l * WARP * each + lane_id() * each, each, v + l * each);
    UNROLL for (uint32_t i = 0; i < 16; i++) most = v[i] > most ? v[i] : most;
    float o = shuffle_xor_f32(FULL_WARP, most, 1, WARP);
    most = o > most ? o : most;
    o = shuffle_xor_f32(FULL_WARP, most, 2, WARP);
    most = o > most ? o : most;
    if (lane_id() % 4 == 0) stats[tile * 8 + lane_id() / 4] = most;
    UNROLL for (uint32_t d = 4; d < WARP; d *= 2)
    {
        o = shuffle_xor_f32(FULL_WARP, most, d, WARP);
        most = o > most ? o : most;
    }
    float sum_one = 0.0f, sum_warm = 0.0f;
    bool finite = most > -INF_F32 && most < INF_F32;
    if (one && finite) {
        UNROLL for (uint32_t i = 0; i < 16; i++) sum_one += weight_of(v[i], most, LOG2_E);
        sum_one = warp_sum_f32(sum_one, WARP);
    }
    if (warm && finite) {
        if (one && scale == LOG2_E) {
            sum_warm = sum_one;
        } else {
            UNROLL for (uint32_t i = 0; i < 16; i++) sum_warm += weight_of(v[i], most, scale);
            sum_warm = warp_sum_f32(sum_warm, WARP);
        }
    }
    if (lane_id() == 0) {
        stats[SUBS + tile] = most;
        stats[SUBS + TILES + tile] = sum_one;
        stats[SUBS + 2 * TILES + tile] = sum_warm;
    }
}

#if MODIFY
DEVICE bool has_penalty(const struct sample_params *p, const struct sample_row *r)
{
    return p->history && r->slot >= 0 && r->slot < p->slots && (r->repetition != 1.0f || r->presence != 0.0f || r->frequency != 0.0f);
}
DEVICE bool has_mask(const struct sample_params *p, const struct sample_row *r)
{
    return p->mask && r->mask_row >= 0 && r->mask_row < p->masks;
}
/* Edits of tokens [begin, end) that stand in x: the first edit of a token adds all of them, in order. */
DEVICE void apply_edits(const struct sample_params *p, const struct sample_row *r, float *x, int32_t begin, int32_t end)
{
    const struct sample_edit *edits = (const struct sample_edit *)p->edits;
    int32_t from = max_i32(r->edits_begin, 0);
    int32_t to = r->edits_count > p->edits_max - from ? p->edits_max : from + r->edits_count;
    for (int32_t i = from + (int32_t)thread_x(); i < to; i += THREADS) {
        int32_t t = edits[i].token;
        if (t < begin || t >= end) continue;
        bool first = true;
        for (int32_t j = from; j < i && first; j++) first = edits[j].token != t;
        if (!first) continue;
        float v = x[t];
        for (int32_t j = i; j < to; j++)
            if (edits[j].token == t) v += edits[j].bias;
        x[t] = v;
    }
}
/* Counts of tokens [begin, end) in the slot's history: bit 0: occurs; the rest: how often in the answer. */
DEVICE void count_history(const struct sample_params *p, const struct sample_row *r, uint32_t *counts, int32_t begin, int32_t end)
{
    const int32_t *history = (const int32_t *)p->history + (int64_t)r->slot * p->history_stride;
    int32_t n = ((const int32_t *)p->history_length)[r->slot], prompt = ((const int32_t *)p->prompt_length)[r->slot];
    if (n > p->history_stride) n = (int32_t)p->history_stride;
    for (int32_t i = (int32_t)thread_x(); i < end - begin; i += THREADS) counts[i] = 0;
    block_sync();
    for (int32_t i = (int32_t)thread_x(); i < n; i += THREADS) {
        int32_t t = history[i];
        if (t < begin || t >= end) continue;
        red_or_b32(relaxed, cta, &counts[t - begin], 1);
        if (i >= prompt) red_add_u32(relaxed, cta, &counts[t - begin], 2);
    }
    block_sync();
}
/* Writes the changed logits of tiles [first, last) to x and their numbers to stats. */
DEVICE_CALL void modify(const struct sample_params *p, const struct sample_row *r, const void *logits, float *x, float *stats,
                        uint32_t first, uint32_t last, bool warm, float scale, uint32_t *counts)
{
    bool edits = p->edits && r->edits_count > 0, penalty = has_penalty(p, r), masked = has_mask(p, r);
    const uint32_t *mask = (const uint32_t *)p->mask + (masked ? (int64_t)r->mask_row * p->mask_stride : 0);
    struct source changed = {x, stats, false, false}, given = {logits, stats, BF16, true}, *raw = &given;
    for (uint32_t from = first; from < last; from += GROUP / TILE) {
        int32_t begin = (int32_t)(from * TILE), end = (int32_t)min_u32(min_u32(last, from + GROUP / TILE) * TILE, VOCAB);
        if (penalty) count_history(p, r, counts, begin, end);
        if (edits) {
            for (int32_t t = begin + (int32_t)thread_x(); t < end; t += THREADS) x[t] = at(raw, (uint32_t)t);
            block_sync();
            apply_edits(p, r, x, begin, end);
            block_sync();
        }
        for (int32_t t = begin + (int32_t)thread_x(); t < end; t += THREADS) {
            float v = edits ? x[t] : at(raw, (uint32_t)t);
            uint32_t c = penalty ? counts[t - begin] : 0;
            if (c) v = v > 0.0f ? div_f32(v, r->repetition) : v * r->repetition;
            if (c >> 1) v -= r->presence + r->frequency * (float)(c >> 1);
            if (masked && !(mask[t / 32] >> (t % 32) & 1)) v = -INF_F32;
            x[t] = v;
        }
        block_sync();
        for (uint32_t tile = from + warp_id(); tile < min_u32(last, from + GROUP / TILE); tile += WARPS)
            sweep(&changed, stats, tile, 4, false, warm, scale);
    }
}
#endif

/* ---- the last block: candidates ------------------------------------------------------------------------------------------ */

/* A key that at least k maxima reach, and not many more. */
DEVICE_CALL uint32_t bound_of(const struct scratch *m, const float *stats, uint32_t k, uint32_t top)
{
    uint32_t key[KEYS], low = LEAST_KEY, high = top + 1, turn = 0;
    block_sync(); /* of `reduce` the last readers */
    UNROLL for (uint32_t i = 0; i < KEYS; i++)
    {
        uint32_t s = i * THREADS + thread_x();
        key[i] = s < SUBS ? key_of(stats[s]) : 0;
    }
    while (high - low > 1 && k < SUBS) {
        uint32_t middle = low + (high - low) / 2, n = 0;
        UNROLL for (uint32_t i = 0; i < KEYS; i++) n += key[i] >= middle;
        n = redux_add_u32(FULL_WARP, n);
        if (lane_id() == 0) m->reduce[turn * WARPS + warp_id()] = n;
        block_sync();
        n = 0;
        for (uint32_t w = 0; w < WARPS; w++) n += (uint32_t)m->reduce[turn * WARPS + w];
        turn ^= 1;
        if (n < k) high = middle;
        else low = middle;
        if (n >= k && n <= k + k / 2 + 16) break;
    }
    block_sync();
    return low;
}

DEVICE void keep(const struct scratch *m, uint32_t token, float v, uint32_t least)
{
    uint32_t key = key_of(v);
    if (key < least) return;
    uint32_t n = atom_add_u32(relaxed, cta, &m->word[W_COUNT], 1);
    if (n < CANDIDATES) m->pool[n] = (uint64_t)key << 32 | (0xffffffffu - token);
}
/* One load of sub-blocks a lane: WARP * each / 64 of them a warp. */
DEVICE void gather_part(const struct scratch *m, const struct source *s, uint32_t n, uint32_t least, uint32_t each)
{
    uint32_t vectors = 64 / each, per = WARP / vectors, vector = lane_id() % vectors;
    for (uint32_t i = warp_id() * per * 4; i < n; i += WARPS * per * 4) {
        float v[4][8];
        uint32_t token[4];
        UNROLL for (uint32_t u = 0; u < 4; u++)
        {
            uint32_t j = i + u * per + lane_id() / vectors, sub = j < n ? m->list[j] : 0;
            token[u] = j < n ? sub / 8 * TILE + vector / 4 * WARP * each + sub % 8 * 4 * each + vector % 4 * each : VOCAB;
            load(s, token[u], each, v[u]);
        }
        uint32_t hits = 0; /* few: one copy of what is done with them */
        UNROLL for (uint32_t u = 0; u < 4; u++)
            UNROLL for (uint32_t e = 0; e < each; e++) hits |= (uint32_t)(key_of(v[u][e]) >= least) << (u * each + e);
        while (hits) {
            uint32_t bit = ffs_u32(hits) - 1, where = VOCAB;
            float x = 0.0f;
            UNROLL for (uint32_t u = 0; u < 4; u++)
            {
                if (bit / each == u) where = token[u] + bit % each;
                UNROLL for (uint32_t e = 0; e < each; e++) x = bit == u * each + e ? v[u][e] : x;
            }
            keep(m, where, x, least);
            hits &= hits - 1;
        }
    }
}
/* All logits whose key is at least `least`, into the pool in any order. Returns how many; beyond CANDIDATES they are only
 * counted. */
DEVICE_CALL uint32_t gather(const struct scratch *m, const struct source *s, uint32_t least)
{
    block_sync();
    if (thread_x() < 2) m->word[thread_x() ? W_LIST : W_COUNT] = 0;
    block_sync();
    for (uint32_t i = thread_x(); i < SUBS; i += THREADS)
        if (key_of(s->stats[i]) >= least) {
            uint32_t n = atom_add_u32(relaxed, cta, &m->word[W_LIST], 1);
            m->list[n] = (uint16_t)i;
        }
    block_sync();
    if (NARROW(s)) gather_part(m, s, m->word[W_LIST], least, 8);
    else gather_part(m, s, m->word[W_LIST], least, 4);
    block_sync();
    return m->word[W_COUNT];
}
/* Falling; a bitonic network over the next power of two. */
DEVICE_CALL void sort(const struct scratch *m, uint32_t n)
{
    uint32_t size = 2;
    while (size < n) size *= 2;
    UNROLL_N(1) for (uint32_t i = n + thread_x(); i < size; i += THREADS) m->pool[i] = 0;
    block_sync();
    UNROLL_N(1) for (uint32_t k = 2; k <= size; k *= 2)
        UNROLL_N(1) for (uint32_t j = k / 2; j; j /= 2)
        {
            UNROLL_N(1) for (uint32_t i = thread_x(); i < size / 2; i += THREADS)
            {
                uint32_t lo = 2 * i - (i & (j - 1)), hi = lo + j;
                uint64_t a = m->pool[lo], b = m->pool[hi];
                if ((lo & k) == 0 ? a < b : a > b) {
                    m->pool[lo] = b;
                    m->pool[hi] = a;
                }
            }
            block_sync();
        }
}
DEVICE uint64_t mass_of(uint64_t candidate, float top, float scale)
{
    return fixed_of(weight_of(value_of((uint32_t)(candidate >> 32)), top, scale));
}
DEVICE uint32_t token_of(uint64_t candidate)
{
    return 0xffffffffu - (uint32_t)candidate;
}

/* ---- the draw ---------------------------------------------------------------------------------------------------------------- */

/* In [0, 1), 53 bits: Philox 4x32-10 (Salmon et al. 2011), key seed, counter step; as kernels/cpu/sample.c. */
DEVICE double uniform(uint64_t seed, uint64_t step)
{
    uint32_t c0 = (uint32_t)step, c1 = (uint32_t)(step >> 32), c2 = 0, c3 = 0, k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    UNROLL_N(1) for (int round = 0; round < 10; round++)
    {
        uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)b;
        c3 = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return ((double)(c0 >> 5) * 67108864.0 + (double)(c1 >> 6)) * (1.0 / 9007199254740992.0);
}
/* The first place of the drawn number: the element whose cumulative mass is the first to exceed it. */
DEVICE uint64_t place_of(const struct sample_row *r, uint64_t total)
{
    uint64_t left = (uint64_t)(uniform(r->seed, r->step) * (double)total);
    return left < total ? left : total - 1;
}
/* The mass that top_p of `total` needs; at least 1. */
DEVICE uint64_t share_of(float top_p, uint64_t total)
{
    uint64_t need = (uint64_t)((double)top_p * (double)total);
    return need < 1 ? 1 : need;
}

/* From n sorted candidates. `all`: mass of the whole row, or 0: that of the candidates. */
DEVICE_CALL uint32_t draw_sorted(const struct scratch *m, const struct sample_row *r, uint32_t n, uint64_t all, float top, float scale)
{
    uint32_t each = ceil_div_u32(n, THREADS), from = min_u32(thread_x() * each, n), to = min_u32(from + each, n);
    uint64_t sum = 0, total, before, cum;
    if (thread_x() == 0) m->word[W_FOUND] = n;
    UNROLL_N(1) for (uint32_t i = from; i < to; i++) sum += mass_of(m->pool[i], top, scale);
    before = block_scan(m, sum, &total);
    uint64_t need = r->top_p < 1.0f ? share_of(r->top_p, all ? all : total) : total;
    cum = before;
    UNROLL_N(1) for (uint32_t i = from; i < to; i++) {
        float w = weight_of(value_of((uint32_t)(m->pool[i] >> 32)), top, scale);
        cum += fixed_of(w);
        if (r->min_p > 0.0f && w < r->min_p && w != 1.0f) atom_min_u32(relaxed, cta, &m->word[W_FOUND], i);
        if (cum >= need) atom_min_u32(relaxed, cta, &m->word[W_FOUND], i + 1);
    }
    block_sync();
    uint32_t kept = max_u32(m->word[W_FOUND], 1);
    cum = before;
    UNROLL_N(1) for (uint32_t i = from; i < to; i++) {
        cum += mass_of(m->pool[i], top, scale);
        if (i == kept - 1) m->wide[0] = cum;
    }
    block_sync();
    uint64_t left = place_of(r, m->wide[0]);
    cum = before;
    UNROLL_N(1) for (uint32_t i = from; i < to; i++) {
        uint64_t w = mass_of(m->pool[i], top, scale);
        if (left >= cum && left < cum + w) m->word[W_TOKEN] = token_of(m->pool[i]);
        cum += w;
    }
    block_sync();
    return m->word[W_TOKEN];
}

/* From all tokens, by the tiles' sums, then inside one tile; in the order of ids. */
/* `left` of the tile's `mass`: the tile's own sum is rounded otherwise than its parts', so what is left is scaled. */
DEVICE void draw_tile(const struct scratch *m, const struct source *s, uint32_t tile, uint64_t left, uint64_t mass, float scale, uint32_t each)
{
    float v[16], top = s->stats[SUBS + tile];
    uint64_t upto[16 / 4], base = 0;
    UNROLL for (uint32_t l = 0; l < 16 / each; l++)
    {
        uint64_t sum = 0;
        load(s, tile * TILE + l * WARP * each + lane_id() * each, each, v + l * each);
        UNROLL for (uint32_t i = 0; i < each; i++) sum += fixed_of(weight_of(v[l * each + i], top, scale));
        upto[l] = base + warp_scan_u64(sum);
        base = (uint64_t)shuffle_u32(FULL_WARP, (uint32_t)(upto[l] >> 32), WARP - 1, WARP) << 32 |
               shuffle_u32(FULL_WARP, (uint32_t)upto[l], WARP - 1, WARP);
    }
    uint64_t place = (uint64_t)((double)left / (double)mass * (double)base);
    place = place < base ? place : base - 1;
    UNROLL for (uint32_t l = 0; l < 16 / each; l++)
    {
        uint64_t cum = upto[l];
        UNROLL for (uint32_t i = each; i-- > 0;)
        {
            uint64_t w = fixed_of(weight_of(v[l * each + i], top, scale));
            cum -= w;
            if (place >= cum && place < cum + w) m->word[W_TOKEN] = tile * TILE + (l * WARP + lane_id()) * each + i;
        }
    }
}
DEVICE uint64_t tile_mass(const struct source *s, uint32_t tile, float top, float scale, uint32_t which)
{
    float t = s->stats[SUBS + tile];
    return t > -INF_F32 ? fixed_of(s->stats[SUBS + which * TILES + tile] * weight_of(t, top, scale)) : 0;
}
DEVICE_CALL uint64_t row_mass(const struct scratch *m, const struct source *s, float top, float scale, uint32_t which)
{
    uint64_t sum = 0, total;
    for (uint32_t t = thread_x(); t < TILES; t += THREADS) sum += tile_mass(s, t, top, scale, which);
    block_scan(m, sum, &total);
    return total;
}
DEVICE_CALL uint32_t draw_all(const struct scratch *m, const struct sample_row *r, const struct source *s, float top, float scale)
{
    uint32_t each = ceil_div_u32(TILES, THREADS), from = min_u32(thread_x() * each, TILES), to = min_u32(from + each, TILES);
    uint64_t sum = 0, total, cum;
    UNROLL_N(1) for (uint32_t t = from; t < to; t++) sum += tile_mass(s, t, top, scale, 2);
    cum = block_scan(m, sum, &total);
    uint64_t left = place_of(r, total);
    UNROLL_N(1) for (uint32_t t = from; t < to; t++) {
        uint64_t w = tile_mass(s, t, top, scale, 2);
        if (left >= cum && left < cum + w) {
            m->word[W_FOUND] = t;
            m->wide[0] = left - cum;
            m->wide[1] = w;
        }
        cum += w;
    }
    block_sync();
    if (warp_id() == 0) {
        if (NARROW(s)) draw_tile(m, s, m->word[W_FOUND], m->wide[0], m->wide[1], scale, 8);
        else draw_tile(m, s, m->word[W_FOUND], m->wide[0], m->wide[1], scale, 4);
    }
    block_sync();
    return m->word[W_TOKEN];
}
/* The lowest id of the largest logit. */
DEVICE_CALL uint32_t first_of(const struct scratch *m, const struct source *s, uint32_t tile, float top)
{
    if (warp_id() == 0) {
        uint32_t least = 0xffffffffu, each = NARROW(s) ? 8 : 4;
        for (uint32_t l = 0; l < 16 / each; l++) {
            uint32_t token = tile * TILE + l * WARP * each + lane_id() * each;
            for (uint32_t i = 0; i < each; i++)
                if (token + i < VOCAB && at(s, token + i) == top) least = min_u32(least, token + i);
        }
        least = redux_min_u32(FULL_WARP, least);
        if (lane_id() == 0) m->word[W_TOKEN] = least;
    }
    block_sync();
    return m->word[W_TOKEN];
}

/* ---- rows where more than CANDIDATES survive --------------------------------------------------------------------------------- */

/* What a pass looks at: distance bins from the top (level 0), then ranges of keys. */
struct range {
    bool distance;
    uint32_t bin, low, high, shift;
};
DEVICE uint32_t bin_of(const struct range *g, float v, uint32_t key, float top, float fine)
{
    if (!g->distance) return (g->high - key) >> g->shift;
    float d = (top - v) * fine;
    return d < BINS - 1 ? (uint32_t)d : BINS - 1;
}

/* Logits t, t + THREADS, ... of a pass, all loaded before the first is looked at. */
#define BATCH 8
DEVICE void load_batch(const struct source *s, uint32_t t, float *v)
{
    UNROLL for (uint32_t i = 0; i < BATCH; i++) v[i] = t + i * THREADS < VOCAB ? at(s, t + i * THREADS) : -INF_F32;
}
DEVICE bool in_range(const struct range *g, uint32_t key)
{
    return key >= LEAST_KEY && (g->distance || (key >= g->low && key <= g->high));
}

/* A thread's share of a histogram: its own consecutive bins. */
#define SHARE (BINS / THREADS)
struct bins {
    uint64_t mass[SHARE];
    uint32_t count[SHARE];
};

/* Histogram of the range, in the pool and then in `own`. Masses are summed as two words with the carry between them: 64-bit
 * atomics on shared memory would be loops. */
DEVICE_CALL void histogram(const struct scratch *m, const struct source *s, const struct range *g, float top, float scale, struct bins *own)
{
    uint32_t *low = (uint32_t *)m->pool, *high = low + BINS, *count = high + BINS, from = thread_x() * SHARE;
    block_sync();
    UNROLL_N(1) for (uint32_t i = thread_x(); i < 3 * BINS; i += THREADS) low[i] = 0;
    block_sync();
    for (uint32_t t = thread_x(); t < VOCAB; t += THREADS * BATCH) {
        float v[BATCH];
        load_batch(s, t, v);
        UNROLL for (uint32_t i = 0; i < BATCH; i++)
        {
            uint32_t key = key_of(v[i]);
            if (!in_range(g, key)) continue;
            uint32_t bin = bin_of(g, v[i], key, top, scale * 44.0f); /* 64 bins a nat */
            uint64_t w = fixed_of(weight_of(v[i], top, scale));
            uint32_t old = atom_add_u32(relaxed, cta, &low[bin], (uint32_t)w);
            red_add_u32(relaxed, cta, &high[bin], (uint32_t)(w >> 32) + (old + (uint32_t)w < old));
            red_add_u32(relaxed, cta, &count[bin], 1);
        }
    }
    block_sync();
    UNROLL_N(1) for (uint32_t i = 0; i < SHARE; i++)
    {
        own->mass[i] = (uint64_t)high[from + i] << 32 | low[from + i];
        own->count[i] = count[from + i];
    }
}
/* The bin in which the count or mass reaches `want`; what lies before is added to *count and *mass. Returns the bin's count. */
DEVICE_CALL uint32_t cross(const struct scratch *m, const struct bins *own, bool by_count, uint64_t want, uint64_t *count, uint64_t *mass, uint32_t *bin)
{
    uint64_t c = 0, w = 0, total;
    UNROLL_N(1) for (uint32_t i = 0; i < SHARE; i++) c += own->count[i], w += own->mass[i];
    c = *count + block_scan(m, c, &total);
    w = *mass + block_scan(m, w, &total);
    UNROLL_N(1) for (uint32_t i = 0; i < SHARE; i++)
    {
        uint64_t c2 = c + own->count[i], w2 = w + own->mass[i];
        if ((by_count ? c : w) < want && (by_count ? c2 : w2) >= want) {
            m->word[W_FOUND] = thread_x() * SHARE + i;
            m->word[W_SPARE] = own->count[i];
            m->wide[0] = c;
            m->wide[1] = w;
        }
        c = c2, w = w2;
    }
    block_sync();
    *bin = m->word[W_FOUND];
    *count = m->wide[0];
    *mass = m->wide[1];
    return m->word[W_SPARE];
}
/* Elements of a bin into the pool; the lowest and highest key. */
DEVICE_CALL void collect(const struct scratch *m, const struct source *s, const struct range *g, float top, float scale)
{
    block_sync();
    if (thread_x() == 0) m->word[W_COUNT] = 0, m->word[W_LOW] = 0xffffffffu, m->word[W_HIGH] = 0;
    block_sync();
    for (uint32_t t = thread_x(); t < VOCAB; t += THREADS * BATCH) {
        float v[BATCH];
        load_batch(s, t, v);
        UNROLL for (uint32_t i = 0; i < BATCH; i++)
        {
            uint32_t key = key_of(v[i]);
            if (!in_range(g, key) || (g->distance && bin_of(g, v[i], key, top, scale * 44.0f) != g->bin)) continue;
            atom_min_u32(relaxed, cta, &m->word[W_LOW], key);
            red_max_u32(relaxed, cta, &m->word[W_HIGH], key);
            keep(m, t + i * THREADS, v[i], 0);
        }
    }
    block_sync();
}
/* Of equal logits the one with `before` lower ids. */
DEVICE void find_equal(const struct scratch *m, const struct source *s, uint32_t key, uint64_t before)
{
    uint32_t each = ceil_div_u32(VOCAB, THREADS), from = min_u32(thread_x() * each, VOCAB), to = min_u32(from + each, VOCAB);
    uint64_t n = 0, total;
    UNROLL_N(1) for (uint32_t t = from; t < to; t++) n += key_of(at(s, t)) == key;
    n = block_scan(m, n, &total);
    for (uint32_t t = from; t < to; t++)
        if (key_of(at(s, t)) == key && n++ == before) m->word[W_TOKEN] = t;
    block_sync();
}
/* In the order of the sort: the element with which the count, or the mass, reaches `want` (at least 1, at most all). The
 * mass up to it goes to *upto. Returns it as a candidate. `whole`: the row's histogram by distance. */
DEVICE_CALL uint64_t find(const struct scratch *m, const struct source *s, const struct bins *whole, bool by_count, uint64_t want, float top, float scale,
                          uint64_t *upto)
{
    struct range g = {true, 0, 0, 0, 0};
    struct bins part;
    uint64_t count = 0, mass = 0;
    for (;;) {
        if (!g.distance) histogram(m, s, &g, top, scale, &part);
        uint32_t n = cross(m, g.distance ? whole : &part, by_count, want, &count, &mass, &g.bin);
        if (!g.distance) {
            g.high -= g.bin << g.shift;
            g.low = max_u32(g.low, g.high - ((1u << g.shift) - 1));
        }
        collect(m, s, &g, top, scale);
        g.low = m->word[W_LOW];
        g.high = m->word[W_HIGH];
        g.distance = false;
        if (g.low == g.high) {
            uint64_t w = fixed_of(weight_of(value_of(g.low), top, scale));
            uint64_t before = by_count ? want - count - 1 : w ? (want - mass - 1) / w : 0;
            find_equal(m, s, g.low, before);
            *upto = mass + (before + 1) * w;
            return (uint64_t)g.low << 32 | (0xffffffffu - m->word[W_TOKEN]);
        }
        if (n <= CANDIDATES) {
            sort(m, n);
            break;
        }
        g.shift = 0;
        while ((g.high - g.low) >> g.shift >= BINS) g.shift++;
    }
    uint32_t n = m->word[W_COUNT], each = ceil_div_u32(n, THREADS), from = min_u32(thread_x() * each, n), to = min_u32(from + each, n);
    uint64_t sum = 0, total;
    UNROLL_N(1) for (uint32_t i = from; i < to; i++) sum += mass_of(m->pool[i], top, scale);
    mass += block_scan(m, sum, &total);
    UNROLL_N(1) for (uint32_t i = from; i < to; i++) {
        uint64_t w = mass_of(m->pool[i], top, scale);
        if (by_count ? count + i + 1 == want : mass < want && mass + w >= want) {
            m->wide[0] = mass + w;
            m->wide[1] = m->pool[i];
        }
        mass += w;
    }
    block_sync();
    *upto = m->wide[0];
    return m->wide[1];
}
/* Mass of the tokens that min_p keeps. */
DEVICE_CALL uint64_t likely_mass(const struct scratch *m, const struct source *s, float min_p, float top, float scale)
{
    uint64_t likely = 0, total;
    for (uint32_t t = thread_x(); t < VOCAB; t += THREADS * BATCH) {
        float v[BATCH];
        load_batch(s, t, v);
        UNROLL for (uint32_t i = 0; i < BATCH; i++)
        {
            float w = key_of(v[i]) < LEAST_KEY ? 0.0f : weight_of(v[i], top, scale);
            if (w >= min_p || w == 1.0f) likely += fixed_of(w);
        }
    }
    block_scan(m, likely, &total);
    return total;
}
/* The draw by prefixes: each filter shortens the mass from which the number is drawn. */
DEVICE_CALL uint32_t draw_flat(const struct scratch *m, const struct sample_row *r, const struct source *s, float top, float scale)
{
    struct range g = {true, 0, 0, 0, 0};
    struct bins whole;
    uint64_t count = 0, mass = 0, total, some, found = 0;
    histogram(m, s, &g, top, scale, &whole);
    UNROLL_N(1) for (uint32_t i = 0; i < SHARE; i++) count += whole.count[i], mass += whole.mass[i];
    block_scan(m, count, &some);
    block_scan(m, mass, &total);
    uint64_t reach = r->min_p > 0.0f ? likely_mass(m, s, r->min_p, top, scale) : total;
    if (r->top_k > 0 && (uint64_t)(uint32_t)r->top_k < some) some = (uint32_t)r->top_k;
    for (uint32_t step = 0; step < 3; step++) {
        bool by_count = step == 0;
        uint64_t want = by_count ? some : step == 1 ? share_of(r->top_p, total) : 0, upto;
        if (step == 0 && !(r->top_k > 0 && r->top_k < VOCAB)) continue;
        if (step == 1 && !(r->top_p < 1.0f)) continue;
        if (step == 2) want = place_of(r, reach < total ? reach : total) + 1;
        found = find(m, s, &whole, by_count, want, top, scale, &upto);
        total = upto;
    }
    return token_of(found);
}

/* ---- a row's end ------------------------------------------------------------------------------------------------------------- */

/* The token, or -1; best: the largest logit's key and its first tile. */
DEVICE_CALL int32_t draw(const struct scratch *m, const struct sample_row *r, const struct source *s)
{
    uint64_t best = 0;
    for (uint32_t t = thread_x(); t < TILES; t += THREADS) {
        uint64_t c = (uint64_t)key_of(s->stats[SUBS + t]) << 32 | (0xffffffffu - t);
        best = c > best ? c : best;
    }
    best = block_max(m, best);
    uint32_t top_key = (uint32_t)(best >> 32), n = 0;
    float top = value_of(top_key);
    if (top_key < LEAST_KEY) return -1;
    if (!(r->temperature >= 1e-5f) || top == INF_F32) return (int32_t)first_of(m, s, token_of(best), top);
    float inverse = div_f32(1.0f, r->temperature), scale = inverse * LOG2_E;
    bool some = r->top_k > 0 && r->top_k < VOCAB, share = r->top_p < 1.0f;
    if (!some && !share && !(r->min_p > 0.0f)) return (int32_t)draw_all(m, r, s, top, scale);
    uint64_t all = !some && share ? row_mass(m, s, top, scale, 2) : 0, need = all ? share_of(r->top_p, all) : 0;
    for (uint32_t k = some ? (uint32_t)r->top_k : 256; k <= CANDIDATES / 2; k *= 4) {
        uint32_t least;
        if (some || share) {
            least = bound_of(m, s->stats, k, top_key);
        } else {
            float bound = top + div_f32(log_f32(r->min_p) - 1e-3f, inverse); /* a little more than needed, cut later */
            least = max_u32(LEAST_KEY, min_u32(key_of(bound), top_key));
        }
        n = gather(m, s, least);
        if (n > CANDIDATES) break;
        if (all) { /* do they make up the share? */
            uint64_t mass = 0, total;
            for (uint32_t i = thread_x(); i < n; i += THREADS) mass += mass_of(m->pool[i], top, scale);
            block_scan(m, mass, &total);
            if (total < need && least > LEAST_KEY) continue;
        }
        sort(m, n);
        if (some) n = min_u32(n, (uint32_t)r->top_k);
        return (int32_t)draw_sorted(m, r, n, all, top, scale);
    }
    return (int32_t)draw_flat(m, r, s, top, scale);
}

/* The likeliest tokens of the model's own distribution. */
DEVICE_CALL void write_top(const struct scratch *m, const struct source *s, uint32_t want, float top, float log_sum, struct sample_output *out)
{
    uint32_t n = 0, least = bound_of(m, s->stats, want, key_of(top));
    n = gather(m, s, least);
    if (n <= CANDIDATES) {
        sort(m, n);
        n = min_u32(n, want);
        if (thread_x() < n) {
            uint64_t c = m->pool[thread_x()];
            out->top_ids[thread_x()] = (int32_t)token_of(c);
            out->top_logprobs[thread_x()] = value_of((uint32_t)(c >> 32)) - top - log_sum;
        }
    } else { /* thousands of equal logits */
        struct range g = {true, 0, 0, 0, 0};
        struct bins whole;
        histogram(m, s, &g, top, LOG2_E, &whole);
        for (n = 0; n < want; n++) {
            uint64_t upto, c = find(m, s, &whole, true, n + 1, top, LOG2_E, &upto);
            if (thread_x() == 0) {
                out->top_ids[n] = (int32_t)token_of(c);
                out->top_logprobs[n] = value_of((uint32_t)(c >> 32)) - top - log_sum;
            }
            block_sync();
        }
    }
    if (thread_x() == 0) out->top_count = (int32_t)n;
    block_sync();
}

DEVICE_CALL void finish(const struct sample_params *p, const struct sample_row *r, const struct scratch *m, const struct source *raw,
                        const struct source *drawn, struct sample_output *out)
{
    float top = 0.0f, log_sum = 0.0f;
    bool wants = r->top_n >= 0;
    if (wants) {
        uint64_t best = 0;
        for (uint32_t t = thread_x(); t < TILES; t += THREADS) {
            uint64_t k = key_of(raw->stats[SUBS + t]);
            best = k > best ? k : best;
        }
        top = value_of((uint32_t)block_max(m, best));
        if (top > -INF_F32 && top < INF_F32)
            log_sum = log_f32((float)row_mass(m, raw, top, LOG2_E, 1) * (1.0f / 17592186044416.0f));
    }
    uint32_t want = wants ? min_u32(min_u32((uint32_t)r->top_n, SAMPLE_TOP), VOCAB) : 0;
    if (want && top > -INF_F32) write_top(m, raw, want, top, log_sum, out);
    else if (thread_x() == 0) out->top_count = 0;
    int32_t token = r->given >= 0 ? (r->given < VOCAB ? r->given : -1) : draw(m, r, drawn);
    if (thread_x() != 0) return;
    out->token = token;
    out->logprob = wants && token >= 0 ? at(raw, (uint32_t)token) - top - log_sum : 0.0f;
    if (r->given >= 0 || token < 0) return;
    if (r->feed >= 0 && p->feed) ((int32_t *)p->feed)[r->feed] = token;
    if (!r->append || !p->history || r->slot < 0 || r->slot >= p->slots) return;
    int32_t *length = (int32_t *)p->history_length + r->slot;
    if (*length >= 0 && *length < p->history_stride) {
        ((int32_t *)p->history)[(int64_t)r->slot * p->history_stride + *length] = token;
        *length += 1;
    }
}

KERNEL(sample, struct sample_params, p, THREADS, MIN_BLOCKS)
{
    SHARED(uint64_t, pool, CANDIDATES);
    SHARED(uint16_t, list, SUBS);
    SHARED(uint64_t, reduce, 2 * WARPS);
    SHARED(uint64_t, wide, 4);
    SHARED(uint32_t, word, 8);
    grid_dependency_wait();
    grid_dependency_launch();
    uint32_t blocks = (uint32_t)p.blocks, index = block_x() / blocks, part = block_x() % blocks;
    const struct sample_row *row = (const struct sample_row *)p.rows + index;
    float *stats = (float *)p.work + (int64_t)index * p.work_stride;
    const char *logits = (const char *)p.logits + (int64_t)index * p.logits_stride * (BF16 ? 2 : 4);
    struct source raw = {logits, stats, BF16, true};
    uint32_t first = part * TILES / blocks, last = (part + 1) * TILES / blocks;
    bool draws = row->given < 0, one = row->top_n >= 0, hot = draws && row->temperature >= 1e-5f, changed = false;
    bool some = row->top_k > 0 && row->top_k < VOCAB;
    bool warm = hot && !some && (row->top_p < 1.0f || !(row->min_p > 0.0f)); /* the mass of all tokens matters */
    float scale = hot ? div_f32(1.0f, row->temperature) * LOG2_E : LOG2_E;
#if MODIFY
    changed = draws && ((p.edits && row->edits_count > 0) || has_penalty(&p, row) || has_mask(&p, row));
    float *x = stats + 2 * STATS;
#endif
    if (one || (draws && !changed))
        for (uint32_t tile = first + warp_id(); tile < last; tile += WARPS)
            sweep(&raw, stats, tile, BF16 ? 8 : 4, one, warm && !changed, scale);
#if MODIFY
    if (changed) modify(&p, row, logits, x, stats + STATS, first, last, warm, scale, (uint32_t *)pool);
#endif
    block_sync();
    if (thread_x() == 0) {
        uint32_t *done = (uint32_t *)p.counters + index;
        word[W_LAST] = atom_add_u32(acq_rel, gpu, done, 1) == blocks - 1;
        if (word[W_LAST]) st_u32(relaxed, gpu, done, 0);
    }
    block_sync();
    if (!word[W_LAST]) return;
    struct scratch m = {pool, list, reduce, word, wide};
    struct source given = {logits, stats, BF16, true}, drawn = given; /* raw stays in registers: nobody takes its address */
#if MODIFY
    if (changed) {
        struct source s = {x, stats + STATS, false, false};
        drawn = s;
    }
#endif
    finish(&p, row, &m, &given, &drawn, (struct sample_output *)p.output + index);
}
