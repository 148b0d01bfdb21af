/* The products in plain C: what other machines run, and the definition the vector versions are held against.
 */
#include <math.h>
#include <string.h>

#include "kernels/cpu/matmul_residual.h"
#include "kernels/cpu/matmul_epilogue.h"
#include "kernels/cpu/matmul_zero.h"

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
    bool nan = false;
    for (int i = 0; i < n; i++) {
        float a = fabsf(x[i]);
        most = a > most ? a : most;
        nan = nan || a != a;
    }
    bool live = most >= 0x1p-100f && most <= 0x1p+120f && !nan;
    float inverse = live ? 127.0f / most : 0.0f;
    float s = nan ? NAN : most >= 0x1p-100f ? most / 127.0f : 0.0f;
    int8_t q[BLOCK] = {0};
    if (live)
        for (int i = 0; i < n; i++) q[i] = (int8_t)lrintf(x[i] * inverse);
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

static void quantize_zero_portable(const float *x, size_t stride, int height, int32_t k, void *tile)
{
    uint8_t *block = tile;
    for (int32_t i = 0; i < k; i += BLOCK, block += height * MATMUL_ACT_BYTES)
        for (int h = 0; h < height; h++) matmul_zero_row(x + (size_t)h * stride + i, height, h, block);
}

/* Vectors of 8 shorts: what every 64-bit machine has; gcc and clang make the instructions. */
typedef int16_t v8s __attribute__((vector_size(16)));
typedef uint16_t v8u __attribute__((vector_size(16)));
typedef int32_t v4s __attribute__((vector_size(16)));
typedef uint64_t v2u __attribute__((vector_size(16)));

enum { LANES = 8, PARTS = 64 / LANES };

/* A block's codes widened to 16 bits: [quad][part of 8 bytes], low and high nibbles of 8-bit codes apart,
 * because only then 8 products with activations fit 16 bits (31 * 127 * 8 = 31,496; 63 * 127 * 4 = 32,004 for
 * formats with groups of 16). */
struct planes {
    v8s low[8][PARTS], high[8][PARTS];
};

INLINE bool wide(enum cpu_kernel kernel)
{
    return kernel == CPU_K8 || kernel == CPU_K8Z || kernel == CPU_KT;
}

INLINE v8u load_bytes(const uint8_t *p)
{
    typedef uint8_t v8b __attribute__((vector_size(8)));
    v8b b;
    memcpy(&b, p, sizeof b);
    return __builtin_convertvector(b, v8u);
}

INLINE void unpack_part(const struct cpu_format *f, enum cpu_kernel kernel, const uint8_t *p, int part,
                        struct planes *out)
{
    v8u third = {0}, upper[2] = {{0}, {0}};
    p += LANES * part;
    if (kernel == CPU_K3) third = load_bytes(p + 128);
    if (kernel == CPU_K5 || kernel == CPU_K5M) third = load_bytes(p + 256);
    if (kernel == CPU_K6) upper[0] = load_bytes(p + 256), upper[1] = load_bytes(p + 320);
    for (int j = 0; j < 8; j++) {
        v8u c;
        if (kernel == CPU_K8 || kernel == CPU_K8Z)
            c = load_bytes(p + 64 * j);
        else if (kernel == CPU_K2M || kernel == CPU_K3)
            c = load_bytes(p + 64 * (j / 4)) >> (j % 4 * 2) & 3;
        else
            c = load_bytes(p + 64 * (j % 4)) >> (j / 4 * 4) & 15;
        if (kernel == CPU_K3) c |= (third >> j & 1) << 2;
        if (kernel == CPU_K5 || kernel == CPU_K5M) c |= (third >> j & 1) << 4;
        if (kernel == CPU_K6) c |= (upper[j / 4] >> (j % 4 * 2) & 3) << 4;
        if (kernel == CPU_KT)
            for (int i = 0; i < LANES; i++) c[i] = f->table[c[i]];
        if (wide(kernel)) {
            out->high[j][part] = (v8s)(c >> 4);
            c &= 15;
        }
        out->low[j][part] = (v8s)c;
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

/* 8 shorts, 4 of a row: the two rows' sums. */
INLINE void add_rows(v8s v, int32_t scale, int32_t sum[2])
{
    v4s w = (v4s)v, pairs = (w << 16 >> 16) + (w >> 16);
    v2u u = (v2u)pairs;
    u += u >> 32; /* the low halves hold pair + pair */
    sum[0] += scale * (int32_t)(uint32_t)u[0];
    sum[1] += scale * (int32_t)(uint32_t)u[1];
}

/* Quads [from, to) of all rows times one row's activations q. */
INLINE void dot_quads(enum cpu_kernel kernel, const struct planes *c, const int8_t *q, int from, int to,
                      int32_t sum[ROWS])
{
    v8s x[8];
    for (int j = from; j < to; j++)
        x[j] = (v8s){q[4 * j], q[4 * j + 1], q[4 * j + 2], q[4 * j + 3],
                     q[4 * j], q[4 * j + 1], q[4 * j + 2], q[4 * j + 3]};
    for (int part = 0; part < PARTS; part++) {
        v8s low = {0}, high = {0};
        for (int j = from; j < to; j++) {
            low += c->low[j][part] * x[j];
            if (wide(kernel)) high += c->high[j][part] * x[j];
        }
        add_rows(low, 1, sum + 2 * part);
        if (wide(kernel)) add_rows(high, 16, sum + 2 * part);
    }
}

INLINE void dot_kernel(const struct cpu_format *f, enum cpu_kernel kernel, int group, bool min,
                       const uint8_t *codes, const float *scales, const uint8_t *tile, int height, int blocks,
                       float *out)
{
    int shift = kernel == CPU_K8Z ? 0 : f->offset_shift, halves = BLOCK / group, floats = cpu_format_scale_floats(f);
    memset(out, 0, (size_t)height * ROWS * sizeof *out);
    for (int b = 0; b < blocks;
         b++, codes += f->code_bytes, scales += floats, tile += height * MATMUL_ACT_BYTES) {
        struct planes c;
        for (int part = 0; part < PARTS; part++) unpack_part(f, kernel, codes, part, &c);
        for (int h = 0; h < height; h++) {
            const int8_t *q = (const int8_t *)tile + BLOCK * h;
            float s = float_at(tile + height * MATMUL_ACT_S, h);
            for (int half = 0; half < halves; half++) {
                int which = halves == 1 ? 0 : 1 + half; /* which of sum, sum_0, sum_1 */
                int32_t start =
                    shift < 0 ? 0 : int_at(tile + height * (MATMUL_ACT_NSUM + 4 * which), h) * (1 << shift);
                float ssum = float_at(tile + height * (MATMUL_ACT_SSUM + 4 * which), h);
                int32_t sum[ROWS];
                for (int r = 0; r < ROWS; r++) sum[r] = start;
                if (kernel == CPU_K8Z) {
                    const uint8_t *zero = (const uint8_t *)scales + 64 + int_at(tile + height * (MATMUL_ACT_NSUM + 4), h);
                    for (int r = 0; r < ROWS; r++) sum[r] += int_at(zero, r);
                }
                if (halves == 1)
                    dot_quads(kernel, &c, q, 0, 8, sum);
                else if (half == 0)
                    dot_quads(kernel, &c, q, 0, 4, sum);
                else
                    dot_quads(kernel, &c, q, 4, 8, sum);
                for (int r = 0; r < ROWS; r++) {
                    float *acc = &out[h * ROWS + r];
                    *acc = fmaf((float)sum[r], scales[16 * half + r] * s, *acc);
                    if (min) *acc = fmaf(scales[16 * (halves + half) + r], ssum, *acc);
                }
            }
        }
    }
}

static void dot_portable(const struct cpu_format *f, const uint8_t *codes, const void *scales,
                         const void *tile, int height, int blocks, float *out)
{
#define KERNEL(name, group, min) \
    case name: dot_kernel(f, name, group, min, codes, scales, tile, height, blocks, out); break
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
        KERNEL(CPU_K8Z, 32, false);
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

static void dot_float_portable(const struct cpu_format *f, const uint8_t *codes, const void *tile, int height,
                               int blocks, float *out)
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

static void residual_portable(const float *x, size_t stride, int height, int32_t k, const void *tile,
                              float *r, size_t r_stride)
{
    matmul_residual_body(x, stride, height, k, tile, r, r_stride);
}

static const void *scales_portable(const struct cpu_format *f, const uint8_t *src, int blocks, float *dst)
{
    if (f->kernel == CPU_K8Z)
        cpu_weight_expand_zero(src, blocks, dst);
    else
        cpu_weight_expand_scales(f, src, blocks, dst);
    return dst;
}

const struct matmul_kernels matmul_kernels_portable = {quantize_portable, quantize_zero_portable, residual_portable,     scales_portable,
                                                       dot_portable,      NULL,               dot_float_portable,     matmul_finish_portable};
