// arch: sm_90a
/* y = x W^T by wgmma for many rows (Hopper): tiles of 128 rows x BN weight rows, k in steps of 64, a persistent grid.
 *
 * Warpgroup 0 is the producer: one thread fills a ring of STAGES by TMA. Warpgroups 1 and 2 multiply 64 rows each. A cluster of
 * two blocks shares a column tile: each loads half of its weight rows into both, so a block reads 16 + BN / 16 KB a step instead
 * of 16 + BN / 8.
 *
 *     stage: x [128][64], w [BN][64] elements, rows of 128 bytes, swizzled by TMA
 *     full[s]: one arrival (the producer's, with the bytes expected); empty[s]: one of each consumer warp of the cluster
 *
 * A gated pair: the first BN / 2 rows of the w tile are the gate's, the others the up matrix', so that both sums of a result lie
 * in one thread; the tile then has BN / 2 columns. What lies outside of x's rows that are there, of W or of k arrives as zeros.
 *
 * y's rows are 16-byte aligned and n is a multiple of 8.
 *
 * Constants: BN (64, 128, 224, 256), STAGES, CLUSTER (1, 2), RASTER (row tiles of the cluster that go together); those of
 * gemm_epilogue.cuh, PARTS. */
#include "kernels/cuda/gemm_wgmma.cuh"

#define MULTIPLY_(N, d, a, b, acc) wgmma_element_ss(N, d, a, b, acc)
#define MULTIPLY(N, d, a, b, acc) MULTIPLY_(N, d, a, b, acc)

DEVICE void wgmma_consume(const struct gemm_wgmma_params *p, const struct wgmma_block *b, uint32_t group)
{
    const uint32_t steps = ceil_div_u32(p->g.k, BK);
    uint32_t stage = 0, phase = 0;
    float d[BN / 2];
    for (uint32_t i = b->first; i < b->count; i += b->stride) {
        const struct wgmma_tile t = wgmma_tile_of(&p->g, i);
        uint32_t before = 0;
        u32x4 old[CHUNK_TURNS];
        /* The products of a step take longer than its other instructions: copies of the loop would only take their time to compile. */
        UNROLL_N(1) for (uint32_t left = steps, s = 0; left; left--, s = 1) {
            const unsigned char *x = b->stages + stage * STAGE_BYTES + group * (64 * BK * 2), *w = b->stages + stage * STAGE_BYTES + X_BYTES;
            mbarrier_wait(&b->full[stage], phase);
            const uint64_t da = wgmma_desc(x, 16, 1024, 128), db = wgmma_desc(w, 16, 1024, 128);
            wgmma_pin(d, BN / 2);
            wgmma_fence();
            UNROLL for (uint32_t k = 0; k < BK / 16; k++) MULTIPLY(BN, d, da + k * 2, db + k * 2, (s | k) != 0);
            wgmma_commit();
            wgmma_pin(d, BN / 2);
            /* The step before is done: its stage may be filled again. */
            if (s) {
                wgmma_wait(1);
                wgmma_release(&b->empty[before]);
            }
            before = stage;
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
        if (i == b->first) grid_dependency_wait(); /* y may be what the predecessor wrote */
        if (STAGED && ACCUMULATE) wgmma_old(&p->g, &t, group, 0, old);
        wgmma_wait(0);
        wgmma_pin(d, BN / 2);
        wgmma_release(&b->empty[before]);
        if (STAGED)
            wgmma_staged(&p->g, &t, group, d, old, b->result);
        else
            wgmma_direct(&p->g, &t, group, d);
    }
}

KERNEL(gemm_wgmma, struct gemm_wgmma_params, p, THREADS, 1)
{
    const struct wgmma_block b = wgmma_begin(&p);
    if (warp_id() / 4 == 0) {
        registers_shrink(40);
        if (thread_x() == 0) wgmma_produce(&p, b.stages, b.full, b.empty, b.first, b.count, b.stride, ceil_div_u32(p.g.k, BK));
        warp_sync(FULL_WARP);
    } else {
        registers_grow(232);
        wgmma_consume(&p, &b, warp_id() / 4 - 1);
    }
    if (CLUSTER > 1) cluster_sync(); /* the other block may still write into this one's memory and barriers */
}
