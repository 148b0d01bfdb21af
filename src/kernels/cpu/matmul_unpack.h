/* What the AVX-512 and AMX files share: the quads of a block of weight codes (weight.h) in 512-bit registers.
 */
#ifndef ROSE_KERNELS_CPU_MATMUL_UNPACK_H
#define ROSE_KERNELS_CPU_MATMUL_UNPACK_H

#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/weight.h"

#define UNPACK_INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNPACK_UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNPACK_UNROLL _Pragma("GCC unroll 16")
#endif

UNPACK_INLINE __m512i unpack_load(const uint8_t *p, int vector)
{
    return _mm512_loadu_si512(p + 64 * vector);
}

/* The quads of a block as unsigned codes, 16 rows a vector. */
UNPACK_INLINE void unpack_quads(const enum cpu_kernel kernel, const uint8_t *p, __m512i table, __m512i q[8])
{
    const __m512i low4 = _mm512_set1_epi8(15), low2 = _mm512_set1_epi8(3), bit2 = _mm512_set1_epi8(4),
                  bit4 = _mm512_set1_epi8(16), bits45 = _mm512_set1_epi8(48);
    if (kernel == CPU_K8 || kernel == CPU_K8Z) {
        UNPACK_UNROLL
        for (int j = 0; j < 8; j++) q[j] = unpack_load(p, j);
        return;
    }
    if (kernel == CPU_K2M || kernel == CPU_K3) {
        UNPACK_UNROLL
        for (int j = 0; j < 8; j++)
            q[j] = _mm512_and_si512(_mm512_srli_epi16(unpack_load(p, j / 4), j % 4 * 2), low2);
        if (kernel == CPU_K3) {
            __m512i h = unpack_load(p, 2);
            UNPACK_UNROLL
            for (int j = 0; j < 8; j++) {
                __m512i b = j < 2 ? _mm512_slli_epi16(h, 2 - j) : _mm512_srli_epi16(h, j - 2);
                q[j] = _mm512_ternarylogic_epi32(q[j], b, bit2, 0xF8); /* q | b & bit */
            }
        }
        return;
    }
    UNPACK_UNROLL
    for (int j = 0; j < 4; j++) {
        __m512i v = unpack_load(p, j);
        q[j] = _mm512_and_si512(v, low4);
        q[j + 4] = _mm512_and_si512(_mm512_srli_epi16(v, 4), low4);
    }
    if (kernel == CPU_KT) {
        UNPACK_UNROLL
        for (int j = 0; j < 8; j++) q[j] = _mm512_shuffle_epi8(table, q[j]);
    }
    if (kernel == CPU_K5 || kernel == CPU_K5M) {
        __m512i h = unpack_load(p, 4);
        UNPACK_UNROLL
        for (int j = 0; j < 8; j++) {
            __m512i b = j < 4 ? _mm512_slli_epi16(h, 4 - j) : _mm512_srli_epi16(h, j - 4);
            q[j] = _mm512_ternarylogic_epi32(q[j], b, bit4, 0xF8);
        }
    }
    if (kernel == CPU_K6) {
        UNPACK_UNROLL
        for (int j = 0; j < 8; j++) {
            __m512i h = unpack_load(p, 4 + j / 4);
            const int t = j % 4 * 2;
            __m512i b = t < 4 ? _mm512_slli_epi16(h, 4 - t) : _mm512_srli_epi16(h, t - 4);
            q[j] = _mm512_ternarylogic_epi32(q[j], b, bits45, 0xF8);
        }
    }
}

UNPACK_INLINE __m512i unpack_i32(const uint8_t *p)
{
    return _mm512_set1_epi32(*(const int32_t *)(const void *)p);
}
UNPACK_INLINE __m512 unpack_f32(const uint8_t *p)
{
    return _mm512_set1_ps(*(const float *)(const void *)p);
}

/* Do kernels read the scales as they are stored (f16[16] a record)? K4, K5 and K8 come with no others; the
 * formats in blocks of 256 columns and MXFP4 have theirs expanded. */
UNPACK_INLINE bool unpack_stored(const struct cpu_format *f)
{
    return f->scales == CPU_SCALES_D || f->scales == CPU_SCALES_DM;
}
/* The i-th 16 scales (or mins) of a block. */
UNPACK_INLINE __m512 unpack_scale(const bool stored, const uint8_t *scales, const int i)
{
    return stored ? _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(scales + 32 * i)))
                  : _mm512_loadu_ps(scales + 64 * i);
}

/* Offset correction of the integer sum: -sum << shift. */
UNPACK_INLINE __m512i unpack_start(const enum cpu_kernel kernel, const uint8_t *nsum)
{
    switch (kernel) {
    case CPU_K4: return _mm512_slli_epi32(unpack_i32(nsum), 3);
    case CPU_K5: return _mm512_slli_epi32(unpack_i32(nsum), 4);
    case CPU_K3: return _mm512_slli_epi32(unpack_i32(nsum), 2);
    case CPU_K6: return _mm512_slli_epi32(unpack_i32(nsum), 5);
    case CPU_K8:
    case CPU_KT: return _mm512_slli_epi32(unpack_i32(nsum), 7);
    default: return _mm512_setzero_si512();
    }
}

/* CPU_K8Z's scales as these sets have them, a block in a line (a table of all products, as cpu_weight_expand_zero makes it, would take the place
 * of activations in the level-1 cache): S f16[16] | sum of (code - 128) i16[16]. */
enum { UNPACK_ZERO_BYTES = 64 };
/* The sum's products with the zero points of a block, each 16 lanes, the first one 0. */
UNPACK_INLINE void unpack_zero(const uint8_t *record, int32_t starts[CPU_ZERO_POINTS][16])
{
    __m512i once = _mm512_slli_epi32(_mm512_cvtepi16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(record + 32))), 5);
    __m512i twice = _mm512_add_epi32(once, once);
    _mm512_store_si512(starts[0], _mm512_setzero_si512());
    _mm512_store_si512(starts[1], once);
    _mm512_store_si512(starts[2], twice);
    _mm512_store_si512(starts[3], _mm512_add_epi32(once, twice));
}
/* Both corrections of the integer sum; nsum: the row's in a tile of `height`. */
UNPACK_INLINE __m512i unpack_start_zero(const uint8_t *nsum, const int height, const int32_t starts[CPU_ZERO_POINTS][16])
{
    int32_t at;
    memcpy(&at, nsum + 4 * height, sizeof at);
    return _mm512_add_epi32(_mm512_load_si512((const uint8_t *)starts + at), unpack_i32(nsum));
}

/* matmul_avx512.c: what AMX shares. */
void matmul_quantize_avx512(const float *x, size_t stride, int height, int32_t k, void *tile);
void matmul_quantize_zero_avx512(const float *x, size_t stride, int height, int32_t k, void *tile);
void matmul_residual_avx512(const float *x, size_t stride, int height, int32_t k, const void *tile, float *r,
                            size_t r_stride);
const void *matmul_scales_avx512(const struct cpu_format *f, const uint8_t *src, int blocks, float *dst);
void matmul_dot_avx512(const struct cpu_format *f, const uint8_t *codes, const void *scales, const void *tile,
                       int height, int blocks, float *out);
void matmul_streams_avx512(const struct cpu_format *f, const uint8_t *const *codes, const void *const *scales, const void *tile, int height, int blocks,
                           float *const *out);
void matmul_dot_float_avx512(const struct cpu_format *f, const uint8_t *codes, const void *tile, int height,
                             int blocks, float *out);

#endif
