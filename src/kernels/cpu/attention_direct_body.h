/* Attention of few rows straight from cache blocks: keys and values are converted in registers and used at
 * once. The order of every sum is that of attention_body.h's products over converted tiles, so both give the
 * same bits. */

#if defined(__AVX512F__)
enum { VEC_NAME(DIRECT_BLOCKS) = 4 }; /* token blocks taken together: four vectors of scores a row */
#define DIRECT_VECTORS 4
#define DIRECT_AT(blocks, j) ((blocks)[j])
#define DIRECT_COLUMN(j) 0
/* Up to three blocks at the end of a tile. */
#define DIRECT_SHORT(R, DTYPE)                                                              \
    if (b + 2 <= b1) {                                                                      \
        VEC_NAME(direct_scores)(R, 2, DTYPE, q, ldq, blocks + b, d, scores + b * KV_BLOCK); \
        b += 2;                                                                             \
    }                                                                                       \
    if (b < b1) VEC_NAME(direct_scores)(R, 1, DTYPE, q, ldq, blocks + b, d, scores + b * KV_BLOCK);
#else
enum { VEC_NAME(DIRECT_BLOCKS) = 1 };
#define DIRECT_VECTORS 2
#define DIRECT_AT(blocks, j) ((blocks)[0])
#define DIRECT_COLUMN(j) ((j)*VL)
#define DIRECT_SHORT(R, DTYPE)
#endif

/* Vector j of the keys' dim x, for each dtype; two dims at once, because bfloat16 comes in pairs. */
VEC_INLINE void VEC_NAME(direct_keys)(enum dtype dtype, const uint8_t *block, int column, int32_t d,
                                      int32_t x, vf *even, vf *odd)
{
    if (dtype == DTYPE_F32) {
        const float *f = (const float *)(const void *)block + (size_t)x * KV_BLOCK + column;
        *even = vload(f);
        *odd = vload(f + KV_BLOCK);
    } else if (dtype == DTYPE_F16) {
        const uint16_t *h = (const uint16_t *)(const void *)block + (size_t)x * KV_BLOCK + column;
        *even = vload_f16(h);
        *odd = vload_f16(h + KV_BLOCK);
    } else if (dtype == DTYPE_BF16) {
        vload_bf16_pairs((const uint16_t *)(const void *)block + (size_t)x * KV_BLOCK + 2 * column, even,
                         odd);
    } else {
        const uint16_t *scales = (const uint16_t *)(const void *)(block + (size_t)d * KV_BLOCK);
        vf s = vload_f16(scales + (size_t)(x / 32) * KV_BLOCK + column);
        const int8_t *q = (const int8_t *)block + (size_t)x * KV_BLOCK + column;
        *even = s * vload_i8(q);
        *odd = s * vload_i8(q + KV_BLOCK);
    }
}

/* 16-dim pieces of a value: VL dims from i on of token t. */
VEC_INLINE vf VEC_NAME(direct_value)(enum dtype dtype, const uint8_t *block, int32_t e, int32_t t, int32_t i)
{
    if (dtype == DTYPE_F32) return vload((const float *)(const void *)block + (size_t)t * (size_t)e + i);
    if (dtype == DTYPE_F16)
        return vload_f16((const uint16_t *)(const void *)block + (size_t)t * (size_t)e + i);
    if (dtype == DTYPE_BF16) {
        vf even, odd;
        vload_bf16_pairs((const uint16_t *)(const void *)block +
                             ((size_t)(t / 2) * (size_t)e + (size_t)i) * 2,
                         &even, &odd);
        return t & 1 ? odd : even;
    }
    const uint16_t *scales =
        (const uint16_t *)(const void *)(block + (size_t)e * KV_BLOCK) + t * ((e + 31) / 32) + i / 32;
    return vset1_f16(*scales) * vload_i8((const int8_t *)block + (size_t)t * (size_t)e + i);
}

enum { VEC_NAME(DIRECT_ROWS) = 4 };

/* `rows` and `vectors` (constants after inlining): rows of scores over vectors of tokens. */
VEC_INLINE void VEC_NAME(direct_scores)(const int rows, const int vectors, const enum dtype dtype,
                                        const float *q, int64_t ldq, const uint8_t *const *blocks, int32_t d,
                                        float *c)
{
    vf acc[VEC_NAME(DIRECT_ROWS)][DIRECT_VECTORS];
    VEC_UNROLL
    for (int r = 0; r < rows; r++) VEC_UNROLL
    for (int j = 0; j < vectors; j++) acc[r][j] = vset1(0);
    for (int32_t x = 0; x < d; x += 2) {
        vf even[DIRECT_VECTORS], odd[DIRECT_VECTORS];
        VEC_UNROLL
        for (int j = 0; j < vectors; j++)
            VEC_NAME(direct_keys)(dtype, DIRECT_AT(blocks, j), DIRECT_COLUMN(j), d, x, &even[j], &odd[j]);
        VEC_UNROLL
        for (int r = 0; r < rows; r++) {
            vf a = vset1(q[r * ldq + x]), b = vset1(q[r * ldq + x + 1]);
            VEC_UNROLL
            for (int j = 0; j < vectors; j++) acc[r][j] = vfma(b, odd[j], vfma(a, even[j], acc[r][j]));
        }
    }
    VEC_UNROLL
    for (int r = 0; r < rows; r++) VEC_UNROLL
    for (int j = 0; j < vectors; j++) vstore(c + r * ATTENTION_TILE + j * VL, acc[r][j]);
}

/* `rows` rows of results over `vectors` vectors of dims from i on: acc += weights[begin, end) values. */
VEC_INLINE void VEC_NAME(direct_values)(const int rows, const int vectors, const enum dtype dtype,
                                        const float *w, const uint8_t *const *blocks, int32_t e, int32_t i,
                                        int32_t begin, int32_t end, float *c, int64_t ldc)
{
    vf acc[VEC_NAME(DIRECT_ROWS)][DIRECT_VECTORS];
    VEC_UNROLL
    for (int r = 0; r < rows; r++) VEC_UNROLL
    for (int j = 0; j < vectors; j++) acc[r][j] = vload(c + r * ldc + j * VL);
    for (int32_t t = begin; t < end; t++) {
        vf v[DIRECT_VECTORS];
        VEC_UNROLL
        for (int j = 0; j < vectors; j++)
            v[j] = VEC_NAME(direct_value)(dtype, blocks[t / KV_BLOCK], e, t % KV_BLOCK, i + j * VL);
        VEC_UNROLL
        for (int r = 0; r < rows; r++) {
            vf a = vset1(w[r * ATTENTION_TILE + t]);
            VEC_UNROLL
            for (int j = 0; j < vectors; j++) acc[r][j] = vfma(a, v[j], acc[r][j]);
        }
    }
    VEC_UNROLL
    for (int r = 0; r < rows; r++) VEC_UNROLL
    for (int j = 0; j < vectors; j++) vstore(c + r * ldc + j * VL, acc[r][j]);
}

/* One function a (dtype, rows): all the tile's scores, all of its values. */
#define DIRECT_FUNCTIONS(DTYPE, R)                                                                           \
    static void VEC_NAME(direct_tile_scores_##DTYPE##_##R)(const float *q, int32_t ldq,                      \
                                                           const uint8_t *const *blocks, int32_t b0,         \
                                                           int32_t b1, int32_t d, float *scores)             \
    {                                                                                                        \
        int32_t b = b0;                                                                                      \
        for (; b + VEC_NAME(DIRECT_BLOCKS) <= b1; b += VEC_NAME(DIRECT_BLOCKS))                              \
            VEC_NAME(direct_scores)(R, DIRECT_VECTORS, DTYPE, q, ldq, blocks + b, d, scores + b * KV_BLOCK); \
        DIRECT_SHORT(R, DTYPE)                                                                               \
    }                                                                                                        \
    static void VEC_NAME(direct_tile_values_##DTYPE##_##R)(const float *w, const uint8_t *const *blocks,     \
                                                           int32_t begin, int32_t end, int32_t e,            \
                                                           float *acc, int32_t ld)                           \
    {                                                                                                        \
        int32_t i = 0;                                                                                       \
        for (; i + DIRECT_VECTORS * VL <= e; i += DIRECT_VECTORS * VL)                                       \
            VEC_NAME(direct_values)(R, DIRECT_VECTORS, DTYPE, w, blocks, e, i, begin, end, acc + i, ld);     \
        for (; i < e; i += VL)                                                                               \
            VEC_NAME(direct_values)(R, 1, DTYPE, w, blocks, e, i, begin, end, acc + i, ld);                  \
    }
#define DIRECT_DTYPE(DTYPE)    \
    DIRECT_FUNCTIONS(DTYPE, 1) \
    DIRECT_FUNCTIONS(DTYPE, 2) DIRECT_FUNCTIONS(DTYPE, 3) DIRECT_FUNCTIONS(DTYPE, 4)
DIRECT_DTYPE(DTYPE_F32)
DIRECT_DTYPE(DTYPE_F16)
DIRECT_DTYPE(DTYPE_BF16)
DIRECT_DTYPE(DTYPE_Q8_0)

#define DIRECT_TABLE(NAME)                                                                                \
    {                                                                                                     \
        {VEC_NAME(NAME##_DTYPE_F32_1), VEC_NAME(NAME##_DTYPE_F32_2), VEC_NAME(NAME##_DTYPE_F32_3),        \
         VEC_NAME(NAME##_DTYPE_F32_4)},                                                                   \
            {VEC_NAME(NAME##_DTYPE_F16_1), VEC_NAME(NAME##_DTYPE_F16_2), VEC_NAME(NAME##_DTYPE_F16_3),    \
             VEC_NAME(NAME##_DTYPE_F16_4)},                                                               \
            {VEC_NAME(NAME##_DTYPE_BF16_1), VEC_NAME(NAME##_DTYPE_BF16_2), VEC_NAME(NAME##_DTYPE_BF16_3), \
             VEC_NAME(NAME##_DTYPE_BF16_4)},                                                              \
            {VEC_NAME(NAME##_DTYPE_Q8_0_1), VEC_NAME(NAME##_DTYPE_Q8_0_2), VEC_NAME(NAME##_DTYPE_Q8_0_3), \
             VEC_NAME(NAME##_DTYPE_Q8_0_4)},                                                              \
    }

static int VEC_NAME(direct_index)(enum dtype t)
{
    return t == DTYPE_F32 ? 0 : t == DTYPE_F16 ? 1 : t == DTYPE_BF16 ? 2 : 3;
}

static void VEC_NAME(attention_direct_scores)(enum dtype dtype, const float *q, int32_t rows,
                                              const uint8_t *const *blocks, int32_t b0, int32_t b1, int32_t d,
                                              float *scores)
{
    static void (*const table[4][4])(const float *, int32_t, const uint8_t *const *, int32_t, int32_t,
                                     int32_t, float *) = DIRECT_TABLE(direct_tile_scores);
    for (int32_t r = 0; r < rows; r += 4) {
        int32_t n = rows - r < 4 ? rows - r : 4;
        table[VEC_NAME(direct_index)(dtype)][n - 1](q + (int64_t)r * d, d, blocks, b0, b1, d,
                                                    scores + r * ATTENTION_TILE);
    }
}

static void VEC_NAME(attention_direct_values)(enum dtype dtype, const float *weights, int32_t rows,
                                              const uint8_t *const *blocks, int32_t begin, int32_t end,
                                              int32_t e, float *acc, int32_t ld)
{
    static void (*const table[4][4])(const float *, const uint8_t *const *, int32_t, int32_t, int32_t,
                                     float *, int32_t) = DIRECT_TABLE(direct_tile_values);
    for (int32_t r = 0; r < rows; r += 4) {
        int32_t n = rows - r < 4 ? rows - r : 4;
        table[VEC_NAME(direct_index)(dtype)][n - 1](weights + r * ATTENTION_TILE, blocks, begin, end, e,
                                                    acc + (int64_t)r * ld, ld);
    }
}
