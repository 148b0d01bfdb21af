/* What the bfloat16 attention kernels share (attention_bf16.c, attention_amx.c): packing of queries, keys,
 * values and weights. Compiled with AVX-512; needs elementwise_vec.h before it.
 *
 * Products want pairs: queries and weights row-major (a pair is two neighbours in a row), keys per block of
 * 16 tokens as [d/2][16][2], values per tile as [32][ld][2], where a pair is two dims of a key or two tokens
 * of a value. */
#include "kernels/cpu/attention.h"
#include "kernels/cpu/attention_turn.h"

/* float32 to bfloat16 bits in the upper half of each lane, round to nearest even. */
VEC_INLINE __m512i half_upper(__m512 x)
{
    __m512i u = _mm512_castps_si512(x);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    u = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
    return _mm512_and_si512(u, _mm512_set1_epi32((int)0xFFFF0000u));
}

/* 16 of low, then 16 of high. */
VEC_INLINE __m512i half_two(__m512 low, __m512 high)
{
#if defined(__AVX512BF16__) && !defined(ROSE_AMX_EMULATE)
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
#else
    __m256i a = _mm512_cvtepi32_epi16(_mm512_srli_epi32(half_upper(low), 16)),
            b = _mm512_cvtepi32_epi16(_mm512_srli_epi32(half_upper(high), 16));
    return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
#endif
}

/* Pairs (even[i], odd[i]). */
VEC_INLINE void half_pairs(uint16_t *out, __m512 even, __m512 odd)
{
    const __m512i turn =
        _mm512_set_epi32(0x1F000F, 0x1E000E, 0x1D000D, 0x1C000C, 0x1B000B, 0x1A000A, 0x190009, 0x180008,
                         0x170007, 0x160006, 0x150005, 0x140004, 0x130003, 0x120002, 0x110001, 0x100000);
    _mm512_storeu_si512(out, _mm512_permutexvar_epi16(turn, half_two(even, odd)));
}

VEC_INLINE vf half_some(const float *q, int32_t left)
{
    return left >= VL ? vload(q) : left > 0 ? vload_n(q, left) : vset1(0);
}

/* scale q f32 [d] to [d32], zeros behind d. */
static void half_query(const float *q, float scale, int32_t d, int32_t d32, uint16_t *out)
{
    for (int32_t i = 0; i < d32; i += 2 * VL)
        _mm512_storeu_si512(out + i, half_two(half_some(q + i, d - i) * vset1(scale),
                                              half_some(q + i + VL, d - i - VL) * vset1(scale)));
}

/* A block of keys to [d32/2][16][2]. */
static void half_load_k(enum dtype dtype, const uint8_t *block, int32_t d, int32_t d32, uint16_t *out)
{
    memset(out + (size_t)d * KV_BLOCK, 0, (size_t)(d32 - d) * KV_BLOCK * sizeof *out);
    if (dtype == DTYPE_BF16) {
        memcpy(out, block, (size_t)d * KV_BLOCK * sizeof *out);
    } else if (dtype == DTYPE_F16) {
        const uint16_t *h = (const uint16_t *)(const void *)block;
        for (int32_t i = 0; i < d; i += 2)
            half_pairs(out + (size_t)i * KV_BLOCK, vload_f16(h + (size_t)i * KV_BLOCK),
                       vload_f16(h + (size_t)(i + 1) * KV_BLOCK));
    } else {
        const uint16_t *scale = (const uint16_t *)(const void *)(block + (size_t)d * KV_BLOCK);
        const int8_t *q = (const int8_t *)block;
        vf s = vset1(0);
        for (int32_t i = 0; i < d; i += 2) {
            if (i % 32 == 0) s = vload_f16(scale + (size_t)(i / 32) * KV_BLOCK);
            half_pairs(out + (size_t)i * KV_BLOCK, s * vload_i8(q + (size_t)i * KV_BLOCK),
                       s * vload_i8(q + (size_t)(i + 1) * KV_BLOCK));
        }
    }
}

/* 16 dims from i on of token t; lanes past e read zero. */
VEC_INLINE vf half_value(enum dtype dtype, const uint8_t *block, int32_t e, int32_t t, int32_t i)
{
    __mmask16 lanes = e - i >= 16 ? (__mmask16)0xFFFF : (__mmask16)((1u << (e - i)) - 1);
    if (dtype == DTYPE_F16)
        return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(lanes, (const uint16_t *)(const void *)block +
                                                                   (size_t)t * (size_t)e + i));
    const uint16_t *scale =
        (const uint16_t *)(const void *)(block + (size_t)e * KV_BLOCK) + t * ((e + 31) / 32) + i / 32;
    __m128i q = _mm_maskz_loadu_epi8(lanes, block + (size_t)t * (size_t)e + i);
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(q)) * vset1(f16_to_f32(*scale));
}

/* A block of values to [8][ld][2]; tokens outside [lo, hi) become zero, whatever lies in their slots. */
static void half_load_v(enum dtype dtype, const uint8_t *block, int32_t e, int32_t lo, int32_t hi,
                        uint16_t *out, int32_t ld)
{
    if (dtype == DTYPE_F16 && lo == 0 && hi == KV_BLOCK && e == ld) {
        const uint16_t *h = (const uint16_t *)(const void *)block;
        for (int32_t pair = 0; pair < KV_BLOCK / 2; pair++, h += 2 * e, out += 2 * ld)
            for (int32_t i = 0; i < e; i += 16)
                half_pairs(out + 2 * i, vload_f16(h + i), vload_f16(h + e + i));
        return;
    }
    for (int32_t pair = 0; pair < KV_BLOCK / 2; pair++) {
        int32_t t = 2 * pair;
        bool even = t >= lo && t < hi, odd = t + 1 >= lo && t + 1 < hi;
        uint16_t *row = out + (size_t)pair * (size_t)ld * 2;
        __m512i keep = _mm512_set1_epi32((int)((even ? 0xFFFFu : 0) | (odd ? 0xFFFF0000u : 0)));
        for (int32_t i = 0; i < ld; i += 16) {
            if (dtype == DTYPE_BF16) {
                __mmask16 lanes = e - i >= 16 ? (__mmask16)0xFFFF : (__mmask16)((1u << (e - i)) - 1);
                const uint16_t *src =
                    (const uint16_t *)(const void *)block + ((size_t)pair * (size_t)e + (size_t)i) * 2;
                _mm512_storeu_si512(row + 2 * i,
                                    _mm512_and_si512(keep, _mm512_maskz_loadu_epi32(lanes, src)));
                continue;
            }
            vf a = even ? half_value(dtype, block, e, t, i) : vset1(0),
               b = odd ? half_value(dtype, block, e, t + 1, i) : vset1(0);
            half_pairs(row + 2 * i, a, b);
        }
    }
}

/* Keys of up to 16 rows, f32 [n, stride], as half_load_k makes them; rows behind n become zero. */
static void half_own_k(const float *k, int64_t stride, int32_t n, int32_t d, int32_t d32, uint16_t *out)
{
    for (int32_t i = 0; i < d32; i += 2 * VL) {
        __m512i row[KV_BLOCK];
        VEC_UNROLL
        for (int32_t t = 0; t < KV_BLOCK; t++)
            row[t] = t < n ? half_two(half_some(k + t * stride + i, d - i), half_some(k + t * stride + i + VL, d - i - VL)) : _mm512_setzero_si512();
        attention_turn(row);
        VEC_UNROLL
        for (int32_t x = 0; x < KV_BLOCK; x++) _mm512_storeu_si512(out + (size_t)(i + 2 * x) * KV_BLOCK, row[x]);
    }
}

/* Values of up to 16 rows, f32 [n, stride], as half_load_v makes them; rows outside [lo, hi) become zero. */
static void half_own_v(const float *v, int64_t stride, int32_t e, int32_t lo, int32_t hi, uint16_t *out, int32_t ld)
{
    for (int32_t t = 0; t < KV_BLOCK; t += 2, out += 2 * ld) {
        bool even = t >= lo && t < hi, odd = t + 1 >= lo && t + 1 < hi;
        for (int32_t i = 0; i < ld; i += VL)
            half_pairs(out + 2 * i, even ? half_some(v + t * stride + i, e - i) : vset1(0), odd ? half_some(v + (t + 1) * stride + i, e - i) : vset1(0));
    }
}

/* 2^(x - m) for whole m with |m| < 2^21, as exact as bfloat16 needs (7.5e-5): magic is 1.5 2^23 - m, so that
 * x + magic is rounded to a whole number whose low bits are the exponent; 2^f for |f| <= 1/2 by an own
 * minimax fit of degree 3. low = m - 120: no less comes out than 2^-120. */
VEC_INLINE vf half_power(vf x, vf magic, vf low)
{
    x = vmax(x, low);
    vf t = x + magic, f = x - (t - magic);
    vf p = vfma(vset1(0.05517166852950f), f, vset1(0.2426111251115f));
    p = vfma(p, f, vset1(0.6932609677315f));
    p = vfma(p, f, vset1(0.9999280571937f));
    return _mm512_castsi512_ps(
        _mm512_add_epi32(_mm512_castps_si512(p), _mm512_slli_epi32(_mm512_castps_si512(t), 23)));
}

/* Columns of tile j that row r sees. */
VEC_INLINE uint64_t half_seen(const struct attention_pass *p, int32_t r, int32_t j)
{
    int32_t at = j * ATTENTION_TILE, lo = p->lo[r] - at, hi = p->hi[r] - at;
    lo = lo < 0 ? 0 : lo, hi = hi > ATTENTION_TILE ? ATTENTION_TILE : hi;
    return lo < hi ? ~0ull >> (ATTENTION_TILE - (hi - lo)) << lo & p->present[j] : 0;
}

/* What a row's maximum grew by; the results so far are scaled by it once they are complete (half_rescale).
 * limit: maximum and slack; -inf where half_power cannot take the maximum: none yet, or huge. */
struct half_growth {
    float by[ATTENTION_HALF_SUB], limit[ATTENTION_HALF_SUB];
    bool any;
};

VEC_INLINE float half_limit(float m)
{
    return fabsf(m) < 2097152.0f ? m + ATTENTION_SLACK : -INFINITY;
}

static __attribute__((noinline)) void half_follow(const struct attention_pass *p, int32_t r, float top,
                                                  struct half_growth *g)
{
    if (p->maximum[r] > -INFINITY) { /* else nothing has been added up yet */
        float *sum = p->sum + r * ATTENTION_LANES, by[VL];
        vf alpha = vexp2(vset1(p->maximum[r] - top));
        vstore(sum, vload(sum) * alpha);
        vstore(by, alpha);
        g->by[r] = by[0], g->any = true;
    }
    p->maximum[r] = top;
    g->limit[r] = half_limit(top);
}

static void half_growth_reset(struct half_growth *g)
{
    for (int32_t r = 0; r < ATTENTION_HALF_SUB; r++) g->by[r] = 1;
    g->any = false;
}

/* After the weights of a tile are known and before its values are added. */
VEC_INLINE void half_rescale(const struct attention_pass *p, struct half_growth *g)
{
    if (!g->any) return;
    for (int32_t r = 0; r < p->rows; r++) {
        float *acc = p->acc + (int64_t)r * p->ld;
        if (g->by[r] != 1.0f)
            for (int32_t j = 0; j < p->ld; j += VL) vstore(acc + j, vload(acc + j) * vset1(g->by[r]));
    }
    half_growth_reset(g);
}

static void half_growth_begin(struct half_growth *g, const struct attention_pass *p)
{
    half_growth_reset(g);
    for (int32_t r = 0; r < p->rows; r++) g->limit[r] = half_limit(p->maximum[r]);
}

enum half_kind {
    HALF_PLAIN,
    HALF_BORDER,
    HALF_GENERAL
}; /* all in sight; masks; soft cap or alibi and masks */

/* Row r of tile j: its weights and its share of the sums. `kind` and N, the vectors of columns that any row
 * sees (1, 2 or 4), are constant after inlining; the bits are the same for every kind and N that applies. */
VEC_INLINE void half_softmax_row(const struct attention_pass *p, int32_t j, int32_t r, const float *scores,
                                 uint16_t *weights, enum half_kind kind, const int N, struct half_growth *g)
{
    const float *row = scores + r * ATTENTION_TILE;
    float *sum = p->sum + r * ATTENTION_LANES;
    uint64_t seen = kind == HALF_PLAIN ? ~0ull : half_seen(p, r, j);
    vf x[ATTENTION_TILE / 16], w[ATTENTION_TILE / 16];
    VEC_UNROLL
    for (int i = 0; i < N; i++) {
        x[i] = vload(row + i * VL);
        if (kind == HALF_GENERAL && p->softcap != 0) x[i] = vtanh(x[i]) * vset1(p->softcap);
        if (kind == HALF_GENERAL && p->slopes) {
            vf column = viota() + vset1((float)(i * VL - (p->position[r] - j * ATTENTION_TILE)));
            x[i] = x[i] - vset1(p->slopes[r]) * vabs(column);
        }
        if (kind != HALF_PLAIN) x[i] = vsel((__mmask16)(seen >> (16 * i)), x[i], vset1(-INFINITY));
    }
    vf high = x[0], m = vset1(p->maximum[r]);
    if (N > 1) high = vmax(high, x[1]);
    if (N == 4) high = vmax(high, vmax(x[2], x[3]));
    if (__builtin_expect(vbits(vlt(vset1(g->limit[r]), high)) != 0, 0)) {
        float top = vhmax(high);
        if (top > p->maximum[r] + ATTENTION_SLACK) half_follow(p, r, ceilf(top), g);
        m = vset1(p->maximum[r]);
        if (g->limit[r] == -INFINITY) { /* huge */
            VEC_UNROLL
            for (int i = 0; i < N; i++) x[i] = x[i] - m;
            m = vset1(0);
        }
    }
    vf magic = vset1(12582912.0f) - m, low = m - vset1(120.0f);
    VEC_UNROLL
    for (int i = 0; i < N; i++) {
        w[i] = half_power(x[i], magic, low);
        if (kind != HALF_PLAIN) w[i] = _mm512_maskz_mov_ps((__mmask16)(seen >> (16 * i)), w[i]);
    }
    vf part = w[0];
    if (N > 1) part = part + w[1];
    if (N == 4) part = part + (w[2] + w[3]);
    vstore(sum, vload(sum) + part);
    _mm512_storeu_si512(weights + r * ATTENTION_TILE, half_two(w[0], N == 1 ? vset1(0) : w[1]));
    _mm512_storeu_si512(weights + r * ATTENTION_TILE + 32, N == 4 ? half_two(w[2], w[3]) : _mm512_setzero_si512());
}

/* Rows [r0, r1) of tile j. */
VEC_INLINE void half_softmax(const struct attention_pass *p, int32_t j, int32_t r0, int32_t r1,
                             const float *scores, uint16_t *weights, struct half_growth *g)
{
    int32_t columns = p->hi[p->rows - 1] - j * ATTENTION_TILE; /* the last row's limit is the highest */
    if (j >= p->plain0 && j < p->plain1)
        for (int32_t r = r0; r < r1; r++) half_softmax_row(p, j, r, scores, weights, HALF_PLAIN, 4, g);
    else if (p->softcap != 0 || p->slopes)
        for (int32_t r = r0; r < r1; r++) half_softmax_row(p, j, r, scores, weights, HALF_GENERAL, 4, g);
    else if (columns > 2 * VL)
        for (int32_t r = r0; r < r1; r++) half_softmax_row(p, j, r, scores, weights, HALF_BORDER, 4, g);
    else if (columns > VL)
        for (int32_t r = r0; r < r1; r++) half_softmax_row(p, j, r, scores, weights, HALF_BORDER, 2, g);
    else
        for (int32_t r = r0; r < r1; r++) half_softmax_row(p, j, r, scores, weights, HALF_BORDER, 1, g);
}
