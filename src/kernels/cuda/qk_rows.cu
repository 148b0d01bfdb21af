// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* QK-norm (Henry et al. 2020: RMSNorm of every query and key head), rotary embedding (Su et al. 2021) and the write of keys and
 * values into their pages: one read and one write of a packed qkv row.
 *
 * A head is VECTORS vectors. They are held in pairs so that a rotation stays inside a thread: the half layout turns element i
 * with i + ROTARY / 2, so vector j < ROT goes with vector j + ROT; vectors behind ROTARY are paired half by half too, so that neighbouring threads load neighbouring vectors.
 *
 *     HD = 128, ROTARY = 128, 16-byte vectors: TPR = 8 threads a head, thread t holds vectors t and t + 8
 *
 * Rotations whose half no vector of 16 bytes divides (Phi-3's longrope in tiny, heads of 12) take narrower ones: HD = 16, ROTARY = 12,
 * 4-byte vectors: pairs (0, 3) (1, 4) (2, 5), then (6, 7).
 *
 * A warp has PACK groups; where TPR is no power of two its last lanes have none (heads of 96: six threads, five groups, two lanes).
 * A group of TPR threads takes REP heads of one row (angles are computed once for them); sums go through shuffles inside the
 * group only. Row r has CHUNKS groups: CQ of queries (chunk c: heads c, c + CQ, ...), CK of keys, and when WRITE CK of values.
 *
 * Constants: HEADS KV_HEADS HD VEC_BYTES TPR REP THREADS; NORM: bytes of a weight, 0: none; NORM_AFTER: norm behind the rotation;
 * EPS OFFSET; ROPE 0 none 1 half 2 pairs; ROTARY; ROPE_SCALE; SEQ_FREQ; WRITE; PAGE_TOKENS; KV_ELEM: bytes of an element
 * of the pages (2 as the activations, 1 e4m3, saturated); SHARE: a block computes the angles of its rows once, in shared memory, instead of
 * every group its own (a sine and a cosine of 64 pairs cost more than the head that they turn); STREAM (vec.cuh). */
#include "kernels/cuda/common/rose.cuh"
#include "kernels/cuda/common/trig.cuh"
#include "kernels/cuda/common/vec.cuh"
#include "kernels/params/kv_layout.h"
#include "kernels/params/qk_rows.h"

#define VECTORS (HD / VEC_BF16)
#define ROT (ROPE ? ROTARY / 2 / VEC_BF16 : 0)
#define PAIRS (VECTORS / 2)
#define PER ((PAIRS + TPR - 1) / TPR)
#define HAS(s) (PAIRS % TPR == 0 || (s) < PAIRS) /* the last threads of a group may hold fewer pairs */
#define CQ ((HEADS + REP - 1) / REP)
#define CK ((KV_HEADS + REP - 1) / REP)
#define CHUNKS (CQ + CK * (WRITE ? 2 : 1))
#define PACK (WARP / TPR)
#define GROUPS (THREADS / WARP * PACK)
#define HALF (ROTARY / 2)
#define BLOCK_ROWS ((GROUPS + CHUNKS - 2) / CHUNKS + 1) /* rows that a block's groups touch at most */
STATIC_ASSERT(VECTORS % 2 == 0, "a thread holds whole pairs of vectors");

enum { QUERY, KEY, VALUE };

/* The two vectors of pair s. */
DEVICE uint32_t qk_low(uint32_t s)
{
    return s < ROT ? s : s + ROT;
}
DEVICE uint32_t qk_high(uint32_t s)
{
    return s < ROT ? s + ROT : s + PAIRS;
}

/* cos and sin of a pair's angles: of its VEC_BF16 pairs of elements (half), or of the VEC_BF16 / 2 in either vector (pairs). */
DEVICE void qk_angles(const void *inv_freq, uint32_t s, float position, float *cosine, float *sine)
{
    UNROLL for (int h = 0; h < 2; h++)
    {
        uint32_t at = ROPE == 1 ? s * VEC_BF16 + h * (VEC_BF16 / 2) : (h ? qk_high(s) : qk_low(s)) * (VEC_BF16 / 2);
        vec f = vec_ld_keep((const float *)inv_freq + at);
        UNROLL for (int e = 0; e < VEC_BF16 / 2; e++)
        {
            float c, n;
            sincos_approx(position * f32_from_bits(f.v[e]), &n, &c);
            cosine[h * (VEC_BF16 / 2) + e] = c * ROPE_SCALE;
            sine[h * (VEC_BF16 / 2) + e] = n * ROPE_SCALE;
        }
    }
}

#if SHARE
/* The block's table, [BLOCK_ROWS][HALF] cosines, then sines. */
DEVICE void qk_table(const struct qk_rows_params *p, uint32_t first_row, float *table)
{
    for (uint32_t i = thread_x(); i < BLOCK_ROWS * HALF; i += THREADS) {
        const uint32_t row = first_row + i / HALF;
        if (row >= p->rows) break;
        const float *inv_freq = (const float *)p->inv_freq;
        if (SEQ_FREQ) inv_freq += (int64_t)((const int32_t *)p->row_seq)[row] * HALF;
        float c, n;
        sincos_approx((float)((const int32_t *)p->positions)[row] * inv_freq[i % HALF], &n, &c);
        table[i] = c * ROPE_SCALE;
        table[BLOCK_ROWS * HALF + i] = n * ROPE_SCALE;
    }
}
/* A pair's angles out of it, as qk_angles gives them. */
DEVICE void qk_table_angles(const float *table, uint32_t s, float *cosine, float *sine)
{
    UNROLL for (int h = 0; h < 2; h++)
    {
        uint32_t at = ROPE == 1 ? s * VEC_BF16 + h * (VEC_BF16 / 2) : (h ? qk_high(s) : qk_low(s)) * (VEC_BF16 / 2);
        UNROLL for (int e = 0; e < VEC_BF16 / 2; e++)
        {
            cosine[h * (VEC_BF16 / 2) + e] = table[at + e];
            sine[h * (VEC_BF16 / 2) + e] = table[BLOCK_ROWS * HALF + at + e];
        }
    }
}
#endif

/* The sum over a group, the same in each of its threads. */
DEVICE float qk_sum(float v)
{
#if (TPR & (TPR - 1)) == 0
    return warp_sum_f32(v, TPR);
#else
    const uint32_t base = lane_id() / TPR * TPR, r = lane_id() % TPR;
    uint32_t m = TPR; /* lanes that follow each other with different values */
    UNROLL for (int i = 0; i < 4; i++)
    {
        if (m % 2) break;
        v += shuffle_f32(FULL_WARP, v, (base + (r % m + m / 2) % m) % WARP, WARP);
        m /= 2;
    }
    float s = shuffle_f32(FULL_WARP, v, base, WARP);
    UNROLL for (uint32_t i = 1; i < m; i++) s += shuffle_f32(FULL_WARP, v, (base + i) % WARP, WARP);
    return s;
#endif
}

DEVICE void qk_turn(float *a, float *b, float c, float s)
{
    float x = *a, y = *b;
    *a = fma_f32(-y, s, x * c);
    *b = fma_f32(x, s, y * c);
}
DEVICE void qk_rotate(float *low, float *high, const float *c, const float *s)
{
    UNROLL for (int e = 0; e < VEC_BF16; e++)
    {
        if (ROPE == 1) qk_turn(&low[e], &high[e], c[e], s[e]);
        if (ROPE == 2 && e % 2 == 0) {
            qk_turn(&low[e], &low[e + 1], c[e / 2], s[e / 2]);
            qk_turn(&high[e], &high[e + 1], c[VEC_BF16 / 2 + e / 2], s[VEC_BF16 / 2 + e / 2]);
        }
    }
}

DEVICE void qk_store_e4m3(char *to, const float *f)
{
#if VEC_BF16 == 2
    *(uint16_t *)(void *)to = f32_to_e4m3x2(f[0], f[1]);
#elif VEC_BF16 == 4
    st4(to, f32_to_e4m3x4(f[0], f[1], f[2], f[3]));
#else
    UNROLL for (int e = 0; e < VEC_BF16; e += 8)
    {
        u32x2 x = {{f32_to_e4m3x4(f[e], f[e + 1], f[e + 2], f[e + 3]), f32_to_e4m3x4(f[e + 4], f[e + 5], f[e + 6], f[e + 7])}};
        st8(to + e, x);
    }
#endif
}

/* The weights of the thread's vectors. */
DEVICE void qk_weights(const void *w, uint32_t t, float weight[PER][2][VEC_BF16])
{
    UNROLL for (int i = 0; i < PER; i++)
    {
        if (!HAS(t + i * TPR)) continue;
        vec_ld_table(w, qk_low(t + i * TPR) * VEC_BF16, NORM, weight[i][0]);
        vec_ld_table(w, qk_high(t + i * TPR) * VEC_BF16, NORM, weight[i][1]);
    }
}

KERNEL(qk_rows, struct qk_rows_params, p, THREADS, 1)
{
    const uint32_t t = lane_id() % TPR, unit = block_x() * GROUPS + warp_id() * PACK + lane_id() / TPR;
    const uint32_t row = unit / CHUNKS, chunk = unit % CHUNKS;
    const int kind = chunk < CQ ? QUERY : chunk < CQ + CK ? KEY : VALUE;
    const uint32_t first = chunk - (kind == QUERY ? 0 : kind == KEY ? CQ : CQ + CK), step = kind == QUERY ? CQ : CK;
    const uint32_t heads = kind == QUERY ? HEADS : KV_HEADS;
    const bool live = row < p.rows && lane_id() < PACK * TPR;

    float weight[PER][2][VEC_BF16];
    UNROLL for (int i = 0; i < PER; i++)
        UNROLL for (int e = 0; e < VEC_BF16; e++) weight[i][0][e] = weight[i][1][e] = 0;
    if (NORM) qk_weights(kind == QUERY ? p.q_norm : p.k_norm, t, weight);
    grid_dependency_launch(); /* the next kernel asks for its weights meanwhile */
    grid_dependency_wait();

    /* All loads before the first use. */
    const element *from = kind == QUERY ? (const element *)p.q + row * p.q_stride
                       : kind == KEY ? (const element *)p.k + row * p.k_stride
                                     : (const element *)p.v + row * p.v_stride;
    vec x[REP][PER][2];
    UNROLL for (int r = 0; r < REP; r++)
        UNROLL for (int i = 0; i < PER; i++)
        {
            uint32_t head = first + r * step, s = t + i * TPR;
            x[r][i][0] = x[r][i][1] = vec_zero();
            if (live && head < heads && HAS(s)) {
                x[r][i][0] = vec_ld_once(from + head * HD + qk_low(s) * VEC_BF16);
                x[r][i][1] = vec_ld_once(from + head * HD + qk_high(s) * VEC_BF16);
            }
        }
    int64_t slot = -1;
    float cosine[PER][VEC_BF16], sine[PER][VEC_BF16];
    UNROLL for (int i = 0; i < PER; i++)
        UNROLL for (int e = 0; e < VEC_BF16; e++) cosine[i][e] = sine[i][e] = 0;
    if (WRITE && live && kind != QUERY) slot = ((const int64_t *)p.kv_slot)[row];
#if SHARE
    SHARED(f32x4, table, (2 * BLOCK_ROWS * HALF + 3) / 4);
    qk_table(&p, block_x() * GROUPS / CHUNKS, (float *)table);
    block_sync();
    if (live && kind != VALUE) {
        const float *mine = (const float *)table + (row - block_x() * GROUPS / CHUNKS) * HALF;
        UNROLL for (int i = 0; i < PER; i++)
            if (t + i * TPR < ROT) qk_table_angles(mine, t + i * TPR, cosine[i], sine[i]);
    }
#else
    if (ROPE && live && kind != VALUE) {
        float position = (float)((const int32_t *)p.positions)[row];
        const float *inv_freq = (const float *)p.inv_freq;
        if (SEQ_FREQ) inv_freq += (int64_t)((const int32_t *)p.row_seq)[row] * (ROTARY / 2);
        UNROLL for (int i = 0; i < PER; i++)
            if (t + i * TPR < ROT) qk_angles(inv_freq, t + i * TPR, position, cosine[i], sine[i]);
    }
#endif

    char *to = kind == QUERY ? (char *)((element *)p.q + row * p.q_stride) : (char *)((element *)p.k + row * p.k_stride);
    int64_t head_bytes = HD * 2;
    bool keep = live;
    if (WRITE && kind != QUERY) {
        keep = live && slot >= 0;
        to = (char *)p.pool + slot / PAGE_TOKENS * p.page_bytes + p.layer_offset +
             (kind == VALUE ? KV_ROWS_VALUES(KV_HEADS, PAGE_TOKENS, HD, KV_ELEM) : 0) +
             KV_ROWS_TOKEN(0, slot % PAGE_TOKENS, PAGE_TOKENS, HD, KV_ELEM);
        head_bytes = KV_ROWS_TOKEN(1, 0, PAGE_TOKENS, HD, KV_ELEM);
    }
    UNROLL for (int r = 0; r < REP; r++)
    {
        uint32_t head = first + r * step;
        float f[PER][2][VEC_BF16], sum = 0;
        UNROLL for (int i = 0; i < PER; i++)
        {
            vec_to_f32(&x[r][i][0], f[i][0]);
            vec_to_f32(&x[r][i][1], f[i][1]);
            if (ROPE && NORM_AFTER && kind != VALUE && t + i * TPR < ROT) qk_rotate(f[i][0], f[i][1], cosine[i], sine[i]);
            UNROLL for (int e = 0; e < VEC_BF16; e++)
                sum = fma_f32(f[i][0][e], f[i][0][e], fma_f32(f[i][1][e], f[i][1][e], sum));
        }
        float scale = NORM ? rsqrt_approx(fma_f32(qk_sum(sum), 1.0f / HD, EPS)) : 1.0f;
        UNROLL for (int i = 0; i < PER; i++)
        {
            const uint32_t s = t + i * TPR;
            if (NORM) {
                UNROLL for (int h = 0; h < 2; h++)
                    UNROLL for (int e = 0; e < VEC_BF16; e++) f[i][h][e] = f[i][h][e] * scale * (OFFSET + weight[i][h][e]);
            }
            if (ROPE && !NORM_AFTER && s < ROT) qk_rotate(f[i][0], f[i][1], cosine[i], sine[i]);
            if (keep && head < heads && HAS(s)) {
                if (WRITE && KV_ELEM == 1 && kind != QUERY) {
                    if (kind == VALUE) vec_to_f32(&x[r][i][0], f[i][0]), vec_to_f32(&x[r][i][1], f[i][1]);
                    qk_store_e4m3(to + head * head_bytes + qk_low(s) * VEC_BF16, f[i][0]);
                    qk_store_e4m3(to + head * head_bytes + qk_high(s) * VEC_BF16, f[i][1]);
                    continue;
                }
                bool raw = WRITE && kind == VALUE;
                vec_st_once(to + head * head_bytes + qk_low(s) * VEC_BYTES, raw ? x[r][i][0] : vec_from_f32(f[i][0]));
                vec_st_once(to + head * head_bytes + qk_high(s) * VEC_BYTES, raw ? x[r][i][1] : vec_from_f32(f[i][1]));
            }
        }
    }
}
