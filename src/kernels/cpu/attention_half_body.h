/* What the bfloat16 attention kernels share (attention_bf16.c, attention_amx.c): packing of queries, keys,
 * values and weights. Compiled with AVX-512; needs elementwise_vec.h before it.
 *
 * Products want pairs: queries and weights row-major (a pair is two neighbours in a row), keys per block of
 * 16 tokens as [d/2][16][2], values per tile as [32][ld][2], where a pair is two dims of a key or two tokens
 * of a value. */
#include "kernels/cpu/attention.h"

/* float32 to bfloat16 bits in the upper half of each lane, round to nearest even. */
VEC_INLINE __m512i half_upper(__m512 x)
{
    __m512i u = _mm512_castps_si512(x);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    u = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
    return _mm512_and_si512(u, _mm512_set1_epi32((int)0xFFFF0000u));
}

VEC_INLINE void half_pairs(uint16_t *out, __m512 even, __m512 odd)
{
    _mm512_storeu_si512(out, _mm512_or_si512(_mm512_srli_epi32(half_upper(even), 16), half_upper(odd)));
}

VEC_INLINE void half_row(uint16_t *out, __m512 x)
{
#if defined(__AVX512BF16__) && !defined(ROSE_AMX_EMULATE)
    _mm256_storeu_si256((__m256i *)(void *)out, (__m256i)_mm512_cvtneps_pbh(x));
#else
    _mm256_storeu_si256((__m256i *)(void *)out, _mm512_cvtepi32_epi16(_mm512_srli_epi32(half_upper(x), 16)));
#endif
}

/* q f32 [rows, d] to [rows, d32], zeros behind d. */
static void half_queries(const float *q, int32_t rows, int32_t d, int32_t d32, uint16_t *out)
{
    for (int32_t r = 0; r < rows; r++)
        for (int32_t i = 0; i < d32; i += VL) {
            int left = d - i < 0 ? 0 : d - i < VL ? d - i : VL;
            half_row(out + (size_t)r * (size_t)d32 + i, vload_n(q + (size_t)r * (size_t)d + i, left));
        }
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

#define ATTENTION_HALF_BODY
#include "kernels/cpu/attention_softmax_body.h"

static void half_softmax(const struct attention_softmax *s, uint16_t *weights)
{
    VEC_NAME(attention_softmax_into)(s, weights);
}
