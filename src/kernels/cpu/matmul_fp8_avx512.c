#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/cpu/weight_fp8.h"

static inline __m512 decode16(const uint8_t *codes)
{
    __m512i v = _mm512_cvtepu8_epi32(_mm_load_si128((const __m128i *)(const void *)codes));
    __m512i u = _mm512_or_si512(_mm512_slli_epi32(_mm512_and_si512(v, _mm512_set1_epi32(0x7F)), 20), _mm512_slli_epi32(_mm512_and_si512(v, _mm512_set1_epi32(0x80)), 24));
    return _mm512_mul_ps(_mm512_castsi512_ps(u), _mm512_set1_ps(0x1p120f)); /* matmul_fp8.c */
}

void matmul_fp8_panel_avx512(const uint8_t *codes, int columns, void *panel)
{
    float *to = panel;
    for (int i = 0; i < columns * CPU_GROUP; i += CPU_GROUP) {
        if (i % 64 == 0) matmul_ahead(codes + i);
        _mm512_store_ps(to + i, decode16(codes + i));
    }
}

/* Four bits of significand fit bfloat16: its upper half is the whole float. */
void matmul_fp8_pairs_avx512(const uint8_t *codes, int columns, void *panel)
{
    uint8_t *to = panel;
    for (int c = 0; c < columns; c += 2, codes += 2 * CPU_GROUP, to += 64) {
        if (c % 4 == 0) matmul_ahead(codes);
        __m512i even = _mm512_castps_si512(decode16(codes)), odd = _mm512_castps_si512(decode16(codes + CPU_GROUP));
        _mm512_store_si512(to, _mm512_mask_blend_epi16(0xAAAAAAAAu, _mm512_srli_epi32(even, 16), odd));
    }
}
#else
typedef int matmul_fp8_avx512_not_here;
#endif
