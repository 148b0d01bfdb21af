/* Parameters of the CUDA kernel that draws tokens from logits (kernels/cuda/draw_rows.cu). */
#ifndef ROSE_KERNELS_PARAMS_DRAW_ROWS_H
#define ROSE_KERNELS_PARAMS_DRAW_ROWS_H

#include "kernels/params/sample.h"

/* What one slice of a row knows. */
struct draw_partial {
    float top, sum;         /* of the allowed logits: largest, sum of exp((x - top) / temperature) */
    float raw_top, raw_sum; /* of all logits, temperature 1 */
    int32_t best;           /* token of top, the lowest of equals; -1: none is allowed */
    int32_t unused[3];
};

struct draw_rows_params {
    const void *logits; /* f32 [rows, logits_stride] */
    const void *rows;   /* struct sample_row [rows] */
    const void *mask;   /* u32 [masks, mask_stride], or NULL: no row has one */
    void *output;       /* struct sample_output [rows] */
    void *partial;      /* struct draw_partial [rows, slices] */
    void *counter;      /* u32 [rows]: zero before the first launch, and after each */
    int64_t logits_stride, mask_stride; /* elements; logits_stride a multiple of 4 */
    int32_t vocabulary;
    uint32_t slices;    /* blocks a row, at most THREADS */
    uint32_t count, unused; /* rows */
};

#endif
