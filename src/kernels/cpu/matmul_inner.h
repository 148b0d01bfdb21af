/* What the dense and the expert products share: activations laid out in tiles, one group of out-features
 * times one tile. */
#ifndef ROSE_KERNELS_CPU_MATMUL_INNER_H
#define ROSE_KERNELS_CPU_MATMUL_INNER_H

#include "kernels/cpu/matmul_amx.h"

enum { MATMUL_ALIGN = 64, MATMUL_OUT_FLOATS = MATMUL_TILE * CPU_GROUP };

static inline bool matmul_is_float(const struct cpu_weight *w)
{
    return w->format->kernel >= CPU_KERNELS;
}

/* Which forms of activations some weights need, and where they lie. The tile that begins at row r lies r *
 * row bytes from the start, whatever its height. */
struct matmul_acts {
    size_t int_row, float_row; /* bytes of a row, 0: not needed */
    uint8_t *ints, *floats;
};

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
    return a->int_row + a->float_row;
}
/* Use memory of `rows` rows. */
static inline void matmul_acts_place(struct matmul_acts *a, void *memory, size_t rows)
{
    a->ints = memory;
    a->floats = a->ints + rows * a->int_row;
}

/* Rows [row, row + height) of the tiles from x[h * stride], k columns. */
static inline void matmul_acts_tile(const struct matmul_acts *a, const struct matmul_kernels *kernels,
                                    const float *x, size_t stride, size_t row, int height, int32_t k)
{
    if (a->int_row) kernels->quantize(x, stride, height, k, a->ints + row * a->int_row);
    if (a->float_row)
        matmul_tile_float(x, stride, height, k, (float *)(void *)(a->floats + row * a->float_row));
}

/* From how many rows on the bf16 path is the faster one: decoding a panel costs as much as multiplying about
 * 20 rows by vectors; BF16 weights need no decoding. */
enum { MATMUL_AMX_FROM = 24, MATMUL_AMX_FROM_BF16 = 8 };
static inline bool matmul_amx_pays(const struct cpu_weight *w, int32_t rows)
{
    return rows >= (w->format->kernel == CPU_BF16 ? MATMUL_AMX_FROM_BF16 : MATMUL_AMX_FROM);
}

/* Bytes that matmul_expand needs for a weight: a group's scales as float32. */
static inline size_t matmul_scale_bytes(const struct cpu_weight *w)
{
    return matmul_is_float(w)
               ? 0
               : (size_t)cpu_weight_blocks(w) * (size_t)cpu_format_scale_floats(w->format) * sizeof(float);
}
static inline void matmul_expand(const struct matmul_kernels *kernels, const struct cpu_weight *w,
                                 size_t group, float *scales)
{
    if (matmul_is_float(w)) return;
    const uint8_t *data = w->data + group * w->group_bytes;
    /* the stream goes on: what lies as far ahead as the products' own prefetches reach */
    for (size_t i = 0; i < w->codes_at; i += 64) __builtin_prefetch(data + MATMUL_PREFETCH + i);
    kernels->expand_scales(w->format, data, cpu_weight_blocks(w), scales);
}

/* out[height][16] = the tile at `row` times a group; scales as matmul_expand left them. */
static inline void matmul_products(const struct matmul_acts *a, const struct matmul_kernels *kernels,
                                   const struct cpu_weight *w, size_t group, const float *scales, size_t row,
                                   int height, float *out)
{
    const uint8_t *data = w->data + group * w->group_bytes;
    int blocks = cpu_weight_blocks(w);
    if (matmul_is_float(w))
        kernels->dot_float(w->format, data, a->floats + row * a->float_row, height, blocks, out);
    else
        kernels->dot(w->format, data + w->codes_at, scales, a->ints + row * a->int_row, height, blocks, out);
}

#endif
