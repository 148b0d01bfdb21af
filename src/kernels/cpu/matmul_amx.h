/* Products of many rows on AMX: bfloat16 operands, float32 sums that stay in tiles over the whole of k.
 *
 * A group's weights are decoded once into a panel of bfloat16 (rounded to nearest, ties away from zero),
 * while the first 32 rows multiply, and reused by all rows; BF16 weights are used where they lie, their
 * packed layout is the tile's. Activations are rounded to nearest even.
 *
 *     panel        a block of 32 columns: [16 pairs of columns][16 out-features][2] bf16, 1 KiB
 *     activations  16 rows (missing ones zero), a block: [16 rows][32 columns] bf16, 1 KiB
 */
#ifndef ROSE_KERNELS_CPU_MATMUL_AMX_H
#define ROSE_KERNELS_CPU_MATMUL_AMX_H

#include "kernels/cpu/matmul.h"

enum {
    MATMUL_AMX_ROW_BYTES = 64,
    MATMUL_AMX_ROWS = 32
}; /* bytes a row and block; rows handed to a sink at most */

/* Weights this path takes: block formats and BF16. F32 and F16 keep float32 activations. */
static inline bool matmul_amx_takes(const struct cpu_weight *w)
{
    return w->format->kernel < CPU_KERNELS || w->format->kernel == CPU_BF16;
}

/* Receives out[rows][16] of one group, a few rows at a time: rows [row, row + rows) (up: of the second
 * weight, or NULL). */
typedef void matmul_amx_sink(void *context, size_t group, int32_t row, int rows, const float *out,
                             const float *up);

struct matmul_amx_job {
    const struct cpu_weight *weight, *up; /* up: the second weight of a gate, or NULL */
    size_t begin, end;                    /* groups of out-features */
    const void *acts;                     /* tiles of 16 rows, rows rounded up to 16 */
    int32_t rows;
    void *scratch; /* matmul_amx_scratch, 64-byte aligned, one thread's */
    matmul_amx_sink *sink;
    void *context;
    const float *y; /* where the sink will store row r of group g: &y[r * y_stride + 16 g], to be fetched
                       early; NULL: unknown */
    size_t y_stride;
};

/* Panels decoded together take at most half of a level-2 cache. */
enum {
    MATMUL_AMX_PANELS = 1 << 20,
    MATMUL_AMX_PAIRS = 8,
    MATMUL_AMX_TILE = 1024,
    MATMUL_AMX_PAIR_OUT = 2 * MATMUL_AMX_ROWS * CPU_GROUP
};
static inline int matmul_amx_pairs(int blocks)
{
    int pairs = MATMUL_AMX_PANELS / (2 * MATMUL_AMX_TILE) / blocks;
    return pairs < 1 ? 1 : pairs > MATMUL_AMX_PAIRS ? MATMUL_AMX_PAIRS : pairs;
}

/* Bytes of a thread's scratch for weights of this shape: outputs of two units, scales of two groups, panels.
 */
static inline size_t matmul_amx_scratch(const struct cpu_weight *w)
{
    size_t blocks = (size_t)cpu_weight_blocks(w), pairs = (size_t)matmul_amx_pairs((int)blocks);
    return 2 * (blocks * 64 + MATMUL_AMX_PAIR_OUT) * sizeof(float) + pairs * 2 * MATMUL_AMX_TILE * blocks;
}

#if defined(__x86_64__)
/* One tile of activations: `height` <= 16 rows of x, k columns. */
void matmul_amx_acts(const float *x, size_t stride, int height, int32_t k, void *tile);
void matmul_amx_run(const struct matmul_amx_job *job);
#endif

#endif
