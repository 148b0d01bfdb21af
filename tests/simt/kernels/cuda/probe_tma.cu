// arch: sm_90a sm_100a sm_120a
/* One box of RANK dimensions from `in` to shared memory (BYTES), its raw image to `image`, and stored at other coordinates
 * to `out`. */
#include "kernels/cuda/common/rose.cuh"
#include "kernels/cuda/common/tma.cuh"

struct probe_tma_params {
    struct tensor_map in, out;
    uint8_t *image; /* [BYTES] */
    int32_t from[5], to[5];
};

KERNEL(probe_tma, struct probe_tma_params, p, 32, 1)
{
    unsigned char *s = dynamic_shared(); /* the box, then the barrier: static shared memory would come first and spoil the alignment */
    mbarrier *bar = (mbarrier *)(s + BYTES);
    if (thread_x() == 0) {
        mbarrier_init(bar, 1);
        fence_mbarrier_init();
    }
    block_sync();
    if (thread_x() == 0) {
        tma_prefetch_map(&p.in);
        mbarrier_arrive_expect(bar, BYTES);
#if RANK == 1
        tma_load_1d(s, &p.in, p.from[0], bar, l2_evict_first());
#elif RANK == 2
        tma_load_2d(s, &p.in, p.from[0], p.from[1], bar, l2_evict_last());
#elif RANK == 3
        tma_load_3d(s, &p.in, p.from[0], p.from[1], p.from[2], bar, l2_evict_normal());
#elif RANK == 4
        tma_load_4d(s, &p.in, p.from[0], p.from[1], p.from[2], p.from[3], bar, l2_evict_first());
#else
        tma_load_5d(s, &p.in, p.from[0], p.from[1], p.from[2], p.from[3], p.from[4], bar, l2_evict_first());
#endif
    }
    mbarrier_wait(bar, 0);
    for (uint32_t i = thread_x(); i < BYTES; i += 32) p.image[i] = s[i];
    if (thread_x() == 0) {
#if RANK == 1
        tma_store_1d(&p.out, p.to[0], s);
#elif RANK == 2
        tma_store_2d(&p.out, p.to[0], p.to[1], s);
#elif RANK == 3
        tma_store_3d(&p.out, p.to[0], p.to[1], p.to[2], s);
#elif RANK == 4
        tma_store_4d(&p.out, p.to[0], p.to[1], p.to[2], p.to[3], s);
#else
        tma_store_5d(&p.out, p.to[0], p.to[1], p.to[2], p.to[3], p.to[4], s);
#endif
        bulk_commit();
        bulk_wait(0);
    }
}
