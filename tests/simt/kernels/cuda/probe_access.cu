// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* Loads and stores of every width and hint, 64-bit strong accesses, the atomics that probe_sync leaves out, shuffles of floats, clocks.
 * Two blocks of 64 threads; thread i copies x[8 i ..] in pieces to out[i][64]. */
#include "kernels/cuda/common/rose.cuh"

struct probe_access_params {
    const uint32_t *x;  /* [128 * 8] */
    uint32_t *counters; /* [4], zero */
    uint64_t *wide;     /* [4], zero */
    float *floats;      /* [2], zero */
    uint32_t *out;      /* [128][64] */
};

DEVICE void probe_vectors(const uint32_t *x, uint32_t *o)
{
    prefetch_l2(x);
    st32(o, ld32(x)), st32_stream(o + 8, ld32_nc(x)), st32(o + 16, ld32_keep(x));
    st16_policy(o + 24, ld16_policy(x, l2_evict_last()), l2_evict_first()), st16_stream(o + 28, ld16_keep(x + 4));
    st8_policy(o + 32, ld8_nc(x), l2_evict_last()), st8_stream(o + 34, ld8_early(x + 2)), st8(o + 36, ld8_keep(x + 4));
    st4_policy(o + 38, ld4_keep(x), l2_evict_normal()), st4_stream(o + 39, ld4_early(x + 1));
    st16(o + 40, ld16_early(x)), st4(o + 44, ld4_older(x + 3)), st4(o + 45, ld4_nc(x + 5)), st8(o + 46, ld8(x + 6));
}

KERNEL(probe_access, struct probe_access_params, p, 64, 1)
{
    const uint32_t i = block_x() * 64 + thread_x(), *x = p.x + 8 * i;
    uint32_t *o = p.out + 64 * i;
    const uint64_t clock = clock_cycles(), timer = global_timer();
    probe_vectors(x, o);
    const float f = (float)(x[0] & 0xffff);
    o[48] = f32_bits(shuffle_f32(FULL_WARP, f, lane_id() * 5 + 1, 32));
    o[49] = f32_bits(shuffle_up_f32(FULL_WARP, f, 2, 16));
    o[50] = f32_bits(shuffle_down_f32(FULL_WARP, f, 2, 16));
    o[51] = f32_bits(shuffle_xor_f32(FULL_WARP, f, 6, 32));
    o[52] = block_dim_y() | block_dim_z() << 4 | grid_dim_y() << 8 | grid_dim_z() << 12 | (thread_y() + thread_z() + block_y() + block_z()) << 16;
    o[53] = (uint32_t)(sm_id() < 4096) | (uint32_t)(clock_cycles() >= clock) << 1 | (uint32_t)(global_timer() >= timer) << 2;

    atom_add_f32(relaxed, gpu, &p.floats[0], 0.5f);
    atom_add_u64(relaxed, gpu, &p.wide[0], 1ull << 40 | i);
    atom_max_u32(relaxed, gpu, &p.counters[0], i * 3);
    atom_max_s32(relaxed, gpu, (int32_t *)&p.counters[1], (int32_t)i - 64);
    atom_or_b32(relaxed, gpu, &p.counters[2], 1u << (i % 32));
    uint64_t old;
    do old = ld_u64(relaxed, gpu, &p.wide[1]);
    while (atom_cas_b64(acq_rel, gpu, &p.wide[1], old, old + (1ull << 33)) != old);
    if (i == 0) atom_exch_b64(acq_rel, sys, &p.wide[2], 0x123456789abcdefull);
    /* one block leaves 64 bits that the other waits for */
    if (i == 64) st_u64(release, gpu, &p.wide[3], 77ull << 32);
    if (block_x() == 0 && thread_x() == 0)
        while (ld_u64(acquire, gpu, &p.wide[3]) != 77ull << 32) nano_sleep(20);
    o[54] = 1;
}
