/* Rows with edits, penalties or a mask: a tile's logits in one warp's registers, as the row's request changes them. A lane has 4 loads of 4
 * logits, as the draw reads them again: v[i] is token tile * TILE + i / 4 * 128 + lane * 4 + i % 4. */
#ifndef ROSE_CUDA_SAMPLE_CHANGE_CUH
#define ROSE_CUDA_SAMPLE_CHANGE_CUH

#include "kernels/cuda/sample_row.cuh"

#define COUNT_BATCH 4 /* tokens of the history that a thread loads before it counts the first */

DEVICE bool has_penalty(const struct sample_params *p, const struct sample_row *r)
{
    return p->history && r->slot >= 0 && r->slot < p->slots &&
           (r->repetition != 1.0f || r->presence != 0.0f || r->frequency != 0.0f);
}
DEVICE bool has_mask(const struct sample_params *p, const struct sample_row *r)
{
    return p->mask && r->mask_row >= 0 && r->mask_row < p->masks;
}
DEVICE bool has_changes(const struct sample_params *p, const struct sample_row *r)
{
    return (p->edits && r->edits_count > 0) || has_penalty(p, r) || has_mask(p, r);
}

/* What a row asks for, within its buffers' bounds. Where its lists lie is worked out when they are read: registers are short. */
struct changes {
    const struct sample_params *params;
    const struct sample_row *row;
    const uint32_t *mask;        /* NULL: none */
    int32_t edits_count, length; /* of the list of edits, of the history */
};
DEVICE struct changes changes_of(const struct sample_params *p, const struct sample_row *r)
{
    struct changes c;
    c.params = p, c.row = r;
    c.mask = has_mask(p, r) ? (const uint32_t *)p->mask + (int64_t)r->mask_row * p->mask_stride : NULL;
    c.edits_count = p->edits ? min_i32(r->edits_count, p->edits_max - max_i32(r->edits_begin, 0)) : 0;
    c.length = has_penalty(p, r) ? ((const int32_t *)p->history_length)[r->slot] : 0;
    if (c.length > p->history_stride) c.length = (int32_t)p->history_stride;
    return c;
}

/* What a warp reads of a tile; of tiles from `last` on nothing. Bit i of *allowed: the mask leaves v[i]. */
DEVICE void load_tile(const struct changes *c, const void *logits, uint32_t tile, uint32_t last, float *v, uint32_t *allowed)
{
    const struct source raw = {logits, NULL, BF16, true};
    *allowed = 0xffff;
    if (tile >= last) return;
    UNROLL for (uint32_t l = 0; l < 4; l++) load_four(raw, tile * TILE + (l * WARP + lane_id()) * 4, v + l * 4);
    if (!c->mask) return;
    const uint32_t word = tile * (TILE / 32) + lane_id() % 16, words = word < (VOCAB + 31) / 32 ? c->mask[word] : 0;
    uint32_t bits = 0;
    UNROLL for (uint32_t l = 0; l < 4; l++) bits |= (shuffle_u32(FULL_WARP, words, l * 4 + lane_id() / 8, WARP) >> (lane_id() % 8 * 4) & 15) << (l * 4);
    *allowed = bits;
}
DEVICE void store_tile(float *x, uint32_t tile, const float *v)
{
    UNROLL for (uint32_t l = 0; l < 4; l++)
    {
        const uint32_t token = tile * TILE + (l * WARP + lane_id()) * 4; /* the row is padded to four */
        u32x4 q;
        UNROLL for (uint32_t i = 0; i < 4; i++) q.v[i] = f32_bits(v[l * 4 + i]);
        if (token < VOCAB) st16(x + token, q);
    }
}

/* The edits of a tile's tokens, in their order: the warp looks for them, the token's lane adds. */
DEVICE void edit_tile(const struct changes *c, float *v, uint32_t tile)
{
    const uint32_t begin = tile * TILE, size = min_u32(TILE, VOCAB - begin);
    const struct sample_edit *const edits = (const struct sample_edit *)c->params->edits + max_i32(c->row->edits_begin, 0);
    UNROLL_N(1) for (int32_t from = 0; from < c->edits_count; from += WARP) {
        const int32_t i = from + (int32_t)lane_id();
        const bool there = i < c->edits_count;
        const uint32_t at = there ? (uint32_t)edits[i].token - begin : 0xffffffffu;
        const float bias = there ? edits[i].bias : 0.0f;
        UNROLL_N(1) for (uint32_t hits = warp_ballot(FULL_WARP, at < size); hits; hits &= hits - 1)
        {
            const uint32_t lane = ffs_u32(hits) - 1, token = shuffle_u32(FULL_WARP, at, lane, WARP);
            const float more = shuffle_f32(FULL_WARP, bias, lane, WARP);
            const uint32_t mine = token / 4 % WARP == lane_id() ? token / (WARP * 4) * 4 + token % 4 : 16;
            UNROLL for (uint32_t k = 0; k < 16; k++) v[k] = k == mine ? v[k] + more : v[k];
        }
    }
}

/* Counts of the tokens of tiles [first, last) in the history: bit 0: occurs; the rest: how often in the answer. */
DEVICE void count_history(const struct changes *c, uint32_t *counts, uint32_t first, uint32_t last)
{
    const uint32_t begin = first * TILE, size = min_u32(last * TILE, VOCAB) - begin;
    const int32_t *const history = (const int32_t *)c->params->history + (int64_t)c->row->slot * c->params->history_stride;
    const int32_t prompt = ((const int32_t *)c->params->prompt_length)[c->row->slot];
    const u32x4 none = {{0, 0, 0, 0}};
    block_sync(); /* the last group's readers */
    for (uint32_t i = thread_x() * 4; i < (last - first) * TILE; i += THREADS * 4) st16(counts + i, none);
    block_sync();
    for (int32_t from = (int32_t)thread_x(); from < c->length; from += COUNT_BATCH * THREADS) {
        uint32_t at[COUNT_BATCH];
        UNROLL for (int32_t b = 0; b < COUNT_BATCH; b++)
        {
            const int32_t i = from + b * THREADS;
            at[b] = i < c->length ? (uint32_t)history[i] - begin : 0xffffffffu;
        }
        UNROLL for (int32_t b = 0; b < COUNT_BATCH; b++)
        {
            if (at[b] >= size) continue;
            red_or_b32(relaxed, cta, &counts[at[b]], 1);
            if (from + b * THREADS >= prompt) red_add_u32(relaxed, cta, &counts[at[b]], 2);
        }
    }
    block_sync();
}

/* Few of a lane's logits are of tokens that occurred: one a round, by its bit. */
DEVICE void penalise_tile(const struct changes *c, float *v, const uint32_t *counts)
{
    uint32_t hits = 0;
    UNROLL for (uint32_t l = 0; l < 4; l++)
    {
        const u32x4 n = ld16(counts + (l * WARP + lane_id()) * 4);
        UNROLL for (uint32_t i = 0; i < 4; i++) hits |= (uint32_t)(n.v[i] != 0) << (l * 4 + i);
    }
    UNROLL_N(1) for (; warp_any(FULL_WARP, hits != 0); hits &= hits - 1)
    {
        const uint32_t mine = ffs_u32(hits) - 1; /* 0xffffffff: none is left */
        if (hits == 0) continue;
        const uint32_t n = counts[mine / 4 * (WARP * 4) + lane_id() * 4 + mine % 4];
        float x = v[0];
        UNROLL for (uint32_t i = 1; i < 16; i++) x = i == mine ? v[i] : x;
        x = x > 0.0f ? div_f32(x, c->row->repetition) : x * c->row->repetition;
        if (n >> 1) x -= c->row->presence + c->row->frequency * (float)(n >> 1);
        UNROLL for (uint32_t i = 0; i < 16; i++) v[i] = i == mine ? x : v[i];
    }
}

#endif
