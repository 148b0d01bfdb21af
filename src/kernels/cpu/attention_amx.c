/* Attention tiles in bfloat16 by AMX, float32 accumulators in tiles. */
#if defined(__AVX512BF16__)
#include "kernels/cpu/amx.h"
#include "kernels/cpu/elementwise_vec.h"
#include "kernels/cpu/attention_half_body.h"

/* Tiles 0 1 / 2 3: c, two blocks of 16 rows by two of 16 columns; 4 5: a; 6 7: b. Rows come in blocks of 16:
 * the buffers have whole blocks (attention.h), what the last rows hold does not matter. */
static void amx_scores(const uint16_t *q, const uint16_t *k, float *scores, int32_t rows, int32_t d32,
                       int32_t b0, int32_t b1)
{
    int64_t block = (int64_t)d32 * KV_BLOCK;
    long lda = (long)d32 * 2, ldc = ATTENTION_TILE * 4;
    for (int32_t r = 0; r < rows; r += 32) {
        bool two = r + 16 < rows;
        const uint16_t *q0 = q + (int64_t)r * d32, *q1 = q0 + 16 * (int64_t)d32;
        for (int32_t b = b0; b < b1; b += 2) {
            bool pair = b + 1 < b1;
            const uint16_t *k0 = k + b * block, *k1 = k0 + block;
            float *c = scores + (int64_t)r * ATTENTION_TILE + b * KV_BLOCK;
            amx_zero(0);
            amx_zero(1);
            amx_zero(2);
            amx_zero(3);
            for (int32_t i = 0; i < d32; i += 32) {
                amx_load(4, q0 + i, lda);
                amx_load(6, k0 + i * KV_BLOCK, 64);
                amx_dot_bf16(0, 4, 6);
                if (two) {
                    amx_load(5, q1 + i, lda);
                    amx_dot_bf16(2, 5, 6);
                }
                if (pair) {
                    amx_load(7, k1 + i * KV_BLOCK, 64);
                    amx_dot_bf16(1, 4, 7);
                    if (two) amx_dot_bf16(3, 5, 7);
                }
            }
            amx_store(0, c, ldc);
            if (pair) amx_store(1, c + 16, ldc);
            if (two) amx_store(2, c + 16 * ATTENTION_TILE, ldc);
            if (two && pair) amx_store(3, c + 16 * ATTENTION_TILE + 16, ldc);
        }
    }
}

/* Token blocks [b0, b1) are rounded to pairs of blocks (32 tokens, a tile of weights): values outside are
 * zero, and weights too. */
static void amx_values(const uint16_t *weights, const uint16_t *v, float *acc, int32_t rows, int32_t ld,
                       int32_t b0, int32_t b1)
{
    long lda = ATTENTION_TILE * 2, ldb = (long)ld * 4, ldc = (long)ld * 4;
    for (int32_t r = 0; r < rows; r += 32) {
        bool two = r + 16 < rows;
        const uint16_t *w0 = weights + (int64_t)r * ATTENTION_TILE, *w1 = w0 + 16 * ATTENTION_TILE;
        for (int32_t x = 0; x < ld; x += 32) {
            bool pair = x + 16 < ld;
            float *c0 = acc + (int64_t)r * ld + x, *c1 = c0 + 16 * (int64_t)ld;
            amx_load(0, c0, ldc);
            if (pair) amx_load(1, c0 + 16, ldc);
            if (two) amx_load(2, c1, ldc);
            if (two && pair) amx_load(3, c1 + 16, ldc);
            for (int32_t t = b0 / 2 * 32; t < b1 * KV_BLOCK; t += 32) {
                const uint16_t *v0 = v + (int64_t)(t / 2) * ld * 2 + 2 * x;
                amx_load(4, w0 + t, lda);
                amx_load(6, v0, ldb);
                amx_dot_bf16(0, 4, 6);
                if (two) {
                    amx_load(5, w1 + t, lda);
                    amx_dot_bf16(2, 5, 6);
                }
                if (pair) {
                    amx_load(7, v0 + 32, ldb);
                    amx_dot_bf16(1, 4, 7);
                    if (two) amx_dot_bf16(3, 5, 7);
                }
            }
            amx_store(0, c0, ldc);
            if (pair) amx_store(1, c0 + 16, ldc);
            if (two) amx_store(2, c1, ldc);
            if (two && pair) amx_store(3, c1 + 16, ldc);
        }
    }
}

static void half_begin(void)
{
    amx_begin();
}
static void half_end(void)
{
    amx_end();
}

const struct attention_half_kernels attention_half_amx = {half_query,   half_load_k, half_load_v, amx_scores,
                                                          half_softmax, amx_values,  half_begin,  half_end};
#else
typedef int attention_amx_unused; /* other architectures */
#endif
