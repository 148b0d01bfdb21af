/* The table of formats and their plain codecs. Values are little-endian and need no alignment. Every decoder
 * computes in float32 in the order of the GGUF definition (scale times small integer, then one addition), so
 * results are bit-equal everywhere; the products of a float16 scale with the small integers are exact.
 *
 * Block layouts (bytes, in order; d, m, dmin are float16; i runs within a group as drawn):
 *
 *     Q4_0    32: d[2]  qs[16]                      element i: low nibble of qs[i], 16+i: high nibble;  d (q
 * - 8) Q4_1    32: d[2]  m[2]  qs[16]                                                                    d q
 * + m Q5_0    32: d[2]  qh[4] qs[16]                bit i of qh is the fifth bit                        d (q
 * - 16) Q5_1    32: d[2]  m[2]  qh[4]  qs[16]                                                             d q
 * + m Q8_0    32: d[2]  q[32]                       signed bytes                                        d q
 *     IQ4_NL  32: d[2]  qs[16]                      nibbles index a table                               d
 * t[q] MXFP4   32: e[1]  qs[16]                      E2M1 nibbles, E8M0 scale (OCP MX 1.0) 2^(e-127) v[q]
 *     Q2_K   256: scales[16] qs[64] d[2] dmin[2]    16 groups of 16; low nibble scale, high nibble min
 *     Q3_K   256: hmask[32] qs[64] scales[12] d[2]  16 groups of 16; six-bit scales - 32; clear hmask bit: -
 * 4 Q4_K   256: d[2] dmin[2] scales[12] qs[128]   8 groups of 32; six-bit scales and mins Q5_K   256: d[2]
 * dmin[2] scales[12] qh[32] qs[128] Q6_K   256: ql[128] qh[64] scales[16] d[2]    16 groups of 16; signed
 * byte scales;                d s (q - 32) IQ4_XS 256: d[2] scales_h[2] scales_l[4] qs[128]  8 groups of 32;
 * six-bit scales - 32
 */
#include "tensor/dtype.h"

#include <math.h>
#include <string.h>

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF /* gcc does not contract under -std=c17 */
#endif

static const int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};
/* Twice the E2M1 values, so that they are integers; the scale is halved instead. */
static const int8_t e2m1_doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* ---- single elements ---- */

static float bits_f32(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static uint32_t f32_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

/* A small float of e exponent bits and m mantissa bits in its low 1+e+m bits, with subnormals; no infinities
 * or NaN here. */
static float small_to_f32(uint32_t h, int e, int m)
{
    int bias = (1 << (e - 1)) - 1;
    uint32_t sign = (h >> (e + m) & 1) << 31, exponent = h >> m & ((1u << e) - 1),
             mantissa = h & ((1u << m) - 1);
    if (exponent) return bits_f32(sign | (exponent + (uint32_t)(127 - bias)) << 23 | mantissa << (23 - m));
    /* mantissa * 2^(1-bias-m), both factors normal numbers: exact */
    float v = (float)mantissa * bits_f32((uint32_t)(127 + 1 - bias - m) << 23);
    return bits_f32(sign | f32_bits(v));
}

/* Round |f| (finite) to nearest even among the numbers of e exponent and m mantissa bits. The result may be
 * one past the largest exponent; the caller decides what overflow becomes. */
static uint32_t f32_to_small(float f, int e, int m)
{
    int bias = (1 << (e - 1)) - 1;
    uint32_t u = f32_bits(f) & 0x7FFFFFFF;
    int32_t exponent = (int32_t)(u >> 23) - 127 + bias;
    uint32_t mantissa = u & 0x7FFFFF;
    int shift = 23 - m;
    if (exponent <= 0) { /* subnormal in the target: the hidden bit becomes explicit and moves right */
        shift += 1 - exponent;
        if (shift > 25) return 0;
        if (u >> 23) mantissa |= 0x800000;
        exponent = 0;
    }
    uint32_t kept = mantissa >> shift, rest = mantissa & ((1u << shift) - 1), half = 1u << (shift - 1);
    if (rest > half || (rest == half && (kept & 1))) kept++;
    return ((uint32_t)exponent << m) +
           kept; /* a carry out of the mantissa raises the exponent, as it should */
}

float f16_to_f32(uint16_t h)
{
    if ((h & 0x7C00) == 0x7C00)
        return bits_f32((uint32_t)(h & 0x8000) << 16 | 0x7F800000 | (uint32_t)(h & 0x3FF) << 13);
    return small_to_f32(h, 5, 10);
}

uint16_t f32_to_f16(float f)
{
    uint32_t u = f32_bits(f), sign = u >> 16 & 0x8000;
    u &= 0x7FFFFFFF;
    if (u > 0x7F800000) return (uint16_t)(sign | 0x7E00 | (u >> 13 & 0x1FF));
    if (u >= 0x477FF000)
        return (uint16_t)(sign | 0x7C00); /* from 65520 on, half way past the largest, infinity */
    return (uint16_t)(sign | f32_to_small(f, 5, 10));
}

/* E4M3 has no infinity; 0x7F is NaN (OCP 8-bit floating point specification, revision 1.0). */
static float e4m3_to_f32(uint8_t h)
{
    return (h & 0x7F) == 0x7F ? bits_f32((uint32_t)(h & 0x80) << 24 | 0x7FC00000) : small_to_f32(h, 4, 3);
}

static float e5m2_to_f32(uint8_t h)
{
    return f16_to_f32((uint16_t)(h << 8));
}

/* Both FP8 encoders saturate: overflow and infinity become the largest finite number, NaN stays NaN (as GPUs
 * convert). */
static uint8_t f32_to_e4m3(float f)
{
    uint32_t u = f32_bits(f), sign = u >> 24 & 0x80;
    u &= 0x7FFFFFFF;
    if (u > 0x7F800000) return (uint8_t)(sign | 0x7F);
    if (u >= 0x43E00000) return (uint8_t)(sign | 0x7E); /* 448 */
    uint32_t h = f32_to_small(f, 4, 3);
    return (uint8_t)(sign | ROSE_MIN(h, 0x7Eu));
}

static uint8_t f32_to_e5m2(float f)
{
    uint32_t u = f32_bits(f), sign = u >> 24 & 0x80;
    u &= 0x7FFFFFFF;
    if (u > 0x7F800000) return (uint8_t)(sign | 0x7F);
    if (u >= 0x47600000) return (uint8_t)(sign | 0x7B); /* 57344 */
    uint32_t h = f32_to_small(f, 5, 2);
    return (uint8_t)(sign | ROSE_MIN(h, 0x7Bu));
}

/* ---- rows of plain elements ---- */

static void decode_f32(const uint8_t *src, float *dst, size_t n)
{
    memcpy(dst, src, n * 4);
}

#define DECODE_ROW(name, type, expression)                              \
    static void decode_##name(const uint8_t *src, float *dst, size_t n) \
    {                                                                   \
        for (size_t i = 0; i < n; i++) {                                \
            type x;                                                     \
            memcpy(&x, src + i * sizeof x, sizeof x);                   \
            dst[i] = (expression);                                      \
        }                                                               \
    }
DECODE_ROW(f64, double, (float)x)
DECODE_ROW(f16, uint16_t, f16_to_f32(x))
DECODE_ROW(bf16, uint16_t, bf16_to_f32(x))
DECODE_ROW(e4m3, uint8_t, e4m3_to_f32(x))
DECODE_ROW(e5m2, uint8_t, e5m2_to_f32(x))
DECODE_ROW(u8, uint8_t, (float)x)
DECODE_ROW(i8, int8_t, (float)x)
DECODE_ROW(u16, uint16_t, (float)x)
DECODE_ROW(i16, int16_t, (float)x)
DECODE_ROW(u32, uint32_t, (float)x)
DECODE_ROW(i32, int32_t, (float)x)
DECODE_ROW(u64, uint64_t, (float)x)
DECODE_ROW(i64, int64_t, (float)x)

/* ---- blocks ---- */

static uint16_t load16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}
static float load_half(const uint8_t *p)
{
    return f16_to_f32(load16(p));
}

static void store_half(uint8_t *p, float f)
{
    uint16_t h = f32_to_f16(f);
    p[0] = (uint8_t)h, p[1] = (uint8_t)(h >> 8);
}

/* Nibble i of 16 bytes in GGUF's order: 0…15 the low ones, 16…31 the high ones. */
static int nibble(const uint8_t *qs, int i)
{
    return qs[i & 15] >> (i & 16 ? 4 : 0) & 15;
}

static void decode_q4_0(const uint8_t *b, float *dst)
{
    float d = load_half(b);
    for (int i = 0; i < 32; i++) dst[i] = d * (float)(nibble(b + 2, i) - 8);
}

static void decode_q4_1(const uint8_t *b, float *dst)
{
    float d = load_half(b), m = load_half(b + 2);
    for (int i = 0; i < 32; i++) dst[i] = d * (float)nibble(b + 4, i) + m;
}

static void decode_q5_0(const uint8_t *b, float *dst)
{
    float d = load_half(b);
    for (int i = 0; i < 32; i++)
        dst[i] = d * (float)((nibble(b + 6, i) | (b[2 + i / 8] >> (i & 7) & 1) << 4) - 16);
}

static void decode_q5_1(const uint8_t *b, float *dst)
{
    float d = load_half(b), m = load_half(b + 2);
    for (int i = 0; i < 32; i++)
        dst[i] = d * (float)(nibble(b + 8, i) | (b[4 + i / 8] >> (i & 7) & 1) << 4) + m;
}

static void decode_q8_0(const uint8_t *b, float *dst)
{
    float d = load_half(b);
    for (int i = 0; i < 32; i++) dst[i] = (float)(int8_t)b[2 + i] * d;
}

static void decode_iq4_nl(const uint8_t *b, float *dst)
{
    float d = load_half(b);
    for (int i = 0; i < 32; i++) dst[i] = d * (float)iq4_values[nibble(b + 2, i)];
}

/* 2^(e-128): half of the E8M0 scale, because the table holds doubled values; the two smallest are subnormal.
 * GGUF gives e = 255 no special meaning. */
static float half_e8m0(uint8_t e)
{
    return bits_f32(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}

static void decode_mxfp4(const uint8_t *b, float *dst)
{
    float d = half_e8m0(b[0]);
    for (int i = 0; i < 32; i++) dst[i] = d * (float)e2m1_doubled[nibble(b + 1, i)];
}

/* Two bits of element e of 256: byte 32 (e / 128) + e % 32, bits 2 (e / 32 % 4). */
static int two_bits(const uint8_t *qs, int e)
{
    return qs[e / 128 * 32 + e % 32] >> (e / 32 % 4 * 2) & 3;
}

static void decode_q2_k(const uint8_t *b, float *dst)
{
    const uint8_t *scales = b, *qs = b + 16;
    float d = load_half(b + 80), dmin = load_half(b + 82);
    for (int e = 0; e < 256; e++) {
        float scale = d * (float)(scales[e / 16] & 15), min = dmin * (float)(scales[e / 16] >> 4);
        dst[e] = scale * (float)two_bits(qs, e) - min;
    }
}

/* Scale j's low four bits are nibble j of 8 bytes (low nibbles first), its high two bits lie in four bytes
 * after them. */
static void decode_q3_k(const uint8_t *b, float *dst)
{
    const uint8_t *hmask = b, *qs = b + 32, *scales = b + 96;
    float d = load_half(b + 108);
    for (int e = 0; e < 256; e++) {
        int j = e / 16;
        int scale = (scales[j & 7] >> (j & 8 ? 4 : 0) & 15) | (scales[8 + (j & 3)] >> (j / 4 * 2) & 3) << 4;
        int q = two_bits(qs, e) - (hmask[e % 32] >> (e / 32) & 1 ? 0 : 4);
        dst[e] = d * (float)(scale - 32) * (float)q;
    }
}

/* Q4_K and Q5_K: six-bit scales and mins of 8 groups in 12 bytes. Groups 0…3 use the low six bits of bytes j
 * and 4+j; groups 4…7 the nibbles of byte 4+j and the spare top bits of bytes j-4 and j. */
static void k_scale_min(const uint8_t *s, int j, int *scale, int *min)
{
    if (j < 4) {
        *scale = s[j] & 63;
        *min = s[j + 4] & 63;
    } else {
        *scale = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
        *min = s[j + 4] >> 4 | (s[j] >> 6) << 4;
    }
}

static void decode_q4_k_or_q5_k(const uint8_t *b, const uint8_t *qh, const uint8_t *qs, float *dst)
{
    float d = load_half(b), dmin = load_half(b + 2);
    for (int j = 0; j < 8; j++) {
        int scale, min;
        k_scale_min(b + 4, j, &scale, &min);
        float ds = d * (float)scale, dm = dmin * (float)min;
        for (int i = 0; i < 32; i++) {
            int q = qs[j / 2 * 32 + i] >> (j & 1 ? 4 : 0) & 15;
            if (qh) q |= (qh[i] >> j & 1) << 4;
            dst[j * 32 + i] = ds * (float)q - dm;
        }
    }
}

static void decode_q4_k(const uint8_t *b, float *dst)
{
    decode_q4_k_or_q5_k(b, NULL, b + 16, dst);
}
static void decode_q5_k(const uint8_t *b, float *dst)
{
    decode_q4_k_or_q5_k(b, b + 16, b + 48, dst);
}

static void decode_q6_k(const uint8_t *b, float *dst)
{
    const uint8_t *ql = b, *qh = b + 128;
    const int8_t *scales = (const int8_t *)(b + 192);
    float d = load_half(b + 208);
    for (int e = 0; e < 256; e++) {
        int q = (ql[e / 128 * 64 + e % 64] >> (e & 64 ? 4 : 0) & 15) | two_bits(qh, e) << 4;
        dst[e] = d * (float)scales[e / 16] * (float)(q - 32);
    }
}

static void decode_iq4_xs(const uint8_t *b, float *dst)
{
    const uint8_t *scales = b + 4, *qs = b + 8;
    float d = load_half(b);
    int high = load16(b + 2);
    for (int j = 0; j < 8; j++) {
        int scale = (scales[j / 2] >> (j & 1 ? 4 : 0) & 15) | (high >> (2 * j) & 3) << 4;
        float ds = d * (float)(scale - 32);
        for (int i = 0; i < 32; i++) dst[j * 32 + i] = ds * (float)iq4_values[nibble(qs + j * 16, i)];
    }
}

/* ---- block encoders: the reference quantisers of GGUF ---- */

/* The integer part of x kept in [low, high]; NaN becomes 0 (the block's scale carries it). */
static int clamp_int(float x, int low, int high)
{
    return x >= (float)high ? high : x <= (float)low ? low : x == x ? (int)x : 0;
}

static float inverse(float d)
{
    return d != 0 ? 1.0f / d : 0.0f;
}

static void encode_q8_0(const float *src, uint8_t *b)
{
    float most = 0;
    for (int i = 0; i < 32; i++)
        if (fabsf(src[i]) > most || src[i] != src[i]) most = fabsf(src[i]);
    float d = most / 127, id = inverse(d);
    store_half(b, d);
    for (int i = 0; i < 32; i++) b[2 + i] = (uint8_t)(int8_t)clamp_int(roundf(src[i] * id), -127, 127);
}

static void encode_q4_0(const float *src, uint8_t *b)
{
    float most = 0, extreme = 0; /* extreme keeps its sign and becomes -8 */
    for (int i = 0; i < 32; i++)
        if (fabsf(src[i]) > most || src[i] != src[i]) most = fabsf(src[i]), extreme = src[i];
    float d = extreme / -8, id = inverse(d);
    store_half(b, d);
    for (int i = 0; i < 16; i++) {
        float low = src[i] * id, high = src[16 + i] * id;
        b[2 + i] = (uint8_t)(clamp_int(low + 8.5f, 0, 15) | clamp_int(high + 8.5f, 0, 15) << 4);
    }
}

static void encode_q4_1(const float *src, uint8_t *b)
{
    float min = src[0], max = src[0];
    for (int i = 1; i < 32; i++) {
        if (src[i] < min || src[i] != src[i]) min = src[i];
        if (src[i] > max || src[i] != src[i]) max = src[i];
    }
    float d = (max - min) / 15, id = inverse(d);
    store_half(b, d);
    store_half(b + 2, min);
    for (int i = 0; i < 16; i++) {
        float low = (src[i] - min) * id, high = (src[16 + i] - min) * id;
        b[4 + i] = (uint8_t)(clamp_int(low + 0.5f, 0, 15) | clamp_int(high + 0.5f, 0, 15) << 4);
    }
}

/* OCP MX 1.0, 6.3: the scale is the largest power of two in the block over that of E2M1 (4); elements round
 * to nearest even and saturate at 6. false: a number is not finite, which the format cannot hold. */
static bool encode_mxfp4(const float *src, uint8_t *b)
{
    float most = 0;
    for (int i = 0; i < 32; i++) {
        if (!isfinite(src[i])) return false;
        most = fmaxf(most, fabsf(src[i]));
    }
    int e = most > 0 ? ilogbf(most) - 2 + 127 : 0;
    b[0] = (uint8_t)ROSE_MAX(e, 0);
    memset(b + 1, 0, 16);
    for (int i = 0; i < 32; i++) {
        double v = ldexp(fabs((double)src[i]), 127 - b[0]); /* exact */
        int q = v >= 6 ? 7 : (int)f32_to_small((float)v, 2, 1);
        if (q && src[i] < 0) q |= 8;
        b[1 + i % 16] |= (uint8_t)(q << (i & 16 ? 4 : 0));
    }
    return true;
}

/* ---- the table ---- */

struct codec {
    struct dtype_info info;
    void (*row)(const uint8_t *src, float *dst, size_t n);
    void (*block)(const uint8_t *src, float *dst);
};
#define PLAIN(name, bytes, row)           \
    {                                     \
        {name, 1, bytes, true}, row, NULL \
    }
#define BLOCK(name, n, bytes, block)        \
    {                                       \
        {name, n, bytes, true}, NULL, block \
    }

static const struct codec codecs[DTYPE_COUNT] = {
    [DTYPE_NONE] = {{"NONE", 1, 0, false}, NULL, NULL},
    [DTYPE_F64] = PLAIN("F64", 8, decode_f64),
    [DTYPE_F32] = PLAIN("F32", 4, decode_f32),
    [DTYPE_F16] = PLAIN("F16", 2, decode_f16),
    [DTYPE_BF16] = PLAIN("BF16", 2, decode_bf16),
    [DTYPE_F8_E4M3] = PLAIN("F8_E4M3", 1, decode_e4m3),
    [DTYPE_F8_E5M2] = PLAIN("F8_E5M2", 1, decode_e5m2),
    [DTYPE_BOOL] = {{"BOOL", 1, 1, false}, NULL, NULL},
    [DTYPE_U8] = PLAIN("U8", 1, decode_u8),
    [DTYPE_I8] = PLAIN("I8", 1, decode_i8),
    [DTYPE_U16] = PLAIN("U16", 2, decode_u16),
    [DTYPE_I16] = PLAIN("I16", 2, decode_i16),
    [DTYPE_U32] = PLAIN("U32", 4, decode_u32),
    [DTYPE_I32] = PLAIN("I32", 4, decode_i32),
    [DTYPE_U64] = PLAIN("U64", 8, decode_u64),
    [DTYPE_I64] = PLAIN("I64", 8, decode_i64),
    [DTYPE_Q4_0] = BLOCK("Q4_0", 32, 18, decode_q4_0),
    [DTYPE_Q4_1] = BLOCK("Q4_1", 32, 20, decode_q4_1),
    [DTYPE_Q5_0] = BLOCK("Q5_0", 32, 22, decode_q5_0),
    [DTYPE_Q5_1] = BLOCK("Q5_1", 32, 24, decode_q5_1),
    [DTYPE_Q8_0] = BLOCK("Q8_0", 32, 34, decode_q8_0),
    [DTYPE_Q2_K] = BLOCK("Q2_K", 256, 84, decode_q2_k),
    [DTYPE_Q3_K] = BLOCK("Q3_K", 256, 110, decode_q3_k),
    [DTYPE_Q4_K] = BLOCK("Q4_K", 256, 144, decode_q4_k),
    [DTYPE_Q5_K] = BLOCK("Q5_K", 256, 176, decode_q5_k),
    [DTYPE_Q6_K] = BLOCK("Q6_K", 256, 210, decode_q6_k),
    [DTYPE_IQ4_NL] = BLOCK("IQ4_NL", 32, 18, decode_iq4_nl),
    [DTYPE_IQ4_XS] = BLOCK("IQ4_XS", 256, 136, decode_iq4_xs),
    [DTYPE_MXFP4] = BLOCK("MXFP4", 32, 17, decode_mxfp4),
};

static const struct codec *codec_of(enum dtype dtype)
{
    return &codecs[(unsigned)dtype < DTYPE_COUNT ? dtype : DTYPE_NONE];
}

const struct dtype_info *dtype_info(enum dtype dtype)
{
    return &codec_of(dtype)->info;
}

size_t dtype_row_bytes(enum dtype dtype, size_t n)
{
    const struct dtype_info *info = dtype_info(dtype);
    size_t bytes;
    return n % info->block == 0 && size_mul(n / info->block, info->bytes, &bytes) ? bytes : 0;
}

void dtype_decode(enum dtype dtype, const void *src, float *dst, size_t n)
{
    const struct codec *c = codec_of(dtype);
    const uint8_t *p = src;
    if (c->row && n) c->row(p, dst, n);
    if (!c->block) return;
    for (size_t i = 0; i < n / c->info.block; i++) c->block(p + i * c->info.bytes, dst + i * c->info.block);
}

static enum rose_status encode_blocks(enum dtype dtype, const float *src, uint8_t *dst, size_t n,
                                      struct rose_error *err)
{
    const struct dtype_info *info = dtype_info(dtype);
    for (size_t i = 0; i < n; i += info->block, dst += info->bytes) {
        switch (dtype) {
        case DTYPE_Q8_0: encode_q8_0(src + i, dst); break;
        case DTYPE_Q4_0: encode_q4_0(src + i, dst); break;
        case DTYPE_Q4_1: encode_q4_1(src + i, dst); break;
        default:
            if (!encode_mxfp4(src + i, dst))
                return status_set(err, ROSE_INVALID,
                                  "MXFP4 cannot hold NaN or infinity (elements %zu to %zu)", i, i + 31);
        }
    }
    return ROSE_OK;
}

enum rose_status dtype_encode(enum dtype dtype, const float *src, void *dst, size_t n, struct rose_error *err)
{
    const struct dtype_info *info = dtype_info(dtype);
    uint8_t *p = dst;
    if (n % info->block)
        return status_set(err, ROSE_INVALID, "%zu elements are not whole %s blocks of %d", n, info->name,
                          info->block);
    switch (dtype) {
    case DTYPE_F32: memmove(dst, src, n * 4); return ROSE_OK;
    case DTYPE_F16:
    case DTYPE_BF16:
        for (size_t i = 0; i < n; i++) {
            uint16_t h = dtype == DTYPE_F16 ? f32_to_f16(src[i]) : f32_to_bf16(src[i]);
            memcpy(p + 2 * i, &h, 2);
        }
        return ROSE_OK;
    case DTYPE_F8_E4M3:
        for (size_t i = 0; i < n; i++) p[i] = f32_to_e4m3(src[i]);
        return ROSE_OK;
    case DTYPE_F8_E5M2:
        for (size_t i = 0; i < n; i++) p[i] = f32_to_e5m2(src[i]);
        return ROSE_OK;
    case DTYPE_Q8_0:
    case DTYPE_Q4_0:
    case DTYPE_Q4_1:
    case DTYPE_MXFP4: return encode_blocks(dtype, src, p, n, err);
    default: return status_set(err, ROSE_UNSUPPORTED, "encoding to %s is not supported", info->name);
    }
}
