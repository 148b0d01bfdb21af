/* The products with AVX2 and FMA. As AVX-512, with 8 out-features a vector and without vpdpbusd: vpmaddubsw
 * adds pairs of products in 16 bits with saturation, so the kernels add only as many of them as cannot reach
 * it:
 *
 *     bits  largest pair       pairs added in 16 bits
 *     4      15 * 127 * 2      8 (30,480)
 *     5      31 * 127 * 2      4 (31,496)
 *     6      63 * 127 * 2      2 (32,004)
 *     table 128 * 127 * 2      1 (32,512), |w| and x with w's sign
 *     8      15 * 128 * 2      8 (30,720) of each half of its bits
 *
 * vpsignb and vpabsb share two pipes with the multiplications (Zen 4), so that halves are the faster way where codes are 8 bits in memory: 18 of
 * their operations for 32 columns instead of 24.
 */
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/cpu/matmul_residual.h"
#include "kernels/cpu/matmul_epilogue.h"
#include "kernels/cpu/matmul_zero.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL VEC_UNROLL

INLINE __m256i load(const uint8_t *p, int vector)
{
    return _mm256_loadu_si256((const __m256i *)(p + 64 * vector));
}
INLINE __m256i broadcast_i32(const uint8_t *p)
{
    return _mm256_set1_epi32(*(const int32_t *)(const void *)p);
}
INLINE __m256 broadcast_f32(const uint8_t *p)
{
    return _mm256_broadcast_ss((const float *)(const void *)p);
}

/* The quads of 8 rows (p: the block, or its 32nd byte for the upper 8). CPU_KT's come out signed; codes of 8 bits take bytes_kernel. */
INLINE void unpack(const enum cpu_kernel kernel, const uint8_t *p, __m256i table, __m256i q[8])
{
    const __m256i low4 = _mm256_set1_epi8(15), low2 = _mm256_set1_epi8(3);
    if (kernel == CPU_K2M || kernel == CPU_K3) {
        UNROLL
        for (int j = 0; j < 8; j++)
            q[j] = _mm256_and_si256(_mm256_srli_epi16(load(p, j / 4), j % 4 * 2), low2);
        if (kernel == CPU_K3) {
            __m256i h = load(p, 2), bit = _mm256_set1_epi8(4);
            UNROLL
            for (int j = 0; j < 8; j++) {
                __m256i b = j < 2 ? _mm256_slli_epi16(h, 2 - j) : _mm256_srli_epi16(h, j - 2);
                q[j] = _mm256_or_si256(q[j], _mm256_and_si256(b, bit));
            }
        }
        return;
    }
    UNROLL
    for (int j = 0; j < 4; j++) {
        __m256i v = load(p, j);
        q[j] = _mm256_and_si256(v, low4);
        q[j + 4] = _mm256_and_si256(_mm256_srli_epi16(v, 4), low4);
    }
    if (kernel == CPU_KT) {
        UNROLL
        for (int j = 0; j < 8; j++) q[j] = _mm256_shuffle_epi8(table, q[j]);
    }
    if (kernel == CPU_K5 || kernel == CPU_K5M) {
        __m256i h = load(p, 4), bit = _mm256_set1_epi8(16);
        UNROLL
        for (int j = 0; j < 8; j++) {
            __m256i b = j < 4 ? _mm256_slli_epi16(h, 4 - j) : _mm256_srli_epi16(h, j - 4);
            q[j] = _mm256_or_si256(q[j], _mm256_and_si256(b, bit));
        }
    }
    if (kernel == CPU_K6) {
        const __m256i bits = _mm256_set1_epi8(48);
        UNROLL
        for (int j = 0; j < 8; j++) {
            const int t = j % 4 * 2;
            __m256i h = load(p, 4 + j / 4),
                    b = t < 4 ? _mm256_slli_epi16(h, 4 - t) : _mm256_srli_epi16(h, t - 4);
            q[j] = _mm256_or_si256(q[j], _mm256_and_si256(b, bits));
        }
    }
}

/* Quads that may be added in 16 bits. */
INLINE int run_of(const enum cpu_kernel kernel)
{
    switch (kernel) {
    case CPU_KT: return 1;
    case CPU_K6: return 2;
    case CPU_K5:
    case CPU_K5M: return 4;
    default: return 8;
    }
}

INLINE int offset_shift(const enum cpu_kernel kernel)
{
    return kernel == CPU_K4 ? 3 : kernel == CPU_K5 ? 4 : kernel == CPU_K3 ? 2 : kernel == CPU_K6 ? 5 : -1;
}

enum { TOGETHER = 4 };

/* Quads [from, to) of 8 out-features times the activations of `rows` rows from x on, TOGETHER at most. */
INLINE void dot_quads(const enum cpu_kernel kernel, const __m256i q[8], const int from, const int to, const int rows, const uint8_t *x, __m256i sum[TOGETHER])
{
    const bool is_signed = kernel == CPU_KT;
    const int run = ROSE_MIN(run_of(kernel), to - from);
    const __m256i ones = _mm256_set1_epi16(1);
    UNROLL
    for (int j = from; j < to; j += run) {
        __m256i pairs[TOGETHER];
        UNROLL
        for (int i = j; i < j + run; i++) {
            const __m256i magnitude = is_signed ? _mm256_abs_epi8(q[i]) : q[i];
            UNROLL
            for (int r = 0; r < rows; r++) {
                __m256i a = broadcast_i32(x + CPU_BLOCK * r + 4 * i);
                __m256i p = _mm256_maddubs_epi16(magnitude, is_signed ? _mm256_sign_epi8(a, q[i]) : a);
                pairs[r] = i == j ? p : _mm256_add_epi16(pairs[r], p);
            }
        }
        UNROLL
        for (int r = 0; r < rows; r++) {
            sum[r] = _mm256_add_epi32(sum[r], _mm256_madd_epi16(pairs[r], ones));
            __asm__("" : "+x"(sum[r])); /* in this order: a tree of sums would be more than there are registers */
        }
    }
}

/* 8 out-features of one block for rows [h, h + rows) of the tile. */
INLINE void rows_kernel(const enum cpu_kernel kernel, const int height, const __m256i q[8], const float *scales, const uint8_t *tile, const int h, const int rows, float *acc)
{
    const bool min = kernel == CPU_K4M || kernel == CPU_K5M || kernel == CPU_K2M;
    const int halves = kernel == CPU_K2M || kernel == CPU_K3 || kernel == CPU_K6 ? 2 : 1;
    const int shift = offset_shift(kernel);
    UNROLL
    for (int half = 0; half < halves; half++) {
        const int which = halves == 1 ? 0 : 1 + half;
        __m256i sum[TOGETHER];
        UNROLL
        for (int r = 0; r < rows; r++) {
            sum[r] = _mm256_setzero_si256();
            if (shift >= 0)
                sum[r] = _mm256_slli_epi32(broadcast_i32(tile + height * (MATMUL_ACT_NSUM + 4 * which) + 4 * (h + r)), ROSE_MAX(shift, 0));
        }
        dot_quads(kernel, q, half * 4, half * 4 + 8 / halves, rows, tile + CPU_BLOCK * h, sum);
        UNROLL
        for (int r = 0; r < rows; r++) {
            float *to = acc + 16 * (h + r);
            __m256 s = _mm256_mul_ps(_mm256_loadu_ps(scales + 16 * half), broadcast_f32(tile + height * MATMUL_ACT_S + 4 * (h + r)));
            __m256 a = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[r]), s, _mm256_loadu_ps(to));
            if (min)
                a = _mm256_fmadd_ps(_mm256_loadu_ps(scales + 16 * (halves + half)), broadcast_f32(tile + height * (MATMUL_ACT_SSUM + 4 * which) + 4 * (h + r)), a);
            _mm256_storeu_ps(to, a);
        }
    }
}

/* The same for codes of 8 bits, half by half (low, high), codes - 128 by way of the activations' sums. */
INLINE void bytes_kernel(const enum cpu_kernel kernel, const int height, const __m256i half[8][2], const float *scales, const uint8_t *tile, const int h, const int rows, float *acc)
{
    __m256i low[TOGETHER], high[TOGETHER];
    UNROLL
    for (int j = 0; j < 8; j++) {
        const __m256i a = half[j][0], b = half[j][1];
        UNROLL
        for (int r = 0; r < rows; r++) {
            __m256i x = broadcast_i32(tile + CPU_BLOCK * (h + r) + 4 * j), l = _mm256_maddubs_epi16(a, x), u = _mm256_maddubs_epi16(b, x);
            low[r] = j ? _mm256_add_epi16(low[r], l) : l;
            high[r] = j ? _mm256_add_epi16(high[r], u) : u;
            __asm__("" : "+x"(low[r]), "+x"(high[r])); /* in this order: trees of sums would be more than there are registers */
        }
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        const uint8_t *minus = tile + height * MATMUL_ACT_NSUM + 4 * (h + r);
        __m256i sum = _mm256_add_epi32(_mm256_madd_epi16(low[r], _mm256_set1_epi16(1)), _mm256_madd_epi16(high[r], _mm256_set1_epi16(16)));
        __m256i start = broadcast_i32(minus);
        if (kernel == CPU_K8Z) { /* scales: of these 8 out-features, their sums likewise */
            int32_t at;
            memcpy(&at, minus + 4 * height, sizeof at);
            start = _mm256_add_epi32(start, _mm256_loadu_si256((const __m256i *)(const void *)((const uint8_t *)scales + 64 + at)));
        } else
            start = _mm256_slli_epi32(start, 7);
        float *to = acc + 16 * (h + r);
        __m256 s = _mm256_mul_ps(_mm256_loadu_ps(scales), broadcast_f32(tile + height * MATMUL_ACT_S + 4 * (h + r)));
        _mm256_storeu_ps(to, _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_add_epi32(sum, start)), s, _mm256_loadu_ps(to)));
    }
}

/* 8 out-features of one block for all rows of the tile; acc [height][16], the sums so far. Where codes want more registers than there are (halves, or
 * a sign beside each magnitude) several rows share what is loaded. */
INLINE void block_kernel(const enum cpu_kernel kernel, const int height, const uint8_t *codes,
                         const float *scales, const uint8_t *tile, __m256i table, float *acc)
{
    if (kernel == CPU_K8 || kernel == CPU_K8Z) {
        __m256i half[8][2];
        const __m256i low4 = _mm256_set1_epi8(15);
        UNROLL
        for (int j = 0; j < 8; j++) {
            const __m256i v = load(codes, j);
            half[j][0] = _mm256_and_si256(v, low4), half[j][1] = _mm256_and_si256(_mm256_srli_epi16(v, 4), low4);
        }
        int h = 0;
        for (; h + TOGETHER <= height; h += TOGETHER) bytes_kernel(kernel, height, half, scales, tile, h, TOGETHER, acc);
        for (; h < height; h++) bytes_kernel(kernel, height, half, scales, tile, h, 1, acc);
        return;
    }
    const int together = kernel == CPU_KT ? TOGETHER : 1;
    __m256i q[8];
    unpack(kernel, codes, table, q);
    int h = 0;
    for (; h + together <= height; h += together) rows_kernel(kernel, height, q, scales, tile, h, together, acc);
    for (; h < height; h++) rows_kernel(kernel, height, q, scales, tile, h, 1, acc);
}

INLINE void dot_kernel(const enum cpu_kernel kernel, const int height, const struct cpu_format *f,
                       const uint8_t *codes, const float *scales, const uint8_t *tile, int blocks,
                       __m256i table, float *out)
{
    const int floats = cpu_format_scale_floats(f), code_bytes = f->code_bytes;
    memset(out, 0, (size_t)height * 64);
    for (int b = 0; b < blocks; b++) {
        for (int v = 0; v < code_bytes; v += 64)
            matmul_ahead(codes + v);
        block_kernel(kernel, height, codes, scales, tile, table, out);
        block_kernel(kernel, height, codes + 32, scales + 8, tile, table, out + 8);
        codes += code_bytes;
        scales += floats;
        tile += height * MATMUL_ACT_BYTES;
    }
}

#define DOT(name, kernel)                                                                            \
    static __attribute__((noinline)) void name(const struct cpu_format *f, const uint8_t *codes,     \
                                               const float *scales, const uint8_t *tile, int height, \
                                               int blocks, __m256i table, float *out)                \
    {                                                                                                \
        if (height == 1)                                                                             \
            dot_kernel(kernel, 1, f, codes, scales, tile, blocks, table, out);                       \
        else if (height == 16)                                                                       \
            dot_kernel(kernel, 16, f, codes, scales, tile, blocks, table, out);                      \
        else                                                                                         \
            dot_kernel(kernel, height, f, codes, scales, tile, blocks, table, out);                  \
    }
DOT(dot_k4, CPU_K4)
DOT(dot_k4m, CPU_K4M)
DOT(dot_k5, CPU_K5)
DOT(dot_k5m, CPU_K5M)
DOT(dot_k8, CPU_K8)
DOT(dot_kt, CPU_KT)
DOT(dot_k2m, CPU_K2M)
DOT(dot_k3, CPU_K3)
DOT(dot_k6, CPU_K6)
DOT(dot_k8z, CPU_K8Z)

static void dot_avx2(const struct cpu_format *f, const uint8_t *codes, const void *scales, const void *tile,
                     int height, int blocks, float *out)
{
    static void (*const dots[CPU_KERNELS])(const struct cpu_format *, const uint8_t *, const float *,
                                           const uint8_t *, int, int, __m256i, float *) = {
        dot_k4, dot_k4m, dot_k5, dot_k5m, dot_k8, dot_kt, dot_k2m, dot_k3, dot_k6, dot_k8z,
    };
    __m256i table = _mm256_setzero_si256(); /* made signed: without the 128 */
    if (f->table) {
        table = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)f->table));
        table = _mm256_xor_si256(table, _mm256_set1_epi8((char)0x80));
    }
    dots[f->kernel](f, codes, scales, tile, height, blocks, table, out);
}

/* ---- float weights ---- */

/* Columns 2i and 2i+1 of 8 rows; p: the pair's first vector, or the part of the upper 8 rows in it. */
INLINE void weights(const enum cpu_kernel kernel, const uint8_t *p, __m256 *even, __m256 *odd)
{
    if (kernel == CPU_F32) {
        *even = _mm256_loadu_ps((const float *)(const void *)p);
        *odd = _mm256_loadu_ps((const float *)(const void *)(p + 64));
    } else if (kernel == CPU_F16) {
        *even = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
        *odd = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 32)));
    } else {
        __m256i v = _mm256_loadu_si256((const __m256i *)p);
        *even = _mm256_castsi256_ps(_mm256_slli_epi32(v, 16));
        *odd = _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32((int)0xFFFF0000u)));
    }
}

/* `halves` times 8 out-features from p on, `rows` rows of a tile of `height`; rows * halves <= 4: 8 sums in
 * registers. */
INLINE void float_kernel(const enum cpu_kernel kernel, int height, const int rows, const int halves,
                         const uint8_t *p, const float *x, int blocks, float *out)
{
    const int pair = kernel == CPU_F32 ? 128 : 64,
              upper = kernel == CPU_F16 ? 16 : 32; /* bytes to the upper 8 rows */
    __m256 even[4], odd[4];
    UNROLL
    for (int i = 0; i < rows * halves; i++) even[i] = odd[i] = _mm256_setzero_ps();
    for (int i = 0; i < 2 * blocks; i++) {
        UNROLL
        for (int c = 0; c < 8; c++) {
            matmul_ahead(p);
            if (kernel == CPU_F32) matmul_ahead(p + 64);
            UNROLL
            for (int v = 0; v < halves; v++) {
                __m256 w0, w1;
                weights(kernel, p + v * upper, &w0, &w1);
                UNROLL
                for (int h = 0; h < rows; h++) {
                    const int a = v * rows + h;
                    even[a] = _mm256_fmadd_ps(w0, _mm256_broadcast_ss(x + 16 * h + 2 * c), even[a]);
                    odd[a] = _mm256_fmadd_ps(w1, _mm256_broadcast_ss(x + 16 * h + 2 * c + 1), odd[a]);
                }
            }
            p += pair;
        }
        x += 16 * height;
    }
    UNROLL
    for (int v = 0; v < halves; v++) {
        UNROLL
        for (int h = 0; h < rows; h++)
            _mm256_storeu_ps(out + 8 * v + 16 * h, _mm256_add_ps(even[v * rows + h], odd[v * rows + h]));
    }
}

INLINE void float_heights(const enum cpu_kernel kernel, const uint8_t *p, const float *x, int height,
                          int blocks, float *out)
{
    const int upper = kernel == CPU_F16 ? 16 : 32;
    if (height == 1)
        float_kernel(kernel, 1, 1, 2, p, x, blocks, out);
    else if (height == 2)
        float_kernel(kernel, 2, 2, 2, p, x, blocks, out);
    else
        for (int half = 0; half < 2; half++, p += upper, out += 8)
            for (int h = 0; h < height; h += 4)
                float_kernel(kernel, height, 4, 1, p, x + 16 * h, blocks, out + 16 * h);
}

static void dot_float_avx2(const struct cpu_format *f, const uint8_t *codes, const void *tile, int height,
                           int blocks, float *out)
{
    if (f->kernel == CPU_F32)
        float_heights(CPU_F32, codes, tile, height, blocks, out);
    else if (f->kernel == CPU_F16)
        float_heights(CPU_F16, codes, tile, height, blocks, out);
    else
        float_heights(CPU_BF16, codes, tile, height, blocks, out);
}

/* ---- activations and scales ---- */

INLINE int32_t hsum(__m256i v)
{
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xB1)));
}

static void quantize_block(const float *x, int height, int h, uint8_t *block)
{
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF));
    __m256 v[4], top = _mm256_setzero_ps(), unordered = _mm256_setzero_ps();
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_loadu_ps(x + 8 * i);
        top = _mm256_max_ps(_mm256_and_ps(v[i], magnitude), top);
        unordered = _mm256_or_ps(unordered, _mm256_cmp_ps(v[i], v[i], _CMP_UNORD_Q));
    }
    bool nan = _mm256_movemask_ps(unordered) != 0;
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(top), _mm256_extractf128_ps(top, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    float most = _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
    bool live = most >= 0x1p-100f && most <= 0x1p+120f && !nan;
    float s = nan ? NAN : most >= 0x1p-100f ? most / 127.0f : 0.0f;
    __m256 inverse = _mm256_set1_ps(live ? 127.0f / most : 0.0f);
    __m256i q[4];
    for (int i = 0; i < 4; i++)
        q[i] = live ? _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse)) : _mm256_setzero_si256();
    int32_t sum0 = hsum(_mm256_add_epi32(q[0], q[1])), sum1 = hsum(_mm256_add_epi32(q[2], q[3]));
    /* packs works in 128-bit lanes: dwords come out as 0 2 4 6 1 3 5 7 */
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)(block + CPU_BLOCK * h), bytes);
    float *f = (float *)(void *)(block + height * MATMUL_ACT_S) + h;
    f[0] = s;
    f[height] = s * (float)(sum0 + sum1);
    f[2 * height] = s * (float)sum0;
    f[3 * height] = s * (float)sum1;
    int32_t *n = (int32_t *)(void *)(block + height * MATMUL_ACT_NSUM) + h;
    n[0] = -(sum0 + sum1);
    n[height] = -sum0;
    n[2 * height] = -sum1;
    n[3 * height] = 0;
}

static void quantize_avx2(const float *x, size_t stride, int height, int32_t k, void *tile)
{
    uint8_t *block = tile;
    for (int32_t i = 0; i < k; i += CPU_BLOCK, block += height * MATMUL_ACT_BYTES)
        for (int h = 0; h < height; h++) {
            const float *row = x + (size_t)h * stride + i;
            float tail[CPU_BLOCK] = {0};
            if (k - i < CPU_BLOCK) row = memcpy(tail, row, (size_t)(k - i) * 4);
            quantize_block(row, height, h, block);
        }
}

INLINE float largest(__m256 v)
{
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}

static void quantize_zero_block(const float *x, int height, int h, uint8_t *block)
{
    __m256 v[4], unordered = _mm256_setzero_ps();
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_loadu_ps(x + 8 * i);
        unordered = _mm256_or_ps(unordered, _mm256_cmp_ps(v[i], v[i], _CMP_UNORD_Q));
    }
    __m256 top = _mm256_max_ps(_mm256_max_ps(v[0], v[1]), _mm256_max_ps(v[2], v[3]));
    __m256 bottom = _mm256_min_ps(_mm256_min_ps(v[0], v[1]), _mm256_min_ps(v[2], v[3]));
    struct matmul_zero c = matmul_zero_choose(largest(top), largest(_mm256_xor_ps(bottom, _mm256_set1_ps(-0.0f))), _mm256_movemask_ps(unordered) != 0);
    __m256 inverse = _mm256_set1_ps(c.inverse), z = _mm256_set1_ps((float)(-CPU_ZERO_STEP * c.z));
    __m256i q[4];
    for (int i = 0; i < 4; i++) q[i] = c.live ? _mm256_cvtps_epi32(_mm256_fmadd_ps(v[i], inverse, z)) : _mm256_setzero_si256();
    int32_t sum = hsum(_mm256_add_epi32(_mm256_add_epi32(q[0], q[1]), _mm256_add_epi32(q[2], q[3])));
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3])); /* as in quantize_block */
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)(block + CPU_BLOCK * h), bytes);
    matmul_zero_store(&c, sum, height, h, block);
}

static void quantize_zero_avx2(const float *x, size_t stride, int height, int32_t k, void *tile)
{
    uint8_t *block = tile;
    for (int32_t i = 0; i < k; i += CPU_BLOCK, block += height * MATMUL_ACT_BYTES)
        for (int h = 0; h < height; h++) quantize_zero_block(x + (size_t)h * stride + i, height, h, block);
}

INLINE __m256 halves8(const uint8_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
INLINE __m256 unsigned8(__m128i v)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(v));
}
INLINE __m256 signed8(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

/* 8 rows of a record: `r` is 0 or 8. */
INLINE void expand_super(const struct cpu_format *f, const uint8_t *p, int r, float *dst)
{
    __m256 d = halves8(p + 2 * r), dmin = _mm256_xor_ps(halves8(p + 32 + 2 * r), _mm256_set1_ps(-0.0f));
    const __m128i low = _mm_set1_epi8(15);
    dst += r;
    switch (f->scales) {
    case CPU_SCALES_K_SM:
        for (int g = 0; g < 8; g++, dst += 32) {
            const uint8_t *v = p + 64 + 32 * g + r;
            _mm256_storeu_ps(dst, _mm256_mul_ps(d, unsigned8(_mm_loadl_epi64((const __m128i *)v))));
            _mm256_storeu_ps(dst + 16,
                             _mm256_mul_ps(dmin, unsigned8(_mm_loadl_epi64((const __m128i *)(v + 16)))));
        }
        break;
    case CPU_SCALES_K_NIB:
        for (int g = 0; g < 16; g++) {
            __m128i v = _mm_loadl_epi64((const __m128i *)(p + 64 + 16 * g + r));
            float *to = dst + g / 2 * 64 + g % 2 * 16;
            _mm256_storeu_ps(to, _mm256_mul_ps(d, unsigned8(_mm_and_si128(v, low))));
            _mm256_storeu_ps(to + 32,
                             _mm256_mul_ps(dmin, unsigned8(_mm_and_si128(_mm_srli_epi16(v, 4), low))));
        }
        break;
    default: { /* CPU_SCALES_K_S16, CPU_SCALES_K_S32 */
        int records = f->scales == CPU_SCALES_K_S16 ? 16 : 8;
        for (int g = 0; g < records; g++)
            _mm256_storeu_ps(dst + 16 * g, _mm256_mul_ps(d, signed8(p + 32 + 16 * g + r)));
        break;
    }
    }
}

/* cpu_weight_expand_zero. */
static void expand_zero(const uint8_t *src, int blocks, float *dst)
{
    const uint8_t *codes = src + cpu_weight_k8_codes(blocks);
    for (int b = 0; b < blocks; b++, codes += 512, dst += 16 * (1 + CPU_ZERO_POINTS))
        for (int r = 0; r < 16; r += 8) {
            __m256i sum = _mm256_set1_epi32(-128 * CPU_BLOCK);
            for (int j = 0; j < 8; j++)
                sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(load(codes + 4 * r, j), _mm256_set1_epi8(1)), _mm256_set1_epi16(1)));
            _mm256_storeu_ps(dst + r, halves8(src + 32 * b + 2 * r));
            for (int t = 0; t < CPU_ZERO_POINTS; t++)
                _mm256_storeu_si256((__m256i *)(void *)(dst + 16 * (1 + t) + r), _mm256_mullo_epi32(sum, _mm256_set1_epi32(CPU_ZERO_STEP * t)));
        }
}

static const void *scales_avx2(const struct cpu_format *f, const uint8_t *src, int blocks, float *dst)
{
    const float *scales = dst;
    if (f->kernel == CPU_K8Z) {
        expand_zero(src, blocks, dst);
        return dst;
    }
    switch (f->scales) {
    case CPU_SCALES_D:
        for (int i = 0; i < 2 * blocks; i++) _mm256_storeu_ps(dst + 8 * i, halves8(src + 16 * i));
        break;
    case CPU_SCALES_DM:
        for (int i = 0; i < 4 * blocks; i++) _mm256_storeu_ps(dst + 8 * i, halves8(src + 16 * i));
        break;
    case CPU_SCALES_E8M0: cpu_weight_expand_scales(f, src, blocks, dst); break;
    default:
        for (int b = 0; b < blocks; b += 8, src += f->scale_bytes, dst += 8 * cpu_format_scale_floats(f)) {
            expand_super(f, src, 0, dst);
            expand_super(f, src, 8, dst);
        }
        break;
    }
    return scales;
}

static void residual_avx2(const float *x, size_t stride, int height, int32_t k, const void *tile, float *r,
                          size_t r_stride)
{
    matmul_residual_body(x, stride, height, k, tile, r, r_stride);
}

const struct matmul_kernels matmul_kernels_avx2 = {quantize_avx2, quantize_zero_avx2, residual_avx2,     scales_avx2,
                                                   dot_avx2,      NULL,           dot_float_avx2,     matmul_finish_avx2};
#else
typedef int matmul_avx2_not_here;
#endif
