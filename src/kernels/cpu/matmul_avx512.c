/* The products with AVX-512 VNNI. A 512-bit lane is an out-feature, a quad of activations is broadcast from
 * memory. */
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/cpu/matmul_residual.h"
#include "kernels/cpu/matmul_epilogue.h"
#include "kernels/cpu/matmul_unpack.h"
#include "kernels/cpu/matmul_zero.h"

#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* What a kernel's blocks of scales take; stored: as in the file (f16), else float32. */
INLINE int dot_scale_bytes(const enum cpu_kernel kernel, const bool stored)
{
    const bool min = kernel == CPU_K4M || kernel == CPU_K5M || kernel == CPU_K2M;
    const int halves = kernel == CPU_K2M || kernel == CPU_K3 || kernel == CPU_K6 ? 2 : 1;
    return kernel == CPU_K8Z ? UNPACK_ZERO_BYTES : (stored ? 32 : 64) * halves * (min ? 2 : 1);
}

/* acc[height] += one block times the tile's; starts: CPU_K8Z's, of this block. */
INLINE void dot_block(const enum cpu_kernel kernel, const bool stored, const int height, const uint8_t *codes, const uint8_t *scales, const uint8_t *tile, __m512i table,
                      const int32_t (*starts)[16], __m512 *acc)
{
    const bool min = kernel == CPU_K4M || kernel == CPU_K5M || kernel == CPU_K2M;
    const int halves = kernel == CPU_K2M || kernel == CPU_K3 || kernel == CPU_K6 ? 2 : 1;
    /* four sums at a time, of four rows or of parts of one or two: a chain of vpdpbusd waits five cycles a
     * link, and the scheduler does not see far enough to find as many in later rows */
    const int rows = height < 4 ? height : 4;
    __m512i q[8];
    unpack_quads(kernel, codes, table, q);
    UNROLL
    for (int half = 0; half < halves; half++) {
        const int which = halves == 1 ? 0 : 1 + half;
        __m512 s = unpack_scale(stored, scales, half), m = _mm512_setzero_ps();
        if (min) m = unpack_scale(stored, scales, halves + half);
        UNROLL
        for (int h = 0; h < height; h += rows) {
            __m512i sum[4];
            UNROLL
            for (int i = 0; i < rows; i++)
                sum[i] = kernel == CPU_K8Z ? unpack_start_zero(tile + height * MATMUL_ACT_NSUM + 4 * (h + i), height, starts) :
                    unpack_start(kernel, tile + height * (MATMUL_ACT_NSUM + 4 * which) + 4 * (h + i));
            UNROLL
            for (int i = rows; i < 4; i++) sum[i] = _mm512_setzero_si512();
            UNROLL
            for (int j = 0; j < 8; j++) UNROLL
            for (int i = 0; i < rows; i++)
                if (halves == 1 || j / 4 == half) {
                    const int c = i + j % (4 / rows) * rows;
                    sum[c] = _mm512_dpbusd_epi32(sum[c], q[j], unpack_i32(tile + CPU_BLOCK * (h + i) + 4 * j));
                }
            UNROLL
            for (int i = 0; i < rows; i++) {
                UNROLL
                for (int c = i + rows; c < 4; c += rows) sum[i] = _mm512_add_epi32(sum[i], sum[c]);
                __m512 ss = _mm512_mul_ps(s, unpack_f32(tile + height * MATMUL_ACT_S + 4 * (h + i)));
                acc[h + i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[i]), ss, acc[h + i]);
                if (min) acc[h + i] = _mm512_fmadd_ps(m, unpack_f32(tile + height * (MATMUL_ACT_SSUM + 4 * which) + 4 * (h + i)), acc[h + i]);
            }
        }
    }
}

INLINE void dot_kernel(const enum cpu_kernel kernel, const bool stored, const int height, const int code_bytes, const uint8_t *codes, const uint8_t *scales,
                       const uint8_t *tile, int blocks, __m512i table, float *out)
{
    const int scale_bytes = dot_scale_bytes(kernel, stored);
    const struct matmul_reach reach = matmul_reach(code_bytes >= MATMUL_WIDE, height >= MATMUL_TALL);
    _Alignas(64) int32_t starts[2][CPU_ZERO_POINTS][16]; /* of this block and the next: a load does not wait for a store */
    __m512 acc[16];
    UNROLL
    for (int h = 0; h < height; h++) acc[h] = _mm512_setzero_ps();
    if (kernel == CPU_K8Z) unpack_zero(scales, starts[0]);
    for (int b = 0; b < blocks; b++) {
        if (kernel == CPU_K8Z && b + 1 < blocks) unpack_zero(scales + UNPACK_ZERO_BYTES, starts[(b + 1) % 2]);
        UNROLL
        for (int v = 0; v < code_bytes; v += 64) matmul_ahead_by(codes + v, reach);
        dot_block(kernel, stored, height, codes, scales, tile, table, starts[b % 2], acc);
        codes += code_bytes;
        scales += scale_bytes;
        tile += height * MATMUL_ACT_BYTES;
    }
    UNROLL
    for (int h = 0; h < height; h++) _mm512_storeu_ps(out + 16 * h, acc[h]);
}

/* One or two rows times MATMUL_STREAMS groups, a block of each in turn: as many streams from memory. */
INLINE void streams_kernel(const enum cpu_kernel kernel, const bool stored, const int height, const int code_bytes, const uint8_t *const *from, const uint8_t *const *from_scales,
                           const uint8_t *tile, int blocks, __m512i table, float *const *out)
{
    const int scale_bytes = dot_scale_bytes(kernel, stored);
    const uint8_t *codes[MATMUL_STREAMS], *scales[MATMUL_STREAMS];
    __m512 acc[MATMUL_STREAMS][2];
    UNROLL
    for (int g = 0; g < MATMUL_STREAMS; g++) codes[g] = from[g], scales[g] = from_scales[g], acc[g][0] = acc[g][1] = _mm512_setzero_ps();
    for (int b = 0; b < blocks; b++, tile += height * MATMUL_ACT_BYTES) UNROLL
    for (int g = 0; g < MATMUL_STREAMS; g++) {
        UNROLL
        for (int v = 0; v < code_bytes; v += 64) __builtin_prefetch(codes[g] + v + MATMUL_STREAM_NEAR, 0, 3);
        dot_block(kernel, stored, height, codes[g], scales[g], tile, table, NULL, acc[g]);
        codes[g] += code_bytes;
        scales[g] += scale_bytes;
    }
    UNROLL
    for (int g = 0; g < MATMUL_STREAMS; g++) UNROLL
    for (int h = 0; h < height; h++) _mm512_storeu_ps(out[g] + 16 * h, acc[g][h]);
}

/* One function a kernel, form of scales and height: everything but the number of blocks is a constant. */
#define HEIGHT(kernel, stored, bytes, h)                                               \
    case h:                                                                            \
        dot_kernel(kernel, stored, h, bytes, codes, scales, tile, blocks, table, out); \
        return
#define DOT(name, kernel, stored, bytes)                                                                   \
    static __attribute__((noinline)) void name(const uint8_t *codes, const uint8_t *scales,                \
                                               const uint8_t *tile, int height, int blocks, __m512i table, \
                                               float *out)                                                 \
    {                                                                                                      \
        switch (height) {                                                                                  \
            HEIGHT(kernel, stored, bytes, 1);                                                              \
            HEIGHT(kernel, stored, bytes, 2);                                                              \
            HEIGHT(kernel, stored, bytes, 4);                                                              \
            HEIGHT(kernel, stored, bytes, 8);                                                              \
            HEIGHT(kernel, stored, bytes, 16);                                                             \
        default: return;                                                                                   \
        }                                                                                                  \
    }
/* The same for streams. */
#define STREAMS(name, kernel, stored, bytes)                                                                                                            \
    static __attribute__((noinline)) void name(const uint8_t *const *codes, const uint8_t *const *scales, const uint8_t *tile, int height, int blocks,  \
                                               __m512i table, float *const *out)                                                                        \
    {                                                                                                                                                   \
        if (height == 1) streams_kernel(kernel, stored, 1, bytes, codes, scales, tile, blocks, table, out);                                             \
        else streams_kernel(kernel, stored, 2, bytes, codes, scales, tile, blocks, table, out);                                                         \
    }
DOT(dot_k4, CPU_K4, true, 256)
DOT(dot_k4m, CPU_K4M, true, 256)
DOT(dot_k5, CPU_K5, true, 320)
DOT(dot_k5m, CPU_K5M, true, 320)
DOT(dot_k8, CPU_K8, true, 512)
DOT(dot_kt, CPU_KT, true, 256)
DOT(dot_k4m_f32, CPU_K4M, false, 256)
DOT(dot_k5m_f32, CPU_K5M, false, 320)
DOT(dot_kt_f32, CPU_KT, false, 256)
DOT(dot_k2m_f32, CPU_K2M, false, 128)
DOT(dot_k3_f32, CPU_K3, false, 192)
DOT(dot_k6_f32, CPU_K6, false, 384)
DOT(dot_k8z, CPU_K8Z, true, 512)

STREAMS(streams_k4, CPU_K4, true, 256)
STREAMS(streams_k4m, CPU_K4M, true, 256)
STREAMS(streams_k5, CPU_K5, true, 320)
STREAMS(streams_k5m, CPU_K5M, true, 320)
STREAMS(streams_k8, CPU_K8, true, 512)
STREAMS(streams_kt, CPU_KT, true, 256)
STREAMS(streams_k4m_f32, CPU_K4M, false, 256)
STREAMS(streams_k5m_f32, CPU_K5M, false, 320)
STREAMS(streams_kt_f32, CPU_KT, false, 256)
STREAMS(streams_k2m_f32, CPU_K2M, false, 128)
STREAMS(streams_k3_f32, CPU_K3, false, 192)
STREAMS(streams_k6_f32, CPU_K6, false, 384)

void matmul_streams_avx512(const struct cpu_format *f, const uint8_t *const *codes, const void *const *scales, const void *tile, int height, int blocks,
                           float *const *out)
{
    typedef void streams(const uint8_t *const *, const uint8_t *const *, const uint8_t *, int, int, __m512i, float *const *);
    static streams *const stored[CPU_KERNELS] = {streams_k4, streams_k4m, streams_k5, streams_k5m, streams_k8, streams_kt};
    static streams *const f32[CPU_KERNELS] = {NULL,           streams_k4m_f32, NULL,          streams_k5m_f32, NULL,
                                              streams_kt_f32, streams_k2m_f32, streams_k3_f32, streams_k6_f32};
    __m512i table = f->table ? _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)f->table)) : _mm512_setzero_si512();
    (unpack_stored(f) ? stored : f32)[f->kernel](codes, (const uint8_t *const *)scales, tile, height, blocks, table, out);
}

void matmul_dot_avx512(const struct cpu_format *f, const uint8_t *codes, const void *scales, const void *tile,
                       int height, int blocks, float *out)
{
    typedef void dot(const uint8_t *, const uint8_t *, const uint8_t *, int, int, __m512i, float *);
    static dot *const stored[CPU_KERNELS] = {dot_k4, dot_k4m, dot_k5, dot_k5m, dot_k8, dot_kt, NULL, NULL, NULL, dot_k8z};
    static dot *const f32[CPU_KERNELS] = {NULL,       dot_k4m_f32, NULL,       dot_k5m_f32, NULL,
                                          dot_kt_f32, dot_k2m_f32, dot_k3_f32, dot_k6_f32};
    __m512i table = f->table ? _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)f->table))
                             : _mm512_setzero_si512();
    (unpack_stored(f) ? stored : f32)[f->kernel](codes, scales, tile, height, blocks, table, out);
}

/* ---- float weights ---- */

/* Columns 2i and 2i+1 of a group, of 16 rows. */
INLINE void weights(const enum cpu_kernel kernel, const uint8_t *p, __m512 *even, __m512 *odd)
{
    if (kernel == CPU_F32) {
        *even = _mm512_loadu_ps(p);
        *odd = _mm512_loadu_ps(p + 64);
    } else if (kernel == CPU_F16) {
        *even = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
        *odd = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(p + 32)));
    } else {
        __m512i v = _mm512_loadu_si512(p);
        *even = _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
        *odd = _mm512_castsi512_ps(_mm512_and_si512(v, _mm512_set1_epi32((int)0xFFFF0000u)));
    }
}

/* Rows [0, rows) of a tile of `height`; reach: constant after inlining. */
INLINE void float_kernel(const enum cpu_kernel kernel, const struct matmul_reach reach, const int height, const int rows, const uint8_t *p,
                         const float *x, int blocks, float *out)
{
    const int pair = kernel == CPU_F32 ? 128 : 64;
    __m512 even[8], odd[8];
    UNROLL
    for (int h = 0; h < rows; h++) even[h] = odd[h] = _mm512_setzero_ps();
    for (int i = 0; i < 2 * blocks; i++) {
        UNROLL
        for (int c = 0; c < 8; c++) {
            __m512 w0, w1;
            matmul_ahead_by(p, reach);
            if (kernel == CPU_F32) matmul_ahead_by(p + 64, reach);
            weights(kernel, p, &w0, &w1);
            p += pair;
            UNROLL
            for (int h = 0; h < rows; h++) {
                even[h] = _mm512_fmadd_ps(w0, _mm512_set1_ps(x[16 * h + 2 * c]), even[h]);
                odd[h] = _mm512_fmadd_ps(w1, _mm512_set1_ps(x[16 * h + 2 * c + 1]), odd[h]);
            }
        }
        x += 16 * height;
    }
    UNROLL
    for (int h = 0; h < rows; h++) _mm512_storeu_ps(out + 16 * h, _mm512_add_ps(even[h], odd[h]));
}

INLINE void float_heights(const enum cpu_kernel kernel, const struct matmul_reach reach, const uint8_t *p, const float *x, int height,
                          int blocks, float *out)
{
    switch (height) {
    case 1: float_kernel(kernel, reach, 1, 1, p, x, blocks, out); break;
    case 2: float_kernel(kernel, reach, 2, 2, p, x, blocks, out); break;
    case 4: float_kernel(kernel, reach, 4, 4, p, x, blocks, out); break;
    case 8: float_kernel(kernel, reach, 8, 8, p, x, blocks, out); break;
    default: /* 16, in two halves: 16 accumulators each */
        for (int h = 0; h < 16; h += 8) float_kernel(kernel, reach, 16, 8, p, x + 16 * h, blocks, out + 16 * h);
        break;
    }
}

INLINE void float_types(const struct cpu_format *f, const struct matmul_reach reach, const uint8_t *codes, const void *tile, int height,
                        int blocks, float *out)
{
    if (f->kernel == CPU_F32)
        float_heights(CPU_F32, reach, codes, tile, height, blocks, out);
    else if (f->kernel == CPU_F16)
        float_heights(CPU_F16, reach, codes, tile, height, blocks, out);
    else
        float_heights(CPU_BF16, reach, codes, tile, height, blocks, out);
}

void matmul_dot_float_avx512(const struct cpu_format *f, const uint8_t *codes, const void *tile, int height,
                             int blocks, float *out)
{
    if (matmul_reaches_far())
        float_types(f, matmul_reach_of(true, true), codes, tile, height, blocks, out);
    else
        float_types(f, matmul_reach_of(true, false), codes, tile, height, blocks, out);
}

/* ---- activations and scales ---- */

/* What follows a row's codes in a block: [s, s sum, s sum_0, s sum_1] and [-sum, -sum_0, -sum_1, 0]. */
INLINE void store_sums(__m256i q, float s, int height, int h, uint8_t *block)
{
    __m256i d = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), q);
    d = _mm256_add_epi32(d, _mm256_shuffle_epi32(d, 0xB1));
    d = _mm256_add_epi32(d, _mm256_shuffle_epi32(d, 0x4E));
    __m128i sum0 = _mm256_castsi256_si128(d), sum1 = _mm256_extracti128_si256(d, 1),
            sum = _mm_add_epi32(sum0, sum1);
    __m128i all = _mm_blend_epi32(_mm_blend_epi32(sum, sum0, 4), sum1, 8); /* sum, sum, sum_0, sum_1 */
    __m128 scale = _mm_set1_ps(s), floats = _mm_blend_ps(_mm_mul_ps(_mm_cvtepi32_ps(all), scale), scale, 1);
    __m128i ints = _mm_srli_si128(_mm_sub_epi32(_mm_setzero_si128(), all), 4);
    uint8_t *f = block + height * MATMUL_ACT_S, *n = block + height * MATMUL_ACT_NSUM;
    if (height == 1) {
        _mm_storeu_ps((float *)(void *)f, floats);
        _mm_storeu_si128((__m128i *)(void *)n, ints);
        return;
    }
    float fs[4];
    int32_t ns[4];
    _mm_storeu_ps(fs, floats);
    _mm_storeu_si128((__m128i *)ns, ints);
    UNROLL
    for (int i = 0; i < 4; i++) {
        ((float *)(void *)f)[i * height + h] = fs[i];
        ((int32_t *)(void *)n)[i * height + h] = ns[i];
    }
}

/* Largest of 16 magnitudes, as bits: floats without sign order as integers, NaN above infinity. */
INLINE uint32_t reduce_magnitude(__m512i m)
{
    __m256i a = _mm256_max_epu32(_mm512_castsi512_si256(m), _mm512_extracti64x4_epi64(m, 1));
    __m128i b = _mm_max_epu32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    b = _mm_max_epu32(b, _mm_shuffle_epi32(b, 0x4E));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epu32(b, _mm_shuffle_epi32(b, 0xB1)));
}

static void quantize_row(const float *row, int height, int h, uint8_t *block)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
    __m512 a = _mm512_loadu_ps(row), b = _mm512_loadu_ps(row + 16);
    uint32_t bits = reduce_magnitude(_mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(a), magnitude),
                                                      _mm512_and_si512(_mm512_castps_si512(b), magnitude)));
    float most, s = 0;
    memcpy(&most, &bits, 4);
    __m256i q = _mm256_setzero_si256();
    if (most >= 0x1p-100f && most <= 0x1p+120f) {
        __m512 inverse = _mm512_set1_ps(127.0f / most);
        s = most / 127.0f;
        __m128i qa = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(a, inverse)));
        __m128i qb = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(b, inverse)));
        q = _mm256_inserti128_si256(_mm256_castsi128_si256(qa), qb, 1);
    } else if (!(most < 0x1p-100f)) /* huge, infinite or NaN: the codes stay 0, the scale shows it */
        s = most != most ? NAN : most / 127.0f;
    _mm256_storeu_si256((__m256i *)(void *)(block + CPU_BLOCK * h), q);
    store_sums(q, s, height, h, block);
}

/* Two rows' products a and b (columns 0-15 and 16-31) to codes: 32 bytes of the first row, then of the second. */
INLINE __m512i codes_of_two(__m512 a0, __m512 b0, __m512 a1, __m512 b1)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i row0 = _mm512_packs_epi32(_mm512_cvtps_epi32(a0), _mm512_cvtps_epi32(b0));
    __m512i row1 = _mm512_packs_epi32(_mm512_cvtps_epi32(a1), _mm512_cvtps_epi32(b1));
    return _mm512_permutexvar_epi32(order, _mm512_packs_epi16(row0, row1));
}

/* Rows [h, h + 4) of a block side by side: maxima and sums by transposing adds, one division for four. The same bits as row by row;
 * false (nothing stored) when a value is huge, infinite or NaN. */
INLINE bool quantize_four(const float *x, size_t stride, int height, int h, uint8_t *block)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
    __m512 a[4], b[4];
    __m512i m[4];
    UNROLL
    for (int i = 0; i < 4; i++) {
        a[i] = _mm512_loadu_ps(x + (size_t)i * stride), b[i] = _mm512_loadu_ps(x + (size_t)i * stride + 16);
        m[i] = _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(a[i]), magnitude), _mm512_and_si512(_mm512_castps_si512(b[i]), magnitude));
    }
    __m512i m01 = _mm512_max_epu32(_mm512_unpacklo_epi32(m[0], m[1]), _mm512_unpackhi_epi32(m[0], m[1]));
    __m512i m23 = _mm512_max_epu32(_mm512_unpacklo_epi32(m[2], m[3]), _mm512_unpackhi_epi32(m[2], m[3]));
    __m512i m03 = _mm512_max_epu32(_mm512_unpacklo_epi64(m01, m23), _mm512_unpackhi_epi64(m01, m23));
    __m256i m8 = _mm256_max_epu32(_mm512_castsi512_si256(m03), _mm512_extracti64x4_epi64(m03, 1));
    __m128i bits = _mm_max_epu32(_mm256_castsi256_si128(m8), _mm256_extracti128_si256(m8, 1));
    __m128 most = _mm_castsi128_ps(bits);
    if (_mm_cmp_ps_mask(most, _mm_set1_ps(0x1p+120f), _CMP_NLE_UQ)) return false;
    __mmask8 there = _mm_cmp_ps_mask(most, _mm_set1_ps(0x1p-100f), _CMP_GE_OQ);
    __m128 s = _mm_maskz_div_ps(there, most, _mm_set1_ps(127.0f)), inverse = _mm_maskz_div_ps(there, _mm_set1_ps(127.0f), most);
    UNROLL
    for (int i = 0; i < 4; i++) {
        __m512 v = _mm512_permutexvar_ps(_mm512_set1_epi32(i), _mm512_castps128_ps512(inverse));
        a[i] = _mm512_mul_ps(a[i], v), b[i] = _mm512_mul_ps(b[i], v);
    }
    __m512i q01 = codes_of_two(a[0], b[0], a[1], b[1]), q23 = codes_of_two(a[2], b[2], a[3], b[3]);
    _mm512_storeu_si512(block + CPU_BLOCK * h, q01);
    _mm512_storeu_si512(block + CPU_BLOCK * (h + 2), q23);
    /* 128-bit lanes: row 0 columns 0-15, 16-31, row 1 likewise (rows 2 and 3 in d23) */
    __m512i d01 = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), q01), d23 = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), q23);
    __m512i d = _mm512_add_epi32(_mm512_unpacklo_epi32(d01, d23), _mm512_unpackhi_epi32(d01, d23));
    d = _mm512_add_epi32(d, _mm512_shuffle_epi32(d, (_MM_PERM_ENUM)0x4E));
    d = _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 8, 1, 9, 4, 12, 5, 13, 0, 0, 0, 0, 0, 0, 0, 0), d);
    __m128i sum0 = _mm512_castsi512_si128(d), sum1 = _mm512_extracti32x4_epi32(d, 1), sum = _mm_add_epi32(sum0, sum1), zero = _mm_setzero_si128();
    float *f = (float *)(void *)(block + height * MATMUL_ACT_S) + h;
    __m128i *n = (__m128i *)(void *)(block + height * MATMUL_ACT_NSUM + 4 * h);
    _mm_storeu_ps(f, s);
    _mm_storeu_ps(f + height, _mm_mul_ps(_mm_cvtepi32_ps(sum), s));
    _mm_storeu_ps(f + 2 * height, _mm_mul_ps(_mm_cvtepi32_ps(sum0), s));
    _mm_storeu_ps(f + 3 * height, _mm_mul_ps(_mm_cvtepi32_ps(sum1), s));
    _mm_storeu_si128(n, _mm_sub_epi32(zero, sum));
    _mm_storeu_si128(n + height / 4, _mm_sub_epi32(zero, sum0));
    _mm_storeu_si128(n + height / 2, _mm_sub_epi32(zero, sum1));
    _mm_storeu_si128(n + 3 * height / 4, zero);
    return true;
}

void matmul_quantize_avx512(const float *x, size_t stride, int height, int32_t k, void *tile)
{
    uint8_t *block = tile;
    for (int32_t i = 0; i < k; i += CPU_BLOCK, block += height * MATMUL_ACT_BYTES) {
        int h = 0;
        for (; h + 4 <= height; h += 4)
            if (!quantize_four(x + (size_t)h * stride + i, stride, height, h, block))
                for (int j = h; j < h + 4; j++) quantize_row(x + (size_t)j * stride + i, height, j, block);
        for (; h < height; h++) quantize_row(x + (size_t)h * stride + i, height, h, block);
    }
}

/* Of each of four vectors the largest value (smallest: the smallest). */
INLINE __m128 extreme_of_four(const bool smallest, const __m512 m[4])
{
#define EXTREME(bits, a, b) (smallest ? _mm##bits##_min_ps(a, b) : _mm##bits##_max_ps(a, b))
    __m512 m01 = EXTREME(512, _mm512_unpacklo_ps(m[0], m[1]), _mm512_unpackhi_ps(m[0], m[1]));
    __m512 m23 = EXTREME(512, _mm512_unpacklo_ps(m[2], m[3]), _mm512_unpackhi_ps(m[2], m[3]));
    __m512d lo = _mm512_unpacklo_pd(_mm512_castps_pd(m01), _mm512_castps_pd(m23)), hi = _mm512_unpackhi_pd(_mm512_castps_pd(m01), _mm512_castps_pd(m23));
    __m512 all = EXTREME(512, _mm512_castpd_ps(lo), _mm512_castpd_ps(hi));
    __m256 m8 = EXTREME(256, _mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
    return EXTREME(, _mm256_castps256_ps128(m8), _mm256_extractf128_ps(m8, 1));
#undef EXTREME
}

/* Four rows of a block on their way: what was chosen for them. */
struct zero_four {
    const float *x;
    uint8_t *block;
    int h; /* the first row; -1: nothing */
    bool plain; /* a value is huge, infinite or NaN: row by row */
    float inverse[4], minus_z[4];
};

/* Codes of the four rows, and -128 times their sums. */
INLINE void zero_codes(const struct zero_four *f, size_t stride, int height)
{
    __m512 a[4], b[4];
    UNROLL
    for (int i = 0; i < 4; i++) {
        __m512 v = _mm512_set1_ps(f->inverse[i]), w = _mm512_set1_ps(f->minus_z[i]);
        a[i] = _mm512_fmadd_ps(_mm512_loadu_ps(f->x + (size_t)i * stride), v, w);
        b[i] = _mm512_fmadd_ps(_mm512_loadu_ps(f->x + (size_t)i * stride + 16), v, w);
    }
    __m512i q01 = codes_of_two(a[0], b[0], a[1], b[1]), q23 = codes_of_two(a[2], b[2], a[3], b[3]);
    _mm512_storeu_si512(f->block + CPU_BLOCK * f->h, q01);
    _mm512_storeu_si512(f->block + CPU_BLOCK * (f->h + 2), q23);
    /* 128-bit lanes as in quantize_four, here the whole rows' sums */
    __m512i d01 = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), q01), d23 = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), q23);
    __m512i d = _mm512_add_epi32(_mm512_unpacklo_epi32(d01, d23), _mm512_unpackhi_epi32(d01, d23));
    d = _mm512_add_epi32(d, _mm512_shuffle_epi32(d, (_MM_PERM_ENUM)0x4E));
    d = _mm512_add_epi32(d, _mm512_shuffle_i32x4(d, d, 0xB1));
    d = _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 8, 1, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), d);
    _mm_storeu_si128((__m128i *)(void *)(f->block + height * MATMUL_ACT_NSUM + 4 * f->h), _mm_slli_epi32(_mm_sub_epi32(_mm_setzero_si128(), _mm512_castsi512_si128(d)), 7));
}

/* The choice of matmul_zero_choose for f's four rows; scales and zero points are stored. */
INLINE void zero_choose(struct zero_four *f, size_t stride, int height)
{
    static const float upper[] = MATMUL_ZERO_UPPER, lower[] = MATMUL_ZERO_LOWER, share[] = MATMUL_ZERO_SHARES;
    const __m128 sign = _mm_set1_ps(-0.0f);
    __m512 high[4], low[4];
    __mmask16 nan = 0;
    UNROLL
    for (int i = 0; i < 4; i++) {
        __m512 a = _mm512_loadu_ps(f->x + (size_t)i * stride), b = _mm512_loadu_ps(f->x + (size_t)i * stride + 16);
        high[i] = _mm512_max_ps(a, b);
        low[i] = _mm512_min_ps(a, b);
        nan |= _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q);
    }
    __m128 top = extreme_of_four(false, high), bottom = _mm_xor_ps(extreme_of_four(true, low), sign);
    __m128 most = _mm_max_ps(top, bottom), least = _mm_min_ps(top, bottom);
    f->plain = nan || _mm_cmp_ps_mask(most, _mm_set1_ps(0x1p+120f), _CMP_NLE_UQ);
    __mmask8 there = _mm_cmp_ps_mask(most, _mm_set1_ps(0x1p-100f), _CMP_GE_OQ);
    __m128i z = _mm_setzero_si128();
    UNROLL
    for (int i = 0; i < 3; i++) z = _mm_mask_add_epi32(z, _mm_mask_cmp_ps_mask(there, least, _mm_mul_ps(_mm_set1_ps(share[i]), most), _CMP_LT_OQ), z, _mm_set1_epi32(1));
    __m128 s = _mm_maskz_max_ps(there, _mm_mul_ps(most, _mm_permutevar_ps(_mm_loadu_ps(upper), z)), _mm_mul_ps(least, _mm_permutevar_ps(_mm_loadu_ps(lower), z)));
    s = _mm_mask_xor_ps(s, _mm_mask_cmp_ps_mask(there, bottom, top, _CMP_GT_OQ), s, sign);
    _mm_storeu_ps(f->inverse, _mm_maskz_div_ps(there, _mm_set1_ps(1.0f), s));
    _mm_storeu_ps(f->minus_z, _mm_cvtepi32_ps(_mm_sub_epi32(_mm_setzero_si128(), _mm_slli_epi32(z, 5))));
    _mm_storeu_ps((float *)(void *)(f->block + height * MATMUL_ACT_S) + f->h, s);
    _mm_storeu_si128((__m128i *)(void *)(f->block + height * (MATMUL_ACT_NSUM + 4) + 4 * f->h), _mm_slli_epi32(z, 6));
}

INLINE void zero_finish(const struct zero_four *f, size_t stride, int height)
{
    if (f->h >= 0 && !f->plain) zero_codes(f, stride, height);
    for (int j = 0; j < 4 && f->h >= 0 && f->plain; j++) matmul_zero_row(f->x + (size_t)j * stride, height, f->h + j, f->block);
}

/* The codes of four rows follow the choice for the next four: a choice is a long chain that hides behind them. */
void matmul_quantize_zero_avx512(const float *x, size_t stride, int height, int32_t k, void *tile)
{
    struct zero_four four[2] = {{.h = -1}, {.h = -1}};
    uint8_t *block = tile;
    int turn = 0;
    for (int32_t i = 0; i < k; i += CPU_BLOCK, block += height * MATMUL_ACT_BYTES) {
        int h = 0;
        for (; h + 4 <= height; h += 4, turn = !turn) {
            four[turn].x = x + (size_t)h * stride + i, four[turn].block = block, four[turn].h = h;
            zero_choose(&four[turn], stride, height);
            zero_finish(&four[!turn], stride, height);
        }
        for (; h < height; h++) matmul_zero_row(x + (size_t)h * stride + i, height, h, block);
    }
    zero_finish(&four[!turn], stride, height);
}

INLINE __m512 halves16(const uint8_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
INLINE __m512 unsigned16(__m128i v)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(v));
}
INLINE __m512 signed16(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
INLINE __m512 negative(__m512 a)
{
    return _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(a), _mm512_set1_epi32((int)0x80000000u)));
}

static void expand_super(const struct cpu_format *f, const uint8_t *p, float *dst)
{
    __m512 d = halves16(p);
    const __m128i low = _mm_set1_epi8(15);
    switch (f->scales) {
    case CPU_SCALES_K_SM: {
        __m512 dmin = negative(halves16(p + 32));
        for (int g = 0; g < 8; g++, dst += 32) {
            const __m128i *v = (const __m128i *)(p + 64 + 32 * g);
            _mm512_storeu_ps(dst, _mm512_mul_ps(d, unsigned16(_mm_loadu_si128(v))));
            _mm512_storeu_ps(dst + 16, _mm512_mul_ps(dmin, unsigned16(_mm_loadu_si128(v + 1))));
        }
        break;
    }
    case CPU_SCALES_K_NIB: {
        __m512 dmin = negative(halves16(p + 32));
        for (int g = 0; g < 16; g++) {
            __m128i v = _mm_loadu_si128((const __m128i *)(p + 64 + 16 * g));
            float *to = dst + g / 2 * 64 + g % 2 * 16;
            _mm512_storeu_ps(to, _mm512_mul_ps(d, unsigned16(_mm_and_si128(v, low))));
            _mm512_storeu_ps(to + 32,
                             _mm512_mul_ps(dmin, unsigned16(_mm_and_si128(_mm_srli_epi16(v, 4), low))));
        }
        break;
    }
    case CPU_SCALES_K_S16:
        for (int g = 0; g < 16; g++)
            _mm512_storeu_ps(dst + 16 * g, _mm512_mul_ps(d, signed16(p + 32 + 16 * g)));
        break;
    default: /* CPU_SCALES_K_S32 */
        for (int g = 0; g < 8; g++)
            _mm512_storeu_ps(dst + 16 * g, _mm512_mul_ps(d, signed16(p + 32 + 16 * g)));
        break;
    }
}

/* What unpack_zero reads; at most what cpu_weight_expand_zero writes. */
static void expand_zero(const uint8_t *src, int blocks, uint8_t *dst)
{
    const uint8_t *codes = src + cpu_weight_k8_codes(blocks);
    for (int b = 0; b < blocks; b++, codes += 512, dst += UNPACK_ZERO_BYTES) {
        __m512i sum[2] = {_mm512_set1_epi32(-128 * CPU_BLOCK), _mm512_setzero_si512()};
        UNROLL
        for (int j = 0; j < 8; j++) sum[j % 2] = _mm512_dpbusd_epi32(sum[j % 2], unpack_load(codes, j), _mm512_set1_epi8(1));
        memcpy(dst, src + 32 * b, 32);
        _mm256_storeu_si256((__m256i *)(void *)(dst + 32), _mm512_cvtepi32_epi16(_mm512_add_epi32(sum[0], sum[1])));
    }
}

const void *matmul_scales_avx512(const struct cpu_format *f, const uint8_t *src, int blocks, float *dst)
{
    if (f->kernel == CPU_K8Z) {
        expand_zero(src, blocks, (uint8_t *)dst);
        return dst;
    }
    if (unpack_stored(f)) return src;
    const float *scales = dst;
    switch (f->scales) {
    case CPU_SCALES_E8M0: cpu_weight_expand_scales(f, src, blocks, dst); break;
    default:
        for (int b = 0; b < blocks; b += 8, src += f->scale_bytes, dst += 8 * cpu_format_scale_floats(f))
            expand_super(f, src, dst);
        break;
    }
    return scales;
}

void matmul_residual_avx512(const float *x, size_t stride, int height, int32_t k, const void *tile, float *r,
                            size_t r_stride)
{
    matmul_residual_body(x, stride, height, k, tile, r, r_stride);
}

const struct matmul_kernels matmul_kernels_avx512 = {matmul_quantize_avx512, matmul_quantize_zero_avx512, matmul_residual_avx512, matmul_scales_avx512,
                                                     matmul_dot_avx512,      matmul_streams_avx512,  matmul_dot_float_avx512,     matmul_finish_avx512};
#else
typedef int matmul_avx512_not_here;
#endif
