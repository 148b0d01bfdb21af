// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* From logits to tokens; what a row may ask for stands in params/sample.h.
 *
 * `blocks` blocks share a row. Each reads its part once, by warps, a tile of 512 logits a warp at a time, and
 * leaves in `work`
 *
 *     maxima[8 a tile]   of 64 logits each, those of 4 lanes: tells where large logits are
 *     top, one, warm     of a tile: its maximum; sums of e^(x - top) and of e^((x - top) / temperature)
 *
 * Rows with edits, penalties or a mask: the block writes the changed logits to `work` too and takes the
 * numbers from them. The block that finishes a row last (a counter) draws. It needs no second look at most of
 * the logits: the k-th largest of the maxima is a bound that at least k logits reach, and only sub-blocks
 * whose maximum reaches it are read again. Up to CANDIDATES are sorted by (logit falling, id rising) and the
 * draw takes a prefix. When more survive (a flat row under top-p, thousands of equal logits) the same prefix
 * is found by histograms, each a pass over the row, which by then is in L2.
 *
 * Masses are integers (weight * 2^44), so sums do not depend on their order: one seed gives one token,
 * always. The number drawn picks by cumulative mass in the order of the sort; without top-k, top-p and min-p,
 * in the order of ids.
 *
 * Constants: VOCAB, BF16 (logits are bf16, else f32), MODIFY (rows may have edits, penalties, masks),
 * THREADS, MIN_BLOCKS. */
#include "kernels/cuda/sample_draw.cuh"

/* ---- the part of a row that a block reads
 * ------------------------------------------------------------------------------ */

/* The weights of a tile's logits relative to its largest; NaN weighs nothing. */
DEVICE float tile_sum(const float *v, float most, float scale)
{
    float sum = 0.0f;
    UNROLL for (uint32_t i = 0; i < 16; i++) sum += weight_of(max_f32(v[i], -INF_F32), most, scale);
    return warp_sum_f32(sum, WARP);
}

/* One tile by one warp. */
DEVICE void sweep(struct source s, float *stats, uint32_t tile, uint32_t each, bool one, bool warm,
                  float scale)
{
    float v[16], most = -INF_F32;
    UNROLL for (uint32_t l = 0; l < 16 / each; l++)
        load_raw(s, tile * TILE + l * WARP * each + lane_id() * each, each, v + l * each);
    UNROLL for (uint32_t i = 0; i < 16; i++) most = max_f32(v[i], most); /* the number where the other is NaN */
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
    if (one && finite) sum_one = tile_sum(v, most, LOG2_E);
    if (warm && finite) sum_warm = one && scale == LOG2_E ? sum_one : tile_sum(v, most, scale);
    if (lane_id() == 0) {
        stats[SUBS + tile] = most;
        stats[SUBS + TILES + tile] = sum_one;
        stats[SUBS + 2 * TILES + tile] = sum_warm;
    }
}

#if MODIFY
DEVICE bool has_penalty(const struct sample_params *p, const struct sample_row *r)
{
    return p->history && r->slot >= 0 && r->slot < p->slots &&
           (r->repetition != 1.0f || r->presence != 0.0f || r->frequency != 0.0f);
}
DEVICE bool has_mask(const struct sample_params *p, const struct sample_row *r)
{
    return p->mask && r->mask_row >= 0 && r->mask_row < p->masks;
}
/* Edits of tokens [begin, end) that stand in x: the first edit of a token adds all of them, in order. */
DEVICE void apply_edits(const struct sample_params *p, const struct sample_row *r, float *x, int32_t begin,
                        int32_t end)
{
    const struct sample_edit *edits = (const struct sample_edit *)p->edits;
    int32_t from = max_i32(r->edits_begin, 0);
    int32_t to = r->edits_count > p->edits_max - from ? p->edits_max : from + r->edits_count;
    UNROLL_N(1) for (int32_t i = from + (int32_t)thread_x(); i < to; i += THREADS) {
        int32_t t = edits[i].token;
        if (t < begin || t >= end) continue;
        bool first = true;
        UNROLL_N(1) for (int32_t j = from; j < i && first; j++) first = edits[j].token != t;
        if (!first) continue;
        float v = x[t];
        UNROLL_N(1) for (int32_t j = i; j < to; j++)
            if (edits[j].token == t) v += edits[j].bias;
        x[t] = v;
    }
}
/* Counts of tokens [begin, end) in the slot's history: bit 0: occurs; the rest: how often in the answer. */
DEVICE void count_history(const struct sample_params *p, const struct sample_row *r, uint32_t *counts,
                          int32_t begin, int32_t end)
{
    const int32_t *history = (const int32_t *)p->history + (int64_t)r->slot * p->history_stride;
    int32_t n = ((const int32_t *)p->history_length)[r->slot],
            prompt = ((const int32_t *)p->prompt_length)[r->slot];
    if (n > p->history_stride) n = (int32_t)p->history_stride;
    UNROLL_N(1) for (int32_t i = (int32_t)thread_x(); i < end - begin; i += THREADS) counts[i] = 0;
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
DEVICE_CALL void modify(const struct sample_params *p, const struct sample_row *r, const void *logits,
                        float *x, float *stats, uint32_t first, uint32_t last, bool warm, float scale,
                        uint32_t *counts)
{
    bool edits = p->edits && r->edits_count > 0, penalty = has_penalty(p, r), masked = has_mask(p, r);
    const uint32_t *mask = (const uint32_t *)p->mask + (masked ? (int64_t)r->mask_row * p->mask_stride : 0);
    struct source changed = {x, stats, false, false}, raw = {logits, stats, BF16, true};
    for (uint32_t from = first; from < last; from += GROUP / TILE) {
        int32_t begin = (int32_t)(from * TILE),
                end = (int32_t)min_u32(min_u32(last, from + GROUP / TILE) * TILE, VOCAB);
        if (penalty) count_history(p, r, counts, begin, end);
        if (edits) {
            UNROLL_N(1) for (int32_t t = begin + (int32_t)thread_x(); t < end; t += THREADS) x[t] = at(raw, (uint32_t)t);
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
            sweep(changed, stats, tile, 4, false, warm, scale);
    }
}
#endif

/* ---- a row's end
 * -------------------------------------------------------------------------------------------------------------
 */

/* The token, or -1; best: the largest logit's key and its first tile. */
DEVICE_CALL int32_t draw(const struct sample_row *r, struct source s)
{
    uint32_t first, n = 0;
    const uint32_t top_key = top_of(s.stats, &first);
    float top = value_of(top_key);
    if (top_key < LEAST_KEY) return -1;
    if (!(r->temperature >= 1e-5f) || top == INF_F32) return (int32_t)first_of(s, first, top);
    float inverse = div_f32(1.0f, r->temperature), scale = inverse * LOG2_E;
    bool some = r->top_k > 0 && r->top_k < VOCAB, share = r->top_p < 1.0f;
    if (!some && !share && !(r->min_p > 0.0f)) return (int32_t)draw_all(r, s, top, scale);
    uint64_t all = !some && share ? row_mass(s, top, scale, 2) : 0,
             need = all ? share_of(r->top_p, all) : 0;
    /* A share is most often made up by few tokens: 64 are tried first. */
    for (uint32_t k = some ? (uint32_t)r->top_k : 64; k <= CANDIDATES / 2; k *= 4) {
        uint32_t least;
        if (some || share) {
            least = bound_of(s.stats, k, top_key);
        } else {
            float bound =
                top + div_f32(log_f32(r->min_p) - 1e-3f, inverse); /* a little more than needed, cut later */
            least = max_u32(LEAST_KEY, min_u32(key_of(bound), top_key));
        }
        n = gather(s, least);
        if (n > CANDIDATES) break;
        if (all) { /* do they make up the share? */
            uint64_t mass = 0, total;
            for (uint32_t i = thread_x(); i < n; i += THREADS) mass += mass_of(POOL[i], top, scale);
            block_scan(mass, &total);
            if (total < need && least > LEAST_KEY) continue;
        }
        sort(n);
        if (some) n = min_u32(n, (uint32_t)r->top_k);
        return (int32_t)draw_sorted(r, n, all, top, scale);
    }
    return (int32_t)draw_flat(r, s, top, scale);
}

/* The likeliest tokens of the model's own distribution. */
DEVICE_CALL void write_top(struct source s, uint32_t want, float top,
                           float log_sum, struct sample_output *out)
{
    uint32_t n = 0, least = bound_of(s.stats, want, key_of(top));
    n = gather(s, least);
    if (n <= CANDIDATES) {
        sort(n);
        n = min_u32(n, want);
        if (thread_x() < n) {
            uint64_t c = POOL[thread_x()];
            out->top_ids[thread_x()] = (int32_t)token_of(c);
            out->top_logprobs[thread_x()] = value_of((uint32_t)(c >> 32)) - top - log_sum;
        }
    } else { /* thousands of equal logits */
        struct range g = {true, 0, 0, 0, 0};
        struct bins whole;
        histogram(s, &g, top, LOG2_E, &whole);
        for (n = 0; n < want; n++) {
            uint64_t upto, c = find(s, &whole, true, n + 1, top, LOG2_E, &upto);
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

DEVICE_CALL void finish(const struct sample_params *p, const struct sample_row *r, struct source raw, struct source drawn, struct sample_output *out)
{
    float top = 0.0f, log_sum = 0.0f;
    bool wants = r->top_n >= 0;
    if (wants) {
        uint32_t first;
        top = value_of(top_of(raw.stats, &first));
        if (top > -INF_F32 && top < INF_F32)
            log_sum = log_f32((float)row_mass(raw, top, LOG2_E, 1) * (1.0f / 17592186044416.0f));
    }
    uint32_t want = wants ? min_u32(min_u32((uint32_t)r->top_n, SAMPLE_TOP), VOCAB) : 0;
    if (want && top > -INF_F32)
        write_top(raw, want, top, log_sum, out);
    else if (thread_x() == 0)
        out->top_count = 0;
    int32_t token = r->given >= 0 ? (r->given < VOCAB ? r->given : -1) : draw(r, drawn);
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
    grid_dependency_wait();
    grid_dependency_launch();
    uint32_t blocks = (uint32_t)p.blocks, index = block_x() / blocks, part = block_x() % blocks;
    const struct sample_row *row = (const struct sample_row *)p.rows + index;
    float *stats = (float *)p.work + (int64_t)index * p.work_stride;
    const char *logits = (const char *)p.logits + (int64_t)index * p.logits_stride * (BF16 ? 2 : 4);
    struct source raw = {logits, stats, BF16, true};
    uint32_t first = part * TILES / blocks, last = (part + 1) * TILES / blocks;
    bool draws = row->given < 0, one = row->top_n >= 0, hot = draws && row->temperature >= 1e-5f,
         changed = false;
    bool some = row->top_k > 0 && row->top_k < VOCAB;
    bool warm =
        hot && !some && (row->top_p < 1.0f || !(row->min_p > 0.0f)); /* the mass of all tokens matters */
    float scale = hot ? div_f32(1.0f, row->temperature) * LOG2_E : LOG2_E;
#if MODIFY
    changed = draws && ((p.edits && row->edits_count > 0) || has_penalty(&p, row) || has_mask(&p, row));
    float *x = stats + 2 * STATS;
#endif
    if (one || (draws && !changed))
        for (uint32_t tile = first + warp_id(); tile < last; tile += WARPS)
            sweep(raw, stats, tile, BF16 ? 8 : 4, one, warm && !changed, scale);
#if MODIFY
    if (changed) modify(&p, row, logits, x, stats + STATS, first, last, warm, scale, (uint32_t *)POOL);
#endif
    block_sync();
    if (thread_x() == 0) {
        uint32_t *done = (uint32_t *)p.counters + index;
        WORD[W_LAST] = atom_add_u32(acq_rel, gpu, done, 1) == blocks - 1;
        if (WORD[W_LAST]) st_u32(relaxed, gpu, done, 0);
    }
    block_sync();
    if (!WORD[W_LAST]) return;
    struct source drawn = raw;
#if MODIFY
    if (changed) {
        struct source s = {x, stats + STATS, false, false};
        drawn = s;
    }
#endif
    finish(&p, row, raw, drawn, (struct sample_output *)p.output + index);
}
