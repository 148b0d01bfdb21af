/* Conversions between float and the narrow formats, and packed arithmetic on pairs.
 *
 * PTX ISA: 9.7.9.21 "cvt", 9.7.4 "Half Precision Floating Point Instructions" (fma, mul, add on f16x2 and bf16x2).
 * Instructions: bf16x2, f16x2 from sm_80; e4m3x2, e5m2x2 from sm_89; e2m1x2, ue8m0x2 on sm_100a and sm_120a. Where an
 * architecture lacks the instruction the same function computes on the bits, with the same result for every input;
 * the CPU harness runs those bit forms, tested exhaustively against float64 (tests/simt/test_simt_convert.c).
 *
 * Rounding is to nearest, ties to even. The 8- and 4-bit targets saturate: infinity and what lies beyond becomes the
 * largest finite value; NaN stays NaN (0x7f) in e4m3 and e5m2 and becomes +6 in e2m1, as cvt.satfinite does.
 *
 * Packed pairs: element 0 (the lower address) in the low bits. */
#ifndef ROSE_CUDA_CONVERT_CUH
#define ROSE_CUDA_CONVERT_CUH

#include "kernels/cuda/common/types.cuh"

/* ---- bf16 ---------------------------------------------------------------------------------------------------------- */
DEVICE float bf16_to_f32(bf16 x)
{
    return f32_from_bits((uint32_t)x.bits << 16);
}
DEVICE bf16 f32_to_bf16(float x)
{
    bf16 r;
#ifdef ROSE_SIMT
    uint32_t u = f32_bits(x);
    r.bits = x != x ? 0x7fff : (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
#else
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r.bits) : "f"(x));
#endif
    return r;
}
DEVICE bf16x2 f32_to_bf16x2(float lo, float hi)
{
    bf16x2 r;
#ifdef ROSE_SIMT
    r.bits = (uint32_t)f32_to_bf16(hi).bits << 16 | f32_to_bf16(lo).bits;
#else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r.bits) : "f"(hi), "f"(lo));
#endif
    return r;
}
/* The halves of a pair; from a raw register of a vector load use bf16x2_lo_f32(as_bf16x2(v.v[i])). */
DEVICE float bf16x2_lo_f32(bf16x2 x)
{
    return f32_from_bits(x.bits << 16);
}
DEVICE float bf16x2_hi_f32(bf16x2 x)
{
    return f32_from_bits(x.bits & 0xffff0000u);
}
DEVICE bf16x2 as_bf16x2(uint32_t bits)
{
    bf16x2 r;
    r.bits = bits;
    return r;
}

/* ---- f16 ----------------------------------------------------------------------------------------------------------- */
#ifdef ROSE_SIMT
DEVICE float rose_f16_decode_(uint32_t h)
{
    uint32_t e = h >> 10 & 31, m = h & 0x3ff, s = (h & 0x8000) << 16;
    if (e == 31) return f32_from_bits(s | 0x7f800000u | m << 13 | (m ? 0x400000u : 0));
    if (e) return f32_from_bits(s | (e + 112) << 23 | m << 13);
    float v = (float)m * 0x1p-24f;
    return s ? -v : v;
}
DEVICE uint16_t rose_f16_encode_(float x)
{
    uint32_t u = f32_bits(x), s = u >> 16 & 0x8000, a = u & 0x7fffffff;
    if (a > 0x7f800000u) return 0x7fff;
    if (a >= 0x477ff000u) return (uint16_t)(s | 0x7c00); /* 65520 and more round to infinity */
    if (a < 0x38800000u) /* below 2^-14: to a multiple of 2^-24 */
        return (uint16_t)(s | (f32_bits(f32_from_bits(a) + 0.5f) - 0x3f000000u));
    return (uint16_t)(s | (((a + 0xfff + (a >> 13 & 1)) >> 13) - (112 << 10)));
}
#endif
DEVICE float f16_to_f32(f16 x)
{
#ifdef ROSE_SIMT
    return rose_f16_decode_(x.bits);
#else
    float r;
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x.bits));
    return r;
#endif
}
DEVICE f16 f32_to_f16(float x)
{
    f16 r;
#ifdef ROSE_SIMT
    r.bits = rose_f16_encode_(x);
#else
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r.bits) : "f"(x));
#endif
    return r;
}
DEVICE f16x2 f32_to_f16x2(float lo, float hi)
{
    f16x2 r;
#ifdef ROSE_SIMT
    r.bits = (uint32_t)rose_f16_encode_(hi) << 16 | rose_f16_encode_(lo);
#else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r.bits) : "f"(hi), "f"(lo));
#endif
    return r;
}
DEVICE float f16x2_lo_f32(f16x2 x)
{
    f16 h;
    h.bits = (uint16_t)x.bits;
    return f16_to_f32(h);
}
DEVICE float f16x2_hi_f32(f16x2 x)
{
    f16 h;
    h.bits = (uint16_t)(x.bits >> 16);
    return f16_to_f32(h);
}
DEVICE f16x2 as_f16x2(uint32_t bits)
{
    f16x2 r;
    r.bits = bits;
    return r;
}
/* The same conversions, but what lies beyond +-65504 becomes that; NaN stays NaN. */
#ifdef ROSE_SIMT
DEVICE uint16_t rose_f16_finite_(float x)
{
    return rose_f16_encode_(x > 65504.0f ? 65504.0f : x < -65504.0f ? -65504.0f : x);
}
#endif
DEVICE f16 f32_to_f16_finite(float x)
{
    f16 r;
#ifdef ROSE_SIMT
    r.bits = rose_f16_finite_(x);
#else
    asm("cvt.rn.satfinite.f16.f32 %0, %1;" : "=h"(r.bits) : "f"(x));
#endif
    return r;
}
DEVICE f16x2 f32_to_f16x2_finite(float lo, float hi)
{
    f16x2 r;
#ifdef ROSE_SIMT
    r.bits = (uint32_t)rose_f16_finite_(hi) << 16 | rose_f16_finite_(lo);
#else
    asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(r.bits) : "f"(hi), "f"(lo));
#endif
    return r;
}

/* ---- 8 bits and fewer: the bit form ------------------------------------------------------------------------------------
 * Rounds |x| to M mantissa bits. At or above the smallest normal (bits min_normal) by adding half a unit to the float's
 * bits; below it by adding 2^23 smallest steps (`magic`), which leaves the count of steps in the low bits. */
DEVICE uint32_t rose_narrow_(float x, uint32_t m, uint32_t bias, uint32_t max_code, uint32_t nan_code)
{
    uint32_t u = f32_bits(x), a = u & 0x7fffffff;
    uint32_t shift = 23 - m, min_normal = (128 - bias) << 23, magic = (127 + 1 - bias - m + 23) << 23;
    uint32_t normal = ((a + ((1u << (shift - 1)) - 1) + (a >> shift & 1)) >> shift) - ((127 - bias) << m);
    uint32_t small = f32_bits(f32_from_bits(a) + f32_from_bits(magic)) - magic;
    uint32_t code = a >= min_normal ? normal : small;
    if (code > max_code) code = max_code;
    return a > 0x7f800000u ? nan_code : code;
}
DEVICE uint32_t rose_sign_(float x, uint32_t bit)
{
    return f32_bits(x) >> 31 << bit;
}
DEVICE float rose_e4m3_decode_(uint32_t c)
{
    float v = f32_from_bits((c & 0x7f) << 20) * 0x1p120f;
    if ((c & 0x7f) == 0x7f) v = f32_from_bits(0x7fffffffu);
    return c & 0x80 ? -v : v;
}
DEVICE float rose_e5m2_decode_(uint32_t c)
{
    uint32_t a = c & 0x7f;
    float v = a > 0x7c ? f32_from_bits(0x7fffffffu) : a == 0x7c ? INF_F32 : f32_from_bits(a << 21) * 0x1p112f;
    return c & 0x80 ? -v : v;
}

/* ---- e4m3, e5m2 ---------------------------------------------------------------------------------------------------------- */
#if !defined(ROSE_SIMT) && HAS_CVT_FP8
#define ROSE_CVT_FP8_(type)                                                                                   \
    DEVICE uint16_t f32_to_##type##x2(float lo, float hi)                                                    \
    {                                                                                                        \
        uint16_t r;                                                                                          \
        asm("cvt.rn.satfinite." #type "x2.f32 %0, %1, %2;" : "=h"(r) : "f"(hi), "f"(lo));                    \
        return r;                                                                                            \
    }                                                                                                        \
    DEVICE f16x2 type##x2_to_f16x2(uint16_t x)                                                               \
    {                                                                                                        \
        f16x2 r;                                                                                             \
        asm("cvt.rn.f16x2." #type "x2 %0, %1;" : "=r"(r.bits) : "h"(x));                                     \
        return r;                                                                                            \
    }                                                                                                        \
    DEVICE f32x2 type##x2_to_f32x2(uint16_t x)                                                               \
    {                                                                                                        \
        f16x2 h = type##x2_to_f16x2(x);                                                                      \
        f32x2 r = {{f16x2_lo_f32(h), f16x2_hi_f32(h)}};                                                      \
        return r;                                                                                            \
    }
ROSE_CVT_FP8_(e4m3)
ROSE_CVT_FP8_(e5m2)
#else
DEVICE uint16_t f32_to_e4m3x2(float lo, float hi)
{
    uint32_t l = rose_narrow_(lo, 3, 7, 0x7e, 0x7f) | rose_sign_(lo, 7);
    uint32_t h = rose_narrow_(hi, 3, 7, 0x7e, 0x7f) | rose_sign_(hi, 7);
    if (lo != lo) l = 0x7f;
    if (hi != hi) h = 0x7f;
    return (uint16_t)(h << 8 | l);
}
DEVICE uint16_t f32_to_e5m2x2(float lo, float hi)
{
    uint32_t l = rose_narrow_(lo, 2, 15, 0x7b, 0x7f) | rose_sign_(lo, 7);
    uint32_t h = rose_narrow_(hi, 2, 15, 0x7b, 0x7f) | rose_sign_(hi, 7);
    if (lo != lo) l = 0x7f;
    if (hi != hi) h = 0x7f;
    return (uint16_t)(h << 8 | l);
}
DEVICE f32x2 e4m3x2_to_f32x2(uint16_t x)
{
    f32x2 r = {{rose_e4m3_decode_(x & 0xff), rose_e4m3_decode_(x >> 8)}};
    return r;
}
DEVICE f32x2 e5m2x2_to_f32x2(uint16_t x)
{
    f32x2 r = {{rose_e5m2_decode_(x & 0xff), rose_e5m2_decode_(x >> 8)}};
    return r;
}
DEVICE f16x2 e4m3x2_to_f16x2(uint16_t x)
{
    f32x2 f = e4m3x2_to_f32x2(x);
    return f32_to_f16x2(f.v[0], f.v[1]);
}
DEVICE f16x2 e5m2x2_to_f16x2(uint16_t x)
{
    f32x2 f = e5m2x2_to_f32x2(x);
    return f32_to_f16x2(f.v[0], f.v[1]);
}
#endif
DEVICE e4m3 f32_to_e4m3(float x)
{
    e4m3 r;
    r.bits = (uint8_t)f32_to_e4m3x2(x, 0.0f);
    return r;
}
DEVICE e5m2 f32_to_e5m2(float x)
{
    e5m2 r;
    r.bits = (uint8_t)f32_to_e5m2x2(x, 0.0f);
    return r;
}
DEVICE float e4m3_to_f32(e4m3 x)
{
    return e4m3x2_to_f32x2(x.bits).v[0];
}
DEVICE float e5m2_to_f32(e5m2 x)
{
    return e5m2x2_to_f32x2(x.bits).v[0];
}
/* Four at once: the register of a packed store, element 0 in the low byte. */
DEVICE uint32_t f32_to_e4m3x4(float a, float b, float c, float d)
{
    return (uint32_t)f32_to_e4m3x2(c, d) << 16 | f32_to_e4m3x2(a, b);
}
DEVICE uint32_t f32_to_e5m2x4(float a, float b, float c, float d)
{
    return (uint32_t)f32_to_e5m2x2(c, d) << 16 | f32_to_e5m2x2(a, b);
}
/* Two e4m3 to two bf16 (exact; NaN stays NaN). */
DEVICE bf16x2 e4m3x2_to_bf16x2(uint16_t x)
{
    f32x2 f = e4m3x2_to_f32x2(x);
    return f32_to_bf16x2(f.v[0], f.v[1]);
}

/* ---- ue8m0: powers of two -------------------------------------------------------------------------------------------------
 * Rounded up (rp: a scale no smaller than asked) or down (rz), of |x|; 2^-127 at least, 2^127 at most, NaN 0xff. */
DEVICE ue8m0 f32_to_ue8m0_up(float x)
{
    ue8m0 r;
#if !defined(ROSE_SIMT) && HAS_CVT_FP4
    uint16_t both;
    float a = f32_from_bits(f32_bits(x) & 0x7fffffff);
    asm("cvt.rp.satfinite.ue8m0x2.f32 %0, %1, %2;" : "=h"(both) : "f"(0.0f), "f"(a));
    r.bits = (uint8_t)both;
#else
    uint32_t a = f32_bits(x) & 0x7fffffff, e = a >> 23, m = a & 0x7fffff;
    uint32_t up = e ? e + (m != 0) : (m > 0x400000u);
    if (up > 254) up = 254;
    r.bits = (uint8_t)(a > 0x7f800000u ? 255 : up);
#endif
    return r;
}
DEVICE ue8m0 f32_to_ue8m0_down(float x)
{
    ue8m0 r;
    uint32_t a = f32_bits(x) & 0x7fffffff, e = a >> 23;
    if (e > 254) e = 254;
    r.bits = (uint8_t)(a > 0x7f800000u ? 255 : e);
    return r;
}
DEVICE float ue8m0_to_f32(ue8m0 x)
{
    uint32_t c = x.bits;
    return f32_from_bits(c == 255 ? 0x7fffffffu : c ? c << 23 : 0x400000u);
}

/* ---- e2m1 -------------------------------------------------------------------------------------------------------------------- */
/* A code without its sign, added to the bits of 1.5 * 2^23. Codes count steps of 1/2 up to 2, of 1 up to 4, of 2 up to 6, and each count
 * is the least where it is the right one; the additions round to whole steps, ties to even, which is an even code. y at most 6: NaN,
 * which is +6, has become a number, and zeros keep their sign. */
#define ROSE_E2M1_BASE_ 0x4b400000u
DEVICE float rose_e2m1_most_(float x)
{
#ifdef ROSE_SIMT /* where fminf keeps a signalling NaN */
    return x < 6.0f ? x : 6.0f;
#else
    return fminf(x, 6.0f);
#endif
}
DEVICE uint32_t rose_e2m1_steps_(float y)
{
    const float a = rose_e2m1_most_(fabsf(y));
    const float half = fmaf(a, 2.0f, 12582912.0f), one = a + 12582914.0f, two = fmaf(a, 0.5f, 12582916.0f);
    return f32_bits(fminf(fminf(half, one), two));
}
DEVICE e2m1x2 f32_to_e2m1x2(float lo, float hi)
{
    e2m1x2 r;
#if !defined(ROSE_SIMT) && HAS_CVT_FP4
    uint16_t b; /* an 8-bit register exists only inside the asm */
    asm("{ .reg .b8 t; cvt.rn.satfinite.e2m1x2.f32 t, %1, %2; cvt.u16.u8 %0, t; }" : "=h"(b) : "f"(hi), "f"(lo));
    r.bits = (uint8_t)b;
#else
    const float l = rose_e2m1_most_(lo), h = rose_e2m1_most_(hi);
    r.bits = (uint8_t)(((rose_e2m1_steps_(h) - ROSE_E2M1_BASE_) << 4 | (rose_e2m1_steps_(l) - ROSE_E2M1_BASE_)) | (f32_bits(h) >> 24 & 0x80) |
                       (f32_bits(l) >> 28 & 8));
#endif
    return r;
}
/* Eight codes, the first in the low bits. Carries of the base leave at the top or cancel with what is taken away. */
DEVICE uint32_t f32_to_e2m1x8(const float *x)
{
#if !defined(ROSE_SIMT) && HAS_CVT_FP4
    uint32_t r = 0;
    UNROLL for (int i = 0; i < 4; i++) r |= (uint32_t)f32_to_e2m1x2(x[2 * i], x[2 * i + 1]).bits << 8 * i;
    return r;
#else
    uint32_t steps = 0, base = 0, sign = 0;
    UNROLL for (int i = 7; i >= 0; i--)
    {
        const float y = rose_e2m1_most_(x[i]);
        steps = steps * 16 + rose_e2m1_steps_(y);
        base = base * 16 + ROSE_E2M1_BASE_;
        sign |= f32_bits(y) >> (28 - 4 * i) & 8u << 4 * i;
    }
    return (steps - base) | sign;
#endif
}
DEVICE float rose_e2m1_decode_(uint32_t c)
{
    float v = f32_from_bits((c & 7) << 22) * 0x1p126f;
    return c & 8 ? -v : v;
}
DEVICE f32x2 e2m1x2_to_f32x2(e2m1x2 x)
{
    f32x2 r = {{rose_e2m1_decode_(x.bits), rose_e2m1_decode_((uint32_t)x.bits >> 4)}};
    return r;
}

/* ---- packed arithmetic: one rounding each, subnormals kept (fma: sm_80; mul, add on bf16x2: sm_90, before as fma) ---------- */
#ifdef ROSE_SIMT
/* A product of two 11-bit numbers is exact in a double; the sum is made odd where it is inexact, so that the second
 * rounding cannot go wrong (Boldo and Melquiond 2008). */
DEVICE double rose_odd_sum_(double a, double b)
{
    double s = a + b, bb = s - a, err = (a - (s - bb)) + (b - bb);
    union {
        double d;
        uint64_t u;
    } c;
    c.d = s;
    if (err != 0 && !(c.u & 1) && s - s == 0) c.u += (err > 0) == (s > 0) ? 1 : (uint64_t)-1;
    return c.d;
}
DEVICE float rose_odd_float_(double d) /* to float, odd where inexact: the last step before 16 bits */
{
    float f = (float)d;
    double back = (double)f;
    uint32_t u = f32_bits(f);
    if (back != d && d - d == 0 && f - f == 0 && !(u & 1)) {
        bool away = (back < d) == (d > 0);
        u += away ? 1 : (uint32_t)-1;
        f = f32_from_bits(u);
    }
    return f;
}
DEVICE float rose_fma_odd_(float a, float b, float c)
{
    return rose_odd_float_(rose_odd_sum_((double)a * (double)b, (double)c));
}
#endif
DEVICE bf16x2 bf16x2_fma(bf16x2 a, bf16x2 b, bf16x2 c)
{
    bf16x2 r;
#ifdef ROSE_SIMT
    r = f32_to_bf16x2(rose_fma_odd_(bf16x2_lo_f32(a), bf16x2_lo_f32(b), bf16x2_lo_f32(c)),
                      rose_fma_odd_(bf16x2_hi_f32(a), bf16x2_hi_f32(b), bf16x2_hi_f32(c)));
#else
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r.bits) : "r"(a.bits), "r"(b.bits), "r"(c.bits));
#endif
    return r;
}
DEVICE bf16x2 bf16x2_mul(bf16x2 a, bf16x2 b)
{
    return bf16x2_fma(a, b, as_bf16x2(0x80008000u)); /* + -0: exact, keeps the sign of zero */
}
DEVICE bf16x2 bf16x2_add(bf16x2 a, bf16x2 b)
{
    return bf16x2_fma(a, as_bf16x2(0x3f803f80u), b);
}
DEVICE f16x2 f16x2_fma(f16x2 a, f16x2 b, f16x2 c)
{
    f16x2 r;
#ifdef ROSE_SIMT
    r = f32_to_f16x2(rose_fma_odd_(f16x2_lo_f32(a), f16x2_lo_f32(b), f16x2_lo_f32(c)),
                     rose_fma_odd_(f16x2_hi_f32(a), f16x2_hi_f32(b), f16x2_hi_f32(c)));
#else
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r.bits) : "r"(a.bits), "r"(b.bits), "r"(c.bits));
#endif
    return r;
}
DEVICE f16x2 f16x2_mul(f16x2 a, f16x2 b)
{
    return f16x2_fma(a, b, as_f16x2(0x80008000u));
}
DEVICE f16x2 f16x2_add(f16x2 a, f16x2 b)
{
    return f16x2_fma(a, as_f16x2(0x3c003c00u), b);
}

/* The larger, the number where the other is NaN; NaN is 0x7fff. PTX ISA 9.7.4 "max": sm_80. */
#ifdef ROSE_SIMT
#define ROSE_MAX2_(type)                                                                                      \
    DEVICE uint32_t rose_max_##type##_(type a, type b)                                                       \
    {                                                                                                        \
        const float x = type##_to_f32(a), y = type##_to_f32(b);                                              \
        return x != x && y != y ? 0x7fff : x != x ? b.bits : y != y || x > y || (x == y && a.bits < b.bits) ? a.bits : b.bits; \
    }                                                                                                        \
    DEVICE type##x2 type##x2_max(type##x2 a, type##x2 b)                                                     \
    {                                                                                                        \
        const type al = {(uint16_t)a.bits}, ah = {(uint16_t)(a.bits >> 16)}, bl = {(uint16_t)b.bits}, bh = {(uint16_t)(b.bits >> 16)}; \
        type##x2 r;                                                                                          \
        r.bits = rose_max_##type##_(ah, bh) << 16 | rose_max_##type##_(al, bl);                              \
        return r;                                                                                            \
    }
#else
#define ROSE_MAX2_(type)                                                                                      \
    DEVICE type##x2 type##x2_max(type##x2 a, type##x2 b)                                                     \
    {                                                                                                        \
        type##x2 r;                                                                                          \
        asm("max." #type "x2 %0, %1, %2;" : "=r"(r.bits) : "r"(a.bits), "r"(b.bits));                        \
        return r;                                                                                            \
    }
#endif
ROSE_MAX2_(bf16)
ROSE_MAX2_(f16)

/* Eight e2m1 codes (element i in nibble i) to four bf16 pairs, exactly. The bits of a code are the top of a bf16's
 * fields, 2^126 too small: mask, shift, multiply. Pairs of nibbles 16 bits apart are decoded together, then put in
 * order; the _strided form leaves out the last step: out[i] holds elements i and i + 4. */
DEVICE void e2m1x8_to_bf16x2_strided(uint32_t codes, bf16x2 out[4])
{
    UNROLL for (int i = 0; i < 4; i++)
    {
        uint32_t t = codes >> (4 * i);
        uint32_t u = (t & 0x00080008u) << 12 | (t & 0x00070007u) << 6;
        out[i] = bf16x2_mul(as_bf16x2(u), as_bf16x2(0x7e807e80u)); /* 2^126 */
    }
}
DEVICE void e2m1x8_to_bf16x2(uint32_t codes, bf16x2 out[4])
{
    bf16x2 s[4];
    e2m1x8_to_bf16x2_strided(codes, s);
    out[0].bits = (s[0].bits & 0xffff) | s[1].bits << 16;
    out[1].bits = (s[2].bits & 0xffff) | s[3].bits << 16;
    out[2].bits = s[0].bits >> 16 | (s[1].bits & 0xffff0000u);
    out[3].bits = s[2].bits >> 16 | (s[3].bits & 0xffff0000u);
}

/* Two bf16 added atomically to global memory (relaxed): red.add.noftz.bf16x2 from sm_90, a compare-and-swap loop before. */
#if !defined(ROSE_SIMT) && ROSE_ARCH < 900
#undef red_add_bf16x2
#define red_add_bf16x2(order, scope, p, x) rose_red_add_bf16x2_((uint32_t *)(p), x)
DEVICE void rose_red_add_bf16x2_(uint32_t *p, bf16x2 x)
{
    uint32_t old = *(volatile uint32_t *)p, seen;
    for (;;) {
        asm volatile("atom.relaxed.gpu.cas.b32 %0, [%1], %2, %3;"
                     : "=r"(seen)
                     : "l"(p), "r"(old), "r"(bf16x2_add(as_bf16x2(old), x).bits)
                     : "memory");
        if (seen == old) return;
        old = seen;
    }
}
#endif

#endif
