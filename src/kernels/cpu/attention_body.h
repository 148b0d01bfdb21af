/* Arithmetic of attention tiles; included once an instruction set. */
#include "kernels/cpu/attention.h"
#include "kernels/cpu/attention_turn.h"

/* R rows times NV vectors of columns, kept in registers over all of k. */
#define ATTENTION_BLOCK(R, NV)                                                                        \
    do {                                                                                              \
        vf acc[R][NV];                                                                                \
        VEC_UNROLL                                                                                    \
        for (int i = 0; i < R; i++) VEC_UNROLL                                                        \
        for (int j = 0; j < NV; j++) acc[i][j] = accumulate ? vload(c + i * ldc + j * VL) : vset1(0); \
        for (int32_t x = 0; x < k; x++) {                                                             \
            vf row[NV];                                                                               \
            VEC_UNROLL                                                                                \
            for (int j = 0; j < NV; j++) row[j] = vload(b + (int64_t)x * ldb + j * VL);               \
            VEC_UNROLL                                                                                \
            for (int i = 0; i < R; i++) {                                                             \
                vf s = vset1(a[i * lda + x]);                                                         \
                VEC_UNROLL                                                                            \
                for (int j = 0; j < NV; j++) acc[i][j] = vfma(s, row[j], acc[i][j]);                  \
            }                                                                                         \
        }                                                                                             \
        VEC_UNROLL                                                                                    \
        for (int i = 0; i < R; i++) VEC_UNROLL                                                        \
        for (int j = 0; j < NV; j++) vstore(c + i * ldc + j * VL, acc[i][j]);                         \
    } while (0)

#define ATTENTION_BLOCK_FN(R, NV)                                                                   \
    static void VEC_NAME(attention_block_##R##_##NV)(const float *a, int64_t lda, const float *b,   \
                                                     int64_t ldb, float *c, int64_t ldc, int32_t k, \
                                                     bool accumulate)                               \
    {                                                                                               \
        ATTENTION_BLOCK(R, NV);                                                                     \
    }

#if defined(__AVX512F__)
#define ATTENTION_WIDE 4
#define ATTENTION_BLOCK_ROWS(FN) FN(1, 4) FN(2, 4) FN(3, 4) FN(4, 4) FN(5, 4) FN(6, 4)
#else
#define ATTENTION_WIDE 2
#define ATTENTION_BLOCK_ROWS(FN) FN(1, 2) FN(2, 2) FN(3, 2) FN(4, 2) FN(5, 2) FN(6, 2)
#endif
ATTENTION_BLOCK_ROWS(ATTENTION_BLOCK_FN)
ATTENTION_BLOCK_FN(1, 1)
ATTENTION_BLOCK_FN(2, 1)
ATTENTION_BLOCK_FN(3, 1)
ATTENTION_BLOCK_FN(4, 1)
ATTENTION_BLOCK_FN(5, 1)
ATTENTION_BLOCK_FN(6, 1)

typedef void VEC_NAME(attention_block)(const float *, int64_t, const float *, int64_t, float *, int64_t,
                                       int32_t, bool);

static void VEC_NAME(attention_product)(const float *a, int32_t lda, const float *b, int32_t ldb, float *c,
                                        int32_t ldc, int32_t rows, int32_t k, int32_t n, bool accumulate)
{
#define ENTRY(R, NV) VEC_NAME(attention_block_##R##_##NV),
    static VEC_NAME(attention_block) *const wide[] = {ATTENTION_BLOCK_ROWS(ENTRY)};
#undef ENTRY
    static VEC_NAME(attention_block) *const narrow[] = {
        VEC_NAME(attention_block_1_1), VEC_NAME(attention_block_2_1), VEC_NAME(attention_block_3_1),
        VEC_NAME(attention_block_4_1), VEC_NAME(attention_block_5_1), VEC_NAME(attention_block_6_1)};
    for (int32_t j = 0; j < n;) {
        int32_t width = n - j >= ATTENTION_WIDE * VL ? ATTENTION_WIDE * VL : VL;
        VEC_NAME(attention_block) *const *table = width == VL ? narrow : wide;
        for (int32_t i = 0; i < rows;) {
            /* 6 6 6 … but never a last block of one row after a full one: 7 = 4 + 3 */
            int32_t left = rows - i, r = left >= 12 || left == 6 ? 6 : left > 6 ? (left + 1) / 2 : left;
            table[r - 1](a + (int64_t)i * lda, lda, b + j, ldb, c + (int64_t)i * ldc + j, ldc, k, accumulate);
            i += r;
        }
        j += width;
    }
}

#include "kernels/cpu/attention_softmax_body.h"

/* N: vectors of columns that rows see; constant after inlining. */
VEC_INLINE void VEC_NAME(attention_softmax_of)(const struct attention_softmax *s, const int N)
{
    bool plain = s->softcap == 0 && !s->slopes && !s->relative;
    for (int32_t r = 0; r < s->rows; r++) {
        float *row = s->scores + r * ATTENTION_TILE, *sum = s->sum + r * ATTENTION_LANES;
        vf x[ATTENTION_TILE / VL], limit = vset1(s->maximum[r] + ATTENTION_SLACK), high;
        VEC_UNROLL
        for (int j = 0; j < N; j++) x[j] = vload(row + j * VL);
        if (!(plain && s->lo[r] == 0 && s->hi[r] == ATTENTION_TILE)) VEC_UNROLL
        for (int j = 0; j < N; j++) x[j] = VEC_NAME(attention_score)(s, r, j, x[j]);
        high = x[0];
        VEC_UNROLL
        for (int j = 1; j < N; j++) high = vmax(x[j], high);
        if (vbits(vlt(limit, high))) VEC_NAME(attention_follow)(s, r, vhmax(high));
        /* no key seen yet: any finite number serves, every weight is 2^-inf */
        vf m = vset1(s->maximum[r] > -1e30f ? s->maximum[r] : -1e30f), total = vload(sum);
        VEC_UNROLL
        for (int j = 0; j < N; j++) {
            x[j] = vexp2(x[j] - m);
            total = total + x[j];
            vstore(row + j * VL, x[j]);
        }
        vstore(sum, total);
    }
}

/* A column that nobody sees would add exactly zero. */
static void VEC_NAME(attention_softmax)(const struct attention_softmax *s)
{
    enum { N = ATTENTION_TILE / VL };
    if (s->columns <= ATTENTION_TILE / 4) VEC_NAME(attention_softmax_of)(s, N / 4);
    else if (s->columns <= ATTENTION_TILE / 2) VEC_NAME(attention_softmax_of)(s, N / 2);
    else VEC_NAME(attention_softmax_of)(s, N);
}

static void VEC_NAME(attention_sums)(const float *lanes, int32_t rows, float *l)
{
    for (int32_t r = 0; r < rows; r++)
        l[r] = vsum(vload(lanes + r * ATTENTION_LANES)); /* lanes from VL on stay zero */
}

static void VEC_NAME(attention_scale)(const float *x, float scale, int32_t n, float *out)
{
    int32_t i = 0;
    for (; i + VL <= n; i += VL) vstore(out + i, vload(x + i) * vset1(scale));
    for (; i < n; i++) out[i] = x[i] * scale;
}

static void VEC_NAME(attention_merge)(float *m, float *l, float *acc, float m2, float l2, const float *acc2,
                                      int32_t n)
{
    if (m2 == -INFINITY) return;
    if (*m == -INFINITY) {
        memcpy(acc, acc2, (size_t)n * sizeof *acc);
        *m = m2;
        *l = l2;
        return;
    }
    float top = *m > m2 ? *m : m2, a[VL], b[VL];
    vf va = vexp2(vset1(*m - top)), vb = vexp2(vset1(m2 - top));
    vstore(a, va);
    vstore(b, vb);
    *l = *l * a[0] + l2 * b[0];
    *m = top;
    for (int32_t i = 0; i < n; i += VL) {
        int left = n - i < VL ? n - i : VL;
        vstore_n(acc + i, vfma(vload_n(acc2 + i, left), vb, vload_n(acc + i, left) * va), left);
    }
}

static void VEC_NAME(attention_finish)(float *y, float m, float l, const float *acc, int32_t n,
                                       const float *sink)
{
    float scale = 1.0f;
    if (sink) {
        float z = *sink * 1.44269504f, top = m > z ? m : z, e[VL];
        vstore(e, vexp2(vset1(m - top)));
        scale = e[0];
        vstore(e, vexp2(vset1(z - top)));
        l = l * scale + e[0];
    }
    vf inverse = vset1(l > 0 ? scale / l : 0.0f);
    int32_t i = 0;
    for (; i + VL <= n; i += VL) vstore(y + i, vload(acc + i) * inverse);
    if (i < n) vstore_n(y + i, vload_n(acc + i, n - i) * inverse, n - i);
}

static void VEC_NAME(attention_transpose)(const float *k, int64_t stride, int32_t n, int32_t d, float *kt,
                                          int32_t ld)
{
    int32_t done = 0;
#if defined(__AVX512F__)
    for (; done + VL <= d; done += VL) {
        __m512i row[16];
        VEC_UNROLL
        for (int32_t t = 0; t < 16; t++) row[t] = t < n ? _mm512_loadu_si512(k + t * stride + done) : _mm512_setzero_si512();
        attention_turn(row);
        VEC_UNROLL
        for (int32_t i = 0; i < 16; i++) _mm512_mask_storeu_epi32(kt + (int64_t)(done + i) * ld, (__mmask16)((1u << n) - 1), row[i]);
    }
#endif
    for (int32_t b = done; b < d; b += 16) /* 16 x 16 at a time stays in the nearest cache */
        for (int32_t t = 0; t < n; t++)
            for (int32_t i = b; i < b + 16 && i < d; i++) kt[(int64_t)i * ld + t] = k[t * stride + i];
}

#if defined(__AVX2__)
#include "kernels/cpu/attention_direct_body.h"
#else
#define attention_direct_scores_portable NULL
#define attention_direct_values_portable NULL
#endif

const struct attention_kernels VEC_NAME(attention_kernels) = {&VEC_NAME(kv_kernels),
                                                              VEC_NAME(attention_product),
                                                              VEC_NAME(attention_softmax),
                                                              VEC_NAME(attention_sums),
                                                              VEC_NAME(attention_scale),
                                                              VEC_NAME(attention_merge),
                                                              VEC_NAME(attention_finish),
                                                              VEC_NAME(attention_transpose),
                                                              VEC_NAME(attention_direct_scores),
                                                              VEC_NAME(attention_direct_values)};

void VEC_NAME(attention)(const void *params, const struct extents *extents, struct worker *w)
{
    attention_driver_run(&VEC_NAME(attention_kernels), params, extents, w);
}
