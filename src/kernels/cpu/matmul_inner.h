/* What the dense and the expert products share: activations laid out in tiles, one group of out-features
 * times one tile. */
#ifndef ROSE_KERNELS_CPU_MATMUL_INNER_H
#define ROSE_KERNELS_CPU_MATMUL_INNER_H

#include <string.h>

#include "kernels/cpu/matmul_amx.h"
#include "kernels/cpu/weight_fp8.h"

enum { MATMUL_ALIGN = 64, MATMUL_OUT_FLOATS = MATMUL_TILE * CPU_GROUP };

static inline bool matmul_is_float(const struct cpu_weight *w)
{
    return w->format->kernel >= CPU_KERNELS;
}

#if defined(__x86_64__)
/* matmul_bf16.c: BF16 weights and tiles of bfloat16 pairs with vdpbf16ps, and whether that is the faster way here. */
void matmul_tile_bf16(const float *x, size_t stride, int height, int32_t k, void *tile);
void matmul_dot_bf16(const uint8_t *codes, const void *tile, int height, int blocks, float *out);
bool matmul_bf16_pays(void);
#endif
/* From this many rows of a step on; fewer wait for memory. */
enum { MATMUL_ROUGH_ROWS = 8 };

/* Which forms of activations some weights need, and where they lie. The tile that begins at row r lies r *
 * row bytes from the start, whatever its height. With two planes a row of x is two rows of an integer tile: a
 * tile of H rows holds the first planes in rows [0, H) and the second ones in [H, 2H), so that weights are
 * unpacked once for both. */
struct matmul_acts {
    size_t int_row, float_row; /* bytes of a row (of one plane), 0: not needed */
    uint8_t *ints, *floats;
    bool fine;  /* two planes */
    bool zero;  /* one plane, with zero points: the weights are seen as cpu_format_k8z */
    bool rough; /* BF16 weights: activations are rounded to bfloat16 too (matmul_bf16.c) */
};

/* Rows of the tile that begins where rows_left are left: two planes leave room for half as many. */
static inline int matmul_acts_height(const struct matmul_acts *a, int32_t rows_left)
{
    int height = matmul_tile_height(rows_left);
    return a->fine && a->int_row && height > MATMUL_TILE / 2 ? MATMUL_TILE / 2 : height;
}

/* Are two planes worth it? Yes where memory bounds the step anyway (few rows), and for a short prompt, which
 * they delay by some milliseconds; not for a piece of a prompt beside decode rows, whose next tokens wait for it. */
enum { MATMUL_FINE_ROWS = 4, MATMUL_FINE_PROMPT = 128, MATMUL_FINE_PIECE = 16 };
static inline bool matmul_fine(bool deterministic, int32_t rows, int32_t seqs)
{
    return deterministic || rows <= MATMUL_FINE_ROWS || (rows <= MATMUL_FINE_PROMPT && rows >= (seqs == 1 ? 2 : MATMUL_FINE_PIECE * seqs));
}

/* Do rows that take one plane take zero points? Not in steps that mostly decode a token a sequence: the table of sums is a pass of its own over the
 * weights, which cost 32 rows a quarter of their time. */
enum { MATMUL_ZERO_ROWS = 256 };
static inline bool matmul_zero(int32_t rows, int32_t seqs)
{
    return rows >= MATMUL_ZERO_ROWS || rows >= 2 * seqs;
}

static inline void matmul_acts_need(struct matmul_acts *a, const struct cpu_weight *w)
{
    size_t blocks = (size_t)cpu_weight_blocks(w);
    if (matmul_is_float(w))
        a->float_row = blocks * MATMUL_ACT_FLOAT_BYTES;
    else
        a->int_row = blocks * MATMUL_ACT_BYTES;
}
static inline size_t matmul_acts_row(const struct matmul_acts *a)
{
    return 2 * a->int_row + a->float_row;
}
/* Use memory of `rows` rows. */
static inline void matmul_acts_place(struct matmul_acts *a, void *memory, size_t rows)
{
    a->ints = memory;
    a->floats = a->ints + 2 * rows * a->int_row;
}

/* Both planes, in pieces of columns that fit the stack: x is quantised to see what is left, then x and that
 * together. */
static inline void matmul_acts_two(const struct matmul_acts *a, const struct matmul_kernels *kernels,
                                   const float *x, size_t stride, size_t row, int height, int32_t k)
{
    enum { PIECE = 256, BLOCK = 32 };
    float both[MATMUL_TILE * PIECE];
    _Alignas(MATMUL_ALIGN) uint8_t first[MATMUL_TILE / 2 * PIECE / BLOCK * MATMUL_ACT_BYTES];
    for (int32_t at = 0; at < k; at += PIECE) {
        int32_t n = ROSE_MIN(PIECE, k - at);
        for (int h = 0; h < height; h++)
            memcpy(both + h * PIECE, x + (size_t)h * stride + at, (size_t)n * sizeof *both);
        kernels->quantize(both, PIECE, height, n, first);
        kernels->residual(both, PIECE, height, n, first, both + height * PIECE, PIECE);
        kernels->quantize(
            both, PIECE, 2 * height, n,
            a->ints + 2 * (row * a->int_row + (size_t)(at / BLOCK) * MATMUL_ACT_BYTES * (size_t)height));
    }
}

/* Rows [row, row + height) of the tiles from x[h * stride], k columns. */
static inline void matmul_acts_tile(const struct matmul_acts *a, const struct matmul_kernels *kernels,
                                    const float *x, size_t stride, size_t row, int height, int32_t k)
{
    if (a->int_row && !a->fine) (a->zero ? kernels->quantize_zero : kernels->quantize)(x, stride, height, k, a->ints + row * a->int_row);
    if (a->int_row && a->fine) matmul_acts_two(a, kernels, x, stride, row, height, k);
#if defined(__x86_64__)
    if (a->float_row && a->rough) {
        matmul_tile_bf16(x, stride, height, k, a->floats + row * a->float_row);
        return;
    }
#endif
    if (a->float_row)
        matmul_tile_float(x, stride, height, k, (float *)(void *)(a->floats + row * a->float_row));
}

/* From how many rows on the bf16 path is the faster one: decoding a panel costs as much as multiplying about
 * 20 rows by vectors (16 rows on int8 tiles and the rest by vectors); BF16 weights need no decoding. */
enum { MATMUL_AMX_FROM = 20, MATMUL_AMX_FROM_BF16 = 8 };
static inline bool matmul_amx_pays(const struct cpu_weight *w, int32_t rows)
{
    return rows >= (w->format->kernel == CPU_BF16 ? MATMUL_AMX_FROM_BF16 : MATMUL_AMX_FROM);
}

/* Bytes that matmul_scales may need for a weight: a group's scales as float32. */
static inline size_t matmul_scale_bytes(const struct cpu_weight *w)
{
    const struct cpu_format *f = w->format->kernel == CPU_K8 ? &cpu_format_k8z : w->format;
    return matmul_is_float(w) ? 0 : (size_t)cpu_weight_blocks(w) * (size_t)cpu_format_scale_floats(f) * sizeof(float);
}
/* For a tile of up to so many rows. */
static inline const void *matmul_scales(const struct matmul_kernels *kernels, const struct cpu_weight *w,
                                        size_t group, int32_t rows, float *memory)
{
    if (matmul_is_float(w)) return NULL;
    const uint8_t *data = w->data + group * w->group_bytes;
    /* the stream goes on: what lies as far ahead as the products' own prefetches reach */
    const struct matmul_reach reach = matmul_reach(w->format->code_bytes >= MATMUL_WIDE, rows >= MATMUL_TALL);
    for (size_t i = 0; i < w->codes_at; i += 64) matmul_ahead_by(data + i, reach);
    return kernels->scales(w->format, data, cpu_weight_blocks(w), memory);
}

/* out[height][16] = the tile at `row` times a group; scales as matmul_scales returned them. */
static inline void matmul_products(const struct matmul_acts *a, const struct matmul_kernels *kernels,
                                   const struct cpu_weight *w, size_t group, const void *scales, size_t row,
                                   int height, float *out)
{
    const uint8_t *data = w->data + group * w->group_bytes;
    int blocks = cpu_weight_blocks(w);
    if (w->format->kernel == CPU_E4M3) {
        matmul_fp8(kernels, w, group, a->floats + row * a->float_row, height, a->rough, out);
        return;
    }
#if defined(__x86_64__)
    if (a->rough && matmul_is_float(w)) {
        matmul_dot_bf16(data, a->floats + row * a->float_row, height, blocks, out);
        return;
    }
#endif
    if (matmul_is_float(w))
        kernels->dot_float(w->format, data, a->floats + row * a->float_row, height, blocks, out);
    else if (!a->fine)
        kernels->dot(w->format, data + w->codes_at, scales, a->ints + row * a->int_row, height, blocks, out);
    else {
        kernels->dot(w->format, data + w->codes_at, scales, a->ints + 2 * row * a->int_row, 2 * height,
                     blocks, out);
        for (int i = 0; i < height * CPU_GROUP; i++) out[i] += out[height * CPU_GROUP + i];
    }
}

#endif
