// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* Rows of a matrix in a block format as elements: rows that an index names (token embedding), or one after the other, for products of many
 * rows, which then read those (a panel of the matrix in scratch memory).
 *
 *     one after the other: a thread takes a lane's elements of a unit, of rows q and q + 8 of a tile: 8 bytes of codes, four stores of
 *                          8 bytes, four lanes' 32 bytes side by side
 *     gather:              a thread takes one row's elements, four threads a unit of a row
 *
 * Constants: FORMAT K THREADS GATHER ACC. */
#include "kernels/cuda/matmul_blocks.cuh"

#define UNITS (K / BLOCKS_UNIT)
#define CHUNKS ((UNITS + BLOCKS_CHUNK - 1) / BLOCKS_CHUNK)

/* Four neighbours at column col. */
DEVICE void rows_store(const struct matmul_blocks_rows_params *p, uint32_t row, uint32_t col, const float v[4])
{
    element *y = (element *)p->y + (size_t)row * (size_t)p->y_stride + col;
    float r[4];
    UNROLL for (int e = 0; e < 4; e++) r[e] = GATHER ? p->scale * v[e] : v[e];
    if (ACC) {
        const u32x2 old = ld8(y);
        UNROLL for (int e = 0; e < 4; e++)
        {
            const element2 both = as_element2(old.v[e / 2]);
            r[e] = fma_f32(p->scale, v[e], e % 2 ? element2_hi_f32(both) : element2_lo_f32(both));
        }
    }
    u32x2 out = {{f32_to_element2(r[0], r[1]).bits, f32_to_element2(r[2], r[3]).bits}};
    st8(y, out);
}

KERNEL(matmul_blocks_rows, struct matmul_blocks_rows_params, p, THREADS, 1)
{
    const uint64_t at = (uint64_t)block_x() * THREADS + thread_x();
    const uint32_t per = GATHER ? 4 : 32; /* threads a unit */
    const uint32_t slot = (uint32_t)(at / (per * UNITS)), unit = (uint32_t)(at / per % UNITS), chunk = unit / BLOCKS_CHUNK;
    const uint32_t units = chunk + 1 < CHUNKS ? BLOCKS_CHUNK : UNITS - chunk * BLOCKS_CHUNK;
    float v[8];
    grid_dependency_launch();
    grid_dependency_wait();
    if (GATHER) {
        if (slot >= p.rows) return;
        const int64_t from = (int64_t)((const int32_t *)p.index)[slot] + p.index_offset;
        const uint32_t c = thread_x() % 4;
        UNROLL for (int e = 0; e < 8; e++) v[e] = 0;
        if (from >= 0 && from < (int64_t)p.w_rows) {
            const uint32_t r = (uint32_t)from % BLOCKS_TILE;
            blocks_values(blocks_chunk(p.w, UNITS, (uint32_t)from / BLOCKS_TILE, chunk), units, unit % BLOCKS_CHUNK, r % 8 * 4 + c, r / 8, v);
        }
        rows_store(&p, slot, unit * BLOCKS_UNIT + c * 4, v);
        rows_store(&p, slot, unit * BLOCKS_UNIT + 16 + c * 4, v + 4);
        return;
    }
    const uint32_t lane = thread_x() % 32;
    const unsigned char *w = blocks_chunk(p.w, UNITS, slot, chunk);
    UNROLL for (uint32_t h = 0; h < 2; h++)
    {
        const uint32_t row = slot * BLOCKS_TILE + h * 8 + lane / 4;
        if (row >= p.rows) continue;
        blocks_values(w, units, unit % BLOCKS_CHUNK, lane, h, v);
        rows_store(&p, row, unit * BLOCKS_UNIT + lane % 4 * 4, v);
        rows_store(&p, row, unit * BLOCKS_UNIT + 16 + lane % 4 * 4, v + 4);
    }
}
