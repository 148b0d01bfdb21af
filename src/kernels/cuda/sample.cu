// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* From logits to tokens; what a row may ask for stands in params/sample.h.
 *
 * `blocks` blocks share a row. Each reads its part once, by warps, a tile of 512 logits a warp at a time, and
 * leaves in `work`
 *
 *     maxima[8 a tile]   of 64 logits each, those of 4 lanes: tells where large logits are
 *     top, one, warm     of a tile: its maximum; sums of e^(x - top) and of e^((x - top) / temperature)
 *
 * Rows with edits, penalties or a mask: the warp changes a tile in its registers, writes it to `work` and takes
 * the numbers from there (sample_change.cuh). The block that finishes a row last (a counter) draws. It needs no second look at most of
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
#include "kernels/cuda/sample_change.cuh"
#include "kernels/cuda/sample_draw.cuh"

/* ---- the part of a row that a block reads
 * ------------------------------------------------------------------------------ */

/* log2(e) / temperature where the draw of a row needs the mass of all tokens; -1 elsewhere. */
DEVICE float warm_of(const struct sample_row *r)
{
    const bool some = r->top_k > 0 && r->top_k < VOCAB;
    if (!(r->temperature >= 1e-5f) || some || (!(r->top_p < 1.0f) && r->min_p > 0.0f)) return -1.0f;
    return div_f32(1.0f, r->temperature) * LOG2_E;
}

/* The weights of a tile's logits relative to its largest; NaN weighs nothing. */
DEVICE float tile_sum(const float *v, float most, float scale)
{
    float sum = 0.0f;
    UNROLL for (uint32_t i = 0; i < 16; i++) sum += weight_of(max_f32(v[i], -INF_F32), most, scale);
    return warp_sum_f32(sum, WARP);
}

/* A tile's numbers (one: also those of the model's own distribution; warm: see warm_of), from the warp's registers: each lane has 4 loads of 4 logits or 2 of 8. */
DEVICE void numbers(const float *v, float *stats, uint32_t tile, bool one, float warm)
{
    float most = -INF_F32;
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
    if (warm >= 0.0f && finite) sum_warm = one && warm == LOG2_E ? sum_one : tile_sum(v, most, warm);
    if (lane_id() == 0) {
        stats[SUBS + tile] = most;
        stats[SUBS + TILES + tile] = sum_one;
        stats[SUBS + 2 * TILES + tile] = sum_warm;
    }
}

/* One tile by one warp. */
DEVICE void sweep(struct source s, float *stats, uint32_t tile, uint32_t each, bool one, float warm)
{
    float v[16];
    UNROLL for (uint32_t l = 0; l < 16 / each; l++)
        load_raw(s, tile * TILE + l * WARP * each + lane_id() * each, each, v + l * each);
    numbers(v, stats, tile, one, warm);
}

#if MODIFY
/* Writes the numbers of the changed logits of tiles [first, last) to stats and the logits behind them. The first tiles of a group are on their way while the
 * block counts. */
DEVICE_CALL void modify(const struct sample_params *p, const struct sample_row *r, const void *logits,
                        float *stats, uint32_t first, uint32_t last)
{
    STATIC_ASSERT(GROUP / TILE % WARPS == 0, "a group is whole rounds of the block's warps");
    const struct changes c = changes_of(p, r);
    const float warm = warm_of(r);
    uint32_t *const counts = (uint32_t *)POOL;
    for (uint32_t round = first; round < last; round += WARPS) {
        const uint32_t tile = round + warp_id(), in_group = (round - first) % (GROUP / TILE);
        float v[16];
        uint32_t allowed;
        load_tile(&c, logits, tile, last, v, &allowed);
        if (c.length > 0 && in_group == 0) count_history(&c, counts, round, min_u32(last, round + GROUP / TILE));
        if (tile < last) {
            edit_tile(&c, v, tile);
            if (c.length > 0) penalise_tile(&c, v, counts + (in_group + warp_id()) * TILE);
            UNROLL for (uint32_t i = 0; i < 16; i++) v[i] = allowed >> i & 1 ? v[i] : -INF_F32;
            store_tile(stats + STATS, tile, v);
            numbers(v, stats, tile, false, warm);
        }
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
    bool one = row->top_n >= 0, draws = row->given < 0, changed = false;
#if MODIFY
    changed = draws && has_changes(&p, row);
#endif
    if (one || (draws && !changed)) {
        const float warm = draws && !changed ? warm_of(row) : -1.0f;
        for (uint32_t tile = first + warp_id(); tile < last; tile += WARPS)
            sweep(raw, stats, tile, BF16 ? 8 : 4, one, warm);
    }
#if MODIFY
    if (changed) modify(&p, row, logits, stats + STATS, first, last);
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
        struct source s = {stats + 2 * STATS, stats + STATS, false, false};
        drawn = s;
    }
#endif
    finish(&p, row, raw, drawn, (struct sample_output *)p.output + index);
}
