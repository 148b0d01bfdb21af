// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* log-softmax of rows at some tokens (scores of given texts, prompts' log-probabilities), one read of the logits and nothing else
 * written: y = x[id] - largest - log(sum of e^(x - largest)).
 *
 * `blocks` blocks share a row; a thread keeps the largest and the sum of what it has read so far (Milakov & Gimelshein 2018), DEEP
 * vectors at a time; a block's go to `part`, and the block that finishes a row last adds them up in their order, so that a row's sum
 * does not depend on who that is. NaN anywhere makes the row NaN. Minus infinity is a token that cannot be.
 *
 * Constants: VOCAB, BF16 (else f32), WANT (tokens a row), THREADS. */
#include "kernels/cuda/common/rose.cuh"
#include "kernels/cuda/common/convert.cuh"
#include "kernels/params/logprob_rows.h"

#define EACH (BF16 ? 8 : 4) /* logits of a vector */
#define VECTORS ((VOCAB + EACH - 1) / EACH)
#define DEEP 4
#define WARPS (THREADS / WARP)
#define LOG2_E 1.44269504f

struct sums {
    float most, sum; /* sum of e^(x - most); most may be minus infinity: then the sum is 0 */
};
DEVICE float lp_weight(float x, float most)
{
    return most == -INF_F32 ? 0.0f : exp2_approx((x - most) * LOG2_E);
}
DEVICE struct sums lp_join(struct sums a, struct sums b)
{
    struct sums r = {a.most > b.most ? a.most : b.most, 0};
    r.sum = a.sum * lp_weight(a.most, r.most) + b.sum * lp_weight(b.most, r.most);
    return r;
}
DEVICE void lp_vector(const char *row, uint32_t v, uint32_t end, float *x)
{
    UNROLL for (int i = 0; i < EACH; i++) x[i] = -INF_F32;
    if (v >= end) return;
    if (VOCAB % EACH == 0 || v < VOCAB / EACH) {
        u32x4 q = ld16_nc(row + (uint64_t)v * 16);
        UNROLL for (int i = 0; i < EACH; i++)
            x[i] = !BF16 ? f32_from_bits(q.v[i % 4]) : i % 2 ? bf16x2_hi_f32(as_bf16x2(q.v[i / 2 % 4])) : bf16x2_lo_f32(as_bf16x2(q.v[i / 2 % 4]));
    } else {
        UNROLL for (int i = 0; i < EACH; i++)
            if (v * EACH + i < VOCAB) x[i] = BF16 ? bf16_to_f32(((const bf16 *)row)[v * EACH + i]) : ((const float *)row)[v * EACH + i];
    }
}
/* The same in every lane; in lane order, so that it is the same whoever asks. */
DEVICE struct sums lp_warp(struct sums s)
{
    UNROLL for (uint32_t d = WARP / 2; d; d /= 2)
    {
        struct sums o = {shuffle_xor_f32(FULL_WARP, s.most, d, WARP), shuffle_xor_f32(FULL_WARP, s.sum, d, WARP)};
        s = lp_join(s, o);
    }
    return s;
}

KERNEL(logprob_rows, struct logprob_rows_params, p, THREADS, 1)
{
    SHARED(float, part, 2 * WARPS);
    SHARED(uint32_t, last, 1);
    const uint32_t row = block_x() / p.blocks, index = block_x() % p.blocks;
    const char *const logits = (const char *)p.logits + (uint64_t)row * p.logits_stride * (BF16 ? 2 : 4);
    const uint32_t first = (uint32_t)((uint64_t)index * VECTORS / p.blocks), end = (uint32_t)((uint64_t)(index + 1) * VECTORS / p.blocks);
    grid_dependency_wait();
    grid_dependency_launch();
    if (row >= p.rows) return;
    struct sums s = {-INF_F32, 0};
    bool bad = false;
    for (uint32_t v = first + thread_x(); v < end; v += DEEP * THREADS) {
        float x[DEEP][EACH], most = s.most;
        UNROLL for (int d = 0; d < DEEP; d++) lp_vector(logits, v + d * THREADS, end, x[d]);
        UNROLL for (int d = 0; d < DEEP; d++)
            UNROLL for (int i = 0; i < EACH; i++) most = x[d][i] > most ? x[d][i] : most, bad |= x[d][i] != x[d][i];
        s.sum *= lp_weight(s.most, most);
        UNROLL for (int d = 0; d < DEEP; d++)
            UNROLL for (int i = 0; i < EACH; i++) s.sum += lp_weight(x[d][i], most);
        s.most = most;
    }
    s = lp_warp(s);
    if (warp_any(FULL_WARP, bad)) s.sum = f32_from_bits(0x7fffffffu);
    if (lane_id() == 0) part[2 * warp_id()] = s.most, part[2 * warp_id() + 1] = s.sum;
    block_sync();
    float *const mine = (float *)p.part + ((uint64_t)row * p.blocks + index) * 2;
    if (thread_x() == 0) {
        for (uint32_t w = 1; w < WARPS; w++) {
            struct sums o = {part[2 * w], part[2 * w + 1]};
            s = lp_join(s, o);
        }
        mine[0] = s.most, mine[1] = s.sum;
        uint32_t *done = (uint32_t *)p.counters + row;
        last[0] = atom_add_u32(acq_rel, gpu, done, 1) == p.blocks - 1;
        if (last[0]) st_u32(relaxed, gpu, done, 0);
    }
    block_sync();
    if (!last[0] || warp_id() != 0) return;
    struct sums all = {-INF_F32, 0};
    for (uint32_t b = lane_id(); b < p.blocks; b += WARP) {
        const float *other = (const float *)p.part + ((uint64_t)row * p.blocks + b) * 2;
        struct sums o = {other[0], other[1]};
        all = lp_join(all, o);
    }
    all = lp_warp(all);
    const float log_sum = all.most + log_f32(all.sum);
    if (lane_id() == 0 && p.log_sum) ((float *)p.log_sum)[row] = log_sum;
    for (uint32_t i = lane_id(); i < WANT; i += WARP) {
        const int32_t id = ((const int32_t *)p.ids)[(uint64_t)row * WANT + i];
        float x = -INF_F32;
        if (id >= 0 && id < VOCAB) x = BF16 ? bf16_to_f32(((const bf16 *)logits)[id]) : ((const float *)logits)[id];
        ((float *)p.y)[(uint64_t)row * WANT + i] = x - all.most - log_f32(all.sum);
    }
}
