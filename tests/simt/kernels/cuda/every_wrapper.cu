// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* Every wrapper of kernels/cuda/common once, so that each is assembled for each architecture that has it. Never run. */
#include "kernels/cuda/common/rose.cuh"
#include "kernels/cuda/common/async.cuh"
#include "kernels/cuda/common/mbarrier.cuh"
#include "kernels/cuda/common/cluster.cuh"
#include "kernels/cuda/common/tma.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/common/tcgen05.cuh"
#include "kernels/cuda/common/multimem.cuh"
#include "kernels/cuda/common/trig.cuh"

struct every_params {
    struct tensor_map map;
    const uint32_t *x;
    uint32_t *y, *flag;
    float *f;
};

DEVICE void every_thread(uint32_t *y, uint32_t u)
{
    y[0] = shuffle_u32(FULL_WARP, u, 3, 32) + shuffle_xor_u32(FULL_WARP, u, 3, 32);
    y[1] = shuffle_up_u32(FULL_WARP, u, 3, 16) + shuffle_down_u32(FULL_WARP, u, 3, 8);
    y[2] = (uint32_t)shuffle_xor_u64(FULL_WARP, u, 1, 32) + warp_ballot(FULL_WARP, u & 1) + warp_match(FULL_WARP, u);
    y[3] = (uint32_t)warp_any(FULL_WARP, u == 1) + (uint32_t)warp_all(FULL_WARP, u == 2) + (uint32_t)warp_elect();
    y[4] = redux_add_u32(FULL_WARP, u) + redux_min_u32(FULL_WARP, u) + redux_max_u32(FULL_WARP, u);
    y[5] = (uint32_t)(redux_min_s32(FULL_WARP, (int32_t)u) + redux_max_s32(FULL_WARP, (int32_t)u));
    y[6] = redux_and_b32(FULL_WARP, u) + redux_or_b32(FULL_WARP, u) + redux_xor_b32(FULL_WARP, u);
    y[7] = f32_bits(warp_sum_f32(f32_from_bits(u), 32) + warp_max_f32(f32_from_bits(u), 16)) + warp_scan_u32(u);
    y[8] = f32_bits(shuffle_f32(FULL_WARP, f32_from_bits(u), 1, 32) + shuffle_up_f32(FULL_WARP, 1.0f, 1, 32) +
                    shuffle_down_f32(FULL_WARP, 1.0f, 1, 32));
    warp_sync(FULL_WARP);
    barrier_arrive(1, 256);
    barrier_sync(2, 128);
    y[9] = block_sync_count(u & 1) + (uint32_t)block_sync_or(u & 2);
    y[10] = (uint32_t)(global_timer() + clock_cycles()) + sm_id() + popcount_u32(u) + clz_u32(u) + ffs_u32(u) +
            byte_permute(u, u, 0x1234) + rotate_left(u, u);
    y[11] = thread_y() + thread_z() + block_y() + block_z() + block_dim_y() + block_dim_z() + block_dim_x();
    nano_sleep(10);
    if (u == 77) trap();
}

DEVICE void every_access(uint32_t *y, const uint32_t *x, uint32_t *flag, float *f)
{
    st4(y, ld4(x) + ld4_nc(x + 1) + ld4_keep(x + 2));
    st8(y + 2, ld8(x)), st8_stream(y + 4, ld8_nc(x)), st8(y + 6, ld8_keep(x));
    st16(y + 8, ld16(x)), st16_stream(y + 12, ld16_nc(x)), st16(y + 16, ld16_keep(x));
    st32(y + 24, ld32(x)), st32_stream(y + 32, ld32_nc(x)), st32(y + 40, ld32_keep(x));
    st4(y + 53, ld4_early(x)), st8(y + 54, ld8_early(x)), st16(y + 56, ld16_early(x));
    st16_policy(y + 60, ld16_policy(x, l2_evict_first()), l2_evict_first()), st8_policy(y + 64, ld8(x), l2_evict_last()), st4_policy(y + 66, ld4(x), l2_evict_normal());
    st4_stream(y + 48, 1), st4(y + 49, ld4_older(x));
    prefetch_l2(x + 1000);
    st_u32(release, gpu, flag, ld_u32(acquire, gpu, flag) + ld_u32(relaxed, sys, flag) + ld_u32(acquire, cta, flag));
    st_u64(relaxed, sys, flag, ld_u64(acquire, sys, flag));
    y[50] = atom_add_u32(acq_rel, gpu, flag, 1) + atom_min_u32(relaxed, gpu, flag, 1) + atom_max_u32(acquire, cta, flag, 1);
    y[51] = (uint32_t)atom_max_s32(release, sys, (int32_t *)flag, 1) + atom_and_b32(relaxed, gpu, flag, 1) +
            atom_or_b32(relaxed, gpu, flag, 1) + atom_exch_b32(acq_rel, gpu, flag, 1) + atom_cas_b32(acq_rel, gpu, flag, 1, 2);
    y[52] = (uint32_t)(atom_add_u64(relaxed, gpu, flag, 1) + atom_max_u64(relaxed, gpu, flag, 1) +
                       atom_exch_b64(relaxed, gpu, flag, 1) + atom_cas_b64(acq_rel, gpu, flag, 1, 2));
    f[0] = atom_add_f32(relaxed, gpu, f + 1, 1.0f);
    red_add_u32(release, gpu, flag, 1);
    red_max_u32(relaxed, gpu, flag, 1);
    red_max_s32(relaxed, gpu, (int32_t *)flag, 1);
    red_or_b32(relaxed, gpu, flag, 1);
    red_add_u64(relaxed, sys, flag, 1);
    red_add_f32(relaxed, gpu, f, 1.0f);
    red_add_bf16x2(relaxed, gpu, f, as_bf16x2(1));
    fence(acq_rel, gpu);
    fence(sc, sys);
    fence(acq_rel, cta);
}

DEVICE void every_conversion(uint32_t *y, float a, float b)
{
    uint16_t u = (uint16_t)f32_bits(a);
    f32x2 e = e4m3x2_to_f32x2(u), g = e5m2x2_to_f32x2(u);
    y[0] = f32_to_bf16(a).bits + f32_to_bf16x2(a, b).bits + f32_to_f16(a).bits + f32_to_f16x2(a, b).bits;
    y[1] = f32_to_e4m3(a).bits + f32_to_e5m2(b).bits + f32_to_e4m3x4(a, b, a, b) + f32_to_e5m2x4(a, b, a, b);
    y[2] = f32_to_ue8m0_up(a).bits + f32_to_ue8m0_down(b).bits + f32_to_e2m1x2(a, b).bits + (uint32_t)f32_to_s8(a);
    y[3] = f32_bits(e.v[0] + e.v[1] + g.v[0] + g.v[1]) + e4m3x2_to_bf16x2(u).bits + e4m3x2_to_f16x2(u).bits;
    bf16x2 o[4];
    e2m1x8_to_bf16x2(y[0], o);
    y[4] = o[0].bits + o[1].bits + o[2].bits + bf16x2_fma(o[0], o[1], o[2]).bits + bf16x2_add(o[0], o[3]).bits;
    f16x2 h = f32_to_f16x2(a, b);
    y[5] = f16x2_fma(h, h, h).bits + f32_bits(f16x2_lo_f32(h) + f16x2_hi_f32(h));
    e2m1x2 c = f32_to_e2m1x2(a, b);
    y[6] = f32_bits(e2m1x2_to_f32x2(c).v[1] + ue8m0_to_f32(f32_to_ue8m0_up(b)) + e4m3_to_f32(f32_to_e4m3(a)));
    float many[8] = {a, b, a, b, a, b, a, b}, turn[2];
    bf16x2 strided[4];
    e2m1x8_to_bf16x2_strided(f32_to_e2m1x8(many), strided);
    sincos_approx(a, &turn[0], &turn[1]);
    y[10] = f32_bits(e5m2_to_f32(f32_to_e5m2(a)) + turn[0] + turn[1]) + f32_to_f16_finite(a).bits + f32_to_f16x2_finite(a, b).bits;
    y[11] = f16x2_mul(h, f16x2_add(h, h)).bits + bf16x2_mul(strided[0], strided[1]).bits + strided[2].bits + strided[3].bits;
    y[7] = f32_bits(exp2_approx(a) + log2_approx(a) + rcp_approx(a) + rsqrt_approx(a) + tanh_approx(a) + exp_approx(a));
    y[8] = f32_bits(exp_f32(a) + log_f32(a) + tanh_f32(a) + erf_f32(a) + sin_f32(a) + cos_f32(a) + sqrt_f32(a) + rcp_f32(a));
    y[9] = f32_bits(fma_f32(a, b, a) + div_f32(a, b) + min_f32(a, b) + min_nan_f32(a, b) + max_f32(a, b) + floor_f32(a) + ceil_f32(b) + rint_f32(a));
}

DEVICE void every_mma(uint32_t *y, const uint32_t *x, unsigned char *s)
{
    uint32_t a[4], b[4], meta = x[0];
    float d[4] = {0, 0, 0, 0};
    int32_t e[4] = {0, 0, 0, 0};
    ldmatrix_x4(a, s), ldmatrix_x4_trans(b, s);
    ldmatrix_x2(a, s), ldmatrix_x2_trans(b, s);
    ldmatrix_x1(a, s), ldmatrix_x1_trans(b, s);
    mma_bf16(d, a, b), mma_f16(d, a, b), mma_s8(e, a, b);
    mma_sp_bf16(d, a, b, meta, 0);
    mma_sp_f16(d, a, b, meta, 1);
    mma_sp_s8(e, a, b, meta);
#if HAS_MMA_FP8
    mma_e4m3(d, a, b), mma_e5m2(d, a, b), mma_e4m3_e5m2(d, a, b), mma_e5m2_e4m3(d, a, b);
    mma_sp_e4m3(d, a, b, meta), mma_sp_e5m2(d, a, b, meta);
#endif
#if HAS_BULK
    stmatrix_x4(s, a), stmatrix_x2(s, a), stmatrix_x1(s, a);
    stmatrix_x4_trans(s, a), stmatrix_x2_trans(s, a), stmatrix_x1_trans(s, a);
#endif
#if HAS_MMA_MXF4
    mma_nvf4(d, a, b, meta, a[0]), mma_mxf4(d, a, b, meta, a[0]);
    mma_sp_nvf4(d, a, b, meta, a[0], a[1]), mma_sp_mxf4(d, a, b, meta, a[0], a[1]);
#endif
    UNROLL for (int i = 0; i < 4; i++) y[i] = f32_bits(d[i]) + (uint32_t)e[i] + a[i] + b[i];
}

#if HAS_WGMMA
#define WN 64
DEVICE void every_wgmma(float *f, const uint32_t *x, unsigned char *s)
{
    uint32_t a[4] = {x[0], x[1], x[2], x[3]}, meta = x[4];
    float d[WN / 2];
    int32_t e[WN / 2];
    UNROLL for (int i = 0; i < WN / 2; i++) d[i] = 0.0f, e[i] = 0;
    uint64_t da = wgmma_desc(s, 16, 1024, 128), db = wgmma_desc(s + 8192, 16, 1024, 128);
    wgmma_pin(d, WN / 2);
    wgmma_fence();
    wgmma_bf16_ss(WN, d, da, db, 0);
    wgmma_f16_ss(WN, d, da, db, 1);
    wgmma_bf16_ss_t(WN, d, da, db, 1, 1, 1);
    wgmma_e4m3_ss(WN, d, da, db, 1);
    wgmma_e5m2_ss(WN, d, da, db, 1);
    wgmma_sp_bf16_ss(WN, d, da, db, meta, 0, 1);
    wgmma_sp_e4m3_ss(WN, d, da, db, meta, 1);
    wgmma_s8_ss(WN, e, da, db, 1);
    wgmma_bf16_rs(WN, d, a, db, 1);
    wgmma_bf16_rs_t(WN, d, a, db, 1, 1);
    wgmma_f16_rs(WN, d, a, db, 1);
    wgmma_f16_rs_t(WN, d, a, db, 1, 1);
    wgmma_e4m3_rs(WN, d, a, db, 1);
    wgmma_e5m2_rs(WN, d, a, db, 1);
    wgmma_s8_rs(WN, e, a, db, 1);
    wgmma_sp_bf16_rs(WN, d, a, db, meta, 1, 1);
    wgmma_sp_f16_rs(WN, d, a, db, meta, 0, 1);
    wgmma_sp_e4m3_rs(WN, d, a, db, meta, 1);
    wgmma_sp_s8_rs(WN, e, a, db, meta, 1);
    wgmma_commit();
    wgmma_keep_order((float *)(s + 16384), f[0]);
    wgmma_wait(0);
    wgmma_pin(d, WN / 2);
    wgmma_pin(e, WN / 2);
    UNROLL for (int i = 0; i < WN / 2; i++) f[i * 128 + (int)thread_x()] = d[i] + (float)e[i];
}
#endif

#if HAS_BULK
DEVICE void every_copy(const struct tensor_map *map, uint32_t *y, unsigned char *s, mbarrier *bar)
{
    fence_mbarrier_init(), fence_proxy_async(), fence_proxy_async_global();
    mbarrier_expect(bar, 16), mbarrier_arrive_expect(bar, 16);
    tma_prefetch_map(map);
    tma_load_1d(s, map, 0, bar, l2_evict_first()), tma_load_2d(s, map, 0, 1, bar, l2_evict_last());
    tma_load_3d(s, map, 0, 1, 2, bar, l2_evict_normal()), tma_load_4d(s, map, 0, 1, 2, 3, bar, l2_evict_normal());
    tma_load_5d(s, map, 0, 1, 2, 3, 4, bar, l2_evict_normal());
    tma_store_1d(map, 0, s), tma_store_2d(map, 0, 1, s), tma_store_3d(map, 0, 1, 2, s), tma_store_4d(map, 0, 1, 2, 3, s);
    tma_store_5d(map, 0, 1, 2, 3, 4, s);
    tma_reduce_add_1d(map, 0, s), tma_reduce_add_2d(map, 0, 1, s), tma_reduce_add_3d(map, 0, 1, 2, s);
    tma_reduce_add_4d(map, 0, 1, 2, 3, s), tma_reduce_add_5d(map, 0, 1, 2, 3, 4, s);
    tma_prefetch_1d(map, 0), tma_prefetch_2d(map, 0, 1), tma_prefetch_3d(map, 0, 1, 2), tma_prefetch_4d(map, 0, 1, 2, 3);
    tma_prefetch_5d(map, 0, 1, 2, 3, 4);
    bulk_load(s, y, 64, bar, l2_evict_first());
    bulk_store(y, s, 64), bulk_reduce_add_f32(y, s, 64), bulk_reduce_add_bf16(y, s, 64), bulk_prefetch_l2(y, 64);
    bulk_commit();
    bulk_wait_read(1);
    bulk_wait(0);
#if ROSE_ARCH < 1200 /* possible there too, but the assembler advises against it */
    bulk_load_multicast(s, y, 64, bar, 3);
    tma_load_multicast_1d(s, map, 0, bar, 3), tma_load_multicast_2d(s, map, 0, 1, bar, 3);
    tma_load_multicast_3d(s, map, 0, 1, 2, bar, 3), tma_load_multicast_4d(s, map, 0, 1, 2, 3, bar, 3);
    tma_load_multicast_5d(s, map, 0, 1, 2, 3, 4, bar, 3);
#endif
    cluster_sync(), cluster_arrive(), cluster_wait();
    *(uint32_t *)cluster_map(s, cluster_rank() ^ 1) = cluster_size() + cluster_id();
    bulk_copy_cluster(s, 1, s + 64, 64, bar);
    st4_async(s, 1, 3, bar), st16_async(s, 1, ld16(s), bar);
    mbarrier_arrive_cluster(bar, 1);
    mbarrier_arrive_remote(bar, 1);
    mbarrier_wait_cluster(bar, 1);
    st16(y, multimem_ld_add_bf16x8(y));
    f32x4 v = multimem_ld_add_f32x4(y);
    multimem_st16(y, ld16(s)), multimem_red_add_f32x4(y, v), multimem_red_release_u32(y, 1);
}
#endif

#if HAS_TCGEN05
DEVICE void every_tcgen05(uint32_t *y, unsigned char *s, mbarrier *bar, uint32_t *where)
{
    tmem_alloc(where, 64);
    tmem_relinquish();
    tcgen05_fence_before();
    block_sync();
    tcgen05_fence_after();
    uint32_t t = *where, r[32];
    uint64_t da = tcgen05_desc(s, 16, 1024, 128), db = tcgen05_desc(s + 16384, 16, 1024, 128);
    uint32_t id = tcgen05_idesc(128, 64, TC_BF16, TC_BF16, 0, 0, false), sc = tcgen05_idesc_scaled(128, 64, 1, 1, true, 0, 0);
    if (warp_elect()) {
        tcgen05_f16(t, da, db, id, false), tcgen05_f16_ts(t, t + 32, db, id, true);
        tcgen05_f8(t, da, db, id, true), tcgen05_f8_ts(t, t + 32, db, id, true);
        tcgen05_i8(t, da, db, id, true), tcgen05_i8_ts(t, t + 32, db, id, true);
        tmem_copy_scales(t + 32, s);
        tcgen05_mxf8(t, da, db, sc, t + 32, t + 36, true), tcgen05_mxf4(t, da, db, sc, t + 32, t + 36, true);
        tcgen05_nvf4(t, da, db, sc, t + 32, t + 36, true);
        tcgen05_commit(bar);
    }
    tmem_ld32(r, t);
    tmem_wait_ld(r, 32);
    tmem_st32(t, r), tmem_st16(t, r), tmem_st8(t, r), tmem_st4(t, r), tmem_st2(t, r), tmem_st1(t, r);
    tmem_wait_st();
    tmem_ld16(r, t), tmem_ld8(r + 16, t), tmem_ld4(r + 24, t), tmem_ld2(r + 28, t), tmem_ld1(r + 30, t);
    tmem_wait_ld(r, 32);
    UNROLL for (int i = 0; i < 32; i++) y[i] = r[i];
    tmem_free(t, 64);
}
#endif

KERNEL(every_wrapper, struct every_params, p, 128, 1)
{
    unsigned char *s = dynamic_shared();
    SHARED(mbarrier, bar, 2);
    SHARED(uint32_t, where, 1);
    uint32_t *y = p.y + 128 * thread_x();
    grid_dependency_wait();
    every_thread(y, p.x[thread_x()]);
    every_access(y + 16, p.x, p.flag, p.f);
    every_conversion(y, p.f[0], p.f[1]);
    cp_async4(s, p.x), cp_async8(s, p.x), cp_async16(s, p.x);
    cp_async4_zfill(s, p.x, 1), cp_async8_zfill(s, p.x, 2), cp_async16_zfill(s, p.x, 3);
    cp_async_commit();
    cp_async_wait(1);
    cp_async_wait_all();
    mbarrier_init(bar, 1);
    cp_async_mbarrier_arrive(bar);
    mbarrier_arrive(bar);
    mbarrier_wait(bar, 0), mbarrier_wait(bar + 1, 1);
    y[0] += (uint32_t)mbarrier_test(bar, 1) + *where;
    mbarrier_invalidate(bar);
    every_mma(y, p.x, s);
#if HAS_WGMMA
    registers_grow(168);
    every_wgmma(p.f, p.x, s);
    registers_shrink(40);
#endif
#if HAS_BULK
    every_copy(&p.map, y, s, bar);
#endif
#if HAS_TCGEN05
    every_tcgen05(y, s, bar, where);
#endif
    grid_barrier(p.flag);
    uint32_t ticket = grid_barrier_arrive(p.flag);
    grid_barrier_wait(p.flag, ticket);
    grid_dependency_launch();
}
