/* The block that finishes a row: candidates and their sort, the draw, and rows where more survive than are sorted. */
#ifndef ROSE_CUDA_SAMPLE_DRAW_CUH
#define ROSE_CUDA_SAMPLE_DRAW_CUH

#include "kernels/cuda/sample_row.cuh"

/* ---- the last block: candidates
 * ------------------------------------------------------------------------------------------ */

/* One 256-bin histogram of the distances from the top narrows the search to an eighth of a logit: the least key of the bins that
 * make up k maxima. *found: how many reach it; 0: fewer than k are numbers. */
#define DISTANCES 256
#define BATCH 8 /* loads of a thread before the first is looked at */
#define SUBS_BATCH (KEYS <= 12 ? KEYS : BATCH)
DEVICE uint32_t bound_bins(const uint32_t *key, uint32_t k, float top, uint32_t *found)
{
    uint32_t *bins = (uint32_t *)POOL, least = 0xffffffffu;
    UNROLL_N(1) for (uint32_t i = thread_x(); i < DISTANCES; i += THREADS) bins[i] = 0;
    if (thread_x() == 0) WORD[W_FOUND] = DISTANCES, WORD[W_COUNT] = 0, WORD[W_LOW] = 0xffffffffu;
    block_sync();
    uint32_t bin[KEYS];
    UNROLL for (uint32_t i = 0; i < KEYS; i++)
    {
        const float d = (top - value_of(key[i])) * 8.0f;
        bin[i] = d < DISTANCES - 1 ? (uint32_t)d : DISTANCES - 1;
        if (key[i] >= LEAST_KEY) red_add_u32(relaxed, cta, &bins[bin[i]], 1);
    }
    block_sync();
    if (same_warp() == 0) { /* each lane 8 bins */
        uint32_t n[8], sum = 0;
        UNROLL for (uint32_t i = 0; i < 8; i++) n[i] = bins[lane_id() * 8 + i], sum += n[i];
        uint32_t upto = warp_scan_u32(sum) - sum;
        UNROLL for (uint32_t i = 0; i < 8; i++)
        {
            if (upto < k && upto + n[i] >= k) WORD[W_FOUND] = lane_id() * 8 + i, WORD[W_COUNT] = upto + n[i];
            upto += n[i];
        }
    }
    block_sync();
    UNROLL for (uint32_t i = 0; i < KEYS; i++)
        if (key[i] >= LEAST_KEY && bin[i] <= WORD[W_FOUND]) least = min_u32(least, key[i]);
    least = redux_min_u32(FULL_WARP, least);
    if (lane_id() == 0) atom_min_u32(relaxed, cta, &WORD[W_LOW], least);
    block_sync();
    *found = WORD[W_COUNT];
    return *found ? WORD[W_LOW] : LEAST_KEY;
}

/* A key that at least k maxima reach, and not many more. */
DEVICE_CALL uint32_t bound_of(const float *stats, uint32_t k, uint32_t top)
{
    uint32_t key[KEYS], low, high = top + 1, turn = 0, n;
    block_sync(); /* of `reduce` and the pool the last readers */
    UNROLL for (uint32_t i = 0; i < KEYS; i++)
    {
        uint32_t s = i * THREADS + thread_x();
        key[i] = s < SUBS ? key_of(stats[s]) : 0;
    }
    if (k >= SUBS) return LEAST_KEY;
    low = bound_bins(key, k, value_of(top), &n);
    while (n > k + k / 2 + 16 && high - low > 1) {
        uint32_t middle = low + (high - low) / 2, reach = 0;
        UNROLL for (uint32_t i = 0; i < KEYS; i++) reach += key[i] >= middle;
        reach = redux_add_u32(FULL_WARP, reach);
        if (lane_id() == 0) REDUCE[turn * WARPS + warp_id()] = reach;
        block_sync();
        reach = 0;
        UNROLL for (uint32_t w = 0; w < WARPS; w++) reach += (uint32_t)REDUCE[turn * WARPS + w];
        turn ^= 1;
        if (reach < k)
            high = middle;
        else
            low = middle, n = reach;
    }
    block_sync();
    return low;
}

/* One load of sub-blocks a lane: WARP * each / 64 of them a warp. bound: the least logit that is wanted. */
#define GATHER_DEEP(each) (16 / (each)) /* loads of a lane at a time: 16 logits, which stay in registers */
DEVICE void gather_part(struct source s, uint32_t n, float bound, uint32_t each)
{
    uint32_t vectors = 64 / each, per = WARP / vectors, vector = lane_id() % vectors;
    for (uint32_t i = same_warp() * per * GATHER_DEEP(each); i < n; i += WARPS * per * GATHER_DEEP(each)) {
        float v[4][8];
        uint32_t token[4];
        UNROLL for (uint32_t u = 0; u < GATHER_DEEP(each); u++)
        {
            uint32_t j = i + u * per + lane_id() / vectors, sub = j < n ? LIST[j] : 0;
            token[u] =
                j < n ? sub / 8 * TILE + vector / 4 * WARP * each + sub % 8 * 4 * each + vector % 4 * each
                      : VOCAB;
            load(s, token[u], each, v[u]);
        }
        uint32_t hits = 0;
        UNROLL for (uint32_t u = 0; u < GATHER_DEEP(each); u++) UNROLL for (uint32_t e = 0; e < each; e++) hits |=
            (uint32_t)(v[u][e] >= bound) << (u * each + e);
        /* One place in the pool for the whole warp's, shared out by a scan. */
        uint32_t mine = popcount_u32(hits), upto = warp_scan_u32(mine), to = 0;
        const uint32_t all = shuffle_u32(FULL_WARP, upto, WARP - 1, WARP);
        if (all == 0) continue;
        if (lane_id() == 0) to = atom_add_u32(relaxed, cta, &WORD[W_COUNT], all);
        to = shuffle_u32(FULL_WARP, to, 0, WARP) + upto - mine;
        /* Few of a lane's logits are hits: one a round, by its bit. */
        UNROLL_N(1) for (; warp_any(FULL_WARP, hits != 0); hits &= hits - 1)
        {
            const uint32_t bit = hits & (0u - hits);
            float x = v[0][0];
            uint32_t at = token[0];
            UNROLL for (uint32_t u = 0; u < GATHER_DEEP(each); u++) UNROLL for (uint32_t e = 0; e < each; e++)
            {
                x = bit == 1u << (u * each + e) ? v[u][e] : x;
                at = bit == 1u << (u * each + e) ? token[u] + e : at;
            }
            if (bit != 0 && to < CANDIDATES) POOL[to] = (uint64_t)key_of(x) << 32 | (0xffffffffu - at);
            to += bit != 0;
        }
    }
}
/* All logits whose key is at least `least`, into the pool in any order. Returns how many; beyond CANDIDATES
 * they are only counted. */
DEVICE_CALL uint32_t gather(struct source s, uint32_t least)
{
    block_sync();
    if (thread_x() < 2) WORD[thread_x() ? W_LIST : W_COUNT] = 0;
    block_sync();
    const float bound = value_of(least);
    UNROLL_N(1) for (uint32_t from = thread_x(); from - lane_id() < SUBS; from += THREADS * SUBS_BATCH)
    {
        float v[SUBS_BATCH];
        uint32_t all = 0, take = 0;
        UNROLL for (uint32_t i = 0; i < SUBS_BATCH; i++) v[i] = from + i * THREADS < SUBS ? s.stats[from + i * THREADS] : -INF_F32;
        UNROLL for (uint32_t i = 0; i < SUBS_BATCH; i++) take |= (uint32_t)(v[i] >= bound) << i;
        const uint32_t mine = popcount_u32(take), upto = warp_scan_u32(mine);
        uint32_t n = 0;
        all = shuffle_u32(FULL_WARP, upto, WARP - 1, WARP);
        if (all == 0) continue;
        if (lane_id() == 0) n = atom_add_u32(relaxed, cta, &WORD[W_LIST], all);
        n = shuffle_u32(FULL_WARP, n, 0, WARP) + upto - mine;
        UNROLL for (uint32_t i = 0; i < SUBS_BATCH; i++)
        {
            if (take >> i & 1) LIST[n] = (uint16_t)(from + i * THREADS);
            n += take >> i & 1;
        }
    }
    block_sync();
    if (NARROW(s))
        gather_part(s, WORD[W_LIST], bound, 8);
    else
        gather_part(s, WORD[W_LIST], bound, 4);
    block_sync();
    return WORD[W_COUNT];
}
/* Falling. Few: a candidate's place is the number of those above it, which neighbouring lanes count together where there are threads for
 * that. Many: a bitonic network over the next power of two; pairs at
 * most 32 apart lie in 64 candidates that one warp has in every such step, so that only it need wait. */
DEVICE_CALL void sort(uint32_t n)
{
    const uint32_t few = THREADS < 256 ? THREADS : 256;
    if (n <= few) {
        const uint32_t share = n * 8 <= few ? 8 : n * 4 <= few ? 4 : n * 2 <= few ? 2 : 1, at = thread_x() / share, part = thread_x() % share;
        const uint64_t mine = at < n ? POOL[at] : 0;
        uint32_t place = 0;
        if (thread_x() < ceil_div_u32(n * share, WARP) * WARP) {
            UNROLL_N(4) for (uint32_t i = part; i < n; i += share) place += POOL[i] > mine;
            UNROLL_N(1) for (uint32_t m = share / 2; m; m /= 2) place += shuffle_xor_u32(FULL_WARP, place, m, WARP);
        }
        block_sync();
        if (at < n && part == 0) POOL[place] = mine;
        block_sync();
        return;
    }
    uint32_t size = 2;
    while (size < n) size *= 2;
    UNROLL_N(1) for (uint32_t i = n + thread_x(); i < size; i += THREADS) POOL[i] = 0;
    block_sync();
    UNROLL_N(1) for (uint32_t k = 2; k <= size; k *= 2) UNROLL_N(1) for (uint32_t j = k / 2; j; j /= 2)
    {
        UNROLL_N(1) for (uint32_t i = thread_x(); i < size / 2; i += THREADS)
        {
            uint32_t lo = 2 * i - (i & (j - 1)), hi = lo + j;
            uint64_t a = POOL[lo], b = POOL[hi];
            if ((lo & k) == 0 ? a < b : a > b) {
                POOL[lo] = b;
                POOL[hi] = a;
            }
        }
        const uint32_t next = j > 1 ? j / 2 : k; /* the distance of the next step */
        if (j > 32 || next > 32) block_sync();
        else warp_sync(FULL_WARP);
    }
    block_sync();
}
DEVICE uint64_t mass_of(uint64_t candidate, float top, float scale)
{
    return fixed_of(weight_of(value_of((uint32_t)(candidate >> 32)), top, scale));
}
DEVICE uint32_t token_of(uint64_t candidate)
{
    return 0xffffffffu - (uint32_t)candidate;
}

/* ---- the draw
 * ----------------------------------------------------------------------------------------------------------------
 */

/* In [0, 1), 53 bits: Philox 4x32-10 (Salmon et al. 2011), key seed, counter step; as kernels/cpu/sample.c.
 */
DEVICE double uniform(uint64_t seed, uint64_t step)
{
    uint32_t c0 = (uint32_t)step, c1 = (uint32_t)(step >> 32), c2 = 0, c3 = 0, k0 = (uint32_t)seed,
             k1 = (uint32_t)(seed >> 32);
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

/* The same with a candidate a thread, whose mass is computed once. */
DEVICE uint32_t draw_few(const struct sample_row *r, uint32_t n, uint64_t all, float top, float scale)
{
    const uint32_t i = thread_x();
    const uint64_t candidate = i < n ? POOL[i] : 0;
    const float w = i < n ? weight_of(value_of((uint32_t)(candidate >> 32)), top, scale) : 0.0f;
    uint64_t total, mass = fixed_of(w), before, drawn;
    before = block_scan(mass, &total);
    drawn = total;
    if (r->top_p < 1.0f || r->min_p > 0.0f) { /* both keep those at the front */
        const uint64_t need = r->top_p < 1.0f ? share_of(r->top_p, all ? all : total) : total;
        const uint32_t kept = block_sync_count(i < n && before < need && (!(r->min_p > 0.0f) || w >= r->min_p || w == 1.0f));
        if (i == max_u32(kept, 1) - 1) WIDE[0] = before + mass;
        block_sync();
        drawn = WIDE[0];
    }
    const uint64_t left = place_of(r, drawn);
    if (left >= before && left < before + mass) WORD[W_TOKEN] = token_of(candidate);
    block_sync();
    return WORD[W_TOKEN];
}

/* From n sorted candidates. `all`: mass of the whole row, or 0: that of the candidates. */
DEVICE_CALL uint32_t draw_sorted(const struct sample_row *r, uint32_t n,
                                 uint64_t all, float top, float scale)
{
    if (n <= THREADS) return draw_few(r, n, all, top, scale);
    uint32_t each = ceil_div_u32(n, THREADS), from = min_u32(thread_x() * each, n),
             to = min_u32(from + each, n);
    uint64_t sum = 0, total, before, cum;
    if (thread_x() == 0) WORD[W_FOUND] = n;
    UNROLL_N(1) for (uint32_t i = from; i < to; i++) sum += mass_of(POOL[i], top, scale);
    before = block_scan(sum, &total);
    uint64_t need = r->top_p < 1.0f ? share_of(r->top_p, all ? all : total) : total;
    cum = before;
    UNROLL_N(1) for (uint32_t i = from; i < to; i++)
    {
        float w = weight_of(value_of((uint32_t)(POOL[i] >> 32)), top, scale);
        cum += fixed_of(w);
        if (r->min_p > 0.0f && w < r->min_p && w != 1.0f) atom_min_u32(relaxed, cta, &WORD[W_FOUND], i);
        if (cum >= need) atom_min_u32(relaxed, cta, &WORD[W_FOUND], i + 1);
    }
    block_sync();
    uint32_t kept = max_u32(WORD[W_FOUND], 1);
    cum = before;
    UNROLL_N(1) for (uint32_t i = from; i < to; i++)
    {
        cum += mass_of(POOL[i], top, scale);
        if (i == kept - 1) WIDE[0] = cum;
    }
    block_sync();
    uint64_t left = place_of(r, WIDE[0]);
    cum = before;
    UNROLL_N(1) for (uint32_t i = from; i < to; i++)
    {
        uint64_t w = mass_of(POOL[i], top, scale);
        if (left >= cum && left < cum + w) WORD[W_TOKEN] = token_of(POOL[i]);
        cum += w;
    }
    block_sync();
    return WORD[W_TOKEN];
}

/* From all tokens, by the tiles' sums, then inside one tile; in the order of ids. */
/* `left` of the tile's `mass`: the tile's own sum is rounded otherwise than its parts', so what is left is
 * scaled. */
DEVICE void draw_tile(struct source s, uint32_t tile, uint64_t left,
                      uint64_t mass, float scale, uint32_t each)
{
    float v[16], x[8], top = s.stats[SUBS + tile];
    uint64_t upto[16 / 4], sum[16 / 4], base = 0, cum = 0;
    uint32_t first = 0xffffffffu;
    UNROLL for (uint32_t l = 0; l < 16 / each; l++)
    {
        sum[l] = 0;
        load(s, tile * TILE + l * WARP * each + lane_id() * each, each, v + l * each);
        UNROLL for (uint32_t i = 0; i < each; i++) sum[l] += fixed_of(weight_of(v[l * each + i], top, scale));
        upto[l] = base + warp_scan_u64(sum[l]);
        base = (uint64_t)shuffle_u32(FULL_WARP, (uint32_t)(upto[l] >> 32), WARP - 1, WARP) << 32 |
               shuffle_u32(FULL_WARP, (uint32_t)upto[l], WARP - 1, WARP);
    }
    uint64_t place = (uint64_t)((double)left / (double)mass * (double)base);
    place = place < base ? place : base - 1;
    /* It lies in one load of one lane: only that is looked at. */
    UNROLL for (uint32_t i = 0; i < each; i++) x[i] = 0;
    UNROLL for (uint32_t l = 0; l < 16 / each; l++)
    {
        const bool here = place < upto[l] && place >= upto[l] - sum[l];
        cum = here ? upto[l] : cum;
        first = here ? tile * TILE + (l * WARP + lane_id()) * each : first;
        UNROLL for (uint32_t i = 0; i < each; i++) x[i] = here ? v[l * each + i] : x[i];
    }
    if (first == 0xffffffffu) return;
    UNROLL for (uint32_t i = each; i-- > 0;)
    {
        const uint64_t w = fixed_of(weight_of(x[i], top, scale));
        cum -= w;
        if (place >= cum && place < cum + w) WORD[W_TOKEN] = first + i;
    }
}
DEVICE uint64_t tile_mass(struct source s, uint32_t tile, float top, float scale, uint32_t which)
{
    float t = s.stats[SUBS + tile];
    return t > -INF_F32 ? fixed_of(s.stats[SUBS + which * TILES + tile] * weight_of(t, top, scale)) : 0;
}
DEVICE_CALL uint64_t row_mass(struct source s, float top, float scale,
                              uint32_t which)
{
    uint64_t sum = 0, total;
    for (uint32_t t = thread_x(); t < TILES; t += THREADS) sum += tile_mass(s, t, top, scale, which);
    block_scan(sum, &total);
    return total;
}
DEVICE_CALL uint32_t draw_all(const struct sample_row *r, struct source s,
                              float top, float scale)
{
    uint32_t each = ceil_div_u32(TILES, THREADS), from = min_u32(thread_x() * each, TILES),
             to = min_u32(from + each, TILES);
    uint64_t sum = 0, total, cum;
    UNROLL_N(1) for (uint32_t t = from; t < to; t++) sum += tile_mass(s, t, top, scale, 2);
    cum = block_scan(sum, &total);
    uint64_t left = place_of(r, total);
    UNROLL_N(1) for (uint32_t t = from; t < to; t++)
    {
        uint64_t w = tile_mass(s, t, top, scale, 2);
        if (left >= cum && left < cum + w) {
            WORD[W_FOUND] = t;
            WIDE[0] = left - cum;
            WIDE[1] = w;
        }
        cum += w;
    }
    block_sync();
    if (same_warp() == 0) {
        if (NARROW(s))
            draw_tile(s, WORD[W_FOUND], WIDE[0], WIDE[1], scale, 8);
        else
            draw_tile(s, WORD[W_FOUND], WIDE[0], WIDE[1], scale, 4);
    }
    block_sync();
    return WORD[W_TOKEN];
}
/* The lowest id of the largest logit. */
DEVICE_CALL uint32_t first_of(struct source s, uint32_t tile, float top)
{
    if (warp_id() == 0) {
        uint32_t least = 0xffffffffu;
        float v[16];
        UNROLL for (uint32_t i = 0; i < 16; i++)
        {
            const uint32_t token = tile * TILE + i * WARP + lane_id();
            v[i] = token < VOCAB ? at(s, token) : -INF_F32;
        }
        UNROLL for (uint32_t i = 0; i < 16; i++)
            if (v[i] == top) least = min_u32(least, tile * TILE + i * WARP + lane_id());
        least = redux_min_u32(FULL_WARP, least);
        if (lane_id() == 0) WORD[W_TOKEN] = least;
    }
    block_sync();
    return WORD[W_TOKEN];
}

/* ---- rows where more than CANDIDATES survive
 * --------------------------------------------------------------------------------- */

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
DEVICE void load_batch(struct source s, uint32_t t, float *v)
{
    UNROLL for (uint32_t i = 0; i < BATCH; i++) v[i] =
        t + i * THREADS < VOCAB ? at(s, t + i * THREADS) : -INF_F32;
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

/* Histogram of the range, in the pool and then in `own`. Masses are summed as two words with the carry
 * between them: 64-bit atomics on shared memory would be loops. */
DEVICE_CALL void histogram(struct source s, const struct range *g, float top,
                           float scale, struct bins *own)
{
    uint32_t *low = (uint32_t *)POOL, *high = low + BINS, *count = high + BINS, from = thread_x() * SHARE;
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
/* The bin in which the count or mass reaches `want`; what lies before is added to *count and *mass. Returns
 * the bin's count. */
DEVICE_CALL uint32_t cross(const struct bins *own, bool by_count, uint64_t want,
                           uint64_t *count, uint64_t *mass, uint32_t *bin)
{
    uint64_t c = 0, w = 0, total;
    UNROLL_N(1) for (uint32_t i = 0; i < SHARE; i++) c += own->count[i], w += own->mass[i];
    c = *count + block_scan(c, &total);
    w = *mass + block_scan(w, &total);
    UNROLL_N(1) for (uint32_t i = 0; i < SHARE; i++)
    {
        uint64_t c2 = c + own->count[i], w2 = w + own->mass[i];
        if ((by_count ? c : w) < want && (by_count ? c2 : w2) >= want) {
            WORD[W_FOUND] = thread_x() * SHARE + i;
            WORD[W_SPARE] = own->count[i];
            WIDE[0] = c;
            WIDE[1] = w;
        }
        c = c2, w = w2;
    }
    block_sync();
    *bin = WORD[W_FOUND];
    *count = WIDE[0];
    *mass = WIDE[1];
    return WORD[W_SPARE];
}
/* Elements of a bin into the pool, a place for all that a warp finds at once; the lowest and highest key. */
DEVICE_CALL void collect(struct source s, const struct range *g, float top,
                         float scale)
{
    uint32_t low = 0xffffffffu, high = 0;
    block_sync();
    if (thread_x() == 0) WORD[W_COUNT] = 0, WORD[W_LOW] = low, WORD[W_HIGH] = high;
    block_sync();
    for (uint32_t from = 0; from < VOCAB; from += THREADS * BATCH) {
        const uint32_t t = from + thread_x();
        float v[BATCH];
        uint32_t hits = 0;
        load_batch(s, t, v);
        UNROLL for (uint32_t i = 0; i < BATCH; i++)
        {
            const uint32_t key = key_of(v[i]);
            if (!in_range(g, key) || (g->distance && bin_of(g, v[i], key, top, scale * 44.0f) != g->bin)) continue;
            low = min_u32(low, key), high = max_u32(high, key);
            hits |= 1u << i;
        }
        const uint32_t mine = popcount_u32(hits), upto = warp_scan_u32(mine), all = shuffle_u32(FULL_WARP, upto, WARP - 1, WARP);
        uint32_t to = 0;
        if (all == 0) continue;
        if (lane_id() == 0) to = atom_add_u32(relaxed, cta, &WORD[W_COUNT], all);
        to = shuffle_u32(FULL_WARP, to, 0, WARP) + upto - mine;
        UNROLL for (uint32_t i = 0; i < BATCH; i++)
        {
            if (!(hits >> i & 1)) continue;
            if (to < CANDIDATES) POOL[to] = (uint64_t)key_of(v[i]) << 32 | (0xffffffffu - (t + i * THREADS));
            to++;
        }
    }
    low = redux_min_u32(FULL_WARP, low), high = redux_max_u32(FULL_WARP, high);
    if (lane_id() == 0) {
        atom_min_u32(relaxed, cta, &WORD[W_LOW], low);
        red_max_u32(relaxed, cta, &WORD[W_HIGH], high);
    }
    block_sync();
}
/* Of equal logits the one with `before` lower ids. */
DEVICE void find_equal(struct source s, uint32_t key, uint64_t before)
{
    uint32_t each = ceil_div_u32(VOCAB, THREADS), from = min_u32(thread_x() * each, VOCAB),
             to = min_u32(from + each, VOCAB);
    uint64_t n = 0, total;
    UNROLL_N(1) for (uint32_t t = from; t < to; t++) n += key_of(at(s, t)) == key;
    n = block_scan(n, &total);
    UNROLL_N(1) for (uint32_t t = from; t < to; t++)
        if (key_of(at(s, t)) == key && n++ == before) WORD[W_TOKEN] = t;
    block_sync();
}
/* In the order of the sort: the element with which the count, or the mass, reaches `want` (at least 1, at
 * most all). The mass up to it goes to *upto. Returns it as a candidate. `whole`: the row's histogram by
 * distance. */
DEVICE_CALL uint64_t find(struct source s, const struct bins *whole,
                          bool by_count, uint64_t want, float top, float scale, uint64_t *upto)
{
    struct range g = {true, 0, 0, 0, 0};
    struct bins part;
    uint64_t count = 0, mass = 0;
    for (;;) {
        if (!g.distance) histogram(s, &g, top, scale, &part);
        uint32_t n = cross(g.distance ? whole : &part, by_count, want, &count, &mass, &g.bin);
        if (!g.distance) {
            g.high -= g.bin << g.shift;
            g.low = max_u32(g.low, g.high - ((1u << g.shift) - 1));
        }
        collect(s, &g, top, scale);
        g.low = WORD[W_LOW];
        g.high = WORD[W_HIGH];
        g.distance = false;
        if (g.low == g.high) {
            uint64_t w = fixed_of(weight_of(value_of(g.low), top, scale));
            uint64_t before = by_count ? want - count - 1 : w ? (want - mass - 1) / w : 0;
            find_equal(s, g.low, before);
            *upto = mass + (before + 1) * w;
            return (uint64_t)g.low << 32 | (0xffffffffu - WORD[W_TOKEN]);
        }
        if (n <= CANDIDATES) {
            sort(n);
            break;
        }
        g.shift = 0;
        while ((g.high - g.low) >> g.shift >= BINS) g.shift++;
    }
    uint32_t n = WORD[W_COUNT], each = ceil_div_u32(n, THREADS), from = min_u32(thread_x() * each, n),
             to = min_u32(from + each, n);
    uint64_t sum = 0, total;
    UNROLL_N(1) for (uint32_t i = from; i < to; i++) sum += mass_of(POOL[i], top, scale);
    mass += block_scan(sum, &total);
    UNROLL_N(1) for (uint32_t i = from; i < to; i++)
    {
        uint64_t w = mass_of(POOL[i], top, scale);
        if (by_count ? count + i + 1 == want : mass < want && mass + w >= want) {
            WIDE[0] = mass + w;
            WIDE[1] = POOL[i];
        }
        mass += w;
    }
    block_sync();
    *upto = WIDE[0];
    return WIDE[1];
}
/* Mass of the tokens that min_p keeps. */
DEVICE_CALL uint64_t likely_mass(struct source s, float min_p, float top,
                                 float scale)
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
    block_scan(likely, &total);
    return total;
}
/* The draw by prefixes: each filter shortens the mass from which the number is drawn. */
DEVICE_CALL uint32_t draw_flat(const struct sample_row *r, struct source s,
                               float top, float scale)
{
    struct range g = {true, 0, 0, 0, 0};
    struct bins whole;
    uint64_t count = 0, mass = 0, total, some, found = 0;
    histogram(s, &g, top, scale, &whole);
    UNROLL_N(1) for (uint32_t i = 0; i < SHARE; i++) count += whole.count[i], mass += whole.mass[i];
    block_scan(count, &some);
    block_scan(mass, &total);
    uint64_t reach = r->min_p > 0.0f ? likely_mass(s, r->min_p, top, scale) : total;
    if (r->top_k > 0 && (uint64_t)(uint32_t)r->top_k < some) some = (uint32_t)r->top_k;
    for (uint32_t step = 0; step < 3; step++) {
        bool by_count = step == 0;
        uint64_t want = by_count ? some : step == 1 ? share_of(r->top_p, total) : 0, upto;
        if (step == 0 && !(r->top_k > 0 && r->top_k < VOCAB)) continue;
        if (step == 1 && !(r->top_p < 1.0f)) continue;
        if (step == 2) want = place_of(r, reach < total ? reach : total) + 1;
        found = find(s, &whole, by_count, want, top, scale, &upto);
        total = upto;
    }
    return token_of(found);
}

#endif
