/* Tiles of grouped products: ROWS places of one expert by OUT columns of y, numbered expert by expert, the expert's places fastest: blocks
 * that run at the same time share weights in L2. How many there are is known on the device only. offsets may be those of some experts
 * among many: places before offsets[0] are others'.
 *
 * Macros: EXPERTS, ROWS, OUT, TILES_N (tiles across y). */
#ifndef ROSE_CUDA_MOE_TILE_CUH
#define ROSE_CUDA_MOE_TILE_CUH

#include "kernels/cuda/common/rose.cuh"

struct tile {
    uint32_t expert, place, rows, column; /* first place, how many of them have tokens, first column of y */
};

/* Every warp finds the tile for itself: the experts that end before it are counted. rows 0: there is no such tile. */
DEVICE struct tile tile_find(const uint32_t *offsets, const uint32_t *counts, uint32_t index)
{
    const uint32_t before = offsets[0];
    uint32_t ended = 0;
    UNROLL for (uint32_t v = 0; v < (EXPERTS + WARP - 1) / WARP; v++)
    {
        uint32_t e = v * WARP + lane_id();
        if (e < EXPERTS) ended += (offsets[e + 1] - before) / ROWS * TILES_N <= index;
    }
    struct tile t = {redux_add_u32(FULL_WARP, ended), 0, 0, 0};
    if (t.expert >= EXPERTS) return t;
    const uint32_t begin = offsets[t.expert], high = (offsets[t.expert + 1] - begin) / ROWS, local = index - (begin - before) / ROWS * TILES_N,
                   first = local % high * ROWS, count = counts[t.expert];
    t.place = begin + first;
    t.rows = count > first ? min_u32(count - first, ROWS) : 0;
    t.column = local / high * OUT;
    return t;
}

#endif
