/* What the attention kernels share: which rows a block takes, who sees what, scores.
 *
 * Query rows are packed: the GROUP query heads of a key-value head stand one behind the other, so packed row f of a sequence is
 * its row f / GROUP, head kv_head * GROUP + f % GROUP, and a tile of matrix rows holds many heads of few tokens or few heads
 * of many.
 *
 * Constants: HEADS KV_HEADS HD SCALE; WINDOW (0: none) CAP (0: none) SINKS ALIBI; PAGE_TOKENS, KV_ELEM (bytes of an element of the
 * pages: 2 as the activations, 1 e4m3); OWN: keys and values are the step's own
 * rows, not pages; CAUSAL; RELATIVE: 1 + reach of a table of biases by distance (0: none). */
#ifndef ROSE_CUDA_ATTENTION_CUH
#define ROSE_CUDA_ATTENTION_CUH

#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/rose.cuh"
#include "kernels/params/attention_tile.h"
#include "kernels/params/kv_layout.h"

#define GROUP (HEADS / KV_HEADS)
#define LOG2_E 1.44269504088896341f
#define PAGES (!(OWN))
#define NO_SCORE -1e30f /* below every score, and a difference of two is no NaN */

/* Item `target` of the tiles of `m` packed rows of all sequences that have at least from_rows rows: the last sequence and its
 * last tile first (causal: the longest), all key-value heads of a tile in turn: blocks that run together then read different keys
 * (one head after the other made a third fewer operations a second of long prompts). False behind the last. The whole warp calls. */
DEVICE bool attention_item(const int32_t *seq_rows, uint32_t seqs, uint32_t target, uint32_t m, uint32_t from_rows, uint32_t *seq,
                           uint32_t *kv_head, uint32_t *tile)
{
    uint32_t lane = lane_id(), done = 0;
    for (uint32_t base = 0; base < seqs; base += WARP) {
        uint32_t tiles = 0;
        if (base + lane < seqs) {
            uint32_t s = seqs - 1 - base - lane;
            uint32_t rows = (uint32_t)(seq_rows[s + 1] - seq_rows[s]);
            tiles = rows >= from_rows ? (rows * GROUP + m - 1) / m : 0;
        }
        uint32_t scan = warp_scan_u32(tiles * KV_HEADS), all = shuffle_u32(FULL_WARP, scan, WARP - 1, WARP);
        if (target < done + all) {
            uint32_t at = ffs_u32(warp_ballot(FULL_WARP, scan > target - done)) - 1;
            uint32_t left = shuffle_u32(FULL_WARP, scan, at, WARP) - 1 - (target - done);
            *seq = seqs - 1 - base - at;
            *kv_head = left % KV_HEADS;
            *tile = left / KV_HEADS;
            return true;
        }
        done += all;
    }
    return false;
}

/* The tokens [begin, end) that row i of n sees, of a sequence of `length`. */
DEVICE void attention_sight(int32_t i, int32_t n, int32_t length, int32_t *begin, int32_t *end)
{
    if (!CAUSAL) {
        *begin = WINDOW ? max_i32(i - WINDOW / 2, 0) : 0;
        *end = WINDOW ? min_i32(i + WINDOW / 2 + 1, n) : n;
    } else {
        int32_t at = length - n + i;
        *begin = WINDOW ? max_i32(at - WINDOW + 1, 0) : 0;
        *end = at + 1;
    }
}

/* A raw product to a score in units of log 2. away: token - position; slope times log2 e. */
DEVICE float attention_score(float dot, float slope, int32_t away)
{
    float s = dot * (SCALE * LOG2_E);
    if (CAP > 0) {
        /* cap * tanh(x / cap) = cap - 2 cap / (1 + e^(2 x / cap)) */
        float e = exp2_approx(dot * (SCALE * 2 * LOG2_E / (CAP > 0 ? CAP : 1.0f)));
        s = fma_f32(-2.0f * CAP * LOG2_E, rcp_approx(1.0f + e), CAP * LOG2_E);
    }
    if (ALIBI) s = fma_f32(-slope, (float)(away < 0 ? -away : away), s);
    return s;
}

/* Eight e4m3 of a page to eight elements, exactly. */
DEVICE u32x4 attention_widen(u32x2 x)
{
    u32x4 r;
    UNROLL for (int i = 0; i < 4; i++) r.v[i] = e4m3x2_to_element2((uint16_t)(x.v[i / 2] >> (i % 2 * 16))).bits;
    return r;
}

/* The page of token t, -1 where there is none. */
DEVICE int32_t attention_page(const int32_t *table, int32_t t, int32_t end)
{
    return t < end ? table[t / PAGE_TOKENS] : -1;
}

#endif
