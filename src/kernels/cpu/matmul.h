/* The CPU matrix products: y = x W^T with packed weights (weight.h).
 *
 * Integer path (block formats). Activations are quantised to int8 per 32 columns, a row by itself:
 *
 *     s = max|x| / 127, q = round(x * (127 / max|x|)) to nearest even
 *     s = 0, q = 0 where max|x| < 2^-100; s is NaN where an x is
 *
 * and a row's result for an out-feature is one float32 sum over blocks b in rising order, exact integers
 * inside:
 *
 *     acc = fma(float(sum of q (code - offset)), S_b s_b, acc)
 *     acc = fma(M_b, s_b float(sum of q), acc)                      only formats with mins
 *
 * (formats with groups of 16: first half, then second half, the mins of each after its product.) The order
 * depends on nothing else, so portable C, AVX2, VNNI and AMX int8 agree bit for bit, for any number of rows
 * and threads.
 *
 * Few rows take two planes: what q leaves (x - s q, matmul_residual.h) is quantised once more in the same
 * way, and the result is the first plane's sum plus the second's. Activations then have 15 bits, so that
 * decoding and short prompts differ from float arithmetic no more than the weights' format does; a step of so
 * few rows waits for memory anyway. With determinism every row takes two planes: a row's bits must not depend
 * on how many others there are.
 *
 * Rows in one plane that meet weights of 8 bits have zero points (matmul_zero.h), because there the activations make most of the
 * error, and most of that one column far from its neighbours:
 *
 *     x = s (q + z), z one of 0, 32, 64, 96, s negative where the block's far side is
 *     acc = fma(float(sum of q (code - offset) + z sum of (code - offset)), S_b s_b, acc)
 *
 * exact integers inside again; the second sum comes from a table that is made a group at a time, so that a row pays nothing for it.
 *
 * Float path (F32, F16, BF16 weights): float32 activations; even and odd columns are summed apart, each in
 * rising order with fma (portable C: product, then sum), and added at the end. AVX2 and AVX-512 agree bit for
 * bit.
 *
 * bf16 path (AMX, many rows, not when determinism is asked for): weights and activations rounded to bfloat16,
 * float32 accumulation: matmul_amx.h. Where AVX512-BF16 is fast and there is no AMX, eight rows and more of BF16
 * weights likewise: matmul_bf16.c.
 *
 * Activations are laid out in tiles of H rows, H = 16 as long as there are 16 rows, then 8, 4, 2, 1:
 *
 *     integer   a block (64 bytes a row):
 *               q s8[H][32] | s f32[H] | s * sum f32[3][H] | -sum i32[3][H] | pad [H]
 *               the sums of q: of the block, of its columns 0…15, of its columns 16…31
 *               with zero points: q s8[H][32] | s f32[H] | unused [3][H] | -128 sum i32[H] | 64 z / 32 i32[H] | unused [2][H]
 *     float     16 columns: f32[H][16] (128 bytes a row and block)
 */
#ifndef ROSE_KERNELS_CPU_MATMUL_H
#define ROSE_KERNELS_CPU_MATMUL_H

#include "kernels/cpu/isa.h"
#include "kernels/cpu/weight.h"

enum { MATMUL_TILE = 16, MATMUL_ACT_BYTES = 64, MATMUL_ACT_FLOAT_BYTES = 128 };

/* Bytes that prefetches run ahead in a weight's stream: far ones bring lines from memory to the level-2 cache, near ones from there to
 * level 1. One prefetch straight to level 1 keeps a miss buffer of that cache for the whole latency of memory, of which there are too few for
 * the memory's bandwidth. Weights of a byte and more an element, whose blocks are soon done with, leave most of that to the processor, which fetches
 * along a stream that is asked for shortly ahead; far prefetches hinder it (docs/facts.md). */
enum { MATMUL_NEAR = 1024, MATMUL_FAR = 16384, MATMUL_WIDE_NEAR = 256, MATMUL_WIDE_FAR = 1024, MATMUL_WIDE = 512 };
/* With so many rows a block's arithmetic lasts long enough that the processor's own prefetches come too late: wide weights are asked for farther ahead.
 * Where one row's are asked for from very far (below), so many rows want this too. */
enum { MATMUL_TALL = 4, MATMUL_TALL_NEAR = 2048, MATMUL_TALL_FAR = 8192 };
static inline void matmul_ahead(const void *line)
{
    __builtin_prefetch((const char *)line + MATMUL_FAR, 0, 2);
    __builtin_prefetch((const char *)line + MATMUL_NEAR, 0, 3);
}
/* The same by the distances of this machine; wide: blocks of MATMUL_WIDE bytes and more. Processors with AMX (measured: a Xeon with few miss
 * buffers a core for the latency of its memory) want all of them farther: +14 to +45 % of a row's products. */
enum { MATMUL_AMX_NEAR = 4096, MATMUL_AMX_FAR = 65536, MATMUL_AMX_WIDE_NEAR = 1024, MATMUL_AMX_WIDE_FAR = 16384 };
struct matmul_reach {
    int32_t near, far;
};
static inline bool matmul_reaches_far(void)
{
    return cpu_isa() == CPU_ISA_AMX;
}
static inline struct matmul_reach matmul_reach_of(bool wide, bool far)
{
    if (far) return wide ? (struct matmul_reach){MATMUL_AMX_WIDE_NEAR, MATMUL_AMX_WIDE_FAR} : (struct matmul_reach){MATMUL_AMX_NEAR, MATMUL_AMX_FAR};
    return wide ? (struct matmul_reach){MATMUL_WIDE_NEAR, MATMUL_WIDE_FAR} : (struct matmul_reach){MATMUL_NEAR, MATMUL_FAR};
}
static inline struct matmul_reach matmul_reach(bool wide, bool tall)
{
    if (tall && (wide || matmul_reaches_far())) return (struct matmul_reach){MATMUL_TALL_NEAR, MATMUL_TALL_FAR};
    return matmul_reach_of(wide, matmul_reaches_far());
}
/* Where they reach far one row's weights are read in several streams, each asked for shortly ahead: the processor's prefetchers follow each by
 * itself, and none of them waits for a page's end. */
enum { MATMUL_STREAMS = 4, MATMUL_STREAM_NEAR = 2048 };
static inline void matmul_ahead_by(const void *line, struct matmul_reach reach)
{
    __builtin_prefetch((const char *)line + reach.far, 0, 2);
    __builtin_prefetch((const char *)line + reach.near, 0, 3);
}

/* Byte offsets in a block of an integer tile of height H. */
enum { MATMUL_ACT_S = 32, MATMUL_ACT_SSUM = 36, MATMUL_ACT_NSUM = 48 };

/* Rows of the tile that begins at row r of `rows`. */
static inline int matmul_tile_height(int32_t rows_left)
{
    return rows_left >= 16 ? 16 : rows_left >= 8 ? 8 : rows_left >= 4 ? 4 : rows_left >= 2 ? 2 : 1;
}

/* The same order as enum op_activation. */
enum matmul_activation {
    MATMUL_LINEAR,
    MATMUL_SILU,
    MATMUL_GELU_TANH,
    MATMUL_GELU_ERF,
    MATMUL_RELU,
    MATMUL_RELU2
};

/* y = alpha * activation(v + bias) [* (up + up_bias)] [+ y]. The biases begin at the group's first column. */
struct matmul_finish {
    const float *bias, *up_bias; /* NULL: none */
    enum matmul_activation activation;
    bool accumulate;
    float alpha;
};

/* One instruction set's kernels. Tiles and panels are 64-byte aligned. */
struct matmul_kernels {
    /* One tile of x: H rows, row h at x[h * stride], k columns (missing columns of the last block are zero).
     */
    void (*quantize)(const float *x, size_t stride, int height, int32_t k, void *tile);
    /* The same with zero points, k whole blocks. */
    void (*quantize_zero)(const float *x, size_t stride, int height, int32_t k, void *tile);
    /* matmul_residual.h: what quantize left of x. */
    void (*residual)(const float *x, size_t stride, int height, int32_t k, const void *tile, float *r,
                     size_t r_stride);
    /* A group's scales as this set's dot wants them: as stored (src), or in dst as cpu_weight_expand_scales
     * (cpu_weight_expand_zero) writes them. src: the group. */
    const void *(*scales)(const struct cpu_format *f, const uint8_t *src, int blocks, float *dst);
    /* out[h][16] = tile rows times a group's 16 rows; scales as `scales` returned them (integer formats). */
    void (*dot)(const struct cpu_format *f, const uint8_t *codes, const void *scales, const void *tile,
                int height, int blocks, float *out);
    /* The same for MATMUL_STREAMS groups and a tile of one or two rows (not CPU_K8Z): out[i] of group i. NULL: not there. */
    void (*streams)(const struct cpu_format *f, const uint8_t *const *codes, const void *const *scales, const void *tile, int height, int blocks,
                    float *const *out);
    /* The same for F32, F16, BF16 and float tiles. */
    void (*dot_float)(const struct cpu_format *f, const uint8_t *codes, const void *tile, int height,
                      int blocks, float *out);
    /* Store rows x cols of out[rows][16] (up: the second factor of a gate, or NULL) to y[r * stride]. */
    void (*finish)(const struct matmul_finish *f, const float *out, const float *up, int rows, int cols,
                   float *y, size_t stride);
};
extern const struct matmul_kernels matmul_kernels_portable;
#if defined(__x86_64__)
extern const struct matmul_kernels matmul_kernels_avx2, matmul_kernels_avx512, matmul_kernels_amx;
#endif
/* The kernels of the selected instruction set. */
const struct matmul_kernels *matmul_kernels(void);

/* ---- a whole product, as the op records it (matmul.c) ---- */

enum { MATMUL_PARTS = 4 };

struct matmul_part {
    struct cpu_weight weight;
    float *y; /* [rows, n], row r at r * y_stride */
    const float *bias;
    int32_t y_stride;
};

struct matmul_params {
    const float *x; /* [rows, k], row r at r * x_stride */
    void *work;     /* matmul_plan says how many bytes */
    struct matmul_part part[MATMUL_PARTS];
    int32_t parts, x_stride, max_rows;
    int32_t rows_extent; /* enum extent */
    enum matmul_activation activation;
    float alpha;
    bool gated, accumulate, deterministic;
    bool amx; /* matmul_plan: many rows take the bf16 path */
    bool rough; /* matmul_plan: of BF16 weights many rows take vdpbf16ps */
};
/* Last step of recording: choose the path. Returns the bytes of work memory for a team of `workers`. */
size_t matmul_plan(struct matmul_params *p, int workers);

struct extents;
struct worker;
/* Run by every worker of the team (a program_cpu_fn). */
void matmul_run(const void *params, const struct extents *extents, struct worker *w);

/* A float tile: the same for all instruction sets. */
void matmul_tile_float(const float *x, size_t stride, int height, int32_t k, float *tile);

#endif
