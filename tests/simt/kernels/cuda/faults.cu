// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* Small mistakes, one a CASE; each is right when FIXED is 1. Two blocks of 64 threads. */
#include "kernels/cuda/common/rose.cuh"
#include "kernels/cuda/common/async.cuh"
#include "kernels/cuda/common/mbarrier.cuh"
#include "kernels/cuda/common/tma.cuh"

struct faults_params {
    const uint32_t *x; /* [128] */
    uint32_t *y;       /* [128], unwritten */
    uint32_t *flag;    /* [4], zero */
};

KERNEL(faults, struct faults_params, p, 64, 1)
{
    SHARED(uint32_t, s, 64);
    uint32_t t = thread_x(), i = block_x() * 64 + t;
    (void)s;
#if CASE == 1 /* vector access at an address that is no multiple of its size */
    if (t < 12) st16(s + 4 * t + (FIXED ? 0 : 1), ld16(p.x));
#elif CASE == 2 /* an exchange inside a warp without warp_sync: a shuffle orders no memory */
    s[t] = p.x[i];
    if (FIXED) warp_sync(FULL_WARP);
    else shuffle_u32(FULL_WARP, 1, 0, 32);
    p.y[i] = s[t ^ 1];
#elif CASE == 3 /* block scope between blocks */
    if (t == 0) {
        if (FIXED) red_add_u32(relaxed, gpu, p.flag, 1);
        else red_add_u32(relaxed, cta, p.flag, 1);
    }
#elif CASE == 4 /* the read-only path on what the grid writes */
    p.y[i] = p.x[i];
    p.y[i] += FIXED ? ld4(p.y + i) : ld4_nc(p.y + i);
#elif CASE == 5 /* reads what nobody wrote */
    uint32_t v = FIXED ? p.x[i] : p.y[i];
    p.y[i] = v + 1;
#elif CASE == 6 /* a named barrier with the wrong number of threads */
    barrier_sync(1, FIXED || t < 32 ? 64 : 32);
#elif CASE == 7 /* a flag without release */
    if (block_x() == 0) {
        p.y[t] = t;
        block_sync();
        if (t == 0) {
            if (FIXED) fence(acq_rel, gpu);
            st_u32(relaxed, gpu, p.flag, 1);
        }
    } else if (t == 0) {
        while (!ld_u32(acquire, gpu, p.flag)) {}
        p.y[64] = p.y[63];
    }
#elif CASE == 8 /* a flag without acquire */
    if (block_x() == 0) {
        p.y[t] = t;
        block_sync();
        if (t == 0) st_u32(release, gpu, p.flag, 1);
    } else if (t == 0) {
        while (!ld_u32(relaxed, gpu, p.flag)) {}
        if (FIXED) fence(acq_rel, gpu);
        p.y[64] = p.y[63];
    }
#elif CASE == 9 /* a pointer to nowhere */
    const uint32_t *q = FIXED ? p.x : (const uint32_t *)(uintptr_t)16;
    p.y[i] = q[0];
#elif CASE == 10 /* an array in local memory of megabytes */
    if (!FIXED) {
        volatile uint32_t big[60000];
        for (uint32_t k = 0; k < 60000; k += 16) big[k] = k + p.x[0];
        p.y[i] = big[t * 16];
    }
#elif CASE == 11 /* in-place update of a neighbour */
    p.y[i] = p.x[i];
    block_sync();
    uint32_t v = p.y[i ^ 1];
    if (FIXED) block_sync();
    p.y[i] = v;
#elif CASE == 12 /* 64-bit counters of plain increments */
    if (FIXED) red_add_u32(relaxed, gpu, &p.flag[1], 1);
    else p.flag[1]++;
#elif CASE == 13 /* arrives, and arrives again before anybody waited */
    if (t < 32) barrier_arrive(1, 64);
    if (t < 32 && !FIXED) barrier_arrive(1, 64);
    if (t >= 32) barrier_sync(1, 64);
#elif CASE == 14 /* a shuffle that reads a lane outside its mask */
    uint32_t v = 0;
    if (t % 32 < 16) v = shuffle_u32(0xffff, t, FIXED ? 3 : 20, 32);
    p.y[i] = v;
#elif CASE == 15 /* more arrivals than an mbarrier counts: its next phase */
    SHARED(mbarrier, bar, 1);
    if (t == 0) mbarrier_init(bar, FIXED ? 64 : 65);
    block_sync();
    mbarrier_arrive(bar);
    mbarrier_wait(bar, 0);
#elif CASE == 16 /* initialised twice */
    SHARED(mbarrier, bar, 1);
    if (t == 0) {
        mbarrier_init(bar, 1);
        if (FIXED) mbarrier_invalidate(bar);
        mbarrier_init(bar, 1);
    }
#elif CASE == 17 /* cp.async seen by another thread without a barrier */
    cp_async4(&s[t], &p.x[i]);
    cp_async_commit();
    cp_async_wait(0);
    if (FIXED) block_sync();
    p.y[i] = s[t ^ 1];
#elif CASE == 18 /* one group too many left pending */
    cp_async4(&s[t], &p.x[i]);
    cp_async_commit();
    cp_async_wait(1 - FIXED);
    p.y[i] = s[t];
#elif CASE == 19 /* shared memory used again while slow threads still read */
    s[t] = p.x[i];
    block_sync();
    uint32_t v = s[63 - t];
    if (FIXED) block_sync();
    s[t] = v;
#elif CASE == 20 /* writes one element past the row */
    if (t < 63 + FIXED) p.y[i] = 1;
    else p.y[i + 1 + 64 * (block_x() == 0)] = 1;
#elif CASE == 21 /* a predecessor's data before the wait */
    uint32_t v = FIXED ? 0 : p.x[i];
    if (t == 0) grid_dependency_wait();
    block_sync();
    p.y[i] = v + p.x[i];
#elif CASE == 23 /* shared memory that nobody wrote */
    if (FIXED || t < 63) s[t] = p.x[i];
    block_sync();
    p.y[i] = s[63 - t];
#elif CASE == 24 /* one element past a shared array */
    s[t] = p.x[i];
    if (t == 5) s[FIXED ? 5 : 64] = 7;
    block_sync();
    p.y[i] = s[t];
#elif CASE == 25 /* ordinary stores to global memory, read by the copy engine without a fence for it */
    SHARED(mbarrier, bar, 1);
    SHARED(u32x4, box, 4);
    if (t == 0) mbarrier_init(bar, 1), fence_mbarrier_init();
    p.y[i] = p.x[i];
    if (FIXED) fence_proxy_async_global();
    block_sync();
    if (t == 0) mbarrier_arrive_expect(bar, 64), bulk_load(box, p.y + 64 * block_x(), 64, bar, l2_evict_first());
    mbarrier_wait(bar, 0);
    block_sync();
    if (t < 16) p.y[i] = ((const uint32_t *)box)[t] + 1;
#elif CASE == 26 /* a bulk copy of a size that is no multiple of 16 bytes */
    SHARED(mbarrier, bar, 1);
    SHARED(u32x4, box, 4);
    if (t == 0) {
        mbarrier_init(bar, 1), fence_mbarrier_init();
        mbarrier_arrive_expect(bar, FIXED ? 64 : 60), bulk_load(box, p.x, FIXED ? 64 : 60, bar, l2_evict_first());
        mbarrier_wait(bar, 0);
    }
#elif CASE == 27 /* half of the block leaves before the barrier */
    if (!FIXED && t >= 32) return;
    s[t] = t;
    block_sync();
    p.y[i] = s[t];
#elif CASE == 22 /* a grid barrier that one block does not reach */
    if (FIXED || block_x() == 0) grid_barrier(p.flag);
#endif
}
