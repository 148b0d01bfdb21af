/* The products in plain C: what other machines run, and the definition the vector versions are held against. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/matmul_epilogue.h"

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF /* gcc does not contract under -std=c17 */
#endif

enum { ROWS = CPU_GROUP, BLOCK = CPU_BLOCK };

#define INLINE static inline __attribute__((always_inline))

void matmul_tile_float(const float *x, size_t stride, int height, int32_t k, float *tile)
{
    int32_t padded = (k + BLOCK - 1) / BLOCK * BLOCK;
    for (int32_t i = 0; i < padded; i += 16)
        for (int h = 0; h < height; h++, tile += 16) {
            int32_t n = ROSE_MIN(16, k - i);
            const float *src = x + (size_t)h * stride + i;
            if (n == 16) {
                memcpy(tile, src, 64);
                continue;
            }
            memset(tile, 0, 64);
            if (n > 0) memcpy(tile, src, (size_t)n * 4);
        }
}

static void quantize_block(const float *x, int n, int height, int h, uint8_t *block)
{
    float most = 0;
    for (int i = 0; i < n; i++) {
        float a = fabsf(x[i]);
        most = a > most ? a : most;
    }
    bool live = most >= 0x1p-100f && most <= 0x1p+120f;
    float inverse = live ? 127.0f / most : 0.0f;
    float s = most >= 0x1p-100f ? most / 127.0f : 0.0f;
    int8_t q[BLOCK] = {0};
    if (live)
        for (int i = 0; i < n; i++) q[i] = (int8_t)(x[i] == x[i] ? lrintf(x[i] * inverse) : 0);
    int32_t sum0 = 0, sum1 = 0;
    for (int i = 0; i < 16; i++) sum0 += q[i], sum1 += q[16 + i];
    float floats[4] = {s, s * (float)(sum0 + sum1), s * (float)sum0, s * (float)sum1};
    int32_t ints[4] = {-(sum0 + sum1), -sum0, -sum1, 0};
    memcpy(block + h * BLOCK, q, BLOCK);
    for (int i = 0; i < 4; i++) {
        memcpy(block + height * (MATMUL_ACT_S + 4 * i) + 4 * h, &floats[i], 4);
        memcpy(block + height * (MATMUL_ACT_NSUM + 4 * i) + 4 * h, &ints[i], 4);
    }
}

static void quantize_portable(const float *x, size_t stride, int height, int32_t k, void *tile)
{
    uint8_t *block = tile;
    for (int32_t i = 0; i < k; i += BLOCK, block += height * MATMUL_ACT_BYTES)
        for (int h = 0; h < height; h++)
            quantize_block(x + (size_t)h * stride + i, ROSE_MIN(BLOCK, k - i), height, h, block);
}

/* Byte i of quads j of all rows: vectors of 64 codes, out[j][4 r + b]. */
INLINE void unpack(const struct cpu_format *f, enum cpu_kernel kernel, const uint8_t *p, uint8_t out[8][64])
{
    for (int i = 0; i < 64; i++) {
        switch (kernel) {
        case CPU_K8:
            for (int j = 0; j < 8; j++) out[j][i] = p[64 * j + i];
            break;
        case CPU_K2M:
        case CPU_K3:
            for (int j = 0; j < 8; j++) {
                out[j][i] = p[64 * (j / 4) + i] >> (j % 4 * 2) & 3;
                if (kernel == CPU_K3) out[j][i] |= (uint8_t)((p[128 + i] >> j & 1) << 2);
            }
            break;
        default:
            for (int j = 0; j < 8; j++) {
                out[j][i] = p[64 * (j % 4) + i] >> (j / 4 * 4) & 15;
                if (kernel == CPU_KT) out[j][i] = f->table[out[j][i]];
                if (kernel == CPU_K5 || kernel == CPU_K5M) out[j][i] |= (uint8_t)((p[256 + i] >> j & 1) << 4);
                if (kernel == CPU_K6) out[j][i] |= (uint8_t)((p[256 + 64 * (j / 4) + i] >> (j % 4 * 2) & 3) << 4);
            }
            break;
        }
    }
}

INLINE float float_at(const uint8_t *p, int i)
{
    float f;
    memcpy(&f, p + 4 * i, 4);
    return f;
}
INLINE int32_t int_at(const uint8_t *p, int i)
{
    int32_t v;
    memcpy(&v, p + 4 * i, 4);
    return v;
}

/* One half block (16 columns) or a whole one: quads [from, to). */
INLINE void dot_quads(uint8_t codes[8][64], const int8_t *q, int from, int to, int32_t sum[ROWS])
{
    for (int j = from; j < to; j++) {
        int32_t q0 = q[4 * j], q1 = q[4 * j + 1], q2 = q[4 * j + 2], q3 = q[4 * j + 3];
        for (int r = 0; r < ROWS; r++) {
            const uint8_t *c = codes[j] + 4 * r;
            sum[r] += c[0] * q0 + c[1] * q1 + c[2] * q2 + c[3] * q3;
        }
    }
}

INLINE void dot_kernel(const struct cpu_format *f, enum cpu_kernel kernel, int group, bool min, const uint8_t *codes,
                       const float *scales, const uint8_t *tile, int height, int blocks, float *out)
{
    int shift = f->offset_shift, halves = BLOCK / group, floats = cpu_format_scale_floats(f);
    memset(out, 0, (size_t)height * ROWS * sizeof *out);
    for (int b = 0; b < blocks; b++, codes += f->code_bytes, scales += floats, tile += height * MATMUL_ACT_BYTES) {
        uint8_t c[8][64];
        unpack(f, kernel, codes, c);
        for (int h = 0; h < height; h++) {
            const int8_t *q = (const int8_t *)tile + BLOCK * h;
            float s = float_at(tile + height * MATMUL_ACT_S, h);
            for (int half = 0; half < halves; half++) {
                int which = halves == 1 ? 0 : 1 + half; /* which of sum, sum_0, sum_1 */
                int32_t start = shift < 0 ? 0 : int_at(tile + height * (MATMUL_ACT_NSUM + 4 * which), h) * (1 << shift);
                float ssum = float_at(tile + height * (MATMUL_ACT_SSUM + 4 * which), h);
                int32_t sum[ROWS];
                for (int r = 0; r < ROWS; r++) sum[r] = start;
                dot_quads(c, q, half * 4, half * 4 + 8 / halves, sum);
                for (int r = 0; r < ROWS; r++) {
                    float *acc = &out[h * ROWS + r];
                    *acc = fmaf((float)sum[r], scales[16 * half + r] * s, *acc);
                    if (min) *acc = fmaf(scales[16 * (halves + half) + r], ssum, *acc);
                }
            }
        }
    }
}

static void dot_portable(const struct cpu_format *f, const uint8_t *codes, const float *scales, const void *tile, int height,
                         int blocks, float *out)
{
#define KERNEL(name, group, min)                                                     \
    case name:                                                                       \
        dot_kernel(f, name, group, min, codes, scales, tile, height, blocks, out);   \
        break
    switch (f->kernel) {
        KERNEL(CPU_K4, 32, false);
        KERNEL(CPU_K4M, 32, true);
        KERNEL(CPU_K5, 32, false);
        KERNEL(CPU_K5M, 32, true);
        KERNEL(CPU_K8, 32, false);
        KERNEL(CPU_KT, 32, false);
        KERNEL(CPU_K2M, 16, true);
        KERNEL(CPU_K3, 16, false);
        KERNEL(CPU_K6, 16, false);
    default: break;
    }
#undef KERNEL
}

INLINE float weight_at(enum cpu_kernel kernel, const uint8_t *p, size_t i)
{
    uint16_t h;
    if (kernel == CPU_F32) return float_at(p, (int)i);
    memcpy(&h, p + 2 * i, 2);
    return kernel == CPU_F16 ? f16_to_f32(h) : bf16_to_f32(h);
}

static void dot_float_portable(const struct cpu_format *f, const uint8_t *codes, const void *tile, int height, int blocks, float *out)
{
    enum cpu_kernel kernel = f->kernel;
    const float *x = tile; /* [blocks * 2][height][16] */
    for (int h = 0; h < height; h++) {
        float acc[2][ROWS] = {{0}};
        const uint8_t *p = codes;
        for (int i = 0; i < 2 * blocks; i++, p += f->code_bytes / 2) {
            const float *xi = x + ((size_t)i * (size_t)height + (size_t)h) * 16;
            float w[16][ROWS];
            for (int c = 0; c < 16; c++)
                for (int r = 0; r < ROWS; r++) {
                    int at = kernel == CPU_BF16 ? (c / 2 * ROWS + r) * 2 + c % 2 : c * ROWS + r;
                    w[c][r] = weight_at(kernel, p, (size_t)at);
                }
            for (int c = 0; c < 16; c++)
                for (int r = 0; r < ROWS; r++) acc[c % 2][r] += w[c][r] * xi[c];
        }
        for (int r = 0; r < ROWS; r++) out[h * ROWS + r] = acc[0][r] + acc[1][r];
    }
}

const struct matmul_kernels matmul_kernels_portable = {quantize_portable, cpu_weight_expand_scales, dot_portable, dot_float_portable,
                                                      matmul_finish_portable};
