/* Vectors of float32, one text for every instruction set: the kernels' bodies (*_body.h) are written on these
 * few names and compiled once a set, by foo.c (portable: 4 lanes, whatever the compiler makes of them),
 * foo_avx2.c and foo_avx512.c.
 *
 * VL lanes; vf a vector, vm a lane mask. Operators + - * / work on vf. A lane's result never depends on the
 * other lanes, and vsum has one order for a given VL, so that results depend on the instruction set but on
 * nothing else.
 */
#ifndef ROSE_KERNELS_CPU_ELEMENTWISE_VEC_H
#define ROSE_KERNELS_CPU_ELEMENTWISE_VEC_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "tensor/dtype.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define VEC_INLINE static inline __attribute__((always_inline, unused))
#if defined(__clang__)
#define VEC_UNROLL _Pragma("clang loop unroll(full)")
#else
#define VEC_UNROLL _Pragma("GCC unroll 16")
#endif

#if defined(__AVX512F__)
enum { VL = 16 };
#define VEC_NAME(name) name##_avx512
typedef __m512 vf;
typedef __mmask16 vm;
VEC_INLINE vf vset1(float x)
{
    return _mm512_set1_ps(x);
}
VEC_INLINE vf vload(const float *p)
{
    return _mm512_loadu_ps(p);
}
VEC_INLINE void vstore(float *p, vf v)
{
    _mm512_storeu_ps(p, v);
}
/* The first n lanes (0 <= n <= VL); the others read 0 and are not written. */
VEC_INLINE vf vload_n(const float *p, int n)
{
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}
VEC_INLINE void vstore_n(float *p, vf v, int n)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), v);
}
VEC_INLINE vf vfma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
VEC_INLINE vf vmax(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}
VEC_INLINE vf vmin(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}
VEC_INLINE vf vround(vf a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
VEC_INLINE vf vsqrt(vf a)
{
    return _mm512_sqrt_ps(a);
}
VEC_INLINE vm vlt(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
VEC_INLINE vm vge(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ);
}
VEC_INLINE vm vand(vm a, vm b)
{
    return a & b;
}
VEC_INLINE uint32_t vbits(vm m)
{
    return m;
} /* bit i: lane i */
VEC_INLINE vf vsel(vm m, vf yes, vf no)
{
    return _mm512_mask_blend_ps(m, no, yes);
}
VEC_INLINE vf vabs(vf a)
{
    return _mm512_abs_ps(a);
}
VEC_INLINE vf vcopysign(vf a, vf sign)
{
    __m512i s = _mm512_set1_epi32((int)0x80000000u);
    return _mm512_castsi512_ps(
        _mm512_ternarylogic_epi32(s, _mm512_castps_si512(sign), _mm512_castps_si512(a), 0xCA));
}
/* 2^n for whole n in [-126, 127]. */
VEC_INLINE vf vpow2i(vf n)
{
    __m512i i = _mm512_cvtps_epi32(n);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(i, _mm512_set1_epi32(127)), 23));
}
VEC_INLINE vf vswap(vf a)
{
    return _mm512_permute_ps(a, 0xB1);
} /* lanes 2i and 2i + 1 exchanged */
VEC_INLINE vf viota(void)
{
    return _mm512_set_ps(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
}
VEC_INLINE vf vload_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
VEC_INLINE vf vset1_f16(uint16_t h)
{
    return _mm512_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(h)));
}
VEC_INLINE vf vload_bf16(const uint16_t *p)
{
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16));
}
VEC_INLINE vf vload_i8(const int8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
VEC_INLINE void vstore_f16(uint16_t *p, vf v)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
/* float32 to bfloat16, round to nearest even (NaN stays NaN). */
VEC_INLINE void vstore_bf16(uint16_t *p, vf v)
{
    __m512i u = _mm512_castps_si512(v),
            odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i r = _mm512_srli_epi32(_mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF))), 16);
    __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    r = _mm512_mask_or_epi32(r, nan, _mm512_srli_epi32(u, 16), _mm512_set1_epi32(64));
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(r));
}
/* VL pairs of bf16: the low halves (even) and the high halves (odd). */
VEC_INLINE void vload_bf16_pairs(const uint16_t *p, vf *even, vf *odd)
{
    __m512i x = _mm512_loadu_si512(p);
    *even = _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
    *odd = _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32((int)0xFFFF0000u)));
}

#elif defined(__AVX2__)
enum { VL = 8 };
#define VEC_NAME(name) name##_avx2
typedef __m256 vf;
typedef __m256 vm;
VEC_INLINE __m256i vec_first(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0));
}
VEC_INLINE vf vset1(float x)
{
    return _mm256_set1_ps(x);
}
VEC_INLINE vf vload(const float *p)
{
    return _mm256_loadu_ps(p);
}
VEC_INLINE void vstore(float *p, vf v)
{
    _mm256_storeu_ps(p, v);
}
VEC_INLINE vf vload_n(const float *p, int n)
{
    return n == VL ? vload(p) : _mm256_maskload_ps(p, vec_first(n));
}
VEC_INLINE void vstore_n(float *p, vf v, int n)
{
    if (n == VL)
        vstore(p, v);
    else
        _mm256_maskstore_ps(p, vec_first(n), v); /* slow on some processors */
}
VEC_INLINE vf vfma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
VEC_INLINE vf vmax(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}
VEC_INLINE vf vmin(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}
VEC_INLINE vf vround(vf a)
{
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
VEC_INLINE vf vsqrt(vf a)
{
    return _mm256_sqrt_ps(a);
}
VEC_INLINE vm vlt(vf a, vf b)
{
    return _mm256_cmp_ps(a, b, _CMP_LT_OQ);
}
VEC_INLINE vm vge(vf a, vf b)
{
    return _mm256_cmp_ps(a, b, _CMP_GE_OQ);
}
VEC_INLINE vm vand(vm a, vm b)
{
    return _mm256_and_ps(a, b);
}
VEC_INLINE uint32_t vbits(vm m)
{
    return (uint32_t)_mm256_movemask_ps(m);
}
VEC_INLINE vf vsel(vm m, vf yes, vf no)
{
    return _mm256_blendv_ps(no, yes, m);
}
VEC_INLINE vf vabs(vf a)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}
VEC_INLINE vf vcopysign(vf a, vf sign)
{
    vf s = _mm256_set1_ps(-0.0f);
    return _mm256_or_ps(_mm256_andnot_ps(s, a), _mm256_and_ps(s, sign));
}
VEC_INLINE vf vpow2i(vf n)
{
    __m256i i = _mm256_cvtps_epi32(n);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(i, _mm256_set1_epi32(127)), 23));
}
VEC_INLINE vf vswap(vf a)
{
    return _mm256_permute_ps(a, 0xB1);
}
VEC_INLINE vf viota(void)
{
    return _mm256_set_ps(7, 6, 5, 4, 3, 2, 1, 0);
}
VEC_INLINE vf vload_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
VEC_INLINE vf vset1_f16(uint16_t h)
{
    return _mm256_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(h)));
}
VEC_INLINE vf vload_bf16(const uint16_t *p)
{
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}
VEC_INLINE vf vload_i8(const int8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
VEC_INLINE void vstore_f16(uint16_t *p, vf v)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
VEC_INLINE void vload_bf16_pairs(const uint16_t *p, vf *even, vf *odd)
{
    __m256i x = _mm256_loadu_si256((const __m256i *)p);
    *even = _mm256_castsi256_ps(_mm256_slli_epi32(x, 16));
    *odd = _mm256_castsi256_ps(_mm256_and_si256(x, _mm256_set1_epi32((int)0xFFFF0000u)));
}

#else
enum { VL = 4 };
#define VEC_NAME(name) name##_portable
typedef float vf __attribute__((vector_size(16)));
typedef int32_t vm __attribute__((vector_size(16)));
VEC_INLINE vf vset1(float x)
{
    return (vf){x, x, x, x};
}
VEC_INLINE vf vload(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}
VEC_INLINE void vstore(float *p, vf v)
{
    memcpy(p, &v, sizeof v);
}
VEC_INLINE vf vload_n(const float *p, int n)
{
    if (n == VL) return vload(p);
    vf v = {0, 0, 0, 0};
    for (int i = 0; i < n; i++) v[i] = p[i];
    return v;
}
VEC_INLINE void vstore_n(float *p, vf v, int n)
{
    if (n == VL)
        vstore(p, v);
    else
        for (int i = 0; i < n; i++) p[i] = v[i];
}
VEC_INLINE vf vfma(vf a, vf b, vf c)
{
    return a * b + c;
}
VEC_INLINE vf vec_bits(vm m)
{
    vf v;
    memcpy(&v, &m, sizeof v);
    return v;
}
VEC_INLINE vm vec_ints(vf v)
{
    vm m;
    memcpy(&m, &v, sizeof m);
    return m;
}
VEC_INLINE vm vlt(vf a, vf b)
{
    return a < b;
}
VEC_INLINE vm vge(vf a, vf b)
{
    return a >= b;
}
VEC_INLINE vm vand(vm a, vm b)
{
    return a & b;
}
VEC_INLINE uint32_t vbits(vm m)
{
    return (uint32_t)((m[0] & 1) | (m[1] & 2) | (m[2] & 4) | (m[3] & 8));
}
VEC_INLINE vf vsel(vm m, vf yes, vf no)
{
    return vec_bits((m & vec_ints(yes)) | (~m & vec_ints(no)));
}
VEC_INLINE vf vmax(vf a, vf b)
{
    return vsel(vlt(b, a), a, b);
} /* as x86: b when unordered */
VEC_INLINE vf vmin(vf a, vf b)
{
    return vsel(vlt(a, b), a, b);
}
VEC_INLINE vf vabs(vf a)
{
    return vec_bits(vec_ints(a) & 0x7FFFFFFF);
}
VEC_INLINE vf vcopysign(vf a, vf sign)
{
    return vec_bits((vec_ints(a) & 0x7FFFFFFF) | (vec_ints(sign) & (int32_t)0x80000000u));
}
/* Nearest even, for |a| < 2^22: adding 1.5 * 2^23 leaves no fraction bits. */
VEC_INLINE vf vround(vf a)
{
    return a + 12582912.0f - 12582912.0f;
}
VEC_INLINE vf vsqrt(vf a)
{
    for (int i = 0; i < 4; i++) a[i] = sqrtf(a[i]);
    return a;
}
VEC_INLINE vf vpow2i(vf n)
{
    return vec_bits((__builtin_convertvector(n, vm) + 127) << 23);
}
VEC_INLINE vf vswap(vf a)
{
    return (vf){a[1], a[0], a[3], a[2]};
}
VEC_INLINE vf viota(void)
{
    return (vf){0, 1, 2, 3};
}
VEC_INLINE vf vload_f16(const uint16_t *p)
{
    return (vf){f16_to_f32(p[0]), f16_to_f32(p[1]), f16_to_f32(p[2]), f16_to_f32(p[3])};
}
VEC_INLINE vf vset1_f16(uint16_t h)
{
    return vset1(f16_to_f32(h));
}
VEC_INLINE vf vload_bf16(const uint16_t *p)
{
    return (vf){bf16_to_f32(p[0]), bf16_to_f32(p[1]), bf16_to_f32(p[2]), bf16_to_f32(p[3])};
}
VEC_INLINE vf vload_i8(const int8_t *p)
{
    return (vf){p[0], p[1], p[2], p[3]};
}
VEC_INLINE void vstore_f16(uint16_t *p, vf v)
{
    for (int i = 0; i < 4; i++) p[i] = f32_to_f16(v[i]);
}
VEC_INLINE void vload_bf16_pairs(const uint16_t *p, vf *even, vf *odd)
{
    *even = (vf){bf16_to_f32(p[0]), bf16_to_f32(p[2]), bf16_to_f32(p[4]), bf16_to_f32(p[6])};
    *odd = (vf){bf16_to_f32(p[1]), bf16_to_f32(p[3]), bf16_to_f32(p[5]), bf16_to_f32(p[7])};
}
#endif

/* Horizontal sum and maximum: lanes folded in halves, one order. */
#if defined(__AVX2__)
VEC_INLINE __m128 vec_fold_sum(__m256 v)
{
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_add_ss(x, _mm_movehdup_ps(x));
}
VEC_INLINE __m128 vec_fold_max(__m256 v)
{
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_max_ss(x, _mm_movehdup_ps(x));
}
#if defined(__AVX512F__)
VEC_INLINE float vsum(vf v)
{
    return _mm_cvtss_f32(
        vec_fold_sum(_mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1))));
}
VEC_INLINE float vhmax(vf v)
{
    return _mm_cvtss_f32(
        vec_fold_max(_mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1))));
}
#else
VEC_INLINE float vsum(vf v)
{
    return _mm_cvtss_f32(vec_fold_sum(v));
}
VEC_INLINE float vhmax(vf v)
{
    return _mm_cvtss_f32(vec_fold_max(v));
}
#endif
#else
VEC_INLINE float vsum(vf v)
{
    return (v[0] + v[2]) + (v[1] + v[3]);
}
VEC_INLINE float vhmax(vf v)
{
    float a = v[0] > v[2] ? v[0] : v[2], b = v[1] > v[3] ? v[1] : v[3];
    return a > b ? a : b;
}
#endif

/* e^x with relative error below 9e-8; exactly 1 at 0; 0 below -87 (so at -inf); above 88 it stays at e^88.
 * x = n ln 2 + r, |r| <= ln 2 / 2; e^r by its Taylor polynomial of degree 7 (remainder 5.2e-9), Cody and
 * Waite's two-part ln 2 keeps r exact. */
VEC_INLINE vf vexp(vf x)
{
    vm tiny = vlt(x, vset1(-87.0f));
    x = vmin(vmax(x, vset1(-87.0f)), vset1(88.0f));
    vf n = vround(x * vset1(1.44269504f));
    vf r = vfma(n, vset1(-0.693359375f), x);
    r = vfma(n, vset1(2.12194440e-4f), r);
    vf p = vset1(1.0f / 5040);
    p = vfma(p, r, vset1(1.0f / 720));
    p = vfma(p, r, vset1(1.0f / 120));
    p = vfma(p, r, vset1(1.0f / 24));
    p = vfma(p, r, vset1(1.0f / 6));
    p = vfma(p, r, vset1(0.5f));
    p = vfma(p * r, r, r) + vset1(1.0f);
    return vsel(tiny, vset1(0.0f), p * vpow2i(n));
}

/* 2^r for |r| <= 1/2: minimax polynomials whose constant term is exactly 1 (own fits, relative error 1.6e-8
 * and, for results that are rounded to bfloat16 anyway, 2.8e-6). */
VEC_INLINE vf vec_pow2_fraction(vf r, bool brief)
{
    vf p;
    if (brief) {
        p = vset1(0.009582852013409138f);
        p = vfma(p, r, vset1(0.055906426161527634f));
        p = vfma(p, r, vset1(0.24024099111557007f));
        p = vfma(p, r, vset1(0.6931241750717163f));
    } else {
        p = vset1(0.00015353361959569156f);
        p = vfma(p, r, vset1(0.0013398875016719103f));
        p = vfma(p, r, vset1(0.00961843691766262f));
        p = vfma(p, r, vset1(0.055503323674201965f));
        p = vfma(p, r, vset1(0.24022647738456726f));
        p = vfma(p, r, vset1(0.6931471824645996f));
    }
    return vfma(p, r, vset1(1.0f));
}

/* 2^x for x <= 127: relative error below 1e-7; exactly 1 at 0; 0 below -150 (so at -inf; without AVX-512
 * below -126). */
VEC_INLINE vf vexp2_of(vf x, bool brief)
{
#if defined(__AVX512F__)
    x = vmax(x, vset1(-200.0f));
    vf n = vround(x);
    return _mm512_scalef_ps(vec_pow2_fraction(x - n, brief), n);
#else
    vm tiny = vlt(x, vset1(-126.0f));
    x = vmax(x, vset1(-126.0f));
    vf n = vround(x);
    return vsel(tiny, vset1(0.0f), vec_pow2_fraction(x - n, brief) * vpow2i(n));
#endif
}
VEC_INLINE vf vexp2(vf x)
{
    return vexp2_of(x, false);
}

/* tanh x: below 0.25 by its odd Taylor polynomial, else 1 - 2 / (e^(2|x|) + 1); relative error below 2.8e-7. NaN
 * stays NaN, so that whoever looks at a model's answer sees it: it is on neither side of a number. */
VEC_INLINE vf vtanh(vf x)
{
    vf a = vabs(x), x2 = x * x;
    vf big = vcopysign(vset1(1.0f) - vset1(2.0f) / (vexp(vmin(a + a, vset1(40.0f))) + vset1(1.0f)), x);
    vf p = vset1(62.0f / 2835);
    p = vfma(p, x2, vset1(-17.0f / 315));
    p = vfma(p, x2, vset1(2.0f / 15));
    p = vfma(p, x2, vset1(-1.0f / 3));
    big = vsel(vlt(vset1(0.2f), a), big, x);
    return vsel(vlt(a, vset1(0.25f)), vfma(x * x2, p, x), big);
}

/* max(x, 0); NaN stays NaN: of two numbers without an order vmax gives the second. */
VEC_INLINE vf vrelu(vf x)
{
    return vmax(vset1(0.0f), x);
}

#endif
