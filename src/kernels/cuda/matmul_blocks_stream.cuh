/* Chunks of weights in a block format as they stream into a block's shared memory by bulk copies (matmul_blocks_ring.cu, matmul_blocks_wgmma.cu): a unit is
 * a chunk (256 of k) of WARPS tiles of 16 weight rows, a tile a warp; of a gated pair tiles of both matrices in turn.
 *
 * Macros: WARPS, COLUMNS (of y a tile of WARPS has), K_TAIL; those of gemv_runs.cuh. */
#ifndef ROSE_CUDA_MATMUL_BLOCKS_STREAM_CUH
#define ROSE_CUDA_MATMUL_BLOCKS_STREAM_CUH

#include "kernels/cuda/gemv_runs.cuh"
#include "kernels/cuda/matmul_blocks.cuh"

/* Units of chunk `chunk` of k. */
DEVICE uint32_t ring_units(const struct gemm_params *p, uint32_t chunk)
{
    return K_TAIL ? min_u32(p->k / BLOCKS_UNIT - chunk * BLOCKS_CHUNK, BLOCKS_CHUNK) : BLOCKS_CHUNK;
}
/* Where a tile's weights begin: their part (the gate's), and tiles of 16 rows in it, from the first on; how many warps have one. */
struct ring_tile {
    uint32_t part, first, count;
};
DEVICE struct ring_tile ring_tile_of(const struct gemm_params *p, uint32_t tile)
{
    struct ring_tile t;
    t.part = gemv_part_of(p, tile);
    t.first = (tile - (uint32_t)p->part[t.part].tile) * (COLUMNS / BLOCKS_TILE);
    t.count = min_u32(ceil_div_u32((uint32_t)p->part[t.part].n, BLOCKS_TILE) - t.first, COLUMNS / BLOCKS_TILE) * (1 + GATED);
    return t;
}
DEVICE uint32_t ring_bytes(const struct gemm_params *p, uint32_t tile, uint32_t chunk)
{
    return ring_tile_of(p, tile).count * ring_units(p, chunk) * UNIT_BYTES;
}
/* Chunk `chunk` of warp w's tile to `to` + w * CHUNK_BYTES. */
DEVICE void ring_load(const struct gemm_params *p, unsigned char *to, uint32_t tile, uint32_t chunk, mbarrier *full, uint64_t policy)
{
    const struct ring_tile t = ring_tile_of(p, tile);
    const uint32_t bytes = ring_units(p, chunk) * UNIT_BYTES;
    for (uint32_t w = 0; w < t.count; w++)
        bulk_load(to + w * CHUNK_BYTES, blocks_chunk(p->part[t.part + (GATED ? w % 2 : 0)].w, p->k / BLOCKS_UNIT, t.first + w / (1 + GATED), chunk), bytes, full, policy);
}

#endif
