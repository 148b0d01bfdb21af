/* Attention tiles in bfloat16 by dot-product instructions (AVX512-BF16), float32 accumulators. */
#if defined(__AVX512BF16__)
#include "kernels/cpu/elementwise_vec.h"
#include "kernels/cpu/attention_half_body.h"

/* One pair of a row, in all lanes. */
VEC_INLINE __m512bh half_pair(const uint16_t *p)
{
    int32_t x;
    memcpy(&x, p, sizeof x);
    return (__m512bh)_mm512_set1_epi32(x);
}

/* R rows, four vectors of 16 columns each: B(j, x) is the address of vector j of pair x; LAST leaves out
 * columns past `wide`. */
#define HALF_BLOCK(R, NV, B)                                                                          \
    do {                                                                                              \
        __m512 acc[R][NV];                                                                            \
        VEC_UNROLL                                                                                    \
        for (int i = 0; i < R; i++) VEC_UNROLL                                                        \
        for (int j = 0; j < NV; j++) acc[i][j] = accumulate ? vload(c + i * ldc + 16 * j) : vset1(0); \
        for (int32_t x = x0; x < x1; x++) {                                                           \
            __m512bh row[NV];                                                                         \
            VEC_UNROLL                                                                                \
            for (int j = 0; j < NV; j++) row[j] = (__m512bh)_mm512_loadu_si512(B);                    \
            VEC_UNROLL                                                                                \
            for (int i = 0; i < R; i++) {                                                             \
                __m512bh s = half_pair(a + i * lda + 2 * x);                                          \
                VEC_UNROLL                                                                            \
                for (int j = 0; j < NV; j++) acc[i][j] = _mm512_dpbf16_ps(acc[i][j], s, row[j]);      \
            }                                                                                         \
        }                                                                                             \
        VEC_UNROLL                                                                                    \
        for (int i = 0; i < R; i++) VEC_UNROLL                                                        \
        for (int j = 0; j < NV; j++) vstore(c + i * ldc + 16 * j, acc[i][j]);                         \
    } while (0)

/* Vectors j are `step` elements apart, pairs `ldb`. */
#define HALF_FN(R, NV)                                                                                \
    static void half_block_##R##_##NV(const uint16_t *a, int64_t lda, const uint16_t *b, int64_t ldb, \
                                      int64_t step, float *c, int64_t ldc, int32_t x0, int32_t x1,    \
                                      bool accumulate)                                                \
    {                                                                                                 \
        HALF_BLOCK(R, NV, b + x * ldb + j * step);                                                    \
    }
#define HALF_ROWS(FN, NV) FN(1, NV) FN(2, NV) FN(3, NV) FN(4, NV) FN(5, NV) FN(6, NV)
HALF_ROWS(HALF_FN, 4)
HALF_ROWS(HALF_FN, 2)
HALF_ROWS(HALF_FN, 1)

typedef void half_block(const uint16_t *, int64_t, const uint16_t *, int64_t, int64_t, float *, int64_t,
                        int32_t, int32_t, bool);

/* c[rows, 16 n] (+)= a b over pairs [x0, x1). */
static void half_product(const uint16_t *a, int64_t lda, const uint16_t *b, int64_t ldb, int64_t step,
                         float *c, int64_t ldc, int32_t rows, int32_t n, int32_t x0, int32_t x1,
                         bool accumulate)
{
#define ENTRY(R, NV) half_block_##R##_##NV,
    static half_block *const wide[] = {HALF_ROWS(ENTRY, 4)}, *const two[] = {HALF_ROWS(ENTRY, 2)}, *const narrow[] = {HALF_ROWS(ENTRY, 1)};
#undef ENTRY
    for (int32_t j = 0; j < n;) {
        half_block *const *table = n - j >= 4 ? wide : n - j >= 2 ? two : narrow;
        for (int32_t i = 0; i < rows;) {
            int32_t left = rows - i, r = left >= 12 || left == 6 ? 6 : left > 6 ? (left + 1) / 2 : left;
            table[r - 1](a + i * lda, lda, b + j * step, ldb, step, c + i * ldc + 16 * j, ldc, x0, x1,
                         accumulate);
            i += r;
        }
        j += n - j >= 4 ? 4 : n - j >= 2 ? 2 : 1;
    }
}

static void half_pass(const struct attention_pass *p)
{
    int64_t block = (int64_t)p->d32 * KV_BLOCK;
    struct half_growth growth;
    half_growth_begin(&growth, p);
    for (int32_t j = p->tile0; j < p->tile1; j++) {
        int32_t b1 = (p->hi[p->rows - 1] - j * ATTENTION_TILE + KV_BLOCK - 1) / KV_BLOCK; /* the last row's */
        b1 = b1 < ATTENTION_TILE / KV_BLOCK ? b1 : ATTENTION_TILE / KV_BLOCK;
        half_product(p->q, p->d32, p->k + 4 * j * block, 2 * KV_BLOCK, block, p->scores, ATTENTION_TILE,
                     p->rows, b1, 0, p->d32 / 2, false);
        half_softmax(p, j, 0, p->rows, p->scores, p->weights, &growth);
        half_rescale(p, &growth);
        half_product(p->weights, ATTENTION_TILE, p->v + (int64_t)j * ATTENTION_TILE * p->ld,
                     2 * (int64_t)p->ld, 2 * KV_BLOCK, p->acc, p->ld, p->rows, p->ld / KV_BLOCK, 0,
                     b1 * KV_BLOCK / 2, true);
    }
}

static void half_nothing(void) {}

const struct attention_half_kernels attention_half_bf16 = {half_query, half_load_k, half_load_v,  half_own_k,
                                                           half_own_v, half_pass,   half_nothing, half_nothing};
#else
typedef int attention_bf16_unused; /* other architectures */
#endif
