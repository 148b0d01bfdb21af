/* 16 x 16 numbers of 32 bits turned over in registers; after immintrin.h, with AVX-512. */
#ifndef ROSE_KERNELS_CPU_ATTENTION_TURN_H
#define ROSE_KERNELS_CPU_ATTENTION_TURN_H

#if defined(__AVX512F__)
/* Lane i of r[t] becomes lane t of r[i]: neighbours, pairs, quarters, halves change places. */
VEC_INLINE void attention_turn(__m512i r[16])
{
    __m512i a[16];
    VEC_UNROLL
    for (int t = 0; t < 16; t += 2) {
        a[t] = _mm512_unpacklo_epi32(r[t], r[t + 1]);
        a[t + 1] = _mm512_unpackhi_epi32(r[t], r[t + 1]);
    }
    VEC_UNROLL
    for (int t = 0; t < 16; t += 4) VEC_UNROLL
    for (int i = 0; i < 2; i++) {
        r[t + 2 * i] = _mm512_unpacklo_epi64(a[t + i], a[t + 2 + i]);
        r[t + 2 * i + 1] = _mm512_unpackhi_epi64(a[t + i], a[t + 2 + i]);
    }
    /* r[4 g + i], quarter q: lane 4 q + i of rows 4 g to 4 g + 3 */
    VEC_UNROLL
    for (int i = 0; i < 4; i++) VEC_UNROLL
    for (int h = 0; h < 2; h++) {
        a[8 * h + i] = _mm512_shuffle_i32x4(r[8 * h + i], r[8 * h + 4 + i], 0x88);
        a[8 * h + 4 + i] = _mm512_shuffle_i32x4(r[8 * h + i], r[8 * h + 4 + i], 0xDD);
    }
    /* a[8 h + i]: quarters 0 2 of rows 8 h, then of rows 8 h + 4; a[8 h + 4 + i]: quarters 1 3 */
    VEC_UNROLL
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_i32x4(a[i], a[8 + i], 0x88);
        r[8 + i] = _mm512_shuffle_i32x4(a[i], a[8 + i], 0xDD);
        r[4 + i] = _mm512_shuffle_i32x4(a[4 + i], a[12 + i], 0x88);
        r[12 + i] = _mm512_shuffle_i32x4(a[4 + i], a[12 + i], 0xDD);
    }
}
#endif

#endif
