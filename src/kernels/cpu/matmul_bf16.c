/* BF16 weights times many rows with vdpbf16ps, where that is faster than float32 multiply-adds (Zen 4 and later; not the processors with
 * AMX): activations are rounded to bfloat16 (nearest even), sums stay float32. The weights' packed layout [k / 2][16][2] is what the
 * instruction wants. */
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/cpu/matmul_inner.h"
#include "kernels/cpu/matmul_unpack.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL UNPACK_UNROLL

/* Tiles: a block of 32 columns is [H rows][16 pairs of columns], 64 bytes a row. */
void matmul_tile_bf16(const float *x, size_t stride, int height, int32_t k, void *tile)
{
    uint8_t *to = tile;
    for (int32_t i = 0; i < k; i += CPU_BLOCK)
        for (int h = 0; h < height; h++, to += 64) {
            const float *row = x + (size_t)h * stride + i;
            uint32_t left = (uint32_t)ROSE_MIN(CPU_BLOCK, k - i), mask = left == 32 ? ~0u : (1u << left) - 1;
            _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps((__mmask16)(mask >> 16), row + 16), _mm512_maskz_loadu_ps((__mmask16)mask, row)));
        }
}

INLINE void bf16_kernel(const int height, const uint8_t *p, const uint8_t *x, int blocks, float *out)
{
    __m512 acc[MATMUL_TILE];
    UNROLL
    for (int h = 0; h < height; h++) acc[h] = _mm512_setzero_ps();
    for (int b = 0; b < blocks; b++, x += 64 * height) {
        UNROLL
        for (int c = 0; c < 16; c++, p += 64) {
            __m512bh w = (__m512bh)_mm512_loadu_si512(p);
            matmul_ahead(p);
            UNROLL
            for (int h = 0; h < height; h++) acc[h] = _mm512_dpbf16_ps(acc[h], w, (__m512bh)unpack_i32(x + 64 * h + 4 * c));
        }
    }
    UNROLL
    for (int h = 0; h < height; h++) _mm512_storeu_ps(out + 16 * h, acc[h]);
}

#define HEIGHT(h) \
    static void bf16_##h(const uint8_t *p, const uint8_t *x, int blocks, float *out) { bf16_kernel(h, p, x, blocks, out); }
HEIGHT(1)
HEIGHT(2)
HEIGHT(4)
HEIGHT(8)
HEIGHT(16)

void matmul_dot_bf16(const uint8_t *codes, const void *tile, int height, int blocks, float *out)
{
    switch (height) {
    case 1: bf16_1(codes, tile, blocks, out); break;
    case 2: bf16_2(codes, tile, blocks, out); break;
    case 4: bf16_4(codes, tile, blocks, out); break;
    case 8: bf16_8(codes, tile, blocks, out); break;
    default: bf16_16(codes, tile, blocks, out); break;
    }
}

bool matmul_bf16_pays(void)
{
    return cpu_isa() == CPU_ISA_AVX512 && !cpu_isa_available(CPU_ISA_AMX) && __builtin_cpu_supports("avx512bf16");
}
#else
typedef int matmul_bf16_not_here;
#endif
