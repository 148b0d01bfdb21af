// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* Experts' matrices in a block format as bf16, for grouped products of many rows: a panel of some experts in scratch memory. Experts without tokens
 * are left out. As matmul_blocks_rows.cu: a thread takes a lane's elements of a unit, of rows q and q + 8 of a tile: 8 bytes of codes, four
 * stores of 8 bytes, four lanes' 32 bytes side by side.
 *
 * Constants: FORMAT COLUMNS (rows of a matrix) K THREADS. */
#include "kernels/cuda/matmul_blocks.cuh"
#include "kernels/params/moe_coded.h"

#define UNITS (K / BLOCKS_UNIT)
#define CHUNKS ((UNITS + BLOCKS_CHUNK - 1) / BLOCKS_CHUNK)
#define TILES ((COLUMNS + BLOCKS_TILE - 1) / BLOCKS_TILE)
#define BLOCKS ((TILES * UNITS * 32 + THREADS - 1) / THREADS) /* an expert */

KERNEL(moe_panel, struct moe_panel_params, p, THREADS, 1)
{
    grid_dependency_launch();
    grid_dependency_wait();
    const uint32_t expert = block_x() / BLOCKS, at = block_x() % BLOCKS * THREADS + thread_x(), lane = at % 32, unit = at / 32 % UNITS, tile = at / 32 / UNITS;
    if (((const uint32_t *)p.counts)[expert] == 0 || tile >= TILES) return;
    const uint32_t chunk = unit / BLOCKS_CHUNK, units = chunk + 1 < CHUNKS ? BLOCKS_CHUNK : UNITS - chunk * BLOCKS_CHUNK;
    const unsigned char *w = blocks_chunk((const char *)p.weight + (uint64_t)expert * p.weight_stride, UNITS, tile, chunk);
    element *y = (element *)((char *)p.y + (uint64_t)expert * p.y_stride);
    UNROLL for (uint32_t h = 0; h < 2; h++)
    {
        const uint32_t row = tile * BLOCKS_TILE + h * 8 + lane / 4;
        float v[8];
        if (row >= COLUMNS) continue;
        blocks_values(w, units, unit % BLOCKS_CHUNK, lane, h, v);
        UNROLL for (uint32_t i = 0; i < 2; i++)
        {
            u32x2 out = {{f32_to_element2(v[4 * i], v[4 * i + 1]).bits, f32_to_element2(v[4 * i + 2], v[4 * i + 3]).bits}};
            st8(y + (size_t)row * K + unit * BLOCKS_UNIT + i * 16 + lane % 4 * 4, out);
        }
    }
}
