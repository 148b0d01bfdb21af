// arch: sm_90a sm_100a sm_120a
/* Atomics, named barriers, cp.async, mbarriers, cluster memory, multicast, the grid barrier: everything that has one right
 * answer. Four blocks of 128 threads, clusters of two, cooperative. out[blocks][64]. */
#include "kernels/cuda/common/rose.cuh"
#include "kernels/cuda/common/cluster.cuh"
#include "kernels/cuda/common/tma.cuh"

#ifndef MISTAKE
#define MISTAKE 0
#endif

struct probe_sync_params {
    const uint32_t *x;  /* [256] */
    uint32_t *counters; /* [16], zero, element 0 the grid barrier's; 8: ~0 */
    uint64_t *wide;     /* [2], zero */
    float *floats;      /* [64], zero */
    uint32_t *out;      /* [4][64], zero */
};

KERNEL(probe_sync, struct probe_sync_params, p, 128, 1)
{
    unsigned char *shared = dynamic_shared();
    uint32_t *a = (uint32_t *)shared, *b = a + 256, *c = b + 256, *inbox = c + 256; /* 1 KB each, inbox 64 bytes */
    mbarrier *bar = (mbarrier *)(inbox + 64);                                       /* [4] */
    uint32_t t = thread_x(), *out = p.out + 64 * block_x(), other = cluster_rank() ^ 1;

    if (t == 0) {
        mbarrier_init(&bar[0], 1);
        mbarrier_init(&bar[1], 128);
        mbarrier_init(&bar[2], 1);
        mbarrier_init(&bar[3], 256);
        fence_mbarrier_init();
    }
    cluster_sync();

    /* cp.async with a zero-filled tail, onto an mbarrier */
    cp_async4(&a[t], &p.x[t]);
    cp_async4_zfill(&a[128 + t], &p.x[128 + t], t % 3 ? 4 : 0);
    cp_async_mbarrier_arrive(&bar[1]);
    mbarrier_wait(&bar[1], 0);
    /* a multicast copy to both blocks: each sends its half of x */
    if (t == 0) mbarrier_arrive_expect(&bar[0], 1024);
    cluster_sync();
    if (t == 0) bulk_load_multicast(b + 128 * cluster_rank(), p.x + 128 * cluster_rank(), 512, &bar[0], 3);
    mbarrier_wait(&bar[0], 0);
    uint32_t sum = a[t] + 3 * a[255 - t] + 5 * b[t] + 7 * b[255 - t];
    sum = warp_sum_u32(sum, 32);
    if (lane_id() == 0) atom_add_u32(relaxed, cta, &out[0], sum); /* in global memory, block scope */

    /* named barriers: warps 0, 1 produce, 2, 3 consume */
    if (t < 64) {
        c[t] = t * t;
        barrier_arrive(1, 128);
    } else {
        if (MISTAKE != 1) barrier_sync(1, 128);
        c[t] = c[t - 64] + 1;
    }
    block_sync();
    if (t < 8) out[1 + t] = c[64 + 24 + t];

    /* asynchronous stores and an ordinary one into the other block */
    if (t == 0) mbarrier_arrive_expect(&bar[2], 16 + 4);
    cluster_sync();
    if (t == 0) {
        u32x4 v = {{1 + block_x(), 2, 3, 4}};
        st16_async(inbox, other, v, &bar[2]);
        st4_async(inbox + 4, other, 77, &bar[2]);
        *(uint32_t *)cluster_map(inbox + 5, other) = 5 + block_x();
    }
    mbarrier_wait_cluster(&bar[2], 0);
    mbarrier_arrive_cluster(&bar[3], 0);
    mbarrier_arrive_cluster(&bar[3], 1);
    mbarrier_wait_cluster(&bar[3], 0);
    if (t < 6) out[10 + t] = inbox[t];
    cluster_sync();

    /* atomics of every kind */
    red_add_u32(relaxed, gpu, &p.counters[1], t);
    red_max_u32(relaxed, gpu, &p.counters[2], t * 3 + block_x());
    red_max_s32(relaxed, gpu, &p.counters[3], (int32_t)t - 300);
    red_or_b32(relaxed, gpu, &p.counters[4], 1u << (t % 32));
    atom_min_u32(relaxed, gpu, &p.counters[8], 1000 - t);
    atom_and_b32(relaxed, gpu, &p.counters[9], ~(1u << (t % 8)));
    red_add_u64(relaxed, gpu, &p.wide[0], 1ull << 33);
    atom_max_u64(relaxed, gpu, &p.wide[1], (uint64_t)t << 40);
    red_add_f32(relaxed, gpu, &p.floats[t % 8], 0.5f);
    red_add_bf16x2(relaxed, gpu, &p.floats[16], as_bf16x2(0x3f803f80u - (t >= 64) * 0x3f80u)); /* 1, 1 or 0 */
    if (t == 0) {
        uint32_t old;
        do old = ld_u32(relaxed, gpu, &p.counters[5]);
        while (atom_cas_b32(acq_rel, gpu, &p.counters[5], old, old * 2 + 1) != old);
        atom_exch_b32(acq_rel, sys, &p.counters[6], 9);
    }
    float *f = (float *)c; /* bulk reductions */
    block_sync();
    f[t] = 0.25f;
    fence_proxy_async();
    block_sync();
    if (t == 0) {
        bulk_reduce_add_f32(&p.floats[32], f, 128);
        bulk_commit();
        bulk_wait(0);
    }

    /* the grid barrier, twice; then everybody reads everything */
    grid_barrier(&p.counters[0]);
    uint32_t all = 0;
    if (t >= 1 && t < 10 && t != 7) all = ld_u32(relaxed, gpu, &p.counters[t]) * (t + 1);
    if (t >= 16 && t < 16 + 33) all = f32_bits(*(volatile float *)&p.floats[t - 16]);
    uint32_t total = redux_xor_b32(FULL_WARP, all);
    if (lane_id() == 0) out[32 + warp_id()] = total;
    if (t == 0) out[40] = (uint32_t)(p.wide[0] >> 33), out[41] = (uint32_t)(p.wide[1] >> 40);
    grid_barrier(&p.counters[0]);
    if (t == 0) out[42] = p.out[64 * ((block_x() + 1) % grid_dim_x()) + 32]; /* the next block's, after the barrier */
    if (MISTAKE == 2 && block_x() == 3) return;
    if (MISTAKE == 2) grid_barrier(&p.counters[0]);
}
