/* Weights in GGUF block formats as the CUDA kernels keep them: the bits of the file, as many bytes, in another order.
 *
 * GGUF's blocks (18, 20, 34, 17, 144, 176, 210 bytes) suit no 16-byte load, and a matrix instruction wants 16 rows side by side. So 16
 * rows of weights are a tile, 32 elements of k of a tile a unit, eight units a chunk (the last chunk of a row of a plain format may
 * have fewer), and everything a warp needs for a chunk lies together:
 *
 *     matrix = tile 0 | tile 1 | ...                      ceil(n / 16) tiles; rows beyond n are zeros
 *     tile   = chunk 0 | chunk 1 | ...                    ceil(k / 256) chunks
 *     chunk  = low plane | high plane | scales            u units, u * BLOCKS_UNIT_BYTES bytes, a multiple of 16
 *
 *     low    [u][lane 32][row q, row q + 8] words of 8 nibbles; Q8_0: [u][lane][row][2] words of 4 bytes
 *     high   Q5_K [u / 2][lane] words, bits (unit % 2) * 8 + row * 4 + i; Q6_K [u][lane] words, bits row * 8 + 2 i
 *
 * Lane (q = lane / 4, c = lane % 4) holds of a row elements 4c .. 4c + 3 and 16 + 4c .. 16 + 4c + 3 of a unit: e = 0 .. 7. They are
 * pairs i = e / 2 for two halves of a register: e even in the low half (nibble i, or bits as above), e odd 16 bits further on. A byte
 * of Q8_0's word e / 4 is at 16 (e % 2) + 8 (e / 2 % 2). These are the A operands of mma.sync m16n8k16, halves of a unit in turn.
 *
 *     scales Q4_0, Q8_0  [u][q][row] f16 d             Q4_1  [u][q][row] f16 d, m          MXFP4 [u][q][row] bytes
 *            Q4_K, Q5_K  [q][row] words: d | dmin << 16; then of units 0 .. 3 and 4 .. 7 the low four bits of the scales (unit i % 4 at
 *                        4 (i % 4)) and minima (16 bits on); then the upper two bits of all, scale i at 2 i, minimum 16 bits on
 *            Q6_K        [q][row][16] signed bytes, then [q][row] f16 d */
#ifndef ROSE_KERNELS_PARAMS_MATMUL_BLOCKS_H
#define ROSE_KERNELS_PARAMS_MATMUL_BLOCKS_H

#include "kernels/params/types.h"

/* FORMAT */
#define BLOCKS_Q4_0 0
#define BLOCKS_Q4_1 1
#define BLOCKS_Q8_0 2
#define BLOCKS_MXFP4 3
#define BLOCKS_Q4_K 4
#define BLOCKS_Q5_K 5
#define BLOCKS_Q6_K 6
#define BLOCKS_FORMATS 7

#define BLOCKS_TILE 16   /* rows */
#define BLOCKS_UNIT 32   /* elements of k */
#define BLOCKS_CHUNK 8   /* units */
#define BLOCKS_SUPER(format) ((format) >= BLOCKS_Q4_K) /* k is whole chunks */
/* Bytes of a unit in each plane. */
#define BLOCKS_LOW_BYTES(format) ((format) == BLOCKS_Q8_0 ? 512 : 256)
#define BLOCKS_HIGH_BYTES(format) ((format) == BLOCKS_Q5_K ? 64 : (format) == BLOCKS_Q6_K ? 128 : 0)
#define BLOCKS_SCALE_BYTES(format) ((format) == BLOCKS_Q4_1 ? 64 : (format) == BLOCKS_MXFP4 ? 16 : (format) == BLOCKS_Q6_K ? 36 : 32)
#define BLOCKS_UNIT_BYTES(format) (BLOCKS_LOW_BYTES(format) + BLOCKS_HIGH_BYTES(format) + BLOCKS_SCALE_BYTES(format))
#define BLOCKS_CHUNK_BYTES(format) (BLOCKS_CHUNK * BLOCKS_UNIT_BYTES(format))

/* kernels/cuda/matmul_blocks_rows.cu: rows of such a matrix as bf16. */
struct matmul_blocks_rows_params {
    const void *w;     /* the matrix's first tile, or a later one */
    void *y;           /* bf16 [rows, k], 8-byte aligned rows */
    const void *index; /* GATHER: i32 [rows], which rows; an index outside w gives zeros */
    int64_t y_stride;  /* elements */
    uint32_t rows, w_rows;
    int32_t index_offset; /* added to the index */
    float scale;          /* GATHER: y = scale * w, ACC: y += scale * w */
};

#endif
