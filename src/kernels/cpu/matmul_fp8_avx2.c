#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/cpu/weight_fp8.h"

static inline __m256 decode8(const uint8_t *codes)
{
    __m256i v = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)codes));
    __m256i u = _mm256_or_si256(_mm256_slli_epi32(_mm256_and_si256(v, _mm256_set1_epi32(0x7F)), 20), _mm256_slli_epi32(_mm256_and_si256(v, _mm256_set1_epi32(0x80)), 24));
    return _mm256_mul_ps(_mm256_castsi256_ps(u), _mm256_set1_ps(0x1p120f)); /* matmul_fp8.c */
}

void matmul_fp8_panel_avx2(const uint8_t *codes, int columns, void *panel)
{
    float *to = panel;
    for (int i = 0; i < columns * CPU_GROUP; i += CPU_GROUP) {
        if (i % 64 == 0) matmul_ahead(codes + i);
        _mm256_store_ps(to + i, decode8(codes + i));
        _mm256_store_ps(to + i + 8, decode8(codes + i + 8));
    }
}
#else
typedef int matmul_fp8_avx2_not_here;
#endif
